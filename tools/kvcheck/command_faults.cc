// kvcheck faults: implementations with one rule replaced each, and whether the checks catch them.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <memory>
#include <thread>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/campaign/fault_text.h"
#include "tools/corridor/case_judges.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/report/junit_report.h"
#include "tools/report/output_file.h"
#include "tools/report/text_report.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

struct FaultsOptions {
  CommonOptions common;
  std::vector<std::string> patterns;
  std::string kind;
  std::string id;
  std::string table;
  bool reports = false;
  bool no_times = false;
};

int ListFaults(const FaultsOptions& options) {
  if (options.reports) {
    std::cout << CoverageTable() << std::flush;
    return kExitPassed;
  }
  const std::vector<Fault> faults = SelectFaults(options.patterns, options.kind);
  if (options.common.json != "-") std::cout << FaultListText(faults) << std::flush;
  if (!options.common.json.empty()) {
    WriteOutput(options.common.json, ListJson(faults, ToolVersion()));
  }
  return kExitPassed;
}

int RunFaultsCommand(const FaultsOptions& options) {
  const std::vector<Fault> faults = SelectFaults(options.patterns, options.kind);
  if (!options.table.empty() && faults.size() != AllFaults().size()) {
    throw Error(ErrorCode::kUsage, "a table is of all faults: name none and no kind", "--table");
  }
  const CommonOptions& common = options.common;
  ProgressLine progress(common.text.quiet);
  const auto show = [&](int64_t done) {
    progress.Show(fmt::format("{} of {} faults", done, faults.size()));
  };
  const std::vector<FaultOutcome> outcomes = RunFaults(faults, common.threads, show, OnInterrupt());
  progress.Clear();
  Summary summary;
  summary.interrupted = outcomes.size() < faults.size();
  if (common.json != "-" && common.junit != "-") {
    std::cout << RunText(outcomes, !options.no_times, common.text.quiet);
    if (summary.interrupted) {
      std::cout << fmt::format("{} of {} faults were asked; interrupted, this report is partial\n",
                               outcomes.size(), faults.size());
    }
    std::cout << std::flush;
  }
  if (!common.json.empty()) {
    WriteOutput(common.json,
                RunJson(outcomes, !options.no_times, ToolVersion(), summary.interrupted));
  }
  const std::vector<CaseResult> results = ResultsOf(outcomes);
  for (const CaseResult& result : results) summary.Add(result, common.text.strict);
  if (!common.junit.empty()) {
    WriteOutput(common.junit, JunitReport(results, summary, "faults", common.text));
  }
  if (!options.table.empty()) {
    if (summary.interrupted) {
      PrintNotice("kvcheck faults: " + options.table + " is not written: the run was interrupted");
    } else {
      WriteOutput(options.table, RunTable(outcomes));
    }
  }
  if (!common.text.quiet) {
    PrintNotice(fmt::format("kvcheck faults: {:.1f} s of processor time",
                            static_cast<double>(std::clock()) / CLOCKS_PER_SEC));
  }
  return summary.ExitCode();
}

int ExplainFault(const FaultsOptions& options) {
  const Fault* fault = FindFault(options.id);
  if (fault == nullptr) {
    std::vector<std::string> known;
    for (const Fault& other : AllFaults()) known.emplace_back(other.text->id);
    throw Error(ErrorCode::kUsage,
                fmt::format("there is no fault '{}'{}; kvcheck faults list shows all",
                            Shortened(options.id, 80), DidYouMean(options.id, known)),
                "faults explain");
  }
  const FaultText& text = *fault->text;
  std::cout << fmt::format(
      "{}: {}\n  kind         {}: {} with '{}' replaced\n  reports      {} "
      "(tools/faults/catalogue.md)\n  property     {}\n  caught by    {}\n\n",
      text.id, text.description, Name(fault->kind), HealthyName(fault->kind), text.rule,
      text.reports, text.property, text.checks);
  std::cout << std::flush;
  DrawnCases cases(fault->kind);
  const std::unique_ptr<FaultTrials> trials = MakeFaultTrials(*fault, &cases);
  const CaseEntry entry = SmallestCase(*fault);
  const Trial healthy = trials->Healthy(entry);
  const Trial trial = trials->Faulty(entry);
  CaseResult result;
  result.name = "smallest case";
  result.verdict = trials->Explain(entry);
  result.verdict.implementation = FaultyName(*fault);
  result.verdict.command = CommandOf(*fault, entry, trial.check);
  std::cout << CaseText(result, options.common.text)
            << fmt::format("\nwithout the fault: {}; differences: {}; check: {}\n",
                           Name(healthy.outcome), trial.hits,
                           trial.check.empty() ? "none" : trial.check)
            << std::flush;
  const bool fine = healthy.outcome == HealthyOutcome(text) && IsCaught(text, trial) &&
                    trial.hits > 0 && NamesCheck(text, trial.check);
  return fine ? kExitPassed : kExitFailed;
}

