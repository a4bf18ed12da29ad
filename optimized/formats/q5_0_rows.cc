// q5_0 as ggml writes it: d = M / -16 for the first element M of largest magnitude, codes
// min(31, trunc(x (1 / d) + 16.5)); every step one f32 operation.

#include "optimized/formats/ggml_rows.h"

namespace kvcheck::optimized {
namespace {

struct Q5_0Block {
  static constexpr GgmlBlockKind kKind = GgmlBlockKind::kQ5_0;
  static constexpr int64_t kBytes = 22;

  static void Encode(const float* x, std::byte* block) {
    uint32_t codes[kGgmlChannels];
    StoreHalf(CodeSigned(x, 16, codes), block);
    PackFiveBits(codes, block + 2);
  }

  static void Decode(const std::byte* block, float* y) {
    const float step = LoadHalf(block);
    int32_t codes[kGgmlChannels];
    UnpackFiveBits(block + 2, codes);
    for (int64_t i = 0; i < kGgmlChannels; ++i) y[i] = static_cast<float>(codes[i] - 16) * step;
  }
};

}  // namespace

const RowFamily& RowFamilyOf(const Q5_0Format&) { return GgmlRows<Q5_0Block>::kFamily; }

}  // namespace kvcheck::optimized
