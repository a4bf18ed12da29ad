// Nibbles with a hidden zero point beside a transcription of vLLM's kernel (golden/make/
// token_head.py): the witnesses of formats.md, section D.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/formats/codec_source.h"
#include "reference/judge/judge.h"
#include "reference/spec/implementation.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

const KvFormat kToken = Int4zpFormat{false, DType::kFloat32};

std::vector<double> Values(const TensorMap& stored) {
  return DecodeRows(kToken, Profile(), CodecRows(kToken, stored), 0, 1).hi;
}

TEST(Int4zp, TheWitnessHasTheBytesOfVllm) {
  const Tensor x = RowOf(DType::kFloat32, WitnessRow());
  const TensorMap apart = EncodeRows(kToken, Profile(), x);
  EXPECT_EQ(Hex(apart.at("codes")), "40a72e85fc63da51b83f961d74eb62c9");
  EXPECT_EQ(Hex(apart.at("scales")), "4644843e");
  const TensorMap cells = EncodeRows(Int4zpFormat{true, DType::kFloat32}, Profile(), x);
  EXPECT_EQ(Hex(cells.at("cells")), "40a72e85fc63da51b83f961d74eb62c94644843e");
  std::vector<double> values = Values(apart);
  values.resize(8);
  EXPECT_EQ(BitsOf(DType::kFloat32, values),
            (std::vector<uint64_t>{0xbfc66660, 0xbf044440, 0x3e844440, 0x3f844440, 0x40044440,
                                   0xbf844440, 0xbe844440, 0x3f044440}));
}

// Codes are made by the scale as it was; what is read has lost up to 15 units in its last place.
TEST(Int4zp, CodesUseTheUnmaskedScaleAndReadersTheMasked) {
  const TensorMap stored = EncodeRows(kToken, Profile(), RowOf(DType::kFloat32, WitnessRow()));
  const auto bits = std::bit_cast<uint32_t>(*stored.at("scales").As<float>());
  EXPECT_EQ(bits & 15, 6u);
  const float masked = std::bit_cast<float>(bits & ~15u);
  const float scale = (2.375f + 1.5f) / 15.0f;
  EXPECT_NE(masked, scale);
  EXPECT_EQ(Values(stored)[0], -6.0 * static_cast<double>(masked));
}

TEST(Int4zp, EveryZeroPointAndNibbleIsTheirDifferenceTimesTheMaskedScale) {
  TensorMap stored = EncodeRows(kToken, Profile(), RowOf(DType::kFloat32, WitnessRow()));
  for (size_t j = 0; j < 16; ++j) {
    stored.at("codes").bytes[j] = static_cast<std::byte>(j | (15 - j) << 4);
  }
  for (uint32_t k = 0; k < 100000; ++k) {
    const uint32_t bits = 0x9e3779b9u * k;
    std::memcpy(stored.at("scales").bytes.data(), &bits, sizeof(bits));
    const float scale = std::bit_cast<float>(bits & ~15u);
    if (!std::isfinite(scale)) continue;
    const std::vector<double> values = Values(stored);
    for (size_t i = 0; i < 32; ++i) {
      const int nibble = static_cast<int>(i % 2 == 0 ? i / 2 : 15 - i / 2);
      const float product = static_cast<float>(nibble - static_cast<int>(bits & 15)) * scale;
      if (std::isinf(product)) continue;
      ASSERT_EQ(values[i], static_cast<double>(product)) << bits;
    }
  }
}

// The zero point is one of 0..15: rows that do not cross zero are clipped.
TEST(Int4zp, RowsThatDoNotCrossZeroClip) {
  std::vector<double> row;
  for (int i = 0; i < 8; ++i) row.push_back(1 + i / 16.0);
  for (const double sign : {1.0, -1.0}) {
    std::vector<double> signed_row = row;
    for (double& x : signed_row) x *= sign;
    const Tensor x = RowOf(DType::kFloat32, signed_row);
    const TensorMap stored = EncodeRows(kToken, Profile(), x);
    EXPECT_EQ(Hex(stored.at("codes")), sign > 0 ? "ffffffff" : "00000000");
    EXPECT_EQ(std::bit_cast<uint32_t>(*stored.at("scales").As<float>()) & 15, sign > 0 ? 0u : 15u);
    const RowBound bound =
        RoundTripBound(kToken, Profile(), DecodeRounding::kExact, DType::kFloat32, signed_row);
    // Readers clear four bits of the scale, up to 15 * 2^-23 of it; the scale itself is a rounded
    // product with a rounded 1 / 15.
    EXPECT_NEAR(std::fabs(Values(stored)[7]), 0.4375, 0.4375 * (15 * 0x1p-23 + 4 * 0x1p-24));
    EXPECT_LT(std::fabs(signed_row[7] - Values(stored)[7]), bound.total[7]);
    EXPECT_GT(bound.total[7], 0.99);
  }
}

