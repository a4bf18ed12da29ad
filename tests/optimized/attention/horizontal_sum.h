// The horizontal sum of the definitions of kernels.

#ifndef TESTS_OPTIMIZED_ATTENTION_HORIZONTAL_SUM_H_
#define TESTS_OPTIMIZED_ATTENTION_HORIZONTAL_SUM_H_

#include <cstddef>
#include <vector>

namespace kvcheck {

// In tree order: of sixteen (i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1). Precondition: a power
// of two of them.
inline float HorizontalSum(std::vector<float> lanes) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ATTENTION_HORIZONTAL_SUM_H_
