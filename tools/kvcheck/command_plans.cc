// kvcheck plans: which known plan goes with which kernel, and one plan whole.

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/kvcheck/commands.h"
#include "tools/report/output_file.h"
#include "tools/report/plan_text.h"
#include "tools/report/summary.h"

namespace kvcheck {
namespace {

struct PlansOptions {
  std::string name;
  std::string json;
};

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const KnownPlan& plan : KnownPlans()) names.emplace_back(plan.name);
  return names;
}

int RunPlans(const PlansOptions& options) {
  const KnownPlan* one = options.name.empty() ? nullptr : FindKnownPlan(options.name);
  if (!options.name.empty() && one == nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("there is no plan '{}'{}; kvcheck plans lists all",
                            Shortened(options.name, 80), DidYouMean(options.name, Names())),
                "plans");
  }
  if (options.json != "-") {
    std::cout << (one == nullptr ? PlansText() : PlanText(*one)) << std::flush;
  }
  if (!options.json.empty()) WriteOutput(options.json, PlansJson(one));
  return kExitPassed;
}

}  // namespace

void AddPlansCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<PlansOptions>();
  CLI::App* command = app->add_subcommand(
      "plans", "Which known plan goes with which kernel; one plan, each number with its source");
  command->footer("Example: kvcheck plans flash_attention_2");
  command->add_option("NAME", options->name, "Of one plan");
  command
      ->add_option("--json", options->json,
                   "Write JSON to FILE; - is standard output, in place of the text")
      ->type_name("FILE");
  command->callback([=] { *chosen = [=] { return RunPlans(*options); }; });
}

}  // namespace kvcheck
