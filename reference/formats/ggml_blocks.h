// What the families of ggml blocks (reference/spec/ggml_format.h) have in common: rows block by
// block, values code * scale, which fit f32 (a code has 8 bits, the f16 scale 11), and the bound of
// a block's round trip. A family adds the bytes of a block and the encoder's step.

#ifndef REFERENCE_FORMATS_GGML_BLOCKS_H_
#define REFERENCE_FORMATS_GGML_BLOCKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "reference/formats/format_arithmetic.h"
#include "reference/spec/ggml_format.h"

namespace kvcheck {

using GgmlValues = std::span<const float, kGgmlBlock>;

// A stored block: the value of channel i is codes[i] * scale.
struct GgmlCodes {
  std::array<int, kGgmlBlock> codes{};
  double scale = 0;
};

// How the encoder goes from values to codes: d = Step(x) in f32; a value x is p = x / d steps, of
// which the code is the nearest integer of [lowest, highest]; d is stored as f16.
// arithmetic_of_value, arithmetic_of_step: p is off by at most (of_value |x| + of_step |d|) / |d|
// units of f32's roundoff.
struct GgmlFamily {
  int64_t block_bytes;
  int64_t first_code;  // byte of a block
  int lowest, highest;
  double arithmetic_of_value, arithmetic_of_step;
  bool depends_on_writer;       // whether Profile::ggml_encode decides a byte
  uint16_t free_bits_of_zeros;  // of the scale of a block of zeros
  float (*step)(GgmlValues x);
  void (*encode)(GgmlEncoder encoder, GgmlValues x, std::byte* block);
  GgmlCodes (*read)(const std::byte* block);
};

std::unique_ptr<FormatArithmetic> MakeGgmlArithmetic(const GgmlFamily& family);

// The f16 in two bytes, little endian; written, the one nearest to the value, ties to even.
double ReadHalf(const std::byte* at);
void WriteHalf(float value, std::byte* at);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_GGML_BLOCKS_H_
