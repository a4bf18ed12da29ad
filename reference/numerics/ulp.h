// Representable values as a number line: distance in steps, neighbours, and the spacing at a value.
// The order is that of the values; both zeros stand at the same place, infinity one step beyond the
// largest finite value (IEEE 754-2019, 5.3.1 for the neighbours).

#ifndef REFERENCE_NUMERICS_ULP_H_
#define REFERENCE_NUMERICS_ULP_H_

#include <cstdint>
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

// The code of the least value greater than that of `code`, or the greatest value less. The ends of
// the line (infinity, or the largest finite value of a type without it) stay, NaN stays. From the
// smallest subnormal the neighbour towards zero is the zero of its sign.
uint64_t NextUp(DType dtype, uint64_t code);
uint64_t NextDown(DType dtype, uint64_t code);

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_ULP_H_
