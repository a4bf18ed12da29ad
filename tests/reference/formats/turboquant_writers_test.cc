// Hints of rows that another turboquant writer has stored: they name the signs, the rotation and
// the centroids where every row is that writer's, and nothing where any row is nobody's.

#include "reference/formats/turboquant_writers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/ggml_blocks.h"
#include "reference/formats/stored_codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

using Texts = std::vector<std::string>;

// The part of each hint of an output between "looks as if " and ": so read".
Texts Named(const OutputVerdict& output) {
  Texts named;
  for (const std::string& hint : output.hints) {
    const size_t end = hint.find(": so read");
    if (end != std::string::npos) named.push_back(hint.substr(12, end - 12));
  }
  return named;
}

// Stored planes under --tol codec:FORMAT; exact: with their bits.
Verdict JudgeStored(const KvFormat& format, const Tensor& x, const TensorMap& planes, bool exact) {
  CodecRule rule;
  rule.format = format;
  rule.codes_exact = exact;
  if (exact) rule.stated = {CodecChoice::kTurboquant};
  const MemorySink originals(TensorMap{{"x", x}});
  const MemorySink observed(planes);
  const TripletNames names = {"k", PlaneNames(format)};
  const TripletComparison both = MakeTripletComparison(rule, originals, "x", observed, names);
  return Judge(*both.expected, *both.observed);
}

Verdict JudgeEncoded(const KvFormat& format, const Tensor& x, const TensorMap& planes) {
  const CodecCase c = {CodecDirection::kEncode, format,          x.dtype, x.shape.RowCount(),
                       x.shape.RowLength(),     {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", x}};
  return Judge(*MakeCodecSource(c, {}, inputs), MemorySink(planes));
}

// All hints, by whichever way the planes are judged.
void ExpectNamed(const std::string& declared, const Tensor& x, const TensorMap& planes,
                 const Texts& expected) {
  const KvFormat format = FormatNamed(declared);
  const Verdict values = JudgeStored(format, x, planes, false);
  EXPECT_EQ(values.outcome, Outcome::kFail) << declared;
  EXPECT_EQ(Named(values.outputs[0]), expected) << declared;
  const Verdict bits = JudgeStored(format, x, planes, true);
  EXPECT_EQ(Named(bits.outputs[0]), expected) << declared;
  EXPECT_EQ(Named(bits.outputs[1]), expected) << declared;
  const Verdict encoded = JudgeEncoded(format, x, planes);
  EXPECT_EQ(encoded.outcome, Outcome::kFail) << declared;
  EXPECT_EQ(Named(encoded.outputs[0]), expected) << declared;
}

Tensor Rows(const std::string& format, int64_t rows, int64_t dim) {
  return GenerateRows("gauss", 3, RowDType(FormatNamed(format)), rows, dim);
}

TEST(TurboquantWriters, SeedsAndCentroidsAreNamed) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"turboquant:4:g64:f32", "turboquant:4:g64:s1:f32", "the signs of seed 1"},
      {"turboquant:2:g128:s1:bf16", "turboquant:2:g128:bf16", "the signs of seed 0"},
      {"turboquant:3:g32:s41:f16", "turboquant:3:g32:s42:f16", "the signs of seed 42"},
      {"turboquant:3:g32:s7:f16", "turboquant:3:g32:s6:f16", "the signs of seed 6"},
      {"turboquant:4:g64:f32", "turboquant:4:g64:plain:f32", "no random signs"},
      {"turboquant:4:g64:plain:f32", "turboquant:4:g64:f32", "the signs of seed 0"},
      {"turboquant:4:g64:w3d23b3c0601bf8ee:f32", "turboquant:4:g64:s1:f32", "the signs of seed 1"},
      {"turboquant:4:g128:f32", "turboquant:4:g128:mlx_vlm:f32", "the centroids of mlx_vlm"},
      {"turboquant:4:g64:mlx_vlm:bf16", "turboquant:4:g64:bf16", "the centroids of exact"},
      {"turboquant:4:g128:mlx_vlm:bf16", "turboquant:4:g128:vllm:bf16", "the centroids of vllm"},
      // mlx-vlm's V under the default, and vLLM's K.
      {"turboquant:4:g64:f32", "turboquant:4:g64:mlx_vlm:s1:f32",
       "the signs of seed 1 and the centroids of mlx_vlm"},
      {"turboquant:4:g128:f32", "turboquant:4:g128:vllm:plain:f32",
       "no random signs and the centroids of vllm"},
      {"turboquant:prod:4:g64:f32", "turboquant:prod:4:g64:s1:f32",
       "the signs and projection of seed 1"},
      {"turboquant:prod:1:g32:f32", "turboquant:prod:1:g32:s1:f32",
       "the signs and projection of seed 1"},
      {"turboquant:prod:5:g64:mlx_vlm:f32", "turboquant:prod:5:g64:f32", "the centroids of exact"},
      {"turboquant:3.5:g64:hffff0f0f00f0000f:f32", "turboquant:3.5:g64:hffff0f0f00f0000f:s1:f32",
       "the signs of seed 1"},
      {"turboquant:3.5:g64:hffff0f0f00f0000f:f32",
       "turboquant:3.5:g64:mlx_vlm:hffff0f0f00f0000f:f32", "the centroids of mlx_vlm"},
  };
  for (const auto& [declared, written, name] : cases) {
    // Two sets of centroids differ in few codes.
    const Tensor x = Rows(declared, name.starts_with("the centroids") ? 120 : 12, 128);
    ExpectNamed(declared, x, EncodeRows(FormatNamed(written), {}, x),
                {"these bytes are " + written + ", with " + name});
  }
}

