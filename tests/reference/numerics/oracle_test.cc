// The 50- and 100-digit numbers: against literal constants, against each other, and in their exact
// exchange with doubles.

#include "reference/numerics/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "error_ratio.h"
#include "reference/numerics/real.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

template <class Number>
class OracleOf : public testing::Test {};
using BothOracles = testing::Types<Oracle50, Oracle100>;
TYPED_TEST_SUITE(OracleOf, BothOracles);

// Computed with Python's decimal module at 130 digits.
struct Constant {
  const char* name;
  const char* digits;
};
constexpr Constant kExpOne = {
    "exp(1)",
    "2.7182818284590452353602874713526624977572470936999595749669676277240"
    "7663035354759457138217852516642742747"};
constexpr Constant kExpSubnormal = {
    "exp(-745.125)",
    "2.49071577764885473012711300655187851254538441105477776371888630902119713092108354365492989849"
    "973123695945e-324"};
constexpr Constant kLn2 = {"log(2)",
                           "6.931471805599453094172321214581765680755001343602552541206800094933936"
                           "21969694715605863326996418687542001e-1"};
constexpr Constant kTanhHalf = {
    "tanh(1/2)",
    "4.62117157260009758502318483643672548730289280330113038552731815838080906140409278774949064151"
    "962490584349e-1"};
constexpr Constant kTanhSmall = {
    "tanh(2^-10)",
    "9.76562189559260218584075270146771762847008858368259065160093840393376370842760182923768321765"
    "565654614277e-4"};
constexpr Constant kSqrtTwo = {
    "sqrt(2)",
    "1.414213562373095048801688724209698078569671875376948073176679737990"
    "73247846210703885038753432764157273501"};

TYPED_TEST(OracleOf, FunctionsGiveTheDigitsOfIndependentConstants) {
  const auto check = [](const TypeParam& value, const Constant& constant) {
    const TypeParam expected = TypeParam::FromString(constant.digits);
    const TypeParam error = Abs(value - expected);
    EXPECT_LE(error, Abs(expected) * TypeParam(kExpError<TypeParam>)) << constant.name;
  };
  check(Exp(TypeParam(1.0)), kExpOne);
  check(Exp(TypeParam(-745.125)), kExpSubnormal);
  check(Log(TypeParam(2.0)), kLn2);
  check(Tanh(TypeParam(0.5)), kTanhHalf);
  check(Tanh(TypeParam(0x1p-10)), kTanhSmall);
  check(Sqrt(TypeParam(2.0)), kSqrtTwo);
}

TYPED_TEST(OracleOf, DoublesAndPairsGoThroughUnchanged) {
  Operands operands(1);
  for (int i = 0; i < 20000; ++i) {
    const double x = operands.Double(-1074, 1023);
    ASSERT_EQ(TypeParam(x).ToDouble(), x);
    const DoubleDouble pair = operands.Pair(-900, 900);
    ASSERT_EQ(TypeParam(pair).ToPair(), pair);
  }
  for (double x : {0.0, 0x1p-1074, -0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp-1023,
                   0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023}) {
    EXPECT_EQ(TypeParam(x).ToDouble(), x);
  }
}

