// Golden traces from file to verdict.

#ifndef TOOLS_CORRIDOR_RECORDED_TRACE_H_
#define TOOLS_CORRIDOR_RECORDED_TRACE_H_

#include "reference/judge/verdict.h"
#include "reference/spec/trace.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {

// Judges what an implementation left for a case of kind `cache`, beside the model of the contract,
// under the profile and plan that are stored with it.
// Errors: kUnreadableFile for what is no recording of the case; kParse for its profile or plan.
Verdict JudgeRecordedTrace(const StoredFile& file, const StoredAnswer& answer, const CacheCase& c);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_RECORDED_TRACE_H_
