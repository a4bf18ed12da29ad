// kvcheck fuzz: drawn cases on an implementation, each failure once, as small as it can be made.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>

#include "reference/spec/error.h"
#include "tools/campaign/campaign_kind.h"
#include "tools/campaign/fuzz_run.h"
#include "tools/corridor/registry.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/notice.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"

namespace kvcheck {
namespace {

struct FuzzOptions {
  CommonOptions common;
  std::string kind{Name(CaseKind::kCache)};
  std::string implementation;
  DrawSettings draw;
  int64_t cases = 0;
  std::string time;
  bool keep_going = false;
  std::string out = "fuzz-failures";
  std::string limit = "10s";
  std::string observe;
  std::string shrink_time = "60s";
  int64_t shrink_cases = 1;
  int max_unproved = kDefaultMaxUnproved;
};

std::string CommandOf(const FuzzOptions& options, const Answerer& answerer) {
  std::string text = fmt::format("kvcheck fuzz --kind {} --impl {} --seed {}", Name(answerer.kind),
                                 ShellWord(answerer.name), options.draw.seed);
  for (const std::string& glob : options.draw.layouts) text += " --layout " + ShellWord(glob);
  for (const std::string& glob : options.draw.formats) text += " --format " + ShellWord(glob);
  if (!options.observe.empty()) text += " --observe " + options.observe;
  return text;
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const CaseKind kind : DrawnKinds()) names.emplace_back(Name(kind));
  return names;
}

// "100000 of cache, ...".
std::string DefaultCasesText() {
  std::vector<std::string> texts;
  for (const CaseKind kind : DrawnKinds()) {
    texts.push_back(fmt::format("{} of {}", CampaignKindOf(kind).drawn_cases, Name(kind)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

int RunFuzzCommand(const FuzzOptions& options, bool has_cases) {
  const Answerer answerer =
      FindAnswerer(*FindCaseKind(options.kind), options.implementation, OnInterrupt());
  FuzzSettings settings;
  settings.draw = options.draw;
  if (!options.observe.empty()) {
    settings.draw.observe = options.observe == "each" ? Observe::kEach : Observe::kLast;
  }
  if (!options.time.empty()) {
    settings.time = ParseDuration(options.time, "--time");
  } else {
    settings.cases = has_cases ? options.cases : CampaignKindOf(answerer.kind).drawn_cases;
  }
  settings.keep_going = options.keep_going;
  settings.resumes = options.keep_going;
  settings.out = options.out;
  if (!options.out.empty()) CheckOutputFolder(options.out, "--out");
  settings.since_progress = ParseDuration(options.limit, "--limit");
  if (settings.since_progress.count() < 1) {
    throw Error(ErrorCode::kUsage, "a limit is longer than nothing", "--limit");
  }
  settings.shrink_time = ParseDuration(options.shrink_time, "--shrink-time");
  settings.shrink_cases = options.shrink_cases;
  settings.max_unproved = options.max_unproved;
  settings.workers = options.common.threads;
  ProgressLine progress(options.common.text.quiet);
  settings.progress = &progress;
  settings.cancel = OnInterrupt();
  settings.command = CommandOf(options, answerer);
  for (const std::string& notice : answerer.Notices("fuzz", options.common.text.quiet)) {
    PrintNotice(notice);
  }
  RunReport report("fuzz", options.common, 0);
  FuzzOutcome outcome = RunFuzz(answerer, settings);
  if (outcome.interrupted) report.SetInterrupted();
  for (FuzzFailure& failure : outcome.failures) report.Add(failure.result);
  if (outcome.failures.empty() && outcome.counts.cases > 0) report.Add(outcome.overall);
  const int64_t cases = outcome.counts.cases;
  report.AddCampaign(std::move(outcome.counts));
  if (!options.common.text.quiet && outcome.seconds > 0) {
    PrintNotice(fmt::format("kvcheck fuzz: {} in {:.1f} s, {:.0f} a second", Plural(cases, "case"),
                            outcome.seconds, static_cast<double>(cases) / outcome.seconds));
  }
  return report.Finish();
}

}  // namespace

void AddFuzzCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<FuzzOptions>();
  CLI::App* command = app->add_subcommand(
      "fuzz", "Draw cases, judge them, and shrink what fails to a case that replays");
  command->footer(
      "Examples: kvcheck fuzz --time 60 --keep-going\n"
      "          kvcheck fuzz --impl fault:kept_evicted_on_wrap --cases 10000\n"
      "          kvcheck fuzz --kind attention --impl fault:last_key_dropped");
  command
      ->add_option("--kind", options->kind,
                   fmt::format("What is drawn: {}", fmt::join(KindNames(), ", ")))
      ->check(CLI::IsMember(KindNames()))
      ->type_name("KIND")
      ->capture_default_str();
  command
      ->add_option("--impl", options->implementation,
                   "Who answers (default: " + DefaultImplementation(CaseKind::kCache) + "). " +
                       ImplementationsHelp())
      ->type_name("NAME");
  command
      ->add_option("--layout", options->draw.layouts,
                   "Only caches of such layouts: linear, linear:w, ring, ring:keep, chunk")
      ->type_name("GLOB")
      ->take_all();
  command
      ->add_option("--format", options->draw.formats,
                   "Only such storage formats, of caches and codecs: 'affine:4:*'")
      ->type_name("GLOB")
      ->take_all();
  command->add_option("--seed", options->draw.seed, "Which sequence of cases")
      ->check(CLI::NonNegativeNumber)
      ->transform(Decimal())
      ->type_name("S")
      ->capture_default_str();
  CLI::Option* cases = command
                           ->add_option("--cases", options->cases,
                                        "How many cases (default: " + DefaultCasesText() + ")")
                           ->transform(Decimal())
                           ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
                           ->type_name("N");
  command->add_option("--time", options->time, "Begin no case after this time: 30, 5m, 1h")
      ->type_name("T")
      ->excludes(cases);
  command->add_flag("--keep-going", options->keep_going,
                    "Go on after the first failure, and report each different one; the same "
                    "command again with the same --out goes on where this one was killed or "
                    "interrupted");
  command
      ->add_option("--out", options->out,
                   "Folder for the .case files of failures, each written when it is found and "
                   "again when it is shrunk")
      ->type_name("DIR")
      ->capture_default_str();
  command
      ->add_option("--limit", options->limit, "A case hangs that makes no progress for this long")
      ->type_name("T")
      ->capture_default_str();
  command
      ->add_option("--observe", options->observe,
                   "Judge the states of caches after each operation, or after the last alone "
                   "(default: as drawn)")
      ->check(CLI::IsMember({"each", "last"}))
      ->type_name("WHEN");
  command
      ->add_option("--shrink-time", options->shrink_time,
                   "Make one failure smaller for no longer than this")
      ->type_name("T")
      ->capture_default_str();
  command
      ->add_option("--shrink-cases", options->shrink_cases,
                   "Shrink so many failing cases of a signature, and report each different form")
      ->transform(Decimal())
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  AddMaxUnprovedOption(command, &options->max_unproved);
  AddReportOptions(command, &options->common);
  command->callback([=] {
    *chosen = [=] {
      options->common.Check();
      try {
        return RunFuzzCommand(*options, cases->count() > 0);
      } catch (const Cancelled&) {
        return FinishInterrupted("fuzz", options->common);
      }
    };
  });
}

}  // namespace kvcheck
