// Bit patterns that MLX 0.32.4 (CPU) produced, as listed in formats.md, section A.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "tests/reference/formats/sample.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

Profile TwoRoundings() {
  Profile profile;
  profile.decode = DecodeRounding::kTwoRoundings;
  return profile;
}

std::vector<double> Decoded(const AffineFormat& format, const TensorMap& encoded) {
  const EncodedRows rows = CodecRows(format, encoded);
  return DecodeToRowType(format, TwoRoundings(), rows, 0, rows.RowCount());
}

TEST(AffineWitness, RowIsTheListedOne) {
  const std::vector<uint64_t> want = {
      0xbfc0, 0xbf20, 0x3e80, 0x3f90, 0x4000, 0xbf90, 0xbe80, 0x3f20, 0x3fc0, 0x4018, 0xbf40,
      0x3e00, 0x3f80, 0x3ff0, 0xbfa0, 0xbec0, 0x3f00, 0x3fb0, 0x4010, 0xbf60, 0x0000, 0x3f60,
      0x3fe0, 0xbfb0, 0xbf00, 0x3ec0, 0x3fa0, 0x4008, 0xbf80, 0xbe00, 0x3f40, 0x3fd0};
  EXPECT_EQ(BitsOf(DType::kBFloat16, WitnessRow()), want);
}

TEST(AffineWitness, EncodesToTheListedWordsScalesAndBiases) {
  struct Witness {
    int bits;
    std::vector<uint32_t> words;
    uint64_t scale;
    uint64_t bias;
  };
  const std::vector<Witness> witnesses = {
      {2, {0xb1b16c6f, 0x5b1ad6c6}, 0xbf98, 0x4018},
      {3, {0x4173152f, 0xca13b8a9, 0x2e609dc5}, 0xbf18, 0x4018},
      {4, {0x7ad158bf, 0xae259c03, 0xe269c047, 0x369d148b}, 0xbe87, 0x4018},
      {5, {0x7835471f, 0xb9640775, 0x050fb748, 0x17f1593d, 0x3369b126}, 0xbe00, 0x4018},
      {6, {0x46563c7f, 0x300e76be, 0xb7c21797, 0x67d4241f, 0x286ff8a6, 0x31ba7711}, 0xbd79, 0x4018},
      {8,
       {0x528cc5ff, 0x73ace619, 0x94cd0039, 0xb5ee215a, 0xd508427b, 0xf629639c, 0x104a83bd,
        0x316ba4de},
       0xbc79,
       0x4018},
  };
  for (const Witness& witness : witnesses) {
    const AffineFormat format{witness.bits, 32, DType::kBFloat16};
    const TensorMap encoded = EncodeRows(format, Profile(), RowOf(DType::kBFloat16, WitnessRow()));
    EXPECT_EQ(WordsOf(encoded.at("codes")), witness.words) << witness.bits;
    EXPECT_EQ(BitsOf(DType::kBFloat16, ValuesOf(encoded.at("scales"))),
              std::vector<uint64_t>{witness.scale});
    EXPECT_EQ(BitsOf(DType::kBFloat16, ValuesOf(encoded.at("biases"))),
              std::vector<uint64_t>{witness.bias});
  }
}

TEST(AffineWitness, DecodesToTheListedValues) {
  struct Witness {
    int bits;
    std::vector<uint64_t> values;
  };
  const std::vector<Witness> witnesses = {
      {3, {0xbfe4, 0xbf18, 0x0000, 0x3f98, 0x3fe4, 0xbf98, 0x0000, 0x3f18, 0x3fe4, 0x4018, 0xbf18,
           0x0000, 0x3f98, 0x3fe4, 0xbf98, 0xbf18, 0x3f18, 0x3f98, 0x4018, 0xbf18, 0x0000, 0x3f18,
           0x3fe4, 0xbf98, 0xbf18, 0x3f18, 0x3f98, 0x4018, 0xbf98, 0x0000, 0x3f18, 0x3fe4}},
      {4, {0xbfca, 0xbf08, 0x3e88, 0x3f87, 0x4007, 0xbf86, 0xbe88, 0x3f08, 0x3fcb, 0x4018, 0xbf48,
           0x0000, 0x3f87, 0x3fec, 0xbfa8, 0xbe88, 0x3f08, 0x3fa9, 0x4018, 0xbf48, 0x0000, 0x3f4c,
           0x3fec, 0xbfa8, 0xbf08, 0x3e88, 0x3fa9, 0x4007, 0xbf86, 0x0000, 0x3f4c, 0x3fcb}},
      {8, {0xbfc0, 0xbf20, 0x3e80, 0x3f90, 0x3fff, 0xbf90, 0xbe70, 0x3f20, 0x3fc1, 0x4018, 0xbf3c,
           0x3e00, 0x3f81, 0x3ff0, 0xbf9e, 0xbec0, 0x3f02, 0x3fb0, 0x4010, 0xbf5c, 0x0000, 0x3f5e,
           0x3fe0, 0xbfae, 0xbf00, 0x3ec4, 0x3fa0, 0x4008, 0xbf80, 0xbe00, 0x3f40, 0x3fd0}},
  };
  for (const Witness& witness : witnesses) {
    const AffineFormat format{witness.bits, 32, DType::kBFloat16};
    const TensorMap encoded = EncodeRows(format, Profile(), RowOf(DType::kBFloat16, WitnessRow()));
    EXPECT_EQ(BitsOf(DType::kBFloat16, Decoded(format, encoded)), witness.values) << witness.bits;
  }
}

