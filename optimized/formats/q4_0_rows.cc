// q4_0 as ggml writes it: d = M / -8 for the first element M of largest magnitude, codes
// min(15, trunc(x (1 / d) + 8.5)); every step one f32 operation.

#include <algorithm>

#include "optimized/formats/ggml_rows.h"

namespace kvcheck::optimized {
namespace {

constexpr int64_t kHalf = kGgmlChannels / 2;

// 0 of what is not finite.
unsigned CodeOf(float steps) {
  const float shifted = steps + 8.5f;
  const bool fits = std::fabs(shifted) < 32;
  return static_cast<unsigned>(std::min(15, fits ? static_cast<int>(shifted) : 0));
}

struct Q4_0Block {
  static constexpr int64_t kBytes = 18;

  static void Encode(const float* x, std::byte* block) {
    float largest = 0, element = 0;
    for (int64_t i = 0; i < kGgmlChannels; ++i) {
      const float size = std::fabs(x[i]);
      element = largest < size ? x[i] : element;
      largest = largest < size ? size : largest;
    }
    const float step = element / -8.0f;
    const float inverse = step != 0 ? 1.0f / step : 0.0f;
    StoreHalf(step, block);
    for (int64_t j = 0; j < kHalf; ++j) {
      const unsigned low = CodeOf(x[j] * inverse);
      const unsigned high = CodeOf(x[j + kHalf] * inverse);
      block[2 + j] = static_cast<std::byte>(low | high << 4);
    }
  }

  static void Decode(const std::byte* block, float* y) {
    const float step = LoadHalf(block);
    for (int64_t j = 0; j < kHalf; ++j) {
      const auto byte = static_cast<int>(block[2 + j]);
      y[j] = static_cast<float>((byte & 15) - 8) * step;
      y[j + kHalf] = static_cast<float>((byte >> 4) - 8) * step;
    }
  }
};

}  // namespace

const RowFamily& RowFamilyOf(const Q4_0Format&) { return GgmlRows<Q4_0Block>::kFamily; }

}  // namespace kvcheck::optimized
