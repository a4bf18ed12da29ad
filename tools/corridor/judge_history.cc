#include "tools/corridor/judge_history.h"

#include <fmt/format.h>

#include <utility>

#include "reference/spec/error.h"
#include "reference/spec/implementation_loss.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/judge_trace.h"

namespace kvcheck {

JudgedHistory JudgeHistory(const PrefixCase& c, HistoryRunner* runner, HistoryOptions options) {
  int64_t index = -1;
  options.on_operation = [&index, told = options.on_operation](int64_t operation) {
    index = operation;
    if (told) told(operation);
  };
  JudgedHistory result;
  try {
    static_cast<HistoryResult&>(result) = runner->Run(c, options);
  } catch (const Error& error) {
    const std::string why = error.code() == ErrorCode::kUnreadableFile ? runner->WhyNoRoom() : "";
    runner->DropFolder();
    if (why.empty()) throw;
    result.outcome = Outcome::kMistrusted;
    result.operation = index;
    result.reason = fmt::format("{}; without room nothing is proved by: {}", why, error.message());
    return result;
  } catch (const ImplementationLoss& loss) {
    const std::string why = loss.kind() == LossKind::kNoRoom ? "" : runner->WhyNoRoom();
    runner->DropFolder();
    if (!why.empty()) {
      result.outcome = Outcome::kMistrusted;
      result.operation = index;
      result.reason = fmt::format("{}; without room nothing is proved by: {}", why, loss.reason());
      return result;
    }
    result.outcome = OutcomeOf(loss.kind());
    result.operation = index;
    result.loss = loss.Signature();
    const bool within = index >= 0 && index < std::ssize(c.ops);
    result.reason = within ? fmt::format("operation {}, {}: {}", index + 1,
                                         Print(c.ops[static_cast<size_t>(index)]), loss.reason())
                           : loss.reason();
    return result;
  }
  if (result.outcome != Outcome::kFail || options.observe_each ||
      c.setup.observe == Observe::kEach) {
    return result;
  }
  options.observe_each = true;
  JudgedHistory again;
  try {
    static_cast<HistoryResult&>(again) = runner->Run(c, options);
  } catch (const ImplementationLoss&) {
    runner->DropFolder();
    return result;
  }
  // Without reading in between it may not fail: then the first answer stands.
  return again.outcome == Outcome::kFail ? again : result;
}

std::string SignatureOf(const PrefixCase& c, const JudgedHistory& result) {
  if (!result.loss.empty()) return result.loss;
  if (result.outcome == Outcome::kPass) return "";
  if (result.outcome != Outcome::kFail) return std::string(Name(result.outcome));
  return result.Signature(c);
}

Verdict VerdictOf(const PrefixCase& c, const JudgedHistory& result,
                  const PrefixImplementation& implementation) {
  Verdict verdict =
      result.loss.empty() ? ToVerdict(c, result) : WithoutJudging(result.outcome, result.reason);
  const PrefixCapabilities capabilities = implementation.GetCapabilities();
  const bool is_operation = result.operation >= 0 && result.operation < std::ssize(c.ops);
  if (capabilities.foreign && is_operation && result.failure.fault == HistoryFault::kAccepted) {
    const PrefixOpKind kind = c.ops[static_cast<size_t>(result.operation)].kind;
    const char* word = kind == PrefixOpKind::kWrite    ? "shapes"
                       : kind == PrefixOpKind::kTrimTo ? "counts"
                                                       : "";
    if (*word != '\0') verdict.reasons.push_back(PreconditionHint(word));
  }
  verdict.profile = Print(capabilities.prefix_profile);
  return verdict;
}

Verdict EvaluatePrefixCase(const PrefixCase& c, PrefixImplementation* implementation,
                           HistoryOptions options) {
  HistoryRunner runner(implementation);
  const JudgedHistory result = JudgeHistory(c, &runner, std::move(options));
  Verdict verdict = VerdictOf(c, result, *implementation);
  const std::string signature = SignatureOf(c, result);
  if (!signature.empty()) verdict.reasons.push_back(fmt::format("signature \"{}\"", signature));
  return verdict;
}

}  // namespace kvcheck
