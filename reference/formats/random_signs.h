// Random signs as numpy draws them, so that the rotation of turboquant is the same on every
// machine: integer arithmetic alone.
//
// Definition: numpy's default_rng(seed) is PCG64 (O'Neill, "PCG: a family of simple fast
// space-efficient statistically good algorithms", 2014: 128 bits of state, output XSL-RR) seeded
// through SeedSequence (O'Neill, "Developing a seed_seq alternative", 2015). Its choice among
// {-1, +1} takes halves of the 64-bit outputs w_0, w_1, ...: sign 2k is + where bit 31 of w_k is
// set, sign 2k + 1 where bit 63 is.
// Source: numpy 2.4.6, numpy/random/bit_generator.pyx and _pcg64.pyx.

#ifndef REFERENCE_FORMATS_RANDOM_SIGNS_H_
#define REFERENCE_FORMATS_RANDOM_SIGNS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvcheck {

class Pcg64 {
 public:
  struct Wide {
    uint64_t high = 0;
    uint64_t low = 0;
    bool operator==(const Wide&) const = default;
  };
  // As default_rng(seed).
  explicit Pcg64(uint32_t seed);
  uint64_t Next();
  Wide state() const { return state_; }
  Wide increment() const { return increment_; }

 private:
  void Step();
  Wide state_, increment_;
};

// `count` signs, an even number, as +1 and -1.
std::vector<float> RandomSigns(uint32_t seed, int64_t count);

// What mlx-vlm gives numpy for the codec's seed and the dimension of the rotation.
inline uint32_t TurboquantRngSeed(int64_t seed, int64_t d) {
  return static_cast<uint32_t>(seed + 7919 * d);
}

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_RANDOM_SIGNS_H_
