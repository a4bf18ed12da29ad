// Rotated rows beside a Hadamard matrix written out, and beside the format that stores them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/formats/codec.h"
#include "reference/spec/error.h"
#include "tests/reference/formats/bound_check.h"
#include "tests/reference/formats/format_named.h"
#include "tests/reference/formats/sample.h"

namespace kvcheck {
namespace {

// H x / sqrt(size) block by block, H_ij = (-1)^popcount(i & j).
std::vector<double> TimesMatrix(const std::vector<double>& x, size_t size) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t first = i / size * size;
    for (size_t j = first; j < first + size; ++j) {
      y[i] += std::popcount((i - first) & (j - first)) % 2 == 0 ? x[j] : -x[j];
    }
    y[i] /= std::sqrt(static_cast<double>(size));
  }
  return y;
}

std::vector<double> Decoded(const KvFormat& format, const TensorMap& stored,
                            const Profile& profile = {}) {
  return DecodeToRowType(format, profile, CodecRows(format, stored), 0, 1);
}

// Integers, of which no sum is rounded where the size is a power of four.
std::vector<double> Integers(size_t dim) {
  std::vector<double> x;
  for (size_t i = 0; i < dim; ++i) x.push_back(static_cast<double>((i * i + 7 * i) % 61) - 30);
  return x;
}

TEST(Rotated, StoresWhatItsFormatMakesOfTheRotatedRow) {
  for (const auto& [size, text] :
       std::vector<std::pair<size_t, std::string>>{{64, "q4_0"},
                                                   {16, "q8_0"},
                                                   {4, "q4_0"},
                                                   {256, "q8_0"},
                                                   {64, "affine:4:g32:bf16"},
                                                   {16, "affine:8:g64:f16"}}) {
    const KvFormat stored = FormatNamed(text);
    const KvFormat rotated = FormatNamed("hadamard:" + std::to_string(size) + ":" + text);
    const std::vector<double> x = Integers(512);
    const std::vector<double> y = TimesMatrix(x, size);
    EXPECT_NE(x, y);
    const TensorMap got = EncodeRows(rotated, Profile(), RowOf(DType::kFloat32, x));
    const TensorMap expected = EncodeRows(stored, Profile(), RowOf(DType::kFloat32, y));
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, plane] : expected) {
      EXPECT_EQ(got.at(name).bytes, plane.bytes) << Print(rotated) << " " << name;
    }
  }
}

TEST(Rotated, ReadsWhatItsFormatHoldsRotatedBack) {
  for (const auto& [size, text] :
       std::vector<std::pair<size_t, std::string>>{{64, "q8_0"}, {16, "q4_0"}}) {
    const KvFormat stored = FormatNamed(text);
    const KvFormat rotated = FormatNamed("hadamard:" + std::to_string(size) + ":" + text);
    // A scale that is a power of two, so that no sum is rounded.
    std::vector<double> y = Integers(64);
    for (size_t block = 0; block < 64; block += 32) y[block] = text == "q4_0" ? -32 : 127;
    const TensorMap planes = EncodeRows(stored, Profile(), RowOf(DType::kFloat32, y));
    const std::vector<double> held = Decoded(stored, planes);
    EXPECT_EQ(Decoded(rotated, planes), TimesMatrix(held, size)) << Print(rotated);
  }
}

TEST(Rotated, BoundHoldsInEveryRegimeTypeAndDecoding) {
  int64_t judged = 0;
  for (const char* text : {"hadamard:64:q4_0", "hadamard:128:q8_0", "hadamard:2:q8_0",
                           "hadamard:512:q4_0", "hadamard:64:affine:4:g64:bf16",
                           "hadamard:32:affine:3:g128:f16", "hadamard:128:affine:8:g32:bf16"}) {
    const KvFormat format = FormatNamed(text);
    BoundCheck all;
    for (const std::string_view regime : RowRegimes()) {
      for (const DType type :
           {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        for (const DecodeRounding decode :
             {DecodeRounding::kExact, DecodeRounding::kTwoRoundings}) {
          Profile profile;
          profile.decode = decode;
          const BoundCheck check =
              CheckBound(format, profile, GenerateRows(regime, 9, type, 8, 512));
          EXPECT_EQ(check.violations, 0) << text << " " << regime << " " << Name(type);
          all.Add(check);
        }
      }
    }
    // A bound of sums of absolute values, of which errors of random signs reach a part.
    EXPECT_GT(all.largest_ratio, 0.05) << text;
    judged += all.judged;
  }
  EXPECT_GT(judged, 1'000'000);
}

// What the rotation is for, and what it cannot do.
TEST(Rotated, SpreadsAnOutlierAndMakesASpikeOfAConstant) {
  const auto mean_error = [](const std::string& text, const std::vector<double>& x) {
    const KvFormat format = FormatNamed(text);
    const std::vector<double> y =
        Decoded(format, EncodeRows(format, Profile(), RowOf(DType::kFloat32, x)));
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += std::fabs(x[i] - y[i]);
    return sum / static_cast<double>(x.size());
  };
  std::vector<double> outlier = ValuesOf(GenerateRows("gauss", 5, DType::kFloat32, 1, 64));
  outlier[17] = 60;
  EXPECT_LT(mean_error("hadamard:64:q4_0", outlier), 0.75 * mean_error("q4_0", outlier));
  const std::vector<double> equal(64, 3.0);
  EXPECT_EQ(TimesMatrix(equal, 64)[0], 24);
  EXPECT_EQ(mean_error("hadamard:64:q4_0", equal), 0);
  std::vector<double> nearly = equal;
  for (size_t i = 0; i < 64; ++i) nearly[i] += static_cast<double>((i * i) % 7) / 16;
  EXPECT_GT(mean_error("hadamard:64:q4_0", nearly), 1.5 * mean_error("q4_1", nearly));
}

TEST(Rotated, OneValueThatIsNotFiniteLeavesItsBlockWithoutBound) {
  std::vector<double> x = Integers(128);
  x[70] = std::numeric_limits<double>::quiet_NaN();
  const RowBound bound = RoundTripBound(FormatNamed("hadamard:64:q8_0"), Profile(),
                                        DecodeRounding::kExact, DType::kFloat32, x);
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(bound.undefined[i], i >= 64) << i;
    EXPECT_EQ(bound.overflows[i], i >= 64) << i;
  }
}

TEST(Rotated, TextsSayWhatIsWrong) {
  EXPECT_EQ(Print(FormatNamed("hadamard:128:affine:4:g32:bf16")), "hadamard:128:affine:4:g32:bf16");
  EXPECT_EQ(BlockOf(FormatNamed("hadamard:16:affine:4:g128:f16")), 128);
  EXPECT_EQ(BlockOf(FormatNamed("hadamard:128:q4_0")), 128);
  for (const char* text :
       {"hadamard", "hadamard:64", "hadamard:63:q4_0", "hadamard:0:q4_0", "hadamard:1024:q4_0",
        "hadamard:64:f16", "hadamard:64:hadamard:64:q4_0", "hadamard:64:q9_0",
        "hadamard:64:affine:4:g64:f32", "hadamard:64:turboquant:4:g64:bf16",
        "hadamard:64:nvfp4:x0.5:bf16", "hadamard:64:"}) {
    EXPECT_THROW(FormatNamed(text), Error) << text;
  }
}

}  // namespace
}  // namespace kvcheck
