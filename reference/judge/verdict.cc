#include "reference/judge/verdict.h"

namespace kvcheck {

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "PASS";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kMistrusted:
      return "MISTRUSTED";
    case Outcome::kUnsupported:
      return "UNSUPPORTED";
    case Outcome::kIllegalCase:
      return "ILLEGAL_CASE";
    case Outcome::kCrashed:
      return "CRASHED";
    case Outcome::kTimedOut:
      return "TIMED_OUT";
  }
  return "";
}

std::string_view Name(Rule rule) {
  constexpr std::string_view kNames[] = {"bound", "noise", "statistics"};
  return kNames[static_cast<size_t>(rule)];
}

std::optional<Rule> ParseRule(std::string_view name) {
  for (const Rule rule : {Rule::kBound, Rule::kNoise, Rule::kStatistics}) {
    if (Name(rule) == name) return rule;
  }
  return std::nullopt;
}

std::optional<Rule> DecidedBy(const OutputVerdict& output) {
  if (output.counts.failed > output.counts.failed_by_noise) return Rule::kBound;
  if (output.counts.failed > 0) return Rule::kNoise;
  if (output.statistics && !output.statistics->over.empty()) return Rule::kStatistics;
  return std::nullopt;
}

std::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kDouble:
      return "double";
    case Precision::kDoubleDouble:
      return "double-double";
    case Precision::kOracle50:
      return "50 digits";
    case Precision::kOracle100:
      return "100 digits";
  }
  return "";
}

Verdict WithoutJudging(Outcome outcome, std::string reason) {
  Verdict verdict;
  verdict.outcome = outcome;
  verdict.reasons.push_back(std::move(reason));
  return verdict;
}

Outcome Combine(Outcome a, Outcome b) {
  if (a == Outcome::kFail || b == Outcome::kFail) return Outcome::kFail;
  if (a == Outcome::kMistrusted || b == Outcome::kMistrusted) return Outcome::kMistrusted;
  return Outcome::kPass;
}

bool PassesAsZeros(const OutputVerdict& output) {
  return 2 * output.pass_as_zero > output.with_share;
}

}  // namespace kvcheck