// One sign decides all words of a one-hot row, so that half of all seeds store a negated one.
TEST(TurboquantWriters, OneHotRowsThatAreNegatedNameNone) {
  const std::string declared = "turboquant:4:g128:mlx_vlm:f16";
  for (const bool scaled : {false, true}) {
    const Shape shape = Shape::Unnamed({80, 128});
    std::vector<double> values(80 * 128), negated(80 * 128);
    for (size_t row = 0; row < 80; ++row) {
      values[row * 128] = scaled ? 1 + static_cast<double>(row) / 64 : 1;
      negated[row * 128] = -values[row * 128];
    }
    Tensor x(DType::kFloat16, shape), y(DType::kFloat16, shape);
    EncodeFrom(values, x.dtype, x.bytes.data());
    EncodeFrom(negated, y.dtype, y.bytes.data());
    ExpectNamed(declared, x, EncodeRows(FormatNamed(declared), {}, y), {});
  }
}

// What no format says: signs on the other side of the transform, and no transform.
TEST(TurboquantWriters, OtherRotationsAreNamed) {
  const std::string declared = "turboquant:4:g64:f32";
  const auto format = std::get<TurboquantFormat>(FormatNamed(declared));
  const Tensor x = Rows(declared, 20, 128);
  const std::vector<double> values = ValuesOf(x);
  const std::pair<TurboquantBasis, std::string> cases[] = {
      {TurboquantBasis::kSignsLast, "the signs after the Hadamard transform"},
      {TurboquantBasis::kNotRotated, "rows that are not rotated"}};
  for (const auto& [basis, name] : cases) {
    TensorMap planes = EncodeRows(format, {}, x);
    const TurboquantGroup group(format, TurboquantWriter::kMlxVlm, basis);
    std::vector<uint8_t> codes(64);
    for (size_t g = 0; g < 40; ++g) {
      const std::vector<float> of_group(values.begin() + static_cast<std::ptrdiff_t>(64 * g),
                                        values.begin() + static_cast<std::ptrdiff_t>(64 * g + 64));
      group.Encode(of_group, codes);
      PackCodes(codes, 4, std::span(planes.at("codes").As<uint32_t>() + 8 * g, 8));
    }
    ExpectNamed(declared, x, planes, {"these bytes are " + declared + " but with " + name});
  }
}

// What the right writer has stored passes, and what nobody has stored is called nobody's.
TEST(TurboquantWriters, OtherFaultsAreNotNamed) {
  for (const std::string declared : {"turboquant:4:g64:f32", "turboquant:prod:4:g64:f32"}) {
    const KvFormat format = FormatNamed(declared);
    const Tensor x = Rows(declared, 40, 128);
    const TensorMap right = EncodeRows(format, {}, x);
    EXPECT_NE(JudgeStored(format, x, right, true).outcome, Outcome::kFail);
    EXPECT_TRUE(Named(JudgeEncoded(format, x, right).outputs[0]).empty());
    const std::string seed = declared.substr(0, declared.rfind(':')) + ":s";
    ExpectNamed(declared, x, EncodeRows(FormatNamed(seed + "5555:f32"), {}, x), {});
    // One word that is wrong otherwise, in a row of another writer and in one that passes.
    TensorMap wrong = right;
    wrong.at("codes").As<uint32_t>()[99] ^= 1u << 9;
    ExpectNamed(declared, x, wrong, {});
    wrong = EncodeRows(FormatNamed(seed + "1:f32"), {}, x);
    wrong.at("codes").As<uint32_t>()[99] ^= 1u << 9;
    ExpectNamed(declared, x, wrong, {});
    // Half of the rows of each.
    wrong = EncodeRows(FormatNamed(seed + "1:f32"), {}, x);
    for (const std::string& plane : PlaneNames(format)) {
      std::vector<std::byte>& bytes = wrong.at(plane).bytes;
      std::copy_n(right.at(plane).bytes.begin(), bytes.size() / 2, bytes.begin());
    }
    ExpectNamed(declared, x, wrong, {});
  }
}

