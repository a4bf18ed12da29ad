// The source of a codec case: tiles that cover every row once, values of the format's arithmetic,
// and everything that the format leaves open stated with its reason.

#include "reference/formats/codec_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/sample.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

CodecCase MakeCase(CodecDirection direction, KvFormat format, DType x, int64_t rows, int64_t dim,
                   std::string regime = "gauss") {
  return {direction, format, x, rows, dim, {std::move(regime), 1, ""}};
}

ExpectedTile OnlyTile(const CodecCase& c, const Profile& profile, const TensorMap& inputs,
                      size_t output = 0) {
  const auto source = MakeCodecSource(c, profile, inputs);
  EXPECT_EQ(source->TileCount(), 1);
  return source->Tiles(0, {.terms = true})[output];
}

TEST(CodecSource, TilesCoverEveryRowOfEveryOutputOnce) {
  for (const CodecDirection direction :
       {CodecDirection::kEncode, CodecDirection::kDecode, CodecDirection::kRoundTrip}) {
    for (const KvFormat& format : std::vector<KvFormat>{AffineFormat{3, 64, DType::kFloat32},
                                                        PlainFormat{DType::kFloat16}}) {
      for (const int64_t rows : {1, 2, 511, 512, 513}) {
        const CodecCase c = MakeCase(direction, format, DType::kFloat32, rows, 128);
        const TensorMap inputs = GenerateInputs(c, Profile());
        const auto source = MakeCodecSource(c, Profile(), inputs);
        std::map<int, int64_t> next;
        for (int64_t index = 0; index < source->TileCount(); ++index) {
          for (const ExpectedTile& tile : source->Tiles(index, {})) {
            const OutputInfo& info = source->Outputs()[static_cast<size_t>(tile.output)];
            EXPECT_EQ(tile.first_row, next[tile.output]);
            next[tile.output] += tile.row_count;
            EXPECT_EQ(tile.value.size(), static_cast<size_t>(tile.row_count * info.row_length));
            EXPECT_EQ(tile.bound.size(), tile.value.size());
            EXPECT_LE(tile.row_count * c.head_dim, 1 << 16);
          }
        }
        EXPECT_EQ(next.size(), source->Outputs().size());
        for (const auto& [output, end] : next) EXPECT_EQ(end, rows);
        EXPECT_EQ(source->TileCount(), (rows + 511) / 512);
      }
    }
  }
}

TEST(CodecSource, OutputsAreThoseOfTheCase) {
  for (const CodecDirection direction :
       {CodecDirection::kEncode, CodecDirection::kDecode, CodecDirection::kRoundTrip}) {
    for (const KvFormat& format : AllKvFormats()) {
      const CodecCase c = MakeCase(direction, format, DType::kFloat16, 2, 256);
      const TensorMap inputs = GenerateInputs(c, Profile());
      const auto specs = OutputSpecs(Case(c));
      const auto source = MakeCodecSource(c, Profile(), inputs);
      ASSERT_EQ(source->Outputs().size(), specs.size());
      for (const OutputInfo& info : source->Outputs()) {
        EXPECT_EQ(info.dtype, specs.at(info.name).dtype);
        EXPECT_EQ(info.shape, specs.at(info.name).shape);
        // decode=exact names no order of sums, which some formats have.
        const bool open = direction == CodecDirection::kDecode &&
                          ArithmeticOf(format)->LeavesDecodeOpen(Profile());
        EXPECT_EQ(info.claim == Claim::kAccuracy, direction == CodecDirection::kRoundTrip || open);
      }
    }
  }
}

TEST(CodecSource, EncodeExpectsTheWordsThemselves) {
  const AffineFormat format{6, 32, DType::kFloat32};
  const CodecCase c = MakeCase(CodecDirection::kEncode, format, DType::kFloat32, 3, 64);
  const TensorMap inputs = GenerateInputs(c, Profile());
  const TensorMap encoded = EncodeRows(format, Profile(), inputs.at("x"));
  const char* names[] = {"codes", "scales", "biases"};
  for (size_t output = 0; output < 3; ++output) {
    const ExpectedTile tile = OnlyTile(c, Profile(), inputs, output);
    EXPECT_EQ(tile.value, ValuesOf(encoded.at(names[output])));
    EXPECT_EQ(tile.bound, std::vector<double>(tile.value.size(), 0.0));
    EXPECT_TRUE(tile.alternatives.empty());
  }
}

