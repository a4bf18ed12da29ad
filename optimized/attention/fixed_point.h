// Products of codes in integers, where an instruction adds four products of bytes to 32 bits.
//
// What codes are multiplied with becomes an integer times a step, a power of two common to all that
// are summed: a query's channels of one group of q.k, the weights times scales of one group and one
// block of P.V. The integer has 24 bits and is taken as three bytes from -128 to 127,
//
//   n = b2 2^16 + b1 2^8 + b0,  each sum of bytes times codes exact in 32 bits,
//
// so that nothing is rounded but the integer itself, by half a step (kFixedError), and the sum of
// the three parts where it becomes an f32, twice. The order of the products does not matter, nor do
// those with zero: decode and prefill have the same bits, whatever stands together.
//
// Scales and biases stay out of the sums as in packed_codes.h; in q.k the biases are multiplied with the
// sum of the query's integers, so that the whole of q.k is that of the rounded query.

#ifndef OPTIMIZED_ATTENTION_FIXED_POINT_H_
#define OPTIMIZED_ATTENTION_FIXED_POINT_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "optimized/attention/block.h"
#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// An integer's distance from what it stands for, relative to the largest of its group.
inline constexpr double kFixedError = 0x1.02p-23;
// The roundings of a sum of products: of the parts of 16 bits, and with the upper one.
inline constexpr int kFixedRoundings = 2;
// b0, b1, b2.
inline constexpr int64_t kFixedParts = 3;
// Codes that are multiplied by one instruction in each lane.
inline constexpr int64_t kFixedCodes = 4;

// Channel of byte `byte` of word `word` of a key's codes: words of bytes as they are stored; of
// codes of four bits the lower ones of a stored word, then the upper ones.
constexpr int64_t FixedChannel(int plane_bits, int64_t word, int64_t byte) {
  return plane_bits == 8 ? kFixedCodes * word + byte
                         : 2 * kFixedCodes * (word / 2) + 2 * byte + word % 2;
}

// What numbers become integers by: n is x times `lift` times `inverse`, to nearest, and stands for
// n times `step`. All three are powers of two.
struct FixedStep {
  float lift;  // of numbers so small that the inverse of their step is none
  float inverse;
  float step;  // 2^-149 at least: then no number is rounded; NaN: not all of them are finite
};
// The largest integer of three parts.
inline constexpr int32_t kFixedMost = 0x7f7f7f;
// Of numbers of which `largest` is the largest in size; NaN where there is one among them. None of
// the integers is above kFixedMost in size.
inline FixedStep FixedStepOf(float largest) {
  constexpr uint32_t kInfinite = 0x7f800000;
  constexpr uint32_t kLeast = 127 - 49 + 22;  // lifted: of 2^-149
  if (std::bit_cast<uint32_t>(largest) >= kInfinite) {
    return {1, 1, std::numeric_limits<float>::quiet_NaN()};
  }
  if (largest == 0) return {1, 1, 1};
  const bool tiny = largest < 0x1p-100f;
  const float lift = tiny ? 0x1p100f : 1;
  uint32_t exponent = std::bit_cast<uint32_t>(largest * lift * 0x1.018p0f) >> 23;
  if (tiny) exponent = std::max(exponent, kLeast);
  return {lift, std::bit_cast<float>((276 - exponent) << 23),
          std::bit_cast<float>((exponent - 22) << 23) * (tiny ? 0x1p-100f : 1)};
}

// b0, b1 and b2 of an integer, b0 lowest: each 128 more, as what is left of the ones below it, and
// then its sign turned over.
constexpr uint32_t FixedBytes(int32_t n) {
  return (static_cast<uint32_t>(n) + 0x808080u) ^ 0x808080u;
}

// Queries as the kernels take them, four rows (kQuad) together. As words: of each four channels,
// in the order of FixedChannel, the parts of row 0, of row 1, ...; then, as floats, of each group
// the sum of each row, and of each group the step of each row. A multiple of 16.
constexpr int64_t FixedSums(int64_t dim) { return kQuad * kFixedParts * dim / kFixedCodes; }
constexpr int64_t FixedSteps(int64_t dim, int64_t group) {
  return FixedSums(dim) + kQuad * PaddedDim(dim / group);
}
constexpr int64_t FixedQuadFloats(int64_t dim, int64_t group) {
  return FixedSteps(dim, group) + kQuad * PaddedDim(dim / group);
}
// Writes row `row` (0 to 3) of them. Shapes: q (dim).
void ArrangeFixedQuery(const AffineFormat& format, const float* q, int64_t dim, int64_t row,
                       float* quad);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_FIXED_POINT_H_
