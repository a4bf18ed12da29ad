// The exponential function in double and in double-double, of our own because that of the C library
// differs between machines. The argument is split as x = k ln2/128 + r with |r| <= ln2/256, so that
// exp(x) = 2^e T (1 + p) with T = 2^(j/128) from a table, k = 128 e + j, and p = exp(r) - 1 a
// polynomial. 2^e is multiplied in two halves, each a normal double, so that the only rounding of a
// subnormal result is that of the last multiplication, and no exponent field ever wraps.
//
// Branch-free; loops over arrays vectorise. The double function uses no fused multiply-add and the
// double-double one only std::fma, so the bits are the same on every machine. May be included by
// translation units built for different instruction sets (see double_double.h); exp.h declares the
// same functions out of line, and states their errors.

#ifndef REFERENCE_NUMERICS_EXP_INL_H_
#define REFERENCE_NUMERICS_EXP_INL_H_

#include <cstdint>

#include "reference/numerics/double_double-inl.h"
#include "reference/numerics/exp_table-inl.h"

namespace kvcheck::inl {

// Beyond -746 every result rounds to 0 (2^-1075 = exp(-745.13...)) and beyond 746 to infinity
// (2^1024 = exp(709.78...)).
static constexpr double kExpArgumentMax = 746.0;

// k = round(x 128 / ln2) as index and exponent: k = 128 (biased_exponent - 2048) + index.
struct ExpIndex {
  double k;
  uint64_t index;            // 0..127
  uint64_t biased_exponent;  // 2048 + floor(k / 128)
};

// x: |x| within the limit above, or NaN (which gives some index, within the table).
KVCHECK_INLINE ExpIndex SplitExpArgument(double x) {
  // Adding 1.5 * 2^52 leaves an integer in the low bits of the significand; the added 2^18 makes it
  // positive, so that no arithmetic shift is needed (AVX2 has none for 64 bits).
  constexpr double kShift = 0x1.8p52 + 0x1p18;
  const double shifted = x * kInverseStep + kShift;
  const uint64_t bits = __builtin_bit_cast(uint64_t, shifted) & 0xfffff;
  return {shifted - kShift, bits & 127, bits >> 7};
}

// Two doubles whose product is 2^e, e in [-1077, 1076].
struct ScaleFactors {
  double first;
  double second;
};

KVCHECK_INLINE ScaleFactors HalfScales(uint64_t biased_exponent) {
  const uint64_t half = biased_exponent >> 1;
  return {__builtin_bit_cast(double, (half - 1) << 52),
          __builtin_bit_cast(double, (biased_exponent - half - 1) << 52)};
}

// Error: rounding of the last sum u = 2^-53, relative; below it the table's low word, the product
// T p (|p| <= 2^-8.5: 2^-61), and the polynomial's truncation r^7/7! < 2^-72: less than 1.02 u in
// all, and 2^-1075 for a subnormal result.
KVCHECK_INLINE double ExpDouble(double x) {
  const double magnitude = __builtin_fabs(x);
  const double clamped =
      __builtin_copysign(Select(magnitude > kExpArgumentMax, kExpArgumentMax, magnitude), x);
  const ExpIndex split = SplitExpArgument(clamped);
  // The first difference is exact (Sterbenz).
  const double r = (clamped - split.k * kStep1) - split.k * kStep2Full;
  const double tail =
      kInverseFactorialHi[3] +
      r * (kInverseFactorialHi[4] + r * (kInverseFactorialHi[5] + r * kInverseFactorialHi[6]));
  const double p = r + (r * r) * (0.5 + r * tail);
  const double power = kExp2Hi[split.index];
  const double result = power + (kExp2Lo[split.index] + power * p);
  const ScaleFactors scale = HalfScales(split.biased_exponent);
  return (result * scale.first) * scale.second;
}

// c + r * x in double-double, for |c| >= 2 |r x|; c = 1/n!.
template <int kN>
KVCHECK_INLINE DoubleDouble HornerStep(DoubleDouble r, DoubleDouble x) {
  const DoubleDouble product = TwoProd(r.hi, x.hi);
  const double low = std::fma(r.hi, x.lo, std::fma(r.lo, x.hi, product.lo));
  const DoubleDouble sum = FastTwoSum(kInverseFactorialHi[kN], product.hi);
  return {sum.hi, sum.lo + (low + kInverseFactorialLo[kN])};
}

// The parts of exp(x) in double-double: 2^e T (1 + p).
struct ExpParts {
  DoubleDouble p;  // relative error < 2^-103
  DoubleDouble power;
  uint64_t biased_exponent;
};

// x: hi within the limits, or NaN.
KVCHECK_INLINE ExpParts ExpInParts(DoubleDouble x) {
  const ExpIndex split = SplitExpArgument(x.hi);
  // r = x - k ln2/128, absolute error below 2^-111: the first difference is exact, so are the two
  // sums, and the last correction is below 2^-59.
  const DoubleDouble first = TwoSum(x.hi - split.k * kStep1, -(split.k * kStep2));
  const DoubleDouble second = TwoSum(first.hi, x.lo);
  const DoubleDouble r = FastTwoSum(second.hi, (first.lo + second.lo) - split.k * kStep3);
  // p = r + r^2/2 + ... + r^10/10!. A term needs as many bits as its distance to 2^-106: those from
  // r^6 on are below 2^-60 and fit a double.
  const double t = r.hi;
  double tail = std::fma(t, kInverseFactorialHi[10], kInverseFactorialHi[9]);
  tail = std::fma(t, tail, kInverseFactorialHi[8]);
  tail = std::fma(t, tail, kInverseFactorialHi[7]);
  tail = std::fma(t, tail, kInverseFactorialHi[6]);
  DoubleDouble sum = FastTwoSum(kInverseFactorialHi[5], std::fma(t, tail, kInverseFactorialLo[5]));
  sum = HornerStep<4>(r, sum);
  sum = HornerStep<3>(r, sum);
  sum = HornerStep<2>(r, sum);
  const DoubleDouble square_term = r * (r * sum);
  const DoubleDouble head = FastTwoSum(r.hi, square_term.hi);
  const DoubleDouble p = FastTwoSum(head.hi, head.lo + (r.lo + square_term.lo));
  return {p, {kExp2Hi[split.index], kExp2Lo[split.index]}, split.biased_exponent};
}

// T p, the product of the parts: relative error < 2^-102 of a value below 2^-7.5.
KVCHECK_INLINE DoubleDouble PowerTimesP(DoubleDouble power, DoubleDouble p) {
  const DoubleDouble product = TwoProd(power.hi, p.hi);
  return {product.hi, std::fma(power.hi, p.lo, std::fma(power.lo, p.hi, product.lo))};
}

// Error, relative to a result T (1 + p) >= 0.997: the sum of low words 2^-106 + 2^-107, the table
// 2^-107, reduction, polynomial and product below 2^-110: less than 2^-104 in all, and 2^-1075 for
// each word which is subnormal.
KVCHECK_INLINE DoubleDouble ExpDD(DoubleDouble x) {
  const double magnitude = __builtin_fabs(x.hi);
  const bool beyond = magnitude > kExpArgumentMax;
  const double clamped = __builtin_copysign(Select(beyond, kExpArgumentMax, magnitude), x.hi);
  // The low word of an infinite argument may be NaN.
  const double clamped_low = Select(beyond, 0.0, x.lo);
  const ExpParts parts = ExpInParts({clamped, clamped_low});
  const DoubleDouble product = PowerTimesP(parts.power, parts.p);
  const DoubleDouble head = FastTwoSum(parts.power.hi, product.hi);
  const DoubleDouble result = FastTwoSum(head.hi, head.lo + (parts.power.lo + product.lo));
  const ScaleFactors scale = HalfScales(parts.biased_exponent);
  const double hi = (result.hi * scale.first) * scale.second;
  const double lo = (result.lo * scale.first) * scale.second;
  return {hi, Select(hi <= __DBL_MAX__, lo, 0.0)};
}

}  // namespace kvcheck::inl

#endif  // REFERENCE_NUMERICS_EXP_INL_H_
