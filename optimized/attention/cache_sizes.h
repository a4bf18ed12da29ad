// Caches of a core of this machine, which say how much is worth having at hand at once.

#ifndef OPTIMIZED_ATTENTION_CACHE_SIZES_H_
#define OPTIMIZED_ATTENTION_CACHE_SIZES_H_

#include <cstdint>

namespace kvcheck::optimized {

// Of data; where the system does not say, what all of today's have.
int64_t FirstCacheBytes();
int64_t SecondCacheBytes();

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_CACHE_SIZES_H_
