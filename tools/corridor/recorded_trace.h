// What a golden file holds as somebody's answer, from file to verdict.

#ifndef TOOLS_CORRIDOR_RECORDED_TRACE_H_
#define TOOLS_CORRIDOR_RECORDED_TRACE_H_

#include "reference/judge/verdict.h"
#include "reference/spec/trace.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {

// Judges what an implementation left for a case of kind `cache`, beside the model of the contract,
// under the profile and plan that are stored with it.
// Errors: kUnreadableFile for what is no recording of the case; kParse for its profile or plan.
Verdict JudgeRecordedTrace(const StoredFile& file, const StoredAnswer& answer, const CacheCase& c);

// The same of every kind: got holds the answer, gold the inputs, under the plan and profile that
// the answer names. Errors: those of GoldenInputs and EvaluateCase.
Verdict JudgeStoredAnswer(const StoredFile& gold, const GoldenCase& outline, const Case& c,
                          const StoredFile& got, const StoredAnswer& answer,
                          const JudgeOptions& options, const Cancel& cancel = {});

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_RECORDED_TRACE_H_
