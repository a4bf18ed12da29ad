// Named plans of known kernels, with the reason for each. `base=NAME` in a plan text refers here.

#ifndef REFERENCE_SPEC_KNOWN_PLANS_H_
#define REFERENCE_SPEC_KNOWN_PLANS_H_

#include <span>
#include <string_view>

namespace kvcheck {

struct KnownPlan {
  std::string_view name;
  std::string_view text;    // a plan text without base= and name=
  std::string_view reason;  // where the numbers come from
};

std::span<const KnownPlan> KnownPlans();
// nullptr when there is none of this name.
const KnownPlan* FindKnownPlan(std::string_view name);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_KNOWN_PLANS_H_
