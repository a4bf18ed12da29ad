// K transposed, one key per SIMD lane, so that q.k needs no horizontal sum.
//
// Row-major, a dot product of N lanes is N partial sums and a horizontal sum. Transposed, a vector
// holds one channel of N keys, and the N partial sums are made one after the other: the same
// products in the same order, hence the same bits. Codes are always transposed, and summed in the
// order of channels (packed_codes.h).
//
// As GEMM packs its operand, K is cut into panels of two vectors of keys
// (AttentionKernels::panel_keys); the micro-kernel takes a panel and four queries.

#ifndef OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_H_
#define OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_H_

#include <cstdint>

#include "optimized/attention/block.h"

namespace kvcheck::optimized {

// Transposes four queries for it: transposed[j][m][h] = q[h][m lanes + j].
// Shapes: q (4, dim) at `stride`, dim a multiple of `lanes`; transposed (lanes, dim / lanes, 4).
void TransposeQueries(const float* q, int64_t stride, int64_t dim, int64_t lanes,
                      float* transposed);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_H_
