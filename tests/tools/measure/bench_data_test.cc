// N(0, 1) as formats are measured on it.

#include "tools/measure/bench_data.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

TEST(NormalRows, HaveTheMomentsOfTheirDistribution) {
  constexpr int64_t kRows = 4000, kDim = 129;
  double sum = 0, square = 0, fourth = 0;
  int64_t beyond_three = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    for (const double x : NormalRow(7, "k", r, kDim)) {
      sum += x;
      square += x * x;
      fourth += x * x * x * x;
      if (std::fabs(x) > 3) ++beyond_three;
    }
  }
  const double n = kRows * kDim;
  // Five standard deviations of each mean: variances of x, x^2, x^4 are 1, 2, 96.
  EXPECT_LE(std::fabs(sum / n), 5 / std::sqrt(n));
  EXPECT_LE(std::fabs(square / n - 1), 5 * std::sqrt(2 / n));
  // The sum of twelve uniform numbers has 2.9, which is 5 standard deviations off from n = 240,000.
  EXPECT_LE(std::fabs(fourth / n - 3), 5 * std::sqrt(96 / n));
  constexpr double kTail = 0.0026997960632601866;  // P(|x| > 3)
  EXPECT_LE(std::fabs(static_cast<double>(beyond_three) / n - kTail), 5 * std::sqrt(kTail / n));
}

TEST(NormalRows, DependOnSeedStreamAndRowAlone) {
  const std::vector<double> row = NormalRow(1, "k", 3, 64);
  EXPECT_EQ(NormalRow(1, "k", 3, 64), row);
  EXPECT_NE(NormalRow(2, "k", 3, 64), row);
  EXPECT_NE(NormalRow(1, "v", 3, 64), row);
  EXPECT_NE(NormalRow(1, "k", 4, 64), row);
  // A longer row begins as a shorter one.
  const std::vector<double> longer = NormalRow(1, "k", 3, 65);
  EXPECT_EQ(std::vector<double>(longer.begin(), longer.end() - 1), row);
}

TEST(OutlierRows, MultiplyOneChannelIn32) {
  constexpr int64_t kDim = 129;
  const Tensor normal = DrawRows("normal", 3, "k", DType::kFloat64, 7, kDim);
  const Tensor outlier = DrawRows("outlier", 3, "k", DType::kFloat64, 7, kDim);
  std::vector<int64_t> channels;
  for (int64_t c = 0; c < kDim; ++c) {
    const double factor = outlier.As<double>()[c] / normal.As<double>()[c];
    if (outlier.As<double>()[c] == normal.As<double>()[c]) continue;
    channels.push_back(c / 32);
    EXPECT_GE(factor, 9.999999);
    EXPECT_LE(factor, 30.000001);
    for (int64_t r = 1; r < 7; ++r) {
      EXPECT_NEAR(outlier.As<double>()[r * kDim + c] / normal.As<double>()[r * kDim + c], factor,
                  1e-12 * factor);
    }
  }
  EXPECT_EQ(channels, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(NormalRows, RegimesAreKnownByName) {
  EXPECT_EQ(BenchRegimes().front(), "normal");
  for (const std::string_view regime : BenchRegimes()) {
    EXPECT_EQ(DrawRows(regime, 1, "k", DType::kFloat32, 2, 33).ElementCount(), 66) << regime;
  }
  EXPECT_THROW(DrawRows("nromal", 1, "k", DType::kFloat32, 2, 32), Error);
}

TEST(KvRowsOfFiles, ArePlacesOfFiles) {
  for (const char* place : {"file.h5", ":k", "file.h5:"}) {
    try {
      ReadKvRows({place});
      ADD_FAILURE() << place;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << place;
    }
  }
}

}  // namespace
}  // namespace kvcheck