TEST(Int4zp, BoundHoldsInEveryRegimeAndTypeAndIsReached) {
  BoundCheck all;
  for (const std::string_view regime : RowRegimes()) {
    for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const Int4zpFormat& format : Int4zpFormat::All()) {
        for (const DecodeRounding decode : {DecodeRounding::kExact, DecodeRounding::kOneRounding}) {
          Profile profile;
          profile.decode = decode;
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 9, type, 8, 128));
          EXPECT_EQ(check.violations, 0) << regime << " " << Name(type);
          all.Add(check);
        }
      }
    }
  }
  EXPECT_GT(all.largest_ratio, 0.99);
}

TEST(Int4zp, AWrongCodeIsBeyondTheBoundWhereThatIsClaimed) {
  int64_t claimed = 0, elements = 0;
  for (const char* regime : {"gauss", "offset", "all_negative", "sparse"}) {
    const Tensor x = GenerateRows(regime, 3, DType::kFloat32, 1, 128);
    const std::vector<double> values = ValuesOf(x);
    const RowBound bound = RoundTripBound(kToken, Profile(), DecodeRounding::kExact, x.dtype,
                                          std::optional(DType::kFloat64), values);
    TensorMap stored = EncodeRows(kToken, Profile(), x);
    const std::vector<std::byte> codes = stored.at("codes").bytes;
    for (size_t i = 0; i < values.size(); ++i) {
      ++elements;
      if (bound.overflows[i] || !(bound.total[i] < bound.wrong_code[i])) continue;
      ++claimed;
      const int shift = i % 2 == 0 ? 0 : 4;
      const int byte = std::to_integer<int>(codes[i / 2]);
      for (int other = 0; other < 16; ++other) {
        if (other == (byte >> shift & 15)) continue;
        stored.at("codes").bytes[i / 2] =
            static_cast<std::byte>((byte & ~(15 << shift)) | other << shift);
        EXPECT_GT(std::fabs(Values(stored)[i] - values[i]), bound.total[i]) << regime << " " << i;
      }
      stored.at("codes").bytes[i / 2] = codes[i / 2];
    }
  }
  EXPECT_GT(claimed, elements / 2);
}

TEST(Int4zp, NothingIsPromisedOfARowThatIsNotFinite) {
  std::vector<double> values(64, 1.0);
  values[3] = std::numeric_limits<double>::infinity();
  Tensor x(DType::kFloat32, {{"", 2}, {"", 32}});
  EncodeFrom(values, DType::kFloat32, x.bytes.data());
  const CodecCase c = {CodecDirection::kEncode, kToken, DType::kFloat32, 2, 32, {"gauss", 1, ""}};
  const TensorMap inputs = {{"x", x}};
  TensorMap got = EncodeRows(kToken, Profile(), x);
  const auto source = MakeCodecSource(c, Profile(), inputs);
  const auto judged = [&](const char* plane, size_t byte) {
    got.at(plane).bytes[byte] ^= std::byte{1};
    const Outcome outcome = Judge(*source, MemorySink(got)).outcome;
    got.at(plane).bytes[byte] ^= std::byte{1};
    return outcome;
  };
  EXPECT_EQ(judged("codes", 15), Outcome::kPass);
  EXPECT_EQ(judged("scales", 3), Outcome::kPass);
  EXPECT_EQ(judged("codes", 16), Outcome::kFail);
  EXPECT_EQ(judged("scales", 4), Outcome::kFail);
}

}  // namespace
}  // namespace kvcheck
