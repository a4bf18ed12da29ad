// The suites of kvcheck gate: which files, which of their cases, and which part of a sharded run.

#ifndef TOOLS_CAMPAIGN_GATE_SUITES_H_
#define TOOLS_CAMPAIGN_GATE_SUITES_H_

#include <string>
#include <vector>

#include "tools/compare/selection.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/cases_file.h"

namespace kvcheck {

// The folder of the suites that come with kvcheck: ../share/kvcheck/suites beside the program where
// it is installed, or in its build. Errors: kUsage, saying what to give, when there is none.
std::string DefaultSuiteFolder();

// Cases of suite files, and of the *.cases of folders, in the order of the files' names, each named
// "SUITE/CASE" after the file without its extension.
// Errors: kUnreadableFile, kParse, kIllegalCase with FILE:LINE; kUsage for two suites of one name;
// kSelection for a folder without suites; Cancelled.
std::vector<CaseEntry> ReadSuites(const std::vector<std::string>& paths, const Cancel& cancel);

// Those of one shard, by the hash of "/SUITE/CASE" (tools/compare/selection.h).
std::vector<CaseEntry> OfShard(std::vector<CaseEntry> cases, const Shard& shard);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_GATE_SUITES_H_
