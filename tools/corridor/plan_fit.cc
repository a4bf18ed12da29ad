#include "tools/corridor/plan_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <variant>

#include "reference/spec/error.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

constexpr size_t kNamed = 6;

std::string Shown(const PlanFit& fit) {
  return fmt::format("{} (bound {} of the data)", fit.name, PercentText(fit.bound_share));
}

}  // namespace

std::vector<PlanFit> FitKnownPlans(const Question& question, const ObservedSource& observed,
                                   JudgeOptions options, const Cancel& cancel) {
  const auto& c = std::get<AttentionCase>(question.c);
  // Only whether elements are inside their bounds is asked.
  options.rule = std::min(options.rule, Rule::kNoise);
  options.explain = false;
  options.strict = false;
  std::vector<PlanFit> fits;
  for (const KnownPlan& known : KnownPlans()) {
    if (known.text.empty() || !ExcludedBy(known, c).empty()) continue;
    Question asked = question;
    asked.plan = ParsePlan(fmt::format("base={}", known.name));
    PlanFit fit;
    fit.name = known.name;
    fit.holds = true;
    try {
      const std::unique_ptr<ExpectedSource> expected = MakeExpected(asked);
      const Verdict verdict = Judge(CancellableSource(*expected, cancel), observed, options);
      for (const OutputVerdict& output : verdict.outputs) {
        fit.holds = fit.holds && output.outcome != Outcome::kFail;
        if (output.worst) fit.worst_ratio = std::max(fit.worst_ratio, output.worst->ratio);
      }
      if (!verdict.outputs.empty()) fit.bound_share = verdict.outputs.front().median_bound_share;
    } catch (const Error&) {
      // A plan that says nothing of such a case (of its formats, say).
      continue;
    }
    fits.push_back(std::move(fit));
  }
  std::stable_sort(fits.begin(), fits.end(), [](const PlanFit& a, const PlanFit& b) {
    return a.holds != b.holds ? a.holds : a.bound_share < b.bound_share;
  });
  return fits;
}

std::string FitText(const std::vector<PlanFit>& fits) {
  constexpr const char* kNoProof =
      "a finding about the plan, and no proof of the kernel, since a plan that is chosen by its "
      "verdict always passes";
  const auto held = static_cast<size_t>(
      std::count_if(fits.begin(), fits.end(), [](const PlanFit& fit) { return fit.holds; }));
  if (fits.empty()) {
    return "plan=auto: no known plan is of such a call; the verdict is that of plan stranger";
  }
  if (held == 0) {
    return fmt::format(
        "plan=auto: of {} that are of such a call none holds ({}): the kernel rounds otherwise, or "
        "has an error; the verdict is that of plan stranger",
        Plural(std::ssize(fits), "known plan"), kNoProof);
  }
  std::vector<std::string> names;
  for (size_t i = 1; i < std::min(held, kNamed); ++i) names.push_back(Shown(fits[i]));
  std::string others = names.empty() ? "" : fmt::format(", then {}", fmt::join(names, ", "));
  if (held > kNamed) others += fmt::format(" and {} more", held - kNamed);
  return fmt::format(
      "plan=auto: {} of {} that are of such a call hold, the tightest is {}{}: {}; declare the one "
      "of your kernel. The verdict is that of plan stranger",
      held, Plural(std::ssize(fits), "known plan"), Shown(fits.front()), others, kNoProof);
}

std::vector<std::string> ScopeWarnings(const Question& question) {
  std::vector<std::string> warnings;
  const auto* c = std::get_if<AttentionCase>(&question.c);
  const KnownPlan* known = c == nullptr ? nullptr : FindKnownPlan(question.plan.name);
  if (known == nullptr) return warnings;
  for (const std::string& what : ExcludedBy(*known, *c)) {
    warnings.push_back(fmt::format("plan {} does not hold for {}; `kvcheck plans` lists others",
                                   known->name, what));
  }
  return warnings;
}

}  // namespace kvcheck
