// q4_1 and q5_1 beside what ggml itself writes and reads: the witnesses of formats.md, section C.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "tests/reference/formats/ggml_sample.h"

namespace kvcheck {
namespace {

// A block has scale and minimum in 4 bytes, of q5_1 the fifth bits of its codes in 4, and nibbles.
struct Family {
  const char* name;
  KvFormat format;
  uint32_t block_bytes;
  size_t codes;
  const char* witness;
  std::vector<uint64_t> decoded_witness;  // its first values, as f32

  size_t nibbles() const { return block_bytes - 16; }
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class GgmlRanged : public testing::TestWithParam<Family> {
 protected:
  const KvFormat& format_ = GetParam().format;
  const uint32_t bytes_ = GetParam().block_bytes;

  Tensor Block() const { return Tensor(DType::kUInt8, {{"", 1}, {"", bytes_}}); }
};

INSTANTIATE_TEST_SUITE_P(Families, GgmlRanged,
                         testing::Values(Family{"q4_1",
                                                Q4_1Format{},
                                                20,
                                                16,
                                                "223400be80b3f72a6e91d5084c7fb3e62a5d91c4",
                                                {0xbfc00000, 0xbf39a000, 0x3e9dc000, 0x3f8aa000,
                                                 0x40077000, 0xbf9ef000, 0xbe558000, 0x3f110000}},
                                         Family{
                                             "q5_1", Q5_1Format{}, 24, 32,
                                             "003000be983367cc0077ee55cc33aa1188ff66dd44bb2299",
                                             BitsOf(DType::kFloat32, {-1.5, -0.625, 0.25, 1.125, 2,
                                                                      -1.125, -0.25, 0.625})}),
                         [](const auto& family) { return std::string(family.param.name); });

TEST_P(GgmlRanged, WritesTheBytesOfGgml) {
  EXPECT_EQ(EncodedHex(format_, WitnessRow()), GetParam().witness);
  EXPECT_EQ(EncodedHex(format_, {}), std::string(2 * bytes_, '0'));
}

// m is the value, and d 0.
TEST_P(GgmlRanged, AConstantBlockIsItsMinimum) {
  EXPECT_EQ(EncodedHex(format_, std::vector<double>(32, -1.5)),
            "000000be" + std::string(2 * (bytes_ - 4), '0'));
}

TEST_P(GgmlRanged, NanIsReadAsTheMinimum) {
  std::vector<double> row = WitnessRow();
  row[1] = std::numeric_limits<double>::quiet_NaN();
  const TensorMap stored = EncodeRows(format_, Profile(), RowOf(DType::kFloat32, row));
  EXPECT_EQ(DecodedBlocks(format_, stored.at("blocks"))[1], -1.5);
}

TEST_P(GgmlRanged, DecodesTheWitness) {
  EXPECT_EQ(DecodedWitness(format_), GetParam().decoded_witness);
}

// Every scale with every code in every place, beside minima of all magnitudes and signs: the sum as
// f32 rounds it, once.
TEST_P(GgmlRanged, EveryScaleAndCodeIsTheirProductAndTheMinimum) {
  Tensor blocks = Block();
  int64_t judged = 0;
  for (uint32_t scale = 0; scale < 0x10000; ++scale) {
    const uint32_t least = scale * 40503 & 0xffff;
    const auto d = static_cast<float>(Decode(DType::kFloat16, scale));
    const auto m = static_cast<float>(Decode(DType::kFloat16, least));
    blocks.bytes[0] = static_cast<std::byte>(scale & 0xff);
    blocks.bytes[1] = static_cast<std::byte>(scale >> 8);
    blocks.bytes[2] = static_cast<std::byte>(least & 0xff);
    blocks.bytes[3] = static_cast<std::byte>(least >> 8);
    for (uint32_t j = 4; j < bytes_; ++j) {
      blocks.bytes[j] = static_cast<std::byte>((17 * j + scale * 5) & 0xff);
    }
    const std::vector<double> values = DecodedBlocks(format_, blocks);
    for (size_t i = 0; i < 32; ++i) {
      const auto nibbles = std::to_integer<int>(blocks.bytes[GetParam().nibbles() + i % 16]);
      int code = i < 16 ? nibbles & 15 : nibbles >> 4;
      if (GetParam().codes == 32) {
        code += 16 * (std::to_integer<int>(blocks.bytes[4 + i / 8]) >> (i % 8) & 1);
      }
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
TEST_P(GgmlRanged, TheRealNumbersAreNotRounded) {
  Tensor blocks = Block();
  blocks.bytes[0] = std::byte{1};     // 2^-24
  blocks.bytes[3] = std::byte{0x78};  // 2^15
  blocks.bytes[GetParam().nibbles()] = std::byte{1};
  const TensorMap stored = {{"blocks", blocks}};
  EXPECT_EQ(DecodeRows(format_, Profile(), CodecRows(format_, stored), 0, 1).hi[0],
            0x1p15 + 0x1p-24);
  EXPECT_EQ(DecodedBlocks(format_, blocks)[0], 0x1p15);
}

TEST_P(GgmlRanged, BoundHoldsInEveryRegimeAndTypeAndIsReached) {
  ExpectBoundInEveryRegime(format_);
}

TEST_P(GgmlRanged, BoundHoldsAtTheEndsOfTheScale) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double largest : {1.0, -1.0}) {
      const BoundCheck check = CheckBoundAt(format_, exponent, largest);
      EXPECT_EQ(check.violations, 0) << exponent;
      // The minimum is -0.95 or -1 times the power of two, and f16 ends below 2^16.
      EXPECT_EQ(check.without_bound, exponent > (largest > 0 ? 16 : 15) ? 32 : 0) << exponent;
    }
  }
}

// The rounding of the minimum does not shrink with the range.
TEST_P(GgmlRanged, TheBoundOfAnOffsetBlockIsThatOfItsMinimum) {
  std::vector<double> row(32, 40);
  for (size_t i = 0; i < 32; ++i) row[i] += 0x1p-10 * static_cast<double>(i % 7);
  const RowBound bound =
      RoundTripBound(format_, Profile(), DecodeRounding::kExact, DType::kFloat32, row);
  EXPECT_GE(bound.total[3], 40 * 0x1p-11);
  EXPECT_LT(bound.total[3], 44 * 0x1p-11);
}

TEST_P(GgmlRanged, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  std::vector<int> codes(GetParam().codes);
  std::iota(codes.begin(), codes.end(), 0);
  EXPECT_GT(ExpectWrongCodesShow(format_, codes), 0.3);
}

TEST_P(GgmlRanged, WhatAWriterMayDoOtherwiseIsOpenAndNothingElse) {
  std::vector<double> row(128, 1.0);
  for (size_t i = 0; i < 32; ++i) row[i] = static_cast<double>(i);  // minimum 0
  row[32 + 5] = std::numeric_limits<double>::quiet_NaN();
  row[64] = 3e38, row[65] = -3e38;
  row[97] = 1 + 0x1p-23;
  EncodeJudge judge(format_, row);
  EXPECT_EQ(judge.Judged(), Outcome::kPass);
  const std::byte sign{0x80}, low{1};
  EXPECT_FALSE(judge.Fails(3, sign));
  const auto fails = [&](size_t block, std::initializer_list<size_t> bytes) {
    for (const size_t byte : bytes) {
      EXPECT_TRUE(judge.Fails(block * bytes_ + byte, low)) << block << " " << byte;
    }
  };
  const auto passes = [&](size_t block, std::initializer_list<size_t> bytes) {
    for (const size_t byte : bytes) {
      EXPECT_FALSE(judge.Fails(block * bytes_ + byte, low)) << block << " " << byte;
    }
  };
  const size_t last = bytes_ - 1;
  fails(0, {0, 1, 2, 3, 4, last});
  EXPECT_TRUE(judge.Fails(1, sign));
  passes(1, {0, 3, last});
  // The range is beyond f32: scale and minimum are infinite, and codes say nothing.
  fails(2, {0, 3});
  passes(2, {4, last});
  // A range that f16 does not hold leaves codes as they are.
  fails(3, {0, 3, 4, last});
}

}  // namespace
}  // namespace kvcheck
