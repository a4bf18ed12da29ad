// Makes a failing prefix case small: fewer operations, then shorter prompts, plainer identities and
// a plainer setup that still show the same failure.

#ifndef FUZZ_SHRINK_PREFIX_H_
#define FUZZ_SHRINK_PREFIX_H_

#include <cstdint>
#include <functional>

#include "fuzz/shrinker.h"
#include "reference/spec/prefix_case.h"

namespace kvcheck {

using ShrunkPrefix = ShrunkOperations<PrefixCase>;

// As ShrinkTrace.
ShrunkPrefix ShrinkPrefix(const PrefixCase& c,
                          const std::function<bool(const PrefixCase&)>& still_fails,
                          int64_t max_runs, const std::function<bool(const PrefixCase&)>& has = {});

}  // namespace kvcheck

#endif  // FUZZ_SHRINK_PREFIX_H_
