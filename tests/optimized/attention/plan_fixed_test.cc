// The plan's words about integers in place of queries and weights (fixed_point.h), against data.
//
// Shown by argument, since no data can: the roundings of qk. The sum of two parts is at most 1/127
// larger than that of the three, so that two roundings are 2 + 1/127 units; the third of the plan
// is what is to spare.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernels.h"
#include "tests/optimized/attention/plan_adversary.h"

namespace kvcheck {
namespace {

// The largest number of a group whose integers are off the most, as a share of it: the next smaller
// ones have half the step.
constexpr float kLargest = 0.9943f;

class PlanFixed : public testing::Test {
 protected:
  void SetUp() override {
    if (!optimized::KernelsFor(true).IsFixedPoint()) GTEST_SKIP() << "no integers on this machine";
  }
  // Numbers that are rounded to zero, nearly half a step.
  const float lost_ = optimized::FixedStepOf(kLargest).step * (0.5f - 0x1p-12f);
};

// One channel of the largest number, which meets a code of zero, and 31 that are lost: the score is
// all error.
TEST_F(PlanFixed, RoundsTheQuery) {
  PlanAdversary adversary(
      "attention hq=1 hkv=1 l=1 t=1 d=32 dv=1 q=f32 k=affine:8:g32:f32 v=f32 out=f32 scale=1 "
      "lse=natural data=gauss:1",
      false);
  for (int i = 0; i < 32; ++i) {
    adversary.Floats("q")[i] = i == 0 ? kLargest : lost_;
    adversary.Bytes("k_codes")[i] = i == 0 ? std::byte{0} : std::byte{255};
  }
  adversary.Floats("k_scales")[0] = 64;
  adversary.Floats("k_biases")[0] = 0;
  adversary.ExpectHolds(0.95);
  EXPECT_EQ(adversary.Got("lse"), 0);
  adversary.ExpectBreaks("fixed_q", [](Plan* plan) { *plan->fixed_q *= 0.94; });
  adversary.ExpectBreaks("no fixed_q", [](Plan* plan) { plan->fixed_q.reset(); });
}

// The same of 64 keys, of which one outweighs the others.
TEST_F(PlanFixed, RoundsWeightsTimesScales) {
  PlanAdversary adversary(
      "attention hq=1 hkv=1 l=1 t=64 d=1 dv=32 q=f32 k=f32 v=affine:8:g32:f32 out=f32 scale=1 "
      "data=gauss:1",
      false);
  constexpr float kBelow = -7;
  adversary.Floats("q")[0] = 1;
  adversary.Zero("v_biases");
  for (int key = 0; key < 64; ++key) {
    adversary.Floats("k")[key] = key == 17 ? 0 : kBelow;
    adversary.Floats("v_scales")[key] = key == 17 ? kLargest : lost_ / std::exp(kBelow);
    for (int i = 0; i < 32; ++i) {
      adversary.Bytes("v_codes")[key * 32 + i] = key == 17 ? std::byte{0} : std::byte{255};
    }
  }
  adversary.ExpectHolds(0.95);
  EXPECT_EQ(adversary.Got("out"), 0);
  adversary.ExpectBreaks("fixed_p", [](Plan* plan) { *plan->fixed_p *= 0.94; });
  adversary.ExpectBreaks("no fixed_p", [](Plan* plan) { plan->fixed_p.reset(); });
  adversary.ExpectBreaks("block", [](Plan* plan) { plan->block = 32; });
}

}  // namespace
}  // namespace kvcheck
