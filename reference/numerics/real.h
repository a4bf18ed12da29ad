// One vocabulary over the four number types of the precision ladder, so that a definition is
// written once, as a template over Real in {double, DoubleDouble, Oracle50, Oracle100}:
//
//   template <class Real> Real LogSumExp(...) { ... Exp(x - max) ... Log(sum) ... }
//
// with + - * /, comparisons, Exp, Log, Tanh, Abs, Max, FromPair and ToPair; and the error constants
// of a type, from which a definition derives its own error bound. Constants are written
// FromDouble<Real>(0.5). Templates instantiated over it must be compiled for the baseline
// instruction set only; code for other sets includes the -inl.h files.

#ifndef REFERENCE_NUMERICS_REAL_H_
#define REFERENCE_NUMERICS_REAL_H_

#include <concepts>

#include "reference/numerics/double_double.h"
#include "reference/numerics/exp.h"
#include "reference/numerics/oracle.h"

namespace kvcheck {

template <class T>
concept RealNumber = std::same_as<T, double> || std::same_as<T, DoubleDouble> ||
                     std::same_as<T, Oracle50> || std::same_as<T, Oracle100>;

// Relative error of one operation + - * /, for results that are neither subnormal nor infinite.
template <RealNumber Real>
inline constexpr double kUnitRoundoff = 0x1p-53;
template <>
inline constexpr double kUnitRoundoff<DoubleDouble> = 0x1p-102;
template <>
inline constexpr double kUnitRoundoff<Oracle50> = 0x1p-167;
template <>
inline constexpr double kUnitRoundoff<Oracle100> = 0x1p-333;

// |Exp(x) - exp(x)| <= kExpError * exp(x) + kExpFloor. The oracles' exponent has 32 bits: no floor.
template <RealNumber Real>
inline constexpr double kExpError = kExpDoubleError;
template <>
inline constexpr double kExpError<DoubleDouble> = kExpDDError;
template <>
inline constexpr double kExpError<Oracle50> = 0x1p-156;
template <>
inline constexpr double kExpError<Oracle100> = 0x1p-322;

template <RealNumber Real>
inline constexpr double kExpFloor = 0.0;
template <>
inline constexpr double kExpFloor<double> = kExpDoubleFloor;
template <>
inline constexpr double kExpFloor<DoubleDouble> = kExpDDFloor;

// |Log(x) - log(x)| <= kLogError * |log(x)|.
template <RealNumber Real>
inline constexpr double kLogError = kExpError<Real>;
template <>
inline constexpr double kLogError<double> = kLogDoubleError;
template <>
inline constexpr double kLogError<DoubleDouble> = kLogDDError;

// |Tanh(x) - tanh(x)| <= kTanhError * |tanh(x)| + kTanhFloor.
template <RealNumber Real>
inline constexpr double kTanhError = kExpError<Real>;
template <>
inline constexpr double kTanhError<double> = kTanhDoubleError;
template <>
inline constexpr double kTanhError<DoubleDouble> = kTanhDDError;

template <RealNumber Real>
inline constexpr double kTanhFloor = 0.0;
template <>
inline constexpr double kTanhFloor<double> = kTanhDoubleFloor;
template <>
inline constexpr double kTanhFloor<DoubleDouble> = kTanhDDFloor;

inline double Exp(double x) { return ExpDouble(x); }
inline double Log(double x) { return LogDouble(x); }
inline double Tanh(double x) { return TanhDouble(x); }
inline double Abs(double x) { return __builtin_fabs(x); }
// The larger; the first where they are equal or not comparable.
inline double Max(double x, double y) { return x < y ? y : x; }

inline DoubleDouble Exp(DoubleDouble x) { return ExpDD(x); }
inline DoubleDouble Log(DoubleDouble x) { return LogDD(x); }
inline DoubleDouble Tanh(DoubleDouble x) { return TanhDD(x); }

// hi + lo, rounded once to Real (exactly, but for double).
template <RealNumber Real>
Real FromPair(double hi, double lo) {
  if constexpr (std::same_as<Real, double>) {
    return hi + lo;
  } else if constexpr (std::same_as<Real, DoubleDouble>) {
    return TwoSum(hi, lo);
  } else {
    return Real(DoubleDouble{hi, lo});
  }
}

template <RealNumber Real>
Real FromDouble(double x) {
  return FromPair<Real>(x, 0.0);
}

inline DoubleDouble ToPair(double x) { return {x, 0.0}; }
inline DoubleDouble ToPair(DoubleDouble x) { return x; }
template <int kDigits>
DoubleDouble ToPair(const Oracle<kDigits>& x) {
  return x.ToPair();
}

// The nearest double.
inline double ToDouble(double x) { return x; }
template <int kDigits>
double ToDouble(const Oracle<kDigits>& x) {
  return x.ToDouble();
}

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_REAL_H_
