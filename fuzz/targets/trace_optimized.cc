// Bytes as a trace (fuzz/trace_bytes.h), on the optimized caches beside the model of the contract:
// every state after every operation, every refusal, every output of attention. A failure prints the
// command that repeats it.

#include <cstddef>
#include <cstdint>

#include "fuzz/trace_bytes.h"
#include "optimized/cache/cache_factory.h"
#include "reference/spec/error.h"
#include "reference/trace/run_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvcheck;
  static optimized::OptimizedCacheFactory factory;
  static TraceRunner runner(&factory);
  const CacheCase c = TraceOfBytes({data, size});
  const TraceResult result = runner.Run(c);
  if (result.outcome == Outcome::kFail || result.outcome == Outcome::kUnsupported) {
    KVCHECK_CHECK(false,
                  ("kvcheck run '" + Print(c) + "' --impl optimized: " + result.reason).c_str());
  }
  return 0;
}
