// What every judging command is told of how to judge and where to report, as values.

#ifndef TOOLS_KVCHECK_REPORT_OPTIONS_H_
#define TOOLS_KVCHECK_REPORT_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tools/report/text_report.h"

namespace kvcheck {

struct CommonOptions {
  std::string json;  // file, "-" or ""
  std::string junit;
  std::string html;
  bool github = false;
  int threads = 1;
  Rule rule = Rule::kStatistics;
  std::string must_see;
  int64_t sample_rows = 0;  // of each output; 0: all are judged
  uint64_t sample_seed = 1;
  TextOptions text;

  JudgeOptions Judge() const;
  // " --rows 4096 --rows-seed 7", of a command that repeats the verdict; "": all rows are judged.
  std::string JudgeArguments() const;
  // inputs: files that the command reads. Errors: kUsage when two reports ask for one place, or a
  // report for that of an
  // input; or --github outside of a workflow, or beside a report on standard output.
  void Check(const std::vector<std::string>& inputs = {}) const;
};

// The file to which a workflow of GitHub takes summaries of its steps; "" outside of a workflow.
std::string StepSummary();

// A file that a command writes, and the option that names it ("" and "-" are no file).
struct ReportPlace {
  std::string option;
  std::string path;
};
// Errors: kUsage when two reports ask for one place, or a report for that of an input.
void CheckReportPlaces(const std::vector<ReportPlace>& reports,
                       const std::vector<std::string>& inputs);

// "30", "30s", "5m", "1h", "500ms". Errors: kUsage.
std::chrono::milliseconds ParseDuration(const std::string& text, const std::string& option);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_REPORT_OPTIONS_H_
