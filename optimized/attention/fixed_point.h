// Factored sums in fixed point, for targets with a dot product of four bytes into 32 bits
// (vpdpbusd, VNNI).
//
// The other factor of the codes becomes an integer times a step, a power of two: a query's channels
// of one group (q.k), or the weights times scales of one group and block (P.V). The integer has 24
// bits, in three signed bytes,
//
//   n = b2 2^16 + b1 2^8 + b0,  each sum of bytes times codes exact in 32 bits,
//
// so that only the integer is rounded, by half a step (kFixedError), and the sum of the three parts
// on its way to f32, twice. Integer sums do not depend on their order: rows are batch-invariant,
// and decode and prefill have the same bits.
//
// Scales and biases stay out of the sums as in packed_codes.h; in q.k the biases are multiplied
// with the sum of the query's integers, so that all of q.k is that of the rounded query.
//
// The instruction takes codes without a sign. Where they stand for signed integers, code - offset,
// sums begin at -offset times the sum of the bytes of the other factor: exact, as if the codes had
// signs.

#ifndef OPTIMIZED_ATTENTION_FIXED_POINT_H_
#define OPTIMIZED_ATTENTION_FIXED_POINT_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>

#include "optimized/attention/block.h"
#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// The rounding error of an integer, relative to the largest number of its group.
inline constexpr double kFixedError = 0x1.02p-23;
// Roundings of a sum: of the two lower parts, and of all three.
inline constexpr int kFixedRoundings = 2;
// b0, b1, b2.
inline constexpr int64_t kFixedParts = 3;
// Codes multiplied by one instruction in each lane.
inline constexpr int64_t kFixedCodes = 4;

// How rows store codes.
enum class FixedLayout : uint8_t {
  kBytes,
  kNibbles,      // channel 2 i below channel 2 i + 1
  kSignedBytes,  // read with the sign bit inverted: 128 more
  kHalves,       // of 32 channels, channel i below channel i + 16
  kTableHalves,  // likewise, of indices into the values of iq4_nl: read as 127 more than these
  kFiveHalves,   // likewise, after a word of the fifth bits of 32 channels
};

// Channel of byte `byte` of word `word` of a key's codes. Nibbles: the low ones of a stored word,
// then the high ones.
constexpr int64_t FixedChannel(FixedLayout layout, int64_t word, int64_t byte) {
  switch (layout) {
    case FixedLayout::kNibbles:
      return 2 * kFixedCodes * (word / 2) + 2 * byte + word % 2;
    case FixedLayout::kHalves:
    case FixedLayout::kTableHalves:
    case FixedLayout::kFiveHalves:
      return 32 * (word / 8) + kFixedCodes * (word % 8 / 2) + byte + 16 * (word % 2);
    case FixedLayout::kBytes:
    case FixedLayout::kSignedBytes:
      break;
  }
  return kFixedCodes * word + byte;
}

// What is read in fixed point of rows of a format: groups of codes, `group_bytes` apart from byte
// `first_code` on, one bias and one scale a group.
struct FixedOperand {
  RowKind kind = RowKind::kFactored8;
  FixedLayout layout = FixedLayout::kBytes;
  int64_t group = 0;  // channels
  int64_t first_code = 0;
  int64_t group_bytes = 0;
  int32_t offset = 0;  // what a code stands for, as an integer, is so much less
  // Blocks of ggml begin with an f16 scale, and go on with an f16 minimum, the bias, where there is
  // one. Else scales and biases lie in planes of their own.
  bool in_blocks = false;
  bool has_biases = true;
};
// nullopt: codes of the format are not read so.
std::optional<FixedOperand> FixedOperandOf(const KvFormat& format);

// n = round(x lift inverse), and stands for n step. All three are powers of two.
struct FixedStep {
  float lift;  // above 1 where 1 / step would overflow
  float inverse;
  float step;  // at least 2^-149, where nothing is rounded; NaN: some number is not finite
};
// The largest integer of three parts.
inline constexpr int32_t kFixedMost = 0x7f7f7f;
// largest: of the absolute values, NaN if one of them is. No integer exceeds kFixedMost in size.
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

// b0, b1 and b2 as bytes, b0 lowest: adding 0x80 to each byte carries the sign, the xor restores
// it.
constexpr uint32_t FixedBytes(int32_t n) {
  return (static_cast<uint32_t>(n) + 0x808080u) ^ 0x808080u;
}

// Four queries (a quad) as the kernels read them: words (groups, 1 + group / 4, kQuad,
// kFixedParts), of each group what its sums begin with and the channels in the order of
// FixedChannel; then floats (groups, kQuad) of sums and (groups, kQuad) of steps. A multiple of 16
// floats.
constexpr int64_t FixedWords(int64_t group) { return 1 + group / kFixedCodes; }
constexpr int64_t FixedSums(int64_t dim, int64_t group) {
  return PaddedDim(kQuad * kFixedParts * (dim / group) * FixedWords(group));
}
constexpr int64_t FixedSteps(int64_t dim, int64_t group) {
  return FixedSums(dim, group) + kQuad * PaddedDim(dim / group);
}
constexpr int64_t FixedQuadFloats(int64_t dim, int64_t group) {
  return FixedSteps(dim, group) + kQuad * PaddedDim(dim / group);
}
// Writes row `row` (0 to 3) of a quad. Shapes: q (dim).
void PackFixedQuery(const FixedOperand& operand, const float* q, int64_t dim, int64_t row,
                    float* quad);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_FIXED_POINT_H_
