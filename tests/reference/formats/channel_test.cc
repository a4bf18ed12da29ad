// Codes per channel beside what optimum-quanto makes: the witnesses of formats.md, section G.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/codec_tiles.h"
#include "reference/formats/error_bound.h"
#include "reference/spec/case.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/token_groups.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

TEST(Channel, TheWitnessHasTheBytesOfQuanto) {
  struct Row {
    int bits;
    const char* type;
    const char* codes;
    const char* scale;  // of every channel
    const char* zeros;
    std::vector<uint64_t> decoded;  // first token
  };
  const char* const f32_zeros = "0000c0bf000090bf0000a0bf0000b0bf";
  const std::vector<Row> rows = {
      {2,
       "f32",
       "90934f4e3a39e5e4",
       "5555953f",
       f32_zeros,
       {0xbfc00000, 0xbf900000, 0xbdaaaab0, 0x3f755554}},
      {4,
       "f32",
       "20b60f94fd62db40b92f960d64fb42d9",
       "efee6e3e",
       f32_zeros,
       {0xbfc00000, 0xbf288888, 0x3e199998, 0x3f988888}},
      {2, "f16", "90934f4e3a39e5e4", "ab3c", "00be80bc00bd80bd", {0xbe00, 0xbc80, 0xad50, 0x3bac}},
      {4,
       "f16",
       "20b60f94fd62db40b92f960d64fb42d9",
       "7733",
       "00be80bc00bd80bd",
       {0xbe00, 0xb944, 0x30c8, 0x3cc4}},
      {2, "bf16", "90934f4e3a39e5e4", "953f", "c0bf90bfa0bfb0bf", {0xbfc0, 0xbf90, 0xbdb0, 0x3f74}},
      {4,
       "bf16",
       "20b60f94fd62db40b92f960d64fb42d9",
       "6f3e",
       "c0bf90bfa0bfb0bf",
       {0xbfc0, 0xbf28, 0x3e18, 0x3f98}}};
  Profile profile;
  profile.decode = DecodeRounding::kTwoRoundings;
  for (const Row& row : rows) {
    const KvFormat format = FormatNamed(fmt::format("channel:{}:g8:{}", row.bits, row.type));
    const TensorMap stored = EncodeRows(format, profile, RowOf(RowDType(format), WitnessRow()));
    const std::string scale = row.scale;
    EXPECT_EQ(Hex(stored.at("codes")), row.codes) << Print(format);
    EXPECT_EQ(Hex(stored.at("scales")), scale + scale + scale + scale) << Print(format);
    EXPECT_EQ(Hex(stored.at("zeros")), row.zeros) << Print(format);
    std::vector<double> token = DecodeToRowType(format, profile, CodecRows(format, stored), 0, 1);
    token.resize(4);
    EXPECT_EQ(BitsOf(RowDType(format), token), row.decoded) << Print(format);
  }
}

// hqq 0.2.8 without its search, and the transcription of OpenVINO's vector code: codes, the scales
// and zeros of four channels, the first token.
TEST(Channel, WritersWithAZeroPointHaveTheirOwnScalesAndValues) {
  struct Row {
    const char* writer;
    int bits;
    const char* type;
    const char* codes;
    const char* scales;
    const char* zeros;
    std::vector<uint64_t> decoded;
  };
  const char* const of_4_bits = "20b60f94fd62db40b92f960d64fb42d9";
  const char* const of_8_bits = "00246db6ff004992dbff246db6db004992b6ff246d92db00496db6ff244992db";
  const std::vector<Row> rows = {{"hqq",
                                  4,
                                  "f32",
                                  of_4_bits,
                                  "eeee6e3eeeee6e3eeeee6e3eeeee6e3e",
                                  "dcb6cd4025499a40b86dab404a92bc40",
                                  {0xbfc00000, 0xbf288889, 0x3e199990, 0x3f988887}},
                                 {"hqq",
                                  4,
                                  "f16",
                                  of_4_bits,
                                  "7733773377337733",
                                  "6e46d2445b45e545",
                                  {0xbe00, 0xb943, 0x30d0, 0x3cc4}},
                                 {"hqq",
                                  8,
                                  "bf16",
                                  of_8_bits,
                                  "613c613c613c613c",
                                  "db42a442b642c842",
                                  {0xbfc0, 0xbf22, 0x3e7d, 0x3f90}},
                                 {"openvino",
                                  4,
                                  "f32",
                                  of_4_bits,
                                  "f0ee6e3ef0ee6e3ef0ee6e3ef0ee6e3e",
                                  "dbb6cd4024499a40b66dab404892bc40",
                                  {0xbfc00000, 0xbf288888, 0x3e1999a1, 0x3f98888a}},
                                 {"openvino",
                                  8,
                                  "f32",
                                  of_8_bits,
                                  "e2e0603ce2e0603ce2e0603ce2e0603c",
                                  "4892da42b6eda3429124b6426d5bc842",
                                  {0xbfc00000, 0xbf218181, 0x3e7bfc06, 0x3f8fbfc1}}};
  for (const Row& row : rows) {
    const Profile profile =
        ParseProfile(fmt::format("decode=two_roundings channel={}", row.writer));
    const KvFormat format = FormatNamed(fmt::format("channel:{}:g8:{}", row.bits, row.type));
    const TensorMap stored = EncodeRows(format, profile, RowOf(RowDType(format), WitnessRow()));
    const std::string what = std::string(row.writer) + " " + Print(format);
    EXPECT_EQ(Hex(stored.at("codes")), row.codes) << what;
    EXPECT_EQ(Hex(stored.at("scales")), row.scales) << what;
    EXPECT_EQ(Hex(stored.at("zeros")), row.zeros) << what;
    std::vector<double> token = DecodeToRowType(format, profile, CodecRows(format, stored), 0, 1);
    token.resize(4);
    EXPECT_EQ(BitsOf(RowDType(format), token), row.decoded) << what;
  }
}

