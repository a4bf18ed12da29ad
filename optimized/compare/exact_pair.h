// One pair of codes, decided without rounding: its kind, whether it passes, and its distances as
// the judge measures them. What the vectors leave in doubt ends here.

#ifndef OPTIMIZED_COMPARE_EXACT_PAIR_H_
#define OPTIMIZED_COMPARE_EXACT_PAIR_H_

#include <cstdint>

#include "optimized/compare/first_pass.h"
#include "optimized/compare/pass_plan.h"

namespace kvcheck {

struct PairFacts {
  // What the pair counts as; null for two finite numbers.
  int64_t PassSummary::* kind = nullptr;
  bool passes = false;
  // Of two finite numbers.
  double error = 0;     // |got - want|, to the nearest double; may be infinite
  double relative = 0;  // error / |want|
  double ulps = 0;      // error / spacing at want
  // What the lanes square and sum for this pair; negative when they leave it to AddSquare(error).
  double lane_error = 0;
};

PairFacts ExaminePair(const PassPlan& plan, uint64_t want, uint64_t got);

// Counts and records a pair that occurred so many times: everything of the summary but elements,
// unlike_bits, zeros_of_two_signs, loose, any_nonzero and the squares of lanes, which are counted
// for whole blocks (raw_scan-inl.h). A non-finite pair is taken off `loose` again. Under kExact,
// not_certified counts relative to unlike_bits, which the end of the pass adds.
void AddPair(const PassPlan& plan, uint64_t want, uint64_t got, uint64_t times, PassSummary* to);

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_EXACT_PAIR_H_
