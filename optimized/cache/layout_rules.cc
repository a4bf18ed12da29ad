#include "optimized/cache/layout_rules.h"

#include <limits>

#include "optimized/formats/row_codec.h"
#include "reference/spec/token_groups.h"

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

std::string_view WhyNotFormats(const CacheSetup& setup, const CacheLayout& layout,
                               const KvFormat& k, const KvFormat& v) {
  for (const bool is_key : {true, false}) {
    const KvFormat& format = is_key ? k : v;
    if (!CachesKeep(format)) return "the format is how a page lies in memory";
    // Codes of one token are whole words.
    if (!FitsDim(TokenFormatOf(format), is_key ? setup.k_dim : setup.v_dim)) {
      return "the group of the format does not divide head_dim";
    }
    const bool forgets = layout.kind != LayoutKind::kLinear || layout.window != 0;
    if (HasResidual(format) && forgets) {
      return "the format keeps the newest tokens, and this layout forgets tokens one by one";
    }
  }
  return "";
}

}  // namespace kvcheck::optimized
