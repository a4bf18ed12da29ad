// The arithmetic of double_double.h, which says what may include it and how exact it is.
// Branch-free (comparisons select, they do not jump), so loops over arrays of hi and lo vectorise
// wherever the target has a fused multiply-add. Only built-ins and std::fma are called: an inline
// function of the standard library would have external linkage.
//
// Domain: finite operands. A result that is not finite, or an operand that is not, gives an
// infinite or NaN hi and an unspecified lo, never a finite hi.

#ifndef REFERENCE_NUMERICS_DOUBLE_DOUBLE_INL_H_
#define REFERENCE_NUMERICS_DOUBLE_DOUBLE_INL_H_

#include <cmath>
#include <cstdint>

#include "reference/numerics/double_double.h"

#define KVCHECK_INLINE [[maybe_unused]] [[gnu::always_inline]] static inline

namespace kvcheck {

// condition ? a : b by masking. A compiler may turn the conditional operator into a jump and
// compute the constant side of it apart, after which the loop around it does not vectorise.
KVCHECK_INLINE double Select(bool condition, double a, double b) {
  const uint64_t mask = -static_cast<uint64_t>(condition);
  return __builtin_bit_cast(
      double, (__builtin_bit_cast(uint64_t, a) & mask) | (__builtin_bit_cast(uint64_t, b) & ~mask));
}

// a + b = hi + lo exactly, for any order of magnitudes. Source: Knuth, TAOCP 2, 4.2.2.
KVCHECK_INLINE DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double a_part = sum - b_part;
  return {sum, (a - a_part) + (b - b_part)};
}

