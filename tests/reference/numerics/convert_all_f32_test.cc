// All 2^32 patterns of f32, rounded to f16 and bf16 by the fast paths and by the second definition
// of slow_rounding.h. The patterns of one sign are ordered like their values, so the expected code
// is found by walking along the midpoints.

#include <gtest/gtest.h>

#include <cmath>

#include "reference/numerics/fast_round.h"
#include "tests/reference/numerics/slow_rounding.h"

namespace kvcheck {
namespace {

template <typename Encoder, typename Nearest, typename Truncate>
void CheckAllPatterns(DType dtype, Encoder encode, Nearest nearest, Truncate truncate) {
  const std::vector<double> values = SlowMagnitudes(dtype);
  const size_t finite = values.size() - 1;
  const uint16_t quiet = static_cast<uint16_t>(1u << (SlowFormatOf(dtype).mantissa_bits - 1));
  size_t below = 0;  // values[below] <= x < values[below + 1]
  uint64_t wrong = 0;
  for (uint32_t pattern = 0; pattern < 0x80000000u; ++pattern) {
    const float x = std::bit_cast<float>(pattern);
    const float minus = std::bit_cast<float>(pattern | 0x80000000u);
    const uint16_t got = encode(x);
    if (encode(minus) != (got | 0x8000u)) ++wrong;
    if (std::isnan(x)) {
      if (got <= finite || (got & quiet) == 0) ++wrong;
      continue;
    }
    const double a = x;
    while (below + 1 < values.size() && values[below + 1] <= a) ++below;
    size_t expected = finite;
    size_t truncated = std::isinf(x) ? finite : finite - 1;
    if (below < finite) {
      const double middle = values[below] + (values[below + 1] - values[below]) / 2;
      const bool up = a > middle || (a == middle && below % 2 != 0);
      expected = below + (up ? 1 : 0);
      truncated = below;
    }
    const double infinity = std::numeric_limits<double>::infinity();
    if (got != expected) ++wrong;
    if (nearest(a) != (expected == finite ? infinity : values[expected])) ++wrong;
    if (truncate(-a) != (truncated == finite ? -infinity : -values[truncated])) ++wrong;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(AllFloat32, RoundToFloat16) {
  CheckAllPatterns(DType::kFloat16, F16FromF32, RoundToF16, RoundTowardZeroToF16);
}

TEST(AllFloat32, RoundToBFloat16) {
  CheckAllPatterns(DType::kBFloat16, BF16FromF32, RoundToBF16, RoundTowardZeroToBF16);
}

}  // namespace
}  // namespace kvcheck
