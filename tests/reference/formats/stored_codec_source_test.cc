// Stored tensors under a codec rule: what a format makes of an original passes, whatever types it
// passed through; a wrong code, a lost group and a comparison that proves nothing do not.

#include "reference/formats/stored_codec_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/error_bound.h"
#include "reference/formats/generate_inputs.h"
#include "reference/formats/plain.h"
#include "reference/judge/judge.h"
#include "reference/numerics/ulp.h"
#include "reference/spec/codec_choices.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "reference/spec/token_groups.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

constexpr DType kReal[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

CodecRule Rule(const std::string& text) {
  return std::get<CodecRule>(ParseToleranceRule(WholeLine("codec:" + text)));
}

Tensor Rows(const std::string& regime, DType dtype, int64_t rows, int64_t dim) {
  const CodecCase c = {
      CodecDirection::kRoundTrip, PlainFormat{dtype}, dtype, rows, dim, {regime, 3, ""}};
  Tensor x = GenerateInputs(c, Profile()).at("x");
  x.shape = {{"B", 1}, {"T", rows}, {"Dk", dim}};
  return x;
}

// As the format takes them: where a row is a group of tokens, as rows alone.
Tensor RowsFor(const KvFormat& format, const std::string& regime, DType dtype, int64_t rows,
               int64_t dim) {
  Tensor x = Rows(regime, dtype, rows, dim);
  if (GroupsTokens(format)) x.shape = Shape::Unnamed({rows, dim});
  return x;
}

Tensor InType(DType dtype, const Shape& shape, std::vector<double> values) {
  RoundAll(values, dtype);
  Tensor tensor(dtype, shape);
  EncodeFrom(values, dtype, tensor.bytes.data());
  return tensor;
}

// What an implementation under the profile gives back of x.
Tensor Dequantised(const KvFormat& format, const Profile& profile, const Tensor& x, DType result) {
  const TensorMap encoded = EncodeRows(format, profile, x);
  const EncodedRows rows = CodecRows(format, encoded);
  return InType(result, x.shape, DecodeToRowType(format, profile, rows, 0, x.shape.RowCount()));
}

Verdict JudgeDequantised(const CodecRule& rule, const Tensor& x, const Tensor& got) {
  const MemorySink originals(TensorMap{{"x", x}});
  const MemorySink observed(TensorMap{{"k", got}});
  const auto source = MakeDequantisedSource(rule, originals, "x", "k", got.dtype);
  return Judge(*source, observed);
}

const TripletNames kNames = {"k", {"k_codes", "k_scales", "k_biases"}};

TripletNames NamesOf(const KvFormat& format) {
  TripletNames names = {"k", {}};
  for (const std::string& plane : PlaneNames(format)) names.planes.push_back("k_" + plane);
  return names;
}

MemorySink Triplet(const TensorMap& encoded) {
  TensorMap tensors;
  for (const auto& [name, tensor] : encoded) tensors["k_" + name] = tensor;
  return MemorySink(tensors);
}

Verdict JudgeTriplet(const CodecRule& rule, const Tensor& x, const TensorMap& encoded) {
  const MemorySink originals(TensorMap{{"x", x}});
  const MemorySink observed = Triplet(encoded);
  const TripletComparison both =
      MakeTripletComparison(rule, originals, "x", observed, NamesOf(rule.format));
  return Judge(*both.expected, *both.observed);
}

TEST(StoredCodec, WhatAFormatMakesOfAnOriginalNeverFails) {
  int64_t judged = 0;
  for (const KvFormat& format : AllKvFormats()) {
    CodecRule rule;
    rule.format = format;
    for (const DType given : kReal) {
      for (const DType result : kReal) {
        for (const AffineEncoder encode : {AffineEncoder::kMlxCpu, AffineEncoder::kMlxGpu}) {
          if (IsPlain(format) && encode == AffineEncoder::kMlxGpu) continue;
          for (const char* regime : {"gauss", "all_negative", "mixed"}) {
            Profile profile;
            profile.encode = encode;
            profile.decode = DecodeRounding::kTwoRoundings;
            const Tensor x = RowsFor(format, regime, given, 3, 256);
            const Verdict verdict =
                JudgeDequantised(rule, x, Dequantised(format, profile, x, result));
            EXPECT_NE(verdict.outcome, Outcome::kFail)
                << Print(format) << " " << Name(given) << " " << Name(result) << " " << regime;
            judged += verdict.outputs[0].counts.judged;
          }
        }
      }
    }
  }
  EXPECT_GT(judged, 900000);
}

TEST(StoredCodec, ATypeThatDoesNotHoldTheRowTypeAddsItsRounding) {
  const CodecRule rule = Rule("f16");
  const Tensor x = Rows("gauss", DType::kFloat32, 2, 64);
  const Tensor exact = Dequantised(rule.format, Profile(), x, DType::kFloat16);
  EXPECT_EQ(JudgeDequantised(rule, x, exact).outcome, Outcome::kPass);
  // Rounded to bf16 it is up to 8 times further away; said to be f32, that is no rounding of f16.
  const Tensor coarse = Dequantised(rule.format, Profile(), x, DType::kBFloat16);
  EXPECT_EQ(JudgeDequantised(rule, x, coarse).outcome, Outcome::kPass);
  const Tensor wide = InType(DType::kFloat32, x.shape, ValuesOf(coarse));
  EXPECT_EQ(JudgeDequantised(rule, x, wide).outcome, Outcome::kFail);
  // An f16 original in f16 is kept as it is.
  const Tensor y = Rows("gauss", DType::kFloat16, 2, 64);
  EXPECT_EQ(JudgeDequantised(rule, y, y).outputs[0].metrics.max_abs, 0.0);
  std::vector<double> off = ValuesOf(y);
  off[70] = Decode(DType::kFloat16, NextUp(DType::kFloat16, Encode(DType::kFloat16, off[70])));
  EXPECT_EQ(JudgeDequantised(rule, y, InType(DType::kFloat16, y.shape, off)).outcome,
            Outcome::kFail);
}

TEST(StoredCodec, AWrongNeighbouringCodeFails) {
  const AffineFormat format{4, 64, DType::kFloat32};
  CodecRule rule;
  rule.format = format;
  const Tensor x = Rows("gauss", DType::kFloat32, 4, 128);
  const TensorMap encoded = EncodeRows(format, Profile(), x);
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  int64_t failed = 0;
  for (size_t k = 0; k < 512; ++k) {
    TensorMap wrong = encoded;
    uint32_t& word = wrong.at("codes").As<uint32_t>()[k / 8];
    const uint32_t code = (word >> (4 * (k % 8))) & 15;
    word ^= (code ^ (code == 15 ? 14 : code + 1)) << (4 * (k % 8));
    const Tensor got = InType(DType::kFloat32, x.shape,
                              DecodeToRowType(format, two, CodecRows(format, wrong), 0, 4));
    const Verdict verdict = JudgeDequantised(rule, x, got);
    if (verdict.outcome != Outcome::kFail) continue;
    ++failed;
    EXPECT_EQ(verdict.outputs[0].worst->element, static_cast<int64_t>(k));
  }
  // The others stand so near the middle between two codes that both are within the bound.
  EXPECT_GT(failed, 500);
}

TEST(StoredCodec, ALostGroupFails) {
  const CodecRule rule = Rule("affine:2:g64:bf16");
  const Tensor x = Rows("gauss", DType::kBFloat16, 8, 128);
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  std::vector<double> values = ValuesOf(Dequantised(rule.format, two, x, DType::kBFloat16));
  std::fill(values.begin() + 64, values.begin() + 128, 0.0);
  const Verdict verdict = JudgeDequantised(rule, x, InType(DType::kBFloat16, x.shape, values));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_GE(verdict.outputs[0].worst->element, 64);
  EXPECT_LT(verdict.outputs[0].worst->element, 128);
}

// Everything but the nearest code shows, where the source says so.
TEST(StoredCodec, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  int64_t claimed = 0;
  int64_t elements = 0;
  for (const KvFormat& any : AllKvFormats()) {
    const auto* format = std::get_if<AffineFormat>(&any);
    if (format == nullptr) continue;
    for (const char* regime : {"gauss", "offset", "all_negative", "tiny", "constant", "sparse"}) {
      for (const DecodeRounding decode :
           {DecodeRounding::kExact, DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
        Profile profile;
        profile.decode = decode;
        const Tensor x = Rows(regime, format->scale_dtype, 1, 128);
        const std::vector<double> values = ValuesOf(x);
        const RowBound bound =
            RoundTripBound(any, profile, decode, x.dtype, std::optional(DType::kFloat64), values);
        const TensorMap encoded = EncodeRows(any, profile, x);
        std::vector<uint8_t> codes(128);
        UnpackCodes(WordsOf(encoded.at("codes")), format->bits, codes);
        const std::vector<double> scales = ValuesOf(encoded.at("scales"));
        const std::vector<double> biases = ValuesOf(encoded.at("biases"));
        for (size_t i = 0; i < 128; ++i) {
          ++elements;
          if (bound.overflows[i] || !(bound.total[i] < bound.wrong_code[i])) continue;
          ++claimed;
          const size_t g = i / static_cast<size_t>(format->group_size);
          for (int c = 0; c < (1 << format->bits); ++c) {
            const uint8_t code = static_cast<uint8_t>(c);
            double y = AffineValue(code, scales[g], biases[g]).hi;
            if (decode != DecodeRounding::kExact) {
              DecodeAffineGroup(decode, format->scale_dtype, {&code, 1}, scales[g], biases[g],
                                {&y, 1});
            }
            const double error = std::fabs(y - values[i]);
            if (code == codes[i]) {
              EXPECT_LE(error, bound.total[i]);
            } else {
              EXPECT_GT(error, bound.total[i]) << Print(any) << " " << regime << " element " << i;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(claimed, elements / 2);
  EXPECT_LT(claimed, elements);
}

TEST(StoredCodec, TheNextPlainValueIsBeyondTheBoundWhereThatIsClaimed) {
  int64_t claimed = 0;
  int64_t elements = 0;
  for (const DType stored : {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                             DType::kFloat8E4M3FN, DType::kFloat8E5M2}) {
    for (const char* regime : {"gauss", "tiny", "offset"}) {
      const Tensor x = Rows(regime, DType::kFloat32, 4, 128);
      const std::vector<double> values = ValuesOf(x);
      const RowBound bound =
          RoundTripBound(PlainFormat{stored}, Profile(), DecodeRounding::kExact, x.dtype, values);
      for (size_t i = 0; i < values.size(); ++i) {
        ++elements;
        if (bound.overflows[i]) continue;
        const uint64_t code = Encode(stored, values[i]);
        for (const uint64_t next : {NextUp(stored, code), NextDown(stored, code)}) {
          if (next == code || !std::isfinite(Decode(stored, next))) continue;
          const double error = std::fabs(Decode(stored, next) - values[i]);
          EXPECT_GE(error, bound.wrong_code[i]) << Name(stored) << " " << values[i];
        }
        claimed += bound.total[i] < bound.wrong_code[i] ? 1 : 0;
      }
    }
  }
  EXPECT_GT(claimed, elements / 2);
}

TEST(StoredCodec, ACoarseFormatProvesItsCodes) {
  // Half a step of 2 bits is a third of such data: far above the share that proves something about
  // the data, and still tells every code from its neighbours.
  for (const std::string text : {"affine:2:g64:f32", "affine:4:g64:f32", "f8e5m2"}) {
    const CodecRule rule = Rule(text);
    const Tensor x = Rows("gauss", DType::kFloat32, 8, 128);
    Profile two;
    two.decode = DecodeRounding::kTwoRoundings;
    const Verdict verdict =
        JudgeDequantised(rule, x, Dequantised(rule.format, two, x, DType::kFloat32));
    EXPECT_EQ(verdict.outcome, Outcome::kPass) << text;
    EXPECT_EQ(verdict.outputs[0].median_bound_share > 0.1, text != "f8e5m2") << text;
  }
}

TEST(StoredCodec, ABoundThatHidesCodesAndDataIsMistrusted) {
  // bf16 scales of 8 bits: the roundings of scale, product and sum make three steps, and an outlier
  // in every group makes a step as large as the rest of the data.
  const CodecRule rule = Rule("affine:8:g64:bf16");
  Tensor x = Rows("gauss", DType::kBFloat16, 8, 128);
  std::vector<double> values = ValuesOf(x);
  for (size_t i = 0; i < values.size(); i += 64) values[i] = 1000;
  x = InType(DType::kBFloat16, x.shape, values);
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  const Verdict verdict =
      JudgeDequantised(rule, x, Dequantised(rule.format, two, x, DType::kBFloat16));
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_NE(verdict.reasons[0].find("hides the least fault"), std::string::npos)
      << verdict.reasons[0];
  // Rightly: the data are gone, and it would pass.
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 64 == 0 ? 1000 : 0;
  EXPECT_NE(JudgeDequantised(rule, x, InType(DType::kBFloat16, x.shape, values)).outcome,
            Outcome::kFail);
}

TEST(StoredCodec, TheScaleTypeIsTheOriginalsWhereTheRuleNamesNone) {
  const CodecRule rule = Rule("affine:4:g64");
  for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    OutputInfo original;
    original.dtype = type;
    original.shape = Shape::Unnamed({2, 64});
    EXPECT_EQ(FormatOf(rule, original, "k"), KvFormat(AffineFormat{4, 64, type}));
  }
  const Tensor x = Rows("gauss", DType::kFloat64, 1, 64);
  EXPECT_THROW(JudgeDequantised(rule, x, x), Error);
  EXPECT_NO_THROW(JudgeDequantised(Rule("affine:4:g64:f32"), x, x));
}

TEST(StoredCodec, WhatIsNoQuestionIsRefused) {
  const Tensor x = Rows("gauss", DType::kFloat32, 2, 96);
  try {
    JudgeDequantised(Rule("affine:4:g64"), x, x);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIllegalCase);
    EXPECT_EQ(error.context(), "k");
    EXPECT_NE(error.message().find("96 is not a multiple of 64"), std::string::npos);
  }
  const Tensor integers(DType::kInt32, x.shape);
  EXPECT_THROW(JudgeDequantised(Rule("affine:4:g32"), integers, x), Error);
  EXPECT_THROW(JudgeDequantised(Rule("affine:4:g32"), x, integers), Error);
  EXPECT_THROW(JudgeDequantised(Rule("affine:4:g32,encode=mlx_cpu,codes=exact"), x, x), Error);
  const Tensor wide(DType::kFloat32, Shape::Unnamed({1, (1 << 20) + 32}));
  EXPECT_THROW(JudgeDequantised(Rule("affine:4:g32"), wide, wide), Error);
  Tensor cut = Rows("gauss", DType::kFloat32, 2, 64);
  cut.shape.axes.back().is_slice = true;
  EXPECT_THROW(JudgeDequantised(Rule("affine:4:g64"), cut, cut), Error);
  EXPECT_NO_THROW(JudgeDequantised(Rule("f16"), cut, cut));
  const MemorySink originals(TensorMap{{"x", x}});
  EXPECT_THROW(MakeDequantisedSource(Rule("f16"), originals, "y", "k", DType::kFloat32), Error);
  EXPECT_THROW(MakeTripletComparison(Rule("f16"), originals, "x", originals, kNames), Error);
}

// Few bits keep little of each element, and still every code is proved.
TEST(StoredCodec, TurboquantProvesItsCodes) {
  const Tensor x = Rows("gauss", DType::kFloat32, 6, 128);
  for (const int bits : {1, 2, 4}) {
    const CodecRule rule = Rule("turboquant:" + std::to_string(bits) + ":g128:f32");
    EXPECT_EQ(Print(ToleranceRule(rule)), "codec:turboquant:" + std::to_string(bits) + ":g128:f32");
    const Tensor kept = Dequantised(rule.format, {}, x, DType::kFloat32);
    EXPECT_EQ(JudgeDequantised(rule, x, kept).outcome, Outcome::kPass) << bits;
    TensorMap stored = EncodeRows(rule.format, {}, x);
    EXPECT_EQ(JudgeTriplet(rule, x, stored).outcome, Outcome::kPass) << bits;
    stored.at("codes").As<uint32_t>()[3] ^= 1;
    EXPECT_EQ(JudgeTriplet(rule, x, stored).outcome, Outcome::kFail) << bits;
    // Of another codebook, which differs by less than a step.
    const KvFormat of_mlx = TurboquantFormat{bits, 128, TurboquantCodebook::kMlxVlm};
    if (bits == 4) {
      EXPECT_EQ(JudgeDequantised(rule, x, Dequantised(of_mlx, {}, x, DType::kFloat32)).outcome,
                Outcome::kFail);
    }
  }
  // The writers differ at thresholds alone: a row of zeros.
  const Tensor zeros(DType::kFloat32, Shape::Unnamed({1, 64}));
  Profile vllm;
  vllm.turboquant = TurboquantWriter::kVllm;
  const std::string format = "turboquant:4:g64:f32";
  const TensorMap stored = EncodeRows(Rule(format).format, vllm, zeros);
  const auto exact = [&](const std::string& writer) {
    return JudgeTriplet(Rule(format + ",turboquant=" + writer + ",codes=exact"), zeros, stored)
        .outcome;
  };
  EXPECT_NE(exact("vllm"), Outcome::kFail);
  EXPECT_EQ(exact("mlx_vlm"), Outcome::kFail);
  EXPECT_THROW(Rule("q8_0,turboquant=vllm"), Error);
}

// Values are no nearer to the row than its codes are, and still every code and sign is proved.
TEST(StoredCodec, TheInnerProductCodecProvesItsCodesAndSigns) {
  const Tensor x = Rows("gauss", DType::kFloat32, 6, 128);
  for (const size_t bits : {size_t{1}, size_t{2}, size_t{4}}) {
    const CodecRule rule = Rule("turboquant:prod:" + std::to_string(bits) + ":g128:f32");
    const Tensor kept = Dequantised(rule.format, {}, x, DType::kFloat32);
    EXPECT_EQ(JudgeDequantised(rule, x, kept).outcome, Outcome::kPass) << bits;
    const TensorMap stored = EncodeRows(rule.format, {}, x);
    EXPECT_EQ(JudgeTriplet(rule, x, stored).outcome, Outcome::kPass) << bits;
    // Words of the second row: the first one, of codes where there are any, and the last, of signs.
    for (const size_t word : {4 * bits, 8 * bits - 1}) {
      TensorMap wrong = stored;
      wrong.at("codes").As<uint32_t>()[word] ^= 1;
      EXPECT_EQ(JudgeTriplet(rule, x, wrong).outcome, Outcome::kFail) << bits << " " << word;
    }
    TensorMap wrong = stored;
    wrong.at("residual_norms").As<uint16_t>()[3] = 0;
    EXPECT_EQ(JudgeTriplet(rule, x, wrong).outcome, Outcome::kFail) << bits;
  }
}

TEST(StoredCodec, LongPlainRowsAreReadInPieces) {
  const Tensor x(DType::kFloat32, Shape::Unnamed({2, 70001}));
  const MemorySink originals(TensorMap{{"x", x}});
  const auto source = MakeDequantisedSource(Rule("f16"), originals, "x", "k", DType::kFloat32);
  EXPECT_EQ(source->TileCount(), 3);
  EXPECT_EQ(Judge(*source, MemorySink(TensorMap{{"k", x}})).outcome, Outcome::kPass);
}

TEST(StoredCodec, OverflowFollowsTheDeclaredRule) {
  const Tensor x = RowOf(DType::kFloat32, {1, 1000, -1000, 2});
  const Tensor saturated = RowOf(DType::kFloat32, {1, 448, -448, 2});
  EXPECT_EQ(JudgeDequantised(Rule("f8e4m3fn,fp8_overflow=saturate"), x, saturated).outcome,
            Outcome::kPass);
  const Verdict verdict = JudgeDequantised(Rule("f8e4m3fn"), x, saturated);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.assumptions, std::vector<std::string>{"fp8_overflow=nan"});
  ASSERT_FALSE(verdict.outputs[0].plan_changes.empty());
  EXPECT_EQ(Print(verdict.outputs[0].plan_changes[0]),
            "fp8_overflow=saturate instead of fp8_overflow=nan (the default)");
  // It has to explain every element.
  const Tensor wrong = RowOf(DType::kFloat32, {1, 448, -448, 3});
  EXPECT_TRUE(JudgeDequantised(Rule("f8e4m3fn"), x, wrong).outputs[0].plan_changes.empty());
}

TEST(StoredTriplet, WhatTheEncoderMakesPassesAndHasItsBits) {
  int64_t exact = 0;
  for (const KvFormat& format : AllKvFormats()) {
    if (IsPlain(format)) continue;
    for (const DType given : kReal) {
      for (const AffineEncoder encode : {AffineEncoder::kMlxCpu, AffineEncoder::kMlxGpu}) {
        Profile profile;
        profile.encode = encode;
        const Tensor x = RowsFor(format, "all_negative", given, 3, 256);
        const TensorMap encoded = EncodeRows(format, profile, x);
        CodecRule rule;
        rule.format = format;
        EXPECT_NE(JudgeTriplet(rule, x, encoded).outcome, Outcome::kFail) << Print(format);
        rule.profile = profile;
        for (const CodecField& field : CodecFields()) {
          if (field.left_out == LeftOut::kAny) rule.stated.insert(field.choice);
        }
        rule.codes_exact = true;
        const Verdict verdict = JudgeTriplet(rule, x, encoded);
        EXPECT_NE(verdict.outcome, Outcome::kFail) << Print(format);
        ASSERT_EQ(verdict.outputs.size(), 1 + PlaneNames(format).size());
        for (size_t i = 1; i < verdict.outputs.size(); ++i) {
          EXPECT_EQ(verdict.outputs[i].outcome, Outcome::kPass);
          exact += verdict.outputs[i].counts.judged;
        }
      }
    }
  }
  EXPECT_GT(exact, 10000);
}

// Behind a rotation the bound of a value is that of all codes of its block at once: wider than a
// tenth of normal data, so that the values alone prove nothing.
TEST(StoredTriplet, BitsProveWhatABoundBehindARotationDoesNot) {
  CodecRule rule;
  rule.format = ParseKvFormat(WholeLine("hadamard:64:q8_0"));
  const Tensor x = Rows("gauss", DType::kFloat32, 20, 128);
  TensorMap encoded = EncodeRows(rule.format, Profile(), x);
  EXPECT_EQ(JudgeTriplet(rule, x, encoded).outcome, Outcome::kMistrusted);
  rule.stated = {CodecChoice::kGgmlEncode};
  rule.codes_exact = true;
  EXPECT_EQ(JudgeTriplet(rule, x, encoded).outcome, Outcome::kPass);
  encoded.begin()->second.bytes[5] ^= std::byte{1};
  EXPECT_EQ(JudgeTriplet(rule, x, encoded).outcome, Outcome::kFail);
}

// Four tokens' scales in the order of V on SM100, each of which then decodes with another's scale.
TEST(StoredTriplet, SwizzledScalesAreNamed) {
  constexpr int64_t kRows = 10;  // the last two are no whole group
  for (const char* text : {"nvfp4:bf16", "nvfp4:x0.011:f32"}) {
    CodecRule rule;
    rule.format = ParseKvFormat(WholeLine(text));
    const Tensor x = Rows("group_scales", RowDType(rule.format), kRows, 128);
    Profile profile;
    profile.nvfp4_encode = Nvfp4Encoder::kVllm;
    TensorMap encoded = EncodeRows(rule.format, profile, x);
    constexpr size_t kScales = 128 / 16;
    const std::vector<std::byte> linear = encoded.at("scales").bytes;
    for (size_t t = 0; t < kRows / 4 * 4; ++t) {
      for (size_t s = 0; s < kScales; ++s) {
        const size_t row = t / 4 * 4 + s / (kScales / 4);
        encoded.at("scales").bytes[row * kScales + s % (kScales / 4) * 4 + t % 4] =
            linear[t * kScales + s];
      }
    }
    const auto is_named = [](const OutputVerdict& output) {
      return std::any_of(output.hints.begin(), output.hints.end(), [](const std::string& hint) {
        return hint.find("these bytes are NVFP4 with swizzled V scales") != std::string::npos;
      });
    };
    Verdict verdict = JudgeTriplet(rule, x, encoded);
    EXPECT_EQ(verdict.outcome, Outcome::kFail) << text;
    EXPECT_TRUE(is_named(verdict.outputs[0])) << text;
    rule.profile = profile;
    rule.stated = {CodecChoice::kNvfp4Encode};
    rule.codes_exact = true;
    verdict = JudgeTriplet(rule, x, encoded);
    ASSERT_EQ(verdict.outputs.size(), 3u);
    EXPECT_TRUE(is_named(verdict.outputs[0])) << text;
    EXPECT_EQ(verdict.outputs[1].outcome, Outcome::kPass) << text;
    EXPECT_TRUE(is_named(verdict.outputs[2])) << text;
    // Scales that are wrong otherwise are not called so.
    std::rotate(encoded.at("scales").bytes.begin(), encoded.at("scales").bytes.begin() + 3,
                encoded.at("scales").bytes.end());
    verdict = JudgeTriplet(rule, x, encoded);
    EXPECT_EQ(verdict.outputs[2].outcome, Outcome::kFail) << text;
    EXPECT_FALSE(is_named(verdict.outputs[2])) << text;
  }
}

// The same the other way round: a page is expected, and its scales stand token after token.
TEST(StoredTriplet, LinearScalesOfAPageAreNamed) {
  CodecRule rule;
  rule.format = ParseKvFormat(WholeLine("nvfp4:swizzled:bf16"));
  const Tensor x = RowsFor(rule.format, "group_scales", DType::kBFloat16, 6, 512);
  const TensorMap linear = EncodeRows(ParseKvFormat(WholeLine("nvfp4:bf16")), rule.profile, x);
  const TensorMap swizzled = EncodeRows(rule.format, rule.profile, x);
  rule.stated = {CodecChoice::kNvfp4Encode};
  rule.codes_exact = true;
  EXPECT_NE(JudgeTriplet(rule, x, swizzled).outcome, Outcome::kFail);
  const Verdict verdict = JudgeTriplet(rule, x, linear);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[1].outcome, Outcome::kPass);
  for (const size_t output : {size_t{0}, size_t{2}}) {
    const std::vector<std::string>& hints = verdict.outputs[output].hints;
    EXPECT_TRUE(std::any_of(hints.begin(), hints.end(), [](const std::string& hint) {
      return hint.find("these bytes are NVFP4 with linear scales") != std::string::npos;
    })) << output;
  }
}

// Pages of heads times tokens, of which the writer took the heads for tokens.
TEST(StoredTriplet, ScalesSwizzledOverHeadsAreNamed) {
  constexpr size_t kHeads = 4, kTokens = 12, kScales = 128 / 16;
  CodecRule rule;
  rule.format = ParseKvFormat(WholeLine("nvfp4:swizzled:bf16"));
  const Tensor x = RowsFor(rule.format, "group_scales", DType::kBFloat16, 12, 512);
  TensorMap wrong = EncodeRows(ParseKvFormat(WholeLine("nvfp4:bf16")), rule.profile, x);
  const std::vector<std::byte> linear = wrong.at("scales").bytes;
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t s = 0; s < kScales; ++s) {
        const size_t head = s / (kScales / 4);
        wrong.at("scales").bytes[(head * kTokens + t) * kScales + s % (kScales / 4) * 4 + h] =
            linear[(h * kTokens + t) * kScales + s];
      }
    }
  }
  const Verdict verdict = JudgeTriplet(rule, x, wrong);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  const std::vector<std::string>& hints = verdict.outputs[0].hints;
  EXPECT_TRUE(std::any_of(hints.begin(), hints.end(), [](const std::string& hint) {
    return hint.find("swizzled over 4 heads, whose pages of 4 tokens are 3 a head") !=
           std::string::npos;
  })) << (hints.empty() ? "" : hints[0]);
}

TEST(StoredTriplet, OtherCodesWithinTheBoundFailOnlyWhereTheirBitsAreAsked) {
  const AffineFormat format{8, 64, DType::kBFloat16};
  const Tensor x = Rows("gauss", DType::kBFloat16, 8, 128);
  TensorMap encoded = EncodeRows(format, Profile(), x);
  encoded.at("codes").As<uint32_t>()[5] ^= 1;  // one step at most
  CodecRule rule;
  rule.format = format;
  rule.profile.decode = DecodeRounding::kTwoRoundings;
  rule.stated = {CodecChoice::kDecode};
  EXPECT_EQ(JudgeTriplet(rule, x, encoded).outcome, Outcome::kPass);
  rule.stated.insert(CodecChoice::kEncode);
  rule.codes_exact = true;
  const Verdict verdict = JudgeTriplet(rule, x, encoded);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[1].outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[1].worst->element, 5);
  EXPECT_EQ(verdict.outputs[2].outcome, Outcome::kPass);
}

