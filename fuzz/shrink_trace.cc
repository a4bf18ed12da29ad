#include "fuzz/shrink_trace.h"

#include "fuzz/shrink_steps.h"

namespace kvcheck {

ShrinkResult ShrinkTrace(const CacheCase& c,
                         const std::function<bool(const CacheCase&)>& still_fails, int64_t max_runs,
                         const std::function<bool(const CacheCase&)>& has) {
  using TraceShrinker = Shrinker<CacheCase, TraceSize>;
  TraceShrinker shrinker(c, {still_fails, has, SizeOf, ValidateCacheCase, max_runs});
  constexpr TraceShrinker::Step kSteps[] = {
      RemoveChunks, FuseOperations, BypassCopies, RebuildStates, FillCaches,  RenameSlots,
      RemoveRows,   SimplifySetup,  DropOptions,  LowerNumbers,  RemovePairs,
  };
  shrinker.Run(kSteps);
  // Some failure needs some data, such as a tie of roundings, which a shorter trace does not hold
  // by chance: shorter ones with other data, and more of it.
  while (shrinker.result().complete && shrinker.RunStep(RemoveReseeded)) shrinker.Run(kSteps);
  return shrinker.result();
}

}  // namespace kvcheck
