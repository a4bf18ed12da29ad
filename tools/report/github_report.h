// The report for a workflow of GitHub: annotations, which its pages show beside the run, and a
// Markdown summary of the step.
// Source: docs.github.com, "Workflow commands for GitHub Actions".

#ifndef TOOLS_REPORT_GITHUB_REPORT_H_
#define TOOLS_REPORT_GITHUB_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/report/case_result.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"

namespace kvcheck {

// GitHub shows ten errors and ten warnings of a step, and takes 1 MiB of summary.
inline constexpr int64_t kAnnotations = 10;
inline constexpr int64_t kSummaryRows = 100;
inline constexpr size_t kSummaryBytes = 800'000;

class GithubReport {
 public:
  // title: of the run ("kvcheck gate").
  GithubReport(std::string title, const TextOptions& options)
      : title_(std::move(title)), options_(options) {}
  void Add(const CaseResult& result);
  // Lines "::error title=...::..." of what failed, "::warning" of what proved nothing, and a notice
  // that counts those left out.
  std::string Annotations() const;
  // Counts, a table of what is not as it should be, and the text report of the first of these.
  std::string Markdown(const Summary& summary) const;

 private:
  std::string title_;
  TextOptions options_;
  std::string annotations_;
  std::string table_;
  std::string details_;
  int64_t errors_ = 0;
  int64_t warnings_ = 0;
};

// The value of a workflow command, or with is_property that of one of its properties.
std::string WorkflowText(std::string_view text, bool is_property);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_GITHUB_REPORT_H_
