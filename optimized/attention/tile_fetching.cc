// What a tile's worker fetches ahead (Fetching).

#include "optimized/attention/processor_caches.h"
#include "optimized/attention/tile_worker.h"

namespace kvcheck::optimized {

// Of the columns from `first` to `end`, counted from the block's first one. Where heads stand
// together, each tile fetches some tokens for all of them: memory as it lies.
BlockStage::Ahead TileWorker::AheadOf(const StoredHeads& of, const BlockStage& stage, int64_t first,
                                      int64_t end, const Share& share) const {
  const int64_t bytes = stage.row_bytes();
  const int64_t count = end - first;
  if (share.parts == 1 || of.code_head_stride != bytes) {
    return {&of, tile_->kv_head, first, count, bytes};
  }
  const int64_t before = count * share.part / share.parts;
  const int64_t after = count * (share.part + 1) / share.parts;
  return {&of, tile_->kv_head - share.part, first + before, after - before, bytes * share.parts};
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

AheadRows TileWorker::ValuesOfThis(const Share& share) const {
  BlockStage::Ahead values = AheadOf(tile_->sequence->v, v_, 0, seen_.count, share);
  values.far = true;
  return BlockStage::TakeAhead(values, seen_.columns[0]);
}

AheadRows TileWorker::KeysOfNext(const Share& share) const {
  if (!seen_.reads_keys) return {};
  BlockStage::Ahead keys =
      AheadOf(tile_->sequence->k, k_, kBlockTokens, kBlockTokens + seen_.count, share);
  keys.far = true;
  return BlockStage::TakeAhead(keys, seen_.columns[0]);
}

BlockStage::Aheads TileWorker::AheadOfScores(const TileShape& shape, const Share& share) const {
  if (tile_->Widens()) return {};
  const SequenceQueries& from = *tile_->sequence;
  const int64_t count = seen_.count;
  if (FetchesHalves(shape)) {
    return {AheadOf(from.v, v_, count / 2, count, share),
            AheadOf(from.k, k_, kBlockTokens, kBlockTokens + count / 2, share)};
  }
  BlockStage::Ahead next = AheadOf(from.k, k_, kBlockTokens, kBlockTokens + count, share);
  next.far = true;
  return {next, AheadOf(from.v, v_, 0, count, share)};
}

BlockStage::Aheads TileWorker::AheadOfSums(const TileShape& shape, const Share& share) const {
  if (tile_->Widens() || !seen_.reads_keys) return {};
  const SequenceQueries& from = *tile_->sequence;
  const int64_t count = seen_.count;
  const int64_t half = kBlockTokens + count / 2;
  const int64_t end = kBlockTokens + count;
  if (FetchesHalves(shape)) {
    return {AheadOf(from.k, k_, half, end, share), AheadOf(from.v, v_, kBlockTokens, half, share)};
  }
  BlockStage::Ahead next = AheadOf(from.v, v_, kBlockTokens, end, share);
  next.far = true;
  return {next, AheadOf(from.k, k_, kBlockTokens, end, share)};
}

}  // namespace kvcheck::optimized
