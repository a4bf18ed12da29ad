// The parts of compare for files without the schema.

#ifndef TOOLS_COMPARE_COMPARE_STORED_H_
#define TOOLS_COMPARE_COMPARE_STORED_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/compare/compare_question.h"
#include "tools/compare/pairs.h"

namespace kvcheck {

// The options that select and rename, as part of a command: " --include 'k*' --map 's#a#b#'".
std::string SelectionArguments(const CompareQuestion& question);

// What BlessStored does with the pairs that were chosen.
void BlessPairs(const CompareQuestion& question, const std::vector<ComparePair>& pairs,
                LockedFile& gold, LockedFile& got, const JudgeCall& judge,
                const std::function<void(const std::string& line)>& tell);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_COMPARE_STORED_H_
