// What the families of turboquant rows share, and the centroids of codes, for kernels that look
// them up.

#ifndef OPTIMIZED_FORMATS_TURBOQUANT_ROWS_H_
#define OPTIMIZED_FORMATS_TURBOQUANT_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "reference/spec/dtype.h"
#include "reference/spec/split_turboquant_format.h"
#include "reference/spec/turboquant_format.h"

namespace kvcheck::optimized {

// to: 2^bits, ascending.
void CopyTurboquantCentroids(const TurboquantFormat& format, float* to);

// How the low or the high half of the channels is stored.
TurboquantFormat HalfFormat(const SplitTurboquantFormat& split, bool high);

// A group of d values of type `from`, rounded once to the type of rows, as f32.
void ReadTurboquantGroup(DType from, DType row_type, const std::byte* x, int64_t d, float* values);
// The other way: d values in f32 to rows of f16 or bf16.
void StoreTurboquantGroup(DType row_type, const float* values, int64_t d, std::byte* to);

// sqrt(sum x^2) in f32, the sum in double, term i + d/2 to term i and so on by halves.
float NormByHalves(const float* x, int d);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_TURBOQUANT_ROWS_H_
