#include "tools/campaign/gate_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "reference/spec/error.h"
#include "tools/campaign/campaign_kind.h"
#include "tools/campaign/fuzz_campaign.h"
#include "tools/campaign/fuzz_run.h"
#include "tools/campaign/gate_excuses.h"
#include "tools/campaign/gate_suites.h"
#include "tools/campaign/process_pool.h"
#include "tools/campaign/sort_stably.h"
#include "tools/campaign/verdict_message.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/report/number_text.h"
#include "tools/report/output_file.h"

namespace kvcheck {
namespace {

struct FailedCase {
  CaseEntry entry;
  std::string signature;
  CaseResult result;
};

class Gate {
 public:
  Gate(const GateQuestion& question, Progress* progress, ResultSink* results)
      : question_(question),
        progress_(progress),
        results_(results),
        excuses_(question.known, !question.write_known.empty(), question.cancel) {
    for (const CaseKind kind : DrawnKinds()) {
      if (!HasAnswerer(kind, question.implementation, question.cancel)) continue;
      answerers_[kind] = FindAnswerer(kind, question.implementation, question.cancel);
    }
    // Says which names there are.
    if (answerers_.empty())
      FindAnswerer(CaseKind::kCache, question.implementation, question.cancel);
    if (!question.out.empty()) CheckOutputFolder(question.out, "--out");
    if (!question.expires.empty() && !IsDate(question.expires)) {
      throw Error(ErrorCode::kUsage, "a date is YYYY-MM-DD, of a day that exists", "--expires");
    }
  }

  void Run() {
    std::vector<CaseEntry> all =
        ReadSuites(question_.suites.empty() ? std::vector<std::string>{DefaultSuiteFolder()}
                                            : question_.suites,
                   question_.cancel);
    excuses_.CheckCases(all);
    cases_ = OfShard(std::move(all), question_.shard);
    for (const std::string& notice : answerers_.begin()->second.Notices("gate", question_.quiet)) {
      progress_->Notice(notice);
    }
    if (RunCases() && ShrinkCases()) RunFuzzBudget();
    for (std::string& note : excuses_.Notes(answerers_)) results_->AddNote(std::move(note));
    NoteLeftOpen();
    if (stopped_) results_->AddNote("ended at the first failure that is not known (--stop-at-new)");
    WriteKnown();
  }

 private:
  const Answerer* AnswererOf(const CaseEntry& entry) const {
    const auto found = answerers_.find(KindOf(entry.c));
    return found == answerers_.end() ? nullptr : &found->second;
  }

  // In a worker.
  Message JudgeCase(const CaseEntry& entry, std::map<CaseKind, std::unique_ptr<CaseJudge>>* judges,
                    ItemMark* mark) const {
    SignedVerdict judged;
    const Answerer* answerer = AnswererOf(entry);
    if (answerer == nullptr) {
      judged.verdict = WithoutJudging(Outcome::kUnsupported,
                                      fmt::format("'{}' is no implementation of cases of {}",
                                                  question_.implementation, KindName(entry.c)));
      return Encode(judged);
    }
    if (!IsInSpaces(*answerer, entry.c)) {
      judged.verdict = WithoutJudging(
          Outcome::kUnsupported,
          fmt::format("the case is in none of the spaces that '{}' states", answerer->title));
      return Encode(judged);
    }
    std::unique_ptr<CaseJudge>& judge = (*judges)[answerer->kind];
    if (judge == nullptr)
      judge = MakeCaseJudge(*answerer, judge_options_, question_.limit, question_.cancel);
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
    if (!question_.stop_at_new || result.expectation == Expectation::kFinding) return;
    const Outcome outcome = result.verdict.outcome;
    stopped_ = stopped_ || outcome == Outcome::kFail || outcome == Outcome::kCrashed ||
               outcome == Outcome::kTimedOut;
  }

