// Eight codes of a few bits each, between one a byte and side by side, in a word of 64 bits.

#ifndef OPTIMIZED_FORMATS_PACK_H_
#define OPTIMIZED_FORMATS_PACK_H_

#include <cstdint>

namespace kvcheck {

// Eight codes, one a byte, as 8 kBits bits: code i at bit i kBits. Neighbours are joined in pairs,
// then pairs and pairs of pairs.
template <int kBits>
constexpr uint64_t JoinCodes(uint64_t bytes) {
  if constexpr (kBits == 8) return bytes;
  constexpr uint64_t kBytes = 0x00ff00ff00ff00ffu;
  constexpr uint64_t kShorts = 0x0000ffff0000ffffu;
  const uint64_t pairs = (bytes & kBytes) | ((bytes >> 8) & kBytes) << kBits;
  const uint64_t fours = (pairs & kShorts) | ((pairs >> 16) & kShorts) << (2 * kBits);
  return (fours & 0xffffffffu) | (fours >> 32) << (4 * kBits);
}

// And back.
template <int kBits>
constexpr uint64_t SplitCodes(uint64_t joined) {
  if constexpr (kBits == 8) return joined;
  constexpr uint64_t kFour = (uint64_t{1} << (4 * kBits)) - 1;
  constexpr uint64_t kTwo = ((uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001u;
  constexpr uint64_t kOne = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001u;
  const uint64_t fours = (joined & kFour) | ((joined >> (4 * kBits)) & kFour) << 32;
  const uint64_t pairs = (fours & kTwo) | ((fours >> (2 * kBits)) & kTwo) << 16;
  return (pairs & kOne) | ((pairs >> kBits) & kOne) << 8;
}

}  // namespace kvcheck

#endif  // OPTIMIZED_FORMATS_PACK_H_
