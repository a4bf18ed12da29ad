// Every vector that a trace has stored, once (of a format that codes groups of tokens: once for
// each form that it had): a handle stands for K, or V, of one token in one format, over all heads.
// Handles are what the rows of the model are made of (model_state.h); two handles are different
// vectors even where their bytes are equal, which is counted as a collision, because a cache that
// confuses the two could not be found out.

#ifndef REFERENCE_CACHE_VECTOR_TABLE_H_
#define REFERENCE_CACHE_VECTOR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reference/cache/vector_codec.h"
#include "reference/data/token_rows.h"
#include "reference/formats/format_arithmetic.h"
#include "reference/spec/expected_step.h"
#include "reference/spec/trace.h"

namespace kvcheck {

class VectorTable {
 public:
  // Forgets everything. looks_for_collisions: costs a hash per vector and head.
  void Start(const CacheSetup& setup, const Profile& profile, bool looks_for_collisions);

  // Stores one token's vectors: those of head h are at x + h head_stride, of the setup's type x.
  // part: kKey or kValue.
  int32_t Add(TokenPart part, const KvFormat& format, uint64_t token, const std::byte* x,
              int64_t head_stride);
  // Vectors as they are stored already: heads x VectorBytes.
  int32_t AddStored(TokenPart part, const KvFormat& format, uint64_t token,
                    const std::byte* stored);
  // The same vectors, as stored, in another format. The source format is plain, or the same.
  int32_t Convert(int32_t handle, const KvFormat& format);
  // The vectors of a group of tokens coded together, from what is read of those that were coded
  // before: handles[t] becomes what stands for token t from then on. Precondition: at most
  // TokenGroupOf(format) of them; fewer are a group that is not whole yet.
  void CodeGroup(TokenPart part, const KvFormat& format, std::span<int32_t> handles);

  size_t size() const { return entries_.size(); }
  uint64_t Token(int32_t handle) const { return entries_[Index(handle)].token; }
  TokenPart Part(int32_t handle) const { return entries_[Index(handle)].part; }
  const KvFormat& Format(int32_t handle) const {
    return formats_[entries_[Index(handle)].format].codec.format();
  }
  // Heads one after the other, each plane after plane.
  const std::byte* Bytes(int32_t handle) const { return &bytes_[entries_[Index(handle)].offset]; }
  std::byte* Bytes(int32_t handle) { return &bytes_[entries_[Index(handle)].offset]; }
  // Bytes of one head.
  size_t VectorBytes(int32_t handle) const {
    return formats_[entries_[Index(handle)].format].codec.bytes();
  }
  // Values of one head. Shapes: values (dim).
  void Decode(int32_t handle, int64_t head, double* values);

  // Pairs of vectors with equal bytes that are not the same head of the same part of one token.
  int64_t collisions() const { return collisions_; }
  // What StepComparer reads.
  StoredTokens View() const;

 private:
  struct FormatEntry {
    TokenPart part;
    VectorCodec codec;
  };
  struct GroupEntry {
    KvFormat format;
    int64_t dim;  // of one token
    std::unique_ptr<RowArithmetic> rows;
  };
  struct Entry {
    uint64_t token = 0;
    uint32_t offset = 0;
    uint16_t format = 0;
    TokenPart part = TokenPart::kKey;
    int32_t converted = -1;  // the first of what was converted from this vector
    int32_t next = -1;       // the next of what was converted from the same vector as this one
  };
  static size_t Index(int32_t handle) { return static_cast<size_t>(handle); }
  size_t FormatIndex(TokenPart part, const KvFormat& format, DType from);
  int64_t Dim(TokenPart part) const {
    return part == TokenPart::kKey ? setup_.k_dim : setup_.v_dim;
  }
  std::byte* NewEntry(TokenPart part, size_t format, uint64_t token);
  void LookForCollisions(int32_t handle);
  void GrowHashes();

  CacheSetup setup_;
  Profile profile_;
  RowArithmetic& GroupRows(const KvFormat& format, int64_t dim);

  std::vector<FormatEntry> formats_;
  std::vector<GroupEntry> groups_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> offsets_;  // of the entries, as View gives them
  std::vector<std::byte> bytes_;
  // Open addressing; a slot is in use when its stamp is that of the current case.
  struct HashSlot {
    uint64_t hash = 0;
    uint32_t stamp = 0;
    uint32_t offset = 0;
    int32_t handle = 0;
  };
  std::vector<HashSlot> hashes_;
  size_t hashed_ = 0;
  uint32_t stamp_ = 0;
  bool looks_for_collisions_ = false;
  int64_t collisions_ = 0;
};

}  // namespace kvcheck

#endif  // REFERENCE_CACHE_VECTOR_TABLE_H_