  // False when the run was interrupted or is over.
  bool RunCases() {
    judge_options_ = question_.judge;
    judge_options_.threads = 1;
    PoolOptions pool_options;
    pool_options.workers = question_.workers;
    pool_options.items = std::ssize(cases_);
    pool_options.limits.since_progress = question_.limit;
    for (const auto& [kind, answerer] : answerers_) {
      const std::unique_ptr<Subject> subject = MakeSubject(answerer, {});
      pool_options.limits.since_progress =
          std::max(pool_options.limits.since_progress, WorkerLimit(*subject, question_.limit));
    }
    EndIdleAdapters();
    pool_options.limits.address_space_bytes = kWorkerBytes;
    ProcessPool pool(pool_options, [this]() -> EvaluateBatch {
      auto judges = std::make_shared<std::map<CaseKind, std::unique_ptr<CaseJudge>>>();
      return [this, judges](const Batch& batch, ItemMark& mark) {
        mark.StartItem(batch.first);
        return JudgeCase(cases_[static_cast<size_t>(batch.first)], judges.get(), &mark);
      };
    });
    int64_t done = 0;
    pool.state = [this] {
      return question_.cancel.IsRequested() ? PoolState::kStop : PoolState::kGoOn;
    };
    pool.is_sound = [](const Message& message) {
      try {
        DecodeVerdict(message);
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    pool.deliver = [&](const BatchAnswer& answer) {
      progress_->Clear();
      Report(cases_[static_cast<size_t>(answer.batch.first)], answer);
      progress_->Show(fmt::format("{} of {} cases", ++done, cases_.size()));
      return !stopped_;
    };
    pool.Run();
    if (question_.cancel.IsRequested()) results_->SetInterrupted();
    return !question_.cancel.IsRequested() && !stopped_;
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
    result.outside = answerer == nullptr || !IsInSpaces(*answerer, entry.c);
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
    results_->Add(result);
  }

  // Cases that fail by a signature whose causes are told apart by their traces: what each comes
  // down to decides whether it is known. Behind all others, because nothing waits for the workers
  // meanwhile. False when the run was interrupted or is over.
  bool ShrinkCases() {
    CampaignOptions options;
    options.since_progress = question_.limit;
    options.interrupted = [this] { return question_.cancel.IsRequested(); };
    std::unique_ptr<Subject> subject;
    std::unique_ptr<FailureShrinker> shrink;
    std::map<std::string, std::set<std::string>> forms;  // by signature
    SortStably(&to_shrink_,
               [](const FailedCase& failed) { return std::string(KindName(failed.entry.c)); });
    EndIdleAdapters();
    for (FailedCase& failed : to_shrink_) {
      const Answerer& answerer = *AnswererOf(failed.entry);
      if (subject == nullptr || subject->Kind() != Name(answerer.kind)) {
        shrink.reset();
        subject = MakeSubject(answerer, {}, question_.cancel);
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
      if (question_.cancel.IsRequested()) {
        results_->SetInterrupted();
        return false;
      }
      failed.result.verdict.reasons.push_back("shrunk to " + Print(found.shrunk.c));
      excuses_.ExcuseCase(failed.signature, answerer, found.shrunk.c, found.shrunk_whole,
                          &failed.result);
      StopAtNew(failed.result);
      results_->Add(failed.result);
      if (stopped_) return false;
    }
    return true;
  }

  // Of kinds that no campaign was drawn of, which says so itself.
  void NoteLeftOpen() {
    for (const auto& [kind, answerer] : answerers_) {
      if (drawn_.contains(kind)) continue;
      CampaignCounts counts;
      counts.left_open = answerer.left_open;
      counts.not_asked = answerer.not_asked;
      std::string text = LeftOpenText(counts);
      if (text.empty()) continue;
      text.pop_back();
      results_->AddNote(fmt::format("{}: {}", Name(kind), text));
    }
  }

  void WriteKnown() {
    if (question_.write_known.empty()) return;
    if (question_.cancel.IsRequested()) {
      return results_->AddNote(question_.write_known + " is not written: the run was interrupted");
    }
    const int64_t left_out =
        excuses_.Write(question_.write_known, question_.reason, question_.expires);
    if (left_out == 0) return;
    results_->AddNote(fmt::format("{} not written to {}: not shrunk to the end",
                                  Plural(left_out, "failure"), question_.write_known));
  }

  void RunFuzzBudget() {
    const bool timed = question_.fuzz_time.has_value();
    const auto time = question_.fuzz_time.value_or(std::chrono::milliseconds(0));
    for (const CaseKind kind : DrawnKinds()) {
      const auto found = answerers_.find(kind);
      if (found == answerers_.end()) continue;
      FuzzSettings settings;
      settings.draw.seed = question_.seed;
      const CampaignKind& row = CampaignKindOf(kind);
      if (timed) {
        settings.time = time * row.gate_tenths / 10;
        if (answerers_.size() == 1) settings.time = time;
      } else {
        const int64_t cases = (question_.fuzz_cases + row.gate_cost - 1) / row.gate_cost;
        settings.cases = cases / question_.shard.count +
                         (question_.shard.index <= cases % question_.shard.count ? 1 : 0);
        if (*settings.cases == 0) continue;
      }
      settings.keep_going = true;
      settings.out = question_.out;
      settings.since_progress = question_.limit;
      settings.max_unproved = question_.max_unproved;
      settings.workers = question_.workers;
      settings.progress = progress_;
      settings.cancel = question_.cancel;
      settings.stride = question_.shard.count;
      settings.offset = question_.shard.index - 1;
      settings.command = fmt::format("kvcheck gate --seed {}", question_.seed);
      // Without a file to compare with or to write, one case stands for a signature.
      settings.causes = &excuses_.CausesOf(found->second);
      settings.tells_all_apart = !question_.write_known.empty();
      settings.shrink_cases = question_.shrink_cases;
      settings.stop_at_new = question_.stop_at_new;
      FuzzOutcome outcome = RunFuzz(found->second, settings);
      excuses_.ExcuseDrawn(found->second, &outcome.failures, &outcome.counts);
      bool all_known = true;
      for (FuzzFailure& failure : outcome.failures) {
        all_known = all_known && failure.result.expectation == Expectation::kFinding;
        StopAtNew(failure.result);
        results_->Add(failure.result);
      }
      if (all_known && outcome.counts.cases > 0) results_->Add(outcome.overall);
      drawn_.insert(kind);
      results_->AddCampaign(std::move(outcome.counts));
      if (outcome.interrupted) return results_->SetInterrupted();
      if (stopped_) return;
    }
  }

  const GateQuestion& question_;
  Progress* progress_;
  ResultSink* results_;
  GateExcuses excuses_;
  std::map<CaseKind, Answerer> answerers_;
  std::vector<CaseEntry> cases_;
  JudgeOptions judge_options_;
  std::vector<FailedCase> to_shrink_;
  std::set<CaseKind> drawn_;  // kinds that a campaign was reported of
  bool stopped_ = false;
};

}  // namespace

void RunGate(const GateQuestion& question, Progress* progress, ResultSink* results) {
  Gate(question, progress, results).Run();
}

}  // namespace kvcheck
