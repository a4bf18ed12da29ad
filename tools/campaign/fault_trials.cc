#include "tools/campaign/fault_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "reference/cache/model_cache.h"
#include "reference/prefix/model_store.h"
#include "reference/spec/error.h"
#include "tools/campaign/fuzz_subjects.h"
#include "tools/campaign/plain_answers.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/implementations.h"
#include "tools/corridor/judge_history.h"
#include "tools/corridor/judge_trace.h"
#include "tools/faults/cache_faults.h"
#include "tools/faults/prefix_faults.h"
#include "tools/faults/small_kernel.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

constexpr int64_t kShrinkRuns = 400;        // of cases with tensors
constexpr int64_t kTraceShrinkRuns = 5000;  // which are faster

// Drawn for simulated kernels under any plan and profile; the small kernel has its own.
CaseEntry Suited(FaultKind kind, CaseEntry entry) {
  if (kind == FaultKind::kKernel) entry.plan = entry.profile = "";
  return entry;
}

Verdict Judged(const Question& question, const MemorySink& answer) {
  JudgeOptions options;
  options.explain = false;
  return EvaluateCase(question, answer, options);
}

Trial TrialOf(const Case& c, const Verdict& verdict) {
  if (verdict.outcome == Outcome::kPass) return {};
  return {verdict.outcome, CheckOf(SignatureOf(c, verdict)), ReasonOf(verdict), 0};
}

const std::string& NoAnswer() {
  static const std::string text = "the implementation declines the case";
  return text;
}

constexpr struct {
  int threads;
  const char* check;
  const char* text;
} kAgain[] = {{2, "attention out repeat", "when it is asked again"},
              {1, "attention out threads", "on one thread"},
              {3, "attention out threads", "on three threads"}};

class TensorTrials : public FaultTrials {
 public:
  TensorTrials(const Fault& fault, DrawnCases* cases) : fault_(fault), cases_(cases) {}

  CaseEntry Draw(int64_t index) override;
  Trial DrawnFaulty(int64_t index) override;
  Trial DrawnHealthy(int64_t index) override;

