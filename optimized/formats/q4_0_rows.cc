// q4_0 as ggml writes it: d = M / -8 for the first element M of largest magnitude, codes
// min(15, trunc(x (1 / d) + 8.5)); every step one f32 operation.

#include "optimized/formats/ggml_rows.h"

namespace kvcheck::optimized {
namespace {

struct Q4_0Block {
  static constexpr GgmlBlockKind kKind = GgmlBlockKind::kQ4_0;
  static constexpr int64_t kBytes = 18;

  static void Encode(const float* x, std::byte* block) {
    uint32_t codes[kGgmlChannels];
    StoreHalf(CodeSigned(x, 8, codes), block);
    PackNibbles(codes, block + 2);
  }

  static void Decode(const std::byte* block, float* y) {
    const float step = LoadHalf(block);
    int32_t codes[kGgmlChannels];
    UnpackNibbles(block + 2, codes);
    for (int64_t i = 0; i < kGgmlChannels; ++i) y[i] = static_cast<float>(codes[i] - 8) * step;
  }
};

}  // namespace

const RowFamily& RowFamilyOf(const Q4_0Format&) { return GgmlRows<Q4_0Block>::kFamily; }

}  // namespace kvcheck::optimized
