// A Verdict as bytes, and back: what Python's pickle and copy take of it. Nothing else reads these
// bytes, and another version of the package refuses them.

#ifndef TOOLS_PYTHON_VERDICT_STATE_H_
#define TOOLS_PYTHON_VERDICT_STATE_H_

#include <string>
#include <string_view>

#include "reference/judge/verdict.h"

namespace kvcheck {

std::string StateOf(const Verdict& verdict);

// Errors: kParse for what StateOf of this version did not make.
Verdict VerdictOf(std::string_view state);

}  // namespace kvcheck

#endif  // TOOLS_PYTHON_VERDICT_STATE_H_
