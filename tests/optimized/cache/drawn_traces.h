// Random traces for the optimized caches: every layout, every format, single and batched. A trace
// follows the state of its slots through the model, so that most of what it draws is legal and deep
// states (wrapped rings, pending prefills, merges of rows with different histories) are reached;
// some of what it draws is illegal, and must be refused.

#ifndef TESTS_OPTIMIZED_CACHE_DRAWN_TRACES_H_
#define TESTS_OPTIMIZED_CACHE_DRAWN_TRACES_H_

#include <cstdint>

#include "reference/spec/trace.h"

namespace kvcheck {

struct DrawOptions {
  bool attends = true;
  int operations = 30;
};

// The same case for the same seed.
CacheCase DrawTrace(uint64_t seed, const DrawOptions& options = {});

}  // namespace kvcheck

#endif  // TESTS_OPTIMIZED_CACHE_DRAWN_TRACES_H_
