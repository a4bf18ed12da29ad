// q8_0 as ggml's C reference writes it (ggml_encode=reference): d = max|x| / 127, codes x (1 / d)
// to nearest, ties away from zero; every step one f32 operation.

#include "optimized/formats/ggml_rows.h"

namespace kvcheck::optimized {
namespace {

// The larger, b where one is NaN: what MAX of C makes of a running maximum.
float Larger(float a, float b) { return a > b ? a : b; }

// The low byte of x to nearest, ties away from zero; 0 of what no int32 is.
std::byte CodeOf(float x) {
  // The largest number below 1/2, so that sums just below an integer do not reach it.
  const float rounded = x + std::copysign(0x1.fffffep-2f, x);
  const bool fits = std::fabs(rounded) < 0x1p31f;
  return static_cast<std::byte>(fits ? static_cast<int32_t>(rounded) : 0);
}

struct Q8_0Block {
  static constexpr GgmlBlockKind kKind = GgmlBlockKind::kQ8_0;
  static constexpr int64_t kBytes = 34;

  static void Encode(const float* x, std::byte* block) {
    float largest = 0;
    for (int64_t i = 0; i < kGgmlChannels; ++i) largest = Larger(largest, std::fabs(x[i]));
    const float step = largest / 127.0f;
    const float inverse = step != 0 ? 1.0f / step : 0.0f;
    StoreHalf(step, block);
    for (int64_t i = 0; i < kGgmlChannels; ++i) block[2 + i] = CodeOf(x[i] * inverse);
  }

  static void Decode(const std::byte* block, float* y) {
    const float step = LoadHalf(block);
    for (int64_t i = 0; i < kGgmlChannels; ++i) {
      y[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * step;
    }
  }
};

}  // namespace

const RowFamily& RowFamilyOf(const Q8_0Format&) { return GgmlRows<Q8_0Block>::kFamily; }

}  // namespace kvcheck::optimized
