// The judge: the only place where numbers are compared. It knows no formats and no attention:
// values, bounds and alternatives come from an ExpectedSource, what is judged from an
// ObservedSource.
//
// Rule of an element.
//   accuracy     fails unless |got - value| <= bound + reference_bound, decided exactly
//   conformance  fails unless its code is the expected one
//   either       special values by special_values.h; an alternative of the reference is accepted
//   and
//                counted
// Rule of an output.
//   FAIL        an element fails, or the output is absent or of another type or shape, or, by
//               Rule::kStatistics, a statistic is over its limit
//   MISTRUSTED  nothing was judged; no judged row has inputs; a bound is missing; the bound is as
//               large as the data (kVacuousShare) and hides the least fault that is known, or is so
//               in any row that has inputs (accumulate.h); losing no input would show
//               (Sensitivity); the reference's own error could not be made small enough, or
//               contradicts itself
//   PASS        otherwise
// FAIL beats MISTRUSTED beats PASS, among outputs too. An output that nobody expects is a FAIL. A
// case without outputs is MISTRUSTED.

#ifndef REFERENCE_JUDGE_JUDGE_H_
#define REFERENCE_JUDGE_JUDGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/special_values.h"
#include "reference/judge/statistics.h"
#include "reference/judge/verdict.h"
#include "reference/spec/tiles.h"

namespace kvcheck {

// Begins the reason of an output all of whose judged rows are fully masked: their value is that of
// any kernel, and of one that never ran.
inline constexpr std::string_view kNoQuerySeesAKey =
    "no query sees a key, so that nothing of attention was compared";

struct JudgeOptions {
  int threads = 1;  // does not change the verdict
  Rule rule = Rule::kStatistics;
  bool strict = false;  // a verdict that chooses its own plan is refused
  double false_alarm = kStatisticsFalseAlarm;
  // Names of directions: a verdict that would not have shown such a fault is MISTRUSTED.
  std::vector<std::string> must_see{};
  int64_t sample_rows = 0;  // of each output; 0: all are judged
  uint64_t sample_seed = 1;
  // A row in which any answer of its size would pass makes the verdict MISTRUSTED; otherwise it is
  // a warning: where rows are steps of something that is judged as a whole.
  bool every_row_proves = true;
  bool explain = true;  // terms, hints and breakdown of what failed
  SpecialPolicy special = {};
  Precision first_precision = Precision::kDouble;
  Precision highest_precision = Precision::kOracle50;
};

Verdict Judge(const ExpectedSource& expected, const ObservedSource& observed,
              const JudgeOptions& options = {});

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_JUDGE_H_
