// Plain types: the fp8 witnesses of formats.md, section D, under every overflow rule, and exactness
// where a type holds another.

#include "reference/formats/plain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/formats/codec.h"
#include "tests/reference/formats/sample.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

Profile WithOverflow(Fp8Overflow overflow) {
  Profile profile;
  profile.fp8_overflow = overflow;
  return profile;
}

int CodeOf(DType dtype, Fp8Overflow overflow, double x) {
  const TensorMap encoded =
      EncodeRows(PlainFormat{dtype}, WithOverflow(overflow), RowOf(DType::kFloat32, {x}));
  return std::to_integer<int>(encoded.at("codes").bytes[0]);
}

TEST(Fp8Format, E4m3fnMatchesItsWitnesses) {
  const auto code = [](double x) { return CodeOf(DType::kFloat8E4M3FN, Fp8Overflow::kNan, x); };
  EXPECT_EQ(code(463.9), 0x7e);
  EXPECT_EQ(code(464), 0x7e);
  EXPECT_EQ(code(464.1), 0x7f);
  EXPECT_EQ(code(480), 0x7f);
  EXPECT_EQ(code(kInfinity), 0x7f);
  EXPECT_EQ(code(-kInfinity), 0xff);
  EXPECT_EQ(code(0x1p-10), 0x00);
  EXPECT_EQ(code(1.0001 * 0x1p-10), 0x01);
  EXPECT_EQ(code(-0.0), 0x80);
}

TEST(Fp8Format, E5m2MatchesItsWitnesses) {
  const auto code = [](double x) { return CodeOf(DType::kFloat8E5M2, Fp8Overflow::kNan, x); };
  EXPECT_EQ(code(57344), 0x7b);
  EXPECT_EQ(code(61439), 0x7b);
  EXPECT_EQ(code(61440), 0x7c);
  EXPECT_EQ(code(kInfinity), 0x7c);
  EXPECT_EQ(code(480), 0x60);
  EXPECT_EQ(code(kNan), 0x7e);
}

TEST(Fp8Format, OverflowFollowsTheProfile) {
  const DType e4m3 = DType::kFloat8E4M3FN;
  const DType e5m2 = DType::kFloat8E5M2;
  EXPECT_EQ(CodeOf(e4m3, Fp8Overflow::kSaturate, 1e6), 0x7e);
  EXPECT_EQ(CodeOf(e4m3, Fp8Overflow::kSaturate, -kInfinity), 0xfe);
  EXPECT_EQ(CodeOf(e4m3, Fp8Overflow::kSaturate, kNan), 0x7f);
  EXPECT_EQ(CodeOf(e4m3, Fp8Overflow::kSaturateAll, kNan), 0x7e);
  EXPECT_EQ(CodeOf(e4m3, Fp8Overflow::kSaturateAll, kInfinity), 0x7e);
  EXPECT_EQ(CodeOf(e5m2, Fp8Overflow::kSaturate, 1e6), 0x7b);
  EXPECT_EQ(CodeOf(e5m2, Fp8Overflow::kSaturate, kNan), 0x7e);
  EXPECT_EQ(CodeOf(e5m2, Fp8Overflow::kSaturateAll, kNan), 0x7b);
}

TEST(Fp8Format, EveryCodeSurvivesDecodingAndEncoding) {
  for (const DType dtype : {DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    Tensor codes(dtype, {{"", 16}, {"", 16}});
    for (size_t i = 0; i < 256; ++i) codes.bytes[i] = static_cast<std::byte>(i);
    const PlainFormat format{dtype};
    const DecodedRows decoded = DecodeRows(format, Profile(), {&codes, nullptr, nullptr}, 0, 16);
    EXPECT_TRUE(decoded.lo.empty());
    for (size_t i = 0; i < 256; ++i) {
      if (std::isnan(decoded.hi[i])) {
        EXPECT_GE(i & 0x7f, dtype == DType::kFloat8E4M3FN ? 0x7fu : 0x7du);
        continue;
      }
      EXPECT_EQ(Encode(dtype, decoded.hi[i]), i);
    }
  }
}

TEST(PlainFormat, ProfileOfFp8DoesNotTouchOtherTypes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(PlainRoundTrip(dtype, DType::kFloat64, WithOverflow(Fp8Overflow::kSaturate), 1e300),
              kInfinity);
  }
}

TEST(PlainFormat, AWiderTypeHoldsANarrowerOne) {
  EXPECT_TRUE(Holds(DType::kFloat32, DType::kFloat16));
  EXPECT_TRUE(Holds(DType::kFloat32, DType::kBFloat16));
  EXPECT_TRUE(Holds(DType::kFloat16, DType::kFloat8E5M2));
  EXPECT_TRUE(Holds(DType::kBFloat16, DType::kFloat8E4M3FN));
  EXPECT_FALSE(Holds(DType::kBFloat16, DType::kFloat16));
  EXPECT_FALSE(Holds(DType::kFloat16, DType::kBFloat16));
  EXPECT_FALSE(Holds(DType::kFloat8E4M3FN, DType::kFloat8E5M2));
}

TEST(PlainFormat, ThresholdsAreTheFirstValuesThatOverflow) {
  EXPECT_EQ(OverflowThreshold(DType::kFloat16), 65520.0);
  EXPECT_EQ(OverflowThreshold(DType::kFloat8E5M2), 61440.0);
  EXPECT_EQ(OverflowThreshold(DType::kFloat8E4M3FN), 464.0);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const double threshold = OverflowThreshold(dtype);
    EXPECT_TRUE(std::isinf(RoundTo(dtype, threshold)));
    EXPECT_FALSE(std::isinf(RoundTo(dtype, std::nextafter(threshold, 0))));
  }
}

}  // namespace
}  // namespace kvcheck
