#include "tools/report/github_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/report/html_report.h"
#include "tools/report/output_text.h"
#include "tools/report/shown_text.h"

namespace kvcheck {
namespace {

// Nothing in a cell ends it, begins an element or is taken for Markdown.
std::string CellText(std::string_view text) {
  std::string cell;
  for (const char c : HtmlText(NameText(text))) {
    if (std::string_view("|`*_[]\\~").find(c) != std::string_view::npos) cell += '\\';
    cell += c;
  }
  return cell;
}

// A fence that no line of the text closes.
std::string Fenced(const std::string& text) {
  size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{0}text\n{1}{2}{0}\n", fence, text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace

std::string WorkflowText(std::string_view text, bool is_property) {
  std::string escaped;
  for (const char c : text) {
    const bool acts = c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    escaped += acts ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return escaped;
}

void GithubReport::Add(const CaseResult& result) {
  if (result.outside) return;  // counted in the summary
  const Standpoint standpoint = StandpointOf(result, options_.strict);
  const bool failed = standpoint == Standpoint::kFailed || standpoint == Standpoint::kIllegal;
  if (!failed && standpoint != Standpoint::kMistrusted) return;
  const std::string headline = Headline(result, options_);
  const std::string hint = FirstHint(result);
  int64_t& count = failed ? errors_ : warnings_;
  ++count;
  if (count <= kAnnotations) {
    annotations_ += fmt::format(
        "::{} title={}::{}\n", failed ? "error" : "warning",
        WorkflowText("kvcheck: " + NameText(Title(result)), true),
        WorkflowText(hint.empty() ? headline : headline + "\n" + NameText(hint), false));
  }
  if (errors_ + warnings_ > kSummaryRows) return;
  table_ +=
      fmt::format("| {} | {} | {}{} |\n", Name(result.verdict.outcome), CellText(Title(result)),
                  CellText(headline), hint.empty() ? "" : "<br>hint: " + CellText(hint));
  TextOptions whole = options_;
  whole.verbose = true;
  const std::string details = CaseText(result, whole);
  if (table_.size() + details_.size() + details.size() > kSummaryBytes) return;
  details_ += fmt::format("<details><summary>{}</summary>\n\n{}\n</details>\n\n",
                          HtmlText(NameText(Title(result))), Fenced(details));
}

std::string GithubReport::Annotations() const {
  const int64_t left_out =
      std::max<int64_t>(0, errors_ - kAnnotations) + std::max<int64_t>(0, warnings_ - kAnnotations);
  if (left_out == 0) return annotations_;
  return annotations_ +
         fmt::format("::notice title={}::{} more; the summary and the log have them\n",
                     WorkflowText(NameText(title_), true), left_out);
}

std::string GithubReport::Markdown(const Summary& summary) const {
  std::string text = fmt::format("### {}\n\n{}\n\n", CellText(title_), CellText(Print(summary)));
  for (const auto* sentences : {&summary.notes, &summary.patterns}) {
    for (const std::string& sentence : *sentences)
      text += fmt::format("* {}\n", CellText(sentence));
  }
  if (table_.empty()) return text;
  text += "\n| outcome | case | what |\n|---|---|---|\n" + table_ + "\n";
  if (errors_ + warnings_ > kSummaryRows) {
    text += fmt::format("{} more are not listed.\n\n", errors_ + warnings_ - kSummaryRows);
  }
  return text + details_;
}

}  // namespace kvcheck
