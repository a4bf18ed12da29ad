// The implementations of caches that a command line can name:
//   optimized  kvcheck's own caches (optimized/cache)
//   model      the model of the contract itself (a check of itself)
//   fault:ID   the model with the rule of a catalogued fault replaced

#ifndef TOOLS_KVCHECK_CACHE_IMPLEMENTATIONS_H_
#define TOOLS_KVCHECK_CACHE_IMPLEMENTATIONS_H_

#include <memory>
#include <string>

#include "fuzz/trace_store.h"
#include "reference/judge/verdict.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/trace.h"

namespace kvcheck {

// Errors: kUsage for an unknown name, listing the names.
std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name);

// Runs the trace beside the model; a trace that fails is run again with every slot observed after
// every operation, so that the verdict names the operation that broke it. store: where it saves;
// null: in memory.
Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store = nullptr);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_CACHE_IMPLEMENTATIONS_H_
