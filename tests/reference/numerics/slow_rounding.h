// A second, slow definition of what a type holds and of rounding to it, for tests: the values of
// all codes by the formula of the format, and rounding by comparing with the exact midpoint of two
// neighbours. It shares no code with reference/numerics/.

#ifndef TESTS_REFERENCE_NUMERICS_SLOW_ROUNDING_H_
#define TESTS_REFERENCE_NUMERICS_SLOW_ROUNDING_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/rounding.h"

namespace kvcheck {

struct SlowFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  uint64_t finite_codes;  // how many codes from 0 up are finite magnitudes
  bool is_signed;
  bool has_zero;
};

inline SlowFormat SlowFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {5, 10, 15, 0x7c00, true, true};
    case DType::kBFloat16:
      return {8, 7, 127, 0x7f80, true, true};
    case DType::kFloat8E4M3FN:
      return {4, 3, 7, 0x7f, true, true};
    case DType::kFloat8E5M2:
      return {5, 2, 15, 0x7c, true, true};
    case DType::kFloat8E8M0FNU:
      return {8, 0, 127, 0xff, false, false};
    default:
      return {2, 1, 1, 8, true, true};  // e2m1fn
  }
}

inline const std::vector<DType>& SmallFloats() {
  static const std::vector<DType> kTypes = {DType::kFloat16,       DType::kBFloat16,
                                            DType::kFloat8E4M3FN,  DType::kFloat8E5M2,
                                            DType::kFloat8E8M0FNU, DType::kFloat4E2M1FN};
  return kTypes;
}

// Magnitudes by code, and behind the last finite one the value that would come next.
inline std::vector<double> SlowMagnitudes(DType dtype) {
  const SlowFormat format = SlowFormatOf(dtype);
  std::vector<double> values;
  for (uint64_t code = 0; code <= format.finite_codes; ++code) {
    const int field = static_cast<int>(code >> format.mantissa_bits);
    const double fraction = static_cast<double>(code & ((1u << format.mantissa_bits) - 1)) /
                            static_cast<double>(1u << format.mantissa_bits);
    values.push_back(field == 0 && format.has_zero
                         ? std::ldexp(fraction, 1 - format.bias)
                         : std::ldexp(1.0 + fraction, field - format.bias));
  }
  return values;
}

// The code of a finite magnitude, format.finite_codes for overflow. `values` as SlowMagnitudes.
inline uint64_t SlowMagnitudeCode(const std::vector<double>& values, double a, Rounding rounding) {
  const size_t above =
      static_cast<size_t>(std::upper_bound(values.begin(), values.end(), a) - values.begin());
  if (above == 0) return 0;      // e8m0: below the smallest
  if (above == values.size()) {  // beyond even the virtual next
    return rounding == Rounding::kTowardZero ? values.size() - 2 : values.size() - 1;
  }
  const size_t below = above - 1;
  if (rounding == Rounding::kTowardZero) return std::min(below, values.size() - 2);
  const double middle = values[below] + (values[above] - values[below]) / 2;
  if (a != middle) return a < middle ? below : above;
  if (rounding == Rounding::kNearestAway) return above;
  // Ties to the even significand. Without mantissa bits (e8m0) the lower neighbour is 1 and the
  // upper 2 of the same unit.
  if (values[0] != 0) return above;
  return below % 2 == 0 ? below : above;
}

// splitmix64: the tests' own numbers, the same everywhere.
inline uint64_t NextRandom(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_NUMERICS_SLOW_ROUNDING_H_
