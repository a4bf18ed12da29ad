// q8_0 as llama.cpp writes it, one f32 operation at a time (formats.md, section C): d = max|x| /
// 127, code x / d. The C reference multiplies by 1 / d and rounds ties away from zero; the vector
// code of x86 multiplies by 127 / max|x| and rounds ties to even, so that some codes differ by 1.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reference/formats/ggml_blocks.h"
#include "reference/spec/q8_0_format.h"

namespace kvcheck {
namespace {

// MAX of C and maxps of x86: the second where one is NaN.
float Larger(float a, float b) { return a > b ? a : b; }

float LargestInOrder(GgmlValues x) {
  float largest = 0;
  for (const float value : x) largest = Larger(largest, std::fabs(value));
  return largest;
}

// Eight lanes over four vectors, then halves of the lanes: another order matters to NaN alone.
float LargestInLanes(GgmlValues x) {
  std::array<float, 8> lanes;
  for (size_t i = 0; i < 8; ++i) {
    lanes[i] = std::fabs(x[i]);
    for (size_t v = 8; v < x.size(); v += 8) lanes[i] = Larger(lanes[i], std::fabs(x[v + i]));
  }
  for (size_t i = 0; i < 4; ++i) lanes[i] = Larger(lanes[4 + i], lanes[i]);
  for (size_t i = 0; i < 2; ++i) lanes[i] = Larger(lanes[i], lanes[2 + i]);
  return Larger(lanes[0], lanes[1]);
}

// The low byte of a float as int32, which is INT32_MIN where it does not fit.
uint8_t LowByte(float rounded) {
  return std::fabs(rounded) < 0x1p31f ? static_cast<uint8_t>(static_cast<int32_t>(rounded)) : 0;
}

// The same, saturated to int8.
uint8_t SaturatedByte(float rounded) {
  const float value = std::fabs(rounded) < 0x1p31f ? rounded : -0x1p31f;
  return static_cast<uint8_t>(static_cast<int32_t>(std::clamp(value, -128.0f, 127.0f)));
}

float Step(GgmlValues x) { return LargestInOrder(x) / 127.0f; }

void Encode(GgmlEncoder encoder, GgmlValues x, std::byte* block) {
  const bool lanes = encoder == GgmlEncoder::kX86;
  const float largest = lanes ? LargestInLanes(x) : LargestInOrder(x);
  const float step = largest / 127.0f;
  WriteHalf(step, block);
  float reciprocal = 0;
  if (lanes) {
    reciprocal = largest != 0 ? 127.0f / largest : 0.0f;
  } else {
    reciprocal = step != 0 ? 1.0f / step : 0.0f;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const float steps = x[i] * reciprocal;
    block[2 + i] = static_cast<std::byte>(lanes ? SaturatedByte(std::nearbyint(steps))
                                                : LowByte(std::round(steps)));
  }
}

GgmlCodes Read(const std::byte* block) {
  GgmlCodes read;
  read.scale = ReadHalf(block);
  for (size_t i = 0; i < read.codes.size(); ++i) {
    const int byte = std::to_integer<int>(block[2 + i]);
    read.codes[i] = byte < 128 ? byte : byte - 256;
  }
  return read;
}

// A value in steps passes at most three roundings, each of which is relative: of the step, its
// reciprocal and the product.
constexpr double kOfValue = 4;

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q8_0Format&) {
  return MakeGgmlArithmetic({.block_bytes = Q8_0Format::kBlockBytes,
                             .first_code = 2,
                             .lowest = Q8_0Format::kLowest,
                             .highest = Q8_0Format::kHighest,
                             .arithmetic_of_value = kOfValue,
                             .arithmetic_of_step = 0,
                             .depends_on_writer = true,
                             .free_bits_of_zeros = 0,
                             .step = Step,
                             .minimum = nullptr,
                             .encode = Encode,
                             .read = Read,
                             .errors = nullptr,
                             .freedoms = nullptr});
}

}  // namespace kvcheck
