// A tile's work, split by split and block by block. A split leaves a partial result per query; the
// partial results are merged in order, by whichever worker finishes last.

#ifndef OPTIMIZED_ATTENTION_TILE_WORKER_H_
#define OPTIMIZED_ATTENTION_TILE_WORKER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/attention/block_stage.h"
#include "optimized/attention/head_group_scales.h"
#include "optimized/attention/kernels.h"
#include "optimized/attention/tile.h"

namespace kvcheck::optimized {

// One worker's state for one tile at a time; keeps its memory.
class TileWorker {
 public:
  void Start(const TileShape& shape);
  // Writes the partial results of one split, 0 to splits - 1, of the tiles of a head group, one
  // worker each, in lockstep: in token-major layouts memory is then read in address order.
  static void RunSplit(const TileShape& shape, std::span<const Tile> tiles, int64_t split,
                       std::span<TileWorker> workers);
  // All splits, and their merge.
  void RunTile(const TileShape& shape, const Tile& tile);
  // A buffer for tiles whose partial results no other worker needs.
  float* Partials(int64_t floats);

 private:
  struct Row {
    const VisibleKeys* visible;
    const float* bias;  // of position 0; null: none
    float slope;        // of ALiBi
    int64_t position;   // of the query
  };
  // Partial result of a split.
  struct Partial {
    float* sums = nullptr;
    float* shifts = nullptr;
    float* totals = nullptr;
  };
  // What the rows of the tile see of a block.
  struct BlockMask {
    uint64_t words[kMaxTileRows];  // by row: the bits of visible positions
    uint64_t any;                  // their union; 0: the block is skipped
    bool whole = false;            // every row sees the whole block; words, counts, most are set
    bool reads_keys;               // some row is not uniform
    int64_t columns[kBlockTokens], count;  // of `any`
    bool contiguous;                       // columns[0], columns[0] + 1, ...
    // Every row sees a prefix of the columns: DotKeysInL1 and SumChannelSlices. Then the lengths of
    // the prefixes, by row, and their maximum, by quad.
    bool prefixes;
    int64_t counts[kMaxTileRows], most[kMaxTileRows / kQuad];
  };
  // The place of a tile in its head group.
  struct GroupPlace {
    int64_t index = 0, size = 1;
    // Tokens of a block that this tile prefetches, for all heads of the group.
    int64_t prefetch_from = 0, prefetch_end = kBlockTokens;
    const HeadGroupScales* scales = nullptr;  // K's or V's; null: a tile alone
  };

  void LoadQueries(const TileShape& shape, const Tile& tile);
  void BeginSplit(const TileShape& shape, const Tile& tile, int64_t split, const GroupPlace& place);
  // The steps of a block: mask, scores and softmax, P.V.
  void MaskBlock(int64_t block);
  void MaskWholeBlock(int64_t block);
  void ScoreBlock(const TileShape& shape, int64_t block);
  void SumBlock(const TileShape& shape);
  // The same of a tile that widens blocks.
  void ScoreWidened(const TileShape& shape, int64_t block);
  void SumWidened(const TileShape& shape);

  // Prefetch (tile_prefetch.cc), by the kernel of the first queries of a block.
  void SetPrefetch(const StoredHeads& of, const BlockStage& stage, int64_t first, int64_t end,
                   bool to_l2, PrefetchRows* rows) const;
  bool PrefetchesHalfBlocks(const TileShape& shape) const;
  void PrefetchDuringScores(const TileShape& shape);
  void PrefetchDuringSums(const TileShape& shape);
  // Of a tile that widens blocks, into L2, a part for each quad.
  void PrefetchValues(PrefetchRows* rows) const;
  void PrefetchNextKeys(PrefetchRows* rows) const;

  // visit(row, width): quads whose rows see the same, other rows one by one.
  template <class Visit>
  void ForEachQuad(Visit visit);
  Queries QueriesOf(const TileShape& shape, int64_t row) const;
  // q.k, softmax and P.V of `width` rows from `row` on, which see `places` of the block.
  void Dot(const TileShape& shape, int64_t row, int width, uint64_t any, uint64_t places);
  void Softmax(const TileShape& shape, int64_t row, int width, int64_t block, uint64_t places);
  void Sum(const TileShape& shape, int64_t row, int width, uint64_t any, uint64_t places);
  // Cache blocking where all rows see prefixes: keys, or channels of V, that stay in L1 for all
  // rows.
  void DotKeysInL1(const TileShape& shape, const PrefetchRows (&prefetch)[2]);
  void SumChannelSlices(const TileShape& shape, const PrefetchRows (&prefetch)[2]);
  void DotRows(const TileShape& shape, int64_t row, int64_t width, const BlockRows& keys,
               float* scores);
  void SumRows(const TileShape& shape, int64_t row, int64_t width, const BlockRows& values,
               int64_t channel);
  int64_t Quads() const { return (tile_->rows + kQuad - 1) / kQuad; }
  bool IsUniform(int64_t row) const { return rows_[static_cast<size_t>(row)].visible->uniform; }
  const float* Bias(int64_t row, int width, int64_t block, uint64_t places);

  // Transposes the block's scales of K or V for the head group, of which this is the first tile.
  void TransposeScales(const TileShape& shape, const StoredHeads& from, const BlockStage& stage);
  HeadGroupScales::Head Scales() const {
    return head_group_.scales == nullptr ? HeadGroupScales::Head{}
                                         : head_group_.scales->Of(head_group_.index);
  }

  BlockStage k_, v_;
  HeadGroupScales head_group_scales_;  // of the whole group, in its first tile
  SelectedRows selected_;
  std::vector<Row> rows_;
  const Tile* tile_ = nullptr;  // whose queries are in queries_
  BlockSpan span_;              // blocks that some row touches
  WholeSpan whole_;             // blocks that every row sees whole
  BlockMask mask_;
  Partial partial_;
  GroupPlace head_group_;
  std::vector<float> memory_;  // of the arrays below
  bool in_place_ = false;      // Queries::in_place
  bool transposes_k_ = false;
  float* queries_ = nullptr;       // (rows, padded k_dim)
  float* q_transposed_ = nullptr;  // (rows, padded k_dim), by quad (transposed_keys.h)
  float* scores_ = nullptr;        // (rows, kBlockTokens)
  float* rescale_ = nullptr;       // (rows)
  float* bias_ = nullptr;          // (kQuad, kBlockTokens)
  std::vector<float> partials_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_TILE_WORKER_H_
