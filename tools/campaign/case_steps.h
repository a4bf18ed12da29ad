// Steps of a case, one after the other: the operations of a trace. Cases of other kinds have none.

#ifndef TOOLS_CAMPAIGN_CASE_STEPS_H_
#define TOOLS_CAMPAIGN_CASE_STEPS_H_

#include <cstdint>

#include "reference/spec/case.h"

namespace kvcheck {

bool HasSteps(const Case& c);
// Up to this step, or whole where it has no such step.
Case UpToStep(Case c, int64_t step);
bool EndsAtStep(const Case& c, int64_t step);
// The same case, judged after each of its steps.
Case JudgedAtEachStep(Case c);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_CASE_STEPS_H_
