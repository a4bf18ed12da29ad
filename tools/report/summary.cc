#include "tools/report/summary.h"

#include <fmt/format.h>

#include <algorithm>
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
  const Standpoint standpoint = StandpointOf(result, strict);
  const auto index = static_cast<size_t>(standpoint);
  if (result.outside) {
    outside_fails = outside_fails || standpoint == Standpoint::kFailed;
    const std::string& text = result.verdict.case_text;
    const std::string kind = text.substr(0, text.find(' '));
    const auto found = std::find_if(outside.begin(), outside.end(),
                                    [&](const OutsideCount& count) { return count.kind == kind; });
    ++(found == outside.end() ? outside.emplace_back(OutsideCount{kind, 0}) : *found).cases;
  } else if (!result.drawn) {
    ++asked[index];
  } else if (result.verdict.outcome == Outcome::kMistrusted ||
             result.verdict.outcome == Outcome::kUnsupported ||
             (result.verdict.outcome == Outcome::kPass && standpoint != Standpoint::kPassed)) {
    ++campaigns_as_whole[index];
  }
  switch (standpoint) {
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

int64_t Summary::Outside() const {
  int64_t count = 0;
  for (const OutsideCount& of_kind : outside) count += of_kind.cases;
  return count;
}

int Summary::ExitCode() const {
  if (interrupted) return kExitInterrupted;
  if (cases == 0 || illegal > 0) return kExitNotPut;
  if (failed > 0) return kExitFailed;
  if (mistrusted > 0 || passed + known_findings == 0) return kExitMistrusted;
  return kExitPassed;
}

namespace {

// "480 passed, 25 failed": those that are not 0.
template <size_t kCount>
std::string ListOf(const std::pair<int64_t, const char*> (&counts)[kCount]) {
  std::string text;
  for (const auto& [count, label] : counts) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, label);
  }
  return text;
}

// Of a run that asks cases of files and draws others: what each case came to, and not each result.
std::string PrintAsked(const Summary& summary) {
  const auto asked = [&](Standpoint standpoint) {
    return summary.asked[static_cast<size_t>(standpoint)];
  };
  const auto whole = [&](Standpoint standpoint) {
    return summary.campaigns_as_whole[static_cast<size_t>(standpoint)];
  };
  CampaignCounts drawn;
  for (const CampaignCounts& campaign : summary.campaigns) {
    drawn.cases += campaign.cases;
    drawn.passed += campaign.passed;
    drawn.failed += campaign.failed;
    drawn.known += campaign.known;
    drawn.mistrusted += campaign.mistrusted;
    drawn.by_data += campaign.by_data;
    drawn.unsupported += campaign.unsupported;
    drawn.crashed += campaign.crashed;
    drawn.timed_out += campaign.timed_out;
    drawn.states += campaign.states;
  }
  int64_t given = 0;
  for (const int64_t count : summary.asked) given += count;
  std::string text = Plural(given + drawn.cases, "case");
  if (!summary.campaigns.empty())
    text += fmt::format(" ({} of suites, {} drawn)", given, drawn.cases);
  const std::string outcomes =
      ListOf({{asked(Standpoint::kPassed) + drawn.passed, "passed"},
              {asked(Standpoint::kFailed) + drawn.failed - drawn.known, "failed"},
              {asked(Standpoint::kMistrusted) + drawn.mistrusted - drawn.by_data, "mistrusted"},
              {drawn.by_data, "mistrusted by their own data"},
              {asked(Standpoint::kExpectedMistrusted), "mistrusted as expected"},
              {asked(Standpoint::kKnownFinding) + drawn.known, "known findings found"},
              {asked(Standpoint::kUnsupported) + drawn.unsupported, "unsupported"},
              {asked(Standpoint::kIllegal), "illegal"}});
  text += ": " + (outcomes.empty() ? "none was judged" : outcomes);
  const std::string details = ListOf({{summary.crashed, "crashed"},
                                      {summary.timed_out, "timed out"},
                                      {summary.unmet, "unmet expectations"}});
  if (!details.empty()) text += fmt::format(" ({})", details);
  const std::string campaigns = ListOf({{whole(Standpoint::kFailed), "failed"},
                                        {whole(Standpoint::kMistrusted), "mistrusted"},
                                        {whole(Standpoint::kUnsupported), "unsupported"}});
  if (!campaigns.empty()) text += fmt::format("; of the campaigns as a whole {}", campaigns);
  return text + (drawn.states > 0 ? fmt::format("; {} states and {} elements judged", drawn.states,
                                                summary.judged)
                                  : fmt::format("; {} elements judged", summary.judged));
}

// What follows the counts of every kind of run.
std::string PrintRest(const Summary& summary) {
  std::string text;
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
  if (summary.Outside() > 0) {
    text += fmt::format("; {} of suites not asked, outside of what is stated{}",
                        Plural(summary.Outside(), "case"),
                        summary.outside_fails ? " (strict: failed)" : "");
  }
  if (summary.interrupted) text += "; interrupted, this report is partial";
  return text;
}

}  // namespace

std::string OutsideText(const Summary& summary) {
  if (summary.Outside() == 0) return "";
  int64_t given = summary.Outside();
  for (const int64_t count : summary.asked) given += count;
  std::string text = fmt::format(
      "{} of {} of suites lie outside of the kinds and spaces that the implementation states, and "
      "were not asked:",
      summary.Outside(), Plural(given, "case"));
  for (const OutsideCount& count : summary.outside) {
    text += fmt::format("{} {} {}", &count == summary.outside.data() ? "" : ",", count.kind,
                        count.cases);
  }
  return text;
}

std::string Print(const Summary& summary) {
  int64_t given = summary.Outside();
  for (const int64_t count : summary.asked) given += count;
  if (!summary.tensors && given > 0 && (!summary.campaigns.empty() || summary.Outside() > 0)) {
    return PrintAsked(summary) + PrintRest(summary);
  }
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
  return text + fmt::format("; {} elements judged", summary.judged) + PrintRest(summary);
}

}  // namespace kvcheck
