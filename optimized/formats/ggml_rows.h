// Rows of ggml's blocks: an f16 scale, of some an f16 minimum, and the codes of 32 channels, block
// after block in one plane.

#ifndef OPTIMIZED_FORMATS_GGML_ROWS_H_
#define OPTIMIZED_FORMATS_GGML_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/ggml_half.h"
#include "optimized/formats/ggml_kernels.h"
#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {

inline constexpr int64_t kGgmlChannels = 32;

inline constexpr int64_t kGgmlHalf = kGgmlChannels / 2;

// Codes of 4 bits, channel j below channel j + 16.
inline void PackNibbles(const uint32_t* codes, std::byte* to) {
  for (int64_t j = 0; j < kGgmlHalf; ++j) {
    to[j] = static_cast<std::byte>((codes[j] & 15u) | (codes[j + kGgmlHalf] & 15u) << 4);
  }
}
inline void UnpackNibbles(const std::byte* from, int32_t* codes) {
  for (int64_t j = 0; j < kGgmlHalf; ++j) {
    const auto byte = static_cast<int32_t>(from[j]);
    codes[j] = byte & 15;
    codes[j + kGgmlHalf] = byte >> 4;
  }
}
// Codes of 5 bits: a little-endian word of fifth bits, then nibbles.
inline void PackFiveBits(const uint32_t* codes, std::byte* to) {
  uint32_t fifth = 0;
  for (int64_t i = 0; i < kGgmlChannels; ++i) fifth |= (codes[i] >> 4 & 1u) << i;
  std::memcpy(to, &fifth, sizeof(fifth));
  PackNibbles(codes, to + sizeof(fifth));
}
inline void UnpackFiveBits(const std::byte* from, int32_t* codes) {
  uint32_t fifth = 0;
  std::memcpy(&fifth, from, sizeof(fifth));
  UnpackNibbles(from + sizeof(fifth), codes);
  for (int64_t i = 0; i < kGgmlChannels; ++i) {
    codes[i] += static_cast<int32_t>((fifth >> i & 1u) << 4);
  }
}

// The first of the largest magnitude.
inline float LargestOf(const float* x) {
  float largest = 0, element = 0;
  for (int64_t i = 0; i < kGgmlChannels; ++i) {
    const float size = std::fabs(x[i]);
    element = largest < size ? x[i] : element;
    largest = largest < size ? size : largest;
  }
  return element;
}

// Toward zero, at most `most`; 0 of what is not finite.
inline uint32_t CutCode(float x, int32_t most) {
  const bool fits = std::fabs(x) < 64;
  return static_cast<uint32_t>(std::min(most, fits ? static_cast<int32_t>(x) : 0));
}

// Codes from the element of largest magnitude M, which is step * -half: x / step + half.
inline float CodeSigned(const float* x, int32_t half, uint32_t* codes) {
  const float step = LargestOf(x) / static_cast<float>(-half);
  const float inverse = step != 0 ? 1.0f / step : 0.0f;
  const float middle = static_cast<float>(half) + 0.5f;
  for (int64_t i = 0; i < kGgmlChannels; ++i) {
    codes[i] = CutCode(x[i] * inverse + middle, 2 * half - 1);
  }
  return step;
}

// Codes from the least element, in steps of the range over `levels`.
inline float CodeFromLeast(const float* x, int32_t levels, float* least, uint32_t* codes) {
  float low = std::numeric_limits<float>::max(), high = -low;
  for (int64_t i = 0; i < kGgmlChannels; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float step = (high - low) / static_cast<float>(levels);
  const float inverse = step != 0 ? 1.0f / step : 0.0f;
  for (int64_t i = 0; i < kGgmlChannels; ++i) {
    codes[i] = CutCode((x[i] - low) * inverse + 0.5f, levels);
  }
  *least = low;
  return step;
}

// Block: kKind, kBytes; Encode(const float* x, std::byte* block) and Decode(const std::byte* block,
// float* y), one channel after the other.
template <typename Block>
struct GgmlRows {
  static int64_t Channels(const KvFormat&) { return kGgmlChannels; }

  static RowBytes Bytes(const KvFormat&, int64_t dim) {
    return {dim / kGgmlChannels * Block::kBytes, 0, 0};
  }

  static void Encode(const KvFormat& format, const EncodeCall& call) {
    const int64_t blocks = call.dim / kGgmlChannels;
    const int64_t bytes = call.dim * static_cast<int64_t>(SizeInBytes(call.from));
    const bool is_f32 = call.from == DType::kFloat32;
    if (is_f32 && call.x_stride == bytes && call.out.code_stride == Bytes(format, call.dim).codes) {
      return EncodeGgmlBlocks(Block::kKind, kCodec, call.x, call.count * blocks, call.out.codes);
    }
    for (int64_t i = 0; i < call.count; ++i) {
      const std::byte* x = call.x + i * call.x_stride;
      if (!is_f32) {
        // Through f32, which f64 is rounded to.
        auto* values = reinterpret_cast<std::byte*>(call.values);
        DecodePlainRows(call.from, {call.dim, {x, nullptr, nullptr, bytes, 0}, 1, values});
        x = values;
      }
      EncodeGgmlBlocks(Block::kKind, kCodec, x, blocks, call.out.codes + i * call.out.code_stride);
    }
  }

  static void Decode(const KvFormat&, const DecodeCall& call) {
    auto* y = reinterpret_cast<float*>(call.out);
    for (int64_t i = 0; i < call.count; ++i, y += call.dim) {
      DecodeGgmlBlocks(Block::kKind, kCodec, call.rows.codes + i * call.rows.code_stride,
                       call.dim / kGgmlChannels, y);
    }
  }

  static constexpr GgmlBlockCodec kCodec = {Block::kBytes, Block::Encode, Block::Decode};
  // A code and an f16 scale fit f32 together; a sum with a minimum need not.
  static int Roundings(const KvFormat&) {
    return requires { Block::kHasMinimum; } ? 1 : 0;
  }

  static constexpr RowFamily kFamily = {Channels, Bytes, Encode, Decode, Decode, Roundings};
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_GGML_ROWS_H_
