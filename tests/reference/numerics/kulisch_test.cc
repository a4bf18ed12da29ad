// The exact accumulator against integers of unlimited size: every finite double is an integer times
// 2^-1074, every product an integer times 2^-2148. Rounding is not computed a second time but
// proved: no neighbour of the result is nearer to the exact sum.

#include "reference/numerics/kulisch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tests/reference/numerics/slow_rounding.h"

namespace kvcheck {
namespace {

using Integer = boost::multiprecision::cpp_int;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kMost = std::numeric_limits<double>::max();

// x * 2^1074.
Integer Scaled(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  const Integer mantissa = static_cast<int64_t>(std::ldexp(fraction, 53));
  const int shift = exponent - 53 + 1074;
  return shift >= 0 ? Integer(mantissa << shift) : Integer(mantissa / (Integer(1) << -shift));
}

// x * 2^2148; infinity as the value that would follow the largest finite one.
Integer Exact(double x) {
  const Integer scaled =
      std::isinf(x) ? Integer(Integer(x > 0 ? 1 : -1) << (1024 + 1074)) : Scaled(x);
  return scaled << 1074;
}

struct Pair {
  double a;
  double b;
};

Integer ExactDot(const std::vector<Pair>& terms) {
  Integer sum = 0;
  for (const Pair& term : terms) sum += Scaled(term.a) * Scaled(term.b);
  return sum;
}

KulischAccumulator Accumulate(const std::vector<Pair>& terms) {
  KulischAccumulator sum;
  for (const Pair& term : terms) sum.AddProduct(term.a, term.b);
  return sum;
}

// Fails unless r is the double nearest to exact * 2^-2148, the even one of two.
void ExpectNearest(const Integer& exact, double r) {
  ASSERT_FALSE(std::isnan(r));
  if (exact == 0) {
    ASSERT_TRUE(SameBits(r, 0.0));
    return;
  }
  const Integer error = abs(Integer(exact - Exact(r)));
  const bool even = (std::bit_cast<uint64_t>(r) & 1) == 0;
  for (const double neighbour : {std::nextafter(r, kInfinity), std::nextafter(r, -kInfinity)}) {
    if (neighbour == r) continue;
    // Infinity stands for all beyond the range; what lies past it is nearer to it than to kMost.
    if (std::isinf(r) && abs(exact) >= abs(Exact(r))) continue;
    const Integer other = abs(Integer(exact - Exact(neighbour)));
    ASSERT_TRUE(error < other || (error == other && even)) << std::hexfloat << r;
  }
}

void ExpectExact(const std::vector<Pair>& terms) {
  const Integer exact = ExactDot(terms);
  const KulischAccumulator sum = Accumulate(terms);
  ASSERT_TRUE(sum.IsFinite());
  ASSERT_EQ(sum.Sign(), exact.sign());
  ExpectNearest(exact, sum.Round());
  const auto [high, low] = sum.RoundToPair();
  ASSERT_TRUE(SameBits(high, sum.Round()));
  if (std::isfinite(high)) ExpectNearest(exact - Exact(high), low);
}

struct Regime {
  int lowest_exponent;
  int exponents;
  uint64_t mantissa_mask;
};

constexpr uint64_t kF32Mantissa = ~uint64_t{0x1fffffff} & 0xfffffffffffffu;
constexpr uint64_t kBF16Mantissa = 0xfe00000000000u;
constexpr uint64_t kF64Mantissa = 0xfffffffffffffu;
constexpr Regime kRegimes[] = {
    {-10, 20, kBF16Mantissa}, {-10, 20, kF32Mantissa},     {-149, 277, kF32Mantissa},
    {-10, 20, kF64Mantissa},  {-1023, 2047, kF64Mantissa}, {-1023, 30, kF64Mantissa},
    {-560, 50, kF64Mantissa}, {500, 24, kF64Mantissa},     {-1023, 2047, kF32Mantissa},
};

// lowest_exponent -1023 draws subnormals too.
double Draw(const Regime& regime, uint64_t& state) {
  const uint64_t bits = NextRandom(state);
  const uint64_t exponent = NextRandom(state) % static_cast<uint64_t>(regime.exponents);
  const uint64_t field = static_cast<uint64_t>(regime.lowest_exponent + 1023) + exponent;
  if (bits % 64 == 0) return bits % 128 == 0 ? 0.0 : -0.0;
  return std::bit_cast<double>((bits & (uint64_t{1} << 63)) | field << 52 |
                               (bits & regime.mantissa_mask));
}

std::vector<Pair> DrawTerms(const Regime& regime, size_t length, uint64_t& state) {
  std::vector<Pair> terms;
  for (size_t i = 0; i < length; ++i) terms.push_back({Draw(regime, state), Draw(regime, state)});
  return terms;
}

TEST(Kulisch, IsTheExactDotProductCorrectlyRounded) {
  uint64_t state = 23;
  for (const Regime& regime : kRegimes) {
    for (const size_t length : {1u, 2u, 31u, 32u, 33u, 129u}) {
      for (int repeat = 0; repeat < 64; ++repeat) ExpectExact(DrawTerms(regime, length, state));
    }
  }
}

TEST(Kulisch, SurvivesCancellation) {
  uint64_t state = 29;
  for (const Regime& regime : kRegimes) {
    std::vector<Pair> terms = DrawTerms(regime, 64, state);
    const size_t half = terms.size();
    for (size_t i = 0; i < half; ++i) terms.push_back({-terms[i].b, terms[i].a});
    EXPECT_TRUE(SameBits(Accumulate(terms).Round(), 0.0));
    EXPECT_EQ(Accumulate(terms), KulischAccumulator());
    terms.push_back({0x1p-1074, -0x1p-1074});
    EXPECT_EQ(Accumulate(terms).Sign(), -1);
    ExpectExact(terms);
    terms.back() = {Draw(regime, state), 3.0};
    ExpectExact(terms);
  }
}

TEST(Kulisch, DoesNotDependOnOrderNorOnPartition) {
  uint64_t state = 31;
  for (const Regime& regime : kRegimes) {
    std::vector<Pair> terms = DrawTerms(regime, 129, state);
    const KulischAccumulator forward = Accumulate(terms);
    for (int repeat = 0; repeat < 4; ++repeat) {
      for (size_t i = terms.size() - 1; i > 0; --i) {
        std::swap(terms[i], terms[NextRandom(state) % (i + 1)]);
      }
      KulischAccumulator merged;
      for (size_t first = 0; first < terms.size(); first += 40) {
        const auto begin = terms.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end =
            terms.begin() + static_cast<std::ptrdiff_t>(std::min(first + 40, terms.size()));
        merged.Merge(Accumulate({begin, end}));
      }
      ASSERT_EQ(Accumulate(terms), forward);
      ASSERT_EQ(merged, forward);
      ASSERT_TRUE(SameBits(merged.Round(), forward.Round()));
    }
    terms[0].a += terms[0].a == 0 || terms[0].b == 0 ? 1.0 : -2 * terms[0].a;
    if (terms[0].b != 0) {
      EXPECT_FALSE(Accumulate(terms) == forward);
    }
  }
}

TEST(Kulisch, MergesWithItself) {
  KulischAccumulator sum;
  sum.AddProduct(-3.0, 0x1.23456789abcdep-700);
  sum.Add(5.0);
  KulischAccumulator twice = sum;
  twice.Merge(twice);
  KulischAccumulator expected;
  expected.AddProduct(-6.0, 0x1.23456789abcdep-700);
  expected.Add(10.0);
  EXPECT_EQ(twice, expected);
}

TEST(Kulisch, AddsSingleTermsLikeProductsWithOne) {
  uint64_t state = 37;
  for (const Regime& regime : kRegimes) {
    KulischAccumulator added;
    KulischAccumulator multiplied;
    for (int i = 0; i < 129; ++i) {
      const double x = Draw(regime, state);
      added.Add(x);
      multiplied.AddProduct(x, 1.0);
      multiplied.AddProduct(0.0, x);
    }
    ASSERT_EQ(added, multiplied);
  }
}

TEST(Kulisch, RoundsTiesToEvenAndBesideThemAway) {
  for (const double unit : {1.0, 0x1p-1074, 0x1p-1022, 0x1p-500, 0x1p900}) {
    for (const double tiny : {-0x1p-1074, 0.0, 0x1p-1074}) {
      for (const double odd : {0.0, 1.0}) {
        // (1 + odd ulp + half an ulp) units, give or take 2^-2148.
        const double base = unit * (unit >= 0x1p-1022 ? 1 + odd * 0x1p-52 : 1 + odd);
        const double step = unit >= 0x1p-1022 ? 0x1p-53 : 0.5;
        ExpectExact({{base, 1.0}, {unit, step}, {tiny, 0x1p-1074}});
        ExpectExact({{-base, 1.0}, {unit, -step}, {tiny, 0x1p-1074}});
      }
    }
  }
}

TEST(Kulisch, OverflowsOnReadingOnlyAndLosesNothing) {
  // kMost + half its spacing is the tie that rounds to infinity.
  ExpectExact({{kMost, 1.0}, {0x1p970, 1.0}});
  ExpectExact({{kMost, 1.0}, {0x1p970, 1.0}, {-0x1p-1074, 0x1p-1074}});
  ExpectExact({{kMost, kMost}});
  ExpectExact({{-kMost, kMost}, {-kMost, kMost}});
  KulischAccumulator sum;
  for (int i = 0; i < 1000; ++i) sum.AddProduct(kMost, kMost);
  EXPECT_EQ(sum.Round(), kInfinity);
  EXPECT_EQ(sum.RoundToPair(), std::make_pair(kInfinity, 0.0));
  EXPECT_TRUE(sum.IsFinite());
  for (int i = 0; i < 1000; ++i) sum.AddProduct(-kMost, kMost);
  sum.AddProduct(0x1p-1074, 0x1p-1000);
  sum.AddProduct(0x1p-1074, 0x1p-1000);
  EXPECT_EQ(sum.Sign(), 1);
  KulischAccumulator expected;
  expected.AddProduct(0x1p-1073, 0x1p-1000);
  EXPECT_EQ(sum, expected);
}

// Every slot carries through doubling: 2^k summed by repeated self-merging.
TEST(Kulisch, CarriesAcrossAllSlots) {
  KulischAccumulator sum;
  sum.AddProduct(-0x1p-1074, 0x1p-1074);
  for (int k = -2148; k < 1023; ++k) {
    if (k >= -1074) {
      ASSERT_EQ(sum.Round(), -std::ldexp(1.0, k)) << k;
    }
    ASSERT_EQ(sum.Sign(), -1);
    sum.Merge(sum);
  }
  KulischAccumulator top;
  top.Add(-0x1p1023);
  EXPECT_EQ(sum, top);
  sum.AddProduct(0x1p-1074, 0x1p-1074);  // borrows from the top slot down to the lowest
  EXPECT_EQ(sum.Round(), -0x1p1023);
  EXPECT_EQ(sum.RoundToPair().second, 0.0);
  sum.Add(0x1p1023);
  EXPECT_EQ(sum.Sign(), 1);
}

TEST(Kulisch, RemembersNonFiniteTermsByTheRulesOfIeee) {
  struct {
    std::vector<Pair> terms;
    double expected;
  } const cases[] = {
      {{{1.0, 2.0}, {kInfinity, 1.0}}, kInfinity},
      {{{kInfinity, -0.5}, {kInfinity, -1e300}}, -kInfinity},
      {{{kInfinity, 1.0}, {-kInfinity, 1.0}}, kNaN},
      {{{0.0, kInfinity}}, kNaN},
      {{{0x1p-1074, kInfinity}}, kInfinity},
      {{{kNaN, 0.0}, {1.0, 1.0}}, kNaN},
      {{{kMost, kMost}, {-kInfinity, 1.0}}, -kInfinity},
  };
  for (const auto& [terms, expected] : cases) {
    std::vector<Pair> reversed(terms.rbegin(), terms.rend());
    for (const auto& order : {terms, reversed}) {
      KulischAccumulator sum = Accumulate(order);
      sum.AddProduct(3.0, 4.0);
      EXPECT_FALSE(sum.IsFinite());
      EXPECT_EQ(std::isnan(sum.Round()), std::isnan(expected));
      if (!std::isnan(expected)) {
        EXPECT_EQ(sum.Round(), expected);
      }
      EXPECT_EQ(sum.RoundToPair().second, 0.0);
      EXPECT_EQ(sum, Accumulate(terms));
      EXPECT_FALSE(sum == KulischAccumulator());
      KulischAccumulator merged;
      merged.Merge(sum);
      EXPECT_EQ(merged, sum);
    }
  }
  KulischAccumulator plus;
  plus.Add(kInfinity);
  KulischAccumulator minus;
  minus.Add(-kInfinity);
  EXPECT_FALSE(plus == minus);
  EXPECT_EQ(plus.Sign(), 1);
  EXPECT_EQ(minus.Sign(), -1);
  plus.Merge(minus);
  EXPECT_EQ(plus.Sign(), 0);
}

TEST(Kulisch, RoundsOnceToANarrowType) {
  KulischAccumulator sum;
  sum.Add(1 + 0x1p-11);
  EXPECT_EQ(sum.RoundTo(DType::kFloat16), 1.0);
  sum.AddProduct(0x1p-600, 0x1p-600);  // past the midpoint by less than a double can say
  EXPECT_EQ(sum.Round(), 1 + 0x1p-11);
  EXPECT_EQ(sum.RoundTo(DType::kFloat16), 1 + 0x1p-10);
  EXPECT_EQ(sum.RoundTo(DType::kFloat16, {.rounding = Rounding::kTowardZero}), 1.0);
  sum.AddProduct(-0x1p-600, 0x1p-599);
  EXPECT_EQ(sum.RoundTo(DType::kFloat16), 1.0);
  EXPECT_EQ(sum.RoundTo(DType::kFloat64), 1 + 0x1p-11);
  EXPECT_EQ(sum.RoundTo(DType::kFloat64, {.rounding = Rounding::kTowardZero}),
            std::nextafter(1 + 0x1p-11, 0.0));
  EXPECT_EQ(KulischAccumulator().RoundTo(DType::kBFloat16), 0.0);
  KulischAccumulator huge;
  huge.AddProduct(kMost, -kMost);
  EXPECT_EQ(huge.RoundTo(DType::kFloat16), -kInfinity);
  EXPECT_EQ(huge.RoundTo(DType::kFloat64, {.rounding = Rounding::kTowardZero}), -kMost);
  EXPECT_THROW(huge.RoundTo(DType::kFloat8E4M3FN, {.overflow = Overflow::kInfinity}), Error);
}

}  // namespace
}  // namespace kvcheck
