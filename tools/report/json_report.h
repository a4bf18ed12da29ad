// The report for programs: one JSON document, described in tools/report/README.md. Nothing in it
// depends on time, machine or number of threads.

#ifndef TOOLS_REPORT_JSON_REPORT_H_
#define TOOLS_REPORT_JSON_REPORT_H_

#include <span>
#include <string>

#include "tools/report/case_result.h"
#include "tools/report/summary.h"

namespace kvcheck {

inline constexpr int kJsonReportSchema = 1;

// tool: "kvcheck 0.1.0". Ends with a line end. Numbers that JSON lacks are the strings "nan", "inf"
// and "-inf"; texts that are not UTF-8 have their bad bytes replaced.
std::string JsonReport(std::span<const CaseResult> results, const Summary& summary, bool strict,
                       const std::string& tool);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_JSON_REPORT_H_
