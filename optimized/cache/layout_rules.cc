#include "optimized/cache/layout_rules.h"

#include <limits>

namespace kvcheck::optimized {

int64_t MostSlots(const CacheLayout& layout, int64_t columns) {
  switch (layout.kind) {
    case LayoutKind::kRing:
      return layout.window - 1 + columns;
    case LayoutKind::kChunk:
      return layout.chunk - 1 + columns;
    case LayoutKind::kLinear:
      break;
  }
  return std::numeric_limits<int64_t>::max();
}

int64_t NearestReachable(const CacheLayout& layout, int64_t from, int64_t offset, int64_t left) {
  const int64_t first = std::max(FirstRequired(layout, left), layout.keep);
  if (first >= std::min(from, left)) return left;
  // Something required is gone. With more tokens left, less of the past is required.
  if (layout.kind == LayoutKind::kChunk) {
    // At the border of the next chunk nothing is.
    return std::min(offset, (left / layout.chunk + 1) * layout.chunk);
  }
  const int64_t newest = layout.window - layout.keep - 1;  // required beside the first `keep`
  return std::min(offset, from + newest);
}

}  // namespace kvcheck::optimized
