#include "optimized/attention/transposed_keys.h"

#include <cstring>

namespace kvcheck::optimized {

void TransposeQueries(const float* q, int64_t stride, int64_t dim, int64_t lanes,
                      float* transposed) {
  const int64_t numbers = dim / lanes;
  const float* const q1 = q + stride;
  const float* const q2 = q1 + stride;
  const float* const q3 = q2 + stride;
  for (int64_t m = 0, c = 0; m < numbers; ++m) {
    float* to = transposed + m * kQuad;
    for (int64_t lane = 0; lane < lanes; ++lane, ++c, to += numbers * kQuad) {
      const float four[kQuad] = {q[c], q1[c], q2[c], q3[c]};
      std::memcpy(to, four, sizeof(four));
    }
  }
}

}  // namespace kvcheck::optimized
