// What of a block the rows of a tile see.

#include <algorithm>
#include <bit>

#include "optimized/attention/tile_worker.h"

namespace kvcheck::optimized {
namespace {

// The columns of the block's positions at the bits of `any`, in order, and whether they stand one
// after the other: then the first one is enough.
bool ColumnsOf(std::span<const ColumnRun> runs, int64_t block, uint64_t any, int64_t* columns) {
  const int64_t first = block * kBlockTokens;
  // The run of the block's first visible position.
  const int64_t start = first + std::countr_zero(any);
  size_t low = 0;
  size_t high = runs.size();
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (runs[middle].position <= start ? low : high) = middle;
  }
  if (any == ~uint64_t{0} && first + kBlockTokens <= runs[low].position + runs[low].count) {
    columns[0] = runs[low].column + (first - runs[low].position);
    return true;
  }
  int64_t count = 0;
  for (uint64_t rest = any; rest != 0; rest &= rest - 1) {
    const int64_t position = first + std::countr_zero(rest);
    while (position >= runs[low].position + runs[low].count) ++low;
    columns[count++] = runs[low].column + (position - runs[low].position);
  }
  bool together = true;
  for (int64_t i = 1; i < count; ++i) together = together && columns[i] == columns[0] + i;
  return together;
}

}  // namespace

void TileWorker::SeeBlock(int64_t block) {
  if (whole_.Covers(block)) return SeeWholeBlock(block);
  seen_.whole = false;
  seen_.any = 0;
  if (!span_.Touches(block)) return;
  seen_.reads_keys = false;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const VisibleKeys* keys = rows_[row].visible;
    const bool as_before = row > 0 && keys == rows_[row - 1].visible;
    seen_.words[row] = as_before ? seen_.words[row - 1] : keys->Word(block);
    seen_.any |= seen_.words[row];
    seen_.reads_keys |= seen_.words[row] != 0 && !keys->uniform;
  }
  if (seen_.any == 0) return;
  seen_.count = CountOf(seen_.any);
  seen_.together = ColumnsOf(tile_->sequence->columns, block, seen_.any, seen_.columns);
  seen_.by_parts = tile_->Widens();
  if (!seen_.by_parts) return;
  for (int64_t row = 0; row < tile_->rows; ++row) {
    const uint64_t word = seen_.words[row];
    const uint64_t above = word == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(word);
    seen_.by_parts = seen_.by_parts && (seen_.any & above) == word && !IsUniform(row);
    const int64_t before_this = row % kQuad == 0 ? 0 : seen_.most[row / kQuad];
    const bool same = row > 0 && word == seen_.words[row - 1];
    seen_.counts[row] = same ? seen_.counts[row - 1] : CountOf(word);
    seen_.most[row / kQuad] = std::max(before_this, seen_.counts[row]);
  }
}

// As SeeBlock does. Most blocks are such ones, one after the other: what is said by row is said
// once.
void TileWorker::SeeWholeBlock(int64_t block) {
  seen_.any = ~uint64_t{0};
  seen_.reads_keys = true;
  seen_.count = kBlockTokens;
  seen_.together = ColumnsOf(tile_->sequence->columns, block, seen_.any, seen_.columns);
  seen_.by_parts = tile_->Widens();
  if (seen_.whole) return;
  seen_.whole = true;
  std::fill_n(seen_.words, tile_->rows, seen_.any);
  std::fill_n(seen_.counts, tile_->rows, kBlockTokens);
  std::fill_n(seen_.most, Quads(), kBlockTokens);
}

}  // namespace kvcheck::optimized
