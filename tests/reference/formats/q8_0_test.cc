// q8_0 beside what ggml itself writes and reads: the witnesses of formats.md, section C.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
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
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

const KvFormat kQ8_0 = Q8_0Format{};

Profile Writer(GgmlEncoder encoder) {
  Profile profile;
  profile.ggml_encode = encoder;
  return profile;
}

std::string Encoded(GgmlEncoder encoder, std::vector<double> row) {
  row.resize(32, 0.0);
  return Hex(EncodeRows(kQ8_0, Writer(encoder), RowOf(DType::kFloat32, row)).at("blocks"));
}

TensorMap BlockOf(uint16_t scale, const std::array<uint8_t, 32>& codes) {
  Tensor blocks(DType::kUInt8, {{"", 1}, {"", 34}});
  blocks.bytes[0] = static_cast<std::byte>(scale & 0xff);
  blocks.bytes[1] = static_cast<std::byte>(scale >> 8);
  for (size_t i = 0; i < 32; ++i) blocks.bytes[2 + i] = static_cast<std::byte>(codes[i]);
  return {{"blocks", blocks}};
}

TEST(Q8_0, WritesTheBytesOfGgml) {
  const std::string witness =
      "ca24b0df0d3c6bc4f321507fd8073564bdec1b4a78d1002f5eb6e5144372cbf92857";
  for (const GgmlEncoder encoder : {GgmlEncoder::kReference, GgmlEncoder::kX86}) {
    EXPECT_EQ(Encoded(encoder, WitnessRow()), witness);
    EXPECT_EQ(Encoded(encoder, {}), std::string(68, '0'));
  }
}

TEST(Q8_0, TheTwoWritersRoundTiesTheirOwnWay) {
  const std::vector<double> ties = {127, .5, -1.5, 2.5};
  EXPECT_EQ(Encoded(GgmlEncoder::kReference, ties), "003c7f01fe03" + std::string(56, '0'));
  EXPECT_EQ(Encoded(GgmlEncoder::kX86, ties), "003c7f00fe02" + std::string(56, '0'));
}

TEST(Q8_0, TheTwoWritersLoseNanTheirOwnWay) {
  std::vector<double> row(32, .5);
  row[0] = 10, row[1] = kNan;
  std::string reference = "081cec00", x86 = "0a2d7f80";
  for (int i = 2; i < 32; ++i) reference += "7f", x86 += "06";
  EXPECT_EQ(Encoded(GgmlEncoder::kReference, row), reference);
  EXPECT_EQ(Encoded(GgmlEncoder::kX86, row), x86);
}

TEST(Q8_0, DecodesTheWitness) {
  const std::vector<uint64_t> first = {0xbfbf9000, 0xbf1e0a00, 0x3e790800, 0x3f8fac00,
                                       0x40001b80, 0xbf8fac00, 0xbe790800, 0x3f1e0a00};
  std::vector<double> values = DecodedBlocks(
      kQ8_0, EncodeRows(kQ8_0, Profile(), RowOf(DType::kFloat32, WitnessRow())).at("blocks"));
  values.resize(8);
  EXPECT_EQ(BitsOf(DType::kFloat32, values), first);
}

// Every scale with every code: the product as f32 computes it, and nothing of it is rounded.
TEST(Q8_0, EveryScaleAndCodeIsTheirProduct) {
  std::array<uint8_t, 32> codes;
  int64_t judged = 0;
  for (int scale = 0; scale < 0x10000; ++scale) {
    const auto half = static_cast<uint16_t>(scale);
    const auto d = static_cast<float>(Decode(DType::kFloat16, half));
    // A walk through all codes: each block has another eighth of them.
    for (size_t i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(8 * i + half % 8);
    const std::vector<double> values = DecodedBlocks(kQ8_0, BlockOf(half, codes).at("blocks"));
    for (size_t i = 0; i < 32; ++i) {
      const auto code = static_cast<int8_t>(codes[i]);
      const float product = static_cast<float>(code) * d;
      const auto value = static_cast<float>(values[i]);
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(value)) << scale << " " << int{code};
        continue;
      }
      ++judged;
      ASSERT_EQ(product, value) << scale << " " << int{code};
      ASSERT_EQ(static_cast<double>(value), values[i]) << scale << " " << int{code};
      ASSERT_EQ(std::signbit(product), std::signbit(value)) << scale << " " << int{code};
    }
  }
  EXPECT_GT(judged, 2'000'000);
}

