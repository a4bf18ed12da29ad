// The centroids of a turboquant format, and the thresholds between them.

#ifndef REFERENCE_FORMATS_TURBOQUANT_CODEBOOK_H_
#define REFERENCE_FORMATS_TURBOQUANT_CODEBOOK_H_

#include <span>
#include <vector>

#include "reference/spec/turboquant_format.h"

namespace kvcheck {

// 2^bits of them, ascending. Precondition: format.Exists().
std::span<const float> TurboquantCentroids(const TurboquantFormat& format);

// fl(fl(c_i + c_{i+1}) / 2), one fewer.
std::vector<float> ThresholdsBetween(std::span<const float> centroids);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_TURBOQUANT_CODEBOOK_H_
