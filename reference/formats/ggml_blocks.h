// What the families of ggml blocks (reference/spec/ggml_format.h) have in common: rows block by
// block, values code * scale + minimum, and the bound of a block's round trip. A family adds the
// bytes of a block, the encoder's step, and what its writers leave open.

#ifndef REFERENCE_FORMATS_GGML_BLOCKS_H_
#define REFERENCE_FORMATS_GGML_BLOCKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reference/formats/format_arithmetic.h"
#include "reference/spec/ggml_format.h"

namespace kvcheck {

using GgmlValues = std::span<const float, kGgmlBlock>;

// A stored block: the value of channel i is codes[i] * scale + minimum, which a double holds (codes
// have 8 bits, the f16 numbers 11 and no more than 2^40 between their ends).
struct GgmlCodes {
  std::array<int, kGgmlBlock> codes{};
  double scale = 0;
  double minimum = 0;
};

// How the encoder went from the finite values of a block to codes, as distances in their units.
struct GgmlElement {
  double code = 0;          // from the value of its code, were nothing of it rounded
  double largest_code = 0;  // which the rounding of the stored scale is multiplied by
  double encoder = 0;       // how much further f32 may choose
  double next = 0;          // from the nearest value of another code
  double next_code = 0;     // its largest_code
};
struct GgmlErrors {
  double scale = 0;  // |d|, stored as f16
  double minimum = 0;
  std::array<GgmlElement, kGgmlBlock> elements{};
};

// A byte of a block, which its writers set in more than one way: to anything, to `value`, or with
// some bits as they like.
struct GgmlFreedom {
  int64_t byte = 0;
  CodecReason reason = kNotFiniteBlock;
  bool any = true;
  uint64_t value = 0;
  uint64_t free_bits = 0;
};

// Encoders of even steps (all but iq4_nl): d = step(x) in f32; a value is p = (x - minimum(x)) / d
// steps, of which the code is the nearest integer of [lowest, highest]; d and the minimum are
// stored as f16. arithmetic_of_value, arithmetic_of_step: p is off by at most (of_value |x -
// minimum| + of_step |d|) / |d| units of f32's roundoff.
struct GgmlFamily {
  int64_t block_bytes;
  int64_t first_code;  // byte of a block
  int lowest, highest;
  double arithmetic_of_value, arithmetic_of_step;
  bool depends_on_writer;       // whether Profile::ggml_encode decides a byte
  uint16_t free_bits_of_zeros;  // of the scale of a block of zeros
  float (*step)(GgmlValues x);
  float (*minimum)(GgmlValues x);  // null: values are code * scale
  void (*encode)(GgmlEncoder encoder, GgmlValues x, std::byte* block);
  GgmlCodes (*read)(const std::byte* block);
  // Of finite values; null: those of even steps.
  GgmlErrors (*errors)(GgmlValues x);
  std::vector<GgmlFreedom> (*freedoms)(GgmlValues x);
};

std::unique_ptr<FormatArithmetic> MakeGgmlArithmetic(const GgmlFamily& family);

// The f16 in two bytes, little endian; written, the one nearest to the value, ties to even.
double ReadHalf(const std::byte* at);
void WriteHalf(float value, std::byte* at);

// 16 bytes of nibbles: byte j has that of channel j below that of channel j + 16.
void WriteNibbles(std::span<const uint8_t, kGgmlBlock> codes, std::byte* at);
void ReadNibbles(const std::byte* at, std::span<int, kGgmlBlock> codes);
// And 4 bytes in front of them, bit i of which is the bit of 16 of channel i.
void WriteFiveBits(std::span<const uint8_t, kGgmlBlock> codes, std::byte* at);
void ReadFiveBits(const std::byte* at, std::span<int, kGgmlBlock> codes);

// How a family lays out the codes of a block.
struct GgmlPacking {
  void (*write)(std::span<const uint8_t, kGgmlBlock> codes, std::byte* at);
  void (*read)(const std::byte* at, std::span<int, kGgmlBlock> codes);
};
inline constexpr GgmlPacking kNibbles{WriteNibbles, ReadNibbles};
inline constexpr GgmlPacking kFiveBits{WriteFiveBits, ReadFiveBits};

// The first element of largest magnitude; NaN is skipped, 0 where there is none.
float LargestElement(GgmlValues x);
// The first least one, and the range over `levels`, both in f32; NaN is skipped.
float LeastElement(GgmlValues x);
float RangeStep(GgmlValues x, float levels);
// x toward zero, at most `highest`; 0 of what is not finite.
uint8_t TruncatedCode(float x, int highest);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_GGML_BLOCKS_H_
