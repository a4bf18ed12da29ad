#include "reference/attention/contradictions.h"

#include <fmt/format.h>

#include "reference/spec/error.h"

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

}  // namespace

void RefuseContradictions(const Plan& plan, const Profile&, const AttentionCase& c) {
  CheckWeights(plan);
  CheckMerge(plan);
  CheckDepth(plan.qk, "qk", c.k_dim);
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