// A channel that is the same in all tokens is its zero, whatever the others are.
TEST(Channel, GroupsRunAlongTokens) {
  std::vector<double> row(8 * 4);
  for (size_t t = 0; t < 8; ++t) {
    for (size_t c = 0; c < 4; ++c)
      row[t * 4 + c] = c == 2 ? -3 : std::ldexp(1.0 + double(t), int(c));
  }
  const KvFormat format = FormatNamed("channel:4:g8:f32");
  const TensorMap stored = EncodeRows(format, {}, RowOf(DType::kFloat32, row));
  EXPECT_EQ(ValuesOf(stored.at("zeros")), (std::vector<double>{1, 2, -3, 8}));
  const std::vector<double> scales = ValuesOf(stored.at("scales"));
  EXPECT_EQ(scales[2], 0);
  for (const size_t c : {size_t{0}, size_t{1}, size_t{3}}) {
    EXPECT_EQ(scales[c], double(float(std::ldexp(7.0, int(c))) / 15.0f));
  }
  const DecodedRows decoded = DecodeRows(format, {}, CodecRows(format, stored), 0, 1);
  for (size_t t = 0; t < 8; ++t) EXPECT_EQ(decoded.hi[t * 4 + 2], -3);
}

// What a cache keeps of its residual: nothing is quantized, not even a value that has no range.
TEST(Channel, AGroupOfOneTokenIsItsZeros) {
  const std::vector<double> row = {0.1f,   -0.0, 3e38f, std::numeric_limits<double>::infinity(),
                                   1e-45f, -7,   65504, 1};
  const KvFormat format = FormatNamed("channel:4:g1:f32");
  const TensorMap stored = EncodeRows(format, {}, RowOf(DType::kFloat32, row));
  EXPECT_EQ(stored.at("zeros").bytes, RowOf(DType::kFloat32, row).bytes);
  EXPECT_EQ(Hex(stored.at("codes")), "00000000");
  EXPECT_EQ(DecodeRows(format, {}, CodecRows(format, stored), 0, 1).hi, row);
}

TEST(Channel, ErrorsAreWithinTheBound) {
  for (const char* text : {"channel:2:g8:f32", "channel:4:g32:f16", "channel:8:g8:bf16",
                           "channel:8:g64:r128:f16", "channel:2:g1:bf16"}) {
    const KvFormat format = FormatNamed(text);
    BoundCheck all;
    for (const Profile& profile : FieldOf(CodecChoice::kChannel).variants({})) {
      for (const Profile& read : FieldOf(CodecChoice::kDecode).variants(profile)) {
        for (const std::string_view regime : RowRegimes()) {
          all.Add(CheckBound(format, read, GenerateRows(regime, 5, RowDType(format), 6, 512)));
        }
      }
    }
    EXPECT_EQ(all.violations, 0) << text;
    EXPECT_GT(all.judged, 10000) << text;
    // A bound twice as large as any error would hide a codec that is twice as bad.
    if (GroupsTokens(format)) {
      EXPECT_GT(all.largest_ratio, 0.5) << text;
    }
  }
}

// NaN, infinity or a range beyond the type cost their channel and no other; where the scale is 0,
// codes mean nothing.
TEST(Channel, OnlyTheChannelOfANanIsOpen) {
  std::vector<double> row = WitnessRow();
  row[4 * 3 + 1] = std::numeric_limits<double>::quiet_NaN();
  for (size_t t = 0; t < 8; ++t) row[4 * t + 2] = 5;
  const KvFormat format = FormatNamed("channel:4:g8:f32");
  const Tensor x = RowOf(DType::kFloat32, row);
  const std::vector<ExpectedTile> tiles = EncodedTiles(format, {}, x, {}, {});
  ASSERT_EQ(tiles.size(), 3u);
  // Two tokens a word: the codes of channel 1 and 2.
  ASSERT_EQ(tiles[0].alternatives.size(), 4u);
  for (const Alternative& alternative : tiles[0].alternatives) {
    EXPECT_EQ(alternative.free_bits, 0x0ff00ff0u);
  }
  for (const size_t plane : {1u, 2u}) {
    ASSERT_EQ(tiles[plane].alternatives.size(), 1u);
    EXPECT_EQ(tiles[plane].alternatives[0].element, 1);
    EXPECT_TRUE(tiles[plane].alternatives[0].any);
  }
  const RowBound bound =
      RoundTripBound(format, {}, DecodeRounding::kExact, DType::kFloat32, std::nullopt, row);
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_EQ(bound.undefined[i], i % 4 == 1) << i;
    EXPECT_EQ(std::isinf(bound.total[i]), i % 4 == 1) << i;
    if (i % 4 == 2) {
      EXPECT_EQ(bound.total[i], 0) << i;
    }
  }
}

// The range of a channel may leave a type that holds its values.
TEST(Channel, ARangeBeyondTheTypeHasNoBound) {
  std::vector<double> row(8 * 4, 1.0);
  row[0] = 60000;
  row[4] = -60000;
  const RowBound bound = RoundTripBound(FormatNamed("channel:4:g8:f16"), {}, DecodeRounding::kExact,
                                        DType::kFloat16, std::nullopt, row);
  EXPECT_TRUE(bound.overflows[0]);
  EXPECT_FALSE(bound.undefined[0]);
  EXPECT_FALSE(bound.overflows[1]);
}

}  // namespace
}  // namespace kvcheck
