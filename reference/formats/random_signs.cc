#include "reference/formats/random_signs.h"

#include <array>
#include <bit>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using Wide = Pcg64::Wide;

// Four words of 64 bits from one of 32, as SeedSequence(seed).generate_state(4, uint64).
std::array<uint64_t, 4> SeedState(uint32_t seed) {
  uint32_t constant = 0x43b0d7e5u;
  const auto hash = [&](uint32_t value, uint32_t multiplier) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> 16;
  };
  constexpr uint32_t kIn = 0x931e8875u, kOut = 0x58f38dedu;
  std::array<uint32_t, 4> pool;
  for (size_t i = 0; i < 4; ++i) pool[i] = hash(i == 0 ? seed : 0, kIn);
  for (size_t from = 0; from < 4; ++from) {
    for (size_t to = 0; to < 4; ++to) {
      if (from == to) continue;
      const uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * hash(pool[from], kIn);
      pool[to] = mixed ^ mixed >> 16;
    }
  }
  constant = 0x8b51f9ddu;
  std::array<uint64_t, 4> state;
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t low = hash(pool[2 * i % 4], kOut);
    const uint64_t high = hash(pool[(2 * i + 1) % 4], kOut);
    state[i] = low | high << 32;
  }
  return state;
}

Wide Sum(const Wide& a, const Wide& b) {
  const uint64_t low = a.low + b.low;
  return {a.high + b.high + (low < a.low ? 1 : 0), low};
}

// The whole product of two 64-bit numbers, by halves.
Wide Product(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t other = a0 * b1 + (middle & 0xffffffffu);
  return {a1 * b1 + (middle >> 32) + (other >> 32), a * b};
}

}  // namespace

Pcg64::Pcg64(uint32_t seed) {
  const std::array<uint64_t, 4> words = SeedState(seed);
  // The increment is the third and fourth word, shifted, and odd.
  increment_ = {words[2] << 1 | words[3] >> 63, words[3] << 1 | 1};
  Step();
  state_ = Sum(state_, {words[0], words[1]});
  Step();
}

void Pcg64::Step() {
  constexpr Wide kMultiplier = {0x2360ed051fc65da4u, 0x4385df649fccf645u};
  Wide product = Product(state_.low, kMultiplier.low);
  product.high += state_.high * kMultiplier.low + state_.low * kMultiplier.high;
  state_ = Sum(product, increment_);
}

uint64_t Pcg64::Next() {
  Step();
  return std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58));
}

std::vector<float> RandomSigns(uint32_t seed, int64_t count) {
  KVCHECK_CHECK(count % 2 == 0, "signs come in pairs");
  Pcg64 random(seed);
  std::vector<float> signs;
  while (static_cast<int64_t>(signs.size()) < count) {
    const uint64_t word = random.Next();
    signs.push_back((word >> 31 & 1) != 0 ? 1.0f : -1.0f);
    signs.push_back(word >> 63 != 0 ? 1.0f : -1.0f);
  }
  return signs;
}

}  // namespace kvcheck
