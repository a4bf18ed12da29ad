#include "fuzz/shrink_trace.h"

#include <string>
#include <unordered_set>
#include <utility>

#include "fuzz/shrink_steps.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

bool IsLegalCase(const CacheCase& c) {
  try {
    ValidateCacheCase(c);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ShrinkResult ShrinkTrace(const CacheCase& c,
                         const std::function<bool(const CacheCase&)>& still_fails, int64_t max_runs,
                         const std::function<bool(const CacheCase&)>& has) {
  ShrinkResult result;
  result.c = c;
  TraceSize size = SizeOf(c);
  std::unordered_set<std::string> seen = {Print(c)};
  const Offer offer = [&](CacheCase candidate) {
    if (result.runs >= max_runs) {
      result.complete = false;
      return false;
    }
    const TraceSize smaller = SizeOf(candidate);
    if (!(smaller < size) || !IsLegalCase(candidate) || (has && !has(candidate))) return false;
    if (!seen.insert(Print(candidate)).second) return false;
    ++result.runs;
    if (!still_fails(candidate)) return false;
    result.c = std::move(candidate);
    size = smaller;
    return true;
  };
  // Cheap and large steps first; whenever one succeeds, everything before it may succeed again.
  constexpr bool (*kSteps[])(const CacheCase&, const Offer&) = {
      RemoveChunks, FuseOperations, BypassCopies, RebuildStates, FillCaches,  RenameSlots,
      RemoveRows,   SimplifySetup,  DropOptions,  LowerNumbers,  RemovePairs,
  };
  const auto shrink = [&] {
    for (size_t step = 0; step < std::size(kSteps) && result.complete;) {
      const CacheCase now = result.c;
      step = kSteps[step](now, offer) ? 0 : step + 1;
    }
  };
  shrink();
  // Some failure needs some data, such as a tie of roundings, which a shorter trace does not hold by
  // chance: shorter ones with other data, and more of it.
  while (result.complete) {
    const CacheCase now = result.c;
    if (!RemoveReseeded(now, offer)) break;
    shrink();
  }
  return result;
}

}  // namespace kvcheck
