#include "optimized/attention/head_group_scales.h"

#include "optimized/attention/aligned_floats.h"

namespace kvcheck::optimized {

void HeadGroupScales::MakeRoom(int64_t heads) { AlignedFloats(&memory_, 2 * heads * kBlockTokens); }

void HeadGroupScales::Take(const StoredHeads& from, int64_t head, int64_t heads, int64_t bytes,
                           int64_t column, const AttentionKernels& kernels) {
  Drop();
  if (kernels.transpose_scales == nullptr || heads % kScaleHeads != 0) return;
  if (bytes != kScaleWord || from.scale_head_stride != bytes) return;
  const int64_t words = heads * kBlockTokens;
  float* to = AlignedFloats(&memory_, 2 * words);
  const int64_t first = head * from.scale_head_stride + column * from.scale_stride;
  kernels.transpose_scales(from.scales + first, from.scale_stride, heads, to);
  kernels.transpose_scales(from.biases + first, from.scale_stride, heads, to + words);
  scales_ = to;
  heads_ = heads;
}

HeadGroupScales::Head HeadGroupScales::Of(int64_t i) const {
  if (heads_ == 0) return {};
  const float* scales = scales_ + i * kBlockTokens;
  const float* biases = scales + heads_ * kBlockTokens;
  return {reinterpret_cast<const std::byte*>(scales), reinterpret_cast<const std::byte*>(biases)};
}

}  // namespace kvcheck::optimized