  Trial Faulty(const CaseEntry& entry) override {
    const Question question = QuestionOf(entry, FaultyName(fault_));
    return FaultyAgainst(question, RightAnswer(question));
  }
  Trial Healthy(const CaseEntry& entry) override {
    const Question question = QuestionOf(entry, HealthyName(fault_.kind));
    const std::optional<MemorySink> answer = RightAnswer(question);
    if (!answer) return {Outcome::kUnsupported, "", NoAnswer(), 0};
    return TrialOf(entry.c, Judged(question, *answer));
  }
  Verdict Explain(const CaseEntry& entry) override {
    const Question question = QuestionOf(entry, FaultyName(fault_));
    const std::unique_ptr<Implementation> faulty = Make(question);
    const std::optional<MemorySink> answer = Answer(*faulty, question);
    if (!answer) return WithoutJudging(Outcome::kUnsupported, NoAnswer());
    JudgeOptions options;
    Verdict verdict = EvaluateCase(question, *answer, options);
    const Trial trial = FaultyAgainst(question, RightAnswer(question));
    if (verdict.outcome != Outcome::kFail && trial.outcome == Outcome::kFail) {
      verdict.outcome = trial.outcome;
      verdict.reasons.push_back(trial.reason);
    }
    return verdict;
  }
  Rejected OtherRules(const CaseEntry& entry) override {
    const Question question = QuestionOf(entry, FaultyName(fault_));
    std::optional<MemorySink> wrong;
    FaultyAgainst(question, RightAnswer(question), &wrong);
    const std::vector<bool> promised = PromisedElements(question);
    return RejectedByOtherRules(PlainAnswerOf(question, *wrong, promised),
                                PlainAnswerOf(question, *RightAnswer(question), promised));
  }
  int64_t SizeOf(const CaseEntry& entry) const override {
    int64_t elements = 0;
    for (const auto& [name, spec] : InputSpecs(entry.c)) elements += spec.shape.ElementCount();
    return elements;
  }
  ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails) const override {
    // A smaller case may contradict the drawn plan, as head_dim the blocks of an encoded query.
    const auto is_case_that_fails = [&](const CaseEntry& smaller) {
      try {
        return still_fails(smaller);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kIllegalCase) throw;
        return false;
      }
    };
    return ShrinkEntry(entry, is_case_that_fails, kShrinkRuns);
  }

 private:
  std::unique_ptr<Implementation> Make(const Question& question) const {
    return MakeImplementation(KindOf(question.c), FaultyName(fault_), question.plan,
                              question.profile);
  }
  std::optional<MemorySink> RightAnswer(const Question& question) const {
    const std::unique_ptr<Implementation> right = MakeImplementation(
        KindOf(question.c), HealthyName(fault_.kind), question.plan, question.profile);
    return Answer(*right, question);
  }
  // kept: where the wrong answer goes.
  Trial FaultyAgainst(const Question& question, const std::optional<MemorySink>& right,
                      std::optional<MemorySink>* kept = nullptr) const {
    const std::unique_ptr<Implementation> faulty = Make(question);
    std::optional<MemorySink> answer = Answer(*faulty, question);
    if (!answer || !right) return {Outcome::kUnsupported, "", NoAnswer(), 0};
    Trial trial;
    trial.hits = DifferentElements(*answer, *right);
    // An answer that is right has been judged.
    if (trial.hits > 0) {
      Trial judged = TrialOf(question.c, Judged(question, *answer));
      judged.hits = trial.hits;
      trial = std::move(judged);
    }
    if (trial.outcome != Outcome::kFail && faulty->SetThreads(kAgain[0].threads)) {
      AskAgain(question, faulty.get(), &*answer, &trial);
    }
    if (kept != nullptr) *kept = std::move(answer);
    return trial;
  }
  // The same question again, and with another number of threads: not one bit may differ.
  static void AskAgain(const Question& question, Implementation* kernel, MemorySink* answer,
                       Trial* trial) {
    for (const auto& again : kAgain) {
      kernel->SetThreads(again.threads);
      std::optional<MemorySink> other = Answer(*kernel, question);
      const int64_t different = DifferentElements(*other, *answer);
      if (different == 0) continue;
      *trial = {Outcome::kFail, again.check,
                fmt::format("the answer changes {}: {}", again.text, Plural(different, "element")),
                different};
      *answer = std::move(*other);
      return;
    }
  }

  Fault fault_;
  DrawnCases* cases_;
};

// Cases of operations, which are judged one by one: what their kinds have of their own.
struct CacheKind {
  static constexpr CaseKind kKind = CaseKind::kCache;
  using C = CacheCase;
  using Model = ModelFactory;
  using Runner = TraceRunner;
  static auto RulesOf(std::string_view id) { return FindCacheFault(id)->rules(); }
  static JudgedTrace Judge(const C& c, Runner* runner) { return JudgeTrace(c, runner); }
  static Verdict Evaluate(const C& c, Model* model) { return EvaluateCacheCase(c, model); }
};
struct PrefixKind {
  static constexpr CaseKind kKind = CaseKind::kPrefix;
  using C = PrefixCase;
  using Model = ModelStore;
  using Runner = HistoryRunner;
  static auto RulesOf(std::string_view id) { return FindPrefixFault(id)->rules(); }
  static JudgedHistory Judge(const C& c, Runner* runner) { return JudgeHistory(c, runner); }
  static Verdict Evaluate(const C& c, Model* model) { return EvaluatePrefixCase(c, model); }
};

template <typename K>
class OperationTrials : public FaultTrials {
 public:
  explicit OperationTrials(const Fault& fault)
      : fault_(fault),
        subject_(MakeSubject(FindAnswerer(K::kKind, HealthyName(fault.kind)), {})),
        faulty_(K::RulesOf(fault.text->id), std::string(fault.text->id)),
        faulty_runner_(&faulty_),
        healthy_runner_(&healthy_) {}

