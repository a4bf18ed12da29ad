// The results of one run of the tool as they come: text at once, the other reports and the exit
// code at the end, a partial report when interrupted.

#ifndef TOOLS_KVCHECK_RUN_REPORT_H_
#define TOOLS_KVCHECK_RUN_REPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/corridor/result_sink.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/kvcheck/report_options.h"
#include "tools/report/case_result.h"
#include "tools/report/github_report.h"
#include "tools/report/html_report.h"
#include "tools/report/json_report.h"
#include "tools/report/junit_report.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"

namespace kvcheck {

class RunReport : public ResultSink {
 public:
  // suite: the command, for JUnit. options must outlive the report.
  RunReport(std::string suite, const CommonOptions& options);
  // Begun at once. total: cases of the run, for the progress shown on a terminal.
  RunReport(std::string suite, const CommonOptions& options, int64_t total);

  void Begin(int64_t total) override;
  bool Judge(CaseResult result, const std::function<Verdict()>& evaluate) override;
  bool JudgeAll(std::vector<PlannedCase> cases, int threads) override;
  void Add(const CaseResult& result) override;
  void SetTensors(const TensorCounts& counts) override;
  void AddCampaign(CampaignCounts campaign) override;
  void AddNote(std::string note) override;
  void SetInterrupted() override;
  void SetPatterns(std::vector<std::string> patterns) override;

  // From now on an interrupt ends the process within a second, wherever the work is: with the
  // partial report if the work is not cut short before. For commands that judge in this process.
  void WatchInterrupts();

  // Writes the reports and gives the exit code. Where one cannot be written, standard error has the
  // counts, and the exit code stays what was found: only 0 becomes 2.
  int Finish();

 private:
  // Errors: kUsage, kUnreadableFile for a place that cannot be written.
  void WriteReports();
  void BeginHere(int64_t total);
  // What Judge takes; nullopt when the run was cut short.
  std::optional<CaseResult> Evaluated(CaseResult result, const std::function<Verdict()>& evaluate);
  // Takes what waits for none before it.
  void TakeFinished();
  void AddHere(const CaseResult& result);
  int FinishHere();
  // Ends the process with the partial report, unless the report is finished.
  void GiveUp();

  // Of everything below: held but while a case is evaluated.
  std::mutex mutex_;
  bool begun_ = false;
  bool finished_ = false;
  std::string suite_;
  const CommonOptions& options_;
  int64_t total_ = 0;
  int64_t started_ = 0;
  // Of JudgeAll: results that are ready before others whose turn is first; nullopt: cut short.
  std::map<int64_t, std::optional<CaseResult>> finished_cases_;
  int64_t next_case_ = 0;
  ProgressLine progress_;
  bool prints_text_;
  TextReport text_;
  Summary summary_;
  std::optional<JsonReportWriter> json_;
  std::optional<JunitReportWriter> junit_;
  std::optional<HtmlReport> html_;
  std::optional<GithubReport> github_;
  std::optional<InterruptWatch> watch_;  // ends before what it reports
};

// The report of a run that was interrupted before it judged anything; the exit code of it.
int FinishInterrupted(const std::string& suite, const CommonOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_RUN_REPORT_H_
