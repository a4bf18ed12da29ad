// The conversions by definition (reference/numerics/convert.h): every code of the types of 16 bits
// and less both ways, every rounding boundary with its neighbours, the witnesses of the formats,
// and each rule of rounding and overflow.

#include "reference/numerics/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "reference/spec/error.h"
#include "tests/reference/numerics/slow_rounding.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr Rounding kRoundings[] = {Rounding::kNearestEven, Rounding::kTowardZero,
                                   Rounding::kNearestAway};

uint64_t SignBit(DType dtype) {
  return SlowFormatOf(dtype).is_signed ? uint64_t{1} << (CodeBits(dtype) - 1) : 0;
}

TEST(Decode, IsTheFormulaOfTheFormatForEveryFiniteCode) {
  for (const DType dtype : SmallFloats()) {
    const std::vector<double> values = SlowMagnitudes(dtype);
    for (uint64_t code = 0; code + 1 < values.size(); ++code) {
      ASSERT_TRUE(SameBits(Decode(dtype, code), values[code])) << Name(dtype) << " " << code;
      if (const uint64_t sign = SignBit(dtype); sign != 0) {
        ASSERT_TRUE(SameBits(Decode(dtype, code | sign), -values[code])) << Name(dtype) << code;
      }
    }
    EXPECT_EQ(values[values.size() - 2], FloatTypeOf(dtype).largest_finite);
  }
}

TEST(Decode, GivesInfinityAndNaNForTheRemainingCodes) {
  for (const DType dtype : SmallFloats()) {
    const uint64_t finite = SlowFormatOf(dtype).finite_codes;
    const uint64_t end = SignBit(dtype) != 0 ? SignBit(dtype) : uint64_t{1} << CodeBits(dtype);
    for (uint64_t code = finite; code < end; ++code) {
      const double value = Decode(dtype, code);
      if (FloatTypeOf(dtype).has_infinity && code == finite) {
        EXPECT_EQ(value, kInfinity);
        EXPECT_EQ(Decode(dtype, code | SignBit(dtype)), -kInfinity);
      } else {
        ASSERT_TRUE(std::isnan(value)) << Name(dtype) << " " << code;
        ASSERT_EQ(std::signbit(Decode(dtype, code | SignBit(dtype))), SignBit(dtype) != 0);
      }
    }
  }
}

TEST(Decode, KeepsEveryBitOfFloat32AndFloat64) {
  uint64_t state = 11;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = NextRandom(state);
    const double wide = std::bit_cast<double>(bits);
    if (!std::isnan(wide)) {
      ASSERT_TRUE(SameBits(Decode(DType::kFloat64, bits), wide));
    }
    const float narrow = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_TRUE(SameBits(Decode(DType::kFloat32, bits & 0xffffffffu), narrow)) << std::hex << bits;
  }
}

TEST(Decode, ReadsIntegers) {
  EXPECT_EQ(Decode(DType::kInt8, 0x80), -128.0);
  EXPECT_EQ(Decode(DType::kInt32, 0xffffffffu), -1.0);
  EXPECT_EQ(Decode(DType::kUInt32, 0xffffffffu), 4294967295.0);
  EXPECT_EQ(Decode(DType::kUInt16, 0xffff), 65535.0);
  EXPECT_EQ(Decode(DType::kUInt8, 0x80), 128.0);
  EXPECT_EQ(Decode(DType::kBool, 1), 1.0);
  EXPECT_EQ(Decode(DType::kInt16, 0x8000), -32768.0);
  EXPECT_EQ(Decode(DType::kUInt64, ~uint64_t{0}), 0x1p64);  // to nearest even
  EXPECT_EQ(Decode(DType::kInt64, ~uint64_t{0}), -1.0);
  EXPECT_EQ(Decode(DType::kInt64, (uint64_t{1} << 53) + 1), 0x1p53);  // to nearest even
}

TEST(Encode, InvertsDecodeForEveryCodeThatIsNotNaN) {
  for (const DType dtype : SmallFloats()) {
    for (uint64_t code = 0; code < uint64_t{1} << CodeBits(dtype); ++code) {
      const double value = Decode(dtype, code);
      if (std::isnan(value)) continue;
      for (const Rounding rounding : kRoundings) {
        ASSERT_EQ(Encode(dtype, value, {.rounding = rounding}), code) << Name(dtype);
      }
    }
  }
}

