#include "optimized/cache/column_store.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace kvcheck::optimized {
namespace {

// Bytes that GatherRows holds at once: a part of L2.
constexpr int64_t kGatherBytes = int64_t{1} << 18;

}  // namespace

TokenBytes TokenBytesOf(const RowBytes& k, const RowBytes& v, int64_t heads) {
  return {heads * k.codes, heads * k.scales, heads * k.biases,
          heads * v.codes, heads * v.scales, heads * v.biases};
}

void ColumnStore::Shape(int64_t rows, int64_t slots, const TokenBytes& token_bytes) {
  for (size_t p = 0; p < kPlanes; ++p) {
    const int64_t bytes = rows * slots * token_bytes[p];
    if (bytes <= planes_[p].bytes()) continue;
    planes_[p] = {};  // before the new one is taken
    planes_[p] = StoredMemory(bytes);
  }
  rows_ = rows;
  slots_ = slots;
  token_bytes_ = token_bytes;
}

bool ColumnStore::HasRoom(int64_t rows) const {
  for (size_t p = 0; p < kPlanes; ++p) {
    if (rows * slots_ * token_bytes_[p] > planes_[p].bytes()) return false;
  }
  return true;
}

int64_t ColumnStore::Bytes() const {
  int64_t bytes = 0;
  for (const int64_t token : token_bytes_) bytes += rows_ * slots_ * token;
  return bytes;
}

int64_t ColumnStore::Allocated() const {
  int64_t bytes = 0;
  for (const StoredMemory& plane : planes_) bytes += plane.bytes();
  return bytes;
}

void ColumnStore::ReleaseAbove(int64_t bytes) {
  if (Allocated() <= bytes) return;
  for (StoredMemory& plane : planes_) plane = {};
  rows_ = 0;
  slots_ = 0;
}

void ColumnStore::CopyRow(const ColumnStore& from, const SlotMap& from_map, int64_t from_row,
                          const TokenRange& range, const SlotMap& map, int64_t row) {
  map.ForEachRun(range, [&](int64_t position, int64_t slot, int64_t count) {
    while (count > 0) {
      const int64_t from_slot = from_map.Slot(position);
      const int64_t piece = std::min(count, from_map.capacity - from_slot);
      for (int p = 0; p < kPlanes; ++p) {
        const int64_t bytes = token_bytes_[static_cast<size_t>(p)];
        if (bytes == 0) continue;
        std::memcpy(At(p, row, slot), from.At(p, from_row, from_slot),
                    static_cast<size_t>(piece * bytes));
      }
      position += piece;
      slot += piece;
      count -= piece;
    }
  });
}

void ColumnStore::GatherRows(std::span<const int64_t> rows, std::span<const int64_t> extents) {
  const auto count = static_cast<int64_t>(rows.size());
  rows_ = count;
  if (count == 0) return;
  const int64_t longest = *std::max_element(extents.begin(), extents.end());
  for (int p = 0; p < kPlanes; ++p) {
    const int64_t bytes = token_bytes_[static_cast<size_t>(p)];
    if (bytes == 0) continue;
    const int64_t piece =
        std::clamp<int64_t>(kGatherBytes / (count * bytes), 1, std::max<int64_t>(longest, 1));
    const auto needed = static_cast<size_t>(count * piece * bytes);
    if (pieces_.size() < needed) pieces_.resize(needed);
    for (int64_t slot = 0; slot < longest; slot += piece) {
      for (const bool out : {true, false}) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = rows[static_cast<size_t>(i)];
          const int64_t slots = std::min(piece, extents[static_cast<size_t>(i)] - slot);
          if (slots <= 0 || row == i) continue;
          std::byte* held = pieces_.data() + i * piece * bytes;
          const auto size = static_cast<size_t>(slots * bytes);
          if (out) {
            std::memcpy(held, At(p, row, slot), size);
          } else {
            std::memcpy(At(p, i, slot), held, size);
          }
        }
      }
    }
  }
}

}  // namespace kvcheck::optimized
