// The natural logarithm in double-double (log-sum-exp). x = 2^e m with m in [sqrt(1/2), sqrt(2)),
// log(x) = e ln2 + 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716, by the odd series of atanh.
// Since m - 1 is exact the result is relatively exact around x = 1 too. See exp-inl.h for who may
// include this.

#ifndef REFERENCE_NUMERICS_LOG_INL_H_
#define REFERENCE_NUMERICS_LOG_INL_H_

#include <cstdint>

#include "reference/numerics/double_double-inl.h"
#include "reference/numerics/exp_table-inl.h"

namespace kvcheck::inl {

// Error: s 2^-101.8 (a quotient, a sum), the series below that, its final sums and e ln2 3 u^2
// each, where e ln2 is at least twice the other summand: less than 2^-100.
KVCHECK_INLINE DoubleDouble LogDD(DoubleDouble x) {
  // Small arguments are scaled by 2^200, which keeps both words and the exponent arithmetic normal.
  const bool small = x.hi < 0x1p-800;
  const DoubleDouble scaled = TimesPowerOfTwo(x, small ? 0x1p200 : 1.0);
  const uint64_t bits = __builtin_bit_cast(uint64_t, scaled.hi);
  constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  // e + 1023, positive for every normal number.
  const uint64_t biased = (bits - kSqrtHalfBits + (uint64_t{1023} << 52)) >> 52;
  const uint64_t exponent_bits = (biased - 1023) << 52;  // modulo 2^64
  // 2^-e in two halves: e may be 1024, whose inverse is subnormal.
  const uint64_t negated = 2048 - (biased - 1023);
  const uint64_t half = negated >> 1;
  const double first = __builtin_bit_cast(double, (half - 1) << 52);
  const double second = __builtin_bit_cast(double, (negated - half - 1) << 52);
  const double m_hi = __builtin_bit_cast(double, bits - exponent_bits);
  const double m_lo = (scaled.lo * first) * second;

  const DoubleDouble f = TwoSum(m_hi - 1.0, m_lo);
  const DoubleDouble s = f / (2.0 + f);
  const DoubleDouble square = s * s;
  // Terms from s^20/21 on are below 2^-55 of the sum and fit a double.
  double tail = kInverseOddHi[20];
  for (int n = 19; n >= 10; --n) tail = std::fma(square.hi, tail, kInverseOddHi[n]);
  DoubleDouble sum = FromDouble(tail);
  for (int n = 9; n >= 1; --n) {
    sum = DoubleDouble{kInverseOddHi[n], kInverseOddLo[n]} + square * sum;
  }
  const DoubleDouble twice = TimesPowerOfTwo(s, 2.0);
  const DoubleDouble log_m = twice + twice * (square * sum);

  const double exponent =
      static_cast<double>(static_cast<int64_t>(biased) - 1023 - (small ? 200 : 0));
  const DoubleDouble exponent_part =
      FromDouble(exponent * kLn2Head) + DoubleDouble{kLn2TailHi, kLn2TailLo} * exponent;
  const DoubleDouble result = exponent_part + log_m;

  const bool regular = (x.hi > 0.0) & (x.hi <= __DBL_MAX__);
  const double special = x.hi == 0.0 ? -__builtin_inf() : (x.hi < 0.0 ? __builtin_nan("") : x.hi);
  return {regular ? result.hi : special, regular ? result.lo : 0.0};
}

}  // namespace kvcheck::inl

#endif  // REFERENCE_NUMERICS_LOG_INL_H_
