#include "reference/numerics/ulp.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

struct SplitCode {
  uint64_t magnitude;
  bool negative;
};

uint64_t SignBit(DType dtype) {
  return FloatTypeOf(dtype).is_signed ? uint64_t{1} << (CodeBits(dtype) - 1) : 0;
}

SplitCode Split(DType dtype, uint64_t code) {
  const uint64_t sign = SignBit(dtype);
  const uint64_t used = ~uint64_t{0} >> (64 - CodeBits(dtype));
  return {code & used & ~sign, (code & sign) != 0};
}

// The code of the last value of the line: infinity, or the largest finite value.
uint64_t LastMagnitude(DType dtype) {
  const double last = FloatTypeOf(dtype).has_infinity ? std::numeric_limits<double>::infinity()
                                                      : FloatTypeOf(dtype).largest_finite;
  return Encode(dtype, last);
}

// One step away from zero, or towards it.
uint64_t Step(DType dtype, uint64_t code, bool up) {
  const SplitCode split = Split(dtype, code);
  const uint64_t sign = split.negative ? SignBit(dtype) : 0;
  if (std::isnan(Decode(dtype, code))) return code;
  if (split.magnitude == 0 && FloatTypeOf(dtype).is_signed) {
    return 1 | (up ? 0 : SignBit(dtype));
  }
  if (split.negative != up) {
    return sign | std::min(split.magnitude + 1, LastMagnitude(dtype));
  }
  return split.magnitude == 0 ? code : sign | (split.magnitude - 1);
}

}  // namespace

std::optional<int64_t> UlpDistance(DType dtype, uint64_t from, uint64_t to) {
  if (std::isnan(Decode(dtype, from)) || std::isnan(Decode(dtype, to))) return std::nullopt;
  const SplitCode a = Split(dtype, from);
  const SplitCode b = Split(dtype, to);
  // Magnitudes are below 2^63, so only the sum of two of opposite sign can leave int64.
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (a.negative == b.negative) {
    const int64_t outward = static_cast<int64_t>(b.magnitude) - static_cast<int64_t>(a.magnitude);
    return a.negative ? -outward : outward;
  }
  const int64_t apart = static_cast<int64_t>(std::min(a.magnitude + b.magnitude, kMost));
  return a.negative ? apart : -apart;
}

TypeSpacing::TypeSpacing(DType dtype)
    : last_place_(std::ldexp(1.0, -FloatTypeOf(dtype).mantissa_bits)),
      smallest_normal_(FloatTypeOf(dtype).smallest_normal),
      largest_(FloatTypeOf(dtype).largest_finite) {}

double SpacingAt(DType dtype, double y) { return TypeSpacing(dtype).At(y); }

uint64_t NextUp(DType dtype, uint64_t code) { return Step(dtype, code, true); }
uint64_t NextDown(DType dtype, uint64_t code) { return Step(dtype, code, false); }

}  // namespace kvcheck
