#include "tools/compare/compare_question.h"

#include <fmt/format.h>

#include <utility>

#include "golden/text_file.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/report/number_text.h"

namespace kvcheck {

NameFilter::NameFilter(const CompareQuestion& question)
    : include_(ParseGlobs(question.include)), exclude_(ParseGlobs(question.exclude)) {}

bool NameFilter::Selects(const std::string& name) const {
  return (include_.empty() || MatchesAny(include_, name)) && !MatchesAny(exclude_, name);
}

bool Matches(const std::string& pattern, const std::string& name) {
  return pattern.empty() || Glob(pattern).Matches(name);
}

std::string ReadText(const CompareQuestion& question, const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 24;
  return ReadWholeText(path, kMostBytes, question.cancel);
}

Plan PlanOf(const CompareQuestion& question, const std::string& stated) {
  if (!question.plan.empty()) return ParsePlan(question.plan);
  return ParsePlan(stated.empty() ? kStrangerPlan : stated);
}

Profile ProfileOf(const CompareQuestion& question, const std::string& stated) {
  return ParseProfile(question.profile.empty() ? stated : question.profile);
}

std::string PlanArguments(const CompareQuestion& question) {
  std::string text;
  const std::pair<const char*, const std::string&> arguments[] = {
      {"--plan", question.plan},   {"--profile", question.profile}, {"--tol", question.tolerance},
      {"--slice", question.slice}, {"--cast", question.cast},       {"--nan", question.nan}};
  for (const auto& [name, value] : arguments) {
    if (!value.empty()) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  for (const auto& [name, values] :
       {std::pair{"--rules", &question.rules}, {"--map-file", &question.map_file}}) {
    for (const std::string& value : *values) text += fmt::format(" {} {}", name, ShellWord(value));
  }
  return text + JudgeArguments(question.judge);
}

ToleranceRule RuleOf(const CompareQuestion& question) {
  return question.tolerance.empty() ? ToleranceRule(ExactRule{})
                                    : ParseToleranceRule(WholeLine(question.tolerance));
}

RuleSet RulesOf(const CompareQuestion& question) {
  TensorRule rule;
  rule.tolerance = RuleOf(question);
  if (!question.tolerance.empty()) rule.where = "--tol";
  if (!question.nan.empty()) rule.nan = ParseNanPolicy(WholeLine(question.nan));
  if (!question.cast.empty()) {
    rule.cast = ParseDType(question.cast);
    if (!rule.cast) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' is not a type{}", Shortened(question.cast, 200),
                              DidYouMean(question.cast, TypeNames())),
                  "--cast");
    }
  }
  RuleSet rules(std::move(rule));
  for (const std::string& file : question.rules) rules.AddFile(ReadText(question, file), file);
  return rules;
}

}  // namespace kvcheck
