// How attention.h computes, as a plan, of which a bound is made. Everything here follows from the
// code: block.h (lanes, blocks), packed_codes.h (runs), exp.h, merge_splits.cc (merge, sinks,
// division).

#ifndef OPTIMIZED_ATTENTION_ATTENTION_PLAN_H_
#define OPTIMIZED_ATTENTION_ATTENTION_PLAN_H_

#include <cstdint>

#include "optimized/attention/attention.h"
#include "reference/spec/plan.h"

namespace kvcheck::optimized {

// kv_len: positions from 0 to the last that a query may see.
// bias_roundings: those that the caller makes before it hands a bias or a sink over.
// alibi: whether there are slopes.
struct PlanQuestion {
  int64_t kv_len = 1;
  int bias_roundings = 0;
  bool alibi = false;
};
Plan PlanOf(const AttentionShape& shape, const PlanQuestion& question);
// The plan's splits: the one thing in it that kv_len decides.
int PlannedSplits(int64_t kv_len);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_ATTENTION_PLAN_H_
