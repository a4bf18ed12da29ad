// Numbers of 50 and 100 decimal digits, which check everything that is computed with fewer: the
// 50-digit ones re-check samples of the double-double reference, the 100-digit ones check the
// 50-digit ones. The value type hides Boost.Multiprecision: its headers are included by the sources
// of this class only, since they cost seconds in every translation unit.
//
// Exponents have 32 bits, so nothing that fits a double overflows or underflows here.

#ifndef REFERENCE_NUMERICS_ORACLE_H_
#define REFERENCE_NUMERICS_ORACLE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "reference/numerics/double_double.h"

namespace kvcheck {

// A binary floating-point number with at least kDigits decimal digits, 50 or 100. Behaves as a
// double does: infinities and NaN come out of and go into operations.
template <int kDigits>
class Oracle {
  static_assert(kDigits == 50 || kDigits == 100);

 public:
  // Bits of the significand; an operation errs by at most 2^-kSignificandBits, relatively.
  static constexpr int kSignificandBits = kDigits == 50 ? 168 : 334;

  Oracle() : Oracle(0.0) {}
  Oracle(double value);                 // exact; implicit, so that constants need no clothing
  explicit Oracle(DoubleDouble value);  // exact where |value.lo| >= 2^-100 |value.hi| or is 0
  Oracle(const Oracle& other);
  Oracle& operator=(const Oracle& other);
  ~Oracle() = default;

  friend Oracle operator+(const Oracle& x, const Oracle& y) { return Add(x, y); }
  friend Oracle operator-(const Oracle& x, const Oracle& y) { return Subtract(x, y); }
  friend Oracle operator*(const Oracle& x, const Oracle& y) { return Multiply(x, y); }
  friend Oracle operator/(const Oracle& x, const Oracle& y) { return Divide(x, y); }
  friend Oracle operator-(const Oracle& x) { return Negate(x); }
  friend bool operator==(const Oracle& x, const Oracle& y) { return Equal(x, y); }
  friend bool operator<(const Oracle& x, const Oracle& y) { return Less(x, y); }
  friend bool operator>(const Oracle& x, const Oracle& y) { return Less(y, x); }
  friend bool operator<=(const Oracle& x, const Oracle& y) { return Less(x, y) || Equal(x, y); }
  friend bool operator>=(const Oracle& x, const Oracle& y) { return Less(y, x) || Equal(x, y); }
  Oracle& operator+=(const Oracle& y) { return *this = Add(*this, y); }
  Oracle& operator-=(const Oracle& y) { return *this = Subtract(*this, y); }
  Oracle& operator*=(const Oracle& y) { return *this = Multiply(*this, y); }
  Oracle& operator/=(const Oracle& y) { return *this = Divide(*this, y); }

  // Relative errors are below 2^-kSignificandBits times 2^12 for Exp, Log and Tanh (the reduction
  // of an argument up to 1000 costs ten bits), in a domain of all arguments which a double holds.
  friend Oracle Abs(const Oracle& x) { return Absolute(x); }
  friend Oracle Exp(const Oracle& x) { return Exponential(x); }
  friend Oracle Log(const Oracle& x) { return Logarithm(x); }
  friend Oracle Tanh(const Oracle& x) { return HyperbolicTangent(x); }
  friend Oracle Sqrt(const Oracle& x) { return SquareRoot(x); }
  friend Oracle Max(const Oracle& x, const Oracle& y) { return Less(x, y) ? y : x; }

  // The nearest double, ties to even, subnormals and overflow included.
  double ToDouble() const;

  // hi is the nearest double, lo the double nearest to the rest.
  DoubleDouble ToPair() const;

  bool IsNan() const;

  // Decimal text, e.g. "-1.25e-310", "inf", "nan".
  // Errors: kParse for anything else, an exponent of more than six digits included.
  static Oracle FromString(std::string_view text);

  // Scientific notation with that many significant digits; 0 for all that are needed to read the
  // same value back.
  std::string ToString(int digits = 0) const;

 private:
  struct Access;  // the one name that knows the Boost type

  static Oracle Add(const Oracle& x, const Oracle& y);
  static Oracle Subtract(const Oracle& x, const Oracle& y);
  static Oracle Multiply(const Oracle& x, const Oracle& y);
  static Oracle Divide(const Oracle& x, const Oracle& y);
  static Oracle Negate(const Oracle& x);
  static Oracle Absolute(const Oracle& x);
  static Oracle Exponential(const Oracle& x);
  static Oracle Logarithm(const Oracle& x);
  static Oracle HyperbolicTangent(const Oracle& x);
  static Oracle SquareRoot(const Oracle& x);
  static bool Equal(const Oracle& x, const Oracle& y);
  static bool Less(const Oracle& x, const Oracle& y);

  // Holds a boost::multiprecision number; its size is checked where the class is defined.
  alignas(16) std::byte storage_[kDigits == 50 ? 64 : 80];
};

extern template class Oracle<50>;
extern template class Oracle<100>;

using Oracle50 = Oracle<50>;
using Oracle100 = Oracle<100>;

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_ORACLE_H_
