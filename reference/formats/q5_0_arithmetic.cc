// q5_0 as llama.cpp writes it, one f32 operation at a time (formats.md, section C): d = M / -16 for
// the element M of largest magnitude, which so has the code -16; code x / d, of which 15 is the
// largest.

#include <array>
#include <cstdint>

#include "reference/formats/ggml_blocks.h"
#include "reference/spec/q5_0_format.h"

namespace kvcheck {
namespace {

float Step(GgmlValues x) { return LargestElement(x) / -16.0f; }

void Encode(GgmlEncoder, GgmlValues x, std::byte* block) {
  const float step = Step(x);
  const float reciprocal = step != 0 ? 1.0f / step : 0.0f;
  WriteHalf(step, block);
  std::array<uint8_t, kGgmlBlock> codes;
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = TruncatedCode(x[i] * reciprocal + 16.5f, 31);
  WriteFiveBits(codes, block + 2);
}

GgmlCodes Read(const std::byte* block) {
  GgmlCodes read;
  read.scale = ReadHalf(block);
  ReadFiveBits(block + 2, read.codes);
  for (int& code : read.codes) code -= 16;
  return read;
}

// Two relative roundings, of the reciprocal and of the product; one of the sum with 16.5, which is
// below 33.
constexpr double kOfValue = 3;
constexpr double kOfStep = 33;
// The scale of a block of zeros is -0 of ggml, and of gguf-py the zero of its data.
constexpr uint16_t kSign = 0x8000;

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q5_0Format&) {
  return MakeGgmlArithmetic({.block_bytes = Q5_0Format::kBlockBytes,
                             .first_code = 2,
                             .lowest = Q5_0Format::kLowest,
                             .highest = Q5_0Format::kHighest,
                             .arithmetic_of_value = kOfValue,
                             .arithmetic_of_step = kOfStep,
                             .depends_on_writer = false,
                             .free_bits_of_zeros = kSign,
                             .step = Step,
                             .minimum = nullptr,
                             .encode = Encode,
                             .read = Read,
                             .errors = nullptr,
                             .freedoms = nullptr});
}

}  // namespace kvcheck
