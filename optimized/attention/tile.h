// A tile: up to 256 queries of one sequence and one key/value head, and the splits of positions
// that they see.

#ifndef OPTIMIZED_ATTENTION_TILE_H_
#define OPTIMIZED_ATTENTION_TILE_H_

#include <cstdint>
#include <optional>

#include "optimized/attention/attention.h"
#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernels.h"

namespace kvcheck::optimized {

inline constexpr int64_t kMaxTileRows = 256;
// From this many rows on a block is widened once for the whole tile.
inline constexpr int64_t kWidenFrom = 16;

// Row r of a key/value head is query r / group of the head's r % group -th query head.
struct Tile {
  const SequenceQueries* sequence = nullptr;
  int64_t kv_head = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_split = 0;  // the first that some query sees
  int64_t splits = 0;       // from first_split on
  float* partials = nullptr;

  // Whether blocks are widened for it; then sums are in channel order, not in field order.
  bool Widens() const { return rows >= kWidenFrom; }
};

// Whether the kernels multiply decoded values, in registers or in a buffer that stays in cache, in
// place of elements or affine codes.
bool IsDecoded(const KvFormat& format);

// Whether scales and biases of codes stay out of the sums (packed_codes.h), of both operands or of
// the one that has codes.
bool IsFactored(const AttentionShape& shape, const AttentionKernels& kernels);

// What all tiles of a call share.
struct TileShape {
  TileShape(const AttentionShape& shape, const AttentionKernels& kernels);

  // Rows of a tile in memory: whole quads, or one.
  static int64_t PaddedRows(int64_t rows) {
    return rows == 1 ? 1 : (rows + kQuad - 1) / kQuad * kQuad;
  }
  // Floats of one split's partial result: sums (rows, padded v_dim), shifts and totals (rows).
  int64_t PartialFloats(int64_t rows) const {
    const int64_t padded = PaddedRows(rows);
    return padded * v_padded + 2 * PaddedDim(padded);
  }

  // Whether what is read again for every block (queries, scores, sums of so many rows) fits half of
  // L2.
  bool FitsL2(int64_t rows) const;

  const AttentionShape& shape;
  const AttentionKernels& kernels;
  int64_t group;                                // query heads of a key/value head
  bool k_factored = false, v_factored = false;  // which operands are codes, in factored sums
  std::optional<FixedOperand> k_fixed;          // of factored K in fixed point
  // Whether queries are rotated into the basis of K, and sums of V back from its own.
  bool k_in_basis, v_in_basis;
  int64_t k_padded, v_padded;  // floats of a query and of an output
  float scale, softcap;        // softcap 0: none
};

// Query head and query of row `row` of a tile.
struct RowPlace {
  int64_t head;
  int64_t query;
};
RowPlace PlaceOf(const TileShape& shape, const Tile& tile, int64_t row);
// The keys that a row sees.
const VisibleKeys& VisibleOf(const Tile& tile, const RowPlace& place);

// Sets first_split and splits of a tile whose other members are set.
void FindSplits(const TileShape& shape, Tile* tile);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_TILE_H_
