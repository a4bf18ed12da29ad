#include "reference/judge/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/reference/judge/fake_source.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

TEST(Metrics, AreTheirDefinitions) {
  MetricsAccumulator accumulator;
  accumulator.Add(3, 2, 1, 0.5, 0.25);
  accumulator.Add(-4, -4, 0, 0.5, 0);
  accumulator.Add(0, 4, -4, 0.5, 2);
  const Metrics m = accumulator.Finish();
  EXPECT_EQ(m.finite, 3);
  EXPECT_EQ(m.max_abs, 4);
  EXPECT_EQ(m.max_rel, 1);
  EXPECT_EQ(m.max_ulp, 8);
  EXPECT_EQ(m.passing_factor, 2);
  // Sums of small integers are exact; what follows is rounded as here, whatever the exponents.
  EXPECT_EQ(m.mean_abs, 5.0 / 3);
  EXPECT_EQ(m.rms_abs, std::sqrt(17.0 / 3));
  EXPECT_EQ(m.mean_rel, 0.5);
  EXPECT_EQ(*m.nmse, 17.0 / 36);
  // Ten times numbers below 1: here a quotient and a logarithm within an ulp, there a quotient, two
  // logarithms, a product and a sum; and two products with 10, both below 4.
  EXPECT_NEAR(*m.snr_db, -10 * std::log10(17.0 / 36), 10 * 10 * 0x1p-53 + 2 * 4 * 0x1p-53);
  EXPECT_EQ(*m.cosine, 22.0 / 30);
}

TEST(Metrics, SquaresNeitherOverflowNorUnderflow) {
  for (const double scale : {0x1p-1000, 0x1p-540, 1.0, 0x1p540, 0x1p1000}) {
    MetricsAccumulator accumulator;
    accumulator.Add(3 * scale, 2 * scale, scale, scale, 1);
    accumulator.Add(4 * scale, 4 * scale, 0, scale, 0);
    const Metrics m = accumulator.Finish();
    // Powers of two change nothing but the exponent.
    EXPECT_EQ(m.rms_abs / scale, std::sqrt(0.5)) << scale;
    EXPECT_EQ(*m.nmse, 1.0 / 20) << scale;
    EXPECT_EQ(*m.cosine, 22 / (5 * std::sqrt(20.0))) << scale;
    EXPECT_EQ(m.expected_rms / scale, std::sqrt(10.0)) << scale;
  }
}

TEST(Metrics, UlpCellsAreNearestThenByOctave) {
  MetricsAccumulator accumulator;
  for (const double ulps : {0.0, 0.5, 0.51, 1.5, 2.0, 2.6, 4.5, 4.6, 1e30}) {
    accumulator.Add(1, 1, ulps, 1, 0);
  }
  const Metrics m = accumulator.Finish();
  EXPECT_EQ(m.ulp_histogram[0], 2);
  EXPECT_EQ(m.ulp_histogram[1], 2);
  EXPECT_EQ(m.ulp_histogram[2], 1);
  EXPECT_EQ(m.ulp_histogram[3], 2);
  EXPECT_EQ(m.ulp_histogram[4], 1);
  EXPECT_EQ(m.ulp_histogram[kUlpCells - 1], 1);
  EXPECT_EQ(UlpCellName(2), "2");
  EXPECT_EQ(UlpCellName(3), "3-4");
  EXPECT_EQ(UlpCellName(4), "5-8");
  EXPECT_EQ(UlpCellName(kUlpCells - 1), "inf");
}

TEST(Metrics, NoToleranceSavesAPairThatIsNotFinite) {
  MetricsAccumulator accumulator;
  accumulator.Add(1, 1, 0, 1, 0);
  accumulator.AddNotFinite();
  const Metrics m = accumulator.Finish();
  EXPECT_EQ(m.passing_abs, kInfinity);
  EXPECT_EQ(m.passing_ulp, kInfinity);
  EXPECT_EQ(m.passing_factor, kInfinity);
  EXPECT_EQ(m.not_finite, 1);
}

TEST(Metrics, MergedPartsEqualTheWhole) {
  MetricsAccumulator whole;
  MetricsAccumulator parts[2];
  for (uint64_t i = 0; i < 1000; ++i) {
    const double got = Hashed(1, i);
    const double error = 0x1p-10 * Hashed(2, i);
    whole.Add(got, got - error, error, 0x1p-20, std::fabs(error));
    parts[i / 500].Add(got, got - error, error, 0x1p-20, std::fabs(error));
  }
  parts[0].Merge(parts[1]);
  const Metrics a = whole.Finish();
  const Metrics b = parts[0].Finish();
  EXPECT_EQ(a.ulp_histogram, b.ulp_histogram);
  EXPECT_EQ(a.bound_ratio, b.bound_ratio);
  // Sums of 1000 terms in two orders.
  EXPECT_NEAR(*a.nmse / *b.nmse, 1, 4000 * 0x1p-53);
  EXPECT_NEAR(a.mean_abs / b.mean_abs, 1, 2000 * 0x1p-53);
}

TEST(LogSketch, QuantilesAreWithinOneCellAndNeverTooSmall) {
  std::vector<double> values;
  LogSketch sketch;
  for (uint64_t i = 0; i < 5000; ++i) {
    values.push_back(std::exp2(40 * Hashed(3, i)));
    sketch.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double q : {0.5, 0.9, 0.99}) {
    const double exact = values[static_cast<size_t>(std::ceil(q * 5000)) - 1];
    EXPECT_GE(sketch.Quantile(q), exact);
    // A cell is 1/32 of an octave's mantissa, at most a factor of 1 + 1/32 wide.
    EXPECT_LE(sketch.Quantile(q), exact * (1 + 1.0 / 32));
  }
  EXPECT_EQ(sketch.Quantile(1), values.back());
}

TEST(LogSketch, ZerosAndInfinitiesHaveTheirPlaces) {
  LogSketch sketch;
  EXPECT_EQ(sketch.Quantile(0.5), 0);
  for (int i = 0; i < 3; ++i) sketch.Add(0);
  EXPECT_EQ(sketch.Quantile(1), 0);
  sketch.Add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(sketch.Quantile(0.75), 0);
  EXPECT_EQ(sketch.Quantile(1), kInfinity);
}

TEST(LogSketch, MergesToTheSameQuantilesInAnyOrder) {
  LogSketch a;
  LogSketch b;
  LogSketch all;
  for (uint64_t i = 0; i < 129; ++i) {
    const double x = std::fabs(Hashed(5, i)) * (i % 2 == 0 ? 1e-100 : 1e100);
    (i % 2 == 0 ? a : b).Add(x);
    all.Add(x);
  }
  LogSketch ab = a;
  ab.Merge(b);
  LogSketch ba = b;
  ba.Merge(a);
  for (const double q : {0.1, 0.5, 0.9, 1.0}) {
    EXPECT_EQ(ab.Quantile(q), all.Quantile(q));
    EXPECT_EQ(ba.Quantile(q), all.Quantile(q));
  }
}

}  // namespace
}  // namespace kvcheck
