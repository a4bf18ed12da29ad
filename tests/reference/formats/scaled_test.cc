// Codes of 8 bits with a scale beside what PyTorch, ml_dtypes and a transcription of vLLM's kernel
// make: the witnesses of formats.md, section D.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/formats/scaled_codes.h"
#include "reference/judge/judge.h"
#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();
constexpr TokenEncoder kWriters[] = {TokenEncoder::kDivide, TokenEncoder::kVllm,
                                     TokenEncoder::kVllmTruncate};

Profile Writer(TokenEncoder encoder) {
  Profile profile;
  profile.token_encode = encoder;
  return profile;
}

Profile Overflowing(Fp8Overflow overflow) {
  Profile profile;
  profile.fp8_overflow = overflow;
  return profile;
}

// Of the types that kvcheck has as types of tensors: their codes.
TEST(ScaledCodes, AreThoseOfTheTypesAtEveryBorder) {
  for (const auto& [code, dtype] : {std::pair(ScaledCode::kE4M3FN, DType::kFloat8E4M3FN),
                                    {ScaledCode::kE5M2, DType::kFloat8E5M2}}) {
    for (uint64_t bits = 0; bits < 256; ++bits) {
      const double value = Decode(dtype, bits);
      const double mine = ValueOf(code, static_cast<uint8_t>(bits));
      ASSERT_TRUE(mine == value || (std::isnan(mine) && std::isnan(value))) << bits;
      const double next = Decode(dtype, (bits + 1) % 256);
      for (const double at : {value, (value + next) / 2}) {
        const auto near = static_cast<float>(at);
        for (const float q : {near, std::nextafterf(near, kFloatInfinity),
                              std::nextafterf(near, -kFloatInfinity)}) {
          ConvertRule rule;
          ASSERT_EQ(NearestCode(code, q, Fp8Overflow::kNan), Encode(dtype, q, rule)) << q;
          rule.overflow = Overflow::kSaturate;
          ASSERT_EQ(NearestCode(code, q, Fp8Overflow::kSaturate), Encode(dtype, q, rule)) << q;
          rule.overflow = Overflow::kSaturateAll;
          ASSERT_EQ(NearestCode(code, q, Fp8Overflow::kSaturateAll), Encode(dtype, q, rule)) << q;
        }
      }
    }
  }
}

// A fnuz code means half of what the same bits mean in the OCP type, and its fields go on to the
// last.
TEST(ScaledCodes, FnuzIsHalfOfOcp) {
  for (const auto& [fnuz, ocp, last] :
       {std::tuple(ScaledCode::kE4M3FNUZ, ScaledCode::kE4M3FN, 0x7e),
        {ScaledCode::kE5M2FNUZ, ScaledCode::kE5M2, 0x7b}}) {
    for (int bits = 0; bits <= last; ++bits) {
      const auto code = static_cast<uint8_t>(bits);
      EXPECT_EQ(2 * ValueOf(fnuz, code), ValueOf(ocp, code));
      if (bits == 0) continue;
      EXPECT_EQ(ValueOf(fnuz, static_cast<uint8_t>(code | 0x80)), -ValueOf(fnuz, code));
      const auto middle = static_cast<float>((ValueOf(fnuz, code) + ValueOf(fnuz, code - 1)) / 2);
      for (const float q :
           {middle, std::nextafterf(middle, kFloatInfinity), std::nextafterf(middle, 0.0f)}) {
        EXPECT_EQ(NearestCode(fnuz, q, Fp8Overflow::kNan),
                  NearestCode(ocp, 2 * q, Fp8Overflow::kNan))
            << q;
      }
    }
    EXPECT_TRUE(std::isnan(ValueOf(fnuz, 0x80)));
    EXPECT_EQ(NearestCode(fnuz, -0.0f, Fp8Overflow::kNan), 0);
  }
  // ml_dtypes 0.6.0 and PyTorch 2.15.0.
  const std::vector<std::pair<float, int>> of_e4m3 = {
      {240, 0x7f},       {247.9f, 0x7f},         {248, 0x80},
      {-248, 0x80},      {kFloatInfinity, 0x80}, {-kFloatInfinity, 0x80},
      {kFloatNan, 0x80}, {-0x1p-11f, 0}};
  for (const auto& [q, code] : of_e4m3) {
    EXPECT_EQ(NearestCode(ScaledCode::kE4M3FNUZ, q, Fp8Overflow::kNan), code) << q;
  }
  EXPECT_EQ(NearestCode(ScaledCode::kE5M2FNUZ, 61439, Fp8Overflow::kNan), 0x7f);
  EXPECT_EQ(NearestCode(ScaledCode::kE5M2FNUZ, 61440, Fp8Overflow::kNan), 0x80);
  EXPECT_EQ(NearestCode(ScaledCode::kE5M2FNUZ, -61440, Fp8Overflow::kSaturate), 0xff);
}

