// A sequence of tokens and its queries, as a test stores them: at any columns of any layout, after
// any padding, in memory where everything that is no token is poisoned and the rows touch a guard
// page. The same tokens have the same bytes in every layout.

#ifndef TESTS_OPTIMIZED_ATTENTION_STORED_SEQUENCE_H_
#define TESTS_OPTIMIZED_ATTENTION_STORED_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/attention/attention.h"

namespace kvcheck {

// Bytes that end where a page begins that may not be read.
class GuardedBytes {
 public:
  GuardedBytes() = default;
  // Filled with 0xff: NaN in every float format.
  explicit GuardedBytes(int64_t bytes);
  ~GuardedBytes();
  GuardedBytes(GuardedBytes&& other) noexcept { *this = std::move(other); }
  GuardedBytes& operator=(GuardedBytes&& other) noexcept;
  std::byte* data() const { return data_; }

 private:
  std::byte* map_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
};

// What is asked of one sequence, in any layout.
struct Sequence {
  optimized::AttentionShape shape;
  int64_t tokens = 1;
  uint64_t seed = 1;
  // The last `queries` tokens ask; causal, or each sees all.
  int64_t queries = 1;
  bool causal = true;
  int64_t window = 0;         // 0: none
  int64_t keep = 0;           // of a window
  double holes = 0;           // share of keys that bits hide
  bool bits_for_all = false;  // the same visible keys, as bits
  bool bias = false;
  bool alibi = false;
  bool sinks = false;
};

enum class Place {
  kHeadMajor,   // (heads, tokens), contiguous
  kTokenMajor,  // (tokens, heads)
  kPadded,      // head-major, left padding before the tokens and free columns after them
  kRing,        // token-major, the second half before the first
  kScattered,   // every token at a random column
  kPermuted,    // head-major, each block in another order, its first and last token in their places
};
inline constexpr Place kPlaces[] = {Place::kHeadMajor, Place::kTokenMajor, Place::kPadded,
                                    Place::kRing,      Place::kScattered,  Place::kPermuted};

// K or V in memory.
class StoredOperand {
 public:
  StoredOperand(const Sequence& sequence, bool is_key, Place place);
  const optimized::StoredHeads& heads() const { return heads_; }
  const std::vector<optimized::ColumnRun>& columns() const { return columns_; }

 private:
  GuardedBytes codes_, scales_, biases_;
  optimized::StoredHeads heads_;
  std::vector<optimized::ColumnRun> columns_;
};

// A sequence in memory with the answers to its queries.
class Asked {
 public:
  Asked(const Sequence& sequence, Place place);
  // Of queries [first, first + count) of the sequence.
  optimized::SequenceQueries Queries(int64_t first, int64_t count);
  optimized::SequenceQueries Queries() { return Queries(0, sequence_.queries); }
  // (query_heads, queries, v_dim), then lse (query_heads, queries), as bits.
  std::vector<uint32_t> Answers() const;

 private:
  Sequence sequence_;
  StoredOperand k_, v_;
  std::vector<float> q_, bias_, slopes_, sinks_, out_, lse_;
  std::vector<uint64_t> bits_;
  std::vector<optimized::VisibleKeys> visible_;
};

std::string Describe(const Sequence& sequence);
std::string_view Name(Place place);
// The answers of one sequence on `threads` threads.
std::vector<uint32_t> Solve(const Sequence& sequence, Place place, int threads = 1);

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_ATTENTION_STORED_SEQUENCE_H_
