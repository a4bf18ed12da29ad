// MX formats beside what MLX itself writes and reads, and the rules of the other writers: the
// witnesses of formats.md, section B.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
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

Profile Writer(MxEncoder encoder) {
  Profile profile;
  profile.mx_encode = encoder;
  return profile;
}

// Codes as MLX prints them, words of 32 bits, and the bytes of the scales.
std::string Words(const TensorMap& stored) {
  std::string text;
  const std::vector<std::byte>& codes = stored.at("codes").bytes;
  for (size_t i = 0; i < codes.size(); i += 4) {
    for (size_t j = 4; j-- > 0;) text += fmt::format("{:02x}", static_cast<int>(codes[i + j]));
    text += " ";
  }
  for (const std::byte byte : stored.at("scales").bytes) {
    text += fmt::format("{:02x}", static_cast<int>(byte));
  }
  return text;
}

std::string Written(const std::string& format, MxEncoder encoder, std::vector<double> row,
                    size_t channels = 32) {
  row.resize(channels, 0.0);
  const KvFormat of = FormatNamed(format);
  return Words(EncodeRows(of, Writer(encoder), RowOf(RowDType(of), row)));
}

std::vector<double> RoundTrip(const std::string& format, const Profile& profile,
                              const std::vector<double>& row) {
  const KvFormat of = FormatNamed(format);
  const TensorMap stored = EncodeRows(of, profile, RowOf(RowDType(of), row));
  return DecodeToRowType(of, profile, CodecRows(of, stored), 0, 1);
}

const std::vector<double> kTies = {6,     0.25,  0.75,  1.25,  1.75, 2.5,  3.5, 5,
                                   -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5,  -0.1};

TEST(Mx, WritesTheBytesOfMlx) {
  EXPECT_EQ(Written("mxfp4:bf16", MxEncoder::kMlx, WitnessRow()),
            "29c641ad 9c640b65 d530b652 530c641a 7e");
  EXPECT_EQ(Written("mxfp8:e4m3:bf16", MxEncoder::kMlx, WitnessRow()),
            "7160eaf4 6ae0f178 58ec7a74 e4f27770 ee797368 f3766e00 787264e8 756cd8f0 78");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx, kTies), "65432107 0edcba90 00000000 00000000 7f");
}

TEST(Mx, DecodesTheWitnesses) {
  const std::vector<uint64_t> four = {0xbfc0, 0xbf00, 0x3e80, 0x3f80, 0x4000, 0xbf80, 0xbe80,
                                      0x3f00, 0x3fc0, 0x4000, 0xbf40, 0x0000, 0x3f80, 0x4000};
  const std::vector<uint64_t> eight = {0xbfc0, 0xbf20, 0x3e80, 0x3f90, 0x4000, 0xbf90, 0xbe80,
                                       0x3f20, 0x3fc0, 0x4020, 0xbf40, 0x3e00, 0x3f80, 0x3ff0};
  Profile profile = Writer(MxEncoder::kMlx);
  profile.decode = DecodeRounding::kTwoRoundings;
  std::vector<double> values = RoundTrip("mxfp4:bf16", profile, WitnessRow());
  values.resize(four.size());
  EXPECT_EQ(BitsOf(DType::kBFloat16, values), four);
  values = RoundTrip("mxfp8:e4m3:bf16", profile, WitnessRow());
  values.resize(eight.size());
  EXPECT_EQ(BitsOf(DType::kBFloat16, values), eight);
}

TEST(Mx, EachWriterHasItsOwnTiesAndZeros) {
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kOcp, kTies), "66442207 8eeccaa8 00000000 00000000 7f");
  EXPECT_EQ(Written("mxfp4:g16:f32", MxEncoder::kSglang, kTies, 16), "76543217 8fedcba9 7f");
  // -0 itself has no sign for SGLang.
  EXPECT_EQ(Written("mxfp4:g16:f32", MxEncoder::kSglang, {6, -0.0, -0.1}, 16),
            "00000807 00000000 7f");
  EXPECT_EQ(Written("mxfp4:g16:f32", MxEncoder::kOcp, {6, -0.0, -0.1}, 16), "00000887 00000000 7f");
}

