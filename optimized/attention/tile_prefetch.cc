// What a tile prefetches, and how far ahead (PrefetchPolicy).
//
//   policy      during q.k                                  during P.V
//   kHalfBlocks L1: 2nd half of V, 1st half of next K       L1: 2nd half of next K, 1st of next V
//   kTwoLevels  L2: next K; L1: V                           L2: next V; L1: next K
//   kBySize     kHalfBlocks where K and V of a block fit L1, else kTwoLevels
//
// Tiles that widen blocks (prefill) prefetch into L2: V during q.k, the next K during P.V.

#include <algorithm>

#include "optimized/attention/cache_sizes.h"
#include "optimized/attention/prefetcher.h"
#include "optimized/attention/tile_worker.h"

namespace kvcheck::optimized {
namespace {

// Scales of `count` tokens, line by line.
void PrefetchScales(const std::byte* scales, int64_t stride, int64_t count) {
  const int64_t every = std::max<int64_t>(1, kLineBytes / stride);
  for (int64_t i = 0; i < count; i += every) {
    // The address may lie outside of every allocation: it is never dereferenced.
    PrefetchLine(reinterpret_cast<uintptr_t>(scales) + static_cast<uintptr_t>(i * stride), false);
  }
}

const std::byte* After(const std::byte* from, int64_t bytes) {
  return reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(from) +
                                            static_cast<uintptr_t>(bytes));
}

}  // namespace

// Columns `first` to `end`, counted from the block's first one. In a head group whose rows adjoin
// each tile prefetches its share of the tokens for all heads, in address order. Scales are
// prefetched here and now: few bytes a token, which no kernel prefetches.
void TileWorker::SetPrefetch(const StoredHeads& of, const BlockStage& stage, int64_t first,
                             int64_t end, bool to_l2, PrefetchRows* rows) const {
  int64_t head = tile_->kv_head;
  int64_t count = end - first;
  int64_t bytes = stage.row_bytes();
  if (head_group_.size > 1 && of.code_head_stride == bytes) {
    const int64_t before = count * head_group_.prefetch_from / kBlockTokens;
    count = count * head_group_.prefetch_end / kBlockTokens - before;
    first += before;
    head -= head_group_.index;
    bytes *= head_group_.size;
  }
  const int64_t column = mask_.columns[0] + first;
  // Field by field: copying the struct would fail store forwarding.
  rows->from = After(of.codes, head * of.code_head_stride + column * of.code_stride);
  rows->stride = of.code_stride;
  rows->bytes = bytes;
  rows->count = count;
  rows->to_l2 = to_l2;
  if (of.scales == nullptr || of.scale_stride <= 0) return;
  const int64_t offset = head * of.scale_head_stride + column * of.scale_stride;
  PrefetchScales(After(of.scales, offset), of.scale_stride, count);
  if (of.biases != nullptr) PrefetchScales(After(of.biases, offset), of.scale_stride, count);
}

bool TileWorker::PrefetchesHalfBlocks(const TileShape& shape) const {
  switch (shape.kernels.prefetch) {
    case PrefetchPolicy::kHalfBlocks:
      return true;
    case PrefetchPolicy::kTwoLevels:
      return false;
    case PrefetchPolicy::kBySize:
      return kBlockTokens * (k_.row_bytes() + v_.row_bytes()) <= L1Bytes();
  }
  return true;
}

void TileWorker::PrefetchDuringScores(const TileShape& shape) {
  const SequenceQueries& from = *tile_->sequence;
  const int64_t count = mask_.count;
  const int64_t next = kBlockTokens;
  PrefetchRows* rows = k_.rows().prefetch;
  if (PrefetchesHalfBlocks(shape)) {
    SetPrefetch(from.v, v_, count / 2, count, false, rows);
    SetPrefetch(from.k, k_, next, next + count / 2, false, rows + 1);
  } else {
    SetPrefetch(from.k, k_, next, next + count, true, rows);
    SetPrefetch(from.v, v_, 0, count, false, rows + 1);
  }
}

void TileWorker::PrefetchDuringSums(const TileShape& shape) {
  const SequenceQueries& from = *tile_->sequence;
  const int64_t next = kBlockTokens;
  const int64_t half = next + mask_.count / 2;
  const int64_t end = next + mask_.count;
  PrefetchRows* rows = v_.rows().prefetch;
  if (PrefetchesHalfBlocks(shape)) {
    SetPrefetch(from.k, k_, half, end, false, rows);
    SetPrefetch(from.v, v_, next, half, false, rows + 1);
  } else {
    SetPrefetch(from.v, v_, next, end, true, rows);
    SetPrefetch(from.k, k_, next, end, false, rows + 1);
  }
}

void TileWorker::PrefetchValues(PrefetchRows* rows) const {
  SetPrefetch(tile_->sequence->v, v_, 0, mask_.count, true, rows);
}

void TileWorker::PrefetchNextKeys(PrefetchRows* rows) const {
  SetPrefetch(tile_->sequence->k, k_, kBlockTokens, kBlockTokens + mask_.count, true, rows);
}

}  // namespace kvcheck::optimized
