#include "tools/report/text_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/report/number_text.h"
#include "tools/report/output_text.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

bool IsAsItShouldBe(Standpoint standpoint) {
  return standpoint == Standpoint::kPassed || standpoint == Standpoint::kExpectedMistrusted ||
         standpoint == Standpoint::kKnownFinding;
}

// The output that decided, or nullptr where none was compared.
const OutputVerdict* Decisive(const Verdict& verdict) {
  const OutputVerdict* decisive = nullptr;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.outcome == verdict.outcome && decisive == nullptr) decisive = &output;
  }
  return decisive;
}

// "out: 2048 elements, worst 0.61 x the bound; lse: 32 elements"
std::string PassSentence(const Verdict& verdict) {
  std::string text;
  for (const OutputVerdict& output : verdict.outputs) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", output.name, PassSentence(output));
  }
  const int64_t warnings = WarningCount(verdict);
  if (warnings > 0) text += "; " + Plural(warnings, "warning");
  return text;
}

std::string Sentence(const CaseResult& result) {
  const Verdict& verdict = result.verdict;
  if (verdict.outcome == Outcome::kPass && !verdict.outputs.empty()) return PassSentence(verdict);
  const OutputVerdict* output = Decisive(verdict);
  if (verdict.outcome == Outcome::kFail && output != nullptr && output->counts.failed > 0 &&
      output->worst && !verdict.of_operations) {
    return WorstSentence(*output);
  }
  return verdict.reasons.empty() ? std::string(Name(verdict.outcome)) : verdict.reasons.front();
}

// What the first word says: the outcome, or what it means beside the expectation.
std::string Tag(const CaseResult& result, const TextOptions& options) {
  switch (StandpointOf(result, options.strict)) {
    case Standpoint::kExpectedMistrusted:
      return "MISTRUSTED, as expected";
    case Standpoint::kKnownFinding:
      return std::string(Name(result.verdict.outcome)) + ", as expected";
    case Standpoint::kFailed:
      if (!UnmetReason(result, options.strict).empty()) return "FAIL";
      break;
    default:
      break;
  }
  const std::string missing = PassesWith(result.verdict);
  if (!missing.empty()) return "FAIL as asked; passes with " + missing;
  return std::string(Name(result.verdict.outcome));
}

// A trace has a line for each operation, which begins in lower case; any other text is one line, so
// that none of a file's passes for a line of the report.
std::string CaseLines(const std::string& text) {
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', end + 1)) {
    const char first = end + 1 < text.size() ? text[end + 1] : ' ';
    if (first < 'a' || first > 'z') return NameText(text);
  }
  return text;
}

// Why a result is what it is, apart from what its first line says.
struct Reasons {
  std::vector<std::string> hints;
  std::vector<std::string> more;
  std::vector<std::string> found;  // how a campaign came to it
};

Reasons SortedReasons(const CaseResult& result) {
  constexpr std::string_view kHint = "hint: ";
  const Verdict& verdict = result.verdict;
  const OutputVerdict* decisive = Decisive(verdict);
  Reasons reasons;
  const auto add_hint = [&](const std::string& hint) {
    if (std::find(reasons.hints.begin(), reasons.hints.end(), hint) == reasons.hints.end()) {
      reasons.hints.push_back(hint);
    }
  };
  if (decisive != nullptr) {
    for (const std::string& hint : HintLines(*decisive)) add_hint(hint);
  }
  for (const OutputVerdict& output : verdict.outputs) {
    if (&output == decisive) continue;
    for (const std::string& hint : HintLines(output)) add_hint(output.name + ": " + hint);
  }
  // The first reason of a failing output repeats its counts, which `where` has.
  const std::string counts =
      decisive != nullptr && decisive->counts.failed > 0 && !decisive->reasons.empty()
          ? decisive->name + ": " + decisive->reasons.front()
          : "";
  const std::string sentence = Sentence(result);
  bool is_first = true;
  for (const std::string& reason : verdict.reasons) {
    // The first reason of a drawn failure is that of the case as it was drawn.
    const bool is_said =
        reason == sentence || reason == counts ||
        (is_first && result.drawn && decisive != nullptr && !verdict.of_operations);
    is_first = false;
    if (reason.starts_with(kHint)) {
      add_hint(reason.substr(kHint.size()));
    } else if (!is_said) {
      (result.drawn ? reasons.found : reasons.more).push_back(reason);
    }
  }
  return reasons;
}

std::string CaseLine(const Verdict& verdict) {
  return verdict.case_text.empty() ? "" : Labelled("case", CaseLines(verdict.case_text));
}

std::string AssumedLine(const Verdict& verdict) {
  if (verdict.assumptions.empty()) return "";
  return Labelled("assumed", fmt::format("because the plan does not say: {}",
                                         fmt::join(verdict.assumptions, " ")));
}

// Everything that the first lines leave out.
std::string Details(const Verdict& verdict, const OutputVerdict* decisive,
                    const TextOptions& options) {
  std::string text;
  if (!verdict.implementation.empty()) {
    text += Labelled("observed", NameText(verdict.implementation));
  }
  for (const OutputVerdict& output : verdict.outputs) {
    text += OutputDetails(output, &output == decisive, options);
  }
  if (!verdict.plan.empty()) text += Labelled("plan", NameText(verdict.plan));
  // Stored tensors without a case have no conventions.
  const bool judged = !verdict.outputs.empty();
  if ((judged || !verdict.profile.empty()) && !verdict.case_text.empty())
    text += Labelled("profile", verdict.profile.empty() ? "defaults" : NameText(verdict.profile));
  return text;
}

}  // namespace