TEST(Scaled, TheWitnessHasTheBytesOfPyTorchAndOfVllm) {
  const Tensor x = RowOf(DType::kFloat32, WitnessRow());
  struct Row {
    const char* name;
    const char* codes;
    const char* scale;       // max / largest
    const char* vllm_scale;  // max (1 / largest)
  };
  const std::vector<Row> rows = {
      {"fp8:e4m3fn", "f9ef64757cf5e46f797ef15c747bf7e96c787df200727af8ec69777df4dc717a", "dbb6ad3b",
       "dcb6ad3b"},
      {"fp8:e5m2", "f8f36e777af7ee73787bf46a767af7f072787bf5007579f8f270777af6ea7479", "dbb62d38",
       "dcb62d38"},
      {"fp8:e4m3fnuz", "f9f065767df6e570797ff15d757cf8e96d797ef300737bf9ed69787df5dd717a",
       "2222223c", "2322223c"},
      {"fp8:e5m2fnuz", "fcf7727b7efbf2777c7ff86e7a7efbf4767c7ff900797dfcf6747b7efaee787d",
       "dbb62d38", "dcb62d38"},
      {"int8", "b0df0d3c6bc4f321507fd8073564bdec1b4a78d1002f5eb6e5144372cbf92857", "6532993c",
       "6532993c"}};
  for (const Row& row : rows) {
    const std::string name = row.name;
    for (const TokenEncoder encoder : {TokenEncoder::kDivide, TokenEncoder::kVllm}) {
      const std::string scale = encoder == TokenEncoder::kVllm ? row.vllm_scale : row.scale;
      const TensorMap apart = EncodeRows(FormatNamed(name + ":token:f32"), Writer(encoder), x);
      EXPECT_EQ(Hex(apart.at("codes")), row.codes) << name;
      EXPECT_EQ(Hex(apart.at("scales")), scale) << name;
      // The room of the scale is the last of the cell.
      const TensorMap cells = EncodeRows(FormatNamed(name + ":inline:f32"), Writer(encoder), x);
      EXPECT_EQ(Hex(cells.at("cells")), row.codes + scale) << name;
    }
  }
  EXPECT_EQ(Hex(EncodeRows(FormatNamed("int8:token:f32"), Writer(TokenEncoder::kVllmTruncate), x)
                    .at("codes")),
            "b0df0d3c6ac4f321507ed8063564beec1a4978d2002e5db7e6144271cbfa2856");
}

TEST(Scaled, WritersDifferInTiesAndInTheSmallestScale) {
  std::vector<double> row = {127, 0.5, -1.5, 2.5};
  row.resize(32, 0.0);
  const std::string rest(56, '0');
  const auto codes = [&](TokenEncoder encoder) {
    return Hex(
        EncodeRows(FormatNamed("int8:token:f32"), Writer(encoder), RowOf(DType::kFloat32, row))
            .at("codes"));
  };
  EXPECT_EQ(codes(TokenEncoder::kDivide), "7f00fe02" + rest);
  EXPECT_EQ(codes(TokenEncoder::kVllm), "7f01fe03" + rest);
  EXPECT_EQ(codes(TokenEncoder::kVllmTruncate), "7f00ff02" + rest);

  const Tensor zeros = RowOf(DType::kFloat32, std::vector<double>(32, 0.0));
  for (const TokenEncoder encoder : kWriters) {
    const TensorMap stored = EncodeRows(FormatNamed("fp8:e5m2:token:f32"), Writer(encoder), zeros);
    EXPECT_EQ(Hex(stored.at("codes")), std::string(64, '0'));
    EXPECT_EQ(*stored.at("scales").As<float>(), encoder == TokenEncoder::kDivide ? 0.0f : 1e-6f);
  }
}