TEST(Mx, EachWriterHasItsOwnExponent) {
  // OCP floors and clips 7 to 6; MLX rounds up.
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kOcp, {7}), "00000007 00000000 00000000 00000000 7f");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx, {7}), "00000005 00000000 00000000 00000000 80");
  // log2(7 / 6) = 0.22 is nearest to 0, log2(9 / 6) = 0.58 to 1.
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx031, {7}),
            "00000007 00000000 00000000 00000000 7f");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx031, {9}),
            "00000006 00000000 00000000 00000000 80");
  // 3.5 is a tie: to even, and not to the smaller one as with MLX.
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kUp, {7}), "00000006 00000000 00000000 00000000 80");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kUp, {6}), "00000007 00000000 00000000 00000000 7f");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kUp, {}), "00000000 00000000 00000000 00000000 00");
  // Zeros: the smallest scale, 1, 2^-33.
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kOcp, {}), "00000000 00000000 00000000 00000000 00");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx, {}), "00000000 00000000 00000000 00000000 7f");
  EXPECT_EQ(Written("mxfp4:g16:f32", MxEncoder::kSglang, {}, 16), "00000000 00000000 5e");
}

TEST(Mx, MlxWrapsTheScaleOfTinyBlocks) {
  const std::vector<double> values =
      RoundTrip("mxfp4:f32", Writer(MxEncoder::kMlx), std::vector<double>(32, -1e-40));
  EXPECT_LT(values[0], -1e36);
  const RowBound bound = RoundTripBound(FormatNamed("mxfp4:f32"), Writer(MxEncoder::kMlx),
                                        DecodeRounding::kTwoRoundings, DType::kFloat32,
                                        std::vector<double>(32, -1e-40));
  EXPECT_TRUE(bound.overflows[0]);
}

TEST(Mx, MlxTakesALogarithmOfF32) {
  // (The rule that rounds up takes the exact one.)
  // log2 of the f32 after 2^100 rounds to 100: the maximum then lies beyond the largest element.
  const double q = std::nextafterf(0x1p100f, INFINITY);
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx, {6 * q}).substr(36), "e3");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kMlx, {6 * 0x1.0001p100}).substr(36), "e4");
  EXPECT_EQ(Written("mxfp4:f32", MxEncoder::kUp, {6 * q}).substr(36), "e4");
}

// MLX 0.32.4 reads 2^128, which is infinite in every type of rows; others read NaN.
TEST(Mx, MlxReadsTheLastScaleAsAPowerOfTwo) {
  for (const char* text : {"mxfp4:f32", "mxfp4:f16", "mxfp4:bf16", "mxfp8:e4m3:bf16"}) {
    const KvFormat format = FormatNamed(text);
    const Planes planes = PlanesOf(format, 32);
    Tensor codes(DType::kUInt8, {{"", 1}, {"", planes[0].elements}});
    Tensor scales(DType::kUInt8, {{"", 1}, {"", 1}});
    codes.bytes[0] = std::byte{0x10};  // of e2m1 0 and 0.5; of e4m3 2^-5
    codes.bytes[1] = std::byte{0x98};  // of e2m1 -0 and -0.5; of e4m3 -2^-4
    scales.bytes[0] = std::byte{255};
    const TensorMap stored = {{"codes", codes}, {"scales", scales}};
    const auto rows = CodecRows(format, stored);
    const bool two = planes[0].elements == 16;
    for (const MxEncoder encoder : {MxEncoder::kMlx, MxEncoder::kMlx031}) {
      Profile profile = Writer(encoder);
      profile.decode = DecodeRounding::kTwoRoundings;
      const std::vector<double> values = DecodeToRowType(format, profile, rows, 0, 1);
      EXPECT_EQ(values[two ? 1 : 0], INFINITY) << text;
      EXPECT_EQ(values[two ? 3 : 1], -INFINITY) << text;
      EXPECT_TRUE(std::isnan(values[4])) << text;
      profile.decode = DecodeRounding::kExact;
      EXPECT_EQ(DecodeRows(format, profile, rows, 0, 1).hi[two ? 1 : 0], two ? 0x1p127 : 0x1p123)
          << text;
    }
    EXPECT_TRUE(std::isnan(DecodeToRowType(format, Profile(), rows, 0, 1)[1])) << text;
  }
}

