// Numbers for a reader: few digits, one style in every report.

#ifndef TOOLS_REPORT_NUMBER_TEXT_H_
#define TOOLS_REPORT_NUMBER_TEXT_H_

#include <string>
#include <string_view>

namespace kvcheck {

// An error or a bound, two digits: "3.1e-2", "0", "nan", "inf".
std::string ErrorText(double value);
// A ratio: "412", "1.03", "0.25"; three digits, and never "1" for what is not 1.
std::string RatioText(double value);
// A share as percent: "61 %", "0.4 %", "< 0.1 %".
std::string PercentText(double share);
// A value that reads back as the same double.
std::string ValueText(double value);
// "1 row", "3 rows".
std::string Plural(long long count, std::string_view noun);

// A word of a shell command: as it is when harmless, else in single quotes, and where it has
// characters that act instead of being seen (shown_text.h) in the $'' quotes of bash, which name
// their bytes.
std::string ShellWord(std::string_view word);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_NUMBER_TEXT_H_
