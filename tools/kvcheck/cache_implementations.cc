#include "tools/kvcheck/cache_implementations.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

constexpr std::string_view kCacheFaultPrefix = "fault:";

using Makers = std::map<std::string, std::function<std::unique_ptr<CacheFactory>()>>;

Makers& Registered() {
  static Makers makers;
  return makers;
}

}  // namespace

void RegisterCacheImplementation(const std::string& name,
                                 std::function<std::unique_ptr<CacheFactory>()> make) {
  const bool added = Registered().emplace(name, std::move(make)).second;
  KVCHECK_CHECK(added, "two implementations of one name");
}

std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name) {
  if (name == "optimized") return std::make_unique<optimized::OptimizedCacheFactory>();
  if (name == "model") return std::make_unique<ModelFactory>();
  if (name.starts_with(kCacheFaultPrefix)) {
    const std::string id = name.substr(kCacheFaultPrefix.size());
    const CacheFault* fault = FindCacheFault(id);
    if (fault != nullptr) return std::make_unique<ModelFactory>(fault->rules(), name);
    std::string known;
    for (const CacheFault& entry : CacheFaults()) known += " " + std::string(entry.id);
    throw Error(ErrorCode::kUsage, fmt::format("there is no cache fault '{}'; known:{}", id, known),
                "--impl");
  }
  const auto registered = Registered().find(name);
  if (registered != Registered().end()) return registered->second();
  std::string known;
  for (const auto& [other, make] : Registered()) known += ", " + other;
  throw Error(ErrorCode::kUsage,
              fmt::format("there is no implementation of caches '{}'; known: optimized, model, "
                          "fault:ID{}",
                          name, known),
              "--impl");
}

TraceResult JudgeTrace(const CacheCase& c, TraceRunner* runner, TraceOptions options) {
  TraceResult result = runner->Run(c, options);
  if (result.outcome != Outcome::kFail) return result;
  options.every_slot = true;
  options.observe_each = true;
  TraceResult again = runner->Run(c, options);
  // Without observation in between it may not fail: then the first answer stands.
  return again.outcome == Outcome::kFail ? again : result;
}

std::string SignatureOf(const CacheCase& c, const TraceResult& result) {
  if (result.outcome == Outcome::kPass) return "";
  if (result.outcome != Outcome::kFail) return std::string(Name(result.outcome));
  return result.Signature(c);
}

Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store) {
  TraceRunner runner(factory, store);
  const TraceResult result = JudgeTrace(c, &runner);
  Verdict verdict = ToVerdict(c, result);
  const std::string signature = SignatureOf(c, result);
  if (!signature.empty()) verdict.reasons.push_back(fmt::format("signature \"{}\"", signature));
  verdict.profile = Print(factory->GetCapabilities().cache_profile);
  return verdict;
}

}  // namespace kvcheck
