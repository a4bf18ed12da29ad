// The centroids that codes of turboquant name, for kernels that look them up.

#ifndef OPTIMIZED_FORMATS_TURBOQUANT_ROWS_H_
#define OPTIMIZED_FORMATS_TURBOQUANT_ROWS_H_

#include "reference/spec/turboquant_format.h"

namespace kvcheck::optimized {

// to: 2^bits, ascending.
void CopyTurboquantCentroids(const TurboquantFormat& format, float* to);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_TURBOQUANT_ROWS_H_