// a + b = hi + lo exactly, where |a| >= |b| or a is a multiple of ulp(b). Source: Dekker 1971.
KVCHECK_INLINE DoubleDouble FastTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// a * b = hi + lo exactly, unless lo underflows (|a b| < 2^-968), which costs 2^-1075 at most.
KVCHECK_INLINE DoubleDouble TwoProd(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

KVCHECK_INLINE DoubleDouble FromDouble(double x) { return {x, 0.0}; }

// The double nearest to the value: hi, because |lo| <= ulp(hi) / 2.
KVCHECK_INLINE double ToDouble(DoubleDouble x) { return x.hi; }

KVCHECK_INLINE DoubleDouble operator-(DoubleDouble x) { return {-x.hi, -x.lo}; }

KVCHECK_INLINE DoubleDouble operator+(DoubleDouble x, DoubleDouble y) {
  const DoubleDouble high = TwoSum(x.hi, y.hi);
  const DoubleDouble low = TwoSum(x.lo, y.lo);
  const DoubleDouble head = FastTwoSum(high.hi, high.lo + low.hi);
  return FastTwoSum(head.hi, low.lo + head.lo);
}

// Relative error at most 2 u^2.
KVCHECK_INLINE DoubleDouble operator+(DoubleDouble x, double y) {
  const DoubleDouble high = TwoSum(x.hi, y);
  return FastTwoSum(high.hi, x.lo + high.lo);
}

KVCHECK_INLINE DoubleDouble operator+(double x, DoubleDouble y) { return y + x; }

KVCHECK_INLINE DoubleDouble operator-(DoubleDouble x, DoubleDouble y) { return x + (-y); }

KVCHECK_INLINE DoubleDouble operator-(DoubleDouble x, double y) { return x + (-y); }

KVCHECK_INLINE DoubleDouble operator-(double x, DoubleDouble y) { return (-y) + x; }

KVCHECK_INLINE DoubleDouble operator*(DoubleDouble x, DoubleDouble y) {
  const DoubleDouble high = TwoProd(x.hi, y.hi);
  const double cross = std::fma(x.lo, y.hi, std::fma(x.hi, y.lo, x.lo * y.lo));
  return FastTwoSum(high.hi, high.lo + cross);
}

// Relative error at most 2 u^2.
KVCHECK_INLINE DoubleDouble operator*(DoubleDouble x, double y) {
  const DoubleDouble high = TwoProd(x.hi, y);
  return FastTwoSum(high.hi, std::fma(x.lo, y, high.lo));
}

KVCHECK_INLINE DoubleDouble operator*(double x, DoubleDouble y) { return y * x; }

KVCHECK_INLINE DoubleDouble operator/(DoubleDouble x, DoubleDouble y) {
  const double quotient = x.hi / y.hi;
  const DoubleDouble high = TwoProd(y.hi, quotient);
  const DoubleDouble sum = FastTwoSum(high.hi, y.lo * quotient);
  const DoubleDouble product = FastTwoSum(sum.hi, sum.lo + high.lo);
  const double remainder = (x.hi - product.hi) + (x.lo - product.lo);
  return FastTwoSum(quotient, remainder / y.hi);
}

KVCHECK_INLINE DoubleDouble operator/(DoubleDouble x, double y) { return x / FromDouble(y); }

KVCHECK_INLINE DoubleDouble operator/(double x, DoubleDouble y) { return FromDouble(x) / y; }

KVCHECK_INLINE DoubleDouble& operator+=(DoubleDouble& x, DoubleDouble y) { return x = x + y; }
KVCHECK_INLINE DoubleDouble& operator-=(DoubleDouble& x, DoubleDouble y) { return x = x - y; }
KVCHECK_INLINE DoubleDouble& operator*=(DoubleDouble& x, DoubleDouble y) { return x = x * y; }
KVCHECK_INLINE DoubleDouble& operator/=(DoubleDouble& x, DoubleDouble y) { return x = x / y; }

// sum + a * b for doubles: the step of a dot product, one TwoProd and one TwoSum. The result is not
// normalised (hi is the running sum in double, lo the sum of all that it lost); Normalize() ends
// the chain. n steps from zero err by at most gamma_n(u)^2 times the sum of |a b|, u = 2^-53.
// Source: Ogita, Rump, Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26(6), 2005.
KVCHECK_INLINE DoubleDouble AddProduct(DoubleDouble sum, double a, double b) {
  const DoubleDouble product = TwoProd(a, b);
  const DoubleDouble high = TwoSum(sum.hi, product.hi);
  return {high.hi, sum.lo + (high.lo + product.lo)};
}

// The pair of the same value with |lo| <= ulp(hi) / 2.
KVCHECK_INLINE DoubleDouble Normalize(DoubleDouble x) { return TwoSum(x.hi, x.lo); }

// x * factor, exact unless a part overflows or underflows. factor: a power of two.
KVCHECK_INLINE DoubleDouble TimesPowerOfTwo(DoubleDouble x, double factor) {
  return {x.hi * factor, x.lo * factor};
}

KVCHECK_INLINE bool operator==(DoubleDouble x, DoubleDouble y) {
  return (x.hi == y.hi) & (x.lo == y.lo);
}
KVCHECK_INLINE bool operator!=(DoubleDouble x, DoubleDouble y) { return !(x == y); }
KVCHECK_INLINE bool operator<(DoubleDouble x, DoubleDouble y) {
  return (x.hi < y.hi) | ((x.hi == y.hi) & (x.lo < y.lo));
}
KVCHECK_INLINE bool operator>(DoubleDouble x, DoubleDouble y) { return y < x; }
KVCHECK_INLINE bool operator<=(DoubleDouble x, DoubleDouble y) {
  return (x.hi < y.hi) | ((x.hi == y.hi) & (x.lo <= y.lo));
}
KVCHECK_INLINE bool operator>=(DoubleDouble x, DoubleDouble y) { return y <= x; }

KVCHECK_INLINE DoubleDouble Abs(DoubleDouble x) {
  const bool negative = x.hi < 0.0;
  return {__builtin_fabs(x.hi), Select(negative, -x.lo, x.lo)};
}

// The larger; the first where they are equal or not comparable.
KVCHECK_INLINE DoubleDouble Max(DoubleDouble x, DoubleDouble y) {
  const bool second = x < y;
  return {Select(second, y.hi, x.hi), Select(second, y.lo, x.lo)};
}

// False for an infinite or NaN hi, and for a lo which such an operand has spoilt.
KVCHECK_INLINE bool IsFinite(DoubleDouble x) {
  return (__builtin_fabs(x.hi) <= __DBL_MAX__) & (__builtin_fabs(x.lo) <= __DBL_MAX__);
}

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_DOUBLE_DOUBLE_INL_H_
