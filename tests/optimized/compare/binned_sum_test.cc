#include "optimized/compare/binned_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvcheck {
namespace {

BinnedSum SumOf(const std::vector<double>& terms, size_t first, size_t last) {
  BinnedSum sum;
  for (size_t i = first; i < last; ++i) sum.Add(terms[i]);
  return sum;
}

TEST(BinnedSum, DependsNeitherOnOrderNorOnGrouping) {
  std::mt19937_64 random(1);
  for (int range : {0, 10, 60, 900}) {
    std::vector<double> terms(1000);
    for (double& term : terms) {
      const int exponent = range == 0 ? 0 : static_cast<int>(random() % static_cast<size_t>(range));
      term = std::ldexp(static_cast<double>(random() >> 11), exponent - range / 2 - 53);
    }
    const BinnedSum whole = SumOf(terms, 0, terms.size());
    for (int turn = 0; turn < 20; ++turn) {
      const size_t middle = random() % terms.size();
      BinnedSum merged = SumOf(terms, middle, terms.size());
      merged.Merge(SumOf(terms, 0, middle));
      EXPECT_EQ(merged, whole);
      std::shuffle(terms.begin(), terms.end(), random);
      EXPECT_EQ(SumOf(terms, 0, terms.size()), whole);
    }
  }
}

TEST(BinnedSum, IsTheSumWithinItsBins) {
  std::mt19937_64 random(2);
  BinnedSum sum;
  long double total = 0;
  for (int i = 0; i < 100000; ++i) {
    const double term = std::ldexp(static_cast<double>(random() >> 11), -53);
    sum.Add(term);
    total += static_cast<long double>(term);
  }
  const double expected = static_cast<double>(std::sqrt(total / 100000));
  // Three roundings here, one there and 100000 of 2^-64.
  EXPECT_NEAR(sum.RootMean(100000), expected, 0x1p-46 * expected);
}

TEST(BinnedSum, TimesIsRepeatedAddition) {
  BinnedSum repeated;
  BinnedSum once;
  for (int i = 0; i < 1000; ++i) repeated.AddSquare(0.3);
  once.AddSquare(0.3, 1000);
  EXPECT_EQ(repeated, once);
}

TEST(BinnedSum, HoldsTheSquaresOfTheExtremes) {
  for (const double extreme :
       {std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min()}) {
    BinnedSum sum;
    for (int i = 0; i < 4; ++i) sum.AddSquare(extreme);
    EXPECT_NEAR(sum.RootMean(4) / extreme, 1, 0x1p-50);
  }
}

TEST(BinnedSum, OfNothingIsZero) {
  BinnedSum sum;
  sum.Add(0);
  EXPECT_EQ(sum, BinnedSum());
  EXPECT_EQ(sum.RootMean(0), 0);
  EXPECT_EQ(sum.RootMean(3), 0);
}

}  // namespace
}  // namespace kvcheck
