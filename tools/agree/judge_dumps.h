// The verdict on two dumps: what errors of both do not explain fails, and what could not have
// failed proves nothing.

#ifndef TOOLS_AGREE_JUDGE_DUMPS_H_
#define TOOLS_AGREE_JUDGE_DUMPS_H_

#include "optimized/model/logits_pair.h"
#include "tools/agree/compare_dumps.h"
#include "tools/agree/logits_dump.h"

namespace kvcheck {

// How far numbers of two dumps may differ, each log-probability by `each`:
//
//   each = error of GOLD's file + error of GOT's format + 2 logit_error + got_error + noise
//
// What GOT's file says of its own error (TokenDistribution::error_is_stated) is `own`: it excuses
// nothing by itself.
struct ExplainedErrors {
  double each = 0;
  double noise = 0;  // of `each`
  double own = 0;
};

ExplainedErrors ErrorsOf(const DumpQuestion& question, double noise, const TokenDistribution& gold,
                         const TokenDistribution& got);

// What one position adds. pair: of the two, all numbers of which are finite.
//
// Definition: the margin of two tokens is explained up to 2 each + what the types of both files
// round of the two numbers (TokenDistribution::MarginRounding); a log-probability up to each + what
// they round of it. A token that one dump does not list is judged by the most that it can have
// there (UnlistedMost).
void JudgePosition(const DumpQuestion& question, double noise, int64_t at,
                   const TokenDistribution& gold, const TokenDistribution& got,
                   const optimized::LogitsPair& pair, DumpFindings* findings);

// Sets outcome, why, excused and undecided from the rest.
void Conclude(DumpReport* report);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_JUDGE_DUMPS_H_
