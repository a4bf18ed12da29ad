#include "reference/attention/suspects.h"

#include <fmt/format.h>

#include "reference/formats/codec.h"
#include "reference/spec/text.h"

namespace kvcheck {

std::vector<Suspect> Suspects(const Plan& declared, const Plan& plan, const Profile& profile,
                              const AttentionCase& c) {
  std::vector<Suspect> suspects;
  const auto add = [&](Plan changed, std::string text) {
    if (changed == declared) return;
    suspects.push_back({std::move(changed), std::move(text)});
  };
  const auto add_type = [&](std::optional<DType> Plan::* field, std::string_view key, DType type) {
    Plan changed = declared;
    if (UnitRoundoff(type) <= UnitRoundoff(*(plan.*field))) return;
    changed.*field = type;
    add(changed, fmt::format("{}={} instead of {}={}", key, ShortName(type), key,
                             ShortName(*(plan.*field))));
  };
  for (double error : {0x1p-21, 0x1p-18}) {
    if (error <= *plan.exp_error) continue;
    Plan changed = declared;
    changed.exp_error = error;
    add(changed,
        fmt::format("exp_error={} instead of {}", PrintReal(error), PrintReal(*plan.exp_error)));
  }
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    add_type(&Plan::p, "p", type);
    add_type(&Plan::scores, "scores", type);
    Plan changed = declared;
    // Not beside integers, whose error is that of the query as it comes.
    if (*plan.prescale_roundings == 0 && !plan.integer_qk && !plan.fixed_q) {
      changed.prescale_roundings = 1;
      changed.prescale_dtype = type;
      add(changed, fmt::format("prescale={}:1 instead of prescale=none", ShortName(type)));
    }
    if (*plan.merge != MergeKind::kNone) add_type(&Plan::partial, "partial", type);
  }
  // A query of 8 bits and a sign, and one of three such bytes; likewise weights.
  const bool factored =
      *plan.dequantize == DequantizeKind::kFactored && profile.decode == DecodeRounding::kExact;
  for (const double error : {0x1p-23, 0x1p-8}) {
    const auto add_fixed = [&](std::optional<double> Plan::* field, std::string_view key) {
      if (plan.*field && error <= *(plan.*field)) return;
      Plan changed = declared;
      changed.*field = error;
      add(changed, fmt::format("{}={} instead of {}", key, PrintReal(error),
                               plan.*field ? PrintReal(*(plan.*field)) : std::string("none")));
    };
    const bool integers = plan.integer_qk || *plan.prescale_roundings > 0;
    if (factored && GridOf(c.k) && !integers) add_fixed(&Plan::fixed_q, "fixed_q");
    if (factored && GridOf(c.v)) add_fixed(&Plan::fixed_p, "fixed_p");
  }
  const bool rotates = BasisOf(c.k, c.k_dim).Rotates() || BasisOf(c.v, c.v_dim).Rotates();
  if (rotates && *plan.dequantize != DequantizeKind::kRotated && !plan.integer_qk &&
      profile.decode == DecodeRounding::kExact) {
    Plan changed = declared;
    changed.dequantize = DequantizeKind::kRotated;
    changed.dequantize_roundings = 2;
    add(changed,
        fmt::format("dequantize=rotated:2 instead of dequantize={}", Name(*plan.dequantize)));
  }
  const auto add_sum = [&](std::optional<SumPlan> Plan::* field, std::string_view key,
                           SumPlan sum) {
    Plan changed = declared;
    changed.*field = sum;
    add(changed,
        fmt::format("{}={} instead of {}={}", key, Print(sum), key, Print(*(plan.*field))));
  };
  for (auto [field, key] : {std::pair{&Plan::pv, "pv"}, {&Plan::qk, "qk"}, {&Plan::l, "l"}}) {
    SumPlan sum = *(plan.*field);
    if (sum.order != SumOrder::kTensorCore && !sum.accumulator.toward_zero) {
      sum.accumulator.toward_zero = true;
      add_sum(field, key, sum);
    }
    for (DType type : {DType::kFloat16, DType::kBFloat16}) {
      if (c.q == DType::kFloat64 || UnitRoundoff(type) <= UnitRoundoff(sum.accumulator.dtype))
        continue;
      SumPlan low;
      low.accumulator = {type, false};
      add_sum(field, key, low);
    }
  }
  return suspects;
}

}  // namespace kvcheck
