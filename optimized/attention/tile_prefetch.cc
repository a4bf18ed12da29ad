// What a tile's worker fetches ahead (Fetching).

#include <algorithm>

#include "optimized/attention/prefetcher.h"
#include "optimized/attention/cache_sizes.h"
#include "optimized/attention/tile_worker.h"

namespace kvcheck::optimized {
namespace {

// Those of `count` tokens, line by line.
void FetchScales(const std::byte* scales, int64_t stride, int64_t count) {
  const int64_t every = std::max<int64_t>(1, kLineBytes / stride);
  for (int64_t i = 0; i < count; i += every) {
    // An address that may lie outside of everything: it is only fetched.
    FetchLine(reinterpret_cast<uintptr_t>(scales) + static_cast<uintptr_t>(i * stride), false);
  }
}

const std::byte* After(const std::byte* from, int64_t bytes) {
  return reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(from) +
                                            static_cast<uintptr_t>(bytes));
}

}  // namespace

// Of the columns from `first` to `end`, counted from the block's first one; the others follow it
// where they stand together. Where heads stand together, each tile fetches some tokens for all of
// them: memory as it lies. Scales are fetched at once: few bytes a token, which no kernel fetches.
void TileWorker::NameAhead(const StoredHeads& of, const BlockStage& stage, int64_t first,
                           int64_t end, bool far, AheadRows* rows) const {
  int64_t head = tile_->kv_head;
  int64_t count = end - first;
  int64_t bytes = stage.row_bytes();
  if (share_.parts > 1 && of.code_head_stride == bytes) {
    const int64_t before = count * share_.from / kBlockTokens;
    count = count * share_.end / kBlockTokens - before;
    first += before;
    head -= share_.part;
    bytes *= share_.parts;
  }
  const int64_t column = seen_.columns[0] + first;
  // Each by itself: a copy of all of them would wait for what was just written in parts.
  rows->from = After(of.codes, head * of.code_head_stride + column * of.code_stride);
  rows->stride = of.code_stride;
  rows->bytes = bytes;
  rows->count = count;
  rows->far = far;
  if (of.scales == nullptr || of.scale_stride <= 0) return;
  const int64_t offset = head * of.scale_head_stride + column * of.scale_stride;
  FetchScales(After(of.scales, offset), of.scale_stride, count);
  FetchScales(After(of.biases, offset), of.scale_stride, count);
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

void TileWorker::NameAheadOfScores(const TileShape& shape) {
  const SequenceQueries& from = *tile_->sequence;
  const int64_t count = seen_.count;
  const int64_t next = kBlockTokens;
  AheadRows* rows = k_.rows().ahead;
  if (FetchesHalves(shape)) {
    NameAhead(from.v, v_, count / 2, count, false, rows);
    NameAhead(from.k, k_, next, next + count / 2, false, rows + 1);
  } else {
    NameAhead(from.k, k_, next, next + count, true, rows);
    NameAhead(from.v, v_, 0, count, false, rows + 1);
  }
}

void TileWorker::NameAheadOfSums(const TileShape& shape) {
  const SequenceQueries& from = *tile_->sequence;
  const int64_t next = kBlockTokens;
  const int64_t half = next + seen_.count / 2;
  const int64_t end = next + seen_.count;
  AheadRows* rows = v_.rows().ahead;
  if (FetchesHalves(shape)) {
    NameAhead(from.k, k_, half, end, false, rows);
    NameAhead(from.v, v_, next, half, false, rows + 1);
  } else {
    NameAhead(from.v, v_, next, end, true, rows);
    NameAhead(from.k, k_, next, end, false, rows + 1);
  }
}

void TileWorker::NameValuesOfThis(AheadRows* rows) const {
  NameAhead(tile_->sequence->v, v_, 0, seen_.count, true, rows);
}

void TileWorker::NameKeysOfNext(AheadRows* rows) const {
  NameAhead(tile_->sequence->k, k_, kBlockTokens, kBlockTokens + seen_.count, true, rows);
}

}  // namespace kvcheck::optimized