TYPED_TEST(OracleOf, ToDoubleRoundsToNearestWithTiesToEven) {
  const TypeParam tiny(0x1p-100);
  for (double x : {1.0, 0x1.0000000000001p0, 0x1.fffffffffffffp0, 0x1p-1022, 0x1p-1074, 0x3p-1074,
                   0x1.fffffffffffffp1022}) {
    const double next = std::nextafter(x, INFINITY);
    const TypeParam middle = (TypeParam(x) + TypeParam(next)) / TypeParam(2.0);
    // Of two neighbours one has an even significand: half of it, scaled to an integer, is whole.
    const double ulp = next - x;
    const double even = std::fmod(x / ulp, 2.0) == 0.0 ? x : next;
    EXPECT_EQ(middle.ToDouble(), even) << std::hexfloat << x;
    EXPECT_EQ((-middle).ToDouble(), -even) << std::hexfloat << x;
    const TypeParam nudge = TypeParam(ulp) * tiny;
    EXPECT_EQ((middle + nudge).ToDouble(), next) << std::hexfloat << x;
    EXPECT_EQ((middle - nudge).ToDouble(), x) << std::hexfloat << x;
  }
  // 2^-1075 is the tie between 0 and the smallest double.
  const TypeParam half_smallest = TypeParam(0x1p-1074) / TypeParam(2.0);
  EXPECT_EQ(half_smallest.ToDouble(), 0.0);
  EXPECT_EQ((half_smallest * (TypeParam(1.0) + tiny)).ToDouble(), 0x1p-1074);
  EXPECT_EQ((half_smallest * half_smallest).ToDouble(), 0.0);
  // 2^1024 - 2^970 is the tie between the largest double and infinity.
  const TypeParam edge = TypeParam(0x1.fffffffffffffp1023) + TypeParam(0x1p970);
  EXPECT_EQ(edge.ToDouble(), INFINITY);
  EXPECT_EQ((edge * (TypeParam(1.0) - tiny)).ToDouble(), 0x1.fffffffffffffp1023);
  EXPECT_EQ((-(edge * edge)).ToDouble(), -INFINITY);
}

TYPED_TEST(OracleOf, SpecialValuesBehaveAsThoseOfADouble) {
  const TypeParam zero(0.0);
  const TypeParam one(1.0);
  const TypeParam infinity(INFINITY);
  EXPECT_EQ((one / zero).ToDouble(), INFINITY);
  EXPECT_TRUE((zero / zero).IsNan());
  EXPECT_TRUE((infinity - infinity).IsNan());
  EXPECT_TRUE(std::isnan((zero / zero).ToDouble()));
  EXPECT_FALSE(one.IsNan());
  EXPECT_EQ(Exp(-infinity).ToDouble(), 0.0);
  EXPECT_EQ(Exp(infinity).ToDouble(), INFINITY);
  EXPECT_EQ(Exp(TypeParam(-1e300)).ToDouble(), 0.0);
  EXPECT_TRUE(Exp(TypeParam(NAN)).IsNan());
  EXPECT_EQ(Log(zero).ToDouble(), -INFINITY);
  EXPECT_EQ(Log(infinity).ToDouble(), INFINITY);
  EXPECT_TRUE(Log(-one).IsNan());
  EXPECT_EQ(Tanh(infinity).ToDouble(), 1.0);
  EXPECT_EQ(Tanh(TypeParam(-1e300)).ToDouble(), -1.0);
  EXPECT_TRUE(Sqrt(-one).IsNan());
  // An infinite pair may have any low word.
  EXPECT_EQ(TypeParam(DoubleDouble{INFINITY, NAN}).ToDouble(), INFINITY);
  EXPECT_FALSE(TypeParam(NAN) == TypeParam(NAN));
  EXPECT_FALSE(TypeParam(NAN) < one);
  EXPECT_FALSE(TypeParam(NAN) >= one);
}

TYPED_TEST(OracleOf, TextReadsBackAsTheSameValue) {
  const TypeParam third = TypeParam(1.0) / TypeParam(3.0);
  EXPECT_EQ(TypeParam::FromString(third.ToString()), third);
  EXPECT_EQ(TypeParam(0.5).ToString(3), "5.00e-01");
  EXPECT_EQ(TypeParam::FromString("-1.25e-310").ToDouble(), -1.25e-310);
  EXPECT_EQ(TypeParam::FromString("-.5E+1").ToDouble(), -5.0);
  EXPECT_EQ(TypeParam::FromString("-inf").ToDouble(), -INFINITY);
  EXPECT_TRUE(TypeParam::FromString("nan").IsNan());
  EXPECT_TRUE(TypeParam::FromString(TypeParam(NAN).ToString()).IsNan());
  EXPECT_EQ(TypeParam::FromString(TypeParam(-INFINITY).ToString()).ToDouble(), -INFINITY);
  for (const char* bad : {"", "-", ".", "abc", "1.2.3", "1e", "1e+", "0x10", "1 2", " 1", "nan(3",
                          "inff", "1e1000000", "1e-99999999999999999999"}) {
    EXPECT_THROW(TypeParam::FromString(bad), Error) << bad;
  }
  EXPECT_THROW(TypeParam::FromString(std::string(5000, '1')), Error);
}

