// NVFP4 beside what MLX itself writes and reads, and vLLM's cache kernel as its source has it: the
// witnesses of formats.md, section B.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

Profile Writer(Nvfp4Encoder encoder) {
  Profile profile;
  profile.nvfp4_encode = encoder;
  return profile;
}

TensorMap Stored(const std::string& format, Nvfp4Encoder encoder, std::vector<double> row) {
  row.resize((row.size() + 15) / 16 * 16, 0.0);
  const KvFormat of = FormatNamed(format);
  return EncodeRows(of, Writer(encoder), RowOf(RowDType(of), row));
}

std::vector<double> Decoded(const std::string& format, const TensorMap& stored,
                            DecodeRounding decode = DecodeRounding::kTwoRoundings) {
  Profile profile;
  profile.decode = decode;
  const KvFormat of = FormatNamed(format);
  return DecodeToRowType(of, profile, CodecRows(of, stored), 0, 1);
}

TEST(Nvfp4, WritesAndReadsAsMlx) {
  const TensorMap stored = Stored("nvfp4:bf16", Nvfp4Encoder::kMlx, WitnessRow());
  EXPECT_EQ(Hex(stored.at("codes")), "be51d639761c64ad63c740e62b759d64");
  EXPECT_EQ(Hex(stored.at("scales")), "2d2c");
  const std::vector<uint64_t> first = {0xbfd0, 0xbf1c, 0x3e50, 0x3f9c, 0x3fd0, 0xbf9c, 0xbe50};
  std::vector<double> values = Decoded("nvfp4:bf16", stored);
  values.resize(first.size());
  EXPECT_EQ(BitsOf(DType::kBFloat16, values), first);
}

TEST(Nvfp4, SmallBlocksAreLostAndLargeOnesSaturate) {
  // Below 6 * 2^-10 the scale is 0.
  TensorMap stored = Stored("nvfp4:f32", Nvfp4Encoder::kMlx, {0.0058, -0.001});
  EXPECT_EQ(Hex(stored.at("scales")), "00");
  EXPECT_EQ(Hex(stored.at("codes")), "0000000000000000");
  stored = Stored("nvfp4:f32", Nvfp4Encoder::kMlx, {1e6, -3000, 2688});
  EXPECT_EQ(Hex(stored.at("scales")), "7e");
  EXPECT_EQ(Decoded("nvfp4:f32", stored)[0], 2688);
  EXPECT_EQ(Decoded("nvfp4:f32", stored)[1], -2688);
}

// MLX 0.32.4: the first element whose distance in f32 is least. From quotients of 2^25 on distances
// are rounded, and beyond 2^27 they are all equal. Codes: MLX 0.32.4.
TEST(Nvfp4, MlxTakesTheFirstElementWhereAllAreEquallyFar) {
  TensorMap stored = Stored("nvfp4:f32", Nvfp4Encoder::kMlx, std::vector<double>(16, 1.8e30));
  EXPECT_EQ(Hex(stored.at("scales")), "7e");
  EXPECT_EQ(Hex(stored.at("codes")), "0000000000000000");
  const double s = 448;
  stored = Stored("nvfp4:f32", Nvfp4Encoder::kMlx,
                  {s * 0x1p24, -s * 0x1p25, s * (0x1p25 + 8), s * (0x1p25 + 12), -s * (0x1p25 + 12),
                   s * (0x1p26 + 8), s * 0x1p27, -s * 0x1.8p27});
  EXPECT_EQ(Hex(stored.at("scales")), "7e");
  EXPECT_EQ(Hex(stored.at("codes")).substr(0, 8), "f7476c07");
  // Not so other writers: they saturate.
  stored = Stored("nvfp4:f32", Nvfp4Encoder::kVllm, std::vector<double>(16, 1.8e30));
  EXPECT_EQ(Hex(stored.at("codes")), "7777777777777777");
}

