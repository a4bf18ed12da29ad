// q4_1 as llama.cpp writes it, one f32 operation at a time (formats.md, section C): m the least
// element, d = (max - m) / 15, code (x - m) / d.

#include <array>
#include <cstdint>

#include "reference/formats/ggml_blocks.h"
#include "reference/spec/q4_1_format.h"

namespace kvcheck {
namespace {

float Step(GgmlValues x) { return RangeStep(x, 15.0f); }

void Encode(GgmlEncoder, GgmlValues x, std::byte* block) {
  const float step = Step(x);
  const float least = LeastElement(x);
  const float reciprocal = step != 0 ? 1.0f / step : 0.0f;
  WriteHalf(step, block);
  WriteHalf(least, block + 2);
  std::array<uint8_t, kGgmlBlock> codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    const float steps = (x[i] - least) * reciprocal;
    codes[i] = TruncatedCode(steps + 0.5f, 15);
  }
  WriteNibbles(codes, block + 4);
}

GgmlCodes Read(const std::byte* block) {
  GgmlCodes read;
  read.scale = ReadHalf(block);
  read.minimum = ReadHalf(block + 2);
  ReadNibbles(block + 4, read.codes);
  return read;
}

// Three relative roundings, of the difference, the reciprocal and the product; one of the sum with
// a half, which is below 16.
constexpr double kOfValue = 4;
constexpr double kOfStep = 16;

}  // namespace

std::unique_ptr<FormatArithmetic> MakeArithmetic(const Q4_1Format&) {
  return MakeGgmlArithmetic({.block_bytes = Q4_1Format::kBlockBytes,
                             .first_code = 4,
                             .lowest = Q4_1Format::kLowest,
                             .highest = Q4_1Format::kHighest,
                             .arithmetic_of_value = kOfValue,
                             .arithmetic_of_step = kOfStep,
                             .depends_on_writer = false,
                             .free_bits_of_zeros = 0,
                             .step = Step,
                             .minimum = LeastElement,
                             .encode = Encode,
                             .read = Read,
                             .errors = nullptr,
                             .freedoms = nullptr});
}

}  // namespace kvcheck
