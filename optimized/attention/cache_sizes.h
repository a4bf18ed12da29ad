// L1 and L2 of a core of this machine, which set the sizes of tiles.

#ifndef OPTIMIZED_ATTENTION_CACHE_SIZES_H_
#define OPTIMIZED_ATTENTION_CACHE_SIZES_H_

#include <cstdint>

namespace kvcheck::optimized {

// Bytes of data cache; 32 and 256 KiB where the system does not tell.
int64_t L1Bytes();
int64_t L2Bytes();

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_CACHE_SIZES_H_