TEST(Nvfp4, TheBoundHoldsWhereDistancesAreRounded) {
  const KvFormat format = FormatNamed("nvfp4:f32");
  const Profile profile = Writer(Nvfp4Encoder::kMlx);
  for (int exponent = 20; exponent < 40; ++exponent) {
    std::vector<double> row;
    for (int i = 0; i < 16; ++i) {
      const double x = 448 * std::ldexp(1 + i / 16.0 + i * 0x1p-23, exponent);
      row.push_back(static_cast<float>(i % 3 == 0 ? -x : x));
    }
    const std::vector<double> read =
        Decoded("nvfp4:f32", EncodeRows(format, profile, RowOf(DType::kFloat32, row)));
    const RowBound bound =
        RoundTripBound(format, profile, DecodeRounding::kTwoRoundings, DType::kFloat32, row);
    for (size_t i = 0; i < row.size(); ++i) {
      EXPECT_LE(std::fabs(read[i] - row[i]), bound.total[i]) << exponent << " " << i;
    }
  }
}

TEST(Nvfp4, AGlobalScaleMultipliesEveryValue) {
  const TensorMap stored = Stored("nvfp4:x0.25:f32", Nvfp4Encoder::kMlx, {6, 1.5, -0.25});
  EXPECT_EQ(Hex(stored.at("scales")), "48");  // 4: 6 / 6 / 0.25
  EXPECT_EQ(Hex(stored.at("codes")).substr(0, 4), "3700");
  EXPECT_EQ(Decoded("nvfp4:x0.25:f32", stored)[1], 1.5);
  EXPECT_EQ(Decoded("nvfp4:x0.5:f32", stored)[1], 3);
}

TEST(Nvfp4, ProductsWithAGlobalScaleRoundAsTheProfileSays) {
  int differ = 0;
  for (const char* factor : {"0.011", "0.0123", "0.07", "0.9", "3.3"}) {
    const std::string format = std::string("nvfp4:x") + factor + ":f32";
    const float global = std::get<Nvfp4Format>(FormatNamed(format)).global_scale;
    const TensorMap stored = Stored(format, Nvfp4Encoder::kMlx, {6.86, 3.3, 0.8, 2.1, -1.2, 0.4});
    const double scale =
        Decode(DType::kFloat8E4M3FN, std::to_integer<uint64_t>(stored.at("scales").bytes[0]));
    const float step = static_cast<float>(scale) * global;
    const std::vector<double> once = Decoded(format, stored, DecodeRounding::kOneRounding);
    const std::vector<double> twice = Decoded(format, stored);
    for (size_t i = 0; i < 6; ++i) {
      const auto byte = std::to_integer<unsigned>(stored.at("codes").bytes[i / 2]);
      const double element = Decode(DType::kFloat4E2M1FN, byte >> (4 * (i % 2)) & 15);
      const double exact = element * scale * static_cast<double>(global);
      EXPECT_EQ(twice[i], static_cast<double>(static_cast<float>(element) * step)) << i;
      EXPECT_EQ(once[i], static_cast<double>(static_cast<float>(exact))) << i;
      differ += once[i] != twice[i] ? 1 : 0;
    }
  }
  EXPECT_GT(differ, 0);
}

TEST(Nvfp4, VllmRoundsTiesToEvenAndKeepsSigns) {
  const std::vector<double> ties = {6,     0.25,  0.75,  1.25,  1.75, 2.5,  3.5, 5,
                                    -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5,  -0.1};
  EXPECT_EQ(Hex(Stored("nvfp4:f32", Nvfp4Encoder::kVllm, ties).at("codes")), "07224466a8caec8e");
  EXPECT_EQ(Hex(Stored("nvfp4:f32", Nvfp4Encoder::kMlx, ties).at("codes")), "0721436590badc0e");
}

TEST(Nvfp4, FourOverSixTakesTheSmallerError) {
  // 5 of a maximum of 6 becomes 4; with the maximum at 4 it becomes 3 of 4.
  const std::vector<double> row = {6, 4.5, 4.5, 4.5, 4.5};
  const TensorMap six = Stored("nvfp4:bf16", Nvfp4Encoder::kVllm, row);
  const TensorMap four = Stored("nvfp4:bf16", Nvfp4Encoder::kVllm4Over6, row);
  EXPECT_EQ(Hex(six.at("scales")), "38");
  EXPECT_EQ(Hex(four.at("scales")), "3c");  // 1.5
  EXPECT_EQ(Decoded("nvfp4:bf16", four)[1], 4.5);
  EXPECT_EQ(Decoded("nvfp4:bf16", six)[1], 4);
  // What six keeps exactly stays with six.
  EXPECT_EQ(Hex(Stored("nvfp4:bf16", Nvfp4Encoder::kVllm4Over6, {6, 3, 2}).at("scales")), "38");
}

