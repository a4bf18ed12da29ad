// The attention of optimized/attention as an implementation of attention cases: K and V in every
// format but f64, queries and outputs in f32, f16 and bf16, every mask. It has two plans, and
// states for each answer the one that it was computed by. Of the profile it follows masked_row as
// it is asked to; hidden keys have no score, and affine codes mean the real c s + z: it declines
// the rest.

#ifndef OPTIMIZED_ATTENTION_ATTENTION_IMPLEMENTATION_H_
#define OPTIMIZED_ATTENTION_ATTENTION_IMPLEMENTATION_H_

#include "optimized/attention/attention.h"
#include "reference/spec/implementation.h"

namespace kvcheck {

class OptimizedAttention : public Implementation {
 public:
  // profile: that of the question. portable: the same bits on every instruction set.
  OptimizedAttention(const Profile& profile, bool portable, int threads = 1);
  // Of a short case; each answer states its own.
  static Plan StatedPlan(bool portable);
  static Profile StatedProfile() { return {}; }
  static std::vector<AttentionSpace> Spaces();

  Capabilities GetCapabilities() const override;
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;
  const Plan* AnswerPlan() const override { return &plan_; }
  const Profile* AnswerProfile() const override { return &profile_; }

 private:
  Profile profile_;
  bool portable_;
  Plan plan_;
  optimized::Attention attention_;
};

}  // namespace kvcheck

#endif  // OPTIMIZED_ATTENTION_ATTENTION_IMPLEMENTATION_H_
