// The mask of a block: which of its positions each row of a tile sees.

#include <algorithm>
#include <bit>

#include "optimized/attention/tile_worker.h"

namespace kvcheck::optimized {
namespace {

// Columns of the block's positions at the bits of `any`, in order. Returns whether they are
// contiguous; then columns[0] suffices.
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
  bool contiguous = true;
  for (int64_t i = 1; i < count; ++i) contiguous = contiguous && columns[i] == columns[0] + i;
  return contiguous;
}

}  // namespace

void TileWorker::MaskBlock(int64_t block) {
  if (whole_.Covers(block)) return MaskWholeBlock(block);
  mask_.whole = false;
  mask_.any = 0;
  if (!span_.Touches(block)) return;
  mask_.reads_keys = false;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const VisibleKeys* keys = rows_[row].visible;
    const bool as_before = row > 0 && keys == rows_[row - 1].visible;
    mask_.words[row] = as_before ? mask_.words[row - 1] : keys->Word(block);
    mask_.any |= mask_.words[row];
    mask_.reads_keys |= mask_.words[row] != 0 && !keys->uniform;
  }
  if (mask_.any == 0) return;
  mask_.count = CountOf(mask_.any);
  mask_.contiguous = ColumnsOf(tile_->sequence->columns, block, mask_.any, mask_.columns);
  mask_.prefixes = tile_->Widens();
  if (!mask_.prefixes) return;
  for (int64_t row = 0; row < tile_->rows; ++row) {
    const uint64_t word = mask_.words[row];
    const uint64_t above = word == 0 ? 0 : ~uint64_t{0} >> std::countl_zero(word);
    mask_.prefixes = mask_.prefixes && (mask_.any & above) == word && !IsUniform(row);
    const int64_t before_this = row % kQuad == 0 ? 0 : mask_.most[row / kQuad];
    const bool same = row > 0 && word == mask_.words[row - 1];
    mask_.counts[row] = same ? mask_.counts[row - 1] : CountOf(word);
    mask_.most[row / kQuad] = std::max(before_this, mask_.counts[row]);
  }
}

// The fast path of MaskBlock: most blocks are seen whole, so the per-row fields are filled once.
void TileWorker::MaskWholeBlock(int64_t block) {
  mask_.any = ~uint64_t{0};
  mask_.reads_keys = true;
  mask_.count = kBlockTokens;
  mask_.contiguous = ColumnsOf(tile_->sequence->columns, block, mask_.any, mask_.columns);
  mask_.prefixes = tile_->Widens();
  if (mask_.whole) return;
  mask_.whole = true;
  std::fill_n(mask_.words, tile_->rows, mask_.any);
  std::fill_n(mask_.counts, tile_->rows, kBlockTokens);
  std::fill_n(mask_.most, Quads(), kBlockTokens);
}

}  // namespace kvcheck::optimized
