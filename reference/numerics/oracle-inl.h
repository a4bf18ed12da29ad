// The members of Oracle. Included by oracle50.cc and oracle100.cc, which instantiate them, and by
// nothing else.

#ifndef REFERENCE_NUMERICS_ORACLE_INL_H_
#define REFERENCE_NUMERICS_ORACLE_INL_H_

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>

#include "reference/numerics/oracle.h"
#include "reference/spec/error.h"

namespace kvcheck {

template <int kDigits>
struct Oracle<kDigits>::Access {
  using Number = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<kDigits>,
                                               boost::multiprecision::et_off>;
  static_assert(sizeof(Number) == sizeof(storage_));
  static_assert(alignof(Number) <= alignof(Oracle));
  static_assert(std::is_trivially_destructible_v<Number>);
  static_assert(std::numeric_limits<Number>::digits == kSignificandBits);

  static const Number& Get(const Oracle& x) {
    return *std::launder(reinterpret_cast<const Number*>(x.storage_));
  }
  static Number& Get(Oracle& x) { return *std::launder(reinterpret_cast<Number*>(x.storage_)); }
  static Oracle Make(const Number& value) {
    Oracle result;
    Get(result) = value;
    return result;
  }
};

template <int kDigits>
Oracle<kDigits>::Oracle(double value) {
  new (storage_) typename Access::Number(value);
}

template <int kDigits>
Oracle<kDigits>::Oracle(DoubleDouble value) {
  typename Access::Number sum(value.hi);
  // An infinite hi may come with any lo.
  if (std::isfinite(value.hi)) sum += typename Access::Number(value.lo);
  new (storage_) typename Access::Number(sum);
}

template <int kDigits>
Oracle<kDigits>::Oracle(const Oracle& other) {
  new (storage_) typename Access::Number(Access::Get(other));
}

template <int kDigits>
Oracle<kDigits>& Oracle<kDigits>::operator=(const Oracle& other) {
  Access::Get(*this) = Access::Get(other);
  return *this;
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Add(const Oracle& x, const Oracle& y) {
  return Access::Make(Access::Get(x) + Access::Get(y));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Subtract(const Oracle& x, const Oracle& y) {
  return Access::Make(Access::Get(x) - Access::Get(y));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Multiply(const Oracle& x, const Oracle& y) {
  return Access::Make(Access::Get(x) * Access::Get(y));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Divide(const Oracle& x, const Oracle& y) {
  return Access::Make(Access::Get(x) / Access::Get(y));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Negate(const Oracle& x) {
  return Access::Make(-Access::Get(x));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Absolute(const Oracle& x) {
  return Access::Make(abs(Access::Get(x)));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Exponential(const Oracle& x) {
  return Access::Make(exp(Access::Get(x)));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::Logarithm(const Oracle& x) {
  return Access::Make(log(Access::Get(x)));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::HyperbolicTangent(const Oracle& x) {
  return Access::Make(tanh(Access::Get(x)));
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::SquareRoot(const Oracle& x) {
  return Access::Make(sqrt(Access::Get(x)));
}

template <int kDigits>
bool Oracle<kDigits>::Equal(const Oracle& x, const Oracle& y) {
  return Access::Get(x) == Access::Get(y);
}

template <int kDigits>
bool Oracle<kDigits>::Less(const Oracle& x, const Oracle& y) {
  return Access::Get(x) < Access::Get(y);
}

template <int kDigits>
double Oracle<kDigits>::ToDouble() const {
  using Number = typename Access::Number;
  const Number& x = Access::Get(*this);
  if (!(boost::multiprecision::isfinite)(x)) {
    return (boost::multiprecision::isnan)(x) ? std::numeric_limits<double>::quiet_NaN()
                                             : (x < 0 ? -INFINITY : INFINITY);
  }
  if (x == 0) return 0.0;
  // Scaled so that an ulp of the result is 1, the value is rounded as an integer; this is one
  // rounding, in the subnormal range too.
  int exponent = 0;
  const Number fraction = frexp(abs(x), &exponent);  // in [1/2, 1)
  if (exponent > 1024) return x < 0 ? -INFINITY : INFINITY;
  const int ulp_exponent = exponent - 53 > -1074 ? exponent - 53 : -1074;
  if (exponent < ulp_exponent - 1) return x < 0 ? -0.0 : 0.0;
  const Number scaled = ldexp(fraction, exponent - ulp_exponent);
  const Number whole = floor(scaled);
  const Number rest = scaled - whole;
  auto integer = static_cast<unsigned long long>(whole);
  const Number half(0.5);
  if (rest > half || (rest == half && (integer & 1) != 0)) ++integer;
  const double magnitude = std::ldexp(static_cast<double>(integer), ulp_exponent);
  return x < 0 ? -magnitude : magnitude;
}

template <int kDigits>
DoubleDouble Oracle<kDigits>::ToPair() const {
  const double hi = ToDouble();
  if (!std::isfinite(hi)) return {hi, 0.0};
  return {hi, Subtract(*this, Oracle(hi)).ToDouble()};
}

template <int kDigits>
bool Oracle<kDigits>::IsNan() const {
  return (boost::multiprecision::isnan)(Access::Get(*this));
}

// Whether text is [+-] digits [. digits] [e [+-] digits] (at least one digit before the exponent,
// at most six in it), or [+-] inf, or nan. Boost's own parser accepts more, and some of it by
// mistake
// ("" and "1e"); the limits keep a hostile text from costing time.
inline bool IsOracleText(std::string_view text) {
  constexpr size_t kMaxLength = 4096;
  constexpr size_t kMaxExponentDigits = 6;
  if (text.size() > kMaxLength) return false;
  size_t at = 0;
  const auto skip_one_of = [&](std::string_view characters) {
    const bool found = at < text.size() && characters.find(text[at]) != std::string_view::npos;
    if (found) ++at;
    return found;
  };
  const auto skip_digits = [&] {
    const size_t begin = at;
    while (skip_one_of("0123456789")) {
    }
    return at - begin;
  };
  skip_one_of("+-");
  if (text.substr(at) == "inf" || text == "nan") return true;
  size_t digits = skip_digits();
  if (skip_one_of(".")) digits += skip_digits();
  if (digits == 0) return false;
  if (skip_one_of("eE")) {
    skip_one_of("+-");
    const size_t exponent_digits = skip_digits();
    if (exponent_digits == 0 || exponent_digits > kMaxExponentDigits) return false;
  }
  return at == text.size();
}

template <int kDigits>
Oracle<kDigits> Oracle<kDigits>::FromString(std::string_view text) {
  if (!IsOracleText(text)) {
    throw Error(ErrorCode::kParse, "not a decimal number; write it as in -1.25e-310",
                std::string(text.substr(0, 80)));
  }
  return Access::Make(typename Access::Number(std::string(text)));
}

template <int kDigits>
std::string Oracle<kDigits>::ToString(int digits) const {
  const int wanted =
      digits > 0 ? digits : std::numeric_limits<typename Access::Number>::max_digits10;
  // The stream precision counts the digits after the point.
  return Access::Get(*this).str(wanted - 1, std::ios_base::scientific);
}

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_ORACLE_INL_H_
