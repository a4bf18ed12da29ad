// Uniform codes beside a transcription of vLLM's kernel (golden/make/uniform.py): the witnesses of
// formats.md, section D.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

KvFormat Token(int bits) { return UniformFormat{bits, false, DType::kFloat32}; }

std::vector<double> Values(int bits, const TensorMap& stored) {
  return DecodeRows(Token(bits), Profile(), CodecRows(Token(bits), stored), 0, 1).hi;
}

TEST(Uniform, TheWitnessHasTheBytesOfVllm) {
  const Tensor x = RowOf(DType::kFloat32, WitnessRow());
  const TensorMap four = EncodeRows(Token(4), Profile(), x);
  EXPECT_EQ(Hex(four.at("codes")), "30a71e85fc63da41b82f960d74eb52c9");
  EXPECT_EQ(Hex(four.at("scales")), "2234");
  EXPECT_EQ(Hex(four.at("zeros")), "00be");  // -1.5
  const TensorMap three = EncodeRows(Token(3), Profile(), x);
  EXPECT_EQ(Hex(three.at("codes")), "d0ea887d5643ec331a5a1fd1");
  EXPECT_EQ(Hex(three.at("scales")), "6e38");
  const TensorMap cells = EncodeRows(UniformFormat{4, true, DType::kFloat32}, Profile(), x);
  EXPECT_EQ(Hex(cells.at("cells")),
            "30a71e85fc63da41b82f960d74eb52c9"
            "2234"
            "00be");
}

// Codes are made by the f32 scale, and read by what f16 keeps of it.
TEST(Uniform, CodesUseTheScaleBeforeItIsStored) {
  std::vector<double> row(8, 0.0);
  row[7] = 15;             // s = f32(15 * f32(1/15)) = 1
  row[1] = 1.5 - 0x1p-20;  // below the tie of codes 1 and 2
  const TensorMap stored = EncodeRows(Token(4), Profile(), RowOf(DType::kFloat32, row));
  EXPECT_EQ(Values(4, stored)[1], 1.0);
  row[1] = 1.5;  // half away from zero
  EXPECT_EQ(Values(4, EncodeRows(Token(4), Profile(), RowOf(DType::kFloat32, row)))[1], 2.0);
  // The step of 2^-11 more than 1 is lost in f16: codes are those of s, values those of 1.
  for (double& x : row) x *= 1 + 0x1p-12;
  const TensorMap kept = EncodeRows(Token(4), Profile(), RowOf(DType::kFloat32, row));
  EXPECT_EQ(Values(4, kept)[7], 15.0);
}

TEST(Uniform, EveryCodeIsItsNumberOfSteps) {
  for (const int bits : {3, 4}) {
    std::vector<double> row;
    for (int i = 0; i < 1 << bits; ++i) row.push_back(i - 3);
    const Tensor x = RowOf(DType::kFloat32, row);
    EXPECT_EQ(Values(bits, EncodeRows(Token(bits), Profile(), x)), row) << bits;
    for (const bool is_inline : {false, true}) {
      const KvFormat format = UniformFormat{bits, is_inline, DType::kFloat32};
      const TensorMap stored = EncodeRows(format, Profile(), x);
      EXPECT_EQ(DecodeRows(format, Profile(), CodecRows(format, stored), 0, 1).hi, row);
    }
  }
}

// A row of one value has a scale that f16 does not hold.
TEST(Uniform, ARowOfOneValueKeepsIt) {
  const TensorMap stored =
      EncodeRows(Token(3), Profile(), RowOf(DType::kFloat32, std::vector<double>(16, 2.5)));
  EXPECT_EQ(Hex(stored.at("scales")), "0000");
  EXPECT_EQ(Values(3, stored), std::vector<double>(16, 2.5));
}

TEST(Uniform, BoundHoldsInEveryRegimeAndTypeAndIsReached) {
  BoundCheck all;
  for (const std::string_view regime : RowRegimes()) {
    for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const UniformFormat& format : UniformFormat::All()) {
        for (const DecodeRounding decode : {DecodeRounding::kExact, DecodeRounding::kTwoRoundings,
                                            DecodeRounding::kOneRounding}) {
          Profile profile;
          profile.decode = decode;
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 9, type, 4, 128));
          EXPECT_EQ(check.violations, 0) << Print(KvFormat(format)) << " " << regime << " "
                                         << Name(type) << " " << Print(profile);
          all.Add(check);
        }
      }
    }
  }
  EXPECT_GT(all.largest_ratio, 0.99);
  EXPECT_LT(all.without_bound, all.judged / 4);
}