TEST(CodecSource, OnlyTheCodeOfANanIsOpen) {
  const AffineFormat format{5, 32, DType::kFloat32};
  std::vector<double> row = ValuesOf(
      GenerateInputs(MakeCase(CodecDirection::kEncode, format, DType::kFloat32, 1, 96), Profile())
          .at("x"));
  row[32 + 6] = kNan;       // bits 30..34 of the second group: words 5 and 6
  row[64 + 1] = kInfinity;  // the whole third group
  const TensorMap inputs = {{"x", RowOf(DType::kFloat32, row)}};
  const CodecCase c = MakeCase(CodecDirection::kEncode, format, DType::kFloat32, 1, 96);
  const ExpectedTile codes = OnlyTile(c, Profile(), inputs, 0);
  std::vector<int64_t> open;
  std::vector<uint64_t> bits;
  for (const Alternative& alternative : codes.alternatives) {
    EXPECT_EQ(alternative.any, alternative.element >= 10);
    open.push_back(alternative.element);
    bits.push_back(alternative.free_bits);
  }
  EXPECT_EQ(open, (std::vector<int64_t>{5, 6, 10, 11, 12, 13, 14}));
  EXPECT_EQ(bits, (std::vector<uint64_t>{0xc0000000, 7, 0, 0, 0, 0, 0}));
  const ExpectedTile scales = OnlyTile(c, Profile(), inputs, 1);
  EXPECT_TRUE(std::isfinite(scales.value[1]));
  EXPECT_TRUE(std::isnan(scales.value[2]));
  EXPECT_TRUE(scales.alternatives.empty());
  Profile gpu;
  gpu.encode = AffineEncoder::kMlxGpu;
  EXPECT_EQ(OnlyTile(c, gpu, inputs, 0).alternatives.size(), 10u);
  EXPECT_EQ(OnlyTile(c, gpu, inputs, 1).alternatives.size(), 2u);
}

TEST(CodecSource, DecodeFollowsTheProfile) {
  const AffineFormat format{8, 64, DType::kBFloat16};
  const CodecCase c = MakeCase(CodecDirection::kDecode, format, DType::kBFloat16, 4, 128, "codes");
  const TensorMap inputs = GenerateInputs(c, Profile());
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  Profile one;
  one.decode = DecodeRounding::kOneRounding;
  EXPECT_EQ(OnlyTile(c, Profile(), inputs).value, OnlyTile(c, one, inputs).value);
  EXPECT_NE(OnlyTile(c, Profile(), inputs).value, OnlyTile(c, two, inputs).value);
}

TEST(CodecSource, AnExactZeroHasEitherSign) {
  const AffineFormat format{4, 32, DType::kFloat32};
  const CodecCase c = MakeCase(CodecDirection::kDecode, format, DType::kFloat32, 1, 32);
  const TensorMap inputs =
      EncodeRows(format, Profile(), RowOf(DType::kFloat32, std::vector<double>(32, 0.0)));
  const ExpectedTile exact = OnlyTile(c, Profile(), inputs);
  ASSERT_EQ(exact.alternatives.size(), 32u);
  EXPECT_NE(std::signbit(exact.alternatives[0].value), std::signbit(exact.value[0]));
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  EXPECT_TRUE(OnlyTile(c, two, inputs).alternatives.empty());
}

// ggml's decoders give a zero the sign of its scale times its code, and another one is another
// value; the real product has either.
TEST(CodecSource, AZeroOfGgmlHasTheSignThatItsDecoderGives) {
  for (const auto& [text, is_negative] :
       {std::pair{"q8_0", false}, {"q4_0", true}, {"q5_0", true}}) {
    const KvFormat format = ParseKvFormat(WholeLine(text));
    const CodecCase c = MakeCase(CodecDirection::kDecode, format, DType::kFloat32, 1, 32);
    const TensorMap inputs =
        EncodeRows(format, Profile(), RowOf(DType::kFloat32, std::vector<double>(32, 0.0)));
    EXPECT_EQ(OnlyTile(c, Profile(), inputs).alternatives.size(), 32u) << text;
    for (const DecodeRounding rounding :
         {DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
      Profile profile;
      profile.decode = rounding;
      const ExpectedTile tile = OnlyTile(c, profile, inputs);
      EXPECT_TRUE(tile.alternatives.empty()) << text;
      for (const double value : tile.value) {
        EXPECT_EQ(value, 0) << text;
        EXPECT_EQ(std::signbit(value), is_negative) << text;
      }
    }
  }
}

TEST(CodecSource, RoundTripIsJudgedAgainstTheRowItself) {
  const AffineFormat format{4, 32, DType::kFloat32};
  const CodecCase c = MakeCase(CodecDirection::kRoundTrip, format, DType::kFloat32, 3, 64);
  const TensorMap inputs = GenerateInputs(c, Profile());
  const ExpectedTile tile = OnlyTile(c, Profile(), inputs);
  EXPECT_EQ(tile.value, ValuesOf(inputs.at("x")));
  EXPECT_EQ(tile.terms.size(), 6u);
  const TensorMap encoded = EncodeRows(format, Profile(), inputs.at("x"));
  const std::vector<double> y =
      DecodeToRowType(format, Profile(), CodecRows(format, encoded), 0, 3);
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_LE(std::fabs(y[i] - tile.value[i]), tile.bound[i]);
    EXPECT_EQ(tile.mass[i], std::fabs(tile.value[i]));
  }
}

