// Every double-double operation against 100 digits, within the errors that double_double.h states.

#include "reference/numerics/double_double.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "error_ratio.h"
#include "reference/numerics/oracle.h"

namespace kvcheck {
namespace {

constexpr int kSamples = 20000;

struct Operation {
  const char* name;
  DoubleDouble (*compute)(DoubleDouble, DoubleDouble);
  Oracle100 (*exact)(const Oracle100&, const Oracle100&);
  double error;
  // The absolute error as a function of the second operand.
  double (*floor)(double);
};

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = {
      {"add", [](DoubleDouble x, DoubleDouble y) { return x + y; },
       [](const Oracle100& x, const Oracle100& y) { return x + y; }, kDoubleDoubleAddError,
       [](double) { return 0.0; }},
      {"subtract", [](DoubleDouble x, DoubleDouble y) { return x - y; },
       [](const Oracle100& x, const Oracle100& y) { return x - y; }, kDoubleDoubleAddError,
       [](double) { return 0.0; }},
      {"multiply", [](DoubleDouble x, DoubleDouble y) { return x * y; },
       [](const Oracle100& x, const Oracle100& y) { return x * y; }, kDoubleDoubleMulError,
       [](double) { return kDoubleDoubleFloor; }},
      {"divide", [](DoubleDouble x, DoubleDouble y) { return x / y; },
       [](const Oracle100& x, const Oracle100& y) { return x / y; }, kDoubleDoubleDivError,
       [](double y) { return kDoubleDoubleFloor * (1.0 + 1.0 / std::fabs(y)); }},
  };
  return operations;
}

// Applies an operation to a pair of operands, and to the forms where the second is a double.
void Check(const Operation& operation, DoubleDouble x, DoubleDouble y, Worst& worst) {
  const Oracle100 exact = operation.exact(Oracle100(x), Oracle100(y));
  worst.Add(ErrorRatio(operation.compute(x, y), exact, operation.error, operation.floor(y.hi)), x,
            y);
}

void ExpectWithinBounds(const Operation& operation, const Worst& worst) {
  EXPECT_LE(worst.ratio, 1.0) << std::hexfloat << operation.name << " x=" << worst.x.hi << ","
                              << worst.x.lo << " y=" << worst.y.hi << "," << worst.y.lo;
  // Smaller by orders of magnitude would mean that the data do not exercise the operation.
  EXPECT_GT(worst.ratio, 0.0) << operation.name;
  testing::Test::RecordProperty(operation.name, std::to_string(worst.ratio));
  std::printf("  %-9s worst error %.3f of its bound\n", operation.name, worst.ratio);
}

TEST(DoubleDouble, OperationsKeepTheirErrorOnRandomOperands) {
  for (const Operation& operation : Operations()) {
    Operands operands(1);
    Worst worst;
    for (int i = 0; i < kSamples; ++i) {
      Check(operation, operands.Pair(-4, 4), operands.Pair(-4, 4), worst);
    }
    ExpectWithinBounds(operation, worst);
  }
}

TEST(DoubleDouble, OperationsKeepTheirErrorOnExtremeExponents) {
  for (const Operation& operation : Operations()) {
    Operands operands(2);
    Worst worst;
    for (int i = 0; i < kSamples; ++i) {
      Check(operation, operands.Pair(-500, 500), operands.Pair(-500, 500), worst);
    }
    ExpectWithinBounds(operation, worst);
  }
}

TEST(DoubleDouble, OperationsKeepTheirErrorOnSubnormalOperandsAndResults) {
  for (const Operation& operation : Operations()) {
    Operands operands(3);
    Worst worst;
    for (int i = 0; i < kSamples; ++i) {
      const DoubleDouble tiny = operands.Pair(-1074, -900);
      Check(operation, tiny, operands.Pair(-60, 60), worst);
      Check(operation, tiny, operands.Pair(-1074, -1000), worst);
      if (std::string(operation.name) != "divide") {
        Check(operation, operands.Pair(-540, -480), operands.Pair(-540, -480), worst);
      }
    }
    ExpectWithinBounds(operation, worst);
  }
}

TEST(DoubleDouble, SumsKeepTheirRelativeErrorUnderCancellation) {
  for (const Operation& operation : Operations()) {
    if (operation.floor(1.0) != 0.0) continue;  // sums only
    Operands operands(4);
    Worst worst;
    for (int i = 0; i < kSamples; ++i) {
      const DoubleDouble x = operands.Pair(-4, 4);
      // Differs from x after a random number of common leading bits, from 1 to 120.
      const double change =
          std::ldexp(operands.Unit(), std::ilogb(x.hi) - operands.Integer(1, 120));
      const DoubleDouble y = TwoSum(x.hi, x.lo + change);
      Check(operation, x, y, worst);
      Check(operation, x, -y, worst);
    }
    ExpectWithinBounds(operation, worst);
  }
}

TEST(DoubleDouble, MixedOperationsWithADoubleKeepTheErrorOfThePair) {
  Operands operands(5);
  Worst worst;
  for (int i = 0; i < kSamples; ++i) {
    const DoubleDouble x = operands.Pair(-30, 30);
    const double y = operands.Double(-30, 30);
    const Oracle100 wide_x(x);
    const Oracle100 wide_y(y);
    worst.Add(ErrorRatio(x + y, wide_x + wide_y, kDoubleDoubleAddError, 0.0), x, {y, 0});
    worst.Add(ErrorRatio(y - x, wide_y - wide_x, kDoubleDoubleAddError, 0.0), x, {y, 0});
    worst.Add(ErrorRatio(x * y, wide_x * wide_y, kDoubleDoubleMulError, 0.0), x, {y, 0});
    worst.Add(ErrorRatio(y / x, wide_y / wide_x, kDoubleDoubleDivError, 0.0), x, {y, 0});
    worst.Add(ErrorRatio(x / y, wide_x / wide_y, kDoubleDoubleDivError, 0.0), x, {y, 0});
  }
  EXPECT_LE(worst.ratio, 1.0) << std::hexfloat << worst.x.hi << "," << worst.x.lo << " "
                              << worst.y.hi;
}

TEST(DoubleDouble, ResultsAreNormalised) {
  for (const Operation& operation : Operations()) {
    Operands operands(6);
    for (int i = 0; i < kSamples; ++i) {
      const DoubleDouble result = operation.compute(operands.Pair(-30, 30), operands.Pair(-30, 30));
      ASSERT_EQ(result.hi + result.lo, result.hi) << operation.name;
    }
  }
}

TEST(DoubleDouble, ErrorFreeTransformationsAreExact) {
  Operands operands(7);
  for (int i = 0; i < kSamples; ++i) {
    const double a = operands.Double(-150, 150);
    const double b = operands.Double(-150, 150);
    const DoubleDouble sum = TwoSum(a, b);
    ASSERT_EQ(Oracle100(sum.hi) + Oracle100(sum.lo), Oracle100(a) + Oracle100(b));
    const DoubleDouble product = TwoProd(a, b);
    ASSERT_EQ(Oracle100(product.hi) + Oracle100(product.lo), Oracle100(a) * Oracle100(b));
    const bool ordered = std::fabs(a) >= std::fabs(b);
    const DoubleDouble fast = FastTwoSum(ordered ? a : b, ordered ? b : a);
    ASSERT_EQ(fast, sum);
  }
}

TEST(DoubleDouble, DotProductByAddProductKeepsItsBound) {
  for (int n : {1, 2, 127, 128, 129}) {
    Operands operands(8);
    DoubleDouble sum{0.0, 0.0};
    Oracle100 exact;
    Oracle100 magnitude;
    for (int i = 0; i < n; ++i) {
      const double a = operands.Double(-20, 20);
      const double b = operands.Double(-20, 20);
      sum = AddProduct(sum, a, b);
      exact += Oracle100(a) * Oracle100(b);
      magnitude += Abs(Oracle100(a) * Oracle100(b));
    }
    // gamma_n(u)^2, u = 2^-53.
    const double gamma = n * 0x1p-53 / (1.0 - n * 0x1p-53);
    const DoubleDouble result = Normalize(sum);
    const Oracle100 difference = Abs(Oracle100(result) - exact);
    EXPECT_LE(difference, magnitude * Oracle100(gamma) * Oracle100(gamma)) << n;
  }
}

TEST(DoubleDouble, ComparisonsOrderByTheWholePair) {
  const DoubleDouble one{1.0, 0.0};
  const DoubleDouble above{1.0, 0x1p-80};
  const DoubleDouble below{1.0, -0x1p-80};
  EXPECT_LT(below, one);
  EXPECT_LT(one, above);
  EXPECT_GT(above, below);
  EXPECT_LE(one, one);
  EXPECT_GE(one, one);
  EXPECT_FALSE(one < one);
  EXPECT_NE(one, above);
  EXPECT_EQ(Max(one, above), above);
  EXPECT_EQ(Max(above, below), above);
  EXPECT_EQ(Abs(DoubleDouble{-1.0, 0x1p-80}), (DoubleDouble{1.0, -0x1p-80}));
  EXPECT_EQ(Abs(above), above);
  EXPECT_EQ(-above, (DoubleDouble{-1.0, -0x1p-80}));
  EXPECT_EQ(ToDouble(above), 1.0);
  EXPECT_EQ(TimesPowerOfTwo(above, 4.0), (DoubleDouble{4.0, 0x1p-78}));
  const DoubleDouble nan{std::nan(""), 0.0};
  EXPECT_FALSE(nan < one || nan > one || nan == one || nan <= one || nan >= one);
}

TEST(DoubleDouble, ResultsBeyondTheRangeAreNeverFinite) {
  const DoubleDouble huge{0x1.fffffffffffffp1023, 0.0};
  const DoubleDouble infinite{INFINITY, 0.0};
  const DoubleDouble one{1.0, 0.0};
  const DoubleDouble zero{0.0, 0.0};
  EXPECT_FALSE(std::isfinite((huge + huge).hi));
  EXPECT_FALSE(std::isfinite((huge * huge).hi));
  EXPECT_FALSE(std::isfinite((one / zero).hi));
  EXPECT_FALSE(std::isfinite((zero / zero).hi));
  EXPECT_FALSE(std::isfinite((infinite + one).hi));
  EXPECT_FALSE(std::isfinite((infinite - infinite).hi));
  EXPECT_FALSE(IsFinite(infinite));
  EXPECT_TRUE(IsFinite(huge));
}

}  // namespace
}  // namespace kvcheck
