// The report for continuous integration: JUnit XML, one test case per result. What proved nothing
// (MISTRUSTED, UNSUPPORTED) is skipped with its reason, and a failure under --strict; a case that
// could not be put is an error. There are no times, so that equal runs give equal files.

#ifndef TOOLS_REPORT_JUNIT_REPORT_H_
#define TOOLS_REPORT_JUNIT_REPORT_H_

#include <span>
#include <string>

#include "tools/report/case_result.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"

namespace kvcheck {

// suite: the command ("compare"). The body of a failure is its text report. Characters that XML 1.0
// does not allow become U+FFFD.
std::string JunitReport(std::span<const CaseResult> results, const Summary& summary,
                        const std::string& suite, const TextOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_JUNIT_REPORT_H_
