// The bytes of one block of tokens: plain, as the model gave them, or in the formats of the cache.
// Layout: per layer K then V, per head the vectors of the block's tokens one after the other; of
// codes plane by plane. Each plane is a dense tensor (kv_heads, block_tokens, elements), as files
// of tensors have it.

#ifndef OPTIMIZED_PREFIX_BLOCK_BYTES_H_
#define OPTIMIZED_PREFIX_BLOCK_BYTES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "optimized/formats/row_codec.h"
#include "reference/spec/prefix_implementation.h"

namespace kvcheck::optimized {

// Dense K and V of a request, (layers, kv_heads, tokens, dim), which a block is a part of.
struct DenseRows {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  int64_t tokens = 0;
};

// Of one thread: keeps codecs and their memory.
class BlockBytes {
 public:
  explicit BlockBytes(const PrefixSetup& setup);

  int64_t plain_bytes() const { return plain_bytes_; }  // of a block
  int64_t coded_bytes() const { return coded_bytes_; }  // the same where nothing is stored in codes
  // Whether kept rows are stored otherwise than they come.
  bool has_codes() const { return !(IsAsItComes(k_) && IsAsItComes(v_)); }

  // Vectors of `count` tokens, from the first of `vectors` on, as tokens `at` and on of the block.
  void Fill(const PrefixVectors& vectors, int64_t from, int64_t count, int64_t at,
            std::byte* block) const;
  // Tokens [0, count) of the block as tokens `to` and on of the rows.
  void Read(const std::byte* block, bool coded, int64_t count, int64_t to, const DenseRows& rows);
  // coded: coded_bytes() of memory.
  void Encode(const std::byte* plain, std::byte* coded);

 private:
  struct Part {
    KvFormat format;
    int64_t dim = 0;
    int64_t plain = 0;  // bytes of a vector
    RowBytes coded;
    RowCodec codec;
  };
  bool IsAsItComes(const Part& part) const {
    return part.format == KvFormat(PlainFormat{setup_.x});
  }
  // Of the vectors of one head. at: where K or V of the layer begins in a coded block.
  template <typename Byte>
  RowSpan<Byte> Rows(const Part& part, Byte* at, int64_t head) const;
  int64_t CodedBytes(const Part& part) const {
    return setup_.kv_heads * setup_.block_tokens * part.coded.Total();
  }
  void Decode(Part* part, const StoredRowsView& rows, int64_t count, std::byte* out);

  PrefixSetup setup_;
  Part k_;
  Part v_;
  int64_t plain_bytes_ = 0;
  int64_t coded_bytes_ = 0;
  std::vector<float> values_;
  std::vector<std::byte> typed_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_PREFIX_BLOCK_BYTES_H_
