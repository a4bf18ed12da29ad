// The exponential of the kernels: its stated error on a sample of all f32 (exp_sweep_test.cc has
// all of them), its edges, and the same bits on every instruction set.

#include "optimized/attention/exp.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/optimized/attention/exp_error.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float ExpOne(bool fused, float x) {
  float y = -1;
  optimized::ExpOf(fused, &x, 1, &y);
  return y;
}

TEST(AttentionExp, KeepsItsStatedErrorOnASample) {
  const auto first = std::bit_cast<uint32_t>(-0.0f);
  const auto last = std::bit_cast<uint32_t>(optimized::kExpUnderflow);
  for (const bool fused : {false, true}) {
    const WorstExp worst = WorstOf(fused, first, last, 1009);
    const double stated = optimized::ExpError(optimized::KernelsFor(fused).fused);
    EXPECT_TRUE(worst.error <= stated) << std::hexfloat << worst.x;
    EXPECT_GT(worst.error, stated / 2) << "the stated error is slack";
  }
}

TEST(AttentionExp, IsOneAtZeroAndZeroBelowTheNormalNumbers) {
  for (const bool fused : {false, true}) {
    EXPECT_EQ(ExpOne(fused, 0.0f), 1.0f);
    EXPECT_EQ(ExpOne(fused, -0.0f), 1.0f);
    EXPECT_EQ(ExpOne(fused, -std::numeric_limits<float>::denorm_min()), 1.0f);
    EXPECT_GE(ExpOne(fused, optimized::kExpUnderflow), 0x1p-126f);
    const float below = std::nextafterf(optimized::kExpUnderflow, -kInfinity);
    EXPECT_LT(ExpDouble(static_cast<double>(below)), 0x1p-126);
    EXPECT_EQ(ExpOne(fused, below), 0.0f);
    EXPECT_EQ(ExpOne(fused, -1e30f), 0.0f);
    EXPECT_EQ(ExpOne(fused, -kInfinity), 0.0f);
    EXPECT_TRUE(std::isnan(ExpOne(fused, std::numeric_limits<float>::quiet_NaN())));
  }
}

TEST(AttentionExp, GivesTheSameBitsOnEveryInstructionSet) {
  std::mt19937 random(1);
  std::vector<float> x(1021);
  for (float& value : x) value = -100.0f * std::ldexp(static_cast<float>(random()), -32);
  std::vector<float> best(x.size());
  optimized::ExpOf(false, x.data(), std::ssize(x), best.data());
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  EXPECT_GT(targets.size(), 1u);
  for (const int64_t target : targets) {
    const OnTarget forced(target);
    std::vector<float> y(x.size());
    optimized::ExpOf(false, x.data(), std::ssize(x), y.data());
    EXPECT_EQ(y, best) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace kvcheck
