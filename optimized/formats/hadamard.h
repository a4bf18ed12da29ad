// Blocks of channels times a normalized Hadamard matrix, in f32.

#ifndef OPTIMIZED_FORMATS_HADAMARD_H_
#define OPTIMIZED_FORMATS_HADAMARD_H_

#include <cstdint>

namespace kvcheck::optimized {

// v: dim values in blocks of `size`, a power of two that divides dim. Butterflies of strides 1, 2,
// ..., size / 2, then times f32(1 / sqrt(size)); its own inverse, up to rounding.
void RotateBlocks(float* v, int64_t dim, int64_t size);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_HADAMARD_H_
