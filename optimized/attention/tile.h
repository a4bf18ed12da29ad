// Up to 256 queries of one sequence and one key/value head, over ranges of positions: what one
// worker does at a time.

#ifndef OPTIMIZED_ATTENTION_TILE_H_
#define OPTIMIZED_ATTENTION_TILE_H_

#include <cstdint>

#include "optimized/attention/attention.h"
#include "optimized/attention/kernels.h"

namespace kvcheck::optimized {

inline constexpr int64_t kMostTileRows = 256;
// From this many queries on a block is widened once for all of them.
inline constexpr int64_t kWidenFrom = 16;

// Row r of a key/value head is query r / group of the head's r % group -th query head.
struct Tile {
  const SequenceQueries* sequence = nullptr;
  int64_t kv_head = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_range = 0;  // that some query may see; nothing before it
  int64_t ranges = 0;       // from first_range on
  float* partials = nullptr;

  // Whether a block is widened for it; then sums of codes keep the order of channels.
  bool Widens() const { return rows >= kWidenFrom; }
};

// Whether kernels get the values of a block, decoded into the cache, and not the rows as stored.
bool IsDecoded(const KvFormat& format);

// Whether scales and biases of codes stay out of the sums.
bool IsFactored(const AttentionShape& shape, const AttentionKernels& kernels);

// Of the calls with one shape.
struct TileShape {
  TileShape(const AttentionShape& shape, const AttentionKernels& kernels);

  // Rows of a tile in memory: whole groups of four, or one.
  static int64_t PaddedRows(int64_t rows) {
    return rows == 1 ? 1 : (rows + kQuad - 1) / kQuad * kQuad;
  }
  // Floats of one range's partial result: sums (rows, padded v_dim), shifts and totals (rows).
  int64_t PartialFloats(int64_t rows) const {
    const int64_t padded = PaddedRows(rows);
    return padded * v_padded + 2 * PaddedDim(padded);
  }

  // Whether what so many queries have in memory, read again for every block of keys, fits half of
  // the second cache: themselves, scores, sums.
  bool FitsSecondCache(int64_t rows) const;

  const AttentionShape& shape;
  const AttentionKernels& kernels;
  int64_t group;  // query heads of a key/value head
  // Codes plane by plane, scales and biases out of the sums; null: by channel.
  const AffineFormat* k_planes = nullptr;
  const AffineFormat* v_planes = nullptr;
  int64_t k_padded, v_padded;  // floats of a query and of an output
  float scale, softcap;        // softcap 0: none
};

// What row `row` of a tile is, counted from its first one.
struct RowPlace {
  int64_t head;
  int64_t query;
};
RowPlace PlaceOf(const TileShape& shape, const Tile& tile, int64_t row);
// The keys that it sees.
const VisibleKeys& VisibleOf(const Tile& tile, const RowPlace& place);

// Sets the ranges of a tile whose other members are there.
void FindRanges(const TileShape& shape, Tile* tile);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_TILE_H_