TEST(StoredTriplet, AWrongScaleFailsByItsValues) {
  const AffineFormat format{4, 64, DType::kFloat32};
  const Tensor x = Rows("gauss", DType::kFloat32, 8, 128);
  TensorMap encoded = EncodeRows(format, Profile(), x);
  encoded.at("scales").As<float>()[3] *= 1.5f;
  const Verdict verdict = JudgeTriplet(Rule("affine:4:g64"), x, encoded);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.assumptions.size(), 3u);
  const int64_t element = verdict.outputs[0].worst->element;
  EXPECT_EQ(element / 64, 3);
}

TEST(StoredTriplet, AMismatchIsAFindingWithItsReason) {
  const AffineFormat format{4, 64, DType::kFloat32};
  const Tensor x = Rows("gauss", DType::kFloat32, 2, 128);
  const TensorMap encoded = EncodeRows(format, Profile(), x);
  const auto reason = [&](const KvFormat& as, const TensorMap& tensors) {
    return TripletMismatch(as, x.shape, Triplet(tensors), kNames).value_or("");
  };
  EXPECT_EQ(reason(format, encoded), "");
  EXPECT_EQ(
      reason(AffineFormat{8, 64, DType::kFloat32}, encoded),
      "k_codes: has shape B=1 T=2 W=16, affine:8:g64:f32 stores rows B=1 T=2 Dk=128 as 1x2x32");
  EXPECT_EQ(reason(AffineFormat{4, 64, DType::kBFloat16}, encoded),
            "k_scales: has type float32, affine:4:g64:bf16 stores bfloat16");
  TensorMap other = encoded;
  other.at("biases").shape = {{"T", 2}, {"G", 2}};
  EXPECT_NE(reason(format, other), "");
  const MemorySink none{TensorMap{}};
  EXPECT_EQ(TripletMismatch(format, x.shape, none, kNames), "k_codes: missing");
}

TEST(StoredCodec, AnInfinityLeavesItsRowUnjudged) {
  const CodecRule rule = Rule("affine:4:g64");
  Tensor x = Rows("gauss", DType::kFloat32, 3, 64);
  std::vector<double> values = ValuesOf(x);
  values[70] = std::numeric_limits<double>::infinity();
  x = InType(DType::kFloat32, x.shape, values);
  const Tensor got = Dequantised(rule.format, Profile(), x, DType::kFloat32);
  const Verdict verdict = JudgeDequantised(Rule("affine:4:g64:f32"), x, got);
  EXPECT_EQ(verdict.outputs[0].counts.undefined, 64);
  EXPECT_EQ(verdict.outputs[0].counts.judged, 128);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
}

}  // namespace
}  // namespace kvcheck
