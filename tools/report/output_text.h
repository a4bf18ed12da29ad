// The part of a text report about one output of a case.

#ifndef TOOLS_REPORT_OUTPUT_TEXT_H_
#define TOOLS_REPORT_OUTPUT_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "reference/judge/verdict.h"
#include "tools/report/text_report.h"

namespace kvcheck {

// The worst element as a sentence: "out[b=1, hq=3, l=0, dv=17]: got ..., expected ..., error 3.1e-2
// is 412 x the bound 7.5e-5". Empty when nothing was judged.
std::string WorstSentence(const OutputVerdict& output);

// "2048 elements, worst 0.61 x the bound, 32 rows in 50 digits".
std::string PassSentence(const OutputVerdict& output);

// What explains the result, in a sentence; "": nothing does.
std::string FirstHint(const CaseResult& result);

// What the case may have left out: under it all outputs would pass. "": nothing that was tried.
std::string PassesWith(const Verdict& verdict);
// What explains a failure, and the declarations under which it would pass, in one line.
std::vector<std::string> HintLines(const OutputVerdict& output);
// "bound": how large, from which roundings, under which rule and plan; "rule" where the rule alone
// decides; "" where nothing was compared.
std::string BoundLines(const OutputVerdict& output, const Verdict& verdict);
// Warnings, but for those of the statistics beside elements that fail.
std::vector<std::string> WarningLines(const OutputVerdict& output);

// Everything else, as labelled lines, indented, each ended. is_decisive: hint, where and bound are
// shown elsewhere.
std::string OutputDetails(const OutputVerdict& output, bool is_decisive,
                          const TextOptions& options);

// "  label      text\n", further lines of the text below each other.
std::string Labelled(std::string_view label, std::string_view text);
// One label over several lines, at most options.max_print of them.
std::string LabelledList(std::string_view label, const std::vector<std::string>& lines,
                         const TextOptions& options);
// The same in one line, unless it is verbose: what is said first stays short.
std::string LabelledLine(std::string_view label, const std::vector<std::string>& lines,
                         const TextOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_OUTPUT_TEXT_H_
