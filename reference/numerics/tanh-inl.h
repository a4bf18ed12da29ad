// The hyperbolic tangent (soft caps on attention scores) in double and in double-double, by
// tanh(|x|) = -m / (2 + m) with m = exp(-2|x|) - 1. From the parts of exp, m = (2^e T - 1) + 2^e T
// p has no harmful cancellation: for k = 0 the bracket is exactly 0 and m = p, which is relatively
// exact down to the smallest argument; else the bracket is at least twice as large as the second
// term. Branch-free; see exp-inl.h for who may include this.

#ifndef REFERENCE_NUMERICS_TANH_INL_H_
#define REFERENCE_NUMERICS_TANH_INL_H_

#include "reference/numerics/exp-inl.h"

namespace kvcheck::inl {

// 1 - tanh(38) = 2 exp(-76) < 2^-108: beyond it tanh is 1 to the precision of a double-double.
static constexpr double kTanhArgumentMax = 38.0;

// 2^e for e in [-1022, 1023].
KVCHECK_INLINE double Scale(uint64_t biased_exponent) {
  return __builtin_bit_cast(double, (biased_exponent - 1025) << 52);
}

KVCHECK_INLINE double TanhDouble(double x) {
  const double magnitude = __builtin_fabs(x);
  const double clamped = Select(magnitude > kTanhArgumentMax, kTanhArgumentMax, magnitude);
  const double y = -2.0 * clamped;
  const ExpIndex split = SplitExpArgument(y);
  const double r = (y - split.k * kStep1) - split.k * kStep2Full;
  const double tail =
      kInverseFactorialHi[3] +
      r * (kInverseFactorialHi[4] + r * (kInverseFactorialHi[5] + r * kInverseFactorialHi[6]));
  const double p = r + (r * r) * (0.5 + r * tail);
  const double scale = Scale(split.biased_exponent);
  const double power = kExp2Hi[split.index] * scale;
  const DoubleDouble bracket = TwoSum(power, -1.0);
  const double minus_one = bracket.hi + (bracket.lo + (kExp2Lo[split.index] * scale + power * p));
  return __builtin_copysign(-minus_one / (2.0 + minus_one), x);
}

// Error: the table's 2^-107 weighs most where the bracket is smallest (k = -1: 2^-7.5, while m may
// be 2^-8.5), which gives 2^-99; sum, quotient and the division add 2^-101.
KVCHECK_INLINE DoubleDouble TanhDD(DoubleDouble x) {
  const DoubleDouble magnitude = Abs(x);
  const bool beyond = magnitude.hi > kTanhArgumentMax;
  const DoubleDouble y = {-2.0 * Select(beyond, kTanhArgumentMax, magnitude.hi),
                          -2.0 * Select(beyond, 0.0, magnitude.lo)};
  const ExpParts parts = ExpInParts(y);
  const DoubleDouble power = TimesPowerOfTwo(parts.power, Scale(parts.biased_exponent));
  const DoubleDouble minus_one = (power + -1.0) + PowerTimesP(power, parts.p);
  const DoubleDouble result = -minus_one / (2.0 + minus_one);
  const double sign = __builtin_copysign(1.0, x.hi);
  return {__builtin_copysign(result.hi, x.hi), result.lo * sign};
}

}  // namespace kvcheck::inl

#endif  // REFERENCE_NUMERICS_TANH_INL_H_
