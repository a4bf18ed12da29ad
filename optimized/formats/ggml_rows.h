// Rows of ggml's blocks: an f16 scale and the codes of 32 channels, block after block in one plane.

#ifndef OPTIMIZED_FORMATS_GGML_ROWS_H_
#define OPTIMIZED_FORMATS_GGML_ROWS_H_

#include <bit>
#include <cmath>
#include <cstring>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {

inline constexpr int64_t kGgmlChannels = 32;

inline float LoadHalf(const std::byte* at) {
  uint16_t code = 0;
  std::memcpy(&code, at, sizeof(code));
  return std::bit_cast<float>(F32FromF16(code));
}
inline void StoreHalf(float value, std::byte* at) {
  const uint16_t code = F16FromF32(std::bit_cast<uint32_t>(value));
  std::memcpy(at, &code, sizeof(code));
}

// Block: kBytes; Encode(const float* x, std::byte* block); Decode(const std::byte* block, float*
// y).
template <typename Block>
struct GgmlRows {
  static int64_t Channels(const KvFormat&) { return kGgmlChannels; }

  static RowBytes Bytes(const KvFormat&, int64_t dim) {
    return {dim / kGgmlChannels * Block::kBytes, 0, 0};
  }

  static void Encode(const KvFormat&, const EncodeCall& call) {
    for (int64_t i = 0; i < call.count; ++i) {
      const std::byte* x = call.x + i * call.x_stride;
      auto* values = reinterpret_cast<std::byte*>(call.values);
      if (call.from == DType::kFloat32) {
        std::memcpy(values, x, static_cast<size_t>(call.dim) * sizeof(float));
      } else {
        // Through f32, which f64 is rounded to.
        const int64_t bytes = call.dim * static_cast<int64_t>(SizeInBytes(call.from));
        DecodePlainRows(call.from, {call.dim, {x, nullptr, nullptr, bytes, 0}, 1, values});
      }
      std::byte* block = call.out.codes + i * call.out.code_stride;
      for (int64_t c = 0; c < call.dim; c += kGgmlChannels, block += Block::kBytes) {
        Block::Encode(call.values + c, block);
      }
    }
  }

  static void Decode(const KvFormat&, const DecodeCall& call) {
    auto* y = reinterpret_cast<float*>(call.out);
    for (int64_t i = 0; i < call.count; ++i) {
      const std::byte* block = call.rows.codes + i * call.rows.code_stride;
      for (int64_t c = 0; c < call.dim; c += kGgmlChannels, block += Block::kBytes) {
        float values[kGgmlChannels];
        Block::Decode(block, values);
        std::memcpy(y, values, sizeof(values));
        y += kGgmlChannels;
      }
    }
  }

  static constexpr RowFamily kFamily = {Channels, Bytes, Encode, Decode, Decode};
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_GGML_ROWS_H_
