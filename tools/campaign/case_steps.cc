#include "tools/campaign/case_steps.h"

#include <iterator>
#include <variant>

namespace kvcheck {
namespace {

// -1: the kind has no steps.
int64_t StepsOf(const CacheCase& c) { return std::ssize(c.ops); }
int64_t StepsOf(const PrefixCase& c) { return std::ssize(c.ops); }
int64_t StepsOf(const CodecCase&) { return -1; }
int64_t StepsOf(const AttentionCase&) { return -1; }
int64_t StepsOf(const TensorCase&) { return -1; }

int64_t StepCount(const Case& c) {
  return std::visit([](const auto& kind) { return StepsOf(kind); }, c);
}

// Kinds with operations are cut behind one, and judged at each.
template <typename C>
void CutBehind(C* c, int64_t step) {
  if constexpr (requires { c->ops; }) c->ops.resize(static_cast<size_t>(step) + 1);
}

template <typename C>
void ObserveEach(C* c) {
  if constexpr (requires { c->setup.observe; }) c->setup.observe = Observe::kEach;
}

}  // namespace

bool HasSteps(const Case& c) { return StepCount(c) >= 0; }

Case UpToStep(Case c, int64_t step) {
  if (step < 0 || step >= StepCount(c)) return c;
  std::visit([step](auto& kind) { CutBehind(&kind, step); }, c);
  return c;
}

bool EndsAtStep(const Case& c, int64_t step) { return step >= 0 && step + 1 == StepCount(c); }

Case JudgedAtEachStep(Case c) {
  std::visit([](auto& kind) { ObserveEach(&kind); }, c);
  return c;
}

}  // namespace kvcheck
