// The steps of shrinking, each a list of smaller candidates of a case. A step offers them one after
// the other and stops, with true, at the first that is taken.

#ifndef FUZZ_SHRINK_STEPS_H_
#define FUZZ_SHRINK_STEPS_H_

#include <compare>
#include <cstdint>
#include <functional>

#include "reference/spec/trace.h"

namespace kvcheck {

// Whether the candidate was taken.
using Offer = std::function<bool(CacheCase)>;

// What shrinking lowers, the first first.
struct TraceSize {
  // How little is at stake: a failure of a cache without rows or tokens convinces nobody while one
  // with both fails the same way, if it is longer.
  int64_t bareness = 0;
  int64_t operations = 0;
  int64_t setup = 0;    // layout, formats, types, heads, dimensions
  int64_t numbers = 0;  // counts, rows, padding, windows, options
  int64_t names = 0;    // slots and keys
  auto operator<=>(const TraceSize&) const = default;
};
TraceSize SizeOf(const CacheCase& c);
// 2: a cache of the trace has no rows at some time before the last operation; 1: all have, but none
// that the last operation names holds tokens before or after it; 0: neither, or there is no cache
// at all.
int64_t BarenessOf(const CacheCase& c);

// Halves, quarters, ... single operations go.
bool RemoveChunks(const CacheCase& c, const Offer& offer);
// Seeds that failures are looked for with.
inline constexpr uint64_t kSeeds[] = {1, 2, 3, 4, 5, 6, 7, 8};
CacheCase WithSeed(const CacheCase& c, uint64_t seed);
// As RemoveChunks, for failures that depend on the data: with other data, and more of it.
bool RemoveReseeded(const CacheCase& c, const Offer& offer);
// Two operations that need each other go.
bool RemovePairs(const CacheCase& c, const Offer& offer);
// Two appends, trims or filters of one slot become one; trim takes back what an append gave.
bool FuseOperations(const CacheCase& c, const Offer& offer);
// What follows works on the source of a copy, an extract, a merge or a load instead of the result.
bool BypassCopies(const CacheCase& c, const Offer& offer);
// What some operations have made of a slot is made by a `new` and an append instead: as many rows,
// as long, as they stand in the shadow of the trace (trace_shadow.h).
bool RebuildStates(const CacheCase& c, const Offer& offer);
// Rows and tokens for caches that have none: rows in a `new`, a row in a filter that takes none, an
// append after a `new`.
bool FillCaches(const CacheCase& c, const Offer& offer);
// One row less in a `new`, and in what is said about its rows.
bool RemoveRows(const CacheCase& c, const Offer& offer);
// Counts, rows, padding, windows: each alone, then two by as much.
bool LowerNumbers(const CacheCase& c, const Offer& offer);
// Options of operations go, and lists get shorter.
bool DropOptions(const CacheCase& c, const Offer& offer);
// Plainer layout, formats and types, fewer heads and channels.
bool SimplifySetup(const CacheCase& c, const Offer& offer);
// Slots become A, B, ... and keys s0, s1, ... in order of appearance; operands become earlier
// slots.
bool RenameSlots(const CacheCase& c, const Offer& offer);

}  // namespace kvcheck

#endif  // FUZZ_SHRINK_STEPS_H_
