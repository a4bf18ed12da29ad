// The memory of a cache: up to six planes (codes, scales and biases of K and of V), each one
// allocation of shape (rows, slots, heads, bytes of one vector's part).
//
// Token-major, so that a token's heads are contiguous: an append writes one piece per plane,
// and a row moves (growth, filter, merge, extract) as one or two memcpy per plane, whatever the
// number of heads. Head-major would multiply these by the heads, and give attention longer streams;
// but a vector of a head fills whole cache lines already, and all heads are read in the end.

#ifndef OPTIMIZED_CACHE_COLUMN_STORE_H_
#define OPTIMIZED_CACHE_COLUMN_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optimized/cache/slot_map.h"
#include "optimized/cache/stored_memory.h"
#include "optimized/formats/row_codec.h"

namespace kvcheck::optimized {

enum Plane : int { kKCodes, kKScales, kKBiases, kVCodes, kVScales, kVBiases };
inline constexpr int kPlanes = 6;

// Bytes of one token per plane, all heads; 0: the plane is not there.
using TokenBytes = std::array<int64_t, kPlanes>;
TokenBytes TokenBytesOf(const RowBytes& k, const RowBytes& v, int64_t heads);

class ColumnStore {
 public:
  // Takes the shape, in memory that it has already where that suffices. Contents are undefined.
  void Shape(int64_t rows, int64_t slots, const TokenBytes& token_bytes);
  // Whether more rows of the same slots fit into what is allocated; AddRows then makes them.
  bool HasRoom(int64_t rows) const;
  void SetRows(int64_t rows) { rows_ = rows; }

  int64_t rows() const { return rows_; }
  int64_t slots() const { return slots_; }
  const TokenBytes& token_bytes() const { return token_bytes_; }
  // Bytes that the shape takes.
  int64_t Bytes() const;
  // Bytes that are allocated.
  int64_t Allocated() const;
  // Gives memory back when it is more than `bytes`.
  void ReleaseAbove(int64_t bytes);

  std::byte* At(int plane, int64_t row, int64_t slot) {
    const auto p = static_cast<size_t>(plane);
    return planes_[p].data() + (row * slots_ + slot) * token_bytes_[p];
  }
  const std::byte* At(int plane, int64_t row, int64_t slot) const {
    return const_cast<ColumnStore*>(this)->At(plane, row, slot);
  }

  // The vectors of head 0 from a slot on; first: kKCodes or kVCodes.
  StoredRows Vectors(int first, int64_t row, int64_t slot) {
    return {At(first, row, slot), At(first + 1, row, slot), At(first + 2, row, slot),
            token_bytes_[static_cast<size_t>(first)], token_bytes_[static_cast<size_t>(first) + 1]};
  }
  StoredRowsView Vectors(int first, int64_t row, int64_t slot) const {
    return {At(first, row, slot), At(first + 1, row, slot), At(first + 2, row, slot),
            token_bytes_[static_cast<size_t>(first)], token_bytes_[static_cast<size_t>(first) + 1]};
  }

  // Copies the positions of `range`, each byte once. Both stores have the same planes; rows differ
  // where the stores are one.
  void CopyRow(const ColumnStore& from, const SlotMap& from_map, int64_t from_row,
               const TokenRange& range, const SlotMap& map, int64_t row);
  // Row i becomes what row rows[i] was, of which the first extents[i] slots matter; any order, rows
  // repeated or none. Goes through a buffer that stays in the cache, piece by piece, so that memory
  // is read once and written once. Precondition: HasRoom(rows.size()).
  void GatherRows(std::span<const int64_t> rows, std::span<const int64_t> extents);

 private:
  std::array<StoredMemory, kPlanes> planes_;
  std::vector<std::byte> pieces_;  // one of each row, for GatherRows
  TokenBytes token_bytes_{};
  int64_t rows_ = 0;
  int64_t slots_ = 0;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_COLUMN_STORE_H_
