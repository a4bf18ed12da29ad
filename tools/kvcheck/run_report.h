// The results of one run of the tool as they come: text at once, the other reports and the exit
// code at the end, a partial report when interrupted.

#ifndef TOOLS_KVCHECK_RUN_REPORT_H_
#define TOOLS_KVCHECK_RUN_REPORT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/report/case_result.h"
#include "tools/report/json_report.h"
#include "tools/report/junit_report.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"

namespace kvcheck {

// "kvcheck 0.1.0".
std::string ToolVersion();

class RunReport {
 public:
  // suite: the command, for JUnit. options must outlive the report. total: cases of the run, for
  // the progress shown on a terminal.
  RunReport(std::string suite, const CommonOptions& options, int64_t total);

  // Fills result.verdict by calling evaluate and reports it. What cannot be put (a malformed case,
  // a missing input) becomes ILLEGAL_CASE, what this build cannot do UNSUPPORTED; an unreadable
  // file ends the run. The verdict's command, case text and implementation are kept from `result`
  // where evaluate leaves them empty. False when the run was interrupted: the caller stops.
  bool Judge(CaseResult result, const std::function<Verdict()>& evaluate);
  void Add(const CaseResult& result);
  // For the summary of a comparison tensor by tensor.
  void SetTensors(const TensorCounts& counts) { summary_.tensors = counts; }
  void AddCampaign(CampaignCounts campaign) { summary_.Add(std::move(campaign)); }
  void AddNote(std::string note) { summary_.notes.push_back(std::move(note)); }
  void SetInterrupted() { summary_.interrupted = true; }
  void SetPatterns(std::vector<std::string> patterns) { summary_.patterns = std::move(patterns); }

  // Writes the reports and gives the exit code. Where one cannot be written, standard error has the
  // counts, and the exit code stays what was found: only 0 becomes 2.
  int Finish();

 private:
  // Errors: kUsage, kUnreadableFile for a place that cannot be written.
  void WriteReports();

  std::string suite_;
  const CommonOptions& options_;
  int64_t total_;
  int64_t started_ = 0;
  ProgressLine progress_;
  bool prints_text_;
  TextReport text_;
  Summary summary_;
  std::optional<JsonReportWriter> json_;
  std::optional<JunitReportWriter> junit_;
};

// The report of a run that was interrupted before it judged anything; the exit code of it.
int FinishInterrupted(const std::string& suite, const CommonOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_RUN_REPORT_H_
