// K or V of a cache whose format has a residual: the newest tokens stand in it, in the row type.
// Groups of tokens: when it is full, all of it is coded, group by group, counted from position 0 of
// a row. Tokens that are coded by themselves: for each that comes to a full residual the oldest one
// in it is coded. Every token of a row is kept (layout linear).

#ifndef OPTIMIZED_CACHE_TOKEN_GROUPS_H_
#define OPTIMIZED_CACHE_TOKEN_GROUPS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optimized/cache/column_store.h"
#include "optimized/formats/row_codec.h"
#include "reference/spec/cache_implementation.h"

namespace kvcheck::optimized {

// The planes of one part, kK* or kV*.
struct PartPlanes {
  int first = kKCodes;
  int residual = kKResidual;
};
inline PartPlanes PlanesOfPart(bool is_key) {
  return is_key ? PartPlanes{kKCodes, kKResidual} : PartPlanes{kVCodes, kVResidual};
}

class TokenGroups {
 public:
  // from: the type in which vectors come. Does nothing more where the format has no residual.
  void Start(const KvFormat& format, DType from, int64_t dim, int64_t heads, bool is_key);
  bool IsUsed() const { return is_used_; }

  // Tokens position ... position + count - 1 of a row, whose earlier ones are there: those of head
  // h at x + h head_stride + i stride.
  void Append(ColumnStore* store, int64_t row, int64_t position, int64_t count, const std::byte* x,
              int64_t head_stride, int64_t stride);
  // The first `tokens` tokens of a row as f32. Shapes: values (tokens, heads, dim).
  void Decode(const ColumnStore& store, int64_t row, int64_t tokens, float* values) const;
  // Every row's tokens, each by itself: the planes of TokenFormatOf, (rows, columns, heads, *).
  StoredVectors Show(const ColumnStore& store, std::span<const int64_t> tokens, int64_t columns);

 private:
  // The residual of a row, which is full, becomes groups from `closed` tokens on.
  void Code(ColumnStore* store, int64_t row, int64_t closed);
  // The tokens position ... position + count - 1, in consecutive entries of the residual, leave it.
  void CodeTokens(ColumnStore* store, int64_t row, int64_t position, int64_t count);
  // The first `closed` tokens, which have left the residual.
  void DecodeGroups(const ColumnStore& store, int64_t row, int64_t closed, float* values) const;

  KvFormat format_ = PlainFormat{};
  bool is_used_ = false;
  RowCodec groups_;    // rows of a group, from the row type
  RowCodec residual_;  // vectors in the row type, from that of the caller
  RowCodec widened_;   // vectors of the row type
  int64_t group_ = 1;
  int64_t residual_tokens_ = 1;
  bool rolls_ = false;
  int64_t dim_ = 0;
  int64_t heads_ = 1;
  PartPlanes planes_;
  std::vector<std::byte> tokens_;      // of one head, contiguous
  mutable std::vector<float> values_;  // of one group of one head
  std::array<std::vector<std::byte>, kMaxPlanes> shown_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_TOKEN_GROUPS_H_
