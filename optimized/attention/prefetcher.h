// What will be read next is fetched while something else is worked on.

#ifndef OPTIMIZED_ATTENTION_PREFETCHER_H_
#define OPTIMIZED_ATTENTION_PREFETCHER_H_

#include <hwy/base.h>

#include <cstddef>
#include <cstdint>

#include "optimized/attention/block.h"

namespace kvcheck::optimized {

inline constexpr int64_t kLineBytes = 64;

// Two streams, line by line in the order of memory, evenly over `steps` calls of Step: a burst
// would fill the queue of misses, and what is read meanwhile would wait behind it. Both at once
// where they are alike, as K and V of one format are; otherwise one after the other. `ahead`
// outlives this.
template <void (*kFetch)(uintptr_t line, bool far)>
class LinesInOrder {
 public:
  HWY_INLINE LinesInOrder(const AheadRows (&ahead)[2], int64_t steps) {
    const AheadRows& first = ahead[0];
    const AheadRows& second = ahead[1];
    const bool alike =
        first.bytes == second.bytes && first.stride == second.stride && first.count == second.count;
    int64_t lines = 0;
    if (!alike && first.count > 0) {
      Begin(second);
      lines = left_;
      then_ = &second;
    }
    Begin(!alike && first.count == 0 ? second : first);
    lines += left_;
    if (alike) {
      apart_ = reinterpret_cast<uintptr_t>(second.from) - next_;
      second_far_ = second.far;
    }
    if (lines == 0 || steps == 0) {
      left_ = 0;
      then_ = nullptr;
    } else {
      per_step_ = static_cast<int64_t>((static_cast<uint32_t>(lines + steps) - 1) /
                                       static_cast<uint32_t>(steps));
    }
  }
  HWY_INLINE void Step() {
    const int64_t lines = HWY_MIN(per_step_, left_);
    FetchLines(lines);
    if (HWY_UNLIKELY(left_ == 0 && then_ != nullptr)) {
      Begin(*then_);
      then_ = nullptr;
      FetchLines(HWY_MIN(per_step_ - lines, left_));
    }
  }

 private:
  static int64_t LinesOf(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes; }
  HWY_INLINE void Begin(const AheadRows& ahead) {
    next_ = reinterpret_cast<uintptr_t>(ahead.from);
    far_ = ahead.far;
    // Rows that stand together are one.
    const bool one = ahead.bytes == ahead.stride;
    row_ = in_row_ = LinesOf(one ? ahead.bytes * ahead.count : ahead.bytes);
    left_ = one ? row_ : row_ * ahead.count;
    to_next_row_ = static_cast<uintptr_t>(ahead.stride - row_ * kLineBytes);
  }
  // Rows of a few lines end everywhere: without a branch.
  HWY_INLINE void FetchLines(int64_t lines) {
    left_ -= lines;
    for (; lines > 0; --lines) {
      kFetch(next_, far_);
      if (apart_ != 0) kFetch(next_ + apart_, second_far_);
      const bool ends = --in_row_ == 0;
      next_ += kLineBytes + (ends ? to_next_row_ : 0);
      in_row_ = ends ? row_ : in_row_;
    }
  }

  uintptr_t next_;
  uintptr_t apart_ = 0;  // of the second stream from the first
  bool far_ = false, second_far_ = false;
  uintptr_t to_next_row_;  // from behind the last line of a row
  // Lines of a row, those left of it, those left of the stream.
  int64_t row_, in_row_, left_, per_step_ = 0;
  const AheadRows* then_ = nullptr;
};

// Any address may be fetched. far: to the second cache, not to the first one.
HWY_INLINE void FetchLine(uintptr_t line, bool far) {
  const auto* at = reinterpret_cast<const std::byte*>(line);
  if (far) return __builtin_prefetch(at, 0, 2);
  __builtin_prefetch(at);
}
using FetchInOrder = LinesInOrder<FetchLine>;

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_PREFETCHER_H_
