// The affine format by its definition: packing, the three decoders, what must hold for every group,
// and where the two encoders part.

#include "reference/formats/affine.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/spec/error.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
constexpr DType kScaleTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct Encoded {
  AffineGroup group;
  std::vector<uint8_t> codes;
};

Encoded EncodeGroup(int bits, const std::vector<float>& x,
                    AffineEncoder encoder = AffineEncoder::kMlxCpu) {
  Encoded encoded;
  encoded.codes.resize(x.size());
  encoded.group = EncodeAffineGroup(bits, encoder, x, encoded.codes);
  return encoded;
}

// Multiples of 2^-12 up to 2^4: exact in f32, far above the floor of the scale.
std::vector<float> ArbitraryGroup() {
  const auto integers =
      *rc::gen::container<std::vector<int>>(32, rc::gen::inRange(-(1 << 16), 1 << 16));
  std::vector<float> x;
  for (const int value : integers) x.push_back(static_cast<float>(value) * 0x1p-12f);
  return x;
}

RC_GTEST_PROP(AffinePacking, UnpackingReturnsWhatWasPacked, ()) {
  const int bits = *rc::gen::elementOf(std::vector<int>(std::begin(kBits), std::end(kBits)));
  const size_t groups = *rc::gen::inRange<size_t>(1, 5);
  const auto codes = *rc::gen::container<std::vector<uint8_t>>(
      32 * groups, rc::gen::map(rc::gen::inRange(0, 1 << bits),
                                [](int code) { return static_cast<uint8_t>(code); }));
  std::vector<uint32_t> words(groups * static_cast<size_t>(bits));
  PackCodes(codes, bits, words);
  std::vector<uint8_t> unpacked(codes.size());
  UnpackCodes(words, bits, unpacked);
  RC_ASSERT(unpacked == codes);
}

TEST(AffinePacking, CrossesWordBordersLeastSignificantBitFirst) {
  std::vector<uint8_t> codes(32, 0);
  codes[10] = 5;  // bits 30, 31 and 32
  std::vector<uint32_t> words(3);
  PackCodes(codes, 3, words);
  EXPECT_EQ(words, (std::vector<uint32_t>{0x40000000u, 1u, 0u}));
}

TEST(AffineDecode, SumsExactlyAsTwoDoubles) {
  // 205 S = 2^-24 + 2^-54: with 1, two doubles are needed, and the sum lies just above the middle
  // of two f32 numbers.
  const double scale = 5237765 * 0x1p-54;
  const ExactValue value = AffineValue(205, scale, 1.0);
  EXPECT_EQ(value.hi, 1 + 0x1p-24);
  EXPECT_EQ(value.lo, 0x1p-54);
  EXPECT_EQ(RoundExact(DType::kFloat32, value), 1 + 0x1p-23);
  const ExactValue below = AffineValue(205, -scale, -1.0);
  EXPECT_EQ(RoundExact(DType::kFloat32, below), -1 - 0x1p-23);
}

TEST(AffineDecode, OneRoundingIsTheFusedMultiplyAddOfF32) {
  uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (int i = 0; i < 100000; ++i) {
    const uint8_t code = static_cast<uint8_t>(next() >> 24);
    const float scale = static_cast<float>(static_cast<int32_t>(next())) * 0x1p-40f;
    const float bias =
        static_cast<float>(static_cast<int32_t>(next())) * (i % 2 == 0 ? 0x1p-31f : 0x1p-20f);
    double y = 0;
    DecodeAffineGroup(DecodeRounding::kOneRounding, DType::kFloat32, {&code, 1}, scale, bias,
                      {&y, 1});
    ASSERT_EQ(y, static_cast<double>(std::fma(static_cast<float>(code), scale, bias)));
  }
}

