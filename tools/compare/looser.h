// A rule beside a tighter bound that can be derived: what a warning says of it, with both numbers,
// and the derived bound of a tensor whose format is known.

#ifndef TOOLS_COMPARE_LOOSER_H_
#define TOOLS_COMPARE_LOOSER_H_

#include <optional>
#include <string>

#include "reference/judge/looseness.h"
#include "reference/spec/tolerance.h"
#include "tools/compare/pairs.h"

namespace kvcheck {

// "abs:0.1 allows 0.1 at out[l=0, dv=3], where the derived bound is 2e-07; it is looser at 9 of 12
// elements". bound: "the derived bound", "the bound of codec:f16".
std::string LooserText(const ToleranceRule& rule, const std::string& output,
                       const std::string& bound, const Looseness& looser);

// The same of a pair whose rule stands in for a codec rule (ComparePair::replaced), which says how
// far the format itself moves each element. nullopt where the rule is looser nowhere, and where the
// format has no bound for the tensor: its rows are no rows of the format, or only a part of it or
// another type of it was compared.
// Errors: kUnreadableFile.
std::optional<std::string> LooserThanFormat(const ComparePair& pair, LockedFile& gold,
                                            LockedFile& got, int threads);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_LOOSER_H_
