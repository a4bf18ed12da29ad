// What a tile's worker fetches ahead (Fetching).

#include "optimized/attention/processor_caches.h"
#include "optimized/attention/tile_worker.h"

namespace kvcheck::optimized {

// Of the columns from `first` to `end`, counted from the block's first one. Where heads stand
// together, each tile fetches some tokens for all of them: memory as it lies.
void TileWorker::NameAhead(const StoredHeads& of, const BlockStage& stage, int64_t first,
                           int64_t end, bool far, const Share& share, AheadRows* rows) const {
  int64_t head = tile_->kv_head;
  int64_t count = end - first;
  int64_t bytes = stage.row_bytes();
  if (share.parts > 1 && of.code_head_stride == bytes) {
    const int64_t before = count * share.part / share.parts;
    count = count * (share.part + 1) / share.parts - before;
    first += before;
    head -= share.part;
    bytes *= share.parts;
  }
  BlockStage::TakeAhead({of, head, first, count, bytes, far}, seen_.columns[0], rows);
}

bool TileWorker::FetchesHalves(const TileShape& shape) const {
  switch (shape.kernels.fetching) {
    case Fetching::kHalves:
      return true;
    case Fetching::kTwoLevels:
      return false;
    case Fetching::kBySize:
      return kBlockTokens * (k_.row_bytes() + v_.row_bytes()) <= FirstCacheBytes();
  }
  return true;
}

void TileWorker::NameAheadOfScores(const TileShape& shape, const Share& share) {
  const SequenceQueries& from = *tile_->sequence;
  const int64_t count = seen_.count;
  const int64_t next = kBlockTokens;
  AheadRows* rows = k_.rows().ahead;
  if (FetchesHalves(shape)) {
    NameAhead(from.v, v_, count / 2, count, false, share, rows);
    NameAhead(from.k, k_, next, next + count / 2, false, share, rows + 1);
  } else {
    NameAhead(from.k, k_, next, next + count, true, share, rows);
    NameAhead(from.v, v_, 0, count, false, share, rows + 1);
  }
}

void TileWorker::NameAheadOfSums(const TileShape& shape, const Share& share) {
  const SequenceQueries& from = *tile_->sequence;
  const int64_t next = kBlockTokens;
  const int64_t half = next + seen_.count / 2;
  const int64_t end = next + seen_.count;
  AheadRows* rows = v_.rows().ahead;
  if (FetchesHalves(shape)) {
    NameAhead(from.k, k_, half, end, false, share, rows);
    NameAhead(from.v, v_, next, half, false, share, rows + 1);
  } else {
    NameAhead(from.v, v_, next, end, true, share, rows);
    NameAhead(from.k, k_, next, end, false, share, rows + 1);
  }
}

void TileWorker::NameValuesOfThis(const Share& share, AheadRows* rows) const {
  NameAhead(tile_->sequence->v, v_, 0, seen_.count, true, share, rows);
}

void TileWorker::NameKeysOfNext(const Share& share, AheadRows* rows) const {
  NameAhead(tile_->sequence->k, k_, kBlockTokens, kBlockTokens + seen_.count, true, share, rows);
}

}  // namespace kvcheck::optimized