TEST(AffineDecode, MatchesTheDefinitionForEveryCodeAndType) {
  int differ = 0;
  for (const DType dtype : kScaleTypes) {
    for (int code = 0; code < 256; ++code) {
      for (const double raw : {0.0371, -0.0113, 1.7, -250.0, 3e-6}) {
        const double scale = RoundTo(dtype, raw);
        const double bias = RoundTo(dtype, -raw * 77);
        const uint8_t c = static_cast<uint8_t>(code);
        double two = 0;
        double one = 0;
        DecodeAffineGroup(DecodeRounding::kTwoRoundings, dtype, {&c, 1}, scale, bias, {&two, 1});
        DecodeAffineGroup(DecodeRounding::kOneRounding, dtype, {&c, 1}, scale, bias, {&one, 1});
        EXPECT_EQ(two, RoundTo(dtype, RoundTo(dtype, code * scale) + bias));
        // Neighbours of similar size: the sum is exact in double.
        EXPECT_EQ(one, RoundTo(dtype, code * scale + bias));
        differ += one != two ? 1 : 0;
      }
    }
  }
  EXPECT_GT(differ, 0) << "the data does not tell one rounding from two";
}

RC_GTEST_PROP(AffineEncode, ReturnsTheEndOfLargerMagnitudeExactly, ()) {
  const std::vector<float> x = ArbitraryGroup();
  const int bits = *rc::gen::elementOf(std::vector<int>(std::begin(kBits), std::end(kBits)));
  const Encoded encoded = EncodeGroup(bits, x);
  RC_PRE(encoded.group.bias != 0);
  for (size_t i = 0; i < x.size(); ++i) {
    RC_ASSERT(std::fabs(x[i]) <= std::fabs(encoded.group.bias));
    if (x[i] != encoded.group.bias) continue;
    double y = 0;
    DecodeAffineGroup(DecodeRounding::kTwoRoundings, DType::kFloat32, {&encoded.codes[i], 1},
                      encoded.group.scale, encoded.group.bias, {&y, 1});
    RC_ASSERT(y == static_cast<double>(x[i]));
  }
}

RC_GTEST_PROP(AffineEncode, DoesNotDependOnTheOrderWithinAGroup, ()) {
  const std::vector<float> x = ArbitraryGroup();
  std::vector<float> reversed(x.rbegin(), x.rend());
  const Encoded forward = EncodeGroup(4, x);
  const Encoded backward = EncodeGroup(4, reversed);
  RC_ASSERT(forward.group.scale == backward.group.scale);
  RC_ASSERT(forward.group.bias == backward.group.bias);
  RC_ASSERT(std::equal(forward.codes.begin(), forward.codes.end(), backward.codes.rbegin()));
}

RC_GTEST_PROP(AffineEncode, CodesAreMonotoneAndScaleWithPowersOfTwo, ()) {
  std::vector<float> x = ArbitraryGroup();
  std::sort(x.begin(), x.end());
  RC_PRE(x.front() < x.back());
  const Encoded encoded = EncodeGroup(5, x);
  const bool upwards = encoded.group.scale > 0;
  const bool monotone = upwards ? std::is_sorted(encoded.codes.begin(), encoded.codes.end())
                                : std::is_sorted(encoded.codes.rbegin(), encoded.codes.rend());
  RC_ASSERT(monotone);
  for (float& value : x) value *= 8;
  const Encoded larger = EncodeGroup(5, x);
  RC_ASSERT(larger.codes == encoded.codes);
  RC_ASSERT(larger.group.scale == 8 * encoded.group.scale);
  RC_ASSERT(larger.group.bias == 8 * encoded.group.bias);
}

TEST(AffineEncode, GpuRangeOfAnAllNegativeGroupReachesZero) {
  std::vector<float> x;
  for (int i = 0; i < 32; ++i) x.push_back(-2.0f - static_cast<float>(i) / 31);
  const Encoded cpu = EncodeGroup(4, x, AffineEncoder::kMlxCpu);
  const Encoded gpu = EncodeGroup(4, x, AffineEncoder::kMlxGpu);
  // 3 / (1 / 15) = 45 steps, against 15 over [-3, 0].
  EXPECT_EQ(cpu.group.scale, 3.0f / 45);
  EXPECT_EQ(gpu.group.scale, 3.0f / 15);
  EXPECT_EQ(gpu.group.bias, -3.0f);
  std::vector<float> positive;
  for (const float value : x) positive.push_back(-value);
  EXPECT_EQ(EncodeGroup(4, positive, AffineEncoder::kMlxGpu).codes,
            EncodeGroup(4, positive, AffineEncoder::kMlxCpu).codes);
}