TEST(Encode, QuietsNaNAndKeepsWhatFitsOfIt) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const uint64_t quiet = uint64_t{1} << (FloatTypeOf(dtype).mantissa_bits - 1);
    for (uint64_t code = 0; code < 65536; ++code) {
      if (!std::isnan(Decode(dtype, code))) continue;
      ASSERT_EQ(Encode(dtype, Decode(dtype, code)), code | quiet) << Name(dtype);
    }
  }
  EXPECT_EQ(Encode(DType::kFloat32, std::bit_cast<double>(uint64_t{0xfff0000000000001u})),
            0xffc00000u);
  EXPECT_EQ(Encode(DType::kFloat64, std::bit_cast<double>(uint64_t{0xfff0000000000001u})),
            0xfff8000000000001u);
  EXPECT_EQ(Encode(DType::kFloat8E4M3FN, kNaN), 0x7fu);
  EXPECT_EQ(Encode(DType::kFloat8E4M3FN, -kNaN), 0xffu);
  EXPECT_EQ(Encode(DType::kFloat8E5M2, kNaN), 0x7eu);
  EXPECT_EQ(Encode(DType::kFloat8E5M2, -kNaN), 0xfeu);
  EXPECT_EQ(Encode(DType::kFloat8E8M0FNU, -kNaN), 0xffu);
  EXPECT_EQ(Encode(DType::kFloat4E2M1FN, -kNaN), 0u);
}

// The expected code under Overflow::kSaturate, by the second definition.
uint64_t SlowSaturated(DType dtype, const std::vector<double>& values, double x,
                       Rounding rounding) {
  const SlowFormat format = SlowFormatOf(dtype);
  if (!format.is_signed && std::signbit(x)) return 0;
  const uint64_t code = SlowMagnitudeCode(values, std::fabs(x), rounding);
  return std::min(code, format.finite_codes - 1) | (std::signbit(x) ? SignBit(dtype) : 0);
}

void ExpectAllRules(DType dtype, const std::vector<double>& values, double x) {
  const FloatType& type = FloatTypeOf(dtype);
  for (const Rounding rounding : kRoundings) {
    const uint64_t saturated =
        Encode(dtype, x, {.rounding = rounding, .overflow = Overflow::kSaturate});
    ASSERT_EQ(saturated, SlowSaturated(dtype, values, x, rounding))
        << Name(dtype) << " " << Name(rounding) << " " << x;
    const bool overflows =
        SlowMagnitudeCode(values, std::fabs(x), rounding) == SlowFormatOf(dtype).finite_codes;
    const bool has_no_place = !type.is_signed && (std::signbit(x) || x == 0);
    const double by_default = RoundTo(dtype, x, {.rounding = rounding});
    if ((!overflows && !has_no_place) || !type.has_nan) {
      ASSERT_EQ(Encode(dtype, x, {.rounding = rounding}), saturated);
    } else if (type.has_infinity) {
      ASSERT_EQ(by_default, std::signbit(x) ? -kInfinity : kInfinity) << Name(dtype) << " " << x;
    } else {
      ASSERT_TRUE(std::isnan(by_default)) << Name(dtype) << " " << x;
    }
  }
}

TEST(Encode, RoundsRightAtEveryCodeAndMidpointAndBesideThem) {
  for (const DType dtype : SmallFloats()) {
    const std::vector<double> values = SlowMagnitudes(dtype);
    for (size_t code = 0; code + 1 < values.size(); ++code) {
      const double middle = values[code] + (values[code + 1] - values[code]) / 2;
      for (const double at : {values[code], middle, values[code + 1]}) {
        // Exact, at most one bit more than the type, but for what follows the last bf16.
        const float at32 = static_cast<float>(at);
        ASSERT_TRUE(at32 == at || at == 0x1p128) << Name(dtype);
        for (const double x :
             {at, std::nextafter(at, 0.0), std::nextafter(at, kInfinity),
              static_cast<double>(std::nextafter(at32, 0.0f)),
              static_cast<double>(std::nextafter(at32, std::numeric_limits<float>::max()))}) {
          ExpectAllRules(dtype, values, x);
          ExpectAllRules(dtype, values, -x);
        }
      }
    }
    for (const double x : {0x1p-1074, 0x1p-1022, 1e-300, 1e300, 0x1.fffffffffffffp1023}) {
      ExpectAllRules(dtype, values, x);
      ExpectAllRules(dtype, values, -x);
    }
  }
}