// Every scale with every code.
TEST(Mx, EveryScaleAndCodeIsTheirProduct) {
  for (const char* text : {"mxfp4:f32", "mxfp8:e4m3:f32", "mxfp8:e5m2:f32"}) {
    const KvFormat format = FormatNamed(text);
    const auto& mx = std::get<MxFormat>(format);
    const bool two = mx.element == DType::kFloat4E2M1FN;
    const Planes planes = PlanesOf(format, 256);
    Tensor codes(DType::kUInt8, {{"", 1}, {"", planes[0].elements}});
    Tensor scales(DType::kUInt8, {{"", 1}, {"", planes[1].elements}});
    for (size_t i = 0; i < 256; ++i) {
      codes.bytes[two ? i / 2 : i] =
          static_cast<std::byte>(two ? (i / 2 % 16) | (15 - i / 2 % 16) << 4 : i);
    }
    int64_t judged = 0;
    for (int byte = 0; byte < 256; ++byte) {
      std::fill(scales.bytes.begin(), scales.bytes.end(), static_cast<std::byte>(byte));
      const DecodedRows rows = DecodeRows(
          format, Profile(), CodecRows(format, {{"codes", codes}, {"scales", scales}}), 0, 1);
      for (size_t i = 0; i < 256; ++i) {
        const size_t code = two ? (i % 2 == 0 ? i / 2 % 16 : 15 - i / 2 % 16) : i;
        const double element = Decode(mx.element, code);
        const double want = byte == 255 ? std::nan("") : std::ldexp(element, byte - 127);
        ASSERT_TRUE(rows.hi[i] == want || (std::isnan(rows.hi[i]) && std::isnan(want)))
            << text << " " << byte << " " << i;
        judged += std::isnan(want) ? 0 : 1;
      }
    }
    EXPECT_GE(judged, 255 * 240) << text;
  }
}

class MxWriter : public testing::TestWithParam<MxEncoder> {};

TEST_P(MxWriter, BoundHoldsInEveryRegimeAndTypeAndIsReached) {
  for (const KvFormat& format : AllKvFormats()) {
    if (!std::holds_alternative<MxFormat>(format)) continue;
    BoundCheck all;
    for (const std::string_view regime : RowRegimes()) {
      for (const DecodeRounding decode :
           {DecodeRounding::kExact, DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
        Profile profile = Writer(GetParam());
        profile.decode = decode;
        for (const DType type : {DType::kFloat64, RowDType(format)}) {
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 9, type, 8, 320));
          EXPECT_EQ(check.violations, 0)
              << Print(format) << " " << regime << " " << Name(type) << " " << Print(profile);
          all.Add(check);
        }
      }
    }
    EXPECT_GT(all.largest_ratio, 0.99) << Print(format);
    EXPECT_LT(all.without_bound, all.judged / 4) << Print(format);
  }
}

