// TurboQuant with half a bit: two turboquant formats of the halves of the channels, put together
// here channel by channel.

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "reference/spec/split_turboquant_format.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

// Channels of a group that are in the high half, by the digits of the text.
std::vector<bool> HighOf(const SplitTurboquantFormat& format) {
  const std::string digits = PrintChannelBits(format.high, format.group_size);
  std::vector<bool> high;
  for (int channel = 0; channel < format.group_size; ++channel) {
    const std::string word = digits.substr(static_cast<size_t>(channel / 32) * 8, 8);
    high.push_back((std::stoull(word, nullptr, 16) >> channel % 32 & 1) != 0);
  }
  return high;
}

std::vector<double> HalfOf(const std::vector<double>& row, const std::vector<bool>& high,
                           bool which) {
  std::vector<double> part;
  for (size_t i = 0; i < row.size(); ++i) {
    if (high[i % high.size()] == which) part.push_back(row[i]);
  }
  return part;
}

TEST(SplitTurboquant, HalvesAreStoredAsRowsOfTheirOwn) {
  int64_t words_seen = 0;
  for (const SplitTurboquantFormat& format : SplitTurboquantFormat::All()) {
    const std::vector<bool> high = HighOf(format);
    const auto dim = static_cast<size_t>(2 * format.group_size);
    const Tensor x = GenerateRows("group_scales", 3, format.row_type, 1, static_cast<int64_t>(dim));
    const std::vector<double> row = ValuesOf(x);
    const TensorMap stored = EncodeRows(format, {}, x);
    std::vector<uint32_t> words;
    std::vector<double> norms, want(dim);
    for (const bool which : {false, true}) {
      const KvFormat half = which ? format.High() : format.Low();
      const TensorMap part = EncodeRows(half, {}, RowOf(format.row_type, HalfOf(row, high, which)));
      for (const uint32_t word : WordsOf(part.at("codes"))) words.push_back(word);
      for (const double norm : ValuesOf(part.at("norms"))) norms.push_back(norm);
      const std::vector<double> values = DecodeToRowType(half, {}, CodecRows(half, part), 0, 1);
      size_t next = 0;
      for (size_t i = 0; i < dim; ++i) {
        if (high[i % high.size()] == which) want[i] = values[next++];
      }
      ASSERT_EQ(next, dim / 2);
    }
    EXPECT_EQ(WordsOf(stored.at("codes")), words) << format.Text();
    EXPECT_EQ(ValuesOf(stored.at("norms")), norms) << format.Text();
    EXPECT_EQ(DecodeToRowType(format, {}, CodecRows(format, stored), 0, 1), want) << format.Text();
    // Two norms a group, and (2 BITS + 1) / 2 bits a channel.
    EXPECT_EQ(norms.size(), 4u);
    EXPECT_EQ(words.size() * 64, dim * static_cast<size_t>(2 * format.bits + 1));
    words_seen += static_cast<int64_t>(words.size());
  }
  EXPECT_GT(words_seen, 100);
}

// The half of larger channels has the smaller error for its size.
TEST(SplitTurboquant, HighChannelsLoseLess) {
  const auto format = std::get<SplitTurboquantFormat>(
      FormatNamed("turboquant:2.5:g128:hffffffff00000000ffffffff00000000:f32"));
  const std::vector<bool> high = HighOf(format);
  const Tensor x = GenerateRows("gauss", 5, DType::kFloat32, 400, 128);
  const std::vector<double> values = ValuesOf(x);
  const TensorMap stored = EncodeRows(format, {}, x);
  const std::vector<double> read = DecodeToRowType(format, {}, CodecRows(format, stored), 0, 400);
  double error[2] = {0, 0}, size[2] = {0, 0};
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t half = high[i % 128] ? 1 : 0;
    error[half] += (values[i] - read[i]) * (values[i] - read[i]);
    size[half] += values[i] * values[i];
  }
  // D(64, 2) and D(64, 3) of turboquant.md, five standard errors of 400 rows: the deviations of
  // rows of 128 channels there, times sqrt(2) for half of them.
  EXPECT_NEAR(error[0] / size[0], 0.11453, 5 * 0.0155 * 1.4143 / 20);
  EXPECT_NEAR(error[1] / size[1], 0.03339, 5 * 0.0063 * 1.4143 / 20);
}

