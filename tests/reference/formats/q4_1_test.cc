// q4_1 beside what ggml itself writes and reads: the witnesses of formats.md, section C.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/reference/formats/ggml_sample.h"

namespace kvcheck {
namespace {

const KvFormat kFormat = Q4_1Format{};

TEST(Q4_1, WritesTheBytesOfGgml) {
  EXPECT_EQ(EncodedHex(kFormat, GgmlWitness()), "223400be80b3f72a6e91d5084c7fb3e62a5d91c4");
  EXPECT_EQ(EncodedHex(kFormat, {}), std::string(40, '0'));
}

// m is the value, and d 0.
TEST(Q4_1, AConstantBlockIsItsMinimum) {
  EXPECT_EQ(EncodedHex(kFormat, std::vector<double>(32, -1.5)), "000000be" + std::string(32, '0'));
}

TEST(Q4_1, NanIsReadAsTheMinimum) {
  std::vector<double> row = GgmlWitness();
  row[1] = std::numeric_limits<double>::quiet_NaN();
  const TensorMap stored = EncodeRows(kFormat, Profile(), RowOf(DType::kFloat32, row));
  EXPECT_EQ(DecodedBlocks(kFormat, stored.at("blocks"))[1], -1.5);
}

TEST(Q4_1, DecodesTheWitness) {
  const std::vector<uint64_t> first = {0xbfc00000, 0xbf39a000, 0x3e9dc000, 0x3f8aa000,
                                       0x40077000, 0xbf9ef000, 0xbe558000, 0x3f110000};
  EXPECT_EQ(DecodedWitness(kFormat), first);
}

// Every scale with every code in every place, beside minima of all magnitudes and signs: the sum as
// f32 rounds it, once.
TEST(Q4_1, EveryScaleAndCodeIsTheirProductAndTheMinimum) {
  Tensor blocks(DType::kUInt8, {{"", 1}, {"", 20}});
  int64_t judged = 0;
  for (uint32_t scale = 0; scale < 0x10000; ++scale) {
    const uint32_t least = scale * 40503 & 0xffff;
    const auto d = static_cast<float>(Decode(DType::kFloat16, scale));
    const auto m = static_cast<float>(Decode(DType::kFloat16, least));
    blocks.bytes[0] = static_cast<std::byte>(scale & 0xff);
    blocks.bytes[1] = static_cast<std::byte>(scale >> 8);
    blocks.bytes[2] = static_cast<std::byte>(least & 0xff);
    blocks.bytes[3] = static_cast<std::byte>(least >> 8);
    for (uint32_t j = 4; j < 20; ++j) {
      blocks.bytes[j] = static_cast<std::byte>((17 * j + scale * 5) & 0xff);
    }
    const std::vector<double> values = DecodedBlocks(kFormat, blocks);
    for (size_t i = 0; i < 32; ++i) {
      const auto nibbles = std::to_integer<int>(blocks.bytes[4 + i % 16]);
      int code = i < 16 ? nibbles & 15 : nibbles >> 4;
      const float sum = static_cast<float>(code) * d + m;
      const auto value = static_cast<float>(values[i]);
      if (std::isnan(sum)) {
        ASSERT_TRUE(std::isnan(value)) << scale << " " << i;
        continue;
      }
      ++judged;
      ASSERT_EQ(sum, value) << scale << " " << i;
      ASSERT_EQ(static_cast<double>(value), values[i]) << scale << " " << i;
    }
  }
  EXPECT_GT(judged, 1'900'000);
}

// Attention may ask for the numbers themselves.
TEST(Q4_1, TheRealNumbersAreNotRounded) {
  Tensor blocks(DType::kUInt8, {{"", 1}, {"", 20}});
  blocks.bytes[0] = std::byte{1};     // 2^-24
  blocks.bytes[3] = std::byte{0x78};  // 2^15
  blocks.bytes[4] = std::byte{1};
  const TensorMap stored = {{"blocks", blocks}};
  EXPECT_EQ(DecodeRows(kFormat, Profile(), CodecRows(kFormat, stored), 0, 1).hi[0],
            0x1p15 + 0x1p-24);
  EXPECT_EQ(DecodedBlocks(kFormat, blocks)[0], 0x1p15);
}

TEST(Q4_1, BoundHoldsInEveryRegimeAndTypeAndIsReached) { ExpectBoundInEveryRegime(kFormat); }

TEST(Q4_1, BoundHoldsAtTheEndsOfTheScale) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double largest : {1.0, -1.0}) {
      const BoundCheck check = CheckBoundAt(kFormat, exponent, largest);
      EXPECT_EQ(check.violations, 0) << exponent;
      // The minimum is -0.95 or -1 times the power of two, and f16 ends below 2^16.
      EXPECT_EQ(check.without_bound, exponent > (largest > 0 ? 16 : 15) ? 32 : 0) << exponent;
    }
  }
}

// The rounding of the minimum does not shrink with the range.
TEST(Q4_1, TheBoundOfAnOffsetBlockIsThatOfItsMinimum) {
  std::vector<double> row(32, 40);
  for (size_t i = 0; i < 32; ++i) row[i] += 0x1p-10 * static_cast<double>(i % 7);
  const RowBound bound =
      RoundTripBound(kFormat, Profile(), DecodeRounding::kExact, DType::kFloat32, row);
  EXPECT_GE(bound.total[3], 40 * 0x1p-11);
  EXPECT_LT(bound.total[3], 44 * 0x1p-11);
}

TEST(Q4_1, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  std::vector<int> codes(16);
  std::iota(codes.begin(), codes.end(), 0);
  EXPECT_GT(ExpectWrongCodesShow(kFormat, codes), 0.3);
}

TEST(Q4_1, WhatAWriterMayDoOtherwiseIsOpenAndNothingElse) {
  std::vector<double> row(128, 1.0);
  for (size_t i = 0; i < 32; ++i) row[i] = static_cast<double>(i);  // minimum 0
  row[32 + 5] = std::numeric_limits<double>::quiet_NaN();
  row[64] = 3e38, row[65] = -3e38;
  row[97] = 1 + 0x1p-23;
  EncodeJudge judge(kFormat, row);
  EXPECT_EQ(judge.Judged(), Outcome::kPass);
  const std::byte sign{0x80}, low{1};
  EXPECT_FALSE(judge.Fails(3, sign));
  for (const size_t byte : {0u, 1u, 2u, 3u, 4u, 19u}) EXPECT_TRUE(judge.Fails(byte, low)) << byte;
  EXPECT_TRUE(judge.Fails(1, sign));
  for (const size_t byte : {20u, 23u, 39u}) EXPECT_FALSE(judge.Fails(byte, low)) << byte;
  // The range is beyond f32: scale and minimum are infinite, and codes say nothing.
  for (const size_t byte : {40u, 43u}) EXPECT_TRUE(judge.Fails(byte, low)) << byte;
  for (const size_t byte : {44u, 59u}) EXPECT_FALSE(judge.Fails(byte, low)) << byte;
  // A range that f16 does not hold leaves codes as they are.
  for (const size_t byte : {60u, 63u, 64u, 79u}) EXPECT_TRUE(judge.Fails(byte, low)) << byte;
}

}  // namespace
}  // namespace kvcheck
