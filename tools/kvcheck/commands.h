// The commands of the tool. Each adds itself to the command line; main.cc runs the chosen one after
// all options are parsed. A command gives an exit code (tools/report/summary.h) or throws Error.

#ifndef TOOLS_KVCHECK_COMMANDS_H_
#define TOOLS_KVCHECK_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>

namespace kvcheck {

using ChosenCommand = std::function<int()>;

void AddRunCommand(CLI::App* app, ChosenCommand* chosen);
void AddCompareCommand(CLI::App* app, ChosenCommand* chosen);
void AddFlashInferCommand(CLI::App* app, ChosenCommand* chosen);
void AddAgreeCommand(CLI::App* app, ChosenCommand* chosen);
void AddGoldenCommand(CLI::App* app, ChosenCommand* chosen);
void AddFuzzCommand(CLI::App* app, ChosenCommand* chosen);
void AddGateCommand(CLI::App* app, ChosenCommand* chosen);
void AddFaultsCommand(CLI::App* app, ChosenCommand* chosen);
void AddBenchCommand(CLI::App* app, ChosenCommand* chosen);
void AddListCommand(CLI::App* app, ChosenCommand* chosen);
void AddPlansCommand(CLI::App* app, ChosenCommand* chosen);
void AddNewAdapterCommand(CLI::App* app, ChosenCommand* chosen);
void AddServeCommand(CLI::App* app, ChosenCommand* chosen);
// After all others.
void AddCompletionCommand(CLI::App* app, ChosenCommand* chosen);

// The parts of `kvcheck golden`.
void AddGoldenVerifyCommand(CLI::App* golden, ChosenCommand* chosen);
void AddGoldenShowCommand(CLI::App* golden, ChosenCommand* chosen);
void AddGoldenMakeCommand(CLI::App* golden, ChosenCommand* chosen);

// The parts of `kvcheck bench`.
void AddBenchFormatsCommand(CLI::App* bench, ChosenCommand* chosen);
void AddBenchKvCacheCommand(CLI::App* bench, ChosenCommand* chosen);
void AddBenchJudgeCommand(CLI::App* bench, ChosenCommand* chosen);

}  // namespace kvcheck

#endif  // TOOLS_KVCHECK_COMMANDS_H_
