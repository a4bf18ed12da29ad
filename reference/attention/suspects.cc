#include "reference/attention/suspects.h"

#include <fmt/format.h>

#include "reference/attention/operand_cut.h"
#include "reference/formats/codec.h"
#include "reference/spec/text.h"

namespace kvcheck {

namespace {

// Tensor cores and matrix units by their likelihood: TF32, which is the default of much that is f32
// in name, of either product or of both; bf16; three products for one. Operands of 11 bits and less
// are what they are in TF32. add: takes a plan and its text.
template <typename Add>
void AddOperands(const Plan& declared, const Plan& plan, const AttentionCase& c, const Add& add) {
  const bool has_values = !plan.integer_qk && !plan.fixed_q && !plan.fixed_p &&
                          *plan.dequantize != DequantizeKind::kFactored &&
                          *plan.dequantize != DequantizeKind::kRotated;
  if (!has_values || c.q != DType::kFloat32 || plan.op->dtype != DType::kFloat32) return;
  const auto cut_of = [](const std::optional<OperandCut>& qk, const std::optional<OperandCut>& pv) {
    Plan said;
    said.qk_operands = qk, said.pv_operands = pv;
    const std::string text = Print(said);
    return text.empty() ? std::string("operands=none") : text;
  };
  const auto add_cut = [&](bool of_qk, bool of_pv, const OperandCut& cut) {
    // What is said already of a coarser cut, or of more passes, explains no more.
    const auto says_more = [&](const std::optional<OperandCut>& said) {
      return !said ||
             (said->passes == 1 && cut.passes == 1 ? UnitRoundoff(*said) < UnitRoundoff(cut)
                                                   : said->passes > cut.passes);
    };
    Plan changed = declared;
    if (of_qk && says_more(plan.qk_operands)) changed.qk_operands = cut;
    if (of_pv && says_more(plan.pv_operands)) changed.pv_operands = cut;
    add(changed, fmt::format("{} instead of {}", cut_of(changed.qk_operands, changed.pv_operands),
                             cut_of(plan.qk_operands, plan.pv_operands)));
  };
  constexpr OperandCut kTf32 = {OperandType::kTf32, 1, true};
  add_cut(true, true, kTf32);
  add_cut(true, false, kTf32);
  add_cut(false, true, kTf32);
  add_cut(true, true, {OperandType::kBf16, 1, false});
  add_cut(true, true, {OperandType::kTf32, 3, true});
  add_cut(true, true, {OperandType::kBf16, 3, false});
}

}  // namespace

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
  // Seen in the outputs themselves, and so before all that would merely make the bound as large.
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const DType before = plan.through.value_or(c.out);
    if (UnitRoundoff(type) <= UnitRoundoff(before) || c.out == DType::kFloat64) continue;
    Plan changed = declared;
    changed.through = type;
    suspects.push_back(
        {std::move(changed),
         fmt::format("through={} instead of through={}", ShortName(type),
                     plan.through ? ShortName(*plan.through) : std::string_view("none")),
         type});
  }
  for (double error : {0x1p-21, 0x1p-18}) {
    if (error <= *plan.exp_error) continue;
    Plan changed = declared;
    changed.exp_error = error;
    add(changed,
        fmt::format("exp_error={} instead of {}", PrintReal(error), PrintReal(*plan.exp_error)));
  }
  for (DType type : {DType::kFloat16, DType::kBFloat16}) add_type(&Plan::p, "p", type);
  const bool rotates = BasisOf(c.k, c.k_dim).Rotates() || BasisOf(c.v, c.v_dim).Rotates();
  if (rotates && *plan.dequantize != DequantizeKind::kRotated && !plan.integer_qk &&
      profile.decode == DecodeRounding::kExact) {
    Plan changed = declared;
    changed.dequantize = DequantizeKind::kRotated;
    changed.dequantize_roundings = 2;
    add(changed,
        fmt::format("dequantize=rotated:2 instead of dequantize={}", Name(*plan.dequantize)));
  }
  AddOperands(declared, plan, c, add);
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    add_type(&Plan::scores, "scores", type);
    Plan changed = declared;
    // Not beside integers, whose error is that of the query as it comes.
    if (*plan.prescale_roundings == 0 && !plan.integer_qk && !plan.fixed_q) {
      changed.prescale_roundings = 1;
      changed.prescale_dtype = type;
      add(changed, fmt::format("prescale={}:1 instead of prescale=none", ShortName(type)));
    }
    if (*plan.merge != MergeKind::kNone) {
      add_type(&Plan::partial, "partial", type);
      if (UnitRoundoff(type) > UnitRoundoff(plan.merge_weights.value_or(plan.op->dtype))) {
        Plan merged = declared;
        merged.merge_weights = type;
        add(merged, fmt::format("merge_weights={} instead of merge_weights={}", ShortName(type),
                                ShortName(plan.merge_weights.value_or(plan.op->dtype))));
      }
    }
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
