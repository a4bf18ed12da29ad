// iq4_nl beside what ggml itself writes and reads: the witnesses of formats.md, section C.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/reference/formats/ggml_sample.h"

namespace kvcheck {
namespace {

const KvFormat kIq4Nl = Iq4NlFormat{};

const std::vector<int> kTable = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

TEST(Iq4Nl, WritesTheBytesOfGgml) {
  EXPECT_EQ(EncodedHex(kIq4Nl, WitnessRow()), "c1a46e3b07c3814c19d5a2603b17c4815d2a");
  EXPECT_EQ(EncodedHex(kIq4Nl, {}).substr(0, 4), "0000");
}

TEST(Iq4Nl, DecodesTheWitness) {
  const std::vector<uint64_t> first = {0xbfd38c80, 0xbf34a600, 0x3e3e2800, 0x3f9a8080,
                                       0x3ff73400, 0xbf7bf500, 0xbe773400, 0x3f266300};
  EXPECT_EQ(DecodedWitness(kIq4Nl), first);
}

TEST(Iq4Nl, NanTakesTheWholeBlock) {
  std::vector<double> row = WitnessRow();
  row[9] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(EncodedHex(kIq4Nl, row).substr(0, 4), "0000");
}

// Every scale with every entry in every place.
TEST(Iq4Nl, EveryScaleAndCodeIsTheProductWithItsEntry) {
  Tensor blocks(DType::kUInt8, {{"", 1}, {"", 18}});
  int64_t judged = 0;
  for (uint32_t scale = 0; scale < 0x10000; ++scale) {
    const auto d = static_cast<float>(Decode(DType::kFloat16, scale));
    blocks.bytes[0] = static_cast<std::byte>(scale & 0xff);
    blocks.bytes[1] = static_cast<std::byte>(scale >> 8);
    for (uint32_t j = 0; j < 16; ++j) {
      blocks.bytes[2 + j] = static_cast<std::byte>((17 * j + scale) & 0xff);
    }
    const std::vector<double> values = DecodedBlocks(kIq4Nl, blocks);
    for (size_t i = 0; i < 32; ++i) {
      const auto byte = std::to_integer<size_t>(blocks.bytes[2 + i % 16]);
      const float product = static_cast<float>(kTable[i < 16 ? byte & 15 : byte >> 4]) * d;
      const auto value = static_cast<float>(values[i]);
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(value)) << scale << " " << i;
        continue;
      }
      ++judged;
      ASSERT_EQ(product, value) << scale << " " << i;
      ASSERT_EQ(static_cast<double>(value), values[i]) << scale << " " << i;
    }
  }
  EXPECT_GT(judged, 2'000'000);
}

// Of a block whose first scale is 1.
TEST(Iq4Nl, TheMiddleOfTwoEntriesIsTheUpperOne) {
  for (size_t entry = 1; entry < kTable.size(); ++entry) {
    const float middle = static_cast<float>(kTable[entry - 1] + kTable[entry]) / 2;
    std::vector<double> row = {-127, std::nextafter(middle, -200.0f), middle,
                               std::nextafter(middle, 200.0f)};
    row.resize(32, 0.0);
    const TensorMap stored = EncodeRows(kIq4Nl, Profile(), RowOf(DType::kFloat32, row));
    const std::vector<double> numbers = CodesAsNumbers(kIq4Nl, CodecRows(kIq4Nl, stored), 0, 1);
    EXPECT_EQ(numbers[0], -127);
    EXPECT_EQ(numbers[1], kTable[entry - 1]) << middle;
    EXPECT_EQ(numbers[2], kTable[entry]) << middle;
    EXPECT_EQ(numbers[3], kTable[entry]) << middle;
  }
}

TEST(Iq4Nl, BoundHoldsInEveryRegimeAndTypeAndIsReached) { ExpectBoundInEveryRegime(kIq4Nl); }

TEST(Iq4Nl, BoundHoldsAtTheEndsOfTheScale) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double largest : {1.0, -1.0}) {
      const BoundCheck check = CheckBoundAt(kIq4Nl, exponent, largest);
      EXPECT_EQ(check.violations, 0) << exponent;
      // 127 times the largest f16, from which the last scale may be an eighth away.
      if (exponent == 23) continue;
      EXPECT_EQ(check.without_bound, exponent > 23 ? 32 : 0) << exponent;
    }
  }
}

TEST(Iq4Nl, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  EXPECT_GT(ExpectWrongCodesShow(kIq4Nl, kTable), 0.5);
}

// d of the same codes with other sums: from the last channel to the first, fused or not.
double OtherScale(const std::vector<double>& row, const std::vector<double>& numbers, bool fused) {
  float above = 0, below = 0;
  for (size_t i = 32; i-- > 0;) {
    const auto x = static_cast<float>(row[i]), entry = static_cast<float>(numbers[i]);
    const float part = x * x * entry;
    above = fused ? std::fma(part, x, above) : above + part * x;
    below = fused ? std::fma(part, entry, below) : below + part * entry;
  }
  return above / below;
}

TEST(Iq4Nl, AnotherOrderOfTheSumsIsOpenAndNothingElse) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  int different = 0, blocks = 0;
  for (int run = 0; run < 20000; ++run) {
    std::vector<double> row(32);
    for (double& x : row) x = normal(random);
    const TensorMap stored = EncodeRows(kIq4Nl, Profile(), RowOf(DType::kFloat32, row));
    const std::vector<double> numbers = CodesAsNumbers(kIq4Nl, CodecRows(kIq4Nl, stored), 0, 1);
    for (const bool fused : {false, true}) {
      ++blocks;
      const uint64_t half = Encode(DType::kFloat16, OtherScale(row, numbers, fused));
      if (Decode(DType::kFloat16, half) == numbers[32]) continue;
      ++different;
      EncodeJudge judge(kIq4Nl, row);
      judge.blocks().bytes[0] = static_cast<std::byte>(half & 0xff);
      judge.blocks().bytes[1] = static_cast<std::byte>(half >> 8);
      EXPECT_EQ(judge.Judged(), Outcome::kPass) << run;
    }
  }
  EXPECT_GT(different, 2);
  EXPECT_LT(different, blocks / 100);
  // Away from the middle of two f16 numbers, no byte is open.
  EncodeJudge judge(kIq4Nl, WitnessRow());
  for (size_t byte = 0; byte < 18; ++byte) EXPECT_TRUE(judge.Fails(byte, std::byte{1})) << byte;
}

TEST(Iq4Nl, CodesOfAScaleOfZeroAreOpen) {
  std::vector<double> row(96, 0.0);
  for (size_t i = 32; i < 64; ++i) row[i] = 1e-7 * (static_cast<double>(i) - 40);
  row[70] = 1e15, row[80] = -1e20;  // its sums are beyond f32
  EncodeJudge judge(kIq4Nl, row);
  EXPECT_EQ(judge.Judged(), Outcome::kPass);
  const std::byte low{1}, sign{0x80};
  EXPECT_FALSE(judge.Fails(1, sign));
  for (const size_t byte : {0u, 1u, 18u, 19u}) EXPECT_TRUE(judge.Fails(byte, low)) << byte;
  EXPECT_TRUE(judge.Fails(19, sign));
  for (const size_t byte : {2u, 17u, 20u, 35u}) EXPECT_FALSE(judge.Fails(byte, low)) << byte;
  for (const size_t byte : {36u, 37u}) EXPECT_FALSE(judge.Fails(byte, low)) << byte;
  for (const size_t byte : {38u, 53u}) EXPECT_TRUE(judge.Fails(byte, low)) << byte;
}

}  // namespace
}  // namespace kvcheck
