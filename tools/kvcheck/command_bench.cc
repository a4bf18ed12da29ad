// kvcheck bench: what storage formats cost and lose, and what judging costs. Figures are no
// verdicts.

#include "tools/kvcheck/commands.h"

namespace kvcheck {

void AddBenchCommand(CLI::App* app, ChosenCommand* chosen) {
  CLI::App* bench = app->add_subcommand(
      "bench", "Measure storage formats: bits, errors, speed; and what judging attention costs");
  bench->require_subcommand(1);
  AddBenchFormatsCommand(bench, chosen);
  AddBenchKvCacheCommand(bench, chosen);
  AddBenchJudgeCommand(bench, chosen);
}

}  // namespace kvcheck
