// The report for continuous integration: JUnit XML, one test case per result. What proved nothing
// (MISTRUSTED, UNSUPPORTED) is skipped with its reason, and a failure under --strict; a case that
// could not be put is an error. There are no times, so that equal runs give equal files.

#ifndef TOOLS_REPORT_JUNIT_REPORT_H_
#define TOOLS_REPORT_JUNIT_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tools/report/case_result.h"
#include "tools/report/spool.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"

namespace kvcheck {

// Case by case: memory does not grow with the texts of the results.
class JunitReportWriter {
 public:
  // suite: the command ("compare"). The body of a failure is its text report. Characters that XML
  // 1.0 does not allow become U+FFFD.
  JunitReportWriter(const std::string& path, std::string suite, const TextOptions& options);
  // Errors: kUnreadableFile.
  void Add(const CaseResult& result);
  // Writes the document to the path. Errors: kUnreadableFile.
  void Finish(const Summary& summary) const;
  // Gives it to a function, in parts.
  void Write(const Summary& summary, const std::function<void(std::string_view)>& write) const;

 private:
  std::string UniqueName(const CaseResult& result);

  std::string path_;
  std::string suite_;
  TextOptions options_;
  Spool cases_;
  std::unordered_map<size_t, int64_t> seen_;  // by the hash of a name: how often
};

// The same of few results, as a text.
std::string JunitReport(std::span<const CaseResult> results, const Summary& summary,
                        const std::string& suite, const TextOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_JUNIT_REPORT_H_