TEST(Encode, ToFloat32IsTheConversionOfTheMachine) {
  uint64_t state = 5;
  for (int i = 0; i < 2000000; ++i) {
    uint64_t bits = NextRandom(state);
    // Half of the draws around the range of f32, of these some near midpoints.
    if (i % 2 == 0) bits = (bits & 0x800fffffffffffffu) | (868 + NextRandom(state) % 300) << 52;
    if (i % 8 == 0)
      bits = ((bits & ~uint64_t{0x1fffffff}) | 0x10000000u) + NextRandom(state) % 3 - 1;
    const double x = std::bit_cast<double>(bits);
    const uint32_t expected = std::bit_cast<uint32_t>(static_cast<float>(x));
    ASSERT_EQ(Encode(DType::kFloat32, x), expected) << std::hexfloat << x;
    if (!std::isnan(x)) {
      // Truncation: the nearest value, or its neighbour towards zero where that is beyond x.
      const float nearest = static_cast<float>(x);
      const float cut = std::fabs(static_cast<double>(nearest)) > std::fabs(x)
                            ? std::nextafter(nearest, 0.0f)
                            : nearest;
      ASSERT_TRUE(SameBits(RoundTo(DType::kFloat32, x, {.rounding = Rounding::kTowardZero}),
                           static_cast<double>(cut)))
          << std::hexfloat << x;
    }
  }
}