TEST_P(MxWriter, BoundHoldsAtTheEndsOfTheScale) {
  for (const char* text : {"mxfp4:f32", "mxfp4:f16", "mxfp8:e4m3:bf16", "mxfp8:e5m2:f16"}) {
    const KvFormat format = FormatNamed(text);
    int64_t judged = 0;
    for (int exponent = -149; exponent <= 127; ++exponent) {
      std::vector<double> row(32);
      for (size_t i = 0; i < 32; ++i) {
        const double size = i == 7 ? 1.0 : std::fmod(0.37 * static_cast<double>(i), 1.9) - 0.95;
        row[i] = std::ldexp(size, exponent);
      }
      Profile profile = Writer(GetParam());
      profile.decode = DecodeRounding::kTwoRoundings;
      const BoundCheck check = CheckBound(format, profile, RowOf(DType::kFloat32, row));
      EXPECT_EQ(check.violations, 0) << text << " " << exponent;
      judged += check.judged;
    }
    EXPECT_GT(judged, 1000) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MxWriter,
                         testing::Values(MxEncoder::kOcp, MxEncoder::kUp, MxEncoder::kMlx,
                                         MxEncoder::kMlx031, MxEncoder::kSglang),
                         [](const auto& info) {
                           return std::string(
                               FieldOf(CodecChoice::kMxEncode).value(Writer(info.param)));
                         });

Outcome JudgedWith(const Profile& profile, const std::vector<double>& row, const std::string& plane,
                   size_t byte, std::byte change) {
  const KvFormat format = FormatNamed("mxfp4:f32");
  const CodecCase c = {CodecDirection::kEncode, format, DType::kFloat32, 1, 32, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", RowOf(DType::kFloat32, row)}};
  const auto source = MakeCodecSource(c, profile, inputs);
  TensorMap got = EncodeRows(format, profile, inputs.at("x"));
  got.at(plane).bytes[byte] ^= change;
  return Judge(*source, MemorySink(got)).outcome;
}

TEST(Mx, OcpLeavesSignsOfZerosOpenAndTheScaleOfZerosAndNothingElse) {
  std::vector<double> row(32, 0.1);
  row[0] = 6;
  row[1] = -0.1;
  const auto judged = [&](MxEncoder encoder, const std::string& plane, size_t byte, int change) {
    return JudgedWith(Writer(encoder), row, plane, byte, static_cast<std::byte>(change));
  };
  EXPECT_EQ(judged(MxEncoder::kOcp, "codes", 0, 0), Outcome::kPass);
  EXPECT_EQ(judged(MxEncoder::kOcp, "codes", 0, 0x80), Outcome::kPass);
  EXPECT_EQ(judged(MxEncoder::kOcp, "codes", 1, 0x88), Outcome::kPass);
  EXPECT_EQ(judged(MxEncoder::kOcp, "codes", 0, 0x08), Outcome::kFail);
  EXPECT_EQ(judged(MxEncoder::kOcp, "codes", 0, 0x10), Outcome::kFail);
  EXPECT_EQ(judged(MxEncoder::kOcp, "scales", 0, 1), Outcome::kFail);
  EXPECT_EQ(judged(MxEncoder::kMlx, "codes", 0, 0x80), Outcome::kFail);
  row.assign(32, 0.0);
  EXPECT_EQ(judged(MxEncoder::kOcp, "scales", 0, 127), Outcome::kPass);
  EXPECT_EQ(judged(MxEncoder::kOcp, "scales", 0, 255), Outcome::kFail);
  EXPECT_EQ(judged(MxEncoder::kMlx, "scales", 0, 127), Outcome::kFail);
}

TEST(Mx, ABlockWithNanPromisesNothingAndIsNotRead) {
  std::vector<double> row(32, 1.0);
  row[3] = std::nan("");
  // Any byte passes, and proves nothing.
  EXPECT_EQ(JudgedWith(Writer(MxEncoder::kMlx), row, "scales", 0, std::byte{77}),
            Outcome::kMistrusted);
  EXPECT_TRUE(std::isnan(RoundTrip("mxfp4:f32", Profile(), row)[0]));
  const RowBound bound = RoundTripBound(FormatNamed("mxfp4:f32"), Profile(), DecodeRounding::kExact,
                                        DType::kFloat32, row);
  EXPECT_TRUE(bound.undefined[0]);
}

}  // namespace
}  // namespace kvcheck
