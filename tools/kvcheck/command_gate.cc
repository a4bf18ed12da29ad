// kvcheck gate: every case of the suites and a budget of drawn cases, on an implementation, past
// what is known to fail. For continuous integration.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "tools/campaign/fuzz_campaign.h"
#include "tools/campaign/sort_stably.h"
#include "tools/campaign/verdict_message.h"
#include "tools/campaign/worker_pool.h"
#include "tools/kvcheck/adapters.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/common_options.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/fuzz_run.h"
#include "tools/kvcheck/gate_excuses.h"
#include "tools/kvcheck/gate_suites.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/kvcheck/progress_line.h"
#include "tools/kvcheck/run_report.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"

namespace kvcheck {
namespace {

constexpr const char* kKinds[] = {"cache", "codec", "attention"};
// Drawn cases of each kind for one of the budget: they cost about as much.
constexpr int64_t kCasesPerCodec = 10;
constexpr int64_t kCasesPerAttention = 200;
constexpr int64_t kDefaultFuzzCases = 20'000;
// One for each layout and format that a signature shows in, as far as it goes.
constexpr int64_t kDefaultShrinkCases = 8;

struct GateOptions {
  CommonOptions common;
  std::string implementation;
  std::vector<std::string> suites;
  int64_t fuzz_cases = kDefaultFuzzCases;
  std::string fuzz_time;
  uint64_t seed = 1;
  std::string known;
  std::string shard;
  std::string limit = "10s";
  std::string out;
  int max_unproved = kDefaultMaxUnproved;
  int64_t shrink_cases = kDefaultShrinkCases;
  std::string write_known;
  std::string expires;
  std::string reason = "not looked into";
  bool stop_at_new = false;
};

struct FailedCase {
  CaseEntry entry;
  std::string signature;
  CaseResult result;
};

class Gate {
 public:
  explicit Gate(const GateOptions& options)
      : options_(options),
        report_("gate", options.common, 0),
        excuses_(options.known, !options.write_known.empty()) {
    for (const char* kind : kKinds) {
      if (!HasAnswerer(kind, options.implementation)) continue;
      answerers_[kind] = FindAnswerer(kind, options.implementation);
    }
    // Says which names there are.
    if (answerers_.empty()) FindAnswerer("cache", options.implementation);
    if (!options.shard.empty()) shard_ = ParseShard(options.shard);
    limit_ = ParseDuration(options.limit, "--limit");
    if (!options.out.empty()) CheckOutputFolder(options.out, "--out");
    if (!options.expires.empty() && !IsDate(options.expires)) {
      throw Error(ErrorCode::kUsage, "a date is YYYY-MM-DD, of a day that exists", "--expires");
    }
    if (limit_.count() < 1) {
      throw Error(ErrorCode::kUsage, "a limit is longer than nothing", "--limit");
    }
  }

  int Run() {
    std::vector<CaseEntry> all = ReadSuites(
        options_.suites.empty() ? std::vector<std::string>{DefaultSuiteFolder()} : options_.suites);
    excuses_.CheckCases(all);
    cases_ = OfShard(std::move(all), shard_);
    SayWhoIsJudged("gate", answerers_.begin()->second, options_.common.text.quiet);
    if (RunCases() && ShrinkCases()) RunFuzzBudget();
    excuses_.Finish(answerers_, &report_);
    if (stopped_) report_.AddNote("ended at the first failure that is not known (--stop-at-new)");
    WriteKnown();
    return report_.Finish();
  }

 private:
  const Answerer* AnswererOf(const CaseEntry& entry) const {
    const auto found = answerers_.find(std::string(KindName(entry.c)));
    return found == answerers_.end() ? nullptr : &found->second;
  }