TEST(Encode, RoundsOnceNotByWayOfFloat32) {
  // Just past the midpoint: through f32 it would first become the midpoint, then go to even.
  EXPECT_EQ(Encode(DType::kFloat16, 1 + 0x1p-11 + 0x1p-40), 0x3c01u);
  EXPECT_EQ(Encode(DType::kFloat16, 1 + 0x1p-11), 0x3c00u);
  EXPECT_EQ(Encode(DType::kBFloat16, 1 + 0x1p-8 + 0x1p-40), 0x3f81u);
  EXPECT_EQ(Encode(DType::kFloat8E4M3FN, 1 + 0x1p-4 + 0x1p-40), 0x39u);
  EXPECT_EQ(Encode(DType::kFloat16, 65520.0 - 0x1p-20), 0x7bffu);
  EXPECT_EQ(Encode(DType::kFloat16, 0x1p-25 + 0x1p-60), 0x0001u);
  EXPECT_EQ(RoundToF16(1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(RoundToBF16(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
}

TEST(Encode, GivesTheWitnessesOfTheFormats) {
  EXPECT_EQ(Encode(DType::kFloat16, 65520.0), 0x7c00u);
  EXPECT_EQ(Encode(DType::kFloat16, 0x1p-25), 0x0000u);
  EXPECT_EQ(Encode(DType::kFloat16, 1e-7), 0x0002u);
  const std::pair<double, uint64_t> e4m3[] = {
      {463.9, 0x7e},     {464.0, 0x7e},   {464.1, 0x7f},           {480.0, 0x7f},
      {kInfinity, 0x7f}, {0x1p-10, 0x00}, {1.0001 * 0x1p-10, 0x01}};
  for (const auto& [x, code] : e4m3) EXPECT_EQ(Encode(DType::kFloat8E4M3FN, x), code) << x;
  const std::pair<double, uint64_t> e5m2[] = {
      {57344.0, 0x7b}, {61439.0, 0x7b}, {61440.0, 0x7c}, {kInfinity, 0x7c}, {480.0, 0x60}};
  for (const auto& [x, code] : e5m2) EXPECT_EQ(Encode(DType::kFloat8E5M2, x), code) << x;
  EXPECT_EQ(Encode(DType::kFloat4E2M1FN, 5.0), 6u);  // tie: 4
  EXPECT_EQ(Encode(DType::kFloat4E2M1FN, 2.5), 4u);  // tie: 2
  EXPECT_EQ(Encode(DType::kFloat4E2M1FN, -kInfinity), 0xfu);
  EXPECT_EQ(Encode(DType::kFloat4E2M1FN, -0.1), 8u);
}

TEST(Encode, FollowsTheNamedRulesOfLibraries) {
  const DType e4m3 = DType::kFloat8E4M3FN;
  for (const double x : {448.0, 464.1, 1e30, kInfinity, kNaN}) {
    EXPECT_EQ(Encode(e4m3, x, kMlxToFp8Rule), 0x7eu) << x;
    EXPECT_EQ(Encode(e4m3, -x, kMlxToFp8Rule), 0xfeu) << x;
  }
  for (const double x : {448.0, 464.1, 1e30, kInfinity}) {
    EXPECT_EQ(Encode(e4m3, x, kVllmFp8Rule), 0x7eu) << x;
    EXPECT_EQ(Encode(DType::kFloat8E5M2, -x * 200, kVllmFp8Rule), 0xfbu) << x;
  }
  EXPECT_EQ(Encode(e4m3, kNaN, kVllmFp8Rule), 0x7fu);
  EXPECT_EQ(Encode(DType::kFloat8E5M2, -kNaN, kVllmFp8Rule), 0xfeu);
  EXPECT_EQ(Encode(DType::kFloat16, kNaN, {.overflow = Overflow::kSaturateAll}), 0x7bffu);
  EXPECT_EQ(Encode(DType::kFloat16, 1e6, {.overflow = Overflow::kNaN}), 0x7e00u);
  EXPECT_EQ(Encode(DType::kFloat16, 1e6, {.rounding = Rounding::kTowardZero}), 0x7bffu);
  EXPECT_EQ(Encode(DType::kFloat16, kInfinity, {.rounding = Rounding::kTowardZero}), 0x7c00u);
  EXPECT_THROW(Encode(e4m3, 1.0, {.overflow = Overflow::kInfinity}), Error);
  EXPECT_THROW(Encode(DType::kFloat4E2M1FN, 1.0, {.overflow = Overflow::kNaN}), Error);
}

TEST(Encode, GivesE8M0ItsNearestPowerAndNoZero) {
  const DType e8m0 = DType::kFloat8E8M0FNU;
  const std::pair<double, uint64_t> codes[] = {
      {1.0, 0x7f},      {1.49, 0x7f},      {1.5, 0x80},       {3.0, 0x81}, {6.0, 0x82},
      {0x1p-127, 0x00}, {0x1p-129, 0x00},  {0x1p127, 0xfe},   {0.0, 0xff}, {-1.0, 0xff},
      {1e300, 0xff},    {kInfinity, 0xff}, {-kInfinity, 0xff}};
  for (const auto& [x, code] : codes) EXPECT_EQ(Encode(e8m0, x), code) << x;
  EXPECT_EQ(Encode(e8m0, 1e300, {.overflow = Overflow::kSaturate}), 0xfeu);
  EXPECT_EQ(Encode(e8m0, 0.0, {.overflow = Overflow::kSaturate}), 0x00u);
}

TEST(Encode, FlushesSubnormalResultsOnRequest) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                            DType::kFloat8E4M3FN, DType::kFloat8E5M2, DType::kFloat4E2M1FN}) {
    const FloatType& type = FloatTypeOf(dtype);
    const ConvertRule flush = {.flush_subnormals = true};
    const double largest_subnormal = type.smallest_normal - type.smallest_subnormal;
    EXPECT_EQ(RoundTo(dtype, largest_subnormal), largest_subnormal) << Name(dtype);
    EXPECT_TRUE(SameBits(RoundTo(dtype, -largest_subnormal, flush), -0.0)) << Name(dtype);
    EXPECT_EQ(RoundTo(dtype, type.smallest_normal, flush), type.smallest_normal) << Name(dtype);
  }
}

TEST(Encode, TakesOnlyValuesOfIntegerTypes) {
  EXPECT_EQ(Encode(DType::kInt8, -128.0), 0x80u);
  EXPECT_EQ(Encode(DType::kUInt32, 4294967295.0), 0xffffffffu);
  EXPECT_EQ(Encode(DType::kInt64, -1.0), ~uint64_t{0});
  EXPECT_EQ(Encode(DType::kInt16, -2.0), 0xfffeu);
  EXPECT_EQ(Encode(DType::kUInt64, 0x1p63), uint64_t{1} << 63);
  EXPECT_THROW(Encode(DType::kInt16, 32768.0), Error);
  EXPECT_THROW(Encode(DType::kUInt64, 0x1p64), Error);
  EXPECT_THROW(Encode(DType::kUInt64, -1.0), Error);
  EXPECT_EQ(Encode(DType::kBool, 1.0), 1u);
  EXPECT_THROW(Encode(DType::kInt8, 128.0), Error);
  EXPECT_THROW(Encode(DType::kUInt8, 0.5), Error);
  EXPECT_THROW(Encode(DType::kInt64, 0x1p63), Error);
  EXPECT_THROW(Encode(DType::kInt32, kNaN), Error);
  EXPECT_THROW(Encode(DType::kInt8, 1.0, {.overflow = Overflow::kSaturate}), Error);
}

TEST(Bulk, EqualsTheScalarConversionsForEveryType) {
  uint64_t state = 3;
  for (const DType dtype : AllDTypes()) {
    for (const int64_t count : {1, 2, 63, 64, 65, 129}) {
      std::vector<double> values;
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t bits = NextRandom(state);
        const uint64_t field = 1023 - 20 + NextRandom(state) % 40;
        const double x = std::bit_cast<double>((bits & 0x800fffffffffffffu) | field << 52);
        values.push_back(IsFloat(dtype) ? x : static_cast<double>(bits % 2));
      }
      if (IsFloat(dtype)) {
        values[0] = -kNaN;
        values.back() = -kInfinity;
      }
      Tensor tensor(dtype, Shape::Unnamed({count}));
      EncodeFrom(values, dtype, tensor.bytes.data());
      for (const int64_t first : {int64_t{0}, count / 2}) {
        std::vector<double> decoded(static_cast<size_t>(count - first));
        DecodeTo(tensor, first, decoded);
        for (size_t i = 0; i < decoded.size(); ++i) {
          const double x = values[i + static_cast<size_t>(first)];
          uint64_t code = 0;
          std::memcpy(&code,
                      tensor.bytes.data() + (i + static_cast<size_t>(first)) * SizeInBytes(dtype),
                      SizeInBytes(dtype));
          ASSERT_EQ(code, Encode(dtype, x)) << Name(dtype) << " " << x;
          ASSERT_TRUE(SameBits(decoded[i], RoundTo(dtype, x))) << Name(dtype) << " " << x;
        }
      }
      if (!IsFloat(dtype)) continue;
      for (const Rounding rounding : kRoundings) {
        const ConvertRule rule = {.rounding = rounding};
        std::vector<double> rounded = values;
        RoundAll(rounded, dtype, rule);
        for (size_t i = 0; i < rounded.size(); ++i) {
          const double expected = RoundTo(dtype, values[i], rule);
          ASSERT_TRUE(SameBits(rounded[i], expected) ||
                      (std::isnan(rounded[i]) && std::isnan(expected)))
              << Name(dtype) << " " << values[i];
        }
      }
    }
  }
}

