// What a layout asks of the storage: which positions a query sees, which must stay, how many slots
// a row needs, how far a row can go back. Written a second time from reference/cache/contract.md,
// section 2: nothing is shared with the model.
//
// A ring and a chunk evict when the next append needs room; a linear layout keeps everything, its
// window being a matter of visibility alone.

#ifndef OPTIMIZED_CACHE_LAYOUT_RULES_H_
#define OPTIMIZED_CACHE_LAYOUT_RULES_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "reference/spec/cache_layout.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/token_groups.h"
#include "reference/spec/trace.h"

namespace kvcheck::optimized {

// First position beside the first `keep` that the query at `position` sees; it sees up to itself.
inline int64_t FirstVisible(const CacheLayout& layout, int64_t position) {
  switch (layout.kind) {
    case LayoutKind::kRing:
      return std::max<int64_t>(0, position + 1 - (layout.window - layout.keep));
    case LayoutKind::kChunk:
      return position - position % layout.chunk;
    case LayoutKind::kLinear:
      break;
  }
  return layout.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - layout.window);
}

// First position beside the first `keep` that the next query, or a later one, may see: that of the
// token at `offset`.
inline int64_t FirstRequired(const CacheLayout& layout, int64_t offset) {
  return std::min(offset, FirstVisible(layout, offset));
}

// From where on a row that has seen `offset` tokens is kept when it makes room for more.
inline int64_t EvictTo(const CacheLayout& layout, int64_t offset) {
  return layout.kind == LayoutKind::kLinear ? 0 : FirstRequired(layout, offset);
}

// Slots of a row that retains the first `keep` positions and [from, offset).
inline int64_t SlotsNeeded(int64_t keep, int64_t from, int64_t offset) {
  return offset <= keep ? offset : keep + offset - std::max(from, keep);
}

// Slots that an append of `columns` can need at most.
int64_t MostSlots(const CacheLayout& layout, int64_t columns);

// The fewest tokens that a row, which retains the first `keep` positions and [from, offset), must
// have left of those up to `left` for everything that is required of it then to be there: a number
// from `left` to offset.
int64_t NearestReachable(const CacheLayout& layout, int64_t from, int64_t offset, int64_t left);

// The same of a format with a residual. Of one that is coded all at once a row may lose whole
// residuals, or tokens of the one that is not coded; of one that rolls nothing, or everything, once
// a token has left it.
inline int64_t NearestOfGroups(const KvFormat& format, int64_t offset, int64_t left) {
  const int64_t residual = ResidualOf(format);
  if (ResidualRolls(format)) return offset <= residual || left == 0 ? left : offset;
  const int64_t coded = offset / residual * residual;
  return left >= coded ? left : (left + residual - 1) / residual * residual;
}

// Why no cache of this layout stores vectors in these formats, or "".
std::string_view WhyNotFormats(const CacheSetup& setup, const CacheLayout& layout,
                               const KvFormat& k, const KvFormat& v);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_LAYOUT_RULES_H_
