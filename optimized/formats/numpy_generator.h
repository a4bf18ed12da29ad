// numpy's random bits on every machine: what rotations and projections of turboquant are drawn
// from.

#ifndef OPTIMIZED_FORMATS_NUMPY_GENERATOR_H_
#define OPTIMIZED_FORMATS_NUMPY_GENERATOR_H_

#include <bit>
#include <cstdint>

namespace kvcheck::optimized {

// numpy's default_rng(seed): PCG64 through SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint32_t seed) {
    uint32_t pool[4] = {seed, 0, 0, 0};
    uint32_t key = 0x43b0d7e5u;
    for (uint32_t& word : pool) word = Hashed(word, 0x931e8875u, &key);
    for (int source = 0; source < 4; ++source) {
      for (int target = 0; target < 4; ++target) {
        if (source == target) continue;
        const uint32_t word = Hashed(pool[source], 0x931e8875u, &key);
        pool[target] = 0xca01f9ddu * pool[target] - 0x4973f715u * word;
        pool[target] ^= pool[target] >> 16;
      }
    }
    key = 0x8b51f9ddu;
    uint64_t words[4];
    for (int i = 0; i < 4; ++i) {
      words[i] = Hashed(pool[2 * i % 4], 0x58f38dedu, &key);
      words[i] |= uint64_t{Hashed(pool[(2 * i + 1) % 4], 0x58f38dedu, &key)} << 32;
    }
    increment_ = (Wide{words[2]} << 64 | words[3]) << 1 | 1;
    state_ = increment_ + (Wide{words[0]} << 64 | words[1]);
    Step();
  }
  uint64_t Next() {
    Step();
    const auto high = static_cast<uint64_t>(state_ >> 64);
    return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static uint32_t Hashed(uint32_t word, uint32_t multiplier, uint32_t* key) {
    word ^= *key;
    *key *= multiplier;
    word *= *key;
    return word ^ word >> 16;
  }
  void Step() {
    constexpr Wide kMultiplier = Wide{0x2360ed051fc65da4u} << 64 | 0x4385df649fccf645u;
    state_ = state_ * kMultiplier + increment_;
  }

  Wide state_, increment_;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_NUMPY_GENERATOR_H_