TEST(SplitTurboquant, BoundHoldsInEveryRegimeAndType) {
  ExpectBoundInEveryRegime(SplitTurboquantFormat::All());
}

Outcome WithNorm(const Tensor& x, const KvFormat& format, size_t norm, uint16_t flipped) {
  const CodecCase c = {CodecDirection::kEncode, format,          x.dtype, x.shape.RowCount(),
                       x.shape.RowLength(),     {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", x}};
  const auto source = MakeCodecSource(c, {}, inputs);
  TensorMap got = EncodeRows(format, {}, x);
  got.at("norms").As<uint16_t>()[norm] ^= flipped;
  return Judge(*source, MemorySink(got)).outcome;
}

// 2049 lies between the f16 2048 and 2050; it is the norm of the high half of the second row alone.
TEST(SplitTurboquant, WhatIsOpenIsThatOfTheHalf) {
  const auto format =
      std::get<SplitTurboquantFormat>(FormatNamed("turboquant:3.5:g64:hffff00000000ffff:f32"));
  Tensor x(DType::kFloat32, {{"", 2}, {"", 64}});
  x.As<float>()[0] = 2048;        // low half
  x.As<float>()[20] = 512;        // high half
  x.As<float>()[64 + 40] = 2049;  // channel 40, bit 8 of the second word: high half
  EXPECT_EQ(WithNorm(x, format, 0, 0), Outcome::kPass);
  EXPECT_EQ(WithNorm(x, format, 3, 1), Outcome::kPass);
  EXPECT_EQ(WithNorm(x, format, 3, 2), Outcome::kFail);
  for (const size_t other : {size_t{0}, size_t{1}, size_t{2}})
    EXPECT_EQ(WithNorm(x, format, other, 1), Outcome::kFail);
}

TEST(SplitTurboquant, TextsNameTheChannels) {
  const std::string text = "turboquant:3.5:g64:mlx_vlm:ha53cc35affff0000:s1:f16";
  EXPECT_EQ(Print(FormatNamed(text)), text);
  EXPECT_EQ(Print(FormatNamed("turboquant:1.5:g64:exact:h0f0f0f0fffff0000:s0:f32")),
            "turboquant:1.5:g64:h0f0f0f0fffff0000:f32");
  const auto format = std::get<SplitTurboquantFormat>(FormatNamed(text));
  EXPECT_EQ(format.Low().Text(), "turboquant:3:g32:mlx_vlm:s1:f16");
  EXPECT_EQ(format.High().Text(), "turboquant:4:g32:mlx_vlm:s98:f16");
  for (const char* wrong :
       {"turboquant:3.5:g64:f16", "turboquant:3.4:g64:ha53cc35affff0000:f16",
        "turboquant:.5:g64:ha53cc35affff0000:f16", "turboquant:5.5:g64:ha53cc35affff0000:f16",
        "turboquant:3.5:g32:ha53cc35a:f16", "turboquant:3.5:g96:ha53cc35affff0000ffff0000:f16",
        "turboquant:3.5:g64:ha53cc35a:f16", "turboquant:3.5:g64:ha53cc35affff0001:f16",
        "turboquant:3.5:g64:hA53CC35Affff0000:f16", "turboquant:3.5:g64:ha53cc35affff0000",
        "turboquant:4.5:g64:mlx_vlm:ha53cc35affff0000:f16",
        "turboquant:3.5:g64:vllm:ha53cc35affff0000:f16",
        "turboquant:3.5:g64:ha53cc35affff0000:plain:f16",
        "turboquant:3.5:g64:ha53cc35affff0000:s2147483647:f16",
        "hadamard:64:turboquant:3.5:g64:ha53cc35affff0000:f16"}) {
    EXPECT_THROW(FormatNamed(wrong), Error) << wrong;
  }
  SplitTurboquantFormat uneven = format;
  uneven.high[0] = 0;
  EXPECT_FALSE(Exists(uneven));
  uneven = format;
  uneven.high[2] = 1;
  EXPECT_FALSE(Exists(uneven));
}

}  // namespace
}  // namespace kvcheck
