#include "optimized/attention/kernels.h"

#include <algorithm>
#include <cstring>

#include "optimized/attention/kernel_table.h"
#include "optimized/formats/pack.h"

namespace kvcheck::optimized {
namespace {

// Reads eight bytes at a time, more than the kBits that it needs: the last ones of a vector from
// its end, so that nothing behind it is read. 32 channels have at least eight bytes.
template <int kBits>
void Unpack(const std::byte* const* from, int64_t count, int64_t dim, std::byte* out) {
  const int64_t row_bytes = dim * kBits / 8;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t at = 0; at < row_bytes; at += kBits, out += 8) {
      const int64_t start = std::min(at, row_bytes - 8);
      uint64_t joined = 0;
      std::memcpy(&joined, from[i] + start, 8);
      const uint64_t bytes = SplitCodes<kBits>(joined >> (8 * (at - start)));
      std::memcpy(out, &bytes, 8);
    }
  }
}

bool IsMadeByIntel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace

AttentionKernels KernelsFor(bool fused) {
  AttentionKernels kernels{};
  FillDotKernels(fused, &kernels);
  FillSumKernels(fused, &kernels);
  FillPlaneDotKernels(fused, &kernels);
  FillPlaneSumKernels(fused, &kernels);
  FillTurnedKernels(fused, &kernels);
  FillFixedDotKernels(fused, &kernels);
  FillFixedSumKernels(fused, &kernels);
  FillSoftmaxKernels(fused, &kernels);
  FillScaleKernels(&kernels);
  if (IsMadeByIntel() && kernels.fetching == Fetching::kTwoLevels) {
    kernels.fetching = Fetching::kBySize;
  }
  return kernels;
}

void UnpackCodes(int bits, const std::byte* const* from, int64_t count, int64_t dim,
                 std::byte* out) {
  switch (bits) {
    case 2:
      return Unpack<2>(from, count, dim, out);
    case 3:
      return Unpack<3>(from, count, dim, out);
    case 5:
      return Unpack<5>(from, count, dim, out);
    default:
      return Unpack<6>(from, count, dim, out);
  }
}

}  // namespace kvcheck::optimized
