// The branch-free paths (reference/numerics/fast_round.h) against the definitions in convert.h.

#include "reference/numerics/fast_round.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/numerics/convert.h"
#include "tests/reference/numerics/slow_rounding.h"

namespace kvcheck {
namespace {

struct FastPath {
  DType dtype;
  Rounding rounding;
  double (*round)(double);
};

constexpr FastPath kPaths[] = {
    {DType::kFloat32, Rounding::kNearestEven, RoundToF32},
    {DType::kBFloat16, Rounding::kNearestEven, RoundToBF16},
    {DType::kFloat16, Rounding::kNearestEven, RoundToF16},
    {DType::kFloat32, Rounding::kTowardZero, RoundTowardZeroToF32},
    {DType::kBFloat16, Rounding::kTowardZero, RoundTowardZeroToBF16},
    {DType::kFloat16, Rounding::kTowardZero, RoundTowardZeroToF16},
};

void ExpectEqualsDefinition(const FastPath& path, double x) {
  const double expected = RoundTo(path.dtype, x, {.rounding = path.rounding});
  const double got = path.round(x);
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(got));
    ASSERT_EQ(std::signbit(got), std::signbit(x));
    return;
  }
  ASSERT_TRUE(SameBits(got, expected)) << Name(path.dtype) << " " << Name(path.rounding) << " "
                                       << std::hexfloat << x << " gives " << got;
}

TEST(FastRound, EqualsTheDefinitionOnRandomBitPatterns) {
  uint64_t state = 17;
  for (const FastPath& path : kPaths) {
    for (int i = 0; i < 300000; ++i) {
      const uint64_t bits = NextRandom(state);
      ExpectEqualsDefinition(path, std::bit_cast<double>(bits));
      const uint64_t field = 1023 - 160 + NextRandom(state) % 320;
      ExpectEqualsDefinition(path,
                             std::bit_cast<double>((bits & 0x800fffffffffffffu) | field << 52));
    }
  }
}

TEST(FastRound, EqualsTheDefinitionAtEveryCodeAndMidpointAndBesideThem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const FastPath& path : kPaths) {
    // Boundaries of f32 are sampled: every 16th mantissa step is one of bf16's.
    const DType grid = path.dtype == DType::kFloat32 ? DType::kBFloat16 : path.dtype;
    const double step = path.dtype == DType::kFloat32 ? 0x1p-17 : 0.5;
    const std::vector<double> values = SlowMagnitudes(grid);
    for (size_t code = 0; code + 1 < values.size(); ++code) {
      const double middle = values[code] + (values[code + 1] - values[code]) * step;
      for (const double at : {values[code], middle}) {
        for (const double x : {at, std::nextafter(at, 0.0), std::nextafter(at, kInfinity)}) {
          ExpectEqualsDefinition(path, x);
          ExpectEqualsDefinition(path, -x);
        }
      }
    }
  }
}

TEST(FastRound, EqualsTheDefinitionAtTheEndsOfTheRange) {
  constexpr double kMost = std::numeric_limits<double>::max();
  for (const FastPath& path : kPaths) {
    const FloatType& type = FloatTypeOf(path.dtype);
    const double half_step = std::ldexp(type.largest_finite, -type.mantissa_bits - 2);
    for (const double at :
         {0.0, type.smallest_subnormal, type.smallest_subnormal / 2, type.smallest_normal,
          type.largest_finite, type.largest_finite + half_step, 0x1p996, 0x1p1000, kMost, 0x1p-1074,
          0x1p-1022}) {
      for (const double x : {at, std::nextafter(at, 0.0), std::nextafter(at, 2 * kMost), 1.5 * at,
                             std::numeric_limits<double>::quiet_NaN()}) {
        ExpectEqualsDefinition(path, x);
        ExpectEqualsDefinition(path, -x);
      }
    }
  }
}

TEST(FastFloat16, DecodesEveryCode) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const uint16_t bits = static_cast<uint16_t>(code);
    ASSERT_TRUE(SameBits(F32FromF16(bits), Decode(DType::kFloat16, code))) << std::hex << code;
    const float bf16 = F32FromBF16(bits);
    ASSERT_TRUE(SameBits(bf16, Decode(DType::kBFloat16, code))) << std::hex << code;
  }
}

// Every 997th pattern of f32; all of them in convert_all_f32_test.
TEST(FastFloat16, EncodesSampledFloat32LikeTheDefinition) {
  for (uint64_t pattern = 0; pattern < uint64_t{1} << 32; pattern += 997) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(pattern));
    ASSERT_EQ(F16FromF32(x), Encode(DType::kFloat16, x)) << std::hex << pattern;
    ASSERT_EQ(BF16FromF32(x), Encode(DType::kBFloat16, x)) << std::hex << pattern;
  }
}

}  // namespace
}  // namespace kvcheck
