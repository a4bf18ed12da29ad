// Rows of small floats in blocks: channels as f32 of the row type, codes of e2m1, and values
// narrowed to the row type.

#ifndef OPTIMIZED_FORMATS_FLOAT_ROWS_H_
#define OPTIMIZED_FORMATS_FLOAT_ROWS_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {

inline float AsFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

// x rounded to a row type: f32, f16 or bf16.
template <DType kRow>
inline float Narrowed(float x) {
  if constexpr (kRow == DType::kFloat16) return AsFloat(F32FromF16(F16FromF32(BitsOf(x))));
  if constexpr (kRow == DType::kBFloat16) return AsFloat(F32FromBF16(BF16FromF32(BitsOf(x))));
  return x;
}

// Vector i of the call, rounded to the row type.
template <DType kRow>
inline void LoadRow(const EncodeCall& call, int64_t i, float* values) {
  const std::byte* x = call.x + i * call.x_stride;
  if (call.from == DType::kFloat64 && kRow != DType::kFloat32) {
    for (int64_t c = 0; c < call.dim; ++c) {
      double number = 0;
      std::memcpy(&number, x + c * static_cast<int64_t>(sizeof(number)), sizeof(number));
      values[c] = Narrowed<kRow>(AsFloat(OddF32FromF64(number)));
    }
    return;
  }
  if (call.from == DType::kFloat32) {
    std::memcpy(values, x, static_cast<size_t>(call.dim) * sizeof(float));
  } else {
    const int64_t bytes = call.dim * static_cast<int64_t>(SizeInBytes(call.from));
    DecodePlainRows(
        call.from,
        {call.dim, {x, nullptr, nullptr, bytes, 0}, 1, reinterpret_cast<std::byte*>(values)});
  }
  if (call.from == kRow) return;
  for (int64_t c = 0; c < call.dim; ++c) values[c] = Narrowed<kRow>(values[c]);
}

inline constexpr int64_t kMostBlockChannels = 32;

// A block's values times its scale to `to`, rounded to type kTo.
template <DType kTo>
inline void StoreScaled(const float* values, float scale, int64_t count, std::byte* to) {
  if constexpr (kTo == DType::kFloat32) {
    float products[kMostBlockChannels];
    for (int64_t i = 0; i < count; ++i) products[i] = values[i] * scale;
    std::memcpy(to, products, static_cast<size_t>(count) * sizeof(float));
  } else {
    uint16_t codes[kMostBlockChannels];
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = BitsOf(values[i] * scale);
      codes[i] = kTo == DType::kFloat16 ? F16FromF32(bits) : BF16FromF32(bits);
    }
    std::memcpy(to, codes, static_cast<size_t>(count) * sizeof(uint16_t));
  }
}

// The largest magnitude of a block as bits of f32; of what is not finite, bits above.
inline uint32_t LargestBits(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t size = BitsOf(x[i]) & 0x7fffffffu;
    largest = largest < size ? size : largest;
  }
  return largest;
}

// Codes of 4 bits, two a byte, the first one low.
inline void StoreNibbles(const uint8_t* codes, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count / 2; ++i) {
    to[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

// The value of a code of e2m1: exponent field over mantissa bit, as f32 has them one to the left.
inline float E2M1Value(unsigned code) {
  const unsigned magnitude = code & 7;
  const uint32_t normal = (magnitude << 22) + (126u << 23);
  const uint32_t bits = magnitude == 0 ? 0 : magnitude == 1 ? 0x3f000000u : normal;
  return AsFloat(bits | (code & 8) << 28);
}

// Values of both codes of e2m1 in a byte.
inline const std::array<std::array<float, 2>, 256> kE2M1Pairs = [] {
  std::array<std::array<float, 2>, 256> pairs{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    pairs[byte] = {E2M1Value(byte & 15), E2M1Value(byte >> 4)};
  }
  return pairs;
}();

inline void LoadNibbles(const std::byte* codes, int64_t count, float* values) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const auto& pair = kE2M1Pairs[static_cast<size_t>(codes[i])];
    std::memcpy(values + 2 * i, pair.data(), sizeof(pair));
  }
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_FLOAT_ROWS_H_