TEST(AffineWitness, ClampsTheFarEndOneStepShort) {
  std::vector<double> row;
  for (int i = 0; i < 32; ++i) row.push_back(i % 2 == 1 ? 1.0 : -1.0);
  row[2] = 0.25;
  const AffineFormat format{2, 32, DType::kFloat32};
  const TensorMap encoded = EncodeRows(format, Profile(), RowOf(DType::kFloat32, row));
  EXPECT_EQ(WordsOf(encoded.at("codes")), (std::vector<uint32_t>{0x33333323, 0x33333333}));
  EXPECT_EQ(ValuesOf(encoded.at("scales")), std::vector<double>{-0.5});
  EXPECT_EQ(ValuesOf(encoded.at("biases")), std::vector<double>{1.0});
  std::vector<double> want;
  for (int i = 0; i < 32; ++i) want.push_back(i % 2 == 1 ? 1.0 : -0.5);
  want[2] = 0;
  EXPECT_EQ(Decoded(format, encoded), want);
}

TEST(AffineWitness, ProductOverflowsInF16BeforeTheBiasIsAdded) {
  std::vector<double> row;
  for (int i = 0; i < 32; ++i) row.push_back(-60000.0 + 120000.0 * i / 31);
  const AffineFormat format{8, 32, DType::kFloat16};
  const Tensor x = RowOf(DType::kFloat16, row);
  ASSERT_EQ(BitsOf(DType::kFloat16, ValuesOf(x))[0], 0xfb53u);
  ASSERT_EQ(BitsOf(DType::kFloat16, ValuesOf(x))[16], 0x678fu);
  const TensorMap encoded = EncodeRows(format, Profile(), x);
  EXPECT_EQ(BitsOf(DType::kFloat16, ValuesOf(encoded.at("scales")))[0], 0xdf53u);
  EXPECT_EQ(BitsOf(DType::kFloat16, ValuesOf(encoded.at("biases")))[0], 0x7b53u);
  EXPECT_EQ(WordsOf(encoded.at("codes"))[0] & 0xff, 0xffu);
  EXPECT_EQ(WordsOf(encoded.at("codes"))[4] & 0xff, 0x7cu);
  const std::vector<uint64_t> decoded = BitsOf(DType::kFloat16, Decoded(format, encoded));
  EXPECT_EQ(decoded[0], 0xfc00u);
  EXPECT_EQ(decoded[16], 0x6760u);
}

// Codes, scales, biases and decoded rows of every generated regime and all three groups, as MLX
// 0.32.4 gave them on an x86-64 CPU for the same rows: FNV-1a of the bytes, in this order.
TEST(AffineWitness, EveryConfigurationGivesTheBytesOfMlx) {
  struct Witness {
    int bits;
    DType dtype;
    uint64_t hash;
  };
  const std::vector<Witness> witnesses = {
      {2, DType::kFloat32, 0xf13b32ea2dc155d6u},  {3, DType::kFloat32, 0xa8949766e1475990u},
      {4, DType::kFloat32, 0xc35a9ec09d286a04u},  {5, DType::kFloat32, 0xca1c914ccbca6c4eu},
      {6, DType::kFloat32, 0x6e993160cd3261d0u},  {8, DType::kFloat32, 0x37b0205538e40f54u},
      {2, DType::kFloat16, 0x976f03504c899432u},  {3, DType::kFloat16, 0x043751e6ddcab727u},
      {4, DType::kFloat16, 0x423aac421bccf9b4u},  {5, DType::kFloat16, 0xf31322848e2980feu},
      {6, DType::kFloat16, 0x254cfd12abc51f9au},  {8, DType::kFloat16, 0x2ff7bfb89fc2d9d7u},
      {2, DType::kBFloat16, 0xf00f5adb76547501u}, {3, DType::kBFloat16, 0x1e2b9d0132e32bd7u},
      {4, DType::kBFloat16, 0x1ccd5e79df96c70eu}, {5, DType::kBFloat16, 0xc181fefea56a0de5u},
      {6, DType::kBFloat16, 0xb5f50aef441d7e5eu}, {8, DType::kBFloat16, 0xa6e16bab9eda3749u},
  };
  for (const Witness& witness : witnesses) {
    uint64_t hash = 0xcbf29ce484222325u;
    const auto add = [&](const Tensor& tensor) {
      for (const std::byte byte : tensor.bytes) {
        hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
      }
    };
    for (const int group : {32, 64, 128}) {
      const AffineFormat format{witness.bits, group, witness.dtype};
      for (const std::string_view regime : RowRegimes()) {
        const Tensor x = GenerateRows(regime, 1, witness.dtype, 4, 384);
        const TensorMap encoded = EncodeRows(format, Profile(), x);
        add(encoded.at("codes"));
        add(encoded.at("scales"));
        add(encoded.at("biases"));
        add(RowOf(witness.dtype, Decoded(format, encoded)));
      }
    }
    EXPECT_EQ(hash, witness.hash) << witness.bits << " bits, " << Name(witness.dtype);
  }
}

