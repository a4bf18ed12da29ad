#include "optimized/attention/packed_codes.h"

#include <algorithm>
#include <cmath>

namespace kvcheck::optimized {
namespace {

// The sum of a group in eight lanes, in the tree order of a horizontal sum.
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

bool CanPrescale(const float* q, int64_t count) {
  // Divided by 2^24 at most, it stays a normal number.
  constexpr float kSmallest = 0x1p-100f;
  bool fit = true;
  for (int64_t i = 0; i < count; ++i) fit &= q[i] == 0 || !(std::fabs(q[i]) < kSmallest);
  return fit;
}

void PackQuery(const AffineFormat& format, const float* q, int64_t dim, bool scaled, int64_t row,
               float* quad) {
  const int bits = PackedBits(format.bits);
  const int64_t fields = 32 / bits;
  for (int64_t field = 0; field < fields; ++field) {
    const float factor = scaled ? 1.0f / static_cast<float>(1u << FieldShift(bits, field)) : 1.0f;
    for (int64_t c = field; c < dim; c += fields) quad[c * kQuad + row] = q[c] * factor;
  }
  for (int64_t g = 0; g < dim / format.group_size; ++g) {
    quad[kQuad * (dim + g) + row] = SumOfGroup(q + g * format.group_size, format.group_size);
  }
}

void RestoreChannelOrder(int bits, int64_t lanes, int64_t dim, float* row) {
  float some[2 * PackedChunk(4)];
  const int64_t fields = 32 / PackedBits(bits);
  for (int64_t left = dim; left > 0;) {
    if (left < lanes * fields) lanes = kChunkWords;  // a last chunk alone
    const int64_t size = lanes * fields;
    std::copy(row, row + size, some);
    for (int64_t field = 0; field < fields; ++field) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        row[lane * fields + field] = some[field * lanes + lane];
      }
    }
    row += size;
    left -= size;
  }
}

}  // namespace kvcheck::optimized
