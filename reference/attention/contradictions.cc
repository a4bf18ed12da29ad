#include "reference/attention/contradictions.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/formats/codec.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

[[noreturn]] void Refuse(std::string message) {
  throw Error(ErrorCode::kIllegalCase, std::move(message), "plan");
}

void CheckWeights(const Plan& plan) {
  if (plan.p_normalised != true) return;
  if (plan.l_from_rounded_p == true) {
    Refuse(
        "l_from=rounded contradicts p_normalised=yes: the denominator is summed before the weights "
        "are divided by it and rounded; say l_from=unrounded");
  }
  if (plan.merge == MergeKind::kAccumulators) {
    Refuse(
        "p_normalised=yes contradicts merge=accumulators: weights that are divided by the "
        "denominator of their own range cannot be added up; say merge=lse");
  }
}

void CheckMerge(const Plan& plan) {
  if (!plan.merge || !plan.splits) return;
  if (*plan.merge == MergeKind::kNone && *plan.splits > 1) {
    Refuse(
        fmt::format("splits={} contradicts merge=none: the results of {} ranges must be "
                    "combined somehow; say splits=1, or how they are merged",
                    *plan.splits, *plan.splits));
  }
  if (*plan.merge != MergeKind::kNone && *plan.splits == 1) {
    Refuse(
        fmt::format("splits=1 contradicts merge={}: one range has nothing to merge with; say "
                    "merge=none, or the number of ranges",
                    Name(*plan.merge)));
  }
}

// Two terms meet in an addition, which rounds.
void CheckDepth(const std::optional<SumPlan>& sum, std::string_view key, int64_t terms) {
  if (!sum || sum->order != SumOrder::kDepth || sum->width > 0 || terms <= 1) return;
  Refuse(
      fmt::format("{}={} contradicts the case: a sum of {} terms rounds at least once; say the "
                  "most roundings that one term passes",
                  key, Print(*sum), terms));
}

void CheckInteger(const Plan& plan, const Profile& profile, const AttentionCase& c) {
  if (!plan.integer_qk) return;
  const std::string field = "integer_qk=" + Print(*plan.integer_qk);
  if (!GridOf(*plan.integer_qk)) {
    Refuse(field + " names no integer codes: say an affine format, as affine:8:g32:f32");
  }
  if (!GridOf(c.k)) {
    Refuse(
        fmt::format("{} contradicts k={}: integer products need codes on both sides; the case "
                    "must store K in an affine format",
                    field, Print(c.k)));
  }
  CheckHeadDim(*plan.integer_qk, c.k_dim, "plan, integer_qk");
  if (profile.decode != DecodeRounding::kExact) {
    Refuse(field +
           " contradicts the profile: sums over codes mean the real c s + z, not values that "
           "were rounded on their own; say decode=exact");
  }
  if (plan.prescale_roundings.value_or(0) > 0) {
    Refuse(field +
           " contradicts prescale: the codec's error is that of the query as it comes; say "
           "prescale=none, and count the scaling in scale_roundings");
  }
  if (plan.op && plan.op->dtype != DType::kFloat32 && plan.op->dtype != DType::kFloat64) {
    Refuse(
        fmt::format("{} contradicts op={}: scales and sums of codes, up to 2^23, must be exact in "
                    "it; say op=f32 or f64",
                    field, Print(*plan.op)));
  }
}

void CheckFixed(const std::optional<double>& error, std::string_view key, bool is_key,
                const Plan& plan, const Profile& profile, const AttentionCase& c) {
  if (!error) return;
  const std::string field = fmt::format("{}={}", key, PrintReal(*error));
  const KvFormat& format = is_key ? c.k : c.v;
  if (!GridOf(format)) {
    Refuse(
        fmt::format("{} contradicts {}={}: integers are multiplied with codes; the case must store "
                    "{} in an affine format",
                    field, is_key ? "k" : "v", Print(format), is_key ? "K" : "V"));
  }
  if (plan.dequantize != DequantizeKind::kFactored || profile.decode != DecodeRounding::kExact) {
    Refuse(field +
           " contradicts the rest of it: integers meet codes only where scales and biases stay out "
           "of the sums; say dequantize=factored, and decode=exact in the profile");
  }
  if (is_key && plan.integer_qk) {
    Refuse(fmt::format("{} contradicts integer_qk={}: the query is one or the other; leave one out",
                       field, Print(*plan.integer_qk)));
  }
  if (is_key && plan.prescale_roundings.value_or(0) > 0) {
    Refuse(field +
           " contradicts prescale: its error is that of the query as it comes; say prescale=none, "
           "and count the scaling in scale_roundings");
  }
}

