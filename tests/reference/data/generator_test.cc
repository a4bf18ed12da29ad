// The generator: the same integers everywhere, chunks that share nothing, and the moments that its
// header states.

#include "reference/data/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>

namespace kvcheck {
namespace {

TEST(Generator, GivesTheSameIntegersOnEveryMachine) {
  Generator random(1, "k", 2);
  EXPECT_EQ(random.Bits(), 3330467150687701648u);
  EXPECT_EQ(random.Bits(), 11867700354881264349u);
}

TEST(Generator, SeparatesSeedsStreamsAndChunks) {
  std::set<uint64_t> first;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    for (const char* stream : {"", "a", "b", "ab", "ba"}) {
      for (uint64_t chunk = 0; chunk < 16; ++chunk) {
        first.insert(Generator(seed, stream, chunk).Bits());
      }
    }
  }
  EXPECT_EQ(first.size(), 16u * 5u * 16u);
}

TEST(Generator, ChoosesWithinItsRange) {
  Generator random(3, "range", 0);
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(random.Below(1), 0u);
    const int64_t value = random.Between(-2, 3);
    EXPECT_GE(value, -2);
    EXPECT_LE(value, 3);
    seen.insert(value);
    const double uniform = random.Uniform();
    EXPECT_GE(uniform, 0.0);
    EXPECT_LT(uniform, 1.0);
    EXPECT_EQ(std::fabs(random.Sign()), 1.0);
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(Generator, GaussHasMeanZeroVarianceOneAndTheKurtosisOfTwelveUniforms) {
  constexpr int kCount = 1 << 18;
  double sum = 0, squares = 0, fourth = 0;
  Generator random(5, "moments", 0);
  for (int i = 0; i < kCount; ++i) {
    const double x = random.Gauss();
    ASSERT_LE(std::fabs(x), 6.0);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  const double n = kCount;
  // Six standard errors; the moments of N(0, 1), which bound those of the sum: var(x) = 1,
  // var(x^2) = 2, var(x^4) = 96.
  EXPECT_LE(std::fabs(sum / n), 6 * std::sqrt(1 / n));
  EXPECT_LE(std::fabs(squares / n - 1), 6 * std::sqrt(2 / n));
  EXPECT_LE(std::fabs(fourth / n - 2.9), 6 * std::sqrt(96 / n));
}

}  // namespace
}  // namespace kvcheck
