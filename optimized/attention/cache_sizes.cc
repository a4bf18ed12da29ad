#include "optimized/attention/cache_sizes.h"

#include <unistd.h>

namespace kvcheck::optimized {
namespace {

#ifdef _SC_LEVEL1_DCACHE_SIZE
constexpr int kL1 = _SC_LEVEL1_DCACHE_SIZE;
constexpr int kL2 = _SC_LEVEL2_CACHE_SIZE;
#else
constexpr int kL1 = -1;  // no such name: sysconf fails
constexpr int kL2 = -2;
#endif

template <int kName>
int64_t BytesOf(int64_t otherwise) {
  static const int64_t bytes = sysconf(kName);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

int64_t L1Bytes() { return BytesOf<kL1>(int64_t{32} << 10); }
int64_t L2Bytes() { return BytesOf<kL2>(int64_t{256} << 10); }

}  // namespace kvcheck::optimized
