// kvcheck bench: what storage formats cost and lose. Nothing is judged.

#include "tools/kvcheck/commands.h"

namespace kvcheck {

void AddBenchCommand(CLI::App* app, ChosenCommand* chosen) {
  CLI::App* bench = app->add_subcommand(
      "bench", "Measure storage formats: bits, errors of rows and of attention, speed");
  bench->require_subcommand(1);
  AddBenchFormatsCommand(bench, chosen);
  AddBenchKvCacheCommand(bench, chosen);
}

}  // namespace kvcheck
