// kvcheck compare GOLD GOT --case 'CASE' --gold-plan P1: two implementations of one attention case
// against each other, each with its own plan. GOLD holds the inputs and its outputs, GOT outputs.

#ifndef TOOLS_COMPARE_COMPARE_TWO_PLANS_H_
#define TOOLS_COMPARE_COMPARE_TWO_PLANS_H_

#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "reference/spec/case.h"
#include "tools/compare/case_tensors.h"
#include "tools/corridor/cancel.h"
#include "tools/corridor/stored_tensors.h"

namespace kvcheck {

struct TwoPlansQuestion {
  JudgeOptions judge;
  Cancel cancel{};
  std::string gold;  // files
  std::string got;
  std::string gold_plan;
  std::string plan;     // "": a stranger's
  std::string profile;  // of both
  bool bitwise = false;
  std::vector<std::string> map;
  std::vector<std::string> axes;
  std::string cast;
  std::string tensor_arguments;  // these three, as part of a command
};

// What can be said before a file is read. Errors: kUsage for bitwise with plans that differ;
// kIllegalCase for a case that is not attention; kParse for a plan.
void CheckTwoPlans(const TwoPlansQuestion& question, const Case& c);
// The command that repeats it.
std::string TwoPlansCommand(const TwoPlansQuestion& question, const Case& c);
// GOLD is first judged under its own plan; where it fails, GOT is MISTRUSTED, since nothing can be
// learned from its distance. bitwise: no bound, equal bytes. tensors: of the case, which the files
// are read by.
Verdict JudgeTwoPlans(const TwoPlansQuestion& question, const Case& c, const StoredFile& gold,
                      const StoredFile& got, CaseTensors* tensors);

}  // namespace kvcheck

#endif  // TOOLS_COMPARE_COMPARE_TWO_PLANS_H_
