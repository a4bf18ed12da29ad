// Judges prefix cases of a campaign on one implementation.

#ifndef TOOLS_CORRIDOR_HISTORY_CASE_JUDGE_H_
#define TOOLS_CORRIDOR_HISTORY_CASE_JUDGE_H_

#include <memory>
#include <string>

#include "tools/corridor/cancel.h"
#include "tools/corridor/case_judge.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

// Errors: as MakePrefixImplementation.
std::unique_ptr<CaseJudge> MakeHistoryJudge(const std::string& implementation,
                                            const RemoteLimits& limits, const Cancel& cancel);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_HISTORY_CASE_JUDGE_H_
