// q5_0 beside what ggml itself writes and reads: the witnesses of formats.md, section C.

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

const KvFormat kQ5_0 = Q5_0Format{};

TEST(Q5_0, WritesTheBytesOfGgml) {
  EXPECT_EQ(EncodedHex(kQ5_0, WitnessRow()), "c0b063c49831da741e6803a8429c36d0852f7913b853");
  EXPECT_EQ(EncodedHex(kQ5_0, {}), "0080ffffffff" + std::string(32, '0'));
}

TEST(Q5_0, DecodesTheWitness) {
  const std::vector<uint64_t> first = {0xbfbe0000, 0xbf180000, 0x3e980000, 0x3f980000,
                                       0x3ff70000, 0xbf980000, 0xbe980000, 0x3f180000};
  EXPECT_EQ(DecodedWitness(kQ5_0), first);
}

TEST(Q5_0, TheLargestMagnitudeIsKeptAndItsOppositeClamped) {
  std::vector<double> row = {-16, 16, 15.4, 7.5, -0.5};
  row.resize(32, 0.0);
  const TensorMap stored = EncodeRows(kQ5_0, Profile(), RowOf(DType::kFloat32, row));
  std::vector<double> values = DecodedBlocks(kQ5_0, stored.at("blocks"));
  values.resize(5);
  EXPECT_EQ(values, (std::vector<double>{-16, 15, 15, 8, 0}));
}

// Every scale with every code in every place.
TEST(Q5_0, EveryScaleAndCodeIsTheirProduct) {
  Tensor blocks(DType::kUInt8, {{"", 1}, {"", 22}});
  int64_t judged = 0;
  for (uint32_t scale = 0; scale < 0x10000; ++scale) {
    const auto d = static_cast<float>(Decode(DType::kFloat16, scale));
    blocks.bytes[0] = static_cast<std::byte>(scale & 0xff);
    blocks.bytes[1] = static_cast<std::byte>(scale >> 8);
    for (uint32_t j = 2; j < 22; ++j) {
      blocks.bytes[j] = static_cast<std::byte>((17 * j + scale * 5) & 0xff);
    }
    const std::vector<double> values = DecodedBlocks(kQ5_0, blocks);
    for (size_t i = 0; i < 32; ++i) {
      const auto nibbles = std::to_integer<int>(blocks.bytes[6 + i % 16]);
      int code = (i < 16 ? nibbles & 15 : nibbles >> 4) - 16;
      code += 16 * (std::to_integer<int>(blocks.bytes[2 + i / 8]) >> (i % 8) & 1);
      const float product = static_cast<float>(code) * d;
      const auto value = static_cast<float>(values[i]);
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(value)) << scale << " " << i;
        continue;
      }
      ++judged;
      ASSERT_EQ(product, value) << scale << " " << i;
      ASSERT_EQ(std::signbit(product), std::signbit(value)) << scale << " " << i;
      ASSERT_EQ(static_cast<double>(value), values[i]) << scale << " " << i;
    }
  }
  EXPECT_GT(judged, 2'000'000);
}

TEST(Q5_0, BoundHoldsInEveryRegimeAndTypeAndIsReached) { ExpectBoundInEveryRegime(kQ5_0); }

TEST(Q5_0, BoundHoldsAtTheEndsOfTheScale) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double largest : {1.0, -1.0}) {
      const BoundCheck check = CheckBoundAt(kQ5_0, exponent, largest);
      EXPECT_EQ(check.violations, 0) << exponent;
      // 16 times the largest f16.
      EXPECT_EQ(check.without_bound, exponent > 19 ? 32 : 0) << exponent;
    }
  }
}

// Half a step, the naive bound, is passed by what is clamped.
TEST(Q5_0, HalfAStepIsNoBound) {
  std::vector<double> row = {-16, 16};
  row.resize(32, 0.0);
  const RowBound bound =
      RoundTripBound(kQ5_0, Profile(), DecodeRounding::kExact, DType::kFloat32, row);
  EXPECT_GE(bound.total[1], 1.0);
  EXPECT_LT(bound.total[0], 0.51);
}

TEST(Q5_0, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  std::vector<int> codes(32);
  std::iota(codes.begin(), codes.end(), -16);
  EXPECT_GT(ExpectWrongCodesShow(kQ5_0, codes), 0.5);
}

TEST(Q5_0, TheSignOfAScaleOfZerosIsOpenAndNothingElse) {
  EncodeJudge judge(kQ5_0, std::vector<double>(32, 0.0));
  EXPECT_EQ(judge.Judged(), Outcome::kPass);
  EXPECT_FALSE(judge.Fails(1, std::byte{0x80}));
  EXPECT_TRUE(judge.Fails(1, std::byte{0x40}));
  for (const size_t byte : {0u, 2u, 6u, 21u}) EXPECT_TRUE(judge.Fails(byte, std::byte{1})) << byte;
}

}  // namespace
}  // namespace kvcheck