TEST(Scaled, ValuesAreCodesTimesTheScale) {
  const KvFormat format = FormatNamed("fp8:e4m3fn:token:bf16");
  const TensorMap stored = EncodeRows(format, Profile(), RowOf(DType::kFloat32, WitnessRow()));
  const EncodedRows rows = CodecRows(format, stored);
  const double scale = static_cast<double>(*stored.at("scales").As<float>());
  const DecodedRows exact = DecodeRows(format, Profile(), rows, 0, 1);
  Profile two;
  two.decode = DecodeRounding::kTwoRoundings;
  const std::vector<double> twice = DecodeToRowType(format, two, rows, 0, 1);
  for (size_t i = 0; i < 32; ++i) {
    const double product =
        ValueOf(ScaledCode::kE4M3FN, std::to_integer<uint8_t>(stored.at("codes").bytes[i])) * scale;
    EXPECT_EQ(exact.hi[i], product);
    EXPECT_EQ(twice[i],
              RoundTo(DType::kBFloat16, static_cast<double>(static_cast<float>(product))));
  }
}

// A product just above the middle of two bf16 values, by less than f32 keeps: rounded once it goes
// up, rounded twice to even.
TEST(Scaled, TwoRoundingsAreNotOne) {
  const KvFormat format = FormatNamed("int8:token:bf16");
  TensorMap stored = EncodeRows(format, Profile(), RowOf(DType::kFloat32, WitnessRow()));
  int64_t differ = 0;
  Profile one, two;
  one.decode = DecodeRounding::kOneRounding;
  two.decode = DecodeRounding::kTwoRoundings;
  for (uint32_t k = 0; k < 20000; ++k) {
    *stored.at("scales").As<float>() = std::bit_cast<float>(0x3f800000u + 419u * k);
    const EncodedRows rows = CodecRows(format, stored);
    const std::vector<double> once = DecodeToRowType(format, one, rows, 0, 1);
    const std::vector<double> twice = DecodeToRowType(format, two, rows, 0, 1);
    for (size_t i = 0; i < once.size(); ++i) differ += once[i] != twice[i] ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
}

TEST(Scaled, AGivenScaleOverflowsByTheProfile) {
  const KvFormat format = FormatNamed("fp8:e4m3fn:s0.5:f32");
  std::vector<double> row = {224, 232, 232.1, 1000, kFloatInfinity, -kFloatInfinity, kFloatNan, 1};
  const auto codes = [&](Fp8Overflow overflow) {
    return Hex(EncodeRows(format, Overflowing(overflow), RowOf(DType::kFloat32, row)).at("codes"));
  };
  EXPECT_EQ(codes(Fp8Overflow::kNan), "7e7e7f7f7fff7f40");
  EXPECT_EQ(codes(Fp8Overflow::kSaturate), "7e7e7e7e7efe7f40");
  EXPECT_EQ(codes(Fp8Overflow::kSaturateAll), "7e7e7e7e7efe7e40");
  // What a scale of 1 clips, one of 4 keeps: the scale decides.
  const Tensor x = RowOf(DType::kFloat32, std::vector<double>(4, 1000.0));
  for (const auto& [scale, value] : {std::pair("s1", 448.0), {"s4", 1024.0}}) {
    const KvFormat given = FormatNamed(std::string("fp8:e4m3fn:") + scale + ":f32");
    const TensorMap stored = EncodeRows(given, Overflowing(Fp8Overflow::kSaturate), x);
    EXPECT_EQ(DecodeRows(given, Profile(), CodecRows(given, stored), 0, 1).hi[0], value);
  }
}

// A row of head h is stored as under the scale of h, whatever tensor it stands in.
TEST(Scaled, EachHeadHasItsScale) {
  const KvFormat heads = FormatNamed("int8:h0.5/0.125:f32");
  ASSERT_EQ(HeadsOf(heads), 2);
  EXPECT_EQ(FormatOfHead(heads, 1), FormatNamed("int8:s0.125:f32"));
  EXPECT_EQ(HeadsOf(FormatNamed("int8:s0.5:f32")), 1);
  const Tensor flat = GenerateRows("gauss", 3, DType::kFloat32, 12, 8);
  Tensor split = flat;
  split.shape = {{"B", 2}, {"Hkv", 2}, {"T", 3}, {"", 8}};
  for (const Tensor* x : std::initializer_list<const Tensor*>{&flat, &split}) {
    const TensorMap stored = EncodeRows(heads, Profile(), *x);
    const EncodedRows rows = CodecRows(heads, stored);
    const std::vector<double> y = DecodeToRowType(heads, Profile(), rows, 0, 12);
    for (int64_t row = 0; row < 12; ++row) {
      const int64_t head = x == &flat ? row % 2 : row / 3 % 2;
      EXPECT_EQ(HeadOfRow(heads, x->shape, row), head);
      const KvFormat one = FormatOfHead(heads, head);
      const TensorMap alone = EncodeRows(one, Profile(), *x);
      const std::vector<double> want =
          DecodeToRowType(one, Profile(), CodecRows(one, alone), row, 1);
      for (size_t i = 0; i < 8; ++i) {
        const auto at = static_cast<size_t>(row) * 8 + i;
        EXPECT_EQ(stored.at("codes").bytes[at], alone.at("codes").bytes[at]);
        EXPECT_EQ(y[at], want[i]);
      }
    }
  }
}

TEST(Scaled, OtherHeadsThanTheTextNamesAreIllegal) {
  const std::string rest = " l=1 t=3 d=8 q=f32 v=f32 out=f32 data=gauss:1";
  EXPECT_NO_THROW(ParseCase("attention hq=4 hkv=2 k=int8:h0.5/0.5:f32" + rest));
  EXPECT_THROW(ParseCase("attention hq=3 hkv=3 k=int8:h0.5/0.5:f32" + rest), Error);
  const std::string cache = "cache k=int8:h0.5/0.5:f32 v=f32 dk=8 data=tokens:1";
  EXPECT_NO_THROW(ParseCase(cache + " hkv=2; new A"));
  EXPECT_THROW(ParseCase(cache + " hkv=1; new A"), Error);
  EXPECT_THROW(ParseCase(cache + " hkv=2; new A k=int8:h1/1/1:f32"), Error);
}

TEST(Scaled, TextsSayTheScaleAsAFloat) {
  for (const char* text : {"fp8:e4m3fn:s0.1:bf16", "int8:s1e-05:f32", "fp8:e5m2:s0.0625:f16",
                           "fp8:e4m3fn:h0.5/0.25/0.1:bf16", "fp8:e4m3fnuz:inline:f32"}) {
    EXPECT_EQ(Print(FormatNamed(text)), text);
  }
  EXPECT_EQ(Print(FormatNamed("int8:s2^-4:f32")), "int8:s0.0625:f32");
  EXPECT_EQ(std::get<ScaledFormat>(FormatNamed("int8:s0.1:f32")).scale, 0.1f);
}

TEST(Scaled, BoundHoldsInEveryRegimeTypeAndWriterAndIsReached) {
  for (const ScaledFormat& scaled : ScaledFormat::All()) {
    if (scaled.place == ScalePlace::kInline) continue;
    BoundCheck of_format;
    for (const std::string_view regime : RowRegimes()) {
      for (const DType type :
           {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        for (const TokenEncoder encoder : kWriters) {
          for (const DecodeRounding decode : {DecodeRounding::kExact, DecodeRounding::kTwoRoundings,
                                              DecodeRounding::kOneRounding}) {
            Profile profile = Writer(encoder);
            profile.decode = decode;
            profile.fp8_overflow =
                decode == DecodeRounding::kExact ? Fp8Overflow::kSaturate : Fp8Overflow::kNan;
            const BoundCheck check =
                CheckBound(scaled, profile, GenerateRows(regime, 9, type, 2, 96));
            EXPECT_EQ(check.violations, 0)
                << Print(KvFormat(scaled)) << " " << regime << " " << Name(type);
            of_format.Add(check);
          }
        }
      }
    }
    EXPECT_GT(of_format.largest_ratio, 0.95) << Print(KvFormat(scaled));
  }
}

TEST(Scaled, BoundHoldsWhereTheScaleIsSubnormal) {
  for (const ScaledCode code : {ScaledCode::kE4M3FN, ScaledCode::kE5M2, ScaledCode::kInt8}) {
    for (int exponent = -149; exponent <= 127; ++exponent) {
      std::vector<double> row(32);
      for (size_t i = 0; i < 32; ++i) {
        row[i] = std::ldexp(std::fmod(0.37 * static_cast<double>(i), 1.99) - 0.99, exponent);
      }
      row[7] = std::ldexp(1.0, exponent);
      for (const TokenEncoder encoder : kWriters) {
        const BoundCheck check =
            CheckBound(ScaledFormat{code, ScalePlace::kToken, 0, DType::kFloat32}, Writer(encoder),
                       RowOf(DType::kFloat32, row));
        EXPECT_EQ(check.violations, 0) << exponent;
        EXPECT_EQ(check.without_bound, 0) << exponent;
      }
    }
  }
}

// Where a wrong code is said to show, every other code's value is beyond the bound.
TEST(Scaled, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  int64_t claimed = 0, elements = 0;
  for (const ScaledFormat& scaled : ScaledFormat::All()) {
    if (scaled.place == ScalePlace::kInline) continue;
    for (const char* regime : {"gauss", "offset", "tiny", "sparse"}) {
      for (const DecodeRounding decode : {DecodeRounding::kExact, DecodeRounding::kTwoRoundings}) {
        Profile profile;
        profile.decode = decode;
        const Tensor x = GenerateRows(regime, 3, scaled.row_type, 1, 64);
        const std::vector<double> values = ValuesOf(x);
        const RowBound bound = RoundTripBound(scaled, profile, decode, x.dtype,
                                              std::optional(DType::kFloat64), values);
        const TensorMap stored = EncodeRows(scaled, profile, x);
        const std::vector<std::byte>& codes = stored.at("codes").bytes;
        const float given = scaled.scale;
        const double scale = scaled.IsDynamic() ? *stored.at("scales").As<float>() : given;
        for (size_t i = 0; i < values.size(); ++i) {
          ++elements;
          if (bound.overflows[i] || !(bound.total[i] < bound.wrong_code[i])) continue;
          ++claimed;
          const double right = ValueOf(scaled.code, std::to_integer<uint8_t>(codes[i]));
          for (int other = 0; other < 256; ++other) {
            const double value = ValueOf(scaled.code, static_cast<uint8_t>(other));
            if (value == right || !std::isfinite(value)) continue;
            double y = value * scale;
            if (decode == DecodeRounding::kTwoRoundings) {
              y = RoundTo(scaled.row_type, RoundTo(DType::kFloat32, y));
            }
            EXPECT_GT(std::fabs(y - values[i]), bound.total[i])
                << Print(KvFormat(scaled)) << " " << regime << " element " << i;
          }
        }
      }
    }
  }
  EXPECT_GT(claimed, elements / 2);
  EXPECT_LT(claimed, elements);
}

Outcome Judged(const CodecCase& c, const Profile& profile, const TensorMap& inputs,
               const TensorMap& got) {
  const auto source = MakeCodecSource(c, profile, inputs);
  return Judge(*source, MemorySink(got)).outcome;
}

TEST(Scaled, NothingIsPromisedOfARowThatIsNotFinite) {
  for (const char* text : {"fp8:e4m3fn:token:f32", "int8:inline:f32"}) {
    const KvFormat format = FormatNamed(text);
    std::vector<double> values(64, 1.0);
    values[3] = kFloatNan;
    Tensor x(DType::kFloat32, {{"", 2}, {"", 32}});
    EncodeFrom(values, DType::kFloat32, x.bytes.data());
    const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 2, 32, {"gauss", 1, ""}};
    const TensorMap inputs = {{"x", x}};
    TensorMap got = EncodeRows(format, Profile(), x);
    EXPECT_EQ(Judged(c, Profile(), inputs, got), Outcome::kPass);
    Tensor& first = got.at(PlaneNames(format)[0]);
    const size_t row = first.bytes.size() / 2;
    first.bytes[row - 1] ^= std::byte{1};
    EXPECT_EQ(Judged(c, Profile(), inputs, got), Outcome::kPass);
    first.bytes[2 * row - 1] ^= std::byte{1};
    EXPECT_EQ(Judged(c, Profile(), inputs, got), Outcome::kFail);
  }
}

TEST(Scaled, TheSignOfNanIsOpenUnderAGivenScaleAndNothingElse) {
  const KvFormat format = FormatNamed("fp8:e5m2:s1:f32");
  const std::vector<double> values = {kFloatNan, 1, 1, 1};
  const Tensor x = RowOf(DType::kFloat32, values);
  const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 1, 4, {"gauss", 1, ""}};
  TensorMap got = EncodeRows(format, Profile(), x);
  std::byte& code = got.at("codes").bytes[0];
  const std::vector<std::pair<int, Outcome>> codes = {
      {0x7e, Outcome::kPass}, {0xfe, Outcome::kPass}, {0x7f, Outcome::kPass},
      {0x7c, Outcome::kFail}, {0x7b, Outcome::kFail}, {0, Outcome::kFail}};
  for (const auto& [bits, outcome] : codes) {
    code = static_cast<std::byte>(bits);
    EXPECT_EQ(Judged(c, Profile(), {{"x", x}}, got), outcome) << bits;
  }
}

