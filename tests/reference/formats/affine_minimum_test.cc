// Affine rows as KIVI writes V (encode=kivi): the witnesses of formats.md, section A, as
// optimum-quanto makes them, the bound, what is open, and where MLX's rows differ.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/codec_tiles.h"
#include "reference/formats/error_bound.h"
#include "reference/formats/stored_codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/implementation.h"
#include "reference/spec/tolerance.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

Profile Kivi(const char* fields = "") { return ParseProfile(fmt::format("encode=kivi{}", fields)); }

TEST(AffineFromMinimum, TheWitnessHasTheBytesOfQuanto) {
  struct Row {
    int bits;
    const char* type;
    const char* codes;
    const char* scale;
    const char* bias;
    std::vector<uint64_t> decoded;  // the first four
  };
  const char* const of_2_bits = "94935e4e3a39e5a4";
  const std::vector<Row> rows = {
      {2,
       "f32",
       of_2_bits,
       "5555a53f",
       "0000c0bf",
       {0xbfc00000, 0xbe555558, 0xbe555558, 0x3f8aaaaa}},
      {4,
       "f32",
       "30a71e85fc63da41b82f960d74eb52c9",
       "4444843e",
       "0000c0bf",
       {0xbfc00000, 0xbf39999a, 0x3e9ddddc, 0x3f8aaaaa}},
      {2, "f16", of_2_bits, "2b3d", "00be", {0xbe00, 0xb2a8, 0xb2a8, 0x3c56}},
      {4,
       "f16",
       "30a71e85fc63da41b82f960d74eb52c9",
       "2234",
       "00be",
       {0xbe00, 0xb9cd, 0x34f0, 0x3c54}},
      {2, "bf16", of_2_bits, "a53f", "c0bf", {0xbfc0, 0xbe58, 0xbe58, 0x3f8a}},
      {4,
       "bf16",
       "30a71e85fc63da41b82f960d74eb52c9",
       "843e",
       "c0bf",
       {0xbfc0, 0xbf3a, 0x3e9c, 0x3f8a}}};
  const Profile profile = Kivi(" decode=two_roundings");
  for (const Row& row : rows) {
    const KvFormat format = FormatNamed(fmt::format("affine:{}:g32:{}", row.bits, row.type));
    const TensorMap stored = EncodeRows(format, profile, RowOf(RowDType(format), WitnessRow()));
    EXPECT_EQ(Hex(stored.at("codes")), row.codes) << Print(format);
    EXPECT_EQ(Hex(stored.at("scales")), row.scale) << Print(format);
    EXPECT_EQ(Hex(stored.at("biases")), row.bias) << Print(format);
    std::vector<double> first = DecodeToRowType(format, profile, CodecRows(format, stored), 0, 1);
    first.resize(4);
    EXPECT_EQ(BitsOf(RowDType(format), first), row.decoded) << Print(format);
  }
}

// The same arithmetic as of a channel's tokens: a group of one channel stores the same numbers.
TEST(AffineFromMinimum, AGroupIsThatOfAChannelOfAsManyTokens) {
  for (const std::string_view regime : RowRegimes()) {
    for (const char* type : {"f32", "f16", "bf16"}) {
      for (const int bits : {2, 4, 8}) {
        const KvFormat along_channels = FormatNamed(fmt::format("affine:{}:g32:{}", bits, type));
        const KvFormat along_tokens = FormatNamed(fmt::format("channel:{}:g32:{}", bits, type));
        const Tensor x = GenerateRows(regime, 5, RowDType(along_channels), 9, 32);
        const TensorMap affine = EncodeRows(along_channels, Kivi(), x);
        const TensorMap channel = EncodeRows(along_tokens, {}, x);
        EXPECT_EQ(affine.at("codes").bytes, channel.at("codes").bytes) << regime << " " << type;
        EXPECT_EQ(affine.at("scales").bytes, channel.at("scales").bytes) << regime << " " << type;
        EXPECT_EQ(affine.at("biases").bytes, channel.at("zeros").bytes) << regime << " " << type;
      }
    }
  }
}

TEST(AffineFromMinimum, ErrorsAreWithinTheBound) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const char* type : {"f32", "f16", "bf16"}) {
      const KvFormat format = FormatNamed(fmt::format("affine:{}:g32:{}", bits, type));
      BoundCheck all;
      for (const Profile& read : FieldOf(CodecChoice::kDecode).variants(Kivi())) {
        for (const std::string_view regime : RowRegimes()) {
          all.Add(CheckBound(format, read, GenerateRows(regime, 5, RowDType(format), 6, 256)));
        }
      }
      EXPECT_EQ(all.violations, 0) << Print(format);
      EXPECT_GT(all.judged, 10000) << Print(format);
      // A bound twice as large as any error would hide a codec that is twice as bad.
      EXPECT_GT(all.largest_ratio, 0.5) << Print(format);
    }
  }
}

