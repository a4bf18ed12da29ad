#include "reference/formats/scaled_codes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvcheck {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// value = 2^(e - bias) (1 + m 2^-mantissa_bits), and below 2^(1 - bias) a multiple of the spacing
// there.
struct Grid {
  int mantissa_bits;
  int bias;
  int lowest_exponent() const { return 1 - bias; }
};

Grid FieldsOf(ScaledCode code) {
  switch (code) {
    case ScaledCode::kE4M3FN:
      return {3, 7};
    case ScaledCode::kE5M2:
      return {2, 15};
    case ScaledCode::kE4M3FNUZ:
      return {3, 8};
    default:
      return {2, 16};
  }
}

bool IsFnuz(ScaledCode code) {
  return code == ScaledCode::kE4M3FNUZ || code == ScaledCode::kE5M2FNUZ;
}

// Without its sign, of the type's own rule where fields go on past the largest finite value.
double Magnitude(const Grid& grid, unsigned bits) {
  const auto field = static_cast<int>(bits >> grid.mantissa_bits);
  const double fraction = bits & ((1u << grid.mantissa_bits) - 1);
  const double one = std::ldexp(1.0, grid.mantissa_bits);
  const int exponent = std::max(field, 1) - grid.bias - grid.mantissa_bits;
  return std::ldexp(field == 0 ? fraction : one + fraction, exponent);
}

unsigned NanCode(ScaledCode code) {
  if (IsFnuz(code)) return 0x80;
  return code == ScaledCode::kE4M3FN ? 0x7f : 0x7e;
}

}  // namespace

double LargestOf(ScaledCode code) {
  switch (code) {
    case ScaledCode::kE4M3FN:
      return 448;
    case ScaledCode::kE4M3FNUZ:
      return 240;
    case ScaledCode::kInt8:
      return 127;
    default:
      return 57344;
  }
}

double ValueOf(ScaledCode code, uint8_t bits) {
  if (code == ScaledCode::kInt8) return static_cast<int8_t>(bits);
  if (IsFnuz(code) && bits == 0x80) return kNan;
  const unsigned magnitude = bits & 0x7fu;
  const bool negative = bits > 0x7f;
  double value = Magnitude(FieldsOf(code), magnitude);
  if (code == ScaledCode::kE4M3FN && magnitude == 0x7f) value = kNan;
  if (code == ScaledCode::kE5M2 && magnitude >= 0x7c) {
    value = magnitude == 0x7c ? std::numeric_limits<double>::infinity() : kNan;
  }
  return negative ? -value : value;
}

double HalfGap(ScaledCode code, double t) {
  if (code == ScaledCode::kInt8) return 0.5;
  const Grid grid = FieldsOf(code);
  const int exponent = t == 0 ? grid.lowest_exponent() : std::ilogb(t);
  return std::ldexp(1.0, std::max(exponent, grid.lowest_exponent()) - grid.mantissa_bits - 1);
}

// Both divisions are by powers of two, and nearbyint rounds ties to even.
double NearestValue(ScaledCode code, double t) {
  const double gap = 2 * HalfGap(code, t);
  return std::nearbyint(t / gap) * gap;
}

uint8_t NearestCode(ScaledCode code, float q, Fp8Overflow overflow) {
  const double largest = LargestOf(code);
  if (code == ScaledCode::kInt8) {
    if (std::isnan(q)) return 0;
    const double rounded = std::clamp(std::nearbyint(static_cast<double>(q)), -128.0, 127.0);
    return static_cast<uint8_t>(static_cast<int>(rounded));
  }
  const unsigned sign = std::signbit(q) ? 0x80u : 0u;
  const auto with_sign = [&](unsigned magnitude) {
    const bool is_signed = !IsFnuz(code) || (magnitude != 0 && magnitude != 0x80);
    return static_cast<uint8_t>(is_signed ? magnitude | sign : magnitude);
  };
  const unsigned largest_code = code == ScaledCode::kE4M3FN ? 0x7e : IsFnuz(code) ? 0x7f : 0x7b;
  if (std::isnan(q)) {
    return with_sign(overflow == Fp8Overflow::kSaturateAll ? largest_code : NanCode(code));
  }
  const double size = std::fabs(static_cast<double>(q));
  const double value = std::isinf(q) ? size : NearestValue(code, size);
  if (value > largest) {
    if (overflow != Fp8Overflow::kNan) return with_sign(largest_code);
    return with_sign(code == ScaledCode::kE5M2 ? 0x7c : NanCode(code));
  }
  // Magnitudes are ordered as their codes.
  const Grid grid = FieldsOf(code);
  unsigned low = 0;
  for (unsigned bit = 0x40; bit != 0; bit >>= 1) {
    if (Magnitude(grid, low | bit) <= value) low |= bit;
  }
  return with_sign(low);
}

}  // namespace kvcheck
