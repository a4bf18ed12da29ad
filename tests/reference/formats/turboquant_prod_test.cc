// The inner-product codec beside mlx-vlm 0.7.10, and its unbiasedness over projections.

#include "reference/formats/turboquant_prod.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "reference/data/generator.h"
#include "reference/formats/affine.h"
#include "reference/numerics/convert.h"
#include "reference/spec/dtype.h"

namespace kvcheck {
namespace {

std::optional<TurboquantFormat> MseOf(int bits, int d, TurboquantCodebook codebook) {
  if (bits == 1) return std::nullopt;
  return TurboquantFormat{bits - 1, d, codebook};
}

std::vector<uint32_t> Packed(const std::vector<uint8_t>& codes, int bits) {
  std::vector<uint32_t> words(codes.size() * static_cast<size_t>(bits) / 32);
  PackCodes(codes, bits, words);
  return words;
}

// As it is read back: with norms of f16.
TurboquantProdGroup Stored(TurboquantProdGroup group) {
  for (float* norm : {&group.norm, &group.residual_norm}) {
    *norm = static_cast<float>(RoundTo(DType::kFloat16, static_cast<double>(*norm)));
  }
  return group;
}

std::vector<float> Read(const TurboquantProd& codec, const TurboquantProdGroup& group) {
  std::vector<float> values(codec.d());
  codec.Decode(group, values);
  return values;
}

// A projection of small integers, given to the library in place of its own.
TEST(TurboquantProd, WritesAndReadsAsMlxVlm) {
  constexpr int kDim = 32;
  std::vector<float> projection, x;
  std::vector<double> q;
  for (int j = 0; j < kDim; ++j) {
    for (int i = 0; i < kDim; ++i) {
      const int number = (i * 37 + j * 101 + i * j % 13) % 17 - 8;
      projection.push_back(static_cast<float>(number) / 4);
    }
    x.push_back(static_cast<float>(7 * j % 32 - 12) / 8);
    q.push_back((5 * j % 32 - 15) / 16.0);
  }
  struct Known {
    int bits;
    std::vector<uint32_t> codes, signs;
    uint64_t norm, residual_norm;
    std::vector<double> first;
    double score;
  };
  const std::vector<Known> known = {{1,
                                     {},
                                     {0x01823dbf},
                                     0x46fb,
                                     0x3c00,
                                     {0.7518431, -3.964264, -2.323879, 0.8201925},
                                     -1.3798031},
                                    {2,
                                     {0x2f198d47},
                                     {0x6d8fec4c},
                                     0x46fb,
                                     0x383a,
                                     {-0.8305384, -0.12389465, 2.0221803, -0.02054676},
                                     3.2066681},
                                    {4,
                                     {0x5550b364, 0x480dc91b, 0x433b6c29},
                                     {0x419378fe},
                                     0x46fb,
                                     0x30a7,
                                     {-1.2605234, -0.57258224, 0.41476795, 1.3623699},
                                     -0.33638689}};
  for (const Known& row : known) {
    const TurboquantProd codec(kDim, MseOf(row.bits, kDim, TurboquantCodebook::kMlxVlm),
                               projection);
    const TurboquantProdGroup group = Stored(codec.Encode(x));
    EXPECT_EQ(Packed(group.codes, std::max(1, row.bits - 1)), row.codes) << row.bits;
    EXPECT_EQ(Packed(group.signs, 1), row.signs) << row.bits;
    EXPECT_EQ(Encode(DType::kFloat16, static_cast<double>(group.norm)), row.norm) << row.bits;
    EXPECT_EQ(Encode(DType::kFloat16, static_cast<double>(group.residual_norm)), row.residual_norm)
        << row.bits;
    const std::vector<float> values = Read(codec, group);
    // The library's are f32: products of 32 terms below 4.
    for (size_t i = 0; i < row.first.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(values[i]), row.first[i], 4e-6);
    }
    EXPECT_NEAR(codec.Score(q, group), row.score, 2e-5) << row.bits;
    // Values below 4, which ours too are f32 of: ten roundings of each, times sum |q| below 16.
    double dot = 0;
    for (size_t i = 0; i < q.size(); ++i) dot += q[i] * static_cast<double>(values[i]);
    EXPECT_NEAR(codec.Score(q, group), dot, 10 * 4 * 16 * 0x1p-24);
  }
}

TEST(TurboquantProd, ZeroProjectsToPlus) {
  const std::vector<float> projection(64 * 64, -1.0f);
  const TurboquantProd codec(64, std::nullopt, projection);
  const TurboquantProdGroup group = codec.Encode(std::vector<float>(64, 0.0f));
  EXPECT_EQ(group.signs, std::vector<uint8_t>(64, 1));
  EXPECT_EQ(group.residual_norm, 0.0f);
  EXPECT_EQ(Read(codec, group), std::vector<float>(64, 0.0f));
}

void FillNormal(Generator* random, std::vector<float>* values) {
  for (size_t i = 0; i < values->size(); i += 2) {
    double u = 0, v = 0, s = 0;
    do {
      u = 2 * random->Uniform() - 1;
      v = 2 * random->Uniform() - 1;
      s = u * u + v * v;
    } while (s >= 1 || s == 0);
    const double factor = std::sqrt(-2 * std::log(s) / s);
    (*values)[i] = static_cast<float>(u * factor);
    (*values)[i + 1] = static_cast<float>(v * factor);
  }
}

// Over fresh projections, for one x and one y: the mean within five standard errors, the variance
// as it follows from the codes, within five of its own.
TEST(TurboquantProd, IsUnbiasedOverProjections) {
  constexpr int kDim = 32;
  constexpr int kTrials = 6000;
  std::vector<float> x(kDim), y(kDim);
  Generator random(11, "prod", 0);
  FillNormal(&random, &x);
  FillNormal(&random, &y);
  const std::vector<double> q(y.begin(), y.end());
  double truth = 0, y_square = 0;
  for (size_t i = 0; i < kDim; ++i) {
    truth += static_cast<double>(x[i]) * q[i];
    y_square += q[i] * q[i];
  }
  for (const int bits : {1, 2, 3}) {
    const auto mse = MseOf(bits, kDim, TurboquantCodebook::kExact);
    std::vector<float> projection(kDim * kDim);
    double sum = 0, squares = 0, variance = 0, norm_error = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      Generator fresh(12, "projection", static_cast<uint64_t>(trial));
      FillNormal(&fresh, &projection);
      const TurboquantProd codec(kDim, mse, projection);
      const TurboquantProdGroup group = Stored(codec.Encode(x));
      const double error = codec.Score(q, group) - truth;
      sum += error;
      squares += error * error;
      if (trial > 0) continue;
      // The same for every projection.
      TurboquantProdGroup without = group;
      without.residual_norm = 0;
      const std::vector<float> unit = Read(codec, without);
      double dot = 0, gamma_square = 0, size = 0;
      for (size_t i = 0; i < kDim; ++i)
        size += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      size = std::sqrt(size);
      for (size_t i = 0; i < kDim; ++i) {
        const double r = static_cast<double>(x[i]) / size -
                         static_cast<double>(unit[i]) / static_cast<double>(group.norm);
        dot += q[i] * r;
        gamma_square += r * r;
      }
      variance = size * size / kDim * (gamma_square * std::numbers::pi / 2 * y_square - dot * dot);
      // Both norms are f16.
      norm_error = 0x1p-10 * size * (std::fabs(truth) / size + std::sqrt(gamma_square * y_square));
    }
    const double mean = sum / kTrials;
    const double measured = squares / kTrials - mean * mean;
    EXPECT_LE(std::fabs(mean), 5 * std::sqrt(variance / kTrials) + norm_error) << bits;
    EXPECT_NEAR(measured / variance, 1, 5 * std::sqrt(2.0 / kTrials) + 0x1p-9) << bits;
  }
}

}  // namespace
}  // namespace kvcheck
