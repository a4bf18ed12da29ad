// Representable values as a number line: distance in steps, neighbours, and the spacing at a value.
// The order is that of the values; both zeros stand at the same place, infinity one step beyond the
// largest finite value (IEEE 754-2019, 5.3.1 for the neighbours).

#ifndef REFERENCE_NUMERICS_ULP_H_
#define REFERENCE_NUMERICS_ULP_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "reference/spec/dtype.h"

namespace kvcheck {

// How many steps lead from code `from` to code `to` of a float type: positive when `to` is the
// greater value, 0 for +0 and -0. nullopt when either is NaN. Distances beyond +-(2^63 - 1), which
// only float64 has, are cut to that.
std::optional<int64_t> UlpDistance(DType dtype, uint64_t from, uint64_t to);

// The distance between neighbouring values of a float type in the binade of |y|, and the smallest
// subnormal below the normal range (e8m0fnu: 2^-127); beyond the largest finite value the spacing
// of the top binade. At a power of two it is the spacing above it. NaN when y is not finite.
double SpacingAt(DType dtype, double y);

// SpacingAt for many values of one type: what it needs of the type is looked up once.
class TypeSpacing {
 public:
  // Precondition: IsFloat(dtype).
  explicit TypeSpacing(DType dtype);

  double At(double y) const {
    const double size = std::fabs(y);
    return size <= std::numeric_limits<double>::max() ? AtFinite(size)
                                                      : std::numeric_limits<double>::quiet_NaN();
  }
  // The same for a finite size of at least 0, without branches.
  double AtFinite(double size) const {
    const double normal = size < smallest_normal_ ? smallest_normal_ : size;
    const double inside = normal < largest_ ? normal : largest_;
    // A power of two times another, exact also where it is a subnormal double.
    return std::bit_cast<double>(std::bit_cast<uint64_t>(inside) & kExponent) * last_place_;
  }

 private:
  static constexpr uint64_t kExponent = uint64_t{0x7ff} << 52;

  double last_place_;  // 2^-mantissa_bits: of a value in [1, 2)
  double smallest_normal_;
  double largest_;
};

// The code of the least value greater than that of `code`, or the greatest value less. The ends of
// the line (infinity, or the largest finite value of a type without it) stay, NaN stays. From the
// smallest subnormal the neighbour towards zero is the zero of its sign.
uint64_t NextUp(DType dtype, uint64_t code);
uint64_t NextDown(DType dtype, uint64_t code);

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_ULP_H_
