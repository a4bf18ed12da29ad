#include "tools/kvcheck/compare_options.h"

#include <fmt/format.h>

#include <utility>

#include "golden/text_file.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/report/number_text.h"

namespace kvcheck {

NameFilter::NameFilter(const CompareOptions& options)
    : include_(ParseGlobs(options.include)), exclude_(ParseGlobs(options.exclude)) {}

bool NameFilter::Selects(const std::string& name) const {
  return (include_.empty() || MatchesAny(include_, name)) && !MatchesAny(exclude_, name);
}

bool Matches(const std::string& pattern, const std::string& name) {
  return pattern.empty() || Glob(pattern).Matches(name);
}

std::string ReadText(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 24;
  return ReadWholeText(path, kMostBytes, ThrowIfInterrupted);
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
      {"--plan", options.plan},   {"--profile", options.profile}, {"--tol", options.tolerance},
      {"--slice", options.slice}, {"--cast", options.cast},       {"--nan", options.nan}};
  for (const auto& [name, value] : arguments) {
    if (!value.empty()) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  for (const auto& [name, values] :
       {std::pair{"--rules", &options.rules}, {"--map-file", &options.map_file}}) {
    for (const std::string& value : *values) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  if (!options.common.statistics) text += " --statistics off";
  return text;
}

ToleranceRule RuleOf(const CompareOptions& options) {
  return options.tolerance.empty() ? ToleranceRule(ExactRule{})
                                   : ParseToleranceRule(WholeLine(options.tolerance));
}

RuleSet RulesOf(const CompareOptions& options) {
  TensorRule rule;
  rule.tolerance = RuleOf(options);
  if (!options.tolerance.empty()) rule.where = "--tol";
  if (!options.nan.empty()) rule.nan = ParseNanPolicy(WholeLine(options.nan));
  if (!options.cast.empty()) {
    rule.cast = ParseDType(options.cast);
    if (!rule.cast) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' is not a type{}", Shortened(options.cast, 200),
                              DidYouMean(options.cast, TypeNames())),
                  "--cast");
    }
  }
  RuleSet rules(std::move(rule));
  for (const std::string& file : options.rules) rules.AddFile(ReadText(file), file);
  return rules;
}

}  // namespace kvcheck
