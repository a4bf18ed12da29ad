// The faults and what their run showed, as text, as tables in Markdown and as JSON.

#ifndef TOOLS_CAMPAIGN_FAULT_TEXT_H_
#define TOOLS_CAMPAIGN_FAULT_TEXT_H_

#include <span>
#include <string>
#include <vector>

#include "tools/campaign/fault_run.h"
#include "tools/report/case_result.h"

namespace kvcheck {

// A line for each fault, aligned.
std::string FaultListText(std::span<const Fault> faults);
// By which faults each entry of the catalogue is covered, or why it is not: the table of
// tools/faults/catalogue.md, section 3. By id.
std::string CoverageTable();

// times: with a column of seconds, which are not the same in every run. quiet: only the faults that
// are not caught as their lines say, and the counts.
std::string RunText(std::span<const FaultOutcome> outcomes, bool times, bool quiet);
// "186 faults: 186 caught by the check that is named; ...".
std::string RunSummary(std::span<const FaultOutcome> outcomes);
// The content of tools/faults/TABLE.md.
std::string RunTable(std::span<const FaultOutcome> outcomes);

// The reports of --json. tool: "kvcheck 0.2.0".
std::string ListJson(std::span<const Fault> faults, const std::string& tool);
// interrupted: some faults are missing.
std::string RunJson(std::span<const FaultOutcome> outcomes, bool times, const std::string& tool,
                    bool interrupted = false);

// For JUnit: PASS where the fault is caught as its line says.
std::vector<CaseResult> ResultsOf(std::span<const FaultOutcome> outcomes);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_FAULT_TEXT_H_
