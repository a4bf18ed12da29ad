// Which positions of a sequence one query may attend to.

#ifndef OPTIMIZED_ATTENTION_VISIBLE_KEYS_H_
#define OPTIMIZED_ATTENTION_VISIBLE_KEYS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "optimized/attention/block.h"

namespace kvcheck::optimized {

// Position p is visible where (p < keep or p >= from), p < end and, with `bits`, bit p % 64 of word
// p / 64 is set. None of the three is negative. Positions count from the first token of the
// sequence, not from its first column.
struct VisibleKeys {
  int64_t keep = 0;
  int64_t from = 0;
  int64_t end = 0;
  const uint64_t* bits = nullptr;  // (end + 63) / 64 words
  // Every visible key has the score 0 and K is not read: the mean of V.
  bool uniform = false;

  // Bit i: position 64 block + i.
  uint64_t Word(int64_t block) const {
    const int64_t first = block * kBlockTokens;
    uint64_t word = Below(end - first) & (Below(keep - first) | ~Below(from - first));
    if (bits != nullptr && word != 0) word &= bits[block];
    return word;
  }

 private:
  // Bits 0 to count - 1.
  static uint64_t Below(int64_t count) {
    if (count <= 0) return 0;
    return count >= kBlockTokens ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  }
};

// Number of set bits. Most blocks are seen whole; popcount is a library call on baseline x86-64.
inline int64_t CountOf(uint64_t places) {
  return places == ~uint64_t{0} ? kBlockTokens : std::popcount(places);
}

// The blocks that some query of a set may touch: [0, keep) and [from, end).
struct BlockSpan {
  int64_t keep = 0;
  int64_t from = 0;
  int64_t end = 0;

  void Add(const VisibleKeys& keys) {
    from = end == 0 ? keys.from : std::min(from, keys.from);
    keep = std::max(keep, std::min(keys.keep, keys.end));
    end = std::max(end, keys.end);
  }
  bool Touches(int64_t block) const {
    const int64_t first = block * kBlockTokens;
    return first < end && (first < keep || first + kBlockTokens > from);
  }
};

// The blocks that every query of a set sees whole; kept positions aside.
struct WholeSpan {
  int64_t from = 0;
  int64_t end = std::numeric_limits<int64_t>::max();

  void Add(const VisibleKeys& keys) {
    from = std::max(from, keys.from);
    end = keys.bits != nullptr || keys.uniform ? 0 : std::min(end, keys.end);
  }
  bool Covers(int64_t block) const {
    const int64_t first = block * kBlockTokens;
    return first >= from && first + kBlockTokens <= end;
  }
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_VISIBLE_KEYS_H_
