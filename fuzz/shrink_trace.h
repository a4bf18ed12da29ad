// Makes a failing trace small: the same failure in the fewest operations, with the smallest numbers
// and the plainest setup that still show it. Works on the trace alone; what counts as the same
// failure, and in which process it is run, is the caller's.

#ifndef FUZZ_SHRINK_TRACE_H_
#define FUZZ_SHRINK_TRACE_H_

#include <cstdint>
#include <functional>

#include "fuzz/shrinker.h"
#include "reference/spec/trace.h"

namespace kvcheck {

using ShrinkResult = ShrunkOperations<CacheCase>;

// c: a case for which still_fails is true, which is not asked again. Every case that still_fails is
// asked about is legal (ValidateCacheCase) and smaller than the best so far: fewer operations, or
// as many and less of everything else (shrink_steps.h). Deterministic, as far as still_fails is:
// vectors follow from the index of an operation and the seed, so that every candidate is run anew.
// Shorter cases are tried with other data too. has: what the
// implementation has (trace_space.h); nothing else is asked about. Empty: everything.
ShrinkResult ShrinkTrace(const CacheCase& c,
                         const std::function<bool(const CacheCase&)>& still_fails, int64_t max_runs,
                         const std::function<bool(const CacheCase&)>& has = {});

}  // namespace kvcheck

#endif  // FUZZ_SHRINK_TRACE_H_
