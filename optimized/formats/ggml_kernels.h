// ggml's blocks by vectors, compiled once for every instruction set and dispatched at run time
// (Highway). Bit for bit what the blocks of ggml_rows.h do one channel after the other.

#ifndef OPTIMIZED_FORMATS_GGML_KERNELS_H_
#define OPTIMIZED_FORMATS_GGML_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace kvcheck::optimized {

enum class GgmlBlockKind { kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kIq4Nl };

// A block by itself, channel after channel: of values that are not finite, and where there are no
// vectors.
struct GgmlBlockCodec {
  int64_t bytes;
  void (*encode)(const float* x, std::byte* block);
  void (*decode)(const std::byte* block, float* y);
};

// Shapes: x, y (count, 32), contiguous as the blocks are; x f32 of any alignment.
void EncodeGgmlBlocks(GgmlBlockKind kind, const GgmlBlockCodec& codec, const std::byte* x,
                      int64_t count, std::byte* blocks);
void DecodeGgmlBlocks(GgmlBlockKind kind, const GgmlBlockCodec& codec, const std::byte* blocks,
                      int64_t count, float* y);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_GGML_KERNELS_H_
