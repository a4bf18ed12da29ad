// iq4_nl as ggml writes it into a cache: codes by comparing x (1 / d0), d0 = M / -127, with the
// middles of the table; then d = sum(x x v x) / sum(x x v v) in channel order; every step one f32
// operation.

#include "optimized/formats/iq4_nl_rows.h"

#include <algorithm>
#include <iterator>

#include "optimized/formats/ggml_rows.h"

namespace kvcheck::optimized {
namespace {

constexpr float kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
// From it on the upper of two values is taken. ggml compares distances, which are exact here.
constexpr float kMiddles[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                7,       19,     31.5f, 45.5f, 61,  79,     101};

struct Iq4NlBlock {
  static constexpr GgmlBlockKind kKind = GgmlBlockKind::kIq4Nl;
  static constexpr int64_t kBytes = 18;

  static void Encode(const float* x, std::byte* block) {
    uint32_t codes[kGgmlChannels] = {};
    const float largest = LargestOf(x);
    float step = 0;
    if (std::fabs(largest) >= 1e-15f) {
      const float inverse = 1.0f / (largest / -127.0f);
      for (int64_t i = 0; i < kGgmlChannels; ++i) {
        const float steps = x[i] * inverse;
        uint32_t code = 0;
        for (const float middle : kMiddles) code += steps < middle ? 0u : 1u;  // NaN: the last
        codes[i] = code;
      }
      float of_x = 0, of_values = 0;
      for (int64_t i = 0; i < kGgmlChannels; ++i) {
        const float value = kValues[codes[i]];
        const float part = x[i] * x[i] * value;
        of_x += part * x[i];
        of_values += part * value;
      }
      step = of_values > 0 ? of_x / of_values : 0.0f;
    }
    StoreHalf(step, block);
    PackNibbles(codes, block + 2);
  }

  static void Decode(const std::byte* block, float* y) {
    const float step = LoadHalf(block);
    int32_t codes[kGgmlChannels];
    UnpackNibbles(block + 2, codes);
    for (int64_t i = 0; i < kGgmlChannels; ++i) y[i] = kValues[codes[i]] * step;
  }
};

}  // namespace

const RowFamily& RowFamilyOf(const Iq4NlFormat&) { return GgmlRows<Iq4NlBlock>::kFamily; }

void CopyIq4NlValues(float* to) { std::copy(std::begin(kValues), std::end(kValues), to); }

}  // namespace kvcheck::optimized
