// The bound over every configuration and regime, some 10^7 elements, with the largest ratio of an
// error to its bound: no element above 1, and every configuration above 1/2, since a bound twice
// as large as any error would hide a codec that is twice as bad.

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "tests/reference/formats/bound_check.h"

namespace kvcheck {
namespace {

TEST(ErrorBoundExhaustive, HoldsForTenMillionElements) {
  BoundCheck all;
  for (const DecodeRounding decode : {DecodeRounding::kTwoRoundings, DecodeRounding::kExact}) {
    for (const AffineEncoder encode :
         {AffineEncoder::kMlxCpu, AffineEncoder::kMlxGpu, AffineEncoder::kKivi}) {
      Profile profile;
      profile.decode = decode;
      profile.encode = encode;
      BoundCheck of_profile;
      double smallest = 1;
      for (const KvFormat& format : AllKvFormats()) {
        if (IsPlain(format)) continue;
        BoundCheck of_format;
        for (const std::string_view regime : RowRegimes()) {
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 17, RowDType(format), 12, 512));
          EXPECT_EQ(check.violations, 0) << Print(format) << " " << regime << " " << Print(profile);
          of_format.Add(check);
        }
        // A rotation adds up the bounds of a block, as if all their errors had the signs of one row
        // of its matrix (formats.md, section F).
        const bool rotates = KindOf(format).starts_with("hadamard:");
        EXPECT_GT(of_format.largest_ratio, rotates ? 0.3 : 0.5) << Print(format);
        smallest = std::min(smallest, of_format.largest_ratio);
        of_profile.Add(of_format);
      }
      std::printf(
          "[ profile '%s': %lld elements, %lld without a bound, largest ratio %.6f, "
          "smallest of a configuration %.3f ]\n",
          Print(profile).c_str(), static_cast<long long>(of_profile.judged),
          static_cast<long long>(of_profile.without_bound), of_profile.largest_ratio, smallest);
      all.Add(of_profile);
    }
  }
  EXPECT_GT(all.judged, 10'000'000);
}

// Rows of a case; 150 make 10^8 elements of the test below.
constexpr int64_t kWriterRows = 15;

TEST(ErrorBoundExhaustive, HoldsForEveryWriterOfMxAndNvfp4) {
  BoundCheck all;
  for (const KvFormat& format : AllKvFormats()) {
    std::vector<Profile> writers;
    if (Leaves(format, CodecChoice::kMxEncode) || Leaves(format, CodecChoice::kNvfp4Encode)) {
      writers = ArithmeticOf(format)->UndeclaredEncoders(Profile());
    }
    for (Profile profile : writers) {
      BoundCheck of_writer;
      for (const DecodeRounding decode :
           {DecodeRounding::kExact, DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
        profile.decode = decode;
        for (const std::string_view regime : RowRegimes()) {
          const BoundCheck check = CheckBound(
              format, profile, GenerateRows(regime, 23, RowDType(format), kWriterRows, 512));
          EXPECT_EQ(check.violations, 0) << Print(format) << " " << regime << " " << Print(profile);
          of_writer.Add(check);
        }
      }
      EXPECT_GT(of_writer.largest_ratio, 0.9) << Print(format) << " " << Print(profile);
      profile.decode = DecodeRounding::kExact;
      std::printf("[ %s '%s': %lld elements, %lld without a bound, largest ratio %.6f ]\n",
                  Print(format).c_str(), Print(profile).c_str(),
                  static_cast<long long>(of_writer.judged),
                  static_cast<long long>(of_writer.without_bound), of_writer.largest_ratio);
      all.Add(of_writer);
    }
  }
  std::printf("[ all: %lld elements ]\n", static_cast<long long>(all.judged));
  EXPECT_GT(all.judged, 10'000'000);
}

TEST(ErrorBoundExhaustive, HoldsForEveryWriterOfScalesPerToken) {
  BoundCheck all;
  for (const TokenEncoder encoder : {TokenEncoder::kVllm, TokenEncoder::kVllmTruncate}) {
    for (const DecodeRounding decode : {DecodeRounding::kTwoRoundings, DecodeRounding::kExact}) {
      Profile profile;
      profile.token_encode = encoder;
      profile.decode = decode;
      for (const KvFormat& format : AllKvFormats()) {
        if (!Leaves(format, CodecChoice::kTokenEncode)) continue;
        for (const std::string_view regime : RowRegimes()) {
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 18, RowDType(format), 12, 512));
          EXPECT_EQ(check.violations, 0) << Print(format) << " " << regime << " " << Print(profile);
          all.Add(check);
        }
      }
    }
  }
  std::printf("[ vLLM's writers: %lld elements, largest ratio %.6f ]\n",
              static_cast<long long>(all.judged), all.largest_ratio);
  EXPECT_GT(all.judged, 5'000'000);
}

TEST(ErrorBoundExhaustive, HoldsForEveryF16AndBf16PatternInFp8) {
  Profile saturate;
  saturate.fp8_overflow = Fp8Overflow::kSaturate;
  for (const DType wide : {DType::kFloat16, DType::kBFloat16}) {
    Tensor x(wide, {{"", 256}, {"", 256}});
    for (size_t i = 0; i < 65536; ++i) x.As<uint16_t>()[i] = static_cast<uint16_t>(i);
    for (const DType narrow :
         {DType::kFloat8E4M3FN, DType::kFloat8E5M2, DType::kFloat16, DType::kBFloat16}) {
      const BoundCheck check = CheckBound(PlainFormat{narrow}, saturate, x);
      EXPECT_EQ(check.violations, 0) << Name(narrow) << " from " << Name(wide);
      std::printf("[ %s from %s: %lld judged, %lld not finite, largest ratio %.6f ]\n",
                  Name(narrow).data(), Name(wide).data(), static_cast<long long>(check.judged),
                  static_cast<long long>(check.without_bound), check.largest_ratio);
    }
  }
}

}  // namespace
}  // namespace kvcheck
