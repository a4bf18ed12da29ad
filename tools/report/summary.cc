#include "tools/report/summary.h"

#include <fmt/format.h>

#include <utility>

#include "tools/report/number_text.h"

namespace kvcheck {

std::string_view Name(Expectation expectation) {
  switch (expectation) {
    case Expectation::kPass:
      return "PASS";
    case Expectation::kMistrusted:
      return "MISTRUSTED";
    case Expectation::kFinding:
      return "FAIL";
  }
  return "";
}

int64_t WarningCount(const Verdict& verdict) {
  int64_t count = static_cast<int64_t>(verdict.warnings.size());
  for (const OutputVerdict& output : verdict.outputs) {
    count += static_cast<int64_t>(output.warnings.size());
  }
  return count;
}

Standpoint StandpointOf(const CaseResult& result, bool strict) {
  const Outcome outcome = result.verdict.outcome;
  const bool expects_pass = result.expectation == Expectation::kPass;
  switch (outcome) {
    case Outcome::kIllegalCase:
      return Standpoint::kIllegal;
    case Outcome::kCrashed:
    case Outcome::kTimedOut:
      return result.expectation == Expectation::kFinding && result.same_finding
                 ? Standpoint::kKnownFinding
                 : Standpoint::kFailed;
    case Outcome::kUnsupported:
      return strict ? Standpoint::kFailed : Standpoint::kUnsupported;
    case Outcome::kPass:
      if (!expects_pass) return Standpoint::kFailed;
      return strict && WarningCount(result.verdict) > 0 ? Standpoint::kFailed : Standpoint::kPassed;
    case Outcome::kFail:
      return result.expectation == Expectation::kFinding ? Standpoint::kKnownFinding
                                                         : Standpoint::kFailed;
    case Outcome::kMistrusted:
      if (result.expectation == Expectation::kMistrusted) return Standpoint::kExpectedMistrusted;
      return strict || !expects_pass ? Standpoint::kFailed : Standpoint::kMistrusted;
  }
  return Standpoint::kFailed;
}

std::string UnmetReason(const CaseResult& result, bool strict) {
  if (StandpointOf(result, strict) != Standpoint::kFailed) return "";
  const Outcome outcome = result.verdict.outcome;
  if (result.expectation != Expectation::kPass) {
    return fmt::format("expected {} ({}), got {}", Name(result.expectation), result.finding,
                       Name(outcome));
  }
  if (outcome == Outcome::kPass) {
    return fmt::format("{} warnings (strict)", WarningCount(result.verdict));
  }
  if (outcome == Outcome::kMistrusted || outcome == Outcome::kUnsupported) {
    return fmt::format("{} (strict)", Name(outcome));
  }
  return "";
}

std::string Title(const CaseResult& result) {
  if (!result.name.empty()) return result.name;
  const std::string& text = result.verdict.case_text;
  return text.empty() ? "case" : text.substr(0, text.find(' '));
}

void Summary::Add(const CaseResult& result, bool strict) {
  ++cases;
  switch (StandpointOf(result, strict)) {
    case Standpoint::kPassed:
      ++passed;
      break;
    case Standpoint::kFailed:
      ++failed;
      break;
    case Standpoint::kMistrusted:
      ++mistrusted;
      break;
    case Standpoint::kExpectedMistrusted:
      ++expected_mistrusted;
      break;
    case Standpoint::kKnownFinding:
      ++known_findings;
      break;
    case Standpoint::kUnsupported:
      ++unsupported;
      break;
    case Standpoint::kIllegal:
      ++illegal;
      break;
  }
  if (result.verdict.outcome == Outcome::kCrashed) ++crashed;
  if (result.verdict.outcome == Outcome::kTimedOut) ++timed_out;
  if (!UnmetReason(result, strict).empty()) ++unmet;
  warnings += WarningCount(result.verdict);
  judged += result.verdict.elements;
  for (const OutputVerdict& output : result.verdict.outputs) judged += output.counts.judged;
}

void Summary::Add(CampaignCounts campaign) {
  judged += campaign.elements;
  campaigns.push_back(std::move(campaign));
}

int Summary::ExitCode() const {
  if (interrupted) return kExitInterrupted;
  if (cases == 0 || illegal > 0) return kExitNotPut;
  if (failed > 0) return kExitFailed;
  if (mistrusted > 0 || passed + known_findings == 0) return kExitMistrusted;
  return kExitPassed;
}

std::string Print(const Summary& summary) {
  std::string text = Plural(summary.cases, summary.tensors             ? "tensor"
                                           : summary.campaigns.empty() ? "case"
                                                                       : "result") +
                     ": ";
  const std::pair<int64_t, const char*> counts[] = {
      {summary.passed, "passed"},
      {summary.failed, "failed"},
      {summary.mistrusted, "mistrusted"},
      {summary.expected_mistrusted, "mistrusted as expected"},
      {summary.known_findings, "known findings found"},
      {summary.unsupported, "unsupported"},
      {summary.illegal, "illegal"},
  };
  bool first = true;
  for (const auto& [count, label] : counts) {
    if (count == 0) continue;
    text += fmt::format("{}{} {}", first ? "" : ", ", count, label);
    first = false;
  }
  if (first) text += summary.interrupted ? "none was judged" : "nothing was selected";
  const TensorCounts tensors = summary.tensors.value_or(TensorCounts());
  const std::pair<int64_t, const char*> details[] = {
      {summary.crashed, "crashed"},
      {summary.timed_out, "timed out"},
      {summary.unmet, "unmet expectations"},
      {tensors.missing, "missing"},
      {tensors.extra, "extra"},
      {tensors.allowed_missing, "missing as allowed"},
      {tensors.allowed_extra, "extra as allowed"}};
  first = true;
  for (const auto& [count, label] : details) {
    if (count == 0) continue;
    text += fmt::format("{}{} {}", first ? " (" : ", ", count, label);
    first = false;
  }
  if (!first) text += ")";
  if (summary.tensors) {
    text += fmt::format("; {} compared by {}, {} bytes", tensors.compared,
                        Plural(tensors.rules, "rule"), tensors.bytes);
  }
  text += fmt::format("; {} elements judged", summary.judged);
  int64_t drawn = 0;
  int64_t unproved = 0;
  for (const CampaignCounts& campaign : summary.campaigns) {
    drawn += campaign.Provable();
    unproved += campaign.Unproved();
  }
  if (unproved > 0) {
    text += fmt::format(", {} of {} proved nothing", unproved, Plural(drawn, "drawn case"));
  }
  if (summary.warnings > 0) {
    text += fmt::format(", {} warning{}", summary.warnings, summary.warnings == 1 ? "" : "s");
  }
  if (summary.interrupted) text += "; interrupted, this report is partial";
  return text;
}

}  // namespace kvcheck
