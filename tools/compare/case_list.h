// Lists of cases for `kvcheck compare --cases`: JSON lines, as a script writes them, one case each.
//
//   {"name": "decode/0", "case": "attention ...", "plan": "base=...", "got": "out/0.safetensors"}
//
// Files are named from the list's own folder. What a line leaves out the options of the command
// say. Empty lines, and lines that begin with '#', are left out.

#ifndef TOOLS_COMPARE_CASE_LIST_H_
#define TOOLS_COMPARE_CASE_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/compare/file_case.h"

namespace kvcheck {

struct ListedCase {
  std::string name;
  FileCase files;
  std::string group;  // of the files that hold its tensors; "": all of them
};

// common: the options. Errors: kParse with FILE:LINE, what is wrong and what to do, where any line
// cannot be read; kSelection for a list without cases.
std::vector<ListedCase> ParseCaseList(const CompareQuestion& common, std::string_view text,
                                      const std::string& file);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_CASE_LIST_H_
