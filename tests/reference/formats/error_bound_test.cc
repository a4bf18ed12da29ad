// The a-priori bound: attained by constructed rows, never exceeded over every regime and
// configuration (a sample here, 10^7 elements in error_bound_exhaustive_test.cc), and absent
// exactly where something may overflow.

#include "reference/formats/error_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

constexpr DecodeRounding kDecoders[] = {DecodeRounding::kExact, DecodeRounding::kTwoRoundings,
                                        DecodeRounding::kOneRounding};
constexpr AffineEncoder kEncoders[] = {AffineEncoder::kMlxCpu, AffineEncoder::kMlxGpu,
                                       AffineEncoder::kKivi};

size_t TermIndex(const KvFormat& format, std::string_view name) {
  const std::vector<std::string> terms = BoundTerms(format);
  return static_cast<size_t>(std::find(terms.begin(), terms.end(), name) - terms.begin());
}

TEST(ErrorBound, HoldsForEveryFormatProfileAndRegime) {
  BoundCheck all;
  for (const KvFormat& format : AllKvFormats()) {
    for (const std::string_view regime : RowRegimes()) {
      for (const AffineEncoder encode : kEncoders) {
        for (const DecodeRounding decode : kDecoders) {
          Profile profile;
          profile.encode = encode;
          profile.decode = decode;
          if (IsPlain(format) && profile != Profile()) continue;
          const DType x = IsPlain(format) ? DType::kFloat32 : RowDType(format);
          const BoundCheck check = CheckBound(format, profile, GenerateRows(regime, 3, x, 1, 256));
          EXPECT_EQ(check.violations, 0) << Print(format) << " " << regime << " " << Print(profile);
          all.Add(check);
        }
      }
    }
  }
  EXPECT_GT(all.judged, 6 * 54 * 14 * 128 / 2);
}

TEST(ErrorBound, HoldsWhereTheRowTypeIsNarrowerThanTheRow) {
  for (const std::string_view regime : RowRegimes()) {
    for (const DType wide : {DType::kFloat64, DType::kFloat32, DType::kFloat16}) {
      for (const KvFormat& format : std::vector<KvFormat>{
               AffineFormat{8, 32, DType::kBFloat16}, AffineFormat{4, 64, DType::kFloat16},
               PlainFormat{DType::kBFloat16}, PlainFormat{DType::kFloat16},
               PlainFormat{DType::kFloat8E5M2}}) {
        const BoundCheck check =
            CheckBound(format, Profile(), GenerateRows(regime, 5, wide, 4, 128));
        EXPECT_EQ(check.violations, 0) << Print(format) << " " << regime << " " << Name(wide);
      }
    }
  }
}

TEST(ErrorBound, ClampingAtTheFarEndAttainsIt) {
  // mn = -mx gives edge / s0 = n / 2, a tie that rounds up to k = (n + 1) / 2, a power of two: the
  // far end clamps one step of n / k short. With mx = n nothing else is rounded.
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const KvFormat format = AffineFormat{bits, 32, DType::kFloat32};
    const double n = (1 << bits) - 1;
    std::vector<double> row(32, n);
    row[5] = -n;
    const RowBound bound =
        RoundTripBound(format, Profile(), DecodeRounding::kExact, DType::kFloat32, row);
    const TensorMap encoded = EncodeRows(format, Profile(), RowOf(DType::kFloat32, row));
    const DecodedRows y = DecodeRows(format, Profile(), CodecRows(format, encoded), 0, 1);
    const double error = std::fabs((row[5] - y.hi[5]) - y.lo[5]);
    EXPECT_EQ(error, n / ((n + 1) / 2));
    EXPECT_LE(error, bound.total[5]);
    // The code term alone is the error, up to the evaluation factor 1 + 2^-40.
    EXPECT_EQ(bound.terms[TermIndex(format, "code")][5], error * (1 + 0x1p-40));
  }
}

TEST(ErrorBound, HalfAStepIsNoBound) {
  const KvFormat format = AffineFormat{2, 32, DType::kFloat32};
  std::vector<double> row(32, 1.0);
  row[5] = -1.0;
  const RowBound bound =
      RoundTripBound(format, Profile(), DecodeRounding::kExact, DType::kFloat32, row);
  EXPECT_GT(bound.total[5], 0.5 * 0.5);
}

