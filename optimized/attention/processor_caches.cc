#include "optimized/attention/processor_caches.h"

#include <unistd.h>

namespace kvcheck::optimized {
namespace {

// 0 or less: not known.
[[maybe_unused]] int64_t Ask(int name, int64_t otherwise) {
  const int64_t bytes = sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

int64_t FirstCacheBytes() {
  constexpr int64_t kLeast = int64_t{32} << 10;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  static const int64_t bytes = Ask(_SC_LEVEL1_DCACHE_SIZE, kLeast);
  return bytes;
#else
  return kLeast;
#endif
}

int64_t SecondCacheBytes() {
  constexpr int64_t kLeast = int64_t{256} << 10;
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const int64_t bytes = Ask(_SC_LEVEL2_CACHE_SIZE, kLeast);
  return bytes;
#else
  return kLeast;
#endif
}

}  // namespace kvcheck::optimized
