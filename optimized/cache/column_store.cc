#include "optimized/cache/column_store.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "reference/spec/token_groups.h"

namespace kvcheck::optimized {
namespace {

// Bytes that GatherRows holds at once: a part of L2.
constexpr int64_t kGatherBytes = int64_t{1} << 18;

}  // namespace

StoreShape StoreShapeOf(const KvFormat& k, int64_t k_dim, const KvFormat& v, int64_t v_dim,
                        int64_t heads) {
  StoreShape shape;
  for (const bool is_key : {true, false}) {
    const KvFormat& format = is_key ? k : v;
    const int64_t dim = is_key ? k_dim : v_dim;
    const int64_t group = TokenGroupOf(format);
    const int64_t residual = ResidualOf(format);
    const bool rolls = ResidualRolls(format);
    const RowBytes bytes = RowBytesOf(format, group * dim);
    PlaneShape* const of_part = shape.data() + (is_key ? kKCodes : kVCodes);
    of_part[0] = {heads * bytes.codes, group, residual, false, rolls};
    of_part[1] = {heads * bytes.scales, group, residual, false, rolls};
    of_part[2] = {heads * bytes.biases, group, residual, false, rolls};
    if (!HasResidual(format)) continue;
    const auto element = static_cast<int64_t>(SizeInBytes(RowDType(format)));
    shape[static_cast<size_t>(is_key ? kKResidual : kVResidual)] = {heads * dim * element, 1,
                                                                    residual, true, rolls};
  }
  return shape;
}

void ColumnStore::Shape(int64_t rows, int64_t slots, const StoreShape& shape) {
  for (size_t p = 0; p < kPlanes; ++p) {
    room_[p] = shape[p].Room(slots);
    const int64_t bytes = rows * room_[p] * shape[p].bytes;
    if (bytes <= planes_[p].bytes()) continue;
    planes_[p] = {};  // before the new one is taken
    planes_[p] = StoredMemory(bytes);
  }
  rows_ = rows;
  slots_ = slots;
  shape_ = shape;
}

bool ColumnStore::HasRoom(int64_t rows) const {
  for (size_t p = 0; p < kPlanes; ++p) {
    if (rows * room_[p] * shape_[p].bytes > planes_[p].bytes()) return false;
  }
  return true;
}

int64_t ColumnStore::Bytes() const {
  int64_t bytes = 0;
  for (size_t p = 0; p < kPlanes; ++p) bytes += rows_ * room_[p] * shape_[p].bytes;
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
  room_ = {};
}

void ColumnStore::CopyRow(const ColumnStore& from, const SlotMap& from_map, int64_t from_row,
                          const TokenRange& range, const SlotMap& map, int64_t row) {
  map.ForEachRun(range, [&](int64_t position, int64_t slot, int64_t count) {
    while (count > 0) {
      const int64_t from_slot = from_map.Slot(position);
      const int64_t piece = std::min(count, from_map.capacity - from_slot);
      for (int p = 0; p < kPlanes; ++p) {
        const int64_t bytes = shape(p).bytes;
        if (bytes == 0 || shape(p).IsGrouped()) continue;
        std::memcpy(At(p, row, slot), from.At(p, from_row, from_slot),
                    static_cast<size_t>(piece * bytes));
      }
      position += piece;
      slot += piece;
      count -= piece;
    }
  });
  for (int p = 0; p < kPlanes; ++p) {
    const int64_t size = shape(p).Entries(range.end) * shape(p).bytes;
    if (size == 0 || !shape(p).IsGrouped()) continue;
    std::memcpy(At(p, row, 0), from.At(p, from_row, 0), static_cast<size_t>(size));
  }
}

void ColumnStore::GatherRows(std::span<const int64_t> rows, std::span<const int64_t> extents) {
  const auto count = static_cast<int64_t>(rows.size());
  rows_ = count;
  if (count == 0) return;
  for (int p = 0; p < kPlanes; ++p) {
    const int64_t bytes = shape(p).bytes;
    if (bytes == 0) continue;
    int64_t longest = 0;
    for (const int64_t extent : extents) longest = std::max(longest, shape(p).Entries(extent));
    const int64_t piece =
        std::clamp<int64_t>(kGatherBytes / (count * bytes), 1, std::max<int64_t>(longest, 1));
    const auto needed = static_cast<size_t>(count * piece * bytes);
    if (pieces_.size() < needed) pieces_.resize(needed);
    for (int64_t slot = 0; slot < longest; slot += piece) {
      for (const bool out : {true, false}) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = rows[static_cast<size_t>(i)];
          const int64_t slots =
              std::min(piece, shape(p).Entries(extents[static_cast<size_t>(i)]) - slot);
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
