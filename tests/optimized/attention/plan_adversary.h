// Data against a plan: inputs for which the roundings of the optimized attention go one way, so
// that its error lies beyond the bound of any plan that states less than it does. Each field of the
// plan has to be shown from both sides: the answer passes under what PlanOf states, and fails under
// the same plan with the field stated tighter.

#ifndef TESTS_OPTIMIZED_ATTENTION_PLAN_ADVERSARY_H_
#define TESTS_OPTIMIZED_ATTENTION_PLAN_ADVERSARY_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "reference/spec/case.h"
#include "reference/spec/implementation.h"
#include "reference/spec/plan.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// 2^-24, the unit roundoff of f32.
inline constexpr double kHalfUlp = 0x1p-24;

class PlanAdversary {
 public:
  // text: an attention case; what its data are is changed afterwards.
  PlanAdversary(const std::string& text, bool portable);
  float* Floats(const std::string& name) { return inputs_.at(name).As<float>(); }
  void SetF16(const std::string& name, int64_t index, float value);
  void Zero(const std::string& name);
  std::byte* Bytes(const std::string& name) { return inputs_.at(name).bytes.data(); }

  // Asks the optimized attention; after that:
  void Ask();
  const Plan& stated() const { return stated_; }
  // Element 0 of an output.
  float Got(const std::string& name) const;
  // The largest |error| / bound over all outputs under a plan.
  double Ratio(const Plan& plan) const;

  // What the data leave out of play, stated as if it were exact: then a change of another field is
  // not hidden behind it. What follows is under the stated plan with this change.
  void Isolate(const std::function<void(Plan*)>& change) { isolate_ = change; }
  // Asks, and expects the answer to pass with more than `share` of its bound: under the stated
  // plan, and under the isolated one.
  void ExpectHolds(double share);
  // Expects the answer to fail with something stated tighter.
  void ExpectBreaks(std::string_view what, const std::function<void(Plan*)>& tighten) const;
  // Expects a field to be without effect on the bound.
  void ExpectNoEffect(std::string_view what, const std::function<void(Plan*)>& change) const;

 private:
  std::string Describe() const;
  Plan Isolated() const;

  AttentionCase c_;
  bool portable_;
  TensorMap inputs_;
  Plan stated_;
  MemorySink answer_;
  std::function<void(Plan*)> isolate_;
};

// Both arithmetics.
inline constexpr bool kArithmetics[] = {false, true};

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ATTENTION_PLAN_ADVERSARY_H_
