#include "tools/kvcheck/cache_implementations.h"

#include <fmt/format.h>

#include "fuzz/run_trace.h"
#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

constexpr std::string_view kFaultPrefix = "fault:";

}  // namespace

std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name) {
  if (name == "optimized") return std::make_unique<optimized::OptimizedCacheFactory>();
  if (name == "model") return std::make_unique<ModelFactory>();
  if (name.starts_with(kFaultPrefix)) {
    const std::string id = name.substr(kFaultPrefix.size());
    const CacheFault* fault = FindCacheFault(id);
    if (fault != nullptr) return std::make_unique<ModelFactory>(fault->rules(), name);
    std::string known;
    for (const CacheFault& entry : CacheFaults()) known += " " + std::string(entry.id);
    throw Error(ErrorCode::kUsage, fmt::format("there is no cache fault '{}'; known:{}", id, known),
                "--impl");
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format("there is no implementation of caches '{}'; known: optimized, model, fault:ID",
                  name),
      "--impl");
}

Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store) {
  TraceRunner runner(factory, store);
  TraceResult result = runner.Run(c);
  if (result.outcome == Outcome::kFail) {
    TraceOptions options;
    options.every_slot = true;
    options.observe_each = true;
    TraceResult again = runner.Run(c, options);
    // Without observation in between it may not fail: then the first answer stands.
    if (again.outcome == Outcome::kFail) result = std::move(again);
  }
  Verdict verdict = ToVerdict(c, result);
  verdict.profile = Print(factory->GetCapabilities().cache_profile);
  return verdict;
}

}  // namespace kvcheck
