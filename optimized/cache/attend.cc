#include "optimized/cache/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvcheck::optimized {
namespace {

constexpr int64_t kLanes = 8;

// Channel i enters lane i mod 8; then the lanes are added as a tree.
float Dot(const float* a, const float* b, int64_t dim) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
  }
  for (int64_t j = 0; i + j < dim; ++j) lanes[j] += a[i + j] * b[i + j];
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace

void AttendRow(const float* q, const RowTokens& tokens, const TokenRange& visible, float scale,
               const float* sink, float* scores, float* out) {
  std::fill(out, out + tokens.v_dim, 0.0f);
  const int64_t kept = std::min(visible.keep, visible.end);
  const int64_t from = std::max(visible.from, kept);
  const int64_t count = kept + std::max<int64_t>(0, visible.end - from);
  if (count == 0) return;
  // The j-th visible position.
  const auto position = [&](int64_t j) { return j < kept ? j : from + (j - kept); };
  float max = sink != nullptr ? *sink : -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < count; ++j) {
    const int64_t index = tokens.Index(position(j));
    scores[j] = Dot(q, tokens.k + index * tokens.k_dim, tokens.k_dim) * scale;
    max = std::max(max, scores[j]);
  }
  float sum = sink != nullptr ? std::exp(*sink - max) : 0.0f;
  for (int64_t j = 0; j < count; ++j) {
    const float weight = std::exp(scores[j] - max);
    sum += weight;
    const float* v = tokens.v + tokens.Index(position(j)) * tokens.v_dim;
    for (int64_t c = 0; c < tokens.v_dim; ++c) out[c] += weight * v[c];
  }
  for (int64_t c = 0; c < tokens.v_dim; ++c) out[c] /= sum;
}

}  // namespace kvcheck::optimized
