// Files of cases: the suites of `kvcheck gate` (*.cases) and what `kvcheck fuzz` writes (*.case).
// Grammar: tools/suites/README.md.
//
//   # a comment line; an empty line ends a case
//   case NAME
//   reason WHY THIS CASE IS THERE
//   plan PLAN          of attention: how the implementation computes (left out: base=plain_f32)
//   profile PROFILE    of codec and attention
//   impl NAME          what it was found on (*.case)
//   cache layout=ring:w=4 ...
//   new A
//   append A 3

#ifndef TOOLS_CORRIDOR_CASES_FILE_H_
#define TOOLS_CORRIDOR_CASES_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/case.h"

namespace kvcheck {

struct CaseEntry {
  std::string name;
  std::string reason;
  // Texts that parse, or "".
  std::string plan;
  std::string profile;
  std::string implementation;
  Case c;
  int64_t line = 0;  // of its first line in the file, from 1
};

// The plan of an attention case that names none: the definition written out.
inline constexpr const char* kDefaultCasePlan = "base=plain_f32";

// Errors: kParse, kIllegalCase with FILE:LINE and the reason; kSelection for a file without cases.
std::vector<CaseEntry> ParseCases(std::string_view content, const std::string& file);
// on_wait: as ReadWholeText. Errors: also kUnreadableFile.
std::vector<CaseEntry> ReadCases(const std::string& path,
                                 const std::function<void()>& on_wait = {});

// Whether a file of cases can name this implementation: a command line may hold what a file has
// not.
bool FitsCasesFile(std::string_view implementation);

// As ParseCases reads it; a trace has one operation a line. An implementation that does not fit is
// told in a comment. Comments: lines without their "# ".
std::string Print(const CaseEntry& entry, const std::vector<std::string>& comments = {});

// A case as such a file has it: a trace with one operation a line.
std::string CaseLines(const Case& c);

// A name of a case, and of a file, that reminds of a text: letters, digits and "_.-+" stay, what is
// between becomes "-".
std::string CaseName(std::string_view text);

// More than any list of cases or failures; a longer file is another kind of file, or has no end.
inline constexpr size_t kMostTextBytes = size_t{1} << 26;

// The text of a file. Errors: kUnreadableFile, also for more than kMostTextBytes.
std::string ReadTextFile(const std::string& path, const std::function<void()>& on_wait = {});

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_CASES_FILE_H_