  // In a worker.
  Message JudgeCase(const CaseEntry& entry,
                    std::map<std::string, std::unique_ptr<CaseJudge>>* judges,
                    ItemMark* mark) const {
    SignedVerdict judged;
    const Answerer* answerer = AnswererOf(entry);
    if (answerer == nullptr) {
      judged.verdict = WithoutJudging(Outcome::kUnsupported,
                                      fmt::format("'{}' is no implementation of cases of {}",
                                                  options_.implementation, KindName(entry.c)));
      return Encode(judged);
    }
    if (!IsInSpaces(*answerer, entry.c)) {
      judged.verdict = WithoutJudging(
          Outcome::kUnsupported,
          fmt::format("the case is in none of the spaces that '{}' states", answerer->title));
      return Encode(judged);
    }
    std::unique_ptr<CaseJudge>& judge = (*judges)[answerer->kind];
    if (judge == nullptr) judge = MakeCaseJudge(*answerer, judge_options_, limit_);
    try {
      judged.verdict = judge->Explain(entry, *mark, &judged.signature);
    } catch (const Error& error) {
      judged.verdict = WithoutJudging(
          error.code() == ErrorCode::kUnsupported ? Outcome::kUnsupported : Outcome::kIllegalCase,
          error.message());
    }
    return Encode(judged);
  }

  // Under --stop-at-new: what was reported is not known.
  void StopAtNew(const CaseResult& result) {
    if (!options_.stop_at_new || result.expectation == Expectation::kFinding) return;
    const Outcome outcome = result.verdict.outcome;
    stopped_ = stopped_ || outcome == Outcome::kFail || outcome == Outcome::kCrashed ||
               outcome == Outcome::kTimedOut;
  }

