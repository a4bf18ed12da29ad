// What was found, for a reader and for programs.

#ifndef TOOLS_AGREE_AGREE_TEXT_H_
#define TOOLS_AGREE_AGREE_TEXT_H_

#include <string>

#include "tools/agree/agree.h"

namespace kvcheck {

inline constexpr int kAgreeSchema = 2;

// A table of quality, one of correctness, then what did not pass.
std::string AgreeText(const AgreeQuestion& question, const AgreeReport& report);
// SVG: mean KL, and the share of positions whose top-1 token is another, against bits per element.
std::string AgreePlot(const AgreeQuestion& question, const AgreeReport& report);
// One document, described in tools/agree/README.md. Fields named times and single_times alone
// differ from run to run.
std::string AgreeJson(const AgreeQuestion& question, const AgreeReport& report);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_AGREE_TEXT_H_