// Of a writer that multiplies by 1 / s: the codes of the reciprocals beside the nearest one, and no
// other. A value of 126.99999 steps is truncated to 126 or, one unit higher, to 127.
TEST(Scaled, TheUnitOfAReciprocalIsOpenWhereItMovesACode) {
  const KvFormat format = FormatNamed("int8:token:f32");
  const Profile profile = Writer(TokenEncoder::kVllmTruncate);
  const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 400, 32, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", GenerateRows("gauss", 1, DType::kFloat32, 400, 32)}};
  const auto source = MakeCodecSource(c, profile, inputs);
  int64_t open = 0;
  TensorMap got = EncodeRows(format, profile, inputs.at("x"));
  auto* codes = got.at("codes").As<int8_t>();
  for (const ExpectedTile& tile : source->Tiles(0, {})) {
    for (const Alternative& alternative : tile.alternatives) {
      EXPECT_EQ(tile.output, 0);
      EXPECT_LE(std::fabs(alternative.value - codes[alternative.element]), 1);
      codes[alternative.element] = static_cast<int8_t>(alternative.value);
      ++open;
    }
  }
  EXPECT_GT(open, 10);
  EXPECT_LT(open, 800);  // next to the largest element of a row
  EXPECT_EQ(Judged(c, profile, inputs, got), Outcome::kPass);
  // The bound holds of them too.
  const std::vector<double> values = ValuesOf(inputs.at("x"));
  const DecodedRows decoded = DecodeRows(format, profile, CodecRows(format, got), 0, 400);
  for (size_t row = 0; row < 400; ++row) {
    const std::span<const double> x = std::span(values).subspan(row * 32, 32);
    const RowBound bound =
        RoundTripBound(format, profile, DecodeRounding::kExact, DType::kFloat32, x);
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_LE(std::fabs(x[i] - decoded.hi[row * 32 + i]), bound.total[i]) << row << " " << i;
    }
  }
  codes[5] = static_cast<int8_t>(codes[5] / 2 + 3);
  EXPECT_EQ(Judged(c, profile, inputs, got), Outcome::kFail);
}

TEST(Scaled, AnotherWriterIsNamed) {
  const KvFormat format = FormatNamed("int8:token:f32");
  const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 4, 128, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", GenerateRows("ties", 1, DType::kFloat32, 4, 128)}};
  const TensorMap got = EncodeRows(format, Writer(TokenEncoder::kVllmTruncate), inputs.at("x"));
  const auto source = MakeCodecSource(c, Profile(), inputs);
  const Verdict verdict = Judge(*source, MemorySink(got));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  const auto declared = source->OtherReadings(0)[1].declared;
  ASSERT_TRUE(declared);
  EXPECT_EQ(Print(*declared),
            "token_encode=vllm_truncate instead of token_encode=divide (the default)");
}

}  // namespace
}  // namespace kvcheck
