// A prefix case judged, and what of the result a report says.

#ifndef TOOLS_CORRIDOR_JUDGE_HISTORY_H_
#define TOOLS_CORRIDOR_JUDGE_HISTORY_H_

#include <string>

#include "reference/judge/verdict.h"
#include "reference/prefix/history_result.h"
#include "reference/prefix/run_history.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck {

struct JudgedHistory : HistoryResult {
  // Of a case in which the implementation's process was lost: "open CRASHED"; else "".
  std::string loss;
};

// Runs the history beside what the judge knows; one that fails is run again with every request read
// after every operation, so that the result names the operation that broke it.
JudgedHistory JudgeHistory(const PrefixCase& c, HistoryRunner* runner, HistoryOptions options = {});

// "open other_tenant", "MISTRUSTED"; "" of PASS.
std::string SignatureOf(const PrefixCase& c, const JudgedHistory& result);
// As a report shows it.
Verdict VerdictOf(const PrefixCase& c, const JudgedHistory& result,
                  const PrefixImplementation& implementation);

// Errors: what options.on_operation throws.
Verdict EvaluatePrefixCase(const PrefixCase& c, PrefixImplementation* implementation,
                           HistoryOptions options = {});

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_JUDGE_HISTORY_H_