// One group of 32 with special values; the same for every scale type.
struct Special {
  TensorMap encoded;
  std::vector<double> decoded;
  double scale = 0;
  double bias = 0;
};

Special EncodeSpecial(DType dtype, const std::vector<double>& row) {
  const AffineFormat format{4, 32, dtype};
  Special special;
  special.encoded = EncodeRows(format, Profile(), RowOf(dtype, row));
  special.decoded = Decoded(format, special.encoded);
  special.scale = ValuesOf(special.encoded.at("scales"))[0];
  special.bias = ValuesOf(special.encoded.at("biases"))[0];
  return special;
}

class AffineSpecialValue : public testing::TestWithParam<DType> {
 protected:
  std::vector<double> Row() const {
    std::vector<double> row;
    for (int i = 0; i < 32; ++i) row.push_back(i / 8.0 - 3.0);
    return row;
  }
};

TEST_P(AffineSpecialValue, NanIsSkippedAndDecodesToTheEdge) {
  std::vector<double> row = Row();
  const Special without = EncodeSpecial(GetParam(), row);
  row[7] = kNan;
  const Special with = EncodeSpecial(GetParam(), row);
  EXPECT_EQ(with.scale, without.scale);
  EXPECT_EQ(with.bias, without.bias);
  EXPECT_EQ(with.decoded[7], -3.0);
  EXPECT_EQ(with.decoded[8], without.decoded[8]);
}

TEST_P(AffineSpecialValue, InfinityMakesTheWholeGroupNan) {
  for (const double infinity : {kInfinity, -kInfinity}) {
    std::vector<double> row = Row();
    row[3] = infinity;
    const Special special = EncodeSpecial(GetParam(), row);
    EXPECT_TRUE(std::isnan(special.scale));
    EXPECT_EQ(special.bias, infinity);
    EXPECT_EQ(WordsOf(special.encoded.at("codes")), std::vector<uint32_t>(4, 0u));
    for (const double y : special.decoded) EXPECT_TRUE(std::isnan(y));
  }
}

TEST_P(AffineSpecialValue, OnlyNanGivesAnInfiniteBias) {
  const Special special = EncodeSpecial(GetParam(), std::vector<double>(32, kNan));
  EXPECT_TRUE(std::isnan(special.scale));
  EXPECT_EQ(special.bias, -kInfinity);
}

TEST_P(AffineSpecialValue, ZerosKeepTheFloorOfTheScaleAndDecodeToPlusZero) {
  for (const double zero : {0.0, -0.0}) {
    const Special special = EncodeSpecial(GetParam(), std::vector<double>(32, zero));
    EXPECT_EQ(special.scale, RoundTo(GetParam(), -static_cast<double>(1e-7f)));
    EXPECT_EQ(special.bias, 0.0);
    for (const double y : special.decoded) EXPECT_EQ(Encode(GetParam(), y), 0u);
  }
}

TEST_P(AffineSpecialValue, ConstantsAreExactAboveTheFloor) {
  for (const double value : {1.5, -1.5, 40.0}) {
    const Special special = EncodeSpecial(GetParam(), std::vector<double>(32, value));
    EXPECT_EQ(special.bias, value);
    for (const double y : special.decoded) EXPECT_EQ(y, value);
  }
  if (GetParam() == DType::kFloat16) return;  // 4e-8 is a subnormal of f16
  const Special tiny = EncodeSpecial(GetParam(), std::vector<double>(32, 4e-8));
  EXPECT_EQ(tiny.bias, 0.0);
  for (const double y : tiny.decoded) EXPECT_EQ(y, 0.0);
}

TEST_P(AffineSpecialValue, RangeBeyondF32DecodesToNan) {
  if (GetParam() == DType::kFloat16) return;  // its whole range fits f32
  std::vector<double> row(32, 3e38);
  row[1] = -3e38;
  const Special special = EncodeSpecial(GetParam(), row);
  EXPECT_EQ(special.scale, -kInfinity);
  EXPECT_EQ(special.bias, 0.0);
  for (const double y : special.decoded) EXPECT_TRUE(std::isnan(y));
}

INSTANTIATE_TEST_SUITE_P(ScaleTypes, AffineSpecialValue,
                         testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16));

}  // namespace
}  // namespace kvcheck
