#include "optimized/attention/cache_sizes.h"

#include <unistd.h>

namespace kvcheck::optimized {
namespace {

#ifdef _SC_LEVEL1_DCACHE_SIZE
constexpr int kFirstCache = _SC_LEVEL1_DCACHE_SIZE;
constexpr int kSecondCache = _SC_LEVEL2_CACHE_SIZE;
#else
constexpr int kFirstCache = -1;  // no name: sysconf knows of nothing
constexpr int kSecondCache = -2;
#endif

template <int kName>
int64_t BytesOf(int64_t otherwise) {
  static const int64_t bytes = sysconf(kName);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

int64_t FirstCacheBytes() { return BytesOf<kFirstCache>(int64_t{32} << 10); }
int64_t SecondCacheBytes() { return BytesOf<kSecondCache>(int64_t{256} << 10); }

}  // namespace kvcheck::optimized
