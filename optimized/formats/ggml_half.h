// The f16 numbers of ggml's blocks, little endian.

#ifndef OPTIMIZED_FORMATS_GGML_HALF_H_
#define OPTIMIZED_FORMATS_GGML_HALF_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "optimized/formats/convert.h"

namespace kvcheck::optimized {

inline float LoadHalf(const std::byte* at) {
  uint16_t code = 0;
  std::memcpy(&code, at, sizeof(code));
  return std::bit_cast<float>(F32FromF16(code));
}
inline void StoreHalf(float value, std::byte* at) {
  const uint16_t code = F16FromF32(std::bit_cast<uint32_t>(value));
  std::memcpy(at, &code, sizeof(code));
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_GGML_HALF_H_
