// Questions about many doubles at once, whose answers are gathered as bits: 0 as long as every
// answer is yes. Unlike a loop over bools, a loop over these uses vectors on any machine.

#ifndef REFERENCE_JUDGE_RUN_CHECKS_H_
#define REFERENCE_JUDGE_RUN_CHECKS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvcheck {

// 0 for a zero of either sign.
inline uint64_t NotZeroBits(double x) { return std::bit_cast<uint64_t>(x) << 1; }

// 0 for a finite number: x - x is +0, and NaN for the others.
inline uint64_t NotFiniteBits(double x) { return std::bit_cast<uint64_t>(x - x); }

// 0 for 0 and for numbers in [2^-174, 2^200), so far from the ends of double that products of two
// of these, of two of their quotients, and of a quotient with itself are within 2^-900 and 2^900.
// Some smaller and larger numbers give 0 too: at least 2^-224, below 2^201.
inline uint64_t NotModerateBits(double x) {
  const double up = x * 0x1p823;  // infinite from 2^201 on
  // Below 2^-172 a subnormal number: what it loses does not come back.
  const double back = (x * 0x1p-850) * 0x1p850;
  return NotFiniteBits(up) | (std::bit_cast<uint64_t>(back) ^ std::bit_cast<uint64_t>(x));
}

// The largest of lowest and the numbers that get(i) gives for i in [0, count), none of them NaN.
// Four running maxima, since one would wait for itself.
template <typename Get>
double LargestOf(double lowest, size_t count, Get get) {
  std::array<double, 4> largest = {lowest, lowest, lowest, lowest};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t k = 0; k < 4; ++k) {
      const double x = get(i + k);
      largest[k] = x > largest[k] ? x : largest[k];
    }
  }
  for (; i < count; ++i) largest[0] = std::max(largest[0], get(i));
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

}  // namespace kvcheck

#endif  // REFERENCE_JUDGE_RUN_CHECKS_H_
