// The memory of a cache: up to eight planes (codes, scales, biases and residual of K and of V),
// each one allocation of shape (rows, entries, heads, bytes). An entry is the part of one token,
// or, of a format that codes groups of tokens, of one group. A residual holds the newest tokens,
// that at position p in entry p % residual; the other planes of its part those that have left it.
//
// Token-major, so that a token's heads are contiguous: an append writes one piece per plane,
// and a row moves (growth, filter, merge, extract) as one or two memcpy per plane, whatever the
// number of heads. Head-major would multiply these by the heads, and give attention longer streams;
// but a vector of a head fills whole cache lines already, and all heads are read in the end.

#ifndef OPTIMIZED_CACHE_COLUMN_STORE_H_
#define OPTIMIZED_CACHE_COLUMN_STORE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optimized/cache/slot_map.h"
#include "optimized/cache/stored_memory.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {

enum Plane : int {
  kKCodes,
  kKScales,
  kKBiases,
  kVCodes,
  kVScales,
  kVBiases,
  kKResidual,
  kVResidual
};
inline constexpr int kPlanes = 8;

struct PlaneShape {
  int64_t bytes = 0;     // of an entry, all heads; 0: the plane is not there
  int64_t group = 1;     // tokens of an entry
  int64_t residual = 1;  // room of the residual of the part: a multiple of the group
  bool is_residual = false;
  bool rolls = false;  // the residual of the part gives one token up for each that comes
  bool operator==(const PlaneShape&) const = default;

  // Whether entries are counted from position 0, and are no slots.
  bool IsGrouped() const { return group > 1 || is_residual || rolls; }
  // Entries that the first `tokens` tokens of a row take.
  int64_t Entries(int64_t tokens) const {
    const int64_t coded =
        rolls ? std::max<int64_t>(0, tokens - residual) : tokens - tokens % residual;
    return is_residual ? tokens - coded : coded / group;
  }
  // Entries that a row of so many slots has.
  int64_t Room(int64_t slots) const { return is_residual ? residual : Entries(slots); }
};
using StoreShape = std::array<PlaneShape, kPlanes>;
// Formats of K and V, and their channels. Precondition: FitsTokenDim of both.
StoreShape StoreShapeOf(const KvFormat& k, int64_t k_dim, const KvFormat& v, int64_t v_dim,
                        int64_t heads);

class ColumnStore {
 public:
  // Takes the shape, in memory that it has already where that suffices. Contents are undefined.
  void Shape(int64_t rows, int64_t slots, const StoreShape& shape);
  // Whether more rows of the same slots fit into what is allocated; AddRows then makes them.
  bool HasRoom(int64_t rows) const;
  void SetRows(int64_t rows) { rows_ = rows; }

  int64_t rows() const { return rows_; }
  int64_t slots() const { return slots_; }
  const StoreShape& shape() const { return shape_; }
  const PlaneShape& shape(int plane) const { return shape_[static_cast<size_t>(plane)]; }
  // Entries of a row.
  int64_t Room(int plane) const { return shape(plane).Room(slots_); }
  // Bytes that the shape takes.
  int64_t Bytes() const;
  // Bytes that are allocated.
  int64_t Allocated() const;
  // Gives memory back when it is more than `bytes`.
  void ReleaseAbove(int64_t bytes);

  // Of planes whose entries are tokens, entry is the slot.
  std::byte* At(int plane, int64_t row, int64_t entry) {
    const auto p = static_cast<size_t>(plane);
    return planes_[p].data() + (row * room_[p] + entry) * shape_[p].bytes;
  }
  const std::byte* At(int plane, int64_t row, int64_t entry) const {
    return const_cast<ColumnStore*>(this)->At(plane, row, entry);
  }

  // The rows of head 0 from an entry on; first: kKCodes or kVCodes.
  StoredRows Vectors(int first, int64_t row, int64_t entry) {
    return {At(first, row, entry), At(first + 1, row, entry), At(first + 2, row, entry),
            shape(first).bytes, shape(first + 1).bytes};
  }
  StoredRowsView Vectors(int first, int64_t row, int64_t entry) const {
    return {At(first, row, entry), At(first + 1, row, entry), At(first + 2, row, entry),
            shape(first).bytes, shape(first + 1).bytes};
  }

  // Copies the positions of `range`, each byte once. Both stores have the same planes; rows differ
  // where the stores are one.
  void CopyRow(const ColumnStore& from, const SlotMap& from_map, int64_t from_row,
               const TokenRange& range, const SlotMap& map, int64_t row);
  // Row i becomes what row rows[i] was, of which the first extents[i] slots (of groups: tokens)
  // matter; any order, rows
  // repeated or none. Goes through a buffer that stays in the cache, piece by piece, so that memory
  // is read once and written once. Precondition: HasRoom(rows.size()).
  void GatherRows(std::span<const int64_t> rows, std::span<const int64_t> extents);

 private:
  std::array<StoredMemory, kPlanes> planes_;
  std::vector<std::byte> pieces_;  // one of each row, for GatherRows
  StoreShape shape_{};
  std::array<int64_t, kPlanes> room_{};
  int64_t rows_ = 0;
  int64_t slots_ = 0;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_COLUMN_STORE_H_
