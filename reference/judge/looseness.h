// Whether a rule that a user gives allows more than a bound that can be derived: then the derived
// bound would find errors that the rule lets pass, and the report says so with both numbers.

#ifndef REFERENCE_JUDGE_LOOSENESS_H_
#define REFERENCE_JUDGE_LOOSENESS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "reference/spec/tiles.h"
#include "reference/spec/tolerance.h"

namespace kvcheck {

// The element of an output at which a rule is loosest.
struct Looseness {
  int64_t element = 0;
  std::string coordinates;  // "[b=1, hq=3, l=0, dv=17]"
  double tolerance = 0;     // that the rule allows there, about the derived value
  double bound = 0;         // that is derived there
  double ratio = 0;         // tolerance / bound; infinite where the bound is 0
  int64_t looser = 0;       // elements of the output at which the rule allows more than the bound
  int64_t compared = 0;     // judged elements with a finite value and bound
  bool operator==(const Looseness&) const = default;
};

// The largest ratio over an output of `derived`, and the first element that has it. nullopt when
// the rule allows more nowhere: exact never does. A claim of conformance has the bound 0. Bounds
// are asked for once, in double precision; the result does not depend on threads. Errors:
// kUnsupported for the rules codec and derived, which are bounds themselves.
std::optional<Looseness> FindLooseness(const ExpectedSource& derived, int output,
                                       const ToleranceRule& rule, int threads = 1);

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_LOOSENESS_H_
