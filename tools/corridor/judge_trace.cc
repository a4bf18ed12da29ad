#include "tools/corridor/judge_trace.h"

#include <fmt/format.h>

#include <utility>

#include "reference/spec/implementation_loss.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

JudgedTrace JudgeTrace(const CacheCase& c, TraceRunner* runner, TraceOptions options) {
  int64_t index = -1;
  options.on_operation = [&index, told = options.on_operation](int64_t operation) {
    index = operation;
    if (told) told(operation);
  };
  JudgedTrace result;
  try {
    static_cast<TraceResult&>(result) = runner->Run(c, options);
  } catch (const ImplementationLoss& loss) {
    result.outcome = OutcomeOf(loss.kind());
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
  } catch (const ImplementationLoss&) {
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
  if (capabilities.states_plan) {
    const std::string profile = Print(capabilities.profile);
    if (!profile.empty()) verdict.profile += (verdict.profile.empty() ? "" : " ") + profile;
    verdict.plan = CommandPlan(capabilities.plan);
  }
  return verdict;
}

Verdict EvaluateCacheCase(const CacheCase& c, CacheFactory* factory, TraceStore* store,
                          TraceOptions options) {
  TraceRunner runner(factory, store);
  const JudgedTrace result = JudgeTrace(c, &runner, std::move(options));
  Verdict verdict = VerdictOf(c, result, *factory);
  const std::string signature = SignatureOf(c, result);
  if (!signature.empty()) verdict.reasons.push_back(fmt::format("signature \"{}\"", signature));
  return verdict;
}

}  // namespace kvcheck