TEST(CodecSource, RowsWithoutADefinedOrBoundedRoundTripSaySo) {
  const AffineFormat format{8, 32, DType::kFloat16};
  Tensor x(DType::kFloat16, {{"", 3}, {"", 32}});
  std::vector<double> values(96, 1.0);
  values[40] = kNan;
  for (size_t i = 64; i < 96; ++i) values[i] = i % 2 == 0 ? 60000.0 : -60000.0;
  EncodeFrom(values, DType::kFloat16, x.bytes.data());
  const CodecCase c = MakeCase(CodecDirection::kRoundTrip, format, DType::kFloat16, 3, 32);
  const TensorMap inputs = {{"x", x}};
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  Profile gpu = two;
  gpu.encode = AffineEncoder::kMlxGpu;
  const ExpectedTile tile = OnlyTile(c, gpu, inputs);
  EXPECT_EQ(tile.standing,
            (std::vector<Standing>{Standing::kJudged, Standing::kUndefined, Standing::kUnbounded}));
  const auto source = MakeCodecSource(c, two, inputs);
  const std::vector<std::string>& reasons = source->Outputs()[0].reasons;
  EXPECT_NE(reasons[static_cast<size_t>(tile.standing_reason[1])].find("NaN"), std::string::npos);
  EXPECT_NE(reasons[static_cast<size_t>(tile.standing_reason[2])].find("overflow"),
            std::string::npos);
}

TEST(CodecSource, WhatStandsBesideANanIsJudged) {
  const AffineFormat format{8, 32, DType::kFloat32};
  Tensor x(DType::kFloat32, {{"", 1}, {"", 128}});
  std::vector<double> values(128);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01 * static_cast<double>(i) - 0.5;
  values[40] = kNan;
  values[70] = kInfinity;
  EncodeFrom(values, DType::kFloat32, x.bytes.data());
  const CodecCase c = MakeCase(CodecDirection::kRoundTrip, format, DType::kFloat32, 1, 128);
  const TensorMap inputs = {{"x", x}};
  Profile profile;
  profile.decode = DecodeRounding::kTwoRoundings;
  for (const AffineEncoder encode : {AffineEncoder::kMlxCpu, AffineEncoder::kMlxGpu}) {
    profile.encode = encode;
    const ExpectedTile tile = OnlyTile(c, profile, inputs);
    EXPECT_EQ(tile.standing[0], Standing::kJudged);
    ASSERT_EQ(tile.undefined.size(), 128u);
    const TensorMap encoded = EncodeRows(format, profile, x);
    const std::vector<double> y =
        DecodeToRowType(format, profile, CodecRows(format, encoded), 0, 1);
    for (size_t i = 0; i < 128; ++i) {
      const bool in_nan_group = i / 32 == 1;
      const bool open = i / 32 == 2 || (encode == AffineEncoder::kMlxGpu ? in_nan_group : i == 40);
      EXPECT_EQ(tile.undefined[i] != 0, open) << i;
      if (!open) {
        EXPECT_LE(std::fabs(y[i] - tile.value[i]), tile.bound[i]) << i;
      }
    }
  }
}

