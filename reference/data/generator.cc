#include "reference/data/generator.h"

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

uint64_t HighProduct(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xffffffffu, a_high = a >> 32;
  const uint64_t b_low = b & 0xffffffffu, b_high = b >> 32;
  const uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  const uint64_t middle_low = (middle & 0xffffffffu) + a_low * b_high;
  return a_high * b_high + (middle >> 32) + (middle_low >> 32);
}

}  // namespace

Generator::Generator(uint64_t seed, std::string_view stream, uint64_t chunk) {
  // Each part is mixed before the next is added: neighbouring seeds, streams and chunks share
  // nothing.
  uint64_t key = SplitMixBits(seed + kSplitMixIncrement);
  for (const char c : stream)
    key = SplitMixBits(key + kSplitMixIncrement + static_cast<unsigned char>(c));
  state_ = SplitMixBits(key + kSplitMixIncrement + chunk);
}

uint64_t Generator::Bits() {
  state_ += kSplitMixIncrement;
  return SplitMixBits(state_);
}

uint64_t Generator::Below(uint64_t count) {
  KVCHECK_CHECK(count >= 1, "a choice among nothing");
  return HighProduct(Bits(), count);
}

int64_t Generator::Between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
}

double Generator::Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }

double Generator::Sign() { return (Bits() >> 63) != 0 ? -1.0 : 1.0; }

double Generator::Gauss() {
  uint64_t sum = 0;
  for (int i = 0; i < 6; ++i) {
    const uint64_t bits = Bits();
    sum += (bits & 0xffffffffu) + (bits >> 32);
  }
  // A 32-bit integer has mean 2^31 - 1/2; twelve have 6 2^32 - 6.
  const int64_t centred = static_cast<int64_t>(sum) - (int64_t{6} << 32) + 6;
  return static_cast<double>(centred) * 0x1p-32;
}

}  // namespace kvcheck
