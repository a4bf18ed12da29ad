// q4_0 as llama.cpp writes it, one f32 operation at a time (formats.md, section C): d = M / -8 for
// the element M of largest magnitude, which so has the code -8; code x / d, of which 7 is the
// largest.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reference/formats/ggml_blocks.h"
#include "reference/spec/q4_0_format.h"

namespace kvcheck {
namespace {

constexpr size_t kHalf = kGgmlBlock / 2;

// The first of those of largest magnitude; NaN is skipped.
float Step(GgmlValues x) {
  float largest = 0, element = 0;
  for (const float value : x) {
    if (largest < std::fabs(value)) {
      largest = std::fabs(value);
      element = value;
    }
  }
  return element / -8.0f;
}

uint8_t Nibble(float steps) {
  const float shifted = steps + 8.5f;
  return std::isfinite(shifted) ? static_cast<uint8_t>(std::min(15, static_cast<int>(shifted))) : 0;
}

void Encode(GgmlEncoder, GgmlValues x, std::byte* block) {
  const float step = Step(x);
  const float reciprocal = step != 0 ? 1.0f / step : 0.0f;
  WriteHalf(step, block);
  for (size_t j = 0; j < kHalf; ++j) {
    const unsigned low = Nibble(x[j] * reciprocal);
    const unsigned high = Nibble(x[j + kHalf] * reciprocal);
    block[2 + j] = static_cast<std::byte>(low | high << 4);
  }
}

GgmlCodes Read(const std::byte* block) {
  GgmlCodes read;
  read.scale = ReadHalf(block);
  for (size_t j = 0; j < kHalf; ++j) {
    const auto byte = std::to_integer<int>(block[2 + j]);
    read.codes[j] = (byte & 15) - 8;
    read.codes[j + kHalf] = (byte >> 4) - 8;
  }
  return read;
}

// Two relative roundings, of the reciprocal and of the product; one of the sum with 8.5, which is
// below 17.
constexpr double kOfValue = 3;
constexpr double kOfStep = 17;
// The scale of a block of zeros is -0 of ggml, and of gguf-py the zero of its data.
constexpr uint16_t kSign = 0x8000;

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q4_0Format&) {
  return MakeGgmlArithmetic({.block_bytes = Q4_0Format::kBlockBytes,
                             .first_code = 2,
                             .lowest = Q4_0Format::kLowest,
                             .highest = Q4_0Format::kHighest,
                             .arithmetic_of_value = kOfValue,
                             .arithmetic_of_step = kOfStep,
                             .depends_on_writer = false,
                             .free_bits_of_zeros = kSign,
                             .step = Step,
                             .encode = Encode,
                             .read = Read});
}

}  // namespace kvcheck
