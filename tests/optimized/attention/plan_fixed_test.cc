// The plan's words about integers in place of queries and weights (fixed_point.h), against data.
//
// Shown by argument, since no data can: the roundings of qk. The sum of two parts is at most 1/127
// larger than that of the three, so that two roundings are 2 + 1/127 units; the third of the plan
// is what is to spare.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernels.h"
#include "reference/numerics/fast_round.h"
#include "tests/optimized/attention/plan_adversary.h"

namespace kvcheck {
namespace {

// The largest f16 number of a group whose integers are off the most, as a share of it: the next
// smaller ones have half the step.
constexpr float kLargest = 2037.0f / 2048;

// Codes of 32 channels of K or V that are alike but for the first: zero, or as large as they come,
// where q8_0 has the negative ones.
struct Coded {
  PlanAdversary* adversary;
  std::string name;  // "k"
  bool in_blocks;

  void Set(int key, float scale, bool is_zero) const {
    std::byte* codes = nullptr;
    if (in_blocks) {
      std::byte* block = adversary->Bytes(name + "_blocks") + 34 * key;
      const uint16_t half = F16FromF32(scale);
      std::memcpy(block, &half, sizeof(half));
      codes = block + 2;
    } else {
      adversary->Floats(name + "_scales")[key] = scale;
      adversary->Floats(name + "_biases")[key] = 0;
      codes = adversary->Bytes(name + "_codes") + 32 * key;
    }
    std::fill_n(codes, 32, is_zero ? std::byte{0} : static_cast<std::byte>(in_blocks ? 128 : 255));
  }
  void ClearFirst(int key) const {
    (in_blocks ? adversary->Bytes(name + "_blocks") + 34 * key + 2
               : adversary->Bytes(name + "_codes") + 32 * key)[0] = std::byte{0};
  }
};
constexpr const char* kFormats[] = {"affine:8:g32:f32", "q8_0"};

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
  for (const char* format : kFormats) {
    PlanAdversary adversary(
        fmt::format("attention hq=1 hkv=1 l=1 t=1 d=32 dv=1 q=f32 k={} v=f32 out=f32 scale=1 "
                    "lse=natural data=gauss:1",
                    format),
        false);
    for (int i = 0; i < 32; ++i) adversary.Floats("q")[i] = i == 0 ? kLargest : lost_;
    const Coded k = {&adversary, "k", format == kFormats[1]};
    k.Set(0, 64, false);
    k.ClearFirst(0);
    adversary.ExpectHolds(0.95);
    EXPECT_EQ(adversary.Got("lse"), 0) << format;
    adversary.ExpectBreaks("fixed_q", [](Plan* plan) { *plan->fixed_q *= 0.94; });
    adversary.ExpectBreaks("no fixed_q", [](Plan* plan) { plan->fixed_q.reset(); });
  }
}

// The same of 64 keys, of which one outweighs the others.
TEST_F(PlanFixed, RoundsWeightsTimesScales) {
  constexpr float kBelow = -7;
  // An f16 number from below, so that no product with a weight is half a step.
  const float lost = std::floor(lost_ / std::exp(kBelow) * 0x1p23f) * 0x1p-23f;
  for (const char* format : kFormats) {
    PlanAdversary adversary(
        fmt::format("attention hq=1 hkv=1 l=1 t=64 d=1 dv=32 q=f32 k=f32 v={} out=f32 scale=1 "
                    "data=gauss:1",
                    format),
        false);
    adversary.Floats("q")[0] = 1;
    const Coded v = {&adversary, "v", format == kFormats[1]};
    for (int key = 0; key < 64; ++key) {
      adversary.Floats("k")[key] = key == 17 ? 0 : kBelow;
      v.Set(key, key == 17 ? kLargest : lost, key == 17);
    }
    adversary.ExpectHolds(0.95);
    EXPECT_EQ(adversary.Got("out"), 0) << format;
    adversary.ExpectBreaks("fixed_p", [](Plan* plan) { *plan->fixed_p *= 0.94; });
    adversary.ExpectBreaks("no fixed_p", [](Plan* plan) { plan->fixed_p.reset(); });
    adversary.ExpectBreaks("block", [](Plan* plan) { plan->block = 32; });
  }
}

}  // namespace
}  // namespace kvcheck
