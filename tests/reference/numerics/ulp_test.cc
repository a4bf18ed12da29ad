// Distances, neighbours and spacings against the values that the codes decode to.

#include "reference/numerics/ulp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/numerics/convert.h"
#include "tests/reference/numerics/slow_rounding.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// All codes but NaN, by value; -0 before +0.
std::vector<uint64_t> CodesInOrder(DType dtype) {
  std::vector<uint64_t> codes;
  for (uint64_t code = 0; code < uint64_t{1} << CodeBits(dtype); ++code) {
    if (!std::isnan(Decode(dtype, code))) codes.push_back(code);
  }
  std::sort(codes.begin(), codes.end(), [&](uint64_t a, uint64_t b) {
    const double x = Decode(dtype, a);
    const double y = Decode(dtype, b);
    return x != y ? x < y : std::signbit(x) > std::signbit(y);
  });
  return codes;
}

TEST(UlpDistance, CountsTheValuesBetween) {
  for (const DType dtype : SmallFloats()) {
    const std::vector<uint64_t> codes = CodesInOrder(dtype);
    int64_t position = 0;
    for (size_t i = 1; i < codes.size(); ++i) {
      const bool same = Decode(dtype, codes[i - 1]) == Decode(dtype, codes[i]);
      position += same ? 0 : 1;
      ASSERT_EQ(UlpDistance(dtype, codes[0], codes[i]), position) << Name(dtype) << " " << i;
      ASSERT_EQ(UlpDistance(dtype, codes[i], codes[0]), -position);
      ASSERT_EQ(UlpDistance(dtype, codes[i - 1], codes[i]), same ? 0 : 1);
    }
  }
}

TEST(UlpDistance, HasNoneFromNaN) {
  EXPECT_FALSE(UlpDistance(DType::kFloat16, 0x7e00, 0));
  EXPECT_FALSE(UlpDistance(DType::kFloat8E4M3FN, 0, 0xff));
  EXPECT_FALSE(UlpDistance(DType::kFloat8E8M0FNU, 0xff, 0xff));
}

TEST(UlpDistance, IsCutWhereFloat64LeavesInt64) {
  const DType f64 = DType::kFloat64;
  const auto code = [](double x) { return std::bit_cast<uint64_t>(x); };
  EXPECT_EQ(UlpDistance(f64, code(-kInfinity), code(kInfinity)),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(UlpDistance(f64, code(kInfinity), code(-kInfinity)),
            -std::numeric_limits<int64_t>::max());
  EXPECT_EQ(UlpDistance(f64, code(0.0), code(kInfinity)), int64_t{0x7ff} << 52);
  EXPECT_EQ(UlpDistance(f64, code(-1.0), code(std::nextafter(-1.0, 0.0))), 1);
  EXPECT_EQ(UlpDistance(f64, code(-0x1p-1074), code(0x1p-1074)), 2);
  EXPECT_EQ(UlpDistance(DType::kFloat32, 0xff800000u, 0x7f800000u), 2 * int64_t{0x7f800000});
}

TEST(Neighbours, AreTheAdjacentValues) {
  for (const DType dtype : SmallFloats()) {
    const std::vector<uint64_t> codes = CodesInOrder(dtype);
    for (size_t i = 0; i < codes.size(); ++i) {
      const double value = Decode(dtype, codes[i]);
      const double up = Decode(dtype, NextUp(dtype, codes[i]));
      const double down = Decode(dtype, NextDown(dtype, codes[i]));
      if (i + 1 == codes.size()) {
        ASSERT_EQ(NextUp(dtype, codes[i]), codes[i]);
      } else if (value != 0) {
        ASSERT_EQ(up, Decode(dtype, codes[i + 1])) << Name(dtype) << " " << value;
      } else {
        ASSERT_EQ(up, FloatTypeOf(dtype).smallest_subnormal);
      }
      if (i == 0) {
        ASSERT_EQ(NextDown(dtype, codes[i]), codes[i]);
      } else if (value != 0) {
        ASSERT_EQ(down, Decode(dtype, codes[i - 1])) << Name(dtype) << " " << value;
      } else {
        ASSERT_EQ(down, -FloatTypeOf(dtype).smallest_subnormal);
      }
    }
  }
  EXPECT_EQ(NextUp(DType::kFloat16, 0x7e00), 0x7e00u);
  EXPECT_EQ(NextDown(DType::kFloat16, 0x0001), 0x0000u);
  EXPECT_EQ(NextUp(DType::kFloat16, 0x8001), 0x8000u);
}

TEST(Neighbours, OfFloat32AndFloat64AreNextafter) {
  uint64_t state = 7;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = NextRandom(state);
    const double wide = std::bit_cast<double>(bits);
    const float narrow = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(wide) && wide != 0) {
      ASSERT_TRUE(SameBits(Decode(DType::kFloat64, NextUp(DType::kFloat64, bits)),
                           std::nextafter(wide, kInfinity)));
      ASSERT_TRUE(SameBits(Decode(DType::kFloat64, NextDown(DType::kFloat64, bits)),
                           std::nextafter(wide, -kInfinity)));
    }
    if (!std::isnan(narrow) && narrow != 0) {
      const uint64_t code = bits & 0xffffffffu;
      ASSERT_TRUE(SameBits(Decode(DType::kFloat32, NextUp(DType::kFloat32, code)),
                           std::nextafter(narrow, std::numeric_limits<float>::infinity())));
    }
  }
}

TEST(Spacing, IsTheDistanceToTheNextValueOutward) {
  for (const DType dtype : SmallFloats()) {
    const std::vector<double> values = SlowMagnitudes(dtype);
    for (size_t code = 0; code + 1 < values.size(); ++code) {
      const double spacing = values[code + 1] - values[code];
      for (const double y :
           {values[code], values[code] + spacing / 2, std::nextafter(values[code + 1], 0.0)}) {
        ASSERT_EQ(SpacingAt(dtype, y), spacing) << Name(dtype) << " " << y;
        ASSERT_EQ(SpacingAt(dtype, -y), spacing) << Name(dtype) << " " << y;
      }
    }
    const double top = FloatTypeOf(dtype).largest_finite;
    EXPECT_EQ(SpacingAt(dtype, std::numeric_limits<double>::max()), SpacingAt(dtype, top));
    EXPECT_TRUE(std::isnan(SpacingAt(dtype, kInfinity)));
    EXPECT_TRUE(std::isnan(SpacingAt(dtype, std::nan(""))));
  }
}

TEST(Spacing, OfFloat32AndFloat64HasItsKnownValues) {
  EXPECT_EQ(SpacingAt(DType::kFloat32, 1.0), 0x1p-23);
  EXPECT_EQ(SpacingAt(DType::kFloat32, std::nextafter(1.0, 0.0)), 0x1p-24);
  EXPECT_EQ(SpacingAt(DType::kFloat32, 0.0), 0x1p-149);
  EXPECT_EQ(SpacingAt(DType::kFloat64, 1.0), 0x1p-52);
  EXPECT_EQ(SpacingAt(DType::kFloat64, 0x1p-1022), 0x1p-1074);
  EXPECT_EQ(SpacingAt(DType::kFloat64, 0x1p-1000), 0x1p-1052);
  EXPECT_EQ(SpacingAt(DType::kFloat64, 0x1p-1074), 0x1p-1074);
  EXPECT_EQ(SpacingAt(DType::kFloat64, std::numeric_limits<double>::max()), 0x1p971);
}

}  // namespace
}  // namespace kvcheck
