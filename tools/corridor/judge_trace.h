// A case of operations judged: beside the model, and what of the result a report says.

#ifndef TOOLS_CORRIDOR_JUDGE_TRACE_H_
#define TOOLS_CORRIDOR_JUDGE_TRACE_H_

#include <string>
#include <string_view>

#include "reference/judge/verdict.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/trace.h"
#include "reference/trace/run_trace.h"
#include "reference/trace/trace_store.h"

namespace kvcheck {

struct JudgedTrace : TraceResult {
  // Of a case in which the implementation's process was lost: "append CRASHED"; else "".
  std::string loss;
};

// Runs the trace beside the model; a trace that fails is run again with every slot observed after
// every operation, so that the result names the operation that broke it.
JudgedTrace JudgeTrace(const CacheCase& c, TraceRunner* runner, TraceOptions options = {});

// What broke, the same for failures with one cause: "append visible_missing", "MISTRUSTED"; "" of
// PASS.
std::string SignatureOf(const CacheCase& c, const JudgedTrace& result);
// Of an illegal call that another process carried out: which word of relies_on takes such calls
// out.
std::string PreconditionHint(std::string_view word);
// As a report shows it.
Verdict VerdictOf(const CacheCase& c, const JudgedTrace& result, const CacheFactory& factory);

// store: where the trace saves; null: where the implementation does, or in memory.
// Errors: what options.on_operation throws.
Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store = nullptr,
                          TraceOptions options = {});

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_JUDGE_TRACE_H_
