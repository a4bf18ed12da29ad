// Where the token at a position stands in its row. The first `keep` positions have the slots of
// their own numbers, the slots after them are a ring:
//
//   slot(p) = p                                     p < keep
//             keep + (p - keep) mod (capacity - keep)   else
//
// The slot follows from the position alone: rows of one batch may stand at different places of
// their rings, nothing is moved when a ring wraps, and no row carries a cursor. A linear layout is
// the case in which no position reaches the capacity.

#ifndef OPTIMIZED_CACHE_SLOT_MAP_H_
#define OPTIMIZED_CACHE_SLOT_MAP_H_

#include <algorithm>
#include <cstdint>

#include "reference/spec/cache_layout.h"

namespace kvcheck::optimized {

struct SlotMap {
  int64_t keep = 0;
  int64_t capacity = 0;  // slots of a row

  int64_t Slot(int64_t position) const {
    if (position < capacity) return position;
    return keep + (position - keep) % (capacity - keep);
  }
  // Positions from this one on whose slots follow each other.
  int64_t Run(int64_t position) const { return capacity - Slot(position); }

  // visit(position, slot, count) for the positions of a range, in order, as runs of slots.
  template <typename Visit>
  void ForEachRun(const TokenRange& range, Visit visit) const {
    const int64_t kept = std::min(range.keep, range.end);
    const int64_t from = std::max(range.from, kept);
    if (from > kept) {
      Runs(0, kept, visit);
      Runs(from, range.end, visit);
    } else {
      Runs(0, range.end, visit);
    }
  }

 private:
  template <typename Visit>
  void Runs(int64_t position, int64_t end, Visit visit) const {
    while (position < end) {
      const int64_t slot = Slot(position);
      const int64_t count = std::min(end - position, capacity - slot);
      visit(position, slot, count);
      position += count;
    }
  }
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_SLOT_MAP_H_