TEST(Bulk, DecodesEveryCodeOfSmallTypesAndRefusesBytesThatAreNone) {
  for (const DType dtype : AllDTypes()) {
    if (SizeInBytes(dtype) > 2) continue;
    const int64_t codes = dtype == DType::kBool ? 2 : int64_t{1} << CodeBits(dtype);
    Tensor tensor(dtype, Shape::Unnamed({codes}));
    for (int64_t code = 0; code < codes; ++code) {
      std::memcpy(tensor.bytes.data() + static_cast<size_t>(code) * SizeInBytes(dtype), &code,
                  SizeInBytes(dtype));
    }
    std::vector<double> decoded(static_cast<size_t>(codes));
    DecodeTo(tensor, 0, decoded);
    for (size_t code = 0; code < decoded.size(); ++code) {
      ASSERT_TRUE(SameBits(decoded[code], Decode(dtype, code))) << Name(dtype) << " " << code;
    }
  }
  for (const DType dtype : {DType::kFloat4E2M1FN, DType::kBool}) {
    Tensor tensor(dtype, Shape::Unnamed({2}));
    tensor.bytes[1] = std::byte{0x10};
    std::vector<double> decoded(2);
    EXPECT_THROW(DecodeTo(tensor, 0, decoded), Error);
  }
}

}  // namespace
}  // namespace kvcheck