void AddJson(CLI::App* command, CommonOptions* options) {
  command
      ->add_option("--json", options->json,
                   "Write JSON to FILE; - is standard output, in place of the text")
      ->type_name("FILE");
}

void AddSelection(CLI::App* command, FaultsOptions* options) {
  command->add_option("ID", options->patterns, "Ids or patterns: 'window_*' (default: all)");
  std::vector<std::string> kinds;
  for (const Fault& fault : AllFaults()) {
    if (kinds.empty() || kinds.back() != Name(fault.kind)) kinds.emplace_back(Name(fault.kind));
  }
  command
      ->add_option("--kind", options->kind, fmt::format("Of one kind: {}", fmt::join(kinds, ", ")))
      ->check(CLI::IsMember(kinds))
      ->type_name("KIND");
}

void AddList(CLI::App* faults, ChosenCommand* chosen) {
  auto options = std::make_shared<FaultsOptions>();
  CLI::App* command =
      faults->add_subcommand("list", "Show the faults and the reports they stand for");
  AddSelection(command, options.get());
  command->add_flag(
      "--reports", options->reports,
      "The reports of the catalogue instead, each with its faults or why it has none");
  AddJson(command, &options->common);
  command->callback([=] { *chosen = [=] { return ListFaults(*options); }; });
}

void AddRun(CLI::App* faults, ChosenCommand* chosen) {
  auto options = std::make_shared<FaultsOptions>();
  CLI::App* command = faults->add_subcommand(
      "run",
      "Ask every fault its smallest case and drawn ones: each must be caught, as its line says");
  command->footer(
      "Exit codes: 0 every fault was hit and caught by a check that its line names, and nothing "
      "failed\nwithout the fault; 1 otherwise.\nExample: kvcheck faults run 'window_*' --no-times");
  AddSelection(command, options.get());
  command->add_flag("--no-times", options->no_times,
                    "Leave out seconds: then the output is the same in every run");
  command->add_option("--table", options->table, "Write the table of tools/faults/TABLE.md to FILE")
      ->type_name("FILE");
  AddJson(command, &options->common);
  command->add_option("--junit", options->common.junit, "Write a JUnit XML report to FILE, or -")
      ->type_name("FILE");
  CommonOptions& common = options->common;
  common.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  command
      ->add_option("-j,--threads", common.threads,
                   "Threads; results do not depend on it (default: all of the hardware)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command->add_flag("-q,--quiet", common.text.quiet,
                    "Print only faults that are not caught as they should be, and the counts");
  command->callback([=] {
    *chosen = [=] {
      options->common.Check();
      return RunFaultsCommand(*options);
    };
  });
}

void AddExplain(CLI::App* faults, ChosenCommand* chosen) {
  auto options = std::make_shared<FaultsOptions>();
  CLI::App* command = faults->add_subcommand(
      "explain", "What a fault replaces, and the verdict of its smallest case");
  command->add_option("ID", options->id, "Of the fault")->required();
  command->add_flag("-v,--verbose", options->common.text.verbose,
                    "Everything that is known of the verdict");
  command->callback([=] { *chosen = [=] { return ExplainFault(*options); }; });
}

}  // namespace

void AddFaultsCommand(CLI::App* app, ChosenCommand* chosen) {
  CLI::App* faults = app->add_subcommand(
      "faults", "What the checks are worth: implementations with one rule replaced each");
  faults->require_subcommand(1);
  AddList(faults, chosen);
  AddRun(faults, chosen);
  AddExplain(faults, chosen);
}

}  // namespace kvcheck
