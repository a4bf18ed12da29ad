// The parts of compare for files without the schema.

#ifndef TOOLS_KVCHECK_COMPARE_STORED_H_
#define TOOLS_KVCHECK_COMPARE_STORED_H_

#include <string>
#include <vector>

#include "tools/compare/pairs.h"
#include "tools/kvcheck/compare_options.h"

namespace kvcheck {

// The options that select and rename, as part of a command: " --include 'k*' --map 's#a#b#'".
std::string SelectionArguments(const CompareOptions& options);

// --bless: prints what changes per tensor and writes the new file. Gives the exit code.
// Errors: kUsage, kUnreadableFile; Interrupted (interrupt.h), and then nothing is written.
int BlessStored(const CompareOptions& options, const std::vector<ComparePair>& pairs,
                LockedFile& gold, LockedFile& got, const JudgeCall& judge);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_COMPARE_STORED_H_
