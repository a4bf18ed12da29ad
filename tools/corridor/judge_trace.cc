#include "tools/corridor/judge_trace.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "reference/spec/implementation_loss.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

namespace {

// What relies_on of an adapter calls the check of callers that a call has passed by: by what the
// contract says against it (reference/cache/model_state.cc).
std::string PreconditionOf(std::string_view reason) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"left padding", "padding"},
      {"columns of another", "columns"},
      {"K and V of different numbers", "columns"},
      {"a prepared prefill", "pending"},
      {"lengths name", "lengths"},
      {"a length is negative", "lengths"},
      {"prepared tokens have not", "lengths"},
      {"a negative number of tokens", "counts"},
      {"a row out of range", "rows"},
      {"layouts differ", "kinds"},
      {"formats differ", "kinds"},
      {"merge takes caches of one row", "single"},
      {"a window holds", "windows"},
  };
  constexpr std::string_view kAccepted = "an illegal call was carried out: ";
  const size_t at = reason.find(kAccepted);
  if (at == std::string_view::npos) return "";
  const std::string_view why = reason.substr(at + kAccepted.size());
  for (const auto& [begin, word] : kWords) {
    if (why.starts_with(begin)) return std::string(word);
  }
  return "";
}

}  // namespace

std::string PreconditionHint(std::string_view word) {
  return fmt::format(
      "hint: where the library leaves this check to its callers, the adapter says so by the word "
      "\"{}\" in relies_on; such calls then do not reach the cache, and nothing is claimed of them",
      word);
}

JudgedTrace JudgeTrace(const CacheCase& c, TraceRunner* runner, TraceOptions options) {
  int64_t index = -1;
  const bool explains = options.explains;
  // The first run looks for a failure.
  options.explains = false;
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
  const TraceOptions first = options;
  options.explains = explains;
  options.every_slot = true;
  options.observe_each = true;
  options.send_ahead = false;  // what is reported was asked one call at a time
  const auto asked_again = [&](const TraceOptions& asked) {
    JudgedTrace again;
    try {
      static_cast<TraceResult&>(again) = runner->Run(c, asked);
    } catch (const ImplementationLoss&) {
      again.outcome = Outcome::kCrashed;
    }
    return again;
  };
  JudgedTrace again = asked_again(options);
  if (again.outcome == Outcome::kFail) return again;
  // With observation in between it may not fail: then the first answer stands.
  if (!explains || !result.attention) return result;
  TraceOptions with_causes = first;
  with_causes.explains = true;
  again = asked_again(with_causes);
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
  const std::string precondition =
      result.outcome == Outcome::kFail && capabilities.foreign ? PreconditionOf(result.reason) : "";
  if (!precondition.empty()) {
    verdict.reasons.push_back(PreconditionHint(precondition));
  }
  verdict.profile = Print(capabilities.cache_profile);
  if (capabilities.states_plan) {
    const std::string profile = Print(capabilities.profile);
    if (!profile.empty()) verdict.profile += (verdict.profile.empty() ? "" : " ") + profile;
    // An answer may state a plan of its own.
    verdict.plan = CommandPlan(verdict.plan.empty() ? capabilities.plan : ParsePlan(verdict.plan));
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
