// q4_0 beside what ggml itself writes and reads: the witnesses of formats.md, section C.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/ggml_sample.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

const KvFormat kQ4_0 = Q4_0Format{};

TEST(Q4_0, WritesTheBytesOfGgml) {
  EXPECT_EQ(EncodedHex(kQ4_0, WitnessRow()), "c0b46d3a07b4815c29d6a3704b18b5825c39");
  std::string zeros = "0080";
  for (int i = 0; i < 16; ++i) zeros += "88";
  EXPECT_EQ(EncodedHex(kQ4_0, {}), zeros);
}

TEST(Q4_0, DecodesTheWitness) {
  const std::vector<uint64_t> first = {0xbfbe0000, 0xbf180000, 0x3e980000, 0x3f980000,
                                       0x40050000, 0xbf980000, 0xbe980000, 0x3f180000};
  std::vector<double> values = DecodedBlocks(
      kQ4_0, EncodeRows(kQ4_0, Profile(), RowOf(DType::kFloat32, WitnessRow())).at("blocks"));
  values.resize(8);
  EXPECT_EQ(BitsOf(DType::kFloat32, values), first);
}

TEST(Q4_0, TheLargestMagnitudeIsKeptAndItsOppositeClamped) {
  std::vector<double> row = {-8, 8, 7.4, 3.5, -0.5};
  row.resize(32, 0.0);
  std::vector<double> values =
      DecodedBlocks(kQ4_0, EncodeRows(kQ4_0, Profile(), RowOf(DType::kFloat32, row)).at("blocks"));
  values.resize(5);
  EXPECT_EQ(values, (std::vector<double>{-8, 7, 7, 4, 0}));
}

// Every scale with every code in every place.
TEST(Q4_0, EveryScaleAndCodeIsTheirProduct) {
  Tensor blocks(DType::kUInt8, {{"", 1}, {"", 18}});
  int64_t judged = 0;
  for (int scale = 0; scale < 0x10000; ++scale) {
    const auto d = static_cast<float>(Decode(DType::kFloat16, static_cast<uint64_t>(scale)));
    blocks.bytes[0] = static_cast<std::byte>(scale & 0xff);
    blocks.bytes[1] = static_cast<std::byte>(scale >> 8);
    for (size_t j = 0; j < 16; ++j) {
      blocks.bytes[2 + j] = static_cast<std::byte>((17 * j + static_cast<size_t>(scale)) & 0xff);
    }
    const std::vector<double> values = DecodedBlocks(kQ4_0, blocks);
    for (size_t i = 0; i < 32; ++i) {
      const auto byte = std::to_integer<int>(blocks.bytes[2 + i % 16]);
      const float product = static_cast<float>((i < 16 ? byte & 15 : byte >> 4) - 8) * d;
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

TEST(Q4_0, BoundHoldsInEveryRegimeAndTypeAndIsReached) {
  BoundCheck all;
  for (const std::string_view regime : RowRegimes()) {
    for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      const BoundCheck check = CheckBound(kQ4_0, Profile(), GenerateRows(regime, 9, type, 16, 320));
      EXPECT_EQ(check.violations, 0) << regime << " " << Name(type);
      all.Add(check);
    }
  }
  EXPECT_GT(all.largest_ratio, 0.99);
}

TEST(Q4_0, BoundHoldsAtTheEndsOfTheScale) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    for (const double largest : {1.0, -1.0}) {
      std::vector<double> row(32);
      for (size_t i = 0; i < 32; ++i) {
        const double steps =
            i == 7 ? largest : std::fmod(0.37 * static_cast<double>(i), 1.9) - 0.95;
        row[i] = std::ldexp(steps, exponent);
      }
      const BoundCheck check = CheckBound(kQ4_0, Profile(), RowOf(DType::kFloat32, row));
      EXPECT_EQ(check.violations, 0) << exponent;
      // 8 times the largest f16.
      EXPECT_EQ(check.without_bound, exponent > 18 ? 32 : 0) << exponent;
    }
  }
}

// Half a step, the naive bound, is passed by what is clamped.
TEST(Q4_0, HalfAStepIsNoBound) {
  std::vector<double> row = {-8, 8};
  row.resize(32, 0.0);
  const RowBound bound =
      RoundTripBound(kQ4_0, Profile(), DecodeRounding::kExact, DType::kFloat32, row);
  EXPECT_GE(bound.total[1], 1.0);
  EXPECT_LT(bound.total[0], 0.51);
}

TEST(Q4_0, TheSignOfAScaleOfZerosIsOpenAndNothingElse) {
  const CodecCase c = {CodecDirection::kEncode, kQ4_0, DType::kFloat32, 1, 32, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", Tensor(DType::kFloat32, {{"", 1}, {"", 32}})}};
  const auto source = MakeCodecSource(c, Profile(), inputs);
  TensorMap got = EncodeRows(kQ4_0, Profile(), inputs.at("x"));
  const auto judged = [&](size_t byte, std::byte bit) {
    got.at("blocks").bytes[byte] ^= bit;
    const Outcome outcome = Judge(*source, MemorySink(got)).outcome;
    got.at("blocks").bytes[byte] ^= bit;
    return outcome;
  };
  EXPECT_EQ(judged(0, std::byte{0}), Outcome::kPass);
  EXPECT_EQ(judged(1, std::byte{0x80}), Outcome::kPass);
  EXPECT_EQ(judged(1, std::byte{0x40}), Outcome::kFail);
  EXPECT_EQ(judged(0, std::byte{1}), Outcome::kFail);
  EXPECT_EQ(judged(2, std::byte{1}), Outcome::kFail);
}

}  // namespace
}  // namespace kvcheck
