// The elementary functions against 100 digits, over their whole argument ranges, within the errors
// that exp.h states. exp_sweep_test.cc (slow) does the same more densely.

#include "reference/numerics/exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "error_ratio.h"
#include "reference/numerics/exp_table-inl.h"
#include "reference/numerics/oracle.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// The largest double whose exponential is finite, and the smallest whose exponential does not round
// to 0, are the doubles next to these.
const double kOverflow = 709.782712893384;
const double kUnderflow = -745.1332191019412;

struct ExpWorst {
  Worst single;
  Worst pair;

  void Check(DoubleDouble x) {
    const Oracle100 exact = Exp(Oracle100(x));
    pair.Add(ErrorRatio(ExpDD(x), exact, kExpDDError, kExpDDFloor), x);
    if (x.lo == 0.0) {
      single.Add(ErrorRatio(ExpDouble(x.hi), exact, kExpDoubleError, kExpDoubleFloor), x);
    }
  }

  void ExpectWithinBounds() const {
    EXPECT_LE(single.ratio, 1.0) << std::hexfloat << "ExpDouble(" << single.x.hi << ")";
    EXPECT_LE(pair.ratio, 1.0) << std::hexfloat << "ExpDD(" << pair.x.hi << "," << pair.x.lo << ")";
    EXPECT_GT(pair.ratio, 0.0);
    std::printf("  worst error: double %.3f, double-double %.3f of the bound\n", single.ratio,
                pair.ratio);
  }
};

TEST(ExpTable, EntriesAreThePowersOfTwoToHalfAnUlpOfTheirLowWord) {
  for (int j = 0; j < 128; ++j) {
    const Oracle100 exact = Exp(Log(Oracle100(2.0)) * Oracle100(j) / Oracle100(128.0));
    const double hi = inl::kExp2Hi[j];
    const double lo = inl::kExp2Lo[j];
    EXPECT_EQ(exact.ToDouble(), hi) << j;
    EXPECT_EQ((exact - Oracle100(hi)).ToDouble(), lo) << j;
  }
}

TEST(ExpTable, ConstantsAreTheirDefinitions) {
  Oracle100 factorial(1.0);
  for (int n = 0; n <= 10; ++n) {
    if (n > 0) factorial *= Oracle100(n);
    const DoubleDouble inverse = (Oracle100(1.0) / factorial).ToPair();
    EXPECT_EQ(inverse.hi, inl::kInverseFactorialHi[n]) << n;
    EXPECT_EQ(inverse.lo, inl::kInverseFactorialLo[n]) << n;
  }
  for (int n = 0; n <= 20; ++n) {
    const DoubleDouble inverse = (Oracle100(1.0) / Oracle100(2.0 * n + 1.0)).ToPair();
    EXPECT_EQ(inverse.hi, inl::kInverseOddHi[n]) << n;
    EXPECT_EQ(inverse.lo, inl::kInverseOddLo[n]) << n;
  }
  const Oracle100 ln2 = Log(Oracle100(2.0));
  const Oracle100 step = ln2 / Oracle100(128.0);
  const Oracle100 rest1 = step - Oracle100(inl::kStep1);
  const Oracle100 rest2 = rest1 - Oracle100(inl::kStep2);
  EXPECT_EQ(inl::kInverseStep, (Oracle100(1.0) / step).ToDouble());
  EXPECT_EQ(inl::kStep2Full, rest1.ToDouble());
  EXPECT_EQ(inl::kStep3, rest2.ToDouble());
  EXPECT_EQ(inl::kLn2TailHi, (ln2 - Oracle100(inl::kLn2Head)).ToPair().hi);
  EXPECT_EQ(inl::kLn2TailLo, (ln2 - Oracle100(inl::kLn2Head)).ToPair().lo);
  // The products which the reduction takes for exact.
  for (double k : {1.0, 3.0, 0x1p18 - 1.0}) {
    EXPECT_EQ(TwoProd(inl::kStep1, k).lo, 0.0);
    EXPECT_EQ(TwoProd(inl::kStep2, k).lo, 0.0);
  }
  EXPECT_EQ(TwoProd(inl::kLn2Head, 2047.0).lo, 0.0);
}

TEST(Exp, KeepsItsErrorOverTheWholeRange) {
  Operands operands(1);
  ExpWorst worst;
  for (int i = 0; i < 6000; ++i) {
    const double x = operands.Between(kUnderflow - 2.0, kOverflow);
    worst.Check({x, 0.0});
    worst.Check(TwoSum(x, operands.Between(-0x1p-44, 0x1p-44)));
  }
  for (int i = 0; i < 3000; ++i) worst.Check(operands.Pair(-120, 8));
  worst.ExpectWithinBounds();
}