void CheckRotated(const Plan& plan, const Profile& profile, const AttentionCase& c) {
  if (plan.dequantize != DequantizeKind::kRotated) return;
  if (!BasisOf(c.k, c.k_dim).Rotates() && !BasisOf(c.v, c.v_dim).Rotates()) {
    Refuse(
        fmt::format("dequantize=rotated contradicts k={} v={}: neither stores rotated rows; say "
                    "stored, inside:ROUNDINGS, factored or rounded:TYPE",
                    Print(c.k), Print(c.v)));
  }
  if (profile.decode != DecodeRounding::kExact) {
    Refuse(
        "dequantize=rotated contradicts the profile: rows that are not rotated back are not "
        "rounded to their type; say decode=exact");
  }
}

// Operands are cut as the sums meet them: rows of values, in f32 or less.
void CheckOperands(const Plan& plan, const AttentionCase& c) {
  for (const auto& [key, cut] : {std::pair{"qk", &plan.qk_operands}, {"pv", &plan.pv_operands}}) {
    if (!cut->has_value()) continue;
    const std::string field = fmt::format("operands={}:{}", key, Print(**cut));
    const bool is_f64 = c.q == DType::kFloat64 || (plan.op && plan.op->dtype == DType::kFloat64);
    if (is_f64) {
      Refuse(field + " contradicts f64: operands in f32 or a shorter type are cut; leave it out");
    }
    if (plan.integer_qk || plan.fixed_q || plan.fixed_p ||
        plan.dequantize == DequantizeKind::kFactored ||
        plan.dequantize == DequantizeKind::kRotated) {
      Refuse(
          field +
          " contradicts the rest of it: values are cut, not codes nor rows in the basis in which "
          "they are stored; say dequantize=stored, inside:ROUNDINGS or rounded:TYPE, without "
          "integer_qk, fixed_q and fixed_p");
    }
  }
}

void CheckMergeWeights(const Plan& plan) {
  if (!plan.merge_weights || plan.merge != MergeKind::kNone) return;
  Refuse(
      fmt::format("merge_weights={} contradicts merge=none: nothing is merged; say how, or leave "
                  "it out",
                  ShortName(*plan.merge_weights)));
}

}  // namespace

int64_t IntegerGroups(const KvFormat& query, const AttentionCase& c) {
  return c.k_dim / std::min(GridOf(query)->group, GridOf(c.k)->group);
}

void RefuseContradictions(const Plan& plan, const Profile& profile, const AttentionCase& c) {
  CheckWeights(plan);
  CheckMerge(plan);
  CheckInteger(plan, profile, c);
  CheckRotated(plan, profile, c);
  CheckOperands(plan, c);
  CheckMergeWeights(plan);
  CheckFixed(plan.fixed_q, "fixed_q", true, plan, profile, c);
  CheckFixed(plan.fixed_p, "fixed_p", false, plan, profile, c);
  CheckDepth(plan.qk, "qk", plan.integer_qk ? IntegerGroups(*plan.integer_qk, c) : c.k_dim);
  CheckDepth(plan.pv, "pv", c.kv_len);
  CheckDepth(plan.l, "l", c.kv_len);
}

void RefuseScaleOfExactWeights(const Plan& plan) {
  const bool p_stays = !(UnitRoundoff(*plan.p) > UnitRoundoff(plan.op->dtype));
  if (!p_stays || *plan.p_scale == 1) return;
  Refuse(
      fmt::format("p_scale={} contradicts p={} op={}: P is scaled only to be rounded to a lower "
                  "type, and scaled weights that are not may round or overflow; say p_scale=1",
                  *plan.p_scale, ShortName(*plan.p), Print(*plan.op)));
}

}  // namespace kvcheck
