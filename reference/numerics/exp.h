// The elementary functions of the reference, out of line, and the errors which they may make. Where
// the processor has a fused multiply-add it is used; the bits are the same without. The bodies
// stand in exp-inl.h, log-inl.h and tanh-inl.h, for loops which want them inlined.
//
// Pairs go in and come out normalised (|lo| <= ulp(hi) / 2). Error statements read: |computed -
// exact| <= error * |exact| + floor, for every argument whose exact result rounds to a finite
// double.

#ifndef REFERENCE_NUMERICS_EXP_H_
#define REFERENCE_NUMERICS_EXP_H_

#include "reference/numerics/double_double.h"

namespace kvcheck {

// exp(-inf) = 0, exp(0) = 1, exp(NaN) = NaN, +inf where the result exceeds the largest double. The
// proof in exp-inl.h gives 1.02 * 2^-53.
double ExpDouble(double x);
inline constexpr double kExpDoubleError = 0x1p-52;
inline constexpr double kExpDoubleFloor = 0x1p-1074;  // 2^-1075 is no double

// As ExpDouble at the special arguments. The result is normalised.
// Below about x = -672 (result < 2^-970) the low word becomes subnormal and the floor dominates.
DoubleDouble ExpDD(DoubleDouble x);
inline constexpr double kExpDDError = 0x1p-104;
inline constexpr double kExpDDFloor = 0x1p-1074;  // 2^-1075 for each word

// log(0) = -inf, log(negative) = NaN, log(inf) = inf. Relative, around 1 as well.
DoubleDouble LogDD(DoubleDouble x);
inline constexpr double kLogDDError = 0x1p-100;

// LogDD, rounded.
double LogDouble(double x);
inline constexpr double kLogDoubleError = 0x1.000001p-53;

// Relative, for the smallest arguments as well; tanh(+-0) = +-0, tanh(+-inf) = +-1.
double TanhDouble(double x);
inline constexpr double kTanhDoubleError = 0x1p-50;
inline constexpr double kTanhDoubleFloor = 0x1p-1073;

DoubleDouble TanhDD(DoubleDouble x);
inline constexpr double kTanhDDError = 0x1p-98;
// The division's floor (kDoubleDoubleFloor (1 + 1/2)).
inline constexpr double kTanhDDFloor = 0x1p-1072;

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_EXP_H_
