// The merge of split-KV: partial results of a tile's splits become outputs.

#ifndef OPTIMIZED_ATTENTION_MERGE_SPLITS_H_
#define OPTIMIZED_ATTENTION_MERGE_SPLITS_H_

#include "optimized/attention/tile.h"

namespace kvcheck::optimized {

// Merges splits in order, adds the sink, divides, rotates back from the basis of V, and writes out
// and lse.
void MergeSplits(const TileShape& shape, const Tile& tile);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_MERGE_SPLITS_H_
