// Factored sums over packed codes: codes are not unpacked, scales and biases stay out of the sums.
// Targets that multiply bytes (VNNI) do the same in integers (fixed_point.h).
//
// A 32-bit word holds P = 32 / bits codes, its bit fields. Field k of a vector of words is one mask
// away: left in place it is c 2^(bits k), an integer that f32 holds exactly. The other factor is
// divided by 2^(bits k), which is exact unless it is tiny; then the codes are shifted down instead,
// with the same bits.
//
//   P.V   a chunk of 8 words in field order: channel P j + k in lane j of field k. Vectors of
//         sixteen lanes take two chunks, whose groups may differ; a last chunk goes alone.
//   q.k   K transposed by words (transposed_keys.h): channel P j + k of N keys is field k of their
//         words j.
//
// Factored, with scale s and bias z of group g:
//
//   q.k = sum_g s_g (sum of q_i c_i over the group) + sum_g z_g (sum of q_i over the group)
//   P.V = sum_j fl(p_j s_jg) c_j + sum_j p_j z_jg
//
// which leaves a mask, a conversion and the FMAs per value.

#ifndef OPTIMIZED_ATTENTION_PACKED_CODES_H_
#define OPTIMIZED_ATTENTION_PACKED_CODES_H_

#include <cstdint>

#include "optimized/attention/block.h"
#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// Words of a chunk.
inline constexpr int64_t kChunkWords = 8;

// Bits of a code in a word: 4, or 8 for every other width (unpacked to bytes before).
constexpr int PackedBits(int bits) { return bits == 4 ? 4 : 8; }

// Channels of a chunk of kChunkWords words.
constexpr int64_t PackedChunk(int bits) { return kChunkWords * 32 / PackedBits(bits); }

// Whether groups are whole chunks, as factored sums require.
constexpr bool CanFactor(const AffineFormat& format) {
  return format.group_size % PackedChunk(format.bits) == 0;
}

// The channel at place `at` of a row of `dim` channels in field order, for vectors of `lanes`
// lanes.
constexpr int64_t PackedChannel(int bits, int64_t lanes, int64_t dim, int64_t at) {
  const int64_t fields = 32 / PackedBits(bits);
  const int64_t first = at / (lanes * fields) * (lanes * fields);
  const int64_t of = first + lanes * fields <= dim ? lanes : kChunkWords;
  return first + (at - first) % of * fields + (at - first) / of;
}

// The shift of a field left in place. The last one, which reaches the sign bit, is always shifted
// down.
constexpr int FieldShift(int bits, int64_t field) {
  return field + 1 == 32 / bits ? 0 : bits * static_cast<int>(field);
}

// Whether every number can be divided by 2^FieldShift of every field exactly.
bool CanPrescale(const float* q, int64_t count);

// A group's sum of q_i c_i: sequential runs of so many channels, added in a pairwise tree.
inline constexpr int64_t kGroupRun = 32;
inline constexpr int64_t kMaxGroup = 128;
inline constexpr int64_t kTreeDepth = 2;  // log2(kMaxGroup / kGroupRun)

// Four queries (a quad) as the packed kernels read them: (dim, kQuad) channels, then (groups,
// kQuad) sums of each group. Floats of a quad, a multiple of 16.
constexpr int64_t PackedQuadFloats(int64_t dim, int64_t group) {
  return kQuad * (dim + PaddedDim(dim / group));
}
// Writes row `row` (0 to 3) of a quad. scaled: divided by 2^FieldShift. Shapes: q (dim).
void PackQuery(const AffineFormat& format, const float* q, int64_t dim, bool scaled, int64_t row,
               float* quad);

// From field order to channel order, in place. Shapes: row (dim).
void RestoreChannelOrder(int bits, int64_t lanes, int64_t dim, float* row);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_PACKED_CODES_H_
