// The exponential of the kernels over every f32 up to 0 (slow).

#include <gtest/gtest.h>

#include <cstdio>

#include "optimized/attention/exp.h"
#include "tests/optimized/attention/exp_error.h"

namespace kvcheck {
namespace {

constexpr uint32_t kZero = 0x80000000u;
constexpr uint32_t kTiny = 0xb0800000u;  // -2^-30: from there to 0 exp rounds to 1
constexpr uint32_t kMinusInfinity = 0xff800000u;

// The largest difference from `value` over the patterns [first, last].
float FarthestFrom(float value, bool fused, uint32_t first, uint32_t last) {
  float farthest = 0;
  std::vector<float> x(4096), y(4096);
  for (uint64_t bits = first; bits <= last;) {
    size_t count = 0;
    for (; bits <= last && count < x.size(); ++bits) {
      x[count++] = std::bit_cast<float>(static_cast<uint32_t>(bits));
    }
    optimized::ExpOf(fused, x.data(), static_cast<int64_t>(count), y.data());
    for (size_t i = 0; i < count; ++i) {
      farthest = std::max(farthest, std::fabs(y[i] - value));
    }
  }
  return farthest;
}

TEST(AttentionExpSweep, KeepsItsStatedErrorAtEveryFloat) {
  const auto edge = std::bit_cast<uint32_t>(optimized::kExpUnderflow);
  for (const bool fused : {false, true}) {
    const WorstExp worst = WorstOf(fused, kTiny, edge, 1);
    std::printf("  %s: %a relative at %a\n", fused ? "fused" : "portable", worst.error,
                static_cast<double>(worst.x));
    const double stated = optimized::ExpError(optimized::KernelsFor(fused).fused);
    EXPECT_TRUE(worst.error <= stated) << std::hexfloat << worst.x;
    EXPECT_GT(worst.error, stated * (1 - 0x1p-10)) << "the stated error is slack";
    EXPECT_EQ(FarthestFrom(1, fused, kZero, kTiny), 0.0f);
    EXPECT_EQ(FarthestFrom(0, fused, edge + 1, kMinusInfinity), 0.0f);
  }
}

}  // namespace
}  // namespace kvcheck
