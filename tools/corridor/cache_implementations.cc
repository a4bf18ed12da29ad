#include "tools/corridor/cache_implementations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/faults/cache_faults.h"
#include "tools/process/remote_cache.h"

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

std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name,
                                               const RemoteLimits& limits) {
  if (name == "optimized") return std::make_unique<optimized::OptimizedCacheFactory>();
  if (name == "model") return std::make_unique<ModelFactory>();
  if (name.starts_with(kCacheFaultPrefix)) {
    const std::string id = name.substr(kCacheFaultPrefix.size());
    const CacheFault* fault = FindCacheFault(id);
    if (fault != nullptr) return std::make_unique<ModelFactory>(fault->rules(), name);
    std::vector<std::string> known;
    for (const CacheFault& entry : CacheFaults()) known.emplace_back(entry.id);
    throw Error(
        ErrorCode::kUsage,
        fmt::format("there is no cache fault '{}'{}; known: {}", Shortened(id, kMostNameShown),
                    DidYouMean(id, known), fmt::join(known, " ")),
        "--impl");
  }
  const auto registered = Registered().find(name);
  if (registered != Registered().end()) return registered->second();
  if (AdapterCommand(name)) {
    const Greeting& greeting = GreetingOf(name, limits);
    if (!greeting.Has("cache")) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' has no caches, it says: only {}", name,
                              fmt::join(greeting.kinds, ", ")),
                  "--impl");
    }
    return std::make_unique<RemoteCacheFactory>(AdapterProcess(name, limits));
  }
  std::vector<std::string> known = {"optimized", "model"};
  for (const auto& [other, make] : Registered()) known.push_back(other);
  const std::string listed = fmt::format("{}", fmt::join(known, ", "));
  for (const std::string& adapter : AdapterNames()) known.push_back(adapter);
  throw Error(
      ErrorCode::kUsage,
      fmt::format("there is no implementation of caches '{}'{}; known: {}, fault:ID; {}",
                  Shortened(name, kMostNameShown), DidYouMean(name, known), listed, AdaptersText()),
      "--impl");
}

TraceStore* OwnStore(CacheFactory* factory) {
  auto* remote = dynamic_cast<RemoteCacheFactory*>(factory);
  return remote == nullptr ? nullptr : remote->store();
}

JudgedTrace JudgeTrace(const CacheCase& c, TraceRunner* runner, TraceOptions options) {
  int64_t index = -1;
  options.on_operation = [&index, told = options.on_operation](int64_t operation) {
    index = operation;
    if (told) told(operation);
  };
  JudgedTrace result;
  try {
    static_cast<TraceResult&>(result) = runner->Run(c, options);
  } catch (const RemoteLoss& loss) {
    result.outcome = loss.outcome();
    result.operation = index;
    result.loss = loss.Signature();
    result.reason = index < 0
                        ? loss.reason()
                        : fmt::format("operation {}, {}: {}", index + 1,
                                      Print(c.ops[static_cast<size_t>(index)]), loss.reason());
    return result;
  }
  if (result.outcome != Outcome::kFail) return result;
  options.every_slot = true;
  options.observe_each = true;
  options.send_ahead = false;  // what is reported was asked one call at a time
  JudgedTrace again;
  try {
    static_cast<TraceResult&>(again) = runner->Run(c, options);
  } catch (const RemoteLoss&) {
    return result;
  }
  // Without observation in between it may not fail: then the first answer stands.
  return again.outcome == Outcome::kFail ? again : result;
}

std::string SignatureOf(const CacheCase& c, const JudgedTrace& result) {
  if (!result.loss.empty()) return result.loss;
  if (result.outcome == Outcome::kPass) return "";
  if (result.outcome != Outcome::kFail) return std::string(Name(result.outcome));
  return result.Signature(c);
}

Verdict VerdictOf(const CacheCase& c, const JudgedTrace& result, const CacheFactory& factory) {
  Verdict verdict =
      result.loss.empty() ? ToVerdict(c, result) : WithoutJudging(result.outcome, result.reason);
  const CacheCapabilities capabilities = factory.GetCapabilities();
  verdict.profile = Print(capabilities.cache_profile);
  if (dynamic_cast<const RemoteCacheFactory*>(&factory) != nullptr) {
    const std::string profile = Print(capabilities.profile);
    if (!profile.empty()) verdict.profile += (verdict.profile.empty() ? "" : " ") + profile;
    verdict.plan = CommandPlan(capabilities.plan);
  }
  return verdict;
}

Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store) {
  TraceRunner runner(factory, store == nullptr ? OwnStore(factory) : store);
  const JudgedTrace result = JudgeTrace(c, &runner);
  Verdict verdict = VerdictOf(c, result, *factory);
  const std::string signature = SignatureOf(c, result);
  if (!signature.empty()) verdict.reasons.push_back(fmt::format("signature \"{}\"", signature));
  return verdict;
}

}  // namespace kvcheck
