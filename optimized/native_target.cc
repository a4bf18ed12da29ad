// For CMake: prints the targets of Highway that a build for this processor does without, as a sum
// of their bits: those it lacks, and those it has a better one than.

// Only some kernels are compiled for this target: the best of the others stays beside it.
#define HWY_WANT_AVX3_DL
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>

int main() {
  const int64_t here = hwy::SupportedTargets() & HWY_ATTAINABLE_TARGETS;
  // Of two targets the better one has the lower bit; the baseline cannot be left out.
  const int64_t others = here & ~int64_t{HWY_AVX3_DL};
  const int64_t kept = (others & -others) | (here & HWY_AVX3_DL) | HWY_STATIC_TARGET;
  std::printf("%" PRId64, HWY_ATTAINABLE_TARGETS & ~kept);
  return 0;
}
