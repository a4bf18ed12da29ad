#include "tools/kvcheck/tool_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/report/summary.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 all passed; 1 something failed; 2 the question could not be put (usage, "
    "damaged\n"
    "file, illegal case, nothing selected); 3 nothing failed, but something is MISTRUSTED or "
    "nothing\n"
    "was proved; 4 internal error; 130 interrupted, with a partial report. A report that cannot "
    "be\n"
    "written turns 0 into 2 and no other code.\n"
    "Results go to standard output, progress and errors to standard error.";

// What is quoted may be a file given by mistake.
constexpr size_t kMostMessageBytes = 6000;

int Complain(const std::string& whole_context, const std::string& whole_message, int exit_code) {
  const std::string context = Shortened(whole_context, kMostMessageBytes);
  const std::string message = Shortened(whole_message, kMostMessageBytes);
  std::fflush(stdout);
  PrintNotice(context.empty() ? fmt::format("kvcheck: error: {}", message)
                              : fmt::format("kvcheck: error: {}: {}", context, message));
  return exit_code;
}

// For an option or a command that is not known: the near one of the command that was given.
std::string MeantOption(const CLI::App& app) {
  const CLI::App* command = &app;
  std::vector<std::string> known;
  while (true) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
    if (command->get_subcommands().empty()) break;
    command = command->get_subcommands().front();
  }
  for (const CLI::App* under : command->get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(under->get_name());
  }
  for (const std::string& rest : app.remaining(true)) {
    const std::string near = DidYouMean(rest.substr(0, rest.find('=')), known);
    if (!near.empty()) return near;
  }
  return "";
}

int Run(int argc, char** argv) {
  CLI::App app(
      "Decides whether a KV cache or an attention path is right, and proves every tolerance used.",
      "kvcheck");
  app.footer(kFooter);
  app.set_version_flag("--version", ToolVersion());
  app.require_subcommand(1);
  app.fallthrough(false);
  ChosenCommand chosen;
  AddRunCommand(&app, &chosen);
  AddCompareCommand(&app, &chosen);
  AddFlashInferCommand(&app, &chosen);
  AddAgreeCommand(&app, &chosen);
  AddGoldenCommand(&app, &chosen);
  AddFuzzCommand(&app, &chosen);
  AddGateCommand(&app, &chosen);
  AddFaultsCommand(&app, &chosen);
  AddBenchCommand(&app, &chosen);
  AddListCommand(&app, &chosen);
  AddPlansCommand(&app, &chosen);
  AddNewAdapterCommand(&app, &chosen);
  AddServeCommand(&app, &chosen);
  AddCompletionCommand(&app, &chosen);
  RefuseEmptyValues(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version are "errors" of code 0.
    if (error.get_exit_code() == 0) return app.exit(error);
    if (argc > 1 && std::string_view(argv[1]) == "convert") {
      return Complain("usage",
                      "convert is a command of the Python package, which has PyTorch read the file: "
                      "pip install the wheel (tools/python/make_wheel.sh), torch and safetensors; then "
                      "kvcheck convert IN.pt OUT.safetensors",
                      kExitNotPut);
    }
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
      std::vector<std::string> known;
      for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
      return Complain("usage",
                      fmt::format("there is no command '{}'{}; commands: {}", argv[1],
                                  DidYouMean(argv[1], known), fmt::join(known, ", ")),
                      kExitNotPut);
    }
    return Complain("usage", std::string(error.what()) + MeantOption(app) + "; see kvcheck --help",
                    kExitNotPut);
  }
  KVCHECK_CHECK(chosen != nullptr, "a command without an action");
  return chosen();
}

int RunCaught(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const Error& error) {
    return Complain(error.context(), error.message(), kExitNotPut);
  } catch (const Cancelled&) {
    return kExitInterrupted;
  } catch (const std::bad_alloc&) {
    return Complain("", "out of memory: make the case smaller", kExitNotPut);
  } catch (const std::filesystem::filesystem_error& error) {
    // A folder of the system that is not there, or not ours.
    return Complain(error.path1().string(), error.code().message(), kExitNotPut);
  } catch (const std::exception& error) {
    return Complain("internal error", error.what(), kExitInternal);
  }
}

// compare --bisect. `git bisect run` takes every code from 1 to 127 but 125 for "bad": a commit of
// which nothing was learnt, options that do not parse among the reasons, must be skipped.
constexpr int kExitSkip = 125;

bool IsForBisect(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "compare") return false;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--bisect") return true;
  }
  return false;
}

int BisectExitCode(int exit_code) {
  const bool as_it_is =
      exit_code == kExitPassed || exit_code == kExitFailed || exit_code == kExitInterrupted;
  return as_it_is ? exit_code : kExitSkip;
}

// Files and sockets that the tool opens must not come to lie where standard output is expected.
// What is opened in their place cannot be written, so that a report that nobody gets stays an
// error.
void HoldStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest number that is free: those before it are open.
    if (open("/dev/null", O_RDONLY) != descriptor) _exit(kExitInternal);
  }
}

}  // namespace

int ToolMain(int argc, char** argv) {
  HoldStandardDescriptors();
  // Beyond a limit of the system on files a write fails with a reason instead.
  signal(SIGXFSZ, SIG_IGN);
  InstallInterruptHandler();
  const bool bisect = IsForBisect(argc, argv);
  if (bisect) SetInternalErrorExitCode(kExitSkip);
  int exit_code = RunCaught(argc, argv);
  if (bisect) exit_code = BisectExitCode(exit_code);
  // A report that did not reach a full disk or a closed pipe is not a report.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    if (!ReaderHasGone()) {
      PrintNotice("kvcheck: error: standard output: the report cannot be written");
    }
    if (exit_code != 0) return exit_code;
    return bisect ? kExitSkip : kExitNotPut;
  }
  return exit_code;
}

}  // namespace kvcheck
