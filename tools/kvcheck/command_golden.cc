// kvcheck golden: files of cases with inputs, expected values and what libraries gave.

#include "tools/kvcheck/commands.h"

namespace kvcheck {

void AddGoldenCommand(CLI::App* app, ChosenCommand* chosen) {
  CLI::App* golden = app->add_subcommand("golden", "Golden files: make, verify, show");
  golden->require_subcommand(1);
  AddGoldenMakeCommand(golden, chosen);
  AddGoldenVerifyCommand(golden, chosen);
  AddGoldenShowCommand(golden, chosen);
}

}  // namespace kvcheck
