// Which single declared value would have to change for a plan to explain an error: the usual
// undeclared roundings, each as a changed plan.

#ifndef REFERENCE_ATTENTION_SUSPECTS_H_
#define REFERENCE_ATTENTION_SUSPECTS_H_

#include <optional>
#include <string>
#include <vector>

#include "reference/spec/case.h"
#include "reference/spec/declared_change.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {

struct Suspect {
  Plan plan;
  DeclaredChange change;
  // Of a type that outputs pass through: all of them must be values of it.
  std::optional<DType> outputs_are{};
};

// From the mildest change to the strongest. declared: as the implementation stated it; what it left
// unsaid stays unsaid. plan: the same with every field filled (Arithmetic::plan).
std::vector<Suspect> Suspects(const Plan& declared, const Plan& plan, const Profile& profile,
                              const AttentionCase& c);

}  // namespace kvcheck

#endif  // REFERENCE_ATTENTION_SUSPECTS_H_
