#include "tools/report/text_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
      output->worst) {
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
  if (!verdict.case_text.empty()) text += Labelled("case", CaseLines(verdict.case_text));
  if (!verdict.implementation.empty()) {
    text += Labelled("observed", NameText(verdict.implementation));
  }
  if ((verdict.outputs.empty() || result.drawn) && verdict.reasons.size() > 1) {
    text += LabelledList("because", verdict.reasons, options);
  }
  std::vector<std::string> extra;
  for (const std::string& reason : verdict.reasons) {
    if (reason.ends_with(": not an output of this case")) extra.push_back(reason);
  }
  for (const OutputVerdict& output : verdict.outputs) text += OutputDetails(output, options);
  if (!verdict.outputs.empty()) text += LabelledList("extra", extra, options);
  text += LabelledList("warning", verdict.warnings, options);
  const bool judged = !verdict.outputs.empty();
  if (!verdict.plan.empty()) text += Labelled("plan", NameText(verdict.plan));
  // Stored tensors without a case have no conventions.
  if ((judged || !verdict.profile.empty()) && !verdict.case_text.empty())
    text += Labelled("profile", verdict.profile.empty() ? "defaults" : NameText(verdict.profile));
  if (!verdict.assumptions.empty()) {
    text += Labelled("assumed", fmt::format("because the plan does not say: {}",
                                            fmt::join(verdict.assumptions, " ")));
  }
  if (!verdict.command.empty()) text += Labelled("reproduce", NameText(verdict.command));
  return text;
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
    if (!options_.quiet) out_ << ProbeTable(campaign);
    out_ << NameText(Print(campaign)) << "\n" << DeclinedText(campaign);
    if (!options_.quiet) out_ << UnprovedText(campaign, options_.max_print);
  }
  for (const std::string& note : summary.notes) out_ << "note: " << NameText(note) << "\n";
  for (const std::string& pattern : summary.patterns)
    out_ << "pattern: " << NameText(pattern) << "\n";
  out_ << Print(summary) << "\n";
  out_.flush();
}

}  // namespace kvcheck
