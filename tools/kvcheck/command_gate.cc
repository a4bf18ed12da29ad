// kvcheck gate: every case of the suites and a budget of drawn cases, on an implementation, past
// what is known to fail. For continuous integration.

#include <memory>

#include "reference/spec/error.h"
#include "tools/campaign/gate_run.h"
#include "tools/corridor/registry.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/kvcheck/run_report.h"

namespace kvcheck {
namespace {

struct GateOptions {
  CommonOptions common;
  GateQuestion question;
  std::string fuzz_time;
  std::string shard;
  std::string limit = "10s";
};

int RunGateCommand(const GateOptions& options) {
  const CommonOptions& common = options.common;
  RunReport report("gate", common, 0);
  ProgressLine progress(common.text.quiet);
  GateQuestion question = options.question;
  if (!options.shard.empty()) question.shard = ParseShard(options.shard);
  question.limit = ParseDuration(options.limit, "--limit");
  if (question.limit.count() < 1) {
    throw Error(ErrorCode::kUsage, "a limit is longer than nothing", "--limit");
  }
  if (!options.fuzz_time.empty()) {
    question.fuzz_time = ParseDuration(options.fuzz_time, "--fuzz-time");
  }
  question.judge = common.Judge();
  question.workers = common.threads;
  question.quiet = common.text.quiet;
  question.cancel = OnInterrupt();
  try {
    RunGate(question, &progress, &report);
  } catch (const Cancelled&) {
    // What was judged until then is reported.
    report.SetInterrupted();
  }
  return report.Finish();
}

}  // namespace

void AddGateCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<GateOptions>();
  GateQuestion* question = &options->question;
  question->reason = "not looked into";
  options->common.text.failures_first = true;
  CLI::App* command = app->add_subcommand(
      "gate", "Run suites of cases and a budget of drawn cases on an implementation");
  command->footer(
      "Without --suite: the suites that come with kvcheck (tools/suites). Grammar of suites and "
      "of\n"
      "known failures: tools/suites/README.md.\n"
      "Example: kvcheck gate --impl optimized --known known.txt --shard 2/4 --junit gate.xml");
  command
      ->add_option("--impl", question->implementation,
                   "Who answers; cases of kinds that it has not, or outside of the "
                   "spaces that it states, are UNSUPPORTED (default: " +
                       DefaultImplementation(CaseKind::kCache) +
                       "); also an adapter's name, or a command line, with a blank or a "
                       "slash (tools/process/protocol.md), which is run; what suites and known "
                       "failures name is not")
      ->type_name("NAME");
  command->add_option("--suite", question->suites, "A file of cases, or a folder of *.cases")
      ->type_name("F")
      ->take_all();
  CLI::Option* cases =
      command
          ->add_option("--fuzz-cases", question->fuzz_cases,
                       "Drawn traces; codecs get a tenth of it, attention a 200th; 0: none")
          ->transform(Decimal())
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
          ->type_name("N")
          ->capture_default_str();
  command->add_option("--fuzz-time", options->fuzz_time, "Draw for this time: 30, 5m, 1h")
      ->type_name("T")
      ->excludes(cases);
  command->add_option("--seed", question->seed, "Which sequence of drawn cases")
      ->check(CLI::NonNegativeNumber)
      ->transform(Decimal())
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--known", question->known, "Failures that are known, with reason and expiry")
      ->type_name("FILE");
  command
      ->add_option("--shrink-cases", question->shrink_cases,
                   "Of a known signature, shrink so many failing cases and look each up among its "
                   "known traces; the others are attributed unseen")
      ->transform(Decimal())
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* write_known =
      command
          ->add_option("--write-known", question->write_known,
                       "Write the file of --known and behind it what was not known, as entries "
                       "with --reason and --expires")
          ->type_name("FILE");
  CLI::Option* expires =
      command->add_option("--expires", question->expires, "Last day of new entries: YYYY-MM-DD")
          ->needs(write_known)
          ->type_name("DATE");
  command
      ->add_flag("--stop-at-new", question->stop_at_new,
                 "End at the first failure that is not known; what was not looked at by then is "
                 "in no count")
      ->excludes(write_known);
  write_known->needs(expires);
  command->add_option("--reason", question->reason, "Reason of new entries")
      ->needs(write_known)
      ->type_name("TEXT")
      ->capture_default_str();
  command
      ->add_option("--shard", options->shard, "Part i of n, of suites by a hash of the case's name")
      ->type_name("i/n");
  command
      ->add_option("--limit", options->limit, "A case hangs that makes no progress for this long")
      ->type_name("T")
      ->capture_default_str();
  command
      ->add_option("--out", question->out,
                   "Folder for the .case files of drawn failures (default: none is written)")
      ->type_name("DIR");
  AddMaxUnprovedOption(command, &question->max_unproved);
  AddCommonOptions(command, &options->common);
  command->callback([=] {
    *chosen = [=] {
      options->common.Check();
      try {
        return RunGateCommand(*options);
      } catch (const Cancelled&) {
        return FinishInterrupted("gate", options->common);
      }
    };
  });
}

}  // namespace kvcheck
