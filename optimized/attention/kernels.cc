#include "optimized/attention/kernels.h"

#include <algorithm>
#include <cstring>

#include "optimized/attention/kernel_parts.h"

namespace kvcheck::optimized {
namespace {

// Eight codes of kBits bits, code i at bit i kBits, as eight bytes: halves are moved apart, then
// their halves, and again.
template <int kBits>
uint64_t SplitToBytes(uint64_t joined) {
  constexpr uint64_t kFour = (uint64_t{1} << (4 * kBits)) - 1;
  constexpr uint64_t kTwo = ((uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001u;
  constexpr uint64_t kOne = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001u;
  const uint64_t fours = (joined & kFour) | ((joined >> (4 * kBits)) & kFour) << 32;
  const uint64_t pairs = (fours & kTwo) | ((fours >> (2 * kBits)) & kTwo) << 16;
  return (pairs & kOne) | ((pairs >> kBits) & kOne) << 8;
}

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
      const uint64_t bytes = SplitToBytes<kBits>(joined >> (8 * (at - start)));
      std::memcpy(out, &bytes, 8);
    }
  }
}

}  // namespace

AttentionKernels KernelsFor(bool fused) {
  AttentionKernels kernels{};
  FillDotKernels(fused, &kernels);
  FillSumKernels(fused, &kernels);
  FillPlaneKernels(fused, &kernels);
  FillSoftmaxKernels(fused, &kernels);
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
