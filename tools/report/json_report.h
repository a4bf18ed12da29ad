// The report for programs: one JSON document, described in tools/report/README.md. Nothing in it
// depends on time, machine or number of threads.

#ifndef TOOLS_REPORT_JSON_REPORT_H_
#define TOOLS_REPORT_JSON_REPORT_H_

#include <cstdint>
#include <span>
#include <string>

#include "tools/report/case_result.h"
#include "tools/report/spool.h"
#include "tools/report/summary.h"

namespace kvcheck {

inline constexpr int kJsonReportSchema = 1;

// Case by case: memory does not grow with the results.
class JsonReportWriter {
 public:
  // tool: "kvcheck 0.2.0". Numbers that JSON lacks are the strings "nan", "inf" and "-inf"; texts
  // are ASCII with escapes, and those that are not UTF-8 have their bad bytes replaced.
  JsonReportWriter(const std::string& path, bool strict, std::string tool);
  // Errors: kUnreadableFile.
  void Add(const CaseResult& result);
  // Writes the document, which ends with a line end. Errors: kUnreadableFile.
  void Finish(const Summary& summary);

 private:
  std::string path_;
  bool strict_;
  std::string tool_;
  Spool cases_;
};

// The same of few results, as a text.
std::string JsonReport(std::span<const CaseResult> results, const Summary& summary, bool strict,
                       const std::string& tool);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_JSON_REPORT_H_