TYPED_TEST(OracleOf, CopiesAreIndependent) {
  TypeParam x(1.0);
  const TypeParam copy = x;
  x += TypeParam(1.0);
  x *= x;
  x -= TypeParam(1.0);
  x /= TypeParam(2.0);
  EXPECT_EQ(x, TypeParam(1.5));
  EXPECT_EQ(copy, TypeParam(1.0));
  EXPECT_EQ(Max(x, copy), x);
}

// Seen from 100 digits, 50 are wrong by no more than real.h states.
class Oracle50Error {
 public:
  void Check(const Oracle50& got, const Oracle100& exact, double error, double at) {
    const Oracle100 widened = Oracle100::FromString(got.ToString());
    const Oracle100 difference = Abs(widened - exact);
    if (difference == Oracle100(0.0)) return;
    worst_.Add((difference / (Abs(exact) * Oracle100(error))).ToDouble(), {at, 0.0});
  }
  void ExpectWithinBounds() const {
    EXPECT_LE(worst_.ratio, 1.0) << worst_.x.hi;
    EXPECT_GT(worst_.ratio, 0.0);
    std::printf("  worst error %.4f of its bound\n", worst_.ratio);
  }

 private:
  Worst worst_;
};

TEST(Oracle50, FunctionsAgreeWithOracle100) {
  Operands operands(2);
  Oracle50Error errors;
  for (int i = 0; i < 400; ++i) {
    const double x = operands.Between(-750.0, 720.0);
    errors.Check(Exp(Oracle50(x)), Exp(Oracle100(x)), kExpError<Oracle50>, x);
    const double y = operands.Double(-1074, 1023);
    errors.Check(Log(Oracle50(std::fabs(y))), Log(Oracle100(std::fabs(y))), kLogError<Oracle50>, y);
    errors.Check(Tanh(Oracle50(y)), Tanh(Oracle100(y)), kTanhError<Oracle50>, y);
    const double z = operands.Double(-20, 5);
    errors.Check(Exp(Oracle50(z)), Exp(Oracle100(z)), kExpError<Oracle50>, z);
    errors.Check(Tanh(Oracle50(z)), Tanh(Oracle100(z)), kTanhError<Oracle50>, z);
    const double near_one = 1.0 + operands.Double(-52, -2);
    errors.Check(Log(Oracle50(near_one)), Log(Oracle100(near_one)), kLogError<Oracle50>, near_one);
  }
  errors.ExpectWithinBounds();
}

TEST(Oracle50, ArithmeticAgreesWithOracle100) {
  Operands operands(3);
  Oracle50Error errors;
  const double unit = kUnitRoundoff<Oracle50>;
  for (int i = 0; i < 1000; ++i) {
    // Three operands, so that the second operation acts on a full significand.
    const double a = operands.Double(-500, 500);
    const double b = operands.Double(-500, 500);
    errors.Check(Oracle50(a) / Oracle50(b), Oracle100(a) / Oracle100(b), unit, a);
    const Oracle50 ratio = Oracle50(a) / Oracle50(b);
    const Oracle100 exact_ratio = Oracle100::FromString(ratio.ToString());
    errors.Check(ratio * Oracle50(b), exact_ratio * Oracle100(b), unit, a);
    errors.Check(ratio + Oracle50(b), exact_ratio + Oracle100(b), unit, a);
    errors.Check(ratio - Oracle50(a), exact_ratio - Oracle100(a), unit, a);
    errors.Check(Sqrt(Abs(ratio)), Sqrt(Abs(exact_ratio)), unit, a);
  }
  errors.ExpectWithinBounds();
}

}  // namespace
}  // namespace kvcheck
