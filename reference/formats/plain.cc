#include "reference/formats/plain.h"

#include <algorithm>
#include <cmath>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {

ConvertRule StoreRule(DType dtype, const Profile& profile) {
  ConvertRule rule;
  if (dtype != DType::kFloat8E4M3FN && dtype != DType::kFloat8E5M2) return rule;
  switch (profile.fp8_overflow) {
    case Fp8Overflow::kNan:
      rule.overflow = Overflow::kDefault;
      break;
    case Fp8Overflow::kSaturate:
      rule.overflow = Overflow::kSaturate;
      break;
    case Fp8Overflow::kSaturateAll:
      rule.overflow = Overflow::kSaturateAll;
      break;
  }
  return rule;
}

double PlainRoundTrip(DType stored, DType read, const Profile& profile, double x) {
  return RoundTo(read, RoundTo(stored, x, StoreRule(stored, profile)));
}

bool Holds(DType outer, DType inner) {
  const FloatType& out = FloatTypeOf(outer);
  const FloatType& in = FloatTypeOf(inner);
  return out.mantissa_bits >= in.mantissa_bits && out.largest_finite >= in.largest_finite &&
         out.smallest_subnormal <= in.smallest_subnormal;
}

double HalfSpacing(DType dtype, double x) {
  const FloatType& type = FloatTypeOf(dtype);
  const int lowest = std::ilogb(type.smallest_normal);
  const int exponent = x == 0 ? lowest : std::max(std::ilogb(x), lowest);
  return std::ldexp(1.0, exponent - type.mantissa_bits - 1);
}

double OverflowThreshold(DType dtype) {
  const double largest = FloatTypeOf(dtype).largest_finite;
  // Infinite for f64, whose threshold is no double.
  return largest + HalfSpacing(dtype, largest);
}

}  // namespace kvcheck