  CaseEntry Draw(int64_t index) override { return subject_->Draw(index); }
  Trial DrawnFaulty(int64_t index) override { return Faulty(Draw(index)); }
  Trial DrawnHealthy(int64_t index) override { return Healthy(Draw(index)); }
  Trial Faulty(const CaseEntry& entry) override {
    const int64_t before = faulty_.Hits();
    Trial trial = Run(entry, &faulty_runner_);
    trial.hits = faulty_.Hits() - before;
    return trial;
  }
  Trial Healthy(const CaseEntry& entry) override { return Run(entry, &healthy_runner_); }
  Verdict Explain(const CaseEntry& entry) override {
    return K::Evaluate(std::get<typename K::C>(entry.c), &faulty_);
  }
  Rejected OtherRules(const CaseEntry& entry) override {
    const auto& c = std::get<typename K::C>(entry.c);
    const SeenOfCase got = LastSeen(c, &faulty_runner_);
    return RejectedByOtherRules(got.answer, SeenAt(c, &healthy_runner_, got.number).answer);
  }
  int64_t SizeOf(const CaseEntry& entry) const override {
    return std::ssize(std::get<typename K::C>(entry.c).ops);
  }
  ShrunkEntry Shrink(const CaseEntry& entry, const StillFails& still_fails) const override {
    return subject_->Shrink(entry, still_fails, kTraceShrinkRuns);
  }

 private:
  static Trial Run(const CaseEntry& entry, typename K::Runner* runner) {
    const auto& c = std::get<typename K::C>(entry.c);
    const auto result = K::Judge(c, runner);
    return {result.outcome, SignatureOf(c, result), result.reason, 0};
  }

  Fault fault_;
  std::unique_ptr<Subject> subject_;
  typename K::Model faulty_;
  typename K::Model healthy_;
  typename K::Runner faulty_runner_;
  typename K::Runner healthy_runner_;
};

}  // namespace

struct DrawnCases::Known {
  Question question;
  std::optional<MemorySink> right;
  Trial healthy;
  CaseEntry entry;
};

DrawnCases::DrawnCases(FaultKind kind) : kind_(kind) {
  if (IsOfTensors(kind))
    subject_ = MakeSubject(FindAnswerer(*FindCaseKind(CaseKindOf(kind)), HealthyName(kind)), {});
}

DrawnCases::~DrawnCases() = default;

const DrawnCases::Known& DrawnCases::At(int64_t index) {
  Place* place = nullptr;
  {
    const std::lock_guard lock(mutex_);
    while (std::ssize(places_) <= index) places_.emplace_back();
    place = &places_[static_cast<size_t>(index)];
  }
  std::call_once(place->once, [&] {
    auto known = std::make_unique<Known>();
    known->entry = Suited(kind_, subject_->Draw(index));
    known->question = QuestionOf(known->entry, HealthyName(kind_));
    const std::unique_ptr<Implementation> right = MakeImplementation(
        KindOf(known->entry.c), HealthyName(kind_), known->question.plan, known->question.profile);
    known->right = Answer(*right, known->question);
    known->healthy = known->right ? TrialOf(known->entry.c, Judged(known->question, *known->right))
                                  : Trial{Outcome::kUnsupported, "", NoAnswer(), 0};
    place->known = std::move(known);
  });
  return *place->known;
}

CaseEntry TensorTrials::Draw(int64_t index) { return cases_->At(index).entry; }

Trial TensorTrials::DrawnFaulty(int64_t index) {
  const DrawnCases::Known& known = cases_->At(index);
  return FaultyAgainst(known.question, known.right);
}

Trial TensorTrials::DrawnHealthy(int64_t index) { return cases_->At(index).healthy; }

std::unique_ptr<FaultTrials> MakeFaultTrials(const Fault& fault, DrawnCases* cases) {
  if (fault.kind == FaultKind::kCache) return std::make_unique<OperationTrials<CacheKind>>(fault);
  if (fault.kind == FaultKind::kPrefix) return std::make_unique<OperationTrials<PrefixKind>>(fault);
  return std::make_unique<TensorTrials>(fault, cases);
}

CaseEntry SmallestCase(const Fault& fault) {
  CaseEntry entry;
  entry.c = ParseCase(fault.text->smallest);
  entry.plan = fault.text->plan;
  entry.profile = fault.text->profile;
  return entry;
}

}  // namespace kvcheck
