#include "optimized/attention/kernels.h"

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

template <int kBits>
void Unpack(const std::byte* const* from, int64_t count, int64_t dim, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* row = from[i];
    for (int64_t at = 0; at < dim; at += 8, row += kBits, out += 8) {
      uint64_t joined = 0;
      std::memcpy(&joined, row, kBits);
      const uint64_t bytes = SplitToBytes<kBits>(joined);
      std::memcpy(out, &bytes, 8);
    }
  }
}

}  // namespace

AttentionKernels KernelsFor(bool fused) {
  AttentionKernels kernels{};
  FillDotKernels(fused, &kernels);
  FillSumKernels(fused, &kernels);
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
