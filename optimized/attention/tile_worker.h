// What one worker computes of a tile, range by range and block by block. A range leaves a partial
// result per query, and the partial results are merged in order, by whichever worker finishes last.

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

// What one worker needs; keeps its memory.
class TileWorker {
 public:
  void Start(const TileShape& shape);
  // Writes the partial results of one range, 0 to ranges - 1, of tiles that have the same ranges, a
  // worker each, block by block: where the heads of a token stand together, memory is read as it
  // lies.
  static void RunRanges(const TileShape& shape, std::span<const Tile> tiles, int64_t range,
                        std::span<TileWorker> workers);
  // All ranges, and their merge.
  void RunTile(const TileShape& shape, const Tile& tile);
  // For tiles whose partial results no other worker needs.
  float* Partials(int64_t floats);

 private:
  struct Row {
    const VisibleKeys* visible;
    const float* bias;  // of position 0; null: none
    float slope;        // of ALiBi
    int64_t position;   // of the query
  };
  struct Partial {
    float* sums = nullptr;
    float* shifts = nullptr;
    float* totals = nullptr;
  };
  // What of a block a tile's rows see.
  struct Seen {
    uint64_t words[kMostTileRows];  // by row: the bits of visible positions
    uint64_t any;                   // by some row; 0: nothing
    bool whole = false;             // words, counts and most are those of a block seen whole by all
    bool reads_keys;                // not all rows weigh them alike
    int64_t columns[kBlockTokens], count;
    bool together;  // the columns stand one after the other
    // Where by_parts: of the columns, as many as a row sees, and most of four.
    int64_t counts[kMostTileRows], most[kMostTileRows / kQuad];
    bool by_parts;  // each row sees the first ones of it: DotByTokens and SumByChannels
  };
  // One tile of several that go together.
  struct Share {
    int64_t part = 0, parts = 1;
    int64_t from = 0, end = kBlockTokens;  // of a block's tokens, which it fetches for all
    const HeadScales* scales = nullptr;    // of all parts, K's or V's; null: a tile alone
  };

  void TakeRows(const TileShape& shape, const Tile& tile);
  void BeginRange(const TileShape& shape, const Tile& tile, int64_t range, const Share& share);
  // The tile's next block: what is seen of it; scores; and P.V.
  void SeeBlock(int64_t block);
  void SeeWholeBlock(int64_t block);
  void ScoreBlock(const TileShape& shape, int64_t block);
  void SumBlock(const TileShape& shape);
  // What is left of these two for a tile that widens.
  void ScoreMany(const TileShape& shape, int64_t block);
  void SumMany(const TileShape& shape);
  void NameAhead(const StoredHeads& of, const BlockStage& stage, int64_t first, int64_t end,
                 bool far, AheadRows* rows) const;
  bool FetchesHalves(const TileShape& shape) const;  // in place of two levels
  // What the kernel of the first queries fetches (Fetching), while scores are made and during P.V.
  void NameAheadOfScores(const TileShape& shape);
  void NameAheadOfSums(const TileShape& shape);
  // Where a tile widens: what is fetched meanwhile to the second cache, some of it for every four
  // queries.
  void NameValuesOfThis(AheadRows* rows) const;
  void NameKeysOfNext(AheadRows* rows) const;
  template <class Visit>
  void ForEachGroup(Visit visit);
  Queries QueriesOf(const TileShape& shape, int64_t row) const;
  // Of `width` rows from `row` on, which see `places` of the block: dot products, the step of the
  // softmax, P.V.
  void Dot(const TileShape& shape, int64_t row, int width, uint64_t any, uint64_t places);
  void Soften(const TileShape& shape, int64_t row, int width, int64_t block, uint64_t places);
  void Sum(const TileShape& shape, int64_t row, int width, uint64_t any, uint64_t places);
  // The same of all rows of the tile, each of which sees the first ones of a block, part by part.
  void DotByTokens(const TileShape& shape, const AheadRows (&ahead)[2]);
  void SumByChannels(const TileShape& shape, const AheadRows (&ahead)[2]);
  void DotRows(const TileShape& shape, int64_t row, int64_t width, const BlockRows& keys,
               float* scores);
  void SumRows(const TileShape& shape, int64_t row, int64_t width, const BlockRows& values,
               int64_t channel);
  int64_t Quads() const { return (tile_->rows + kQuad - 1) / kQuad; }
  bool IsUniform(int64_t row) const { return rows_[static_cast<size_t>(row)].visible->uniform; }
  const float* Bias(int64_t row, int width, int64_t block, uint64_t places);

  // Of the block's keys or values, for all tiles that go together, of which this is the first.
  void TurnScales(const TileShape& shape, const StoredHeads& from, const BlockStage& stage);
  HeadScales::Head Scales() const {
    return share_.scales == nullptr ? HeadScales::Head{} : share_.scales->Of(share_.part);
  }

  BlockStage k_, v_;
  HeadScales head_scales_;  // of all tiles that go together, the first one's
  SelectedRows selected_;
  std::vector<Row> rows_;
  const Tile* tile_ = nullptr;  // whose queries are in queries_
  BlockSpan span_;              // that they touch
  WholeSpan whole_;             // that they see whole
  Seen seen_;                   // of the block
  Partial partial_;             // of the range that was begun
  Share share_;                 // in the tiles that began it together
  std::vector<float> memory_;   // of what follows, aligned
  bool in_place_ = false;       // Queries::in_place
  bool turns_ = false;          // keys are turned about for the tile
  float* queries_ = nullptr;    // (rows, padded k_dim)
  float* turned_ = nullptr;     // (rows, padded k_dim), as transposed_keys.h says
  float* scores_ = nullptr;     // (rows, 64)
  float* rescale_ = nullptr;    // (rows)
  float* bias_ = nullptr;       // (4, 64)
  std::vector<float> partials_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_TILE_WORKER_H_
