#include "optimized/attention/packed_codes.h"

#include <algorithm>
#include <cmath>

namespace kvcheck::optimized {
namespace {

// The sum of a group in eight lanes, added by halves.
float SumOfGroup(const float* q, int64_t count) {
  constexpr int64_t kSums = 8;
  float sum[kSums] = {};
  for (int64_t i = 0; i < count; ++i) sum[i % kSums] += q[i];
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

}  // namespace

bool FitPlanes(const float* q, int64_t count) {
  // By 2^24 at most: what is left is a normal number.
  constexpr float kSmallest = 0x1p-100f;
  bool fit = true;
  for (int64_t i = 0; i < count; ++i) fit &= q[i] == 0 || !(std::fabs(q[i]) < kSmallest);
  return fit;
}

void ArrangeQuery(const AffineFormat& format, const float* q, int64_t dim, bool scaled, int64_t row,
                  float* quad) {
  const int bits = PlaneBits(format.bits);
  const int64_t planes = 32 / bits;
  for (int64_t plane = 0; plane < planes; ++plane) {
    const float factor = scaled ? 1.0f / static_cast<float>(1u << PlaneShift(bits, plane)) : 1.0f;
    for (int64_t c = plane; c < dim; c += planes) quad[c * kQuad + row] = q[c] * factor;
  }
  for (int64_t g = 0; g < dim / format.group_size; ++g) {
    quad[kQuad * (dim + g) + row] = SumOfGroup(q + g * format.group_size, format.group_size);
  }
}

void RestoreChannels(int bits, int64_t lanes, int64_t dim, float* row) {
  float some[2 * PlaneChunk(4)];
  const int64_t planes = 32 / PlaneBits(bits);
  for (int64_t left = dim; left > 0;) {
    if (left < lanes * planes) lanes = kChunkWords;  // a last chunk by itself
    const int64_t size = lanes * planes;
    std::copy(row, row + size, some);
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        row[lane * planes + plane] = some[plane * lanes + lane];
      }
    }
    row += size;
    left -= size;
  }
}

}  // namespace kvcheck::optimized
