#include "tools/kvcheck/compare_options.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <utility>

#include "reference/spec/text.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/report/number_text.h"

namespace kvcheck {

bool Matches(const std::string& pattern, const std::string& name) {
  return pattern.empty() || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

Plan PlanOf(const CompareOptions& options, const std::string& stated) {
  if (!options.plan.empty()) return ParsePlan(options.plan);
  return ParsePlan(stated.empty() ? kStrangerPlan : stated);
}

Profile ProfileOf(const CompareOptions& options, const std::string& stated) {
  return ParseProfile(options.profile.empty() ? stated : options.profile);
}

std::string PlanArguments(const CompareOptions& options) {
  std::string text;
  const std::pair<const char*, const std::string&> arguments[] = {
      {"--plan", options.plan}, {"--profile", options.profile}, {"--tol", options.tolerance}};
  for (const auto& [name, value] : arguments) {
    if (!value.empty()) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  if (!options.common.statistics) text += " --statistics off";
  return text;
}

ToleranceRule RuleOf(const CompareOptions& options) {
  return options.tolerance.empty() ? ToleranceRule(ExactRule{})
                                   : ParseToleranceRule(WholeLine(options.tolerance));
}

}  // namespace kvcheck