// Nothing of a group that is no finite range, no codes of one without a step, and all of others.
TEST(AffineFromMinimum, OnlyGroupsWithoutAMeaningAreOpen) {
  std::vector<double> row(128);
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(1.0 + static_cast<double>(i));
  row[40] = kNan;
  std::fill(row.begin() + 64, row.begin() + 96, -3.0);
  const KvFormat format = FormatNamed("affine:4:g32:f32");
  const Tensor x = RowOf(DType::kFloat32, row);
  const std::vector<ExpectedTile> tiles = EncodedTiles(format, Kivi(), x, {}, {});
  ASSERT_EQ(tiles.size(), 3u);
  std::vector<int64_t> open;
  for (const Alternative& alternative : tiles[0].alternatives) {
    EXPECT_TRUE(alternative.any);
    open.push_back(alternative.element);
  }
  EXPECT_EQ(open, (std::vector<int64_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  for (const size_t plane : {1u, 2u}) {
    ASSERT_EQ(tiles[plane].alternatives.size(), 1u);
    EXPECT_EQ(tiles[plane].alternatives[0].element, 1);
  }
  const RowBound bound =
      RoundTripBound(format, Kivi(), DecodeRounding::kExact, DType::kFloat32, std::nullopt, row);
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(bound.undefined[i], i / 32 == 1) << i;
    EXPECT_EQ(std::isinf(bound.total[i]), i / 32 == 1) << i;
    if (i / 32 == 2) {
      EXPECT_EQ(bound.total[i], 0) << i;
    }
  }
}

// A range may leave a type that holds the values.
TEST(AffineFromMinimum, ARangeBeyondTheTypeHasNoBound) {
  std::vector<double> row(64, 1.0);
  row[0] = 60000;
  row[1] = -60000;
  const RowBound bound = RoundTripBound(FormatNamed("affine:4:g32:f16"), Kivi(),
                                        DecodeRounding::kExact, DType::kFloat16, std::nullopt, row);
  EXPECT_TRUE(bound.overflows[0]);
  EXPECT_FALSE(bound.undefined[0]);
  EXPECT_FALSE(bound.overflows[32]);
}

// Who reads rows of MLX as KIVI's, or the other way round, is told whose they are.
TEST(AffineFromMinimum, TheHintNamesTheWriter) {
  CodecCase c;
  c.direction = CodecDirection::kEncode;
  c.format = FormatNamed("affine:4:g32:f16");
  c.x = DType::kFloat16;
  c.rows = 8;
  c.head_dim = 64;
  const TensorMap inputs = {{"x", GenerateRows("gauss", 1, c.x, c.rows, c.head_dim)}};
  const auto hints = [&](const Profile& declared, const Profile& writer) {
    const auto source = MakeCodecSource(c, declared, inputs);
    const Verdict verdict =
        Judge(*source, MemorySink(EncodeRows(c.format, writer, inputs.at("x"))));
    EXPECT_EQ(verdict.outcome, Outcome::kFail);
    return Texts(verdict.outputs[0].plan_changes);
  };
  EXPECT_EQ(hints({}, Kivi()),
            std::vector<std::string>{"encode=kivi instead of encode=mlx_cpu (the default)"});
  // Without ties, and with elements of both signs, MLX's two write the same.
  EXPECT_EQ(hints(Kivi(), {}), (std::vector<std::string>{"encode=mlx_cpu instead of encode=kivi",
                                                         "encode=mlx_gpu instead of encode=kivi"}));
}

// A rule without `encode` means MLX's writers: stating kivi admits other rows, and the hint says
// so.
TEST(AffineFromMinimum, HasToBeStatedInARule) {
  const Tensor x = GenerateRows("gauss", 3, DType::kFloat32, 16, 64);
  const KvFormat format = FormatNamed("affine:2:g32:f32");
  const TensorMap stored = EncodeRows(format, Kivi(), x);
  Tensor got(DType::kFloat32, x.shape);
  EncodeFrom(
      DecodeToRowType(format, Kivi(" decode=two_roundings"), CodecRows(format, stored), 0, 16),
      got.dtype, got.bytes.data());
  const auto judged = [&](const std::string& rule) {
    const MemorySink originals(TensorMap{{"x", x}});
    const MemorySink observed(TensorMap{{"k", got}});
    const auto parsed = std::get<CodecRule>(ParseToleranceRule(WholeLine(rule)));
    return Judge(*MakeDequantisedSource(parsed, originals, "x", "k", got.dtype), observed);
  };
  const std::string loose = "codec:affine:2:g32:f32";
  EXPECT_EQ(judged(loose + ",encode=kivi").outcome, Outcome::kPass);
  const Verdict of_mlx = judged(loose);
  EXPECT_EQ(of_mlx.outcome, Outcome::kFail);
  const std::vector<std::string>& said = of_mlx.assumptions;
  EXPECT_NE(std::find(said.begin(), said.end(), "encode=mlx_cpu or mlx_gpu"), said.end());
  EXPECT_EQ(
      Texts(of_mlx.outputs[0].plan_changes),
      std::vector<std::string>{"encode=kivi instead of encode=mlx_cpu or mlx_gpu (the default)"});
  // What the rule states is none.
  EXPECT_EQ(Texts(judged(loose + ",encode=mlx_cpu").outputs[0].plan_changes),
            std::vector<std::string>{"encode=kivi instead of encode=mlx_cpu"});
}

}  // namespace
}  // namespace kvcheck
