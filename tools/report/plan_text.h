// The known plans as people and programs read them: which goes with which kernel, and one whole,
// each number with its source.

#ifndef TOOLS_REPORT_PLAN_TEXT_H_
#define TOOLS_REPORT_PLAN_TEXT_H_

#include <string>

#include "reference/spec/known_plans.h"

namespace kvcheck {

// A line for each plan.
std::string PlansText();
// One plan whole.
std::string PlanText(const KnownPlan& plan);
// {"plans": [{"name", "kernel", "text", "reason", "holds_for": [sentences], "fields": [{"field",
// "value", "source"}], "unsaid": [fields]}]}; of one plan, or with nullptr of all.
std::string PlansJson(const KnownPlan* one);

}  // namespace kvcheck

#endif  // TOOLS_REPORT_PLAN_TEXT_H_
