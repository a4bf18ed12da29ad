// Codes without unpacking them: planes. Instruction sets that multiply bytes take the same blocks
// in another way (fixed_point.h), with the same scales and biases out of the sums.
//
// Eight words of 32 bits in a row hold 8 P codes of 32 / P bits, P in each. Plane k of them is the
// k-th code of each word: one mask away, and left where it is, c 2^(bits k), an integer that f32
// holds exactly. For P.V the channels of a chunk of 8 P are taken plane by plane, channel P j + k
// in lane j of plane k; vectors of sixteen lanes take two chunks, lanes 8 to 15 the second one, of
// which groups may differ, and a last one by itself. For q.k keys are turned about word by word
// (transposed_keys.h): channel P j + k of N keys is plane k of their words j. What codes are multiplied
// with is divided by 2^(bits k), which is exact unless a number is tiny: then the codes are shifted
// down instead, with the same bits.
//
// Scales and biases stay out of the sums (`factored`): with s and z of group g
//
//   q.k = sum_g s_g (sum of q_i c_i over the group) + sum_g z_g (sum of q_i over the group)
//   P.V = sum_j fl(p_j s_jg) c_j + sum_j p_j z_jg
//
// Per value that leaves a mask, a conversion and the products with the queries.

#ifndef OPTIMIZED_ATTENTION_PACKED_CODES_H_
#define OPTIMIZED_ATTENTION_PACKED_CODES_H_

#include <cstdint>

#include "optimized/attention/block.h"
#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// Words of a chunk.
inline constexpr int64_t kChunkWords = 8;

// Bits of a code as kernels meet it: 4, or 8 for every other width.
constexpr int PlaneBits(int bits) { return bits == 4 ? 4 : 8; }

// Channels of a chunk.
constexpr int64_t PlaneChunk(int bits) { return kChunkWords * 32 / PlaneBits(bits); }

// Whether vectors can be taken plane by plane: groups are whole chunks.
constexpr bool HavePlanes(const AffineFormat& format) {
  return format.group_size % PlaneChunk(format.bits) == 0;
}

// The channel at place `at` of a vector of `dim` channels that is laid out plane by plane for
// vectors of `lanes` lanes.
constexpr int64_t PlaneChannel(int bits, int64_t lanes, int64_t dim, int64_t at) {
  const int64_t planes = 32 / PlaneBits(bits);
  const int64_t first = at / (lanes * planes) * (lanes * planes);
  const int64_t of = first + lanes * planes <= dim ? lanes : kChunkWords;
  return first + (at - first) % of * planes + (at - first) / of;
}

// Where a code of a plane stands that is not shifted: bits above the lowest one. The last plane,
// whose codes reach the sign of a word, is always shifted down.
constexpr int PlaneShift(int bits, int64_t plane) {
  return plane + 1 == 32 / bits ? 0 : bits * static_cast<int>(plane);
}

// Whether dividing by the powers of two of all planes loses nothing of any of the numbers.
bool FitPlanes(const float* q, int64_t count);

// A group's sum of q_i c_i is made in runs of so many channels, one after the other from zero, and
// the runs are added as a tree.
inline constexpr int64_t kPlaneRun = 32;
inline constexpr int64_t kMostGroup = 128;
inline constexpr int64_t kMostTree = 2;  // steps of it

// Queries as the kernels of planes take them, four rows (kQuad) together: channel 0 of each row,
// channel 1 of each; then the sums of each row's first group, of its second.
// Floats of four rows, a multiple of 16.
constexpr int64_t PlaneQuadFloats(int64_t dim, int64_t group) {
  return kQuad * (dim + PaddedDim(dim / group));
}
// Writes row `row` (0 to 3) of them. scaled: divided by the powers of two. Shapes: q (dim).
void ArrangeQuery(const AffineFormat& format, const float* q, int64_t dim, bool scaled, int64_t row,
                  float* quad);

// From the order of planes to that of channels, in place. Shapes: row (dim).
void RestoreChannels(int bits, int64_t lanes, int64_t dim, float* row);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_PACKED_CODES_H_
