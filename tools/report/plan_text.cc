#include "tools/report/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "reference/spec/plan.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

struct PlanField {
  std::string key;
  std::string text;  // "exp_error=2^-21"
  std::string source;
};

std::vector<PlanField> FieldsOf(const KnownPlan& known) {
  std::vector<PlanField> fields;
  const std::string text = Print(ParsePlan(known.text));
  if (text.empty()) return fields;
  for (const Piece& field : Split(WholeLine(text), ' ')) {
    const std::string key(field.text.substr(0, field.text.find('=')));
    fields.push_back({key, std::string(field.text), std::string(SourceOf(known, key))});
  }
  return fields;
}

// Fields of a plan that this one leaves out.
std::vector<std::string> UnsaidBy(const std::vector<PlanField>& fields) {
  std::vector<std::string> unsaid;
  for (const std::string& key : PlanKeys()) {
    if (key == "base" || key == "name") continue;
    if (std::none_of(fields.begin(), fields.end(),
                     [&](const PlanField& field) { return field.key == key; })) {
      unsaid.push_back(key);
    }
  }
  return unsaid;
}

std::vector<std::string> ScopeLines(const PlanScope& scope) {
  std::vector<std::string> lines;
  if (!scope.types.empty()) lines.push_back(fmt::format("q of {}", scope.types));
  if (scope.least_queries > 0) {
    lines.push_back(fmt::format("{} queries and more", scope.least_queries));
  }
  if (scope.most_queries < std::numeric_limits<int64_t>::max()) {
    lines.push_back(fmt::format("{} queries and fewer", scope.most_queries));
  }
  if (!scope.no_softcap.empty()) lines.push_back(fmt::format("no {}", scope.no_softcap));
  if (scope.first_tile > 0) {
    lines.push_back(
        fmt::format("no window that hides the first {} keys from a query: the kernel "
                    "then shifts by 0",
                    scope.first_tile));
  }
  return lines;
}

nlohmann::json JsonOf(const KnownPlan& plan) {
  nlohmann::json fields = nlohmann::json::array();
  const std::vector<PlanField> known = FieldsOf(plan);
  for (const PlanField& field : known) {
    fields.push_back({{"field", field.key},
                      {"value", field.text.substr(field.key.size() + 1)},
                      {"source", field.source}});
  }
  return {{"name", plan.name},
          {"kernel", plan.kernel},
          {"text", Print(ParsePlan(plan.text))},
          {"reason", plan.reason},
          {"holds_for", ScopeLines(plan.scope)},
          {"fields", fields},
          {"unsaid", UnsaidBy(known)}};
}

}  // namespace

std::string PlansText() {
  std::string text;
  for (const KnownPlan& plan : KnownPlans()) {
    text += fmt::format("{:<26}{}\n", plan.name, plan.kernel);
  }
  return text +
         "\nkvcheck plans NAME shows one whole, each number with its source; --plan NAME declares "
         "it."
         "\nNo plan of your kernel, or none that you know? Leave it out: stranger is the "
         "default.\n";
}

std::string PlanText(const KnownPlan& plan) {
  std::string text = fmt::format("{}: {}\n  {}\n", plan.name, plan.kernel, plan.reason);
  for (const std::string& line : ScopeLines(plan.scope)) {
    text += fmt::format("  {:<12} {}\n", "holds for", line);
  }
  const std::vector<PlanField> fields = FieldsOf(plan);
  text += "\n";
  for (const PlanField& field : fields) {
    text += fmt::format("  {:<36} {}\n", field.text, field.source);
  }
  const std::vector<std::string> unsaid = UnsaidBy(fields);
  if (!unsaid.empty()) {
    text += fmt::format("  left unsaid, so that each takes the loosest sound value: {}\n",
                        fmt::join(unsaid, " "));
  }
  return text;
}

std::string PlansJson(const KnownPlan* one) {
  nlohmann::json plans = nlohmann::json::array();
  for (const KnownPlan& plan : KnownPlans()) {
    if (one == nullptr || &plan == one) plans.push_back(JsonOf(plan));
  }
  return nlohmann::json({{"plans", plans}}).dump(1) + "\n";
}

}  // namespace kvcheck