class Nvfp4Writer : public testing::TestWithParam<Nvfp4Encoder> {};

TEST_P(Nvfp4Writer, BoundHoldsInEveryRegimeAndTypeAndIsReached) {
  std::vector<KvFormat> formats = {FormatNamed("nvfp4:x1000:bf16"),
                                   FormatNamed("nvfp4:x1e-20:f32")};
  for (const KvFormat& format : AllKvFormats()) {
    if (std::holds_alternative<Nvfp4Format>(format)) formats.push_back(format);
  }
  for (const KvFormat& format : formats) {
    BoundCheck all;
    for (const std::string_view regime : RowRegimes()) {
      for (const DecodeRounding decode :
           {DecodeRounding::kExact, DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
        Profile profile = Writer(GetParam());
        profile.decode = decode;
        for (const DType type : {DType::kFloat64, RowDType(format)}) {
          const int64_t blocks = BlockOf(format) == Nvfp4Format::kBlock ? 20 : 2;
          const BoundCheck check = CheckBound(
              format, profile, GenerateRows(regime, 9, type, 8, blocks * BlockOf(format)));
          EXPECT_EQ(check.violations, 0)
              << Print(format) << " " << regime << " " << Name(type) << " " << Print(profile);
          all.Add(check);
        }
      }
    }
    EXPECT_GT(all.largest_ratio, 0.98) << Print(format);
    EXPECT_LT(all.without_bound, all.judged / 4) << Print(format);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Nvfp4Writer,
                         testing::Values(Nvfp4Encoder::kMlx, Nvfp4Encoder::kVllm,
                                         Nvfp4Encoder::kVllm4Over6),
                         [](const auto& info) {
                           return std::string(
                               FieldOf(CodecChoice::kNvfp4Encode).value(Writer(info.param)));
                         });

Outcome Judged(const std::string& text, Nvfp4Encoder encoder, std::vector<double> row,
               const std::string& plane, size_t byte, int change) {
  row.resize(16, 0.0);
  const KvFormat format = FormatNamed(text);
  const CodecCase c = {CodecDirection::kEncode, format, RowDType(format), 1, 16, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", RowOf(RowDType(format), row)}};
  const auto source = MakeCodecSource(c, Writer(encoder), inputs);
  TensorMap got = EncodeRows(format, Writer(encoder), inputs.at("x"));
  got.at(plane).bytes[byte] ^= static_cast<std::byte>(change);
  return Judge(*source, MemorySink(got)).outcome;
}

TEST(Nvfp4, ApproximateReciprocalsLeaveTiesOpenAndNothingElse) {
  // 0.25 of 6 is a tie of the codes 0 and 1.
  EXPECT_EQ(Judged("nvfp4:f32", Nvfp4Encoder::kVllm, {6, 0.25}, "codes", 0, 0x10), Outcome::kPass);
  EXPECT_EQ(Judged("nvfp4:f32", Nvfp4Encoder::kVllm, {6, 0.26}, "codes", 0, 0x10), Outcome::kFail);
  EXPECT_EQ(Judged("nvfp4:f32", Nvfp4Encoder::kVllm, {6, 0.25}, "codes", 0, 0x20), Outcome::kFail);
  EXPECT_EQ(Judged("nvfp4:f32", Nvfp4Encoder::kMlx, {6, 0.25}, "codes", 0, 0x10), Outcome::kFail);
  EXPECT_EQ(Judged("nvfp4:f32", Nvfp4Encoder::kVllm, {6, 0.25}, "scales", 0, 1), Outcome::kFail);
  // A scale halfway between 1 and 1.125.
  EXPECT_EQ(Judged("nvfp4:f32", Nvfp4Encoder::kVllm, {6.375}, "scales", 0, 1), Outcome::kPass);
}

// Byte s div (S/4) S + s mod (S/4) 4 + t, played out over pages of two sizes.
TEST(Nvfp4, SwizzledScalesStandInTheOrderOfVOnSm100) {
  for (const int64_t head_dim : {int64_t{64}, int64_t{192}}) {
    for (const char* scale : {"bf16", "x0.011:f32"}) {
      const KvFormat linear = FormatNamed(std::string("nvfp4:") + scale);
      const KvFormat swizzled = FormatNamed(std::string("nvfp4:swizzled:") + scale);
      constexpr int64_t kPages = 3, kTokens = 4;
      const Tensor tokens =
          GenerateRows("group_scales", 7, RowDType(linear), kPages * kTokens, head_dim);
      Tensor pages(tokens.dtype, {{"", kPages}, {"", kTokens * head_dim}});
      pages.bytes = tokens.bytes;
      const TensorMap by_token = EncodeRows(linear, Writer(Nvfp4Encoder::kVllm), tokens);
      const TensorMap by_page = EncodeRows(swizzled, Writer(Nvfp4Encoder::kVllm), pages);
      EXPECT_EQ(by_page.at("codes").bytes, by_token.at("codes").bytes);
      EXPECT_NE(by_page.at("scales").bytes, by_token.at("scales").bytes);
      const auto scales = static_cast<size_t>(head_dim / 16);
      for (size_t row = 0; row < kPages * kTokens; ++row) {
        const size_t page = row / kTokens, t = row % kTokens;
        for (size_t s = 0; s < scales; ++s) {
          const size_t line = s / (scales / 4), column = s % (scales / 4) * 4 + t;
          EXPECT_EQ(by_page.at("scales").bytes[(page * kTokens + line) * scales + column],
                    by_token.at("scales").bytes[row * scales + s])
              << head_dim << " " << row << " " << s;
        }
      }
      Profile profile;
      profile.decode = DecodeRounding::kTwoRoundings;
      EXPECT_EQ(DecodeToRowType(swizzled, profile, CodecRows(swizzled, by_page), 0, kPages),
                DecodeToRowType(linear, profile, CodecRows(linear, by_token), 0, kPages * kTokens));
    }
  }
}

// A scale halfway between 1 and 1.125, of token 2 and block 3: byte 3 * 4 + 2 of the page.
TEST(Nvfp4, WhatIsOpenOfASwizzledScaleMovesWithIt) {
  const KvFormat format = FormatNamed("nvfp4:swizzled:f32");
  std::vector<double> page(256, 0.0);
  page[2 * 64 + 3 * 16] = 6.375;
  const TensorMap inputs = {{"x", RowOf(DType::kFloat32, page)}};
  const Profile profile = Writer(Nvfp4Encoder::kVllm);
  const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 1, 256, {"gauss", 1, ""}};
  const auto source = MakeCodecSource(c, profile, inputs);
  for (size_t byte = 0; byte < 16; ++byte) {
    TensorMap got = EncodeRows(format, profile, inputs.at("x"));
    got.at("scales").bytes[byte] ^= std::byte{1};
    EXPECT_EQ(Judge(*source, MemorySink(got)).outcome, byte == 14 ? Outcome::kPass : Outcome::kFail)
        << byte;
  }
}

TEST(Nvfp4, TextsNameTheGlobalScale) {
  EXPECT_EQ(Print(FormatNamed("nvfp4:x0.0110:bf16")), "nvfp4:x0.011:bf16");
  EXPECT_EQ(FormatNamed("nvfp4:x0.1:f32"), FormatNamed(Print(FormatNamed("nvfp4:x0.1:f32"))));
  EXPECT_EQ(Print(FormatNamed("nvfp4:swizzled:x0.0110:bf16")), "nvfp4:swizzled:x0.011:bf16");
  EXPECT_EQ(Print(FormatNamed("nvfp4:swizzled:f32")), "nvfp4:swizzled:f32");
  for (const char* text :
       {"nvfp4:x1:f32", "nvfp4:x0:f32", "nvfp4:x-1:f32", "nvfp4:xnan:f32", "nvfp4:x1e39:f32",
        "nvfp4:x:f32", "nvfp4:f64", "nvfp4:0.1:f32", "nvfp4:x0.5:swizzled:f32",
        "nvfp4:swizzled:swizzled:f32", "nvfp4:swizzled", "hadamard:64:nvfp4:swizzled:f32"}) {
    EXPECT_ANY_THROW(FormatNamed(text)) << text;
  }
}

}  // namespace
}  // namespace kvcheck