// A power of two built by shifting one exponent field wraps here (-740 < x < -708, where the result
// is subnormal) and gives a wrong sign or exponent.
TEST(Exp, PowerOfTwoDoesNotWrapWhereTheResultIsSubnormal) {
  ExpWorst worst;
  // NOLINTNEXTLINE(clang-analyzer-security.FloatLoopCounter): the steps are exact
  for (double x = -746.5; x <= -700.0; x += 0x1.9p-6) {
    worst.Check({x, 0x1p-55});
    worst.Check({x, 0.0});
  }
  worst.ExpectWithinBounds();
}

TEST(Exp, KeepsItsErrorWhereTheLowWordIsSubnormal) {
  Operands operands(2);
  ExpWorst worst;
  for (int i = 0; i < 2000; ++i) {
    const double x = operands.Between(-710.0, -630.0);
    worst.Check(TwoSum(x, operands.Between(-0x1p-44, 0x1p-44)));
  }
  worst.ExpectWithinBounds();
}

TEST(Exp, KeepsItsErrorAtTheEdgesOfTheTableCells) {
  const Oracle100 half_step = Log(Oracle100(2.0)) / Oracle100(256.0);
  ExpWorst worst;
  for (int k = -275190; k <= 262143; k += 331) {
    const DoubleDouble edge = (half_step * Oracle100(k)).ToPair();
    worst.Check(edge);
    worst.Check({edge.hi, 0.0});
    worst.Check({std::nextafter(edge.hi, -kInfinity), 0.0});
    worst.Check({std::nextafter(edge.hi, kInfinity), 0.0});
  }
  worst.ExpectWithinBounds();
}

