// Affine group quantization as MLX defines it: codes c in 0..n, n = 2^bits - 1, value c S + B, one
// scale S and one bias B for every group of consecutive channels. What the encoder does in f32 is
// written here one IEEE operation at a time, so that codes, scales and biases agree bit for bit;
// the decoder comes in the three roundings that a profile can declare.
//
// Characteristics: the grid always contains zero, at an integer code, and the end of the range with
// the larger magnitude; the other end may clamp up to one step short. Error: error_bound.h.
// Layout: element k of a row occupies bits [k bits, (k + 1) bits) of one contiguous LSB-first
// stream of little-endian u32 words. A group of 32 fills whole words: words never cross groups.
//
// Source: formats.md, section A; MLX 0.32.4, CPU backend (mlx_cpu) and the text of its Metal and
// CUDA kernels (mlx_gpu). The encoder of KIVI, which writes the same planes, is in group_codes.h.

#ifndef REFERENCE_FORMATS_AFFINE_H_
#define REFERENCE_FORMATS_AFFINE_H_

#include <cstdint>
#include <span>

#include "reference/spec/dtype.h"
#include "reference/spec/profile.h"

namespace kvcheck {

// words.size() * 32 == codes.size() * bits. Codes above 2^bits - 1 are a bug of the caller.
void PackCodes(std::span<const uint8_t> codes, int bits, std::span<uint32_t> words);
void UnpackCodes(std::span<const uint32_t> words, int bits, std::span<uint8_t> codes);

// The floor of the encoder's step: 1e-7 in f32.
inline constexpr float kAffineSmallestStep = 1e-7f;

// Scale and bias of a group in f32, before they are stored in the scale type.
struct AffineGroup {
  float scale = 0;
  float bias = 0;
};

// Definition, every step one f32 operation:
//   mx, mn = largest and smallest of the group, NaN skipped (mlx_gpu: mx starts at 0)
//   s = max((mx - mn) / n, 1e-7);  edge = mn if |mn| > |mx|, else edge = mx and s = -s
//   k = round(edge / s);  if k != 0: s = edge / k, bias = edge; else bias = 0
//   c = clamp(round((x - bias) / s), 0, n)       (mlx_gpu: no clamp at 0)
// with round to even (mlx_gpu: half away from zero). A code without a value (NaN) becomes 0.
// Precondition: encoder is one of MLX.
AffineGroup EncodeAffineGroup(int bits, AffineEncoder encoder, std::span<const float> x,
                              std::span<uint8_t> codes);

// The real number c S + B as an unevaluated sum of two doubles, exact for S and B of f32, f16 or
// bf16; lo is 0 when hi is not finite.
struct ExactValue {
  double hi = 0;
  double lo = 0;
};
ExactValue AffineValue(uint8_t code, double scale, double bias);

// The real number hi + lo rounded once, to nearest even.
double RoundExact(DType dtype, ExactValue value);

// c S + B in the row type.
// Definition: kTwoRoundings rnd(rnd(c S) + B); kOneRounding rnd(c S + B). kExact has no value in
// the row type of its own: a row written out under it is rounded once.
void DecodeAffineGroup(DecodeRounding rounding, DType dtype, std::span<const uint8_t> codes,
                       double scale, double bias, std::span<double> out);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_AFFINE_H_