TEST(ErrorBound, TermsAddUpToTheTotal) {
  for (const KvFormat& format :
       std::vector<KvFormat>{AffineFormat{8, 64, DType::kBFloat16}, PlainFormat{DType::kFloat16},
                             PlainFormat{DType::kFloat8E4M3FN}}) {
    const std::vector<double> x = ValuesOf(GenerateRows("gauss", 1, DType::kFloat32, 1, 128));
    const RowBound bound =
        RoundTripBound(format, Profile(), DecodeRounding::kTwoRoundings, DType::kFloat32, x);
    for (size_t i = 0; i < x.size(); ++i) {
      double sum = 0;
      for (const auto& term : bound.terms) sum += term[i];
      // Positive terms: each rounded once, added here and in total with a rounding per addition.
      const auto terms = static_cast<double>(bound.terms.size());
      EXPECT_NEAR(sum, bound.total[i], (1 + 2 * (terms - 1) + 1) * 0x1p-53 * sum);
    }
  }
}

TEST(ErrorBound, EachRoundingThatADecoderLeavesOutMakesItSmaller) {
  const KvFormat format = AffineFormat{8, 64, DType::kBFloat16};
  const std::vector<double> x = ValuesOf(GenerateRows("gauss", 1, DType::kBFloat16, 1, 64));
  const auto total = [&](DecodeRounding decode) {
    return RoundTripBound(format, Profile(), decode, DType::kBFloat16, x).total;
  };
  const std::vector<double> exact = total(DecodeRounding::kExact);
  const std::vector<double> one = total(DecodeRounding::kOneRounding);
  const std::vector<double> two = total(DecodeRounding::kTwoRoundings);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LT(exact[i], one[i]);
    EXPECT_LT(one[i], two[i]);
  }
  EXPECT_EQ(exact, OriginalErrorBound(format, Profile(), DType::kBFloat16, x));
}

TEST(ErrorBound, CpuBoundFailsForTheGpuEncoderOfAnAllNegativeGroup) {
  const KvFormat format = AffineFormat{4, 32, DType::kFloat32};
  const Tensor x = GenerateRows("all_negative", 2, DType::kFloat32, 64, 128);
  std::vector<double> shifted = ValuesOf(x);
  for (double& value : shifted) value -= 50;
  Tensor far = x;
  EncodeFrom(shifted, DType::kFloat32, far.bytes.data());
  Profile gpu;
  gpu.encode = AffineEncoder::kMlxGpu;
  EXPECT_EQ(CheckBound(format, gpu, far).violations, 0);
  const TensorMap encoded = EncodeRows(format, gpu, far);
  const DecodedRows y = DecodeRows(format, gpu, CodecRows(format, encoded), 0, 1);
  const std::vector<double> row(shifted.begin(), shifted.begin() + 128);
  const std::vector<double> cpu_bound =
      OriginalErrorBound(format, Profile(), DType::kFloat32, ValuesOf(RowOf(DType::kFloat32, row)));
  int beyond = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double error = std::fabs(RoundTo(DType::kFloat32, row[i]) - y.hi[i]);
    beyond += error > cpu_bound[i] ? 1 : 0;
  }
  EXPECT_GT(beyond, 0);
}

TEST(ErrorBound, IsAbsentWhereTheF16ProductMayOverflow) {
  std::vector<double> row;
  for (int i = 0; i < 32; ++i) row.push_back(-60000.0 + 120000.0 * i / 31);
  const KvFormat format = AffineFormat{8, 32, DType::kFloat16};
  RoundAll(row, DType::kFloat16);
  const auto at_start = [&](DecodeRounding decode) {
    return static_cast<bool>(
        RoundTripBound(format, Profile(), decode, DType::kFloat16, row).overflows[0]);
  };
  EXPECT_TRUE(at_start(DecodeRounding::kTwoRoundings));
  EXPECT_FALSE(at_start(DecodeRounding::kOneRounding));
  EXPECT_FALSE(at_start(DecodeRounding::kExact));
}