std::string Headline(const CaseResult& result, const TextOptions& options) {
  std::string text = fmt::format("{}  {}  ", Tag(result, options), Title(result));
  const std::string unmet = UnmetReason(result, options.strict);
  if (!unmet.empty()) text += unmet + ": ";
  text += Sentence(result);
  if (!result.finding.empty() && unmet.empty()) text += fmt::format(" ({})", result.finding);
  return NameText(text);
}

std::string ShownHeadline(const CaseResult& result, const TextOptions& options) {
  const std::string text = Headline(result, options);
  if (!options.colour) return text;
  const bool fine = IsAsItShouldBe(StandpointOf(result, options.strict));
  const char* code = fine ? "32" : text.starts_with(Name(Outcome::kFail)) ? "31" : "33";
  const size_t end = std::min(text.find(' '), text.size());
  return fmt::format("\033[{}m{}\033[0m{}", code, text.substr(0, end), text.substr(end));
}

std::string FirstHint(const CaseResult& result) {
  const Reasons reasons = SortedReasons(result);
  return reasons.hints.empty() ? "" : reasons.hints.front();
}

std::string CaseText(const CaseResult& result, const TextOptions& options) {
  std::string text = ShownHeadline(result, options) + "\n";
  const bool fine = IsAsItShouldBe(StandpointOf(result, options.strict));
  const Verdict& verdict = result.verdict;
  if (fine && !options.verbose) {
    // A warning is never hidden behind a PASS.
    for (const OutputVerdict& output : verdict.outputs) {
      text += LabelledList("warning", output.warnings, options);
    }
    return text + LabelledList("warning", verdict.warnings, options);
  }
  const OutputVerdict* decisive = Decisive(verdict);
  const Reasons reasons = SortedReasons(result);
  text += LabelledLine("because", reasons.more, options);
  text += LabelledLine("hint", reasons.hints, options);
  if (decisive != nullptr) {
    text += LabelledLine("where", decisive->breakdown, options);
    text += BoundLines(*decisive, verdict);
  }
  // A trace is the place of its fault; the line of any other case stands in the command.
  const bool is_trace = verdict.case_text.find('\n') != std::string::npos;
  const bool is_case_first = is_trace || verdict.command.empty();
  if (is_case_first) text += CaseLine(verdict);
  for (const OutputVerdict& output : verdict.outputs) {
    text += LabelledList("warning", WarningLines(output), options);
  }
  text += LabelledList("warning", verdict.warnings, options);
  // What is taken of stored codes explains their values.
  const bool is_assumed_first = verdict.plan.empty();
  if (is_assumed_first) text += AssumedLine(verdict);
  if (!verdict.command.empty()) text += Labelled("reproduce", NameText(verdict.command));
  text += LabelledList("found", reasons.found, options);
  if (!options.verbose) return text;
  if (!is_case_first) text += CaseLine(verdict);
  text += Details(verdict, decisive, options);
  return is_assumed_first ? text : text + AssumedLine(verdict);
}

void TextReport::Add(const CaseResult& result) {
  const Standpoint standpoint = StandpointOf(result, options_.strict);
  const bool fine = IsAsItShouldBe(standpoint);
  if (fine && options_.quiet && WarningCount(result.verdict) == 0) return;
  // One line for all of them, at the end.
  if (result.outside && !options_.verbose) return;
  std::string text;
  int64_t& detailed = detailed_[{standpoint, result.verdict.outcome}];
  if ((!fine || options_.verbose) && detailed >= options_.max_print) {
    ++left_out_;
    text = ShownHeadline(result, options_) + "\n";
  } else {
    if (!fine || options_.verbose) ++detailed;
    text = CaseText(result, options_);
  }
  const bool failed = standpoint == Standpoint::kFailed || standpoint == Standpoint::kIllegal;
  if (options_.failures_first && (!failed || result.outside)) {
    held_ += text;
    return;
  }
  out_ << text;
  out_.flush();
}

void TextReport::Finish(const Summary& summary) {
  out_ << held_;
  held_.clear();
  const std::string outside = options_.verbose || options_.quiet ? "" : OutsideText(summary);
  if (!outside.empty()) {
    out_ << fmt::format("{}  {} (-v lists them)\n",
                        options_.strict ? "FAIL" : Name(Outcome::kUnsupported), outside);
  }
  if (left_out_ > 0) {
    out_ << fmt::format("{} shown without details (--max-print {})\n", Plural(left_out_, "case"),
                        options_.max_print);
  }
  for (const CampaignCounts& campaign : summary.campaigns) {
    if (options_.verbose) out_ << ProbeTable(campaign);
    out_ << NameText(Print(campaign)) << "\n" << DeclinedText(campaign);
    if (!options_.quiet) {
      out_ << LeftOpenText(campaign) << UnprovedText(campaign, options_.max_print);
    }
  }
  for (const std::string& note : summary.notes) out_ << "note: " << NameText(note) << "\n";
  for (const std::string& pattern : summary.patterns)
    out_ << "pattern: " << NameText(pattern) << "\n";
  out_ << Print(summary) << "\n";
  out_.flush();
}

}  // namespace kvcheck
