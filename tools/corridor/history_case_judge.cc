#include "tools/corridor/history_case_judge.h"

#include <utility>

#include "reference/prefix/model_store.h"
#include "reference/spec/error.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/judge_history.h"
#include "tools/corridor/registry.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

class HistoryJudge : public CaseJudge {
 public:
  HistoryJudge(const std::string& implementation, const RemoteLimits& limits, Cancel cancel)
      : cancel_(std::move(cancel)),
        implementation_(MakePrefixImplementation(implementation, Waiting(limits))),
        runner_(implementation_.get()) {}

  JudgedCase Judge(const CaseEntry& entry, ItemMark& mark, CaseCounts* counts) override {
    const auto& c = std::get<PrefixCase>(entry.c);
    const JudgedHistory result = Judged(c, &mark);
    counts->operations += result.counts.operations;
    counts->states += result.counts.reads;
    counts->elements += result.counts.rows;
    AddTo(result.counts.unsupported_by_kind, &counts->declined);
    AddTo(result.probes, &counts->probes);
    if (result.outcome == Outcome::kPass) return {};
    JudgedCase judged = {result.outcome, SignatureOf(c, result), result.reason, result.operation};
    if (result.outcome == Outcome::kMistrusted && (result.by_case || IsMistrustedOfTheModel(c))) {
      judged.by_data = true;
      judged.signature += kByItsOwnData;
    }
    if (result.outcome == Outcome::kUnsupported) {
      judged.signature += ": " + WithoutNumbers(result.declined);
    }
    return judged;
  }

  Verdict Explain(const CaseEntry& entry, ItemMark& mark, std::string* signature) override {
    const auto& c = std::get<PrefixCase>(entry.c);
    const JudgedHistory result = Judged(c, &mark);
    if (result.outcome != Outcome::kPass) *signature = SignatureOf(c, result);
    return VerdictOf(c, result, *implementation_);
  }

 private:
  template <typename Counts>
  static void AddTo(const Counts& counts, std::vector<int64_t>* sums) {
    sums->resize(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) (*sums)[i] += counts[i];
  }

  // The same, with a sign of life of the case that is judged.
  RemoteLimits Waiting(RemoteLimits limits) {
    limits.on_wait = [this] {
      if (mark_ != nullptr) mark_->Alive();
      cancel_.ThrowIfRequested();
    };
    return limits;
  }

  static bool IsMistrustedOfTheModel(const PrefixCase& c) {
    ModelStore model;
    HistoryRunner runner(&model);
    return runner.Run(c).outcome == Outcome::kMistrusted;
  }

  JudgedHistory Judged(const PrefixCase& c, ItemMark* mark) {
    HistoryOptions options;
    options.on_operation = [mark](int64_t index) { mark->StartStep(index); };
    mark_ = mark;
    const std::unique_ptr<ItemMark*, void (*)(ItemMark**)> unmark(
        &mark_, [](ItemMark** place) { *place = nullptr; });
    try {
      return JudgeHistory(c, &runner_, options);
    } catch (const Error& error) {
      JudgedHistory result;
      result.outcome =
          error.code() == ErrorCode::kUnsupported ? Outcome::kUnsupported : Outcome::kIllegalCase;
      result.reason = error.message();
      return result;
    }
  }

  Cancel cancel_;
  ItemMark* mark_ = nullptr;  // of the case that is judged
  std::unique_ptr<PrefixImplementation> implementation_;
  HistoryRunner runner_;
};

}  // namespace

std::unique_ptr<CaseJudge> MakeHistoryJudge(const std::string& implementation,
                                            const RemoteLimits& limits, const Cancel& cancel) {
  return std::make_unique<HistoryJudge>(implementation, limits, cancel);
}

}  // namespace kvcheck
