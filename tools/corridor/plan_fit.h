// Which known plans an answer fits: it is judged under each whose scope has the case. That is a
// finding about the plan. It proves nothing of the kernel, because a plan that was chosen by its
// verdict always passes: the verdict stays that of the plan under which the question was put.

#ifndef TOOLS_CORRIDOR_PLAN_FIT_H_
#define TOOLS_CORRIDOR_PLAN_FIT_H_

#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "reference/judge/verdict.h"
#include "reference/spec/implementation.h"
#include "reference/spec/known_plans.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

// A known plan that claims nothing: judged so, the verdict also says which others hold. Beside strict
// it is refused (kUsage).
inline constexpr const char* kAutoPlan = "auto";

struct PlanFit {
  std::string name;
  bool holds = false;      // no element is outside its bound
  double worst_ratio = 0;  // |error| / bound of the worst element
  double bound_share = 0;  // bound / data, median of the first output
};

// One entry per known plan that has the case, but for those that claim nothing; those that hold
// first, then by bound, the tightest first. Errors: as EvaluateCase; Cancelled.
std::vector<PlanFit> FitKnownPlans(const Question& question, const ObservedSource& observed,
                                   JudgeOptions options, const Cancel& cancel = {});

// "9 of 14 known plans hold, the tightest is ..."; says that it is no proof.
std::string FitText(const std::vector<PlanFit>& fits);

// What the page of the declared plan says against this case, as warnings; of a plan under another
// name nothing is known.
std::vector<std::string> ScopeWarnings(const Question& question);

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_PLAN_FIT_H_
