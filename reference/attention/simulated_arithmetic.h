// Float arithmetic with explicit rounding, for simulated kernels: every operation is done in double
// and rounded once to the type. Adding, multiplying and dividing two values of at most 24 bits in
// double and rounding again gives the correctly rounded result; a fused multiply-add, and rounding
// toward zero, go through round-to-odd so that the second rounding sees what the first one lost.

#ifndef REFERENCE_ATTENTION_SIMULATED_ARITHMETIC_H_
#define REFERENCE_ATTENTION_SIMULATED_ARITHMETIC_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/numerics/double_double.h"
#include "reference/numerics/fast_round.h"

namespace kvcheck::simulated {

// hi + lo rounded to odd: the double next to the exact value whose last bit is 1, unless exact.
inline double RoundToOdd(DoubleDouble exact) {
  const auto bits = std::bit_cast<uint64_t>(exact.hi);
  if (exact.lo == 0 || (bits & 1) != 0 || !std::isfinite(exact.hi)) return exact.hi;
  const bool away = (exact.lo > 0) == (exact.hi > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

struct RoundF64 {
  static constexpr bool kTowardZero = false;
  static double Round(double x) { return x; }
  static double Fma(double a, double b, double c) { return std::fma(a, b, c); }
  static constexpr double kSmallestNormal = 0x1p-1022;
};

template <typename Narrow, bool kTruncate>
struct RoundNarrow {
  static constexpr bool kTowardZero = kTruncate;
  static constexpr double kSmallestNormal = Narrow::kSmallestNormal;
  static double Round(double x) { return kTruncate ? Narrow::TowardZero(x) : Narrow::Nearest(x); }
  static double Fma(double a, double b, double c) {
    // Products of values of at most 26 bits are exact.
    return Round(RoundToOdd(TwoSum(a * b, c)));
  }
};

struct NarrowF32 {
  static constexpr double kSmallestNormal = 0x1p-126;
  static double Nearest(double x) { return RoundToF32(x); }
  static double TowardZero(double x) { return RoundTowardZeroToF32(x); }
};
struct NarrowBF16 {
  static constexpr double kSmallestNormal = 0x1p-126;
  static double Nearest(double x) { return RoundToBF16(x); }
  static double TowardZero(double x) { return RoundTowardZeroToBF16(x); }
};
struct NarrowF16 {
  static constexpr double kSmallestNormal = 0x1p-14;
  static double Nearest(double x) { return RoundToF16(x); }
  static double TowardZero(double x) { return RoundTowardZeroToF16(x); }
};

// The operations of a processor that rounds as R does, and flushes subnormals when kFlush.
template <typename R, bool kFlush>
struct Ops {
  static double Flush(double x) {
    return kFlush && std::fabs(x) < R::kSmallestNormal ? std::copysign(0.0, x) : x;
  }
  static double Round(double x) { return Flush(R::Round(x)); }
  static double Add(double a, double b) {
    if constexpr (R::kTowardZero) return Flush(R::Round(RoundToOdd(TwoSum(a, b))));
    return Flush(R::Round(a + b));
  }
  static double Mul(double a, double b) {
    if constexpr (R::kTowardZero) return Flush(R::Round(RoundToOdd(TwoProd(a, b))));
    return Flush(R::Round(a * b));
  }
  static double Div(double a, double b) { return Flush(R::Round(a / b)); }
  static double Fma(double a, double b, double c) { return Flush(R::Fma(a, b, c)); }
};

}  // namespace kvcheck::simulated

#endif  // REFERENCE_ATTENTION_SIMULATED_ARITHMETIC_H_
