// How far a computed value lies from the exact one, in units of the error that is allowed; and the
// random operands of these tests. Shared by the tests of this folder.

#ifndef TESTS_REFERENCE_NUMERICS_ERROR_RATIO_H_
#define TESTS_REFERENCE_NUMERICS_ERROR_RATIO_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "reference/numerics/double_double.h"
#include "reference/numerics/oracle.h"

namespace kvcheck {

// |computed - exact| / (error |exact| + floor); 0 for 0/0, infinity for a value that is not finite.
template <class Wide>
double ErrorRatio(DoubleDouble computed, const Wide& exact, double error, double floor) {
  if (!IsFinite(computed)) return std::numeric_limits<double>::infinity();
  const Wide difference = Abs(Wide(computed.hi) + Wide(computed.lo) - exact);
  if (difference == Wide(0.0)) return 0.0;
  return (difference / (Abs(exact) * Wide(error) + Wide(floor))).ToDouble();
}

template <class Wide>
double ErrorRatio(double computed, const Wide& exact, double error, double floor) {
  return ErrorRatio(DoubleDouble{computed, 0.0}, exact, error, floor);
}

// Largest ratio of a test, with the operand that gave it.
struct Worst {
  double ratio = 0.0;
  DoubleDouble x{};
  DoubleDouble y{};

  void Add(double candidate, DoubleDouble at, DoubleDouble other = {}) {
    if (!(candidate <= ratio)) *this = {candidate, at, other};
  }
};

class Operands {
 public:
  explicit Operands(uint64_t seed) : bits_(seed) {}

  // In [0, 1), 53 random bits.
  double Unit() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  int Integer(int low, int high) {
    return low + static_cast<int>(bits_() % static_cast<uint64_t>(high - low + 1));
  }

  // Random sign and significand; binary exponent within the limits (-1074 and above).
  double Double(int low_exponent, int high_exponent) {
    const double magnitude = std::ldexp(1.0 + Unit(), Integer(low_exponent, high_exponent));
    return (bits_() & 1) != 0 ? -magnitude : magnitude;
  }

  // A normalised pair; the gap between its words is random, and one in eight has no low word.
  DoubleDouble Pair(int low_exponent, int high_exponent) {
    const double hi = Double(low_exponent, high_exponent);
    if (Integer(0, 7) == 0) return {hi, 0.0};
    const double lo = std::ldexp(Between(-1.0, 1.0), std::ilogb(hi) - 53 - Integer(0, 3) * 20);
    return TwoSum(hi, lo);
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_NUMERICS_ERROR_RATIO_H_
