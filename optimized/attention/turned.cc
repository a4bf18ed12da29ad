#include "optimized/attention/turned.h"

namespace kvcheck::optimized {

void TurnQueries(const float* q, int64_t stride, int64_t dim, int64_t lanes, float* turned) {
  const int64_t numbers = dim / lanes;
  for (int64_t row = 0; row < kQuad; ++row, q += stride) {
    for (int64_t m = 0; m < numbers; ++m) {
      float* to = turned + m * kQuad + row;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        to[lane * numbers * kQuad] = q[m * lanes + lane];
      }
    }
  }
}

}  // namespace kvcheck::optimized
