// The implementations of caches that a command line can name:
//   optimized  kvcheck's own caches (optimized/cache)
//   model      the model of the contract itself (a check of itself)
//   fault:ID   the model with the rule of a catalogued fault replaced
//   others     in processes of their own: adapters.h

#ifndef TOOLS_CORRIDOR_CACHE_IMPLEMENTATIONS_H_
#define TOOLS_CORRIDOR_CACHE_IMPLEMENTATIONS_H_

#include <functional>
#include <memory>
#include <string>

#include "reference/judge/verdict.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/trace.h"
#include "reference/trace/run_trace.h"
#include "reference/trace/trace_store.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

// Another implementation by name, for a program that links this library with caches of its own.
// Precondition: the name is new.
void RegisterCacheImplementation(const std::string& name,
                                 std::function<std::unique_ptr<CacheFactory>()> make);

// limits: of an implementation in another process. Errors: kUsage for an unknown name, listing the
// names; kUnsupported for a process that does not greet.
std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name,
                                               const RemoteLimits& limits = {});
// Where its caches save: null, in the memory of whoever runs traces; else in their process.
TraceStore* OwnStore(CacheFactory* factory);

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
// As a report shows it.
Verdict VerdictOf(const CacheCase& c, const JudgedTrace& result, const CacheFactory& factory);

// store: where the trace saves; null: where the implementation does, or in memory.
Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store = nullptr);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_CACHE_IMPLEMENTATIONS_H_