TEST(AffineEncode, GpuRoundsTiesAwayFromZero) {
  // Range [-15, 0], 15 steps of 1: -12.5 lies at 2.5.
  std::vector<float> x(32, 0.0f);
  x[0] = -15;
  x[1] = -12.5f;
  const Encoded cpu = EncodeGroup(4, x, AffineEncoder::kMlxCpu);
  const Encoded gpu = EncodeGroup(4, x, AffineEncoder::kMlxGpu);
  EXPECT_EQ(cpu.group.scale, 1.0f);
  EXPECT_EQ(gpu.group.scale, 1.0f);
  EXPECT_EQ(cpu.codes[1], 2);
  EXPECT_EQ(gpu.codes[1], 3);
}

TEST(AffineRows, RowsOfAWiderTypeAreRoundedToTheRowTypeFirst) {
  std::vector<double> x;
  for (int i = 0; i < 64; ++i) x.push_back(std::sin(1.0 + i));
  const AffineFormat format{8, 64, DType::kBFloat16};
  std::vector<double> rounded = x;
  RoundAll(rounded, DType::kBFloat16);
  EXPECT_EQ(EncodeRows(format, Profile(), RowOf(DType::kFloat64, x)),
            EncodeRows(format, Profile(), RowOf(DType::kBFloat16, rounded)));
}

TEST(AffineRows, PackedWidthIsTheNumberOfBits) {
  for (const int bits : kBits) {
    for (const int group : {32, 64, 128}) {
      const AffineFormat format{bits, group, DType::kFloat32};
      const Tensor x(DType::kFloat32, {{"B", 2}, {"T", 3}, {"Dk", 384}});
      const TensorMap encoded = EncodeRows(format, Profile(), x);
      EXPECT_EQ(encoded.at("codes").shape, (Shape{{"B", 2}, {"T", 3}, {"W", 384 * bits / 32}}));
      EXPECT_EQ(encoded.at("scales").shape, (Shape{{"B", 2}, {"T", 3}, {"G", 384 / group}}));
      EXPECT_EQ(encoded.at("biases").shape, encoded.at("scales").shape);
      EXPECT_EQ(RowDim(format, CodecRows(format, encoded)), 384);
    }
  }
}

TEST(AffineRows, DecodesARangeOfRowsAsPartOfTheWhole) {
  const AffineFormat format{3, 32, DType::kFloat16};
  std::vector<double> values;
  for (int i = 0; i < 5 * 64; ++i) values.push_back(std::cos(0.7 * i));
  Tensor x(DType::kFloat16, {{"", 5}, {"", 64}});
  EncodeFrom(values, DType::kFloat16, x.bytes.data());
  const TensorMap encoded = EncodeRows(format, Profile(), x);
  const DecodedRows all = DecodeRows(format, Profile(), CodecRows(format, encoded), 0, 5);
  const DecodedRows part = DecodeRows(format, Profile(), CodecRows(format, encoded), 2, 2);
  EXPECT_TRUE(std::equal(part.hi.begin(), part.hi.end(), all.hi.begin() + 128));
  EXPECT_TRUE(std::equal(part.lo.begin(), part.lo.end(), all.lo.begin() + 128));
  EXPECT_EQ(part.hi.size(), 128u);
}

TEST(AffineRows, RefusesTensorsThatDoNotBelongTogether) {
  const AffineFormat format{4, 32, DType::kFloat32};
  const TensorMap encoded =
      EncodeRows(format, Profile(), Tensor(DType::kFloat32, {{"", 2}, {"", 64}}));
  const auto code = [&](const TensorMap& tensors, const KvFormat& read_as) {
    try {
      CodecRows(read_as, tensors);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kUsage;
  };
  EXPECT_EQ(code(encoded, AffineFormat{8, 32, DType::kFloat32}), ErrorCode::kMissingData);
  EXPECT_EQ(code(encoded, AffineFormat{4, 64, DType::kFloat32}), ErrorCode::kMissingData);
  EXPECT_EQ(code(encoded, AffineFormat{4, 32, DType::kFloat16}), ErrorCode::kMissingData);
  TensorMap incomplete = encoded;
  incomplete.erase("biases");
  EXPECT_EQ(code(incomplete, format), ErrorCode::kMissingData);
  EXPECT_THROW(EncodeRows(format, Profile(), Tensor(DType::kFloat32, {{"", 2}, {"", 33}})), Error);
}

}  // namespace
}  // namespace kvcheck