  // False when the run was interrupted or is over.
  bool RunCases() {
    int64_t statistics = 0;
    for (const CaseEntry& entry : cases_) statistics += CountStatistics(entry.c);
    judge_options_ = options_.common.Judge(statistics);
    judge_options_.threads = 1;
    PoolOptions pool_options;
    pool_options.workers = options_.common.threads;
    pool_options.items = std::ssize(cases_);
    pool_options.limits.since_progress = limit_;
    for (const auto& [kind, answerer] : answerers_) {
      const std::unique_ptr<Subject> subject = MakeSubject(answerer, {});
      pool_options.limits.since_progress =
          std::max(pool_options.limits.since_progress, WorkerLimit(*subject, limit_));
    }
    EndIdleAdapters();
    pool_options.limits.address_space_bytes = kWorkerBytes;
    WorkerPool pool(pool_options, [this]() -> EvaluateBatch {
      auto judges = std::make_shared<std::map<std::string, std::unique_ptr<CaseJudge>>>();
      return [this, judges](const Batch& batch, ItemMark& mark) {
        mark.StartItem(batch.first);
        return JudgeCase(cases_[static_cast<size_t>(batch.first)], judges.get(), &mark);
      };
    });
    ProgressLine line(options_.common.text.quiet);
    int64_t done = 0;
    pool.state = [] { return IsInterruptRequested() ? PoolState::kStop : PoolState::kGoOn; };
    pool.is_sound = [](const Message& message) {
      try {
        DecodeVerdict(message);
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    pool.deliver = [&](const BatchAnswer& answer) {
      line.Clear();
      Report(cases_[static_cast<size_t>(answer.batch.first)], answer);
      line.Show(fmt::format("{} of {} cases", ++done, cases_.size()));
      return !stopped_;
    };
    pool.Run();
    if (IsInterruptRequested()) report_.SetInterrupted();
    return !IsInterruptRequested() && !stopped_;
  }

  void Report(const CaseEntry& entry, const BatchAnswer& answer) {
    SignedVerdict judged;
    const Answerer* answerer = AnswererOf(entry);
    if (answer.IsLost()) {
      judged.verdict = WithoutJudging(answer.outcome, answer.reason);
      judged.signature = Name(answer.outcome);
      if (answerer != nullptr) {
        const std::unique_ptr<Subject> subject = MakeSubject(*answerer, {});
        judged.signature = LossSignature(*subject, entry, answer.outcome, answer.step);
      }
    } else {
      judged = DecodeVerdict(answer.answer);
    }
    CaseResult result;
    result.name = entry.name;
    result.verdict = std::move(judged.verdict);
    Verdict& verdict = result.verdict;
    verdict.case_text = Print(entry.c);
    if (answerer != nullptr) {
      verdict.implementation = answerer->Shown();
      verdict.command = RunCommand(entry, *answerer);
    }
    if (!judged.signature.empty()) {
      verdict.reasons.push_back(fmt::format("signature \"{}\"", judged.signature));
    }
    if (verdict.outcome != Outcome::kPass) verdict.reasons.push_back("this case: " + entry.reason);
    if (answerer != nullptr) {
      if (excuses_.NeedsShrinking(judged.signature, *answerer, entry, result)) {
        to_shrink_.push_back({entry, judged.signature, std::move(result)});
        return;
      }
      excuses_.ExcuseCase(judged.signature, *answerer, entry.c, /*shrunk_whole=*/true, &result);
    }
    StopAtNew(result);
    report_.Add(result);
  }

  // Cases that fail by a signature whose causes are told apart by their traces: what each comes
  // down to decides whether it is known. Behind all others, because nothing waits for the workers
  // meanwhile. False when the run was interrupted or is over.
  bool ShrinkCases() {
    CampaignOptions options;
    options.since_progress = limit_;
    options.interrupted = [] { return IsInterruptRequested(); };
    std::unique_ptr<Subject> subject;
    std::unique_ptr<FailureShrinker> shrink;
    std::map<std::string, std::set<std::string>> forms;  // by signature
    SortStably(&to_shrink_,
               [](const FailedCase& failed) { return std::string(KindName(failed.entry.c)); });
    EndIdleAdapters();
    for (FailedCase& failed : to_shrink_) {
      const Answerer& answerer = *AnswererOf(failed.entry);
      if (subject == nullptr || subject->Kind() != answerer.kind) {
        shrink.reset();
        subject = MakeSubject(answerer, {});
        options.causes = &excuses_.CausesOf(answerer);
        shrink = std::make_unique<FailureShrinker>(*subject, options);
      }
      FailureSum sum;
      sum.outcome = failed.result.verdict.outcome;
      sum.signature = failed.signature;
      CaseEntry drawn = failed.entry;
      drawn.name = CaseName(failed.signature);  // SUITE/CASE is no name in a file
      const FoundFailure found = (*shrink)(sum, std::move(drawn), forms[failed.signature]);
      if (found.shrunk_whole) forms[failed.signature].insert(found.form);
      if (IsInterruptRequested()) {
        report_.SetInterrupted();
        return false;
      }
      failed.result.verdict.reasons.push_back("shrunk to " + Print(found.shrunk.c));
      excuses_.ExcuseCase(failed.signature, answerer, found.shrunk.c, found.shrunk_whole,
                          &failed.result);
      StopAtNew(failed.result);
      report_.Add(failed.result);
      if (stopped_) return false;
    }
    return true;
  }

  void WriteKnown() {
    if (options_.write_known.empty()) return;
    if (IsInterruptRequested()) {
      return report_.AddNote(options_.write_known + " is not written: the run was interrupted");
    }
    const int64_t left_out =
        excuses_.Write(options_.write_known, options_.reason, options_.expires);
    if (left_out == 0) return;
    report_.AddNote(fmt::format("{} not written to {}: not shrunk to the end",
                                Plural(left_out, "failure"), options_.write_known));
  }

  void RunFuzzBudget() {
    const bool timed = !options_.fuzz_time.empty();
    const auto time =
        timed ? ParseDuration(options_.fuzz_time, "--fuzz-time") : std::chrono::milliseconds(0);
    for (const char* kind : kKinds) {
      const auto found = answerers_.find(kind);
      if (found == answerers_.end()) continue;
      FuzzSettings settings;
      settings.draw.seed = options_.seed;
      const int64_t per = found->first == "cache"   ? 1
                          : found->first == "codec" ? kCasesPerCodec
                                                    : kCasesPerAttention;
      if (timed) {
        // The caches have most states.
        settings.time = found->first == "cache" ? time * 8 / 10 : time / 10;
        if (answerers_.size() == 1) settings.time = time;
      } else {
        const int64_t cases = (options_.fuzz_cases + per - 1) / per;
        settings.cases = cases / shard_.count + (shard_.index <= cases % shard_.count ? 1 : 0);
        if (*settings.cases == 0) continue;
      }
      settings.keep_going = true;
      settings.out = options_.out;
      settings.since_progress = limit_;
      settings.max_unproved = options_.max_unproved;
      settings.workers = options_.common.threads;
      settings.quiet = options_.common.text.quiet;
      settings.stride = shard_.count;
      settings.offset = shard_.index - 1;
      settings.command = fmt::format("kvcheck gate --seed {}", options_.seed);
      // Without a file to compare with or to write, one case stands for a signature.
      settings.causes = &excuses_.CausesOf(found->second);
      settings.tells_all_apart = !options_.write_known.empty();
      settings.shrink_cases = options_.shrink_cases;
      settings.stop_at_new = options_.stop_at_new;
      FuzzOutcome outcome = RunFuzz(found->second, settings);
      excuses_.ExcuseDrawn(found->second, &outcome.failures, &outcome.counts);
      bool all_known = true;
      for (FuzzFailure& failure : outcome.failures) {
        all_known = all_known && failure.result.expectation == Expectation::kFinding;
        StopAtNew(failure.result);
        report_.Add(failure.result);
      }
      if (all_known && outcome.counts.cases > 0) report_.Add(outcome.overall);
      report_.AddCampaign(std::move(outcome.counts));
      if (outcome.interrupted) return report_.SetInterrupted();
      if (stopped_) return;
    }
  }

  const GateOptions& options_;
  RunReport report_;
  GateExcuses excuses_;
  std::map<std::string, Answerer> answerers_;
  Shard shard_;
  std::chrono::milliseconds limit_{0};
  std::vector<CaseEntry> cases_;
  JudgeOptions judge_options_;
  std::vector<FailedCase> to_shrink_;
  bool stopped_ = false;
};

}  // namespace

void AddGateCommand(CLI::App* app, ChosenCommand* chosen) {
  auto options = std::make_shared<GateOptions>();
  CLI::App* command = app->add_subcommand(
      "gate", "Run suites of cases and a budget of drawn cases on an implementation");
  command->footer(
      "Without --suite: the suites that come with kvcheck (tools/suites). Grammar of suites and "
      "of\n"
      "known failures: tools/suites/README.md.\n"
      "Example: kvcheck gate --impl optimized --known known.txt --shard 2/4 --junit gate.xml");
  command
      ->add_option("--impl", options->implementation,
                   "Who answers; cases of kinds that it has not, or outside of the "
                   "spaces that it states, are UNSUPPORTED (default: "
                   "optimized); also an adapter's name, or a command line, with a blank or a "
                   "slash (tools/process/protocol.md), which is run; what suites and known "
                   "failures name is not")
      ->type_name("NAME");
  command->add_option("--suite", options->suites, "A file of cases, or a folder of *.cases")
      ->type_name("F")
      ->take_all();
  CLI::Option* cases =
      command
          ->add_option("--fuzz-cases", options->fuzz_cases,
                       "Drawn traces; codecs get a tenth of it, attention a 200th; 0: none")
          ->transform(Decimal())
          ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
          ->type_name("N")
          ->capture_default_str();
  command->add_option("--fuzz-time", options->fuzz_time, "Draw for this time: 30, 5m, 1h")
      ->type_name("T")
      ->excludes(cases);
  command->add_option("--seed", options->seed, "Which sequence of drawn cases")
      ->check(CLI::NonNegativeNumber)
      ->transform(Decimal())
      ->type_name("S")
      ->capture_default_str();
  command->add_option("--known", options->known, "Failures that are known, with reason and expiry")
      ->type_name("FILE");
  command
      ->add_option("--shrink-cases", options->shrink_cases,
                   "Of a known signature, shrink so many failing cases and look each up among its "
                   "known traces; the others are attributed unseen")
      ->transform(Decimal())
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  CLI::Option* write_known =
      command
          ->add_option("--write-known", options->write_known,
                       "Write the file of --known and behind it what was not known, as entries "
                       "with --reason and --expires")
          ->type_name("FILE");
  CLI::Option* expires =
      command->add_option("--expires", options->expires, "Last day of new entries: YYYY-MM-DD")
          ->needs(write_known)
          ->type_name("DATE");
  command
      ->add_flag("--stop-at-new", options->stop_at_new,
                 "End at the first failure that is not known; what was not looked at by then is "
                 "in no count")
      ->excludes(write_known);
  write_known->needs(expires);
  command->add_option("--reason", options->reason, "Reason of new entries")
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
      ->add_option("--out", options->out,
                   "Folder for the .case files of drawn failures (default: none is written)")
      ->type_name("DIR");
  AddMaxUnprovedOption(command, &options->max_unproved);
  AddCommonOptions(command, &options->common);
  command->callback([=] {
    *chosen = [=] {
      options->common.Check();
      try {
        return Gate(*options).Run();
      } catch (const Interrupted&) {
        return FinishInterrupted("gate", options->common);
      }
    };
  });
}

}  // namespace kvcheck
