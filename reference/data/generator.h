// The project's own source of random numbers, so that a seed means the same bits on every machine:
// integer arithmetic and IEEE operations only, no function of a mathematical library. Data is
// seeded per chunk, never per thread: a generator is named by (seed, stream, chunk), where a stream
// is one tensor ("k", "mask", ...) and a chunk one row of it, so a row can be generated alone.
// Source: the state is the counter and output function of SplitMix64 (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014).

#ifndef REFERENCE_DATA_GENERATOR_H_
#define REFERENCE_DATA_GENERATOR_H_

#include <cstdint>
#include <string_view>

namespace kvcheck {

// The increment of SplitMix64: 2^64 divided by the golden ratio, odd.
inline constexpr uint64_t kSplitMixIncrement = 0x9e3779b97f4a7c15u;

// Its output function: a permutation of the 64-bit integers.
inline uint64_t SplitMixBits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class Generator {
 public:
  Generator(uint64_t seed, std::string_view stream, uint64_t chunk);
  // SplitMix64 from a given state, for sequences that are no tensor.
  explicit Generator(uint64_t state) : state_(state) {}

  uint64_t Bits();
  // Uniform in 0..count - 1, count >= 1. The high half of a 64 x 64 bit product: its departure from
  // uniform is below count / 2^64.
  uint64_t Below(uint64_t count);
  // Uniform in {low, ..., high}.
  int64_t Between(int64_t low, int64_t high);
  // A multiple of 2^-53 in [0, 1).
  double Uniform();
  // -1 or 1.
  double Sign();
  // Close to N(0, 1): the sum of twelve uniform 32-bit integers, centred, times 2^-32 (Irwin-Hall).
  // Mean 0 and variance 1 up to 2^-32, excess kurtosis -0.1, support [-6, 6]; exact in double.
  double Gauss();

 private:
  uint64_t state_;
};

}  // namespace kvcheck

#endif  // REFERENCE_DATA_GENERATOR_H_
