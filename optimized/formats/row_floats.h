// Rows of codes with a scale per vector: a vector as f32 of its row type, and back.

#ifndef OPTIMIZED_FORMATS_ROW_FLOATS_H_
#define OPTIMIZED_FORMATS_ROW_FLOATS_H_

#include <bit>
#include <cstring>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_kernels.h"

namespace kvcheck::optimized {

// Each value rounded to the type.
inline void RoundFloats(DType type, int64_t count, float* values) {
  if (type == DType::kFloat16) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(F32FromF16(F16FromF32(std::bit_cast<uint32_t>(values[i]))));
    }
  } else if (type == DType::kBFloat16) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] =
          std::bit_cast<float>(F32FromBF16(BF16FromF32(std::bit_cast<uint32_t>(values[i]))));
    }
  }
}

// The vector at x rounded once to the row type, in call.values.
inline void LoadRow(const EncodeCall& call, DType row_type, const std::byte* x) {
  if (call.from == DType::kFloat32) {
    std::memcpy(call.values, x, static_cast<size_t>(call.dim) * sizeof(float));
  } else if (call.from == DType::kFloat64) {
    for (int64_t i = 0; i < call.dim; ++i) {
      double value = 0;
      std::memcpy(&value, x + 8 * i, sizeof(value));
      // To odd where it is rounded again.
      call.values[i] = row_type == DType::kFloat32 ? static_cast<float>(value)
                                                   : std::bit_cast<float>(OddF32FromF64(value));
    }
  } else {
    const int64_t bytes = call.dim * static_cast<int64_t>(SizeInBytes(call.from));
    DecodePlainRows(
        call.from,
        {call.dim, {x, nullptr, nullptr, bytes, 0}, 1, reinterpret_cast<std::byte*>(call.values)});
  }
  if (call.from != row_type) RoundFloats(row_type, call.dim, call.values);
}

// Values as codes of the row type.
inline void StoreRow(DType row_type, int64_t count, const float* values, std::byte* out) {
  if (row_type == DType::kFloat32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint16_t code = row_type == DType::kFloat16 ? F16FromF32(bits) : BF16FromF32(bits);
    std::memcpy(out + 2 * i, &code, sizeof(code));
  }
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_ROW_FLOATS_H_