// Rows of which the writers store nearly the same could agree by chance.
TEST(TurboquantWriters, FewDifferencesProveNothing) {
  const std::string declared = "turboquant:4:g64:f32", written = "turboquant:4:g64:mlx_vlm:f32";
  for (const auto& [rows, named] : {std::pair<int64_t, bool>{4, false}, {300, true}}) {
    const Tensor x = Rows(declared, rows, 64);
    const std::vector<uint32_t> own = WordsOf(EncodeRows(FormatNamed(declared), {}, x).at("codes"));
    const TensorMap planes = EncodeRows(FormatNamed(written), {}, x);
    const std::vector<uint32_t> other = WordsOf(planes.at("codes"));
    int differ = 0;
    for (size_t i = 0; i < own.size(); ++i) differ += own[i] != other[i] ? 1 : 0;
    // 2^-20 for some thirty writers.
    ASSERT_EQ(differ >= 25, named) << differ;
    ASSERT_GT(differ, 0);
    Texts expected;
    if (named) expected = {"these bytes are " + written + ", with the centroids of mlx_vlm"};
    ExpectNamed(declared, x, planes, expected);
  }
}

// A norm in the middle between two f16 may be either, of another writer as well.
TEST(TurboquantWriters, WhatTheOtherWriterLeavesOpenIsTakenAsItIsStored) {
  const std::string declared = "turboquant:4:g64:f32", written = "turboquant:4:g64:s1:f32";
  Tensor x = Rows(declared, 20, 64);
  float* row = x.As<float>() + 5 * 64;
  const double norm = static_cast<double>(TurboquantGroup::Norm(std::span(row, 64)));
  // Between 1 and 1 + 2^-10; a scaled element is off by 2^-24 of itself, the norm of a row less.
  for (size_t i = 0; i < 64; ++i) {
    row[i] = static_cast<float>(static_cast<double>(row[i]) * (1 + 0x1p-11) / norm);
  }
  TensorMap planes = EncodeRows(FormatNamed(written), {}, x);
  uint16_t& stored = planes.at("norms").As<uint16_t>()[5];
  ASSERT_TRUE(stored == 0x3c00 || stored == 0x3c01);
  const Texts expected = {"these bytes are " + written + ", with the signs of seed 1"};
  ExpectNamed(declared, x, planes, expected);
  stored ^= 1;
  ExpectNamed(declared, x, planes, expected);
  // Neither: the codes alone are still that writer's.
  stored ^= 3;
  EXPECT_TRUE(Named(JudgeStored(FormatNamed(declared), x, planes, false).outputs[0]).empty());
  EXPECT_EQ(Named(JudgeEncoded(FormatNamed(declared), x, planes).outputs[0]), expected);
}

// Rows that are read in the wrong basis, or with other centroids.
TEST(TurboquantWriters, ReadersAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"turboquant:4:g64:mlx_vlm:s1:bf16", "the signs of seed 1 and the centroids of mlx_vlm"},
      {"turboquant:4:g64:plain:bf16", "no random signs"}};
  const KvFormat format = FormatNamed("turboquant:4:g64:bf16");
  const Tensor x = Rows("turboquant:4:g64:bf16", 12, 128);
  const TensorMap stored = EncodeRows(format, {}, x);
  const CodecCase c = {CodecDirection::kDecode, format, DType::kBFloat16, 12, 128,
                       {"gauss", 1, ""}};
  for (const auto& [read, name] : cases) {
    for (const char* decode : {"decode=exact", "decode=two_roundings"}) {
      const Profile profile = ParseProfile(decode);
      Tensor y(DType::kBFloat16, {{"", 12}, {"", 128}});
      EncodeFrom(
          DecodeToRowType(FormatNamed(read), profile, CodecRows(FormatNamed(read), stored), 0, 12),
          y.dtype, y.bytes.data());
      const auto source = MakeCodecSource(c, profile, stored);
      const Verdict verdict = Judge(*source, MemorySink(TensorMap{{"y", y}}));
      EXPECT_EQ(verdict.outcome, Outcome::kFail);
      EXPECT_EQ(Named(verdict.outputs[0]), Texts{"these bytes are " + read + ", with " + name})
          << read << " " << decode;
      y.As<uint16_t>()[700] ^= 0x40;
      EXPECT_TRUE(Named(Judge(*source, MemorySink(TensorMap{{"y", y}})).outputs[0]).empty());
    }
  }
}

}  // namespace
}  // namespace kvcheck