TEST(CodecSource, PlainFormatsMustKeepNanAndFollowTheirOverflowRule) {
  const TensorMap inputs = {{"x", RowOf(DType::kFloat32, {kNan, kInfinity, -1e6, 1.0, 500.0})}};
  const CodecCase c = MakeCase(CodecDirection::kRoundTrip, PlainFormat{DType::kFloat8E4M3FN},
                               DType::kFloat32, 1, 5);
  const ExpectedTile nan = OnlyTile(c, Profile(), inputs);
  EXPECT_EQ(nan.standing[0], Standing::kJudged);
  EXPECT_TRUE(std::isnan(nan.value[0]));
  EXPECT_TRUE(std::isnan(nan.value[1]));
  EXPECT_TRUE(std::isnan(nan.value[2]));
  Profile saturate;
  saturate.fp8_overflow = Fp8Overflow::kSaturate;
  const ExpectedTile saturated = OnlyTile(c, saturate, inputs);
  EXPECT_TRUE(std::isnan(saturated.value[0]));
  EXPECT_EQ(saturated.value[1], 448.0);
  EXPECT_EQ(saturated.value[4], 500.0);
  EXPECT_EQ(saturated.bound[4], 52.0);
  saturate.fp8_overflow = Fp8Overflow::kSaturateAll;
  const ExpectedTile all = OnlyTile(c, saturate, inputs);
  EXPECT_EQ(std::fabs(all.value[0]), 448.0);
  ASSERT_EQ(all.alternatives.size(), 1u);
  EXPECT_EQ(all.alternatives[0].value, -all.value[0]);
}

TEST(CodecSource, NamesTheProfileThatExplainsAValue) {
  const AffineFormat format{8, 64, DType::kBFloat16};
  const CodecCase c = MakeCase(CodecDirection::kDecode, format, DType::kBFloat16, 4, 128, "codes");
  const TensorMap inputs = GenerateInputs(c, Profile());
  const auto source = MakeCodecSource(c, Profile(), inputs);
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  const ExpectedTile expected = OnlyTile(c, Profile(), inputs);
  const ExpectedTile other = OnlyTile(c, two, inputs);
  const auto [a, b] =
      std::mismatch(expected.value.begin(), expected.value.end(), other.value.begin());
  ASSERT_NE(a, expected.value.end());
  Tensor y(DType::kBFloat16, source->Outputs()[0].shape);
  EncodeFrom(other.value, y.dtype, y.bytes.data());
  const auto changes = [&](const Tensor& got) {
    return Judge(*source, MemorySink(TensorMap{{"y", got}})).outputs[0].plan_changes;
  };
  ASSERT_EQ(changes(y).size(), 1u);
  EXPECT_EQ(Print(changes(y)[0]), "decode=two_roundings instead of decode=exact (the default)");
  // A profile that explains the worst element alone is no advice: one element is neither's.
  const auto at = static_cast<size_t>(b == other.value.begin() ? 1 : 0);
  y.As<uint16_t>()[at] ^= 1;
  EXPECT_TRUE(changes(y).empty());
}

TEST(CodecSource, NamesTheEncoderWhoseCodesTheseAre) {
  const AffineFormat format{4, 32, DType::kFloat16};
  const CodecCase c = MakeCase(CodecDirection::kEncode, format, DType::kFloat16, 8, 64);
  TensorMap inputs = GenerateInputs(c, Profile());
  // Where all values are negative the encoders take another range.
  for (int64_t i = 0; i < c.rows * c.head_dim; ++i) inputs.at("x").As<uint16_t>()[i] |= 0x8000;
  Profile gpu;
  gpu.encode = AffineEncoder::kMlxGpu;
  const auto source = MakeCodecSource(c, Profile(), inputs);
  const Verdict verdict = Judge(*source, MemorySink(EncodeRows(format, gpu, inputs.at("x"))));
  int64_t failing = 0;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.outcome != Outcome::kFail) continue;
    ++failing;
    ASSERT_EQ(output.plan_changes.size(), 1u) << output.name;
    EXPECT_EQ(Print(output.plan_changes[0]),
              "encode=mlx_gpu instead of encode=mlx_cpu (the default)");
  }
  EXPECT_GT(failing, 0);
}

TEST(CodecSource, RefusesInputsOfAnotherCase) {
  const CodecCase c = MakeCase(CodecDirection::kEncode, PlainFormat{}, DType::kFloat32, 1, 8);
  EXPECT_THROW(MakeCodecSource(c, Profile(), {}), Error);
  EXPECT_THROW(
      MakeCodecSource(c, Profile(), {{"x", RowOf(DType::kFloat16, std::vector<double>(8))}}),
      Error);
}

}  // namespace
}  // namespace kvcheck