TEST(Q8_0, BoundHoldsForBothWritersInEveryRegimeAndType) {
  for (const GgmlEncoder encoder : {GgmlEncoder::kReference, GgmlEncoder::kX86}) {
    BoundCheck all;
    for (const std::string_view regime : RowRegimes()) {
      for (const DType type :
           {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        const BoundCheck check =
            CheckBound(kQ8_0, Writer(encoder), GenerateRows(regime, 9, type, 16, 320));
        EXPECT_EQ(check.violations, 0) << regime << " " << Name(type);
        all.Add(check);
      }
    }
    EXPECT_GT(all.largest_ratio, 0.99);
    EXPECT_LE(all.largest_ratio, 1);
  }
}

// Near the ends of f16 and of what a reciprocal of f32 holds.
TEST(Q8_0, BoundHoldsAtTheEndsOfTheScale) {
  for (const GgmlEncoder encoder : {GgmlEncoder::kReference, GgmlEncoder::kX86}) {
    for (int exponent = -149; exponent <= 127; ++exponent) {
      std::vector<double> row(32);
      for (size_t i = 0; i < 32; ++i) {
        const double steps = i == 7 ? 1 : std::fmod(0.37 * static_cast<double>(i), 1.9) - 0.95;
        row[i] = std::ldexp(steps, exponent);
      }
      const BoundCheck check = CheckBound(kQ8_0, Writer(encoder), RowOf(DType::kFloat32, row));
      EXPECT_EQ(check.violations, 0) << exponent;
      // 127 times the largest f16.
      EXPECT_EQ(check.without_bound, exponent > 22 ? 32 : 0) << exponent;
    }
  }
}

TEST(Q8_0, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  int64_t claimed = 0, elements = 0;
  for (const char* regime : {"gauss", "offset", "all_negative", "tiny", "constant", "sparse"}) {
    const Tensor x = GenerateRows(regime, 2, DType::kFloat32, 1, 128);
    const std::vector<double> values = ValuesOf(x);
    const RowBound bound = RoundTripBound(kQ8_0, Profile(), DecodeRounding::kExact, x.dtype,
                                          std::optional(DType::kFloat64), values);
    const TensorMap stored = EncodeRows(kQ8_0, Profile(), x);
    const std::vector<double> numbers = CodesAsNumbers(kQ8_0, CodecRows(kQ8_0, stored), 0, 1);
    for (size_t i = 0; i < 128; ++i) {
      ++elements;
      if (bound.overflows[i] || !(bound.total[i] < bound.wrong_code[i])) continue;
      ++claimed;
      const double scale = numbers[128 + i / 32];
      for (int code = -128; code <= 127; ++code) {
        const double error = std::fabs(code * scale - values[i]);
        if (code == numbers[i]) {
          EXPECT_LE(error, bound.total[i]);
        } else {
          EXPECT_GT(error, bound.total[i]) << regime << " " << i << " " << code;
        }
      }
    }
  }
  EXPECT_GT(claimed, elements / 2);
}

TEST(Q8_0, WhatAWriterMayDoOtherwiseIsOpen) {
  std::vector<double> row(128, 1.0);
  row[32 + 5] = kNan;
  row[64 + 9] = -kInfinity;
  for (size_t i = 96; i < 128; ++i) row[i] = 0x1p-140;
  const CodecCase c = {CodecDirection::kEncode, kQ8_0, DType::kFloat32, 1, 128, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", RowOf(DType::kFloat32, row)}};
  const auto source = MakeCodecSource(c, Profile(), inputs);
  TensorMap got = EncodeRows(kQ8_0, Profile(), inputs.at("x"));
  std::vector<std::byte>& bytes = got.at("blocks").bytes;
  const auto judged = [&](size_t byte) {
    bytes[byte] ^= std::byte{1};
    const Outcome outcome = Judge(*source, MemorySink(got)).outcome;
    bytes[byte] ^= std::byte{1};
    return outcome == Outcome::kFail;
  };
  EXPECT_EQ(Judge(*source, MemorySink(got)).outcome, Outcome::kPass);
  for (const size_t byte : {0u, 1u, 2u, 33u}) EXPECT_TRUE(judged(byte)) << byte;
  for (const size_t byte : {34u, 36u, 67u, 68u, 70u, 101u}) EXPECT_FALSE(judged(byte)) << byte;
  // The scale is 0, and the codes say nothing.
  for (const size_t byte : {102u, 103u}) EXPECT_TRUE(judged(byte)) << byte;
  for (const size_t byte : {104u, 135u}) EXPECT_FALSE(judged(byte)) << byte;
}

TEST(Q8_0, TheOtherWriterIsNamed) {
  std::vector<double> row(32, 0.0);
  row[0] = 127, row[1] = 0.5;
  const CodecCase c = {CodecDirection::kEncode, kQ8_0, DType::kFloat32, 1, 32, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", RowOf(DType::kFloat32, row)}};
  const auto source = MakeCodecSource(c, Profile(), inputs);
  const Verdict verdict =
      Judge(*source, MemorySink(EncodeRows(kQ8_0, Writer(GgmlEncoder::kX86), inputs.at("x"))));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  const auto declared = source->OtherReadings(0)[0].declared;
  ASSERT_TRUE(declared);
  EXPECT_EQ(Print(*declared), "ggml_encode=x86 instead of ggml_encode=reference (the default)");
}

}  // namespace
}  // namespace kvcheck
