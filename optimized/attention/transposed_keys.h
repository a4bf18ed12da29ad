// q.k with a key in each lane: keys turned about, so that no lanes are left to add up.
//
// A dot product of plain vectors is N sums, one for each lane of a vector of channels, added by
// halves. Turned about, a vector holds one channel of N keys, and the sum of each lane is made by
// itself, one after the other: the same products in the same order, and the same bits. Codes are
// always turned about, and summed in the order of channels (packed_codes.h).
//
// The keys of two vectors stand together (AttentionKernels::turned_keys), and are taken with four
// queries; those of a whole block at once where the first cache holds them.

#ifndef OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_H_
#define OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_H_

#include <cstdint>

#include "optimized/attention/block.h"

namespace kvcheck::optimized {

// Four queries lane by lane: number m of lane j of a group of channels, of all four.
// Shapes: q (4, dim) at `stride`, dim a multiple of `lanes`; turned (lanes, dim / lanes, 4).
void TurnQueries(const float* q, int64_t stride, int64_t dim, int64_t lanes, float* turned);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_H_