TEST(ErrorBound, IsAbsentForRowsThatAreNotFinite) {
  for (const double value :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<double> row(64, 1.0);
    row[3] = value;
    const RowBound bound = RoundTripBound(AffineFormat{4, 32, DType::kFloat32}, Profile(),
                                          DecodeRounding::kExact, DType::kFloat32, row);
    // Its group, where no encoder gives the numbers beside it a meaning: this one skips NaN.
    const bool skipped = std::isnan(value);
    EXPECT_EQ(bound.overflows[0], !skipped);
    EXPECT_EQ(bound.undefined[0], !skipped);
    EXPECT_TRUE(bound.overflows[3]);
    EXPECT_TRUE(bound.undefined[3]);
    EXPECT_FALSE(bound.overflows[32]);  // the next
    Profile gpu;
    gpu.encode = AffineEncoder::kMlxGpu;
    EXPECT_TRUE(RoundTripBound(AffineFormat{4, 32, DType::kFloat32}, gpu, DecodeRounding::kExact,
                               DType::kFloat32, row)
                    .undefined[0]);
    const RowBound plain = RoundTripBound(PlainFormat{DType::kFloat16}, Profile(),
                                          DecodeRounding::kExact, DType::kFloat32, row);
    EXPECT_TRUE(plain.overflows[3]);
    EXPECT_FALSE(plain.overflows[2]);
  }
}

TEST(ErrorBound, OfPlainTypesIsHalfASpacingAndIsAttained) {
  for (const DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    const FloatType& type = FloatTypeOf(dtype);
    for (const double base : {1.0, type.smallest_normal, type.smallest_subnormal}) {
      const double middle = base + HalfSpacing(dtype, base);
      const RowBound bound = RoundTripBound(PlainFormat{dtype}, Profile(), DecodeRounding::kExact,
                                            DType::kFloat64, std::vector<double>{middle});
      EXPECT_EQ(bound.total[0], std::fabs(middle - RoundTo(dtype, middle)));
      EXPECT_LE(bound.total[0], UnitRoundoff(dtype) * base + HalfSmallestSubnormal(dtype));
    }
    EXPECT_EQ(RoundTripBound(PlainFormat{dtype}, Profile(), DecodeRounding::kExact, dtype,
                             std::vector<double>{1.0})
                  .total[0],
              0.0);
  }
}

TEST(ErrorBound, OfSaturatingFp8IsTheDistanceToTheLargestValue) {
  Profile saturate;
  saturate.fp8_overflow = Fp8Overflow::kSaturate;
  const KvFormat format = PlainFormat{DType::kFloat8E4M3FN};
  const std::vector<double> x = {448, 460, 464, 500, -1000};
  const RowBound bound =
      RoundTripBound(format, saturate, DecodeRounding::kExact, DType::kFloat32, x);
  EXPECT_EQ(bound.total, (std::vector<double>{16, 16, 16, 52, 552}));
  EXPECT_TRUE(
      RoundTripBound(format, Profile(), DecodeRounding::kExact, DType::kFloat32, x).overflows[3]);
}

TEST(PartsBound, CoversScaleTimesCodeAndBiasAndIsReached) {
  double largest = 0;
  int64_t judged = 0;
  for (const int bits : {2, 3, 4, 8}) {
    for (const DType scale : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const std::string_view regime : RowRegimes()) {
        for (const AffineEncoder encode : kEncoders) {
          Profile profile;
          profile.encode = encode;
          const AffineFormat format = {bits, 32, scale};
          const Tensor x = GenerateRows(regime, 7, DType::kFloat32, 8, 64);
          const TensorMap stored = EncodeRows(format, profile, x);
          const EncodedRows rows = CodecRows(format, stored);
          std::vector<double> values(64), scales(2), biases(2);
          std::vector<uint8_t> codes(64);
          const size_t words = 2 * static_cast<size_t>(bits);
          for (size_t r = 0; r < 8; ++r) {
            const auto row = static_cast<int64_t>(r);
            DecodeTo(x, row * 64, values);
            DecodeTo(*rows.planes[1], row * 2, scales);
            DecodeTo(*rows.planes[2], row * 2, biases);
            UnpackCodes({rows.planes[0]->As<uint32_t>() + r * words, words}, bits, codes);
            const std::vector<double> bound = PartsBound(format, profile, x.dtype, values);
            for (size_t i = 0; i < 64; ++i) {
              if (!std::isfinite(bound[i])) continue;
              const double parts = std::fabs(codes[i] * scales[i / 32]) + std::fabs(biases[i / 32]);
              ++judged;
              ASSERT_LE(parts, bound[i]) << Print(KvFormat(format)) << " " << regime;
              if (bound[i] > 0) largest = std::max(largest, parts / bound[i]);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(judged, 50'000);
  EXPECT_GT(largest, 0.99);
}

}  // namespace
}  // namespace kvcheck
