// Software prefetch of the next vectors, paced by the kernel that runs meanwhile.

#ifndef OPTIMIZED_ATTENTION_PREFETCHER_H_
#define OPTIMIZED_ATTENTION_PREFETCHER_H_

#include <hwy/base.h>

#include <cstddef>
#include <cstdint>

#include "optimized/attention/block.h"

namespace kvcheck::optimized {

inline constexpr int64_t kLineBytes = 64;

// Prefetches two streams line by line in address order, evenly over `steps` calls of Step: a burst
// would fill the line fill buffers and stall the kernel's own loads. Streams of one shape (K and V
// of one format) are interleaved, others follow each other. `streams` outlives this.
template <void (*kPrefetch)(uintptr_t line, bool to_l2)>
class PrefetchStreams {
 public:
  HWY_INLINE PrefetchStreams(const PrefetchRows (&streams)[2], int64_t steps) {
    const PrefetchRows& first = streams[0];
    const PrefetchRows& second = streams[1];
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
      second_to_l2_ = second.to_l2;
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
    PrefetchLines(lines);
    if (HWY_UNLIKELY(left_ == 0 && then_ != nullptr)) {
      Begin(*then_);
      then_ = nullptr;
      PrefetchLines(HWY_MIN(per_step_ - lines, left_));
    }
  }

 private:
  static int64_t LinesOf(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes; }
  HWY_INLINE void Begin(const PrefetchRows& rows) {
    next_ = reinterpret_cast<uintptr_t>(rows.from);
    to_l2_ = rows.to_l2;
    // Contiguous rows are one row.
    const bool one = rows.bytes == rows.stride;
    row_ = in_row_ = LinesOf(one ? rows.bytes * rows.count : rows.bytes);
    left_ = one ? row_ : row_ * rows.count;
    to_next_row_ = static_cast<uintptr_t>(rows.stride - row_ * kLineBytes);
  }
  // Branchless: rows of a few lines end unpredictably.
  HWY_INLINE void PrefetchLines(int64_t lines) {
    left_ -= lines;
    for (; lines > 0; --lines) {
      kPrefetch(next_, to_l2_);
      if (apart_ != 0) kPrefetch(next_ + apart_, second_to_l2_);
      const bool ends = --in_row_ == 0;
      next_ += kLineBytes + (ends ? to_next_row_ : 0);
      in_row_ = ends ? row_ : in_row_;
    }
  }

  uintptr_t next_;
  uintptr_t apart_ = 0;  // bytes from the first stream to the second
  bool to_l2_ = false, second_to_l2_ = false;
  uintptr_t to_next_row_;  // from the end of a row's last line
  // Lines of a row, left in the row, left in the stream.
  int64_t row_, in_row_, left_, per_step_ = 0;
  const PrefetchRows* then_ = nullptr;
};

// Any address is allowed. to_l2: into L2 alone, not into L1.
HWY_INLINE void PrefetchLine(uintptr_t line, bool to_l2) {
  const auto* at = reinterpret_cast<const std::byte*>(line);
  if (to_l2) return __builtin_prefetch(at, 0, 2);
  __builtin_prefetch(at);
}
using Prefetcher = PrefetchStreams<PrefetchLine>;

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_PREFETCHER_H_
