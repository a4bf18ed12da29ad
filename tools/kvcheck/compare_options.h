// What `kvcheck compare` was asked, and the three questions that it can mean.

#ifndef TOOLS_KVCHECK_COMPARE_OPTIONS_H_
#define TOOLS_KVCHECK_COMPARE_OPTIONS_H_

#include <string>
#include <vector>

#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/tolerance.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/stored_tensors.h"

namespace kvcheck {

struct CompareOptions {
  CommonOptions common;
  std::vector<std::string> files;
  std::string case_text;
  std::string plan;
  std::string profile;
  std::string implementation;
  std::string only;
  std::string tolerance;
  std::vector<std::string> map;
};

// True when the shell pattern (fnmatch) matches, or is empty.
bool Matches(const std::string& pattern, const std::string& name);
// The plan and profile of the options, else those stated beside the output.
// Errors: kParse.
Plan PlanOf(const CompareOptions& options, const std::string& stated);
Profile ProfileOf(const CompareOptions& options, const std::string& stated);
// The options that change a verdict, as part of the command that repeats it: " --plan '...'".
std::string PlanArguments(const CompareOptions& options);
// The rule of --tol; exact without it. Errors: kParse.
ToleranceRule RuleOf(const CompareOptions& options);

// Each judges and reports, and gives the exit code (tools/report/summary.h).
// GOLD has the schema: its cases against the outputs that GOT has for them.
int CompareGolden(const CompareOptions& options, const StoredFile& gold, const StoredFile& got);
// GOLD has no schema: tensor by tensor.
int CompareStored(const CompareOptions& options, const StoredFile& gold, const StoredFile& got);
// One file that holds the inputs and the outputs of --case.
int CompareCase(const CompareOptions& options);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_COMPARE_OPTIONS_H_
