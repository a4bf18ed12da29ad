// q4_1 as ggml writes it: d = (max - min) / 15, codes trunc((x - min) (1 / d) + 0.5); every step
// one f32 operation, in decoding too.

#include "optimized/formats/ggml_rows.h"

namespace kvcheck::optimized {
namespace {

struct Q4_1Block {
  static constexpr GgmlBlockKind kKind = GgmlBlockKind::kQ4_1;
  static constexpr int64_t kBytes = 20;
  static constexpr bool kHasMinimum = true;

  static void Encode(const float* x, std::byte* block) {
    uint32_t codes[kGgmlChannels];
    float least = 0;
    StoreHalf(CodeFromLeast(x, 15, &least, codes), block);
    StoreHalf(least, block + 2);
    PackNibbles(codes, block + 4);
  }

  static void Decode(const std::byte* block, float* y) {
    const float step = LoadHalf(block);
    const float least = LoadHalf(block + 2);
    int32_t codes[kGgmlChannels];
    UnpackNibbles(block + 4, codes);
    for (int64_t i = 0; i < kGgmlChannels; ++i) y[i] = static_cast<float>(codes[i]) * step + least;
  }
};

}  // namespace

const RowFamily& RowFamilyOf(const Q4_1Format&) { return GgmlRows<Q4_1Block>::kFamily; }

}  // namespace kvcheck::optimized
