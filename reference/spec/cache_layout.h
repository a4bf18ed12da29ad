// Which tokens a cache must keep, as its layout states it (reference/cache/contract.md, section 2):
// a token's position is its index in its row, u <= t, W counts the query itself.
//
// Text:
//   linear              the query at position t sees every u <= t
//   linear:w=W          the newest W of them
//   ring:w=W[:keep=K]   the first K and the newest W - K of them, K < W
//   chunk:c=C           those of its own chunk: floor(u / C) = floor(t / C)

#ifndef REFERENCE_SPEC_CACHE_LAYOUT_H_
#define REFERENCE_SPEC_CACHE_LAYOUT_H_

#include <cstdint>
#include <string>

#include "reference/spec/text.h"

namespace kvcheck {

enum class LayoutKind : uint8_t { kLinear, kRing, kChunk };

struct CacheLayout {
  LayoutKind kind = LayoutKind::kLinear;
  int64_t window = 0;  // tokens; linear: 0 means none
  int64_t keep = 0;    // ring: the first tokens, which are never evicted
  int64_t chunk = 0;   // chunk: tokens
  bool operator==(const CacheLayout&) const = default;
};

std::string Print(const CacheLayout& layout);
// Also reads layouts that are not legal, which a cache has to refuse. Errors: kParse.
CacheLayout ParseCacheLayout(Piece piece);
// W and C at least 1, 0 <= K < W, and no number that the kind does not have.
bool IsLegal(const CacheLayout& layout);

// Positions that a layout names: the first `keep`, and those in [from, end). Nothing is counted
// twice: a position below both `keep` and `end` counts once.
struct TokenRange {
  int64_t keep = 0;
  int64_t from = 0;
  int64_t end = 0;
  bool Contains(int64_t position) const {
    return position >= 0 && position < end && (position < keep || position >= from);
  }
  int64_t Count() const {
    const int64_t kept = keep < end ? keep : end;
    const int64_t begin = from > kept ? from : kept;
    return kept + (begin < end ? end - begin : 0);
  }
  bool operator==(const TokenRange&) const = default;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CACHE_LAYOUT_H_