TEST(Exp, SpecialArgumentsGiveTheLimits) {
  EXPECT_EQ(ExpDouble(0.0), 1.0);
  EXPECT_EQ(ExpDouble(-0.0), 1.0);
  EXPECT_EQ(ExpDouble(-kInfinity), 0.0);
  EXPECT_FALSE(std::signbit(ExpDouble(-kInfinity)));
  EXPECT_EQ(ExpDouble(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(ExpDouble(kNan)));
  EXPECT_TRUE(std::isnan(ExpDouble(-kNan)));
  EXPECT_EQ(ExpDouble(1e300), kInfinity);
  EXPECT_EQ(ExpDouble(-1e300), 0.0);
  EXPECT_EQ(ExpDD({0.0, 0.0}), (DoubleDouble{1.0, 0.0}));
  EXPECT_EQ(ExpDD({-kInfinity, 0.0}), (DoubleDouble{0.0, 0.0}));
  // A low word spoilt by an infinite operand does not spoil the limit.
  EXPECT_EQ(ExpDD({-kInfinity, kNan}), (DoubleDouble{0.0, 0.0}));
  EXPECT_EQ(ExpDD({kInfinity, kNan}), (DoubleDouble{kInfinity, 0.0}));
  EXPECT_EQ(ExpDD({800.0, 0.0}), (DoubleDouble{kInfinity, 0.0}));
  EXPECT_TRUE(std::isnan(ExpDD({kNan, 0.0}).hi));
}

TEST(Exp, OverflowAndUnderflowBeginWhereTheyShould) {
  ExpWorst worst;
  for (double edge : {kOverflow, kUnderflow}) {
    double x = edge;
    for (int i = 0; i < 40; ++i) x = std::nextafter(x, -kInfinity);
    for (int i = 0; i < 80; ++i, x = std::nextafter(x, kInfinity)) {
      const double exact = Exp(Oracle100(x)).ToDouble();
      if (std::isfinite(exact)) {
        worst.Check({x, 0.0});
      } else {
        EXPECT_EQ(ExpDouble(x), kInfinity) << std::hexfloat << x;
        EXPECT_EQ(ExpDD({x, 0.0}).hi, kInfinity) << std::hexfloat << x;
      }
    }
  }
  worst.ExpectWithinBounds();
  EXPECT_EQ(ExpDouble(-745.2), 0.0);
  EXPECT_GT(ExpDouble(-745.13), 0.0);
  EXPECT_EQ(ExpDouble(709.79), kInfinity);
  EXPECT_LT(ExpDouble(709.78), kInfinity);
}

TEST(Log, KeepsItsErrorOverTheWholeRange) {
  Operands operands(3);
  Worst pair;
  Worst single;
  const auto check = [&](DoubleDouble x) {
    const Oracle100 exact = Log(Oracle100(x));
    pair.Add(ErrorRatio(LogDD(x), exact, kLogDDError, 0.0), x);
    if (x.lo == 0.0) {
      single.Add(ErrorRatio(LogDouble(x.hi), exact, kLogDoubleError, 0x1p-1074), x);
    }
  };
  for (int i = 0; i < 1500; ++i) check(Abs(operands.Pair(-1074, 1023)));
  for (int i = 0; i < 1500; ++i) check(Abs(operands.Pair(-2, 2)));
  // Around 1, where the result is small and must stay relatively exact.
  for (int i = 0; i < 1500; ++i) check(1.0 + operands.Pair(-100, -1));
  for (double x : {0x1p-1074, 0x1p-1022, 0x1p-800, 0.5, 1.0, 2.0, 0x1.fffffffffffffp1023,
                   0x1.6a09e667f3bccp-1, 0x1.6a09e667f3bcdp-1, 0x1.6a09e667f3bcep-1}) {
    check({x, 0.0});
  }
  EXPECT_LE(pair.ratio, 1.0) << std::hexfloat << pair.x.hi << "," << pair.x.lo;
  EXPECT_LE(single.ratio, 1.0) << std::hexfloat << single.x.hi;
  std::printf("  worst error: double %.3f, double-double %.3f of the bound\n", single.ratio,
              pair.ratio);
}

TEST(Log, SpecialArgumentsGiveTheLimits) {
  EXPECT_EQ(LogDD({1.0, 0.0}), (DoubleDouble{0.0, 0.0}));
  EXPECT_EQ(LogDD({0.0, 0.0}), (DoubleDouble{-kInfinity, 0.0}));
  EXPECT_EQ(LogDD({kInfinity, 0.0}), (DoubleDouble{kInfinity, 0.0}));
  EXPECT_TRUE(std::isnan(LogDD({-1.0, 0.0}).hi));
  EXPECT_TRUE(std::isnan(LogDD({-kInfinity, 0.0}).hi));
  EXPECT_TRUE(std::isnan(LogDD({kNan, 0.0}).hi));
}

TEST(Tanh, KeepsItsErrorOverTheWholeRange) {
  Operands operands(4);
  Worst pair;
  Worst single;
  const auto check = [&](DoubleDouble x) {
    const Oracle100 exact = Tanh(Oracle100(x));
    pair.Add(ErrorRatio(TanhDD(x), exact, kTanhDDError, kTanhDDFloor), x);
    if (x.lo == 0.0) {
      single.Add(ErrorRatio(TanhDouble(x.hi), exact, kTanhDoubleError, kTanhDoubleFloor), x);
    }
  };
  for (int i = 0; i < 1500; ++i) check(operands.Pair(-1074, 1000));
  for (int i = 0; i < 1500; ++i) check(operands.Pair(-12, 6));
  for (int i = 0; i < 1000; ++i) check({operands.Between(-1.0, 1.0), 0.0});
  // Both sides of every edge of the table cells near zero, where m is smallest.
  const Oracle100 quarter_step = Log(Oracle100(2.0)) / Oracle100(512.0);
  for (int k = -300; k <= 300; ++k) {
    const DoubleDouble edge = (quarter_step * Oracle100(k)).ToPair();
    check(edge);
    check({std::nextafter(edge.hi, -kInfinity), 0.0});
    check({std::nextafter(edge.hi, kInfinity), 0.0});
  }
  EXPECT_LE(pair.ratio, 1.0) << std::hexfloat << pair.x.hi << "," << pair.x.lo;
  EXPECT_LE(single.ratio, 1.0) << std::hexfloat << single.x.hi;
  std::printf("  worst error: double %.3f, double-double %.3f of the bound\n", single.ratio,
              pair.ratio);
}

TEST(Tanh, SpecialArgumentsGiveTheLimits) {
  EXPECT_EQ(TanhDouble(kInfinity), 1.0);
  EXPECT_EQ(TanhDouble(-kInfinity), -1.0);
  EXPECT_EQ(TanhDouble(0.0), 0.0);
  EXPECT_TRUE(std::signbit(TanhDouble(-0.0)));
  EXPECT_TRUE(std::isnan(TanhDouble(kNan)));
  EXPECT_EQ(TanhDD({kInfinity, kNan}).hi, 1.0);
  EXPECT_EQ(TanhDD({-kInfinity, kNan}).hi, -1.0);
  EXPECT_EQ(TanhDD({0.0, 0.0}), (DoubleDouble{0.0, 0.0}));
  EXPECT_TRUE(std::isnan(TanhDD({kNan, 0.0}).hi));
}

}  // namespace
}  // namespace kvcheck
