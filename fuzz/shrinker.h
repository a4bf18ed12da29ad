// The loop that makes a failing case of operations small: candidates are offered, taken where they
// are legal, smaller and fail in the same way, and steps begin anew whenever one has succeeded.

#ifndef FUZZ_SHRINKER_H_
#define FUZZ_SHRINKER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {

template <typename C>
struct ShrunkOperations {
  C c;                   // still fails
  int64_t runs = 0;      // how often still_fails was asked
  bool complete = true;  // no step makes it smaller; false where the runs were used up
};

// Size: what is lowered, ordered; size_of gives that of a case.
template <typename C, typename Size>
class Shrinker {
 public:
  using Offer = std::function<bool(C)>;
  using Step = bool (*)(const C& c, const Offer& offer);
  struct Question {
    std::function<bool(const C&)> still_fails;
    std::function<bool(const C&)> has;  // empty: everything
    Size (*size_of)(const C&);
    void (*validate)(const C&);  // Errors: of a case that is not legal
    int64_t max_runs;
  };

  Shrinker(const C& c, Question question) : question_(std::move(question)) {
    result_.c = c;
    size_ = question_.size_of(c);
    seen_.insert(Print(c));
    offer_ = [this](C candidate) { return Take(std::move(candidate)); };
  }

  // Until no step succeeds any more. Cheap and large steps stand first.
  void Run(std::span<const Step> steps) {
    for (size_t step = 0; step < steps.size() && result_.complete;) {
      step = RunStep(steps[step]) ? 0 : step + 1;
    }
  }
  bool RunStep(Step step) {
    const C now = result_.c;
    return step(now, offer_);
  }
  const ShrunkOperations<C>& result() const { return result_; }

 private:
  bool Take(C candidate) {
    if (result_.runs >= question_.max_runs) {
      result_.complete = false;
      return false;
    }
    const Size smaller = question_.size_of(candidate);
    if (!(smaller < size_) || !IsLegal(candidate)) return false;
    if (question_.has && !question_.has(candidate)) return false;
    if (!seen_.insert(Print(candidate)).second) return false;
    ++result_.runs;
    if (!question_.still_fails(candidate)) return false;
    result_.c = std::move(candidate);
    size_ = smaller;
    return true;
  }
  bool IsLegal(const C& c) const {
    try {
      question_.validate(c);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Question question_;
  ShrunkOperations<C> result_;
  Size size_{};
  std::unordered_set<std::string> seen_;
  Offer offer_;
};

}  // namespace kvcheck

#endif  // FUZZ_SHRINKER_H_
