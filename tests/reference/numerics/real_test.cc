// One definition, written once, over the four number types.

#include "reference/numerics/real.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "error_ratio.h"

namespace kvcheck {
namespace {

template <class Real>
class RealOf : public testing::Test {};
using AllReals = testing::Types<double, DoubleDouble, Oracle50, Oracle100>;
TYPED_TEST_SUITE(RealOf, AllReals);

template <class Real>
Real LogSumExp(const std::vector<double>& scores) {
  Real max = FromDouble<Real>(scores[0]);
  for (double score : scores) max = Max(max, FromDouble<Real>(score));
  Real sum = FromDouble<Real>(0.0);
  for (double score : scores) sum += Exp(FromDouble<Real>(score) - max);
  return max + Log(sum);
}

TYPED_TEST(RealOf, LogSumExpKeepsTheBoundMadeOfItsErrorConstants) {
  for (int n : {1, 2, 7, 8, 9, 129}) {
    Operands operands(static_cast<uint64_t>(n));
    std::vector<double> scores;
    double largest = 0.0;
    for (int i = 0; i < n; ++i) {
      scores.push_back(operands.Between(-300.0, 30.0));
      largest = std::fmax(largest, std::fabs(scores.back()));
    }
    const Oracle100 exact = LogSumExp<Oracle100>(scores);
    const DoubleDouble got = ToPair(LogSumExp<TypeParam>(scores));
    const double u = kUnitRoundoff<TypeParam>;
    // exp(score - max): the difference errs by u (330), exp by its own error, the sum by n u; the
    // log turns the relative error of its argument into an absolute one, its own is relative to
    // log(sum) <= log(n); the last sum rounds, and so does the pair which is compared. First order;
    // the factor 1 + 2^-10 covers the products of errors.
    const double log_n = std::log(n);
    const double bound =
        (330.0 * u + kExpError<TypeParam> + n * kExpFloor<TypeParam> + n * u +
         log_n * kLogError<TypeParam> + (largest + log_n) * u + (largest + log_n) * 0x1p-106) *
        (1.0 + 0x1p-10);
    EXPECT_LE(ErrorRatio(got, exact, 0.0, bound), 1.0) << n;
  }
}

TYPED_TEST(RealOf, FunctionsKeepTheirErrorConstants) {
  Operands operands(1);
  for (int i = 0; i < 200; ++i) {
    const double x = operands.Double(-20, 8);
    const auto ratio = [](const TypeParam& got, const Oracle100& exact, double error,
                          double floor) {
      // An oracle shows itself through a pair, whose own rounding is 2^-106.
      return ErrorRatio(ToPair(got), exact, error + 0x1p-106, floor + 0x1p-1074);
    };
    const TypeParam argument = FromDouble<TypeParam>(x);
    EXPECT_LE(ratio(Exp(argument), Exp(Oracle100(x)), kExpError<TypeParam>, kExpFloor<TypeParam>),
              1.0)
        << x;
    EXPECT_LE(
        ratio(Tanh(argument), Tanh(Oracle100(x)), kTanhError<TypeParam>, kTanhFloor<TypeParam>),
        1.0)
        << x;
    EXPECT_LE(ratio(Log(Abs(argument)), Log(Oracle100(std::fabs(x))), kLogError<TypeParam>, 0.0),
              1.0)
        << x;
  }
}

TYPED_TEST(RealOf, PairsGoThroughAsFarAsTheTypeHoldsThem) {
  const TypeParam x = FromPair<TypeParam>(1.0, 0x1p-60);
  const DoubleDouble pair = ToPair(x);
  EXPECT_EQ(pair.hi, 1.0);
  EXPECT_EQ(pair.lo, (std::is_same_v<TypeParam, double> ? 0.0 : 0x1p-60));
  EXPECT_EQ(ToDouble(x), 1.0);
  EXPECT_EQ(ToDouble(FromDouble<TypeParam>(-2.5)), -2.5);
  EXPECT_EQ(ToDouble(Abs(FromDouble<TypeParam>(-2.5))), 2.5);
  EXPECT_EQ(ToDouble(Max(FromDouble<TypeParam>(1.0), FromDouble<TypeParam>(2.0))), 2.0);
  EXPECT_EQ(ToDouble(-FromDouble<TypeParam>(3.0) / FromDouble<TypeParam>(2.0)), -1.5);
}

}  // namespace
}  // namespace kvcheck