TEST(Uniform, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  int64_t claimed = 0, elements = 0;
  for (const char* regime : {"gauss", "offset", "all_negative", "sparse"}) {
    const Tensor x = GenerateRows(regime, 3, DType::kFloat32, 1, 128);
    const std::vector<double> values = ValuesOf(x);
    const RowBound bound = RoundTripBound(Token(4), Profile(), DecodeRounding::kExact, x.dtype,
                                          std::optional(DType::kFloat64), values);
    TensorMap stored = EncodeRows(Token(4), Profile(), x);
    const std::vector<std::byte> codes = stored.at("codes").bytes;
    for (size_t i = 0; i < values.size(); ++i) {
      ++elements;
      if (bound.overflows[i] || !(bound.total[i] < bound.wrong_code[i])) continue;
      ++claimed;
      const int shift = i % 2 == 0 ? 0 : 4;
      const int byte = std::to_integer<int>(codes[i / 2]);
      for (int other = 0; other < 16; ++other) {
        if (other == (byte >> shift & 15)) continue;
        stored.at("codes").bytes[i / 2] =
            static_cast<std::byte>((byte & ~(15 << shift)) | other << shift);
        EXPECT_GT(std::fabs(Values(4, stored)[i] - values[i]), bound.total[i])
            << regime << " " << i;
      }
      stored.at("codes").bytes[i / 2] = codes[i / 2];
    }
  }
  EXPECT_GT(claimed, elements / 2);
}

// Encodes x and judges it with one bit of one byte of a plane changed.
Outcome JudgedWith(const KvFormat& format, const Tensor& x, const char* plane, size_t byte,
                   std::byte change) {
  const int64_t rows = x.shape.axes[0].extent;
  const CodecCase c = {CodecDirection::kEncode, format,          x.dtype, rows,
                       x.shape.RowLength(),     {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", x}};
  TensorMap got = EncodeRows(format, Profile(), x);
  got.at(plane).bytes[byte] ^= change;
  return Judge(*MakeCodecSource(c, Profile(), inputs), MemorySink(got)).outcome;
}

TEST(Uniform, TheSignOfAZeroMinimumIsOpenWhereZerosOfBothSignsAre) {
  for (const bool both : {true, false}) {
    std::vector<double> row(16, 1.0);
    row[4] = 0.0;
    if (both) row[9] = -0.0;
    const Tensor x = RowOf(DType::kFloat32, row);
    const Outcome want = both ? Outcome::kPass : Outcome::kFail;
    EXPECT_EQ(JudgedWith(Token(4), x, "zeros", 1, std::byte{0x80}), want);
    EXPECT_EQ(JudgedWith(UniformFormat{4, true, DType::kFloat32}, x, "cells", 11, std::byte{0x80}),
              want);
    EXPECT_EQ(JudgedWith(Token(4), x, "zeros", 1, std::byte{0x40}), Outcome::kFail);
  }
}

TEST(Uniform, NothingIsPromisedOfARowThatIsNotFinite) {
  std::vector<double> values(64, 1.0);
  values[3] = std::numeric_limits<double>::infinity();
  Tensor x(DType::kFloat32, {{"", 2}, {"", 32}});
  EncodeFrom(values, DType::kFloat32, x.bytes.data());
  const std::byte bit{1};
  EXPECT_EQ(JudgedWith(Token(4), x, "codes", 15, bit), Outcome::kPass);
  EXPECT_EQ(JudgedWith(Token(4), x, "codes", 16, bit), Outcome::kFail);
  EXPECT_EQ(JudgedWith(Token(4), x, "scales", 0, bit), Outcome::kPass);
  EXPECT_EQ(JudgedWith(Token(4), x, "zeros", 3, bit), Outcome::kFail);
}

}  // namespace
}  // namespace kvcheck
