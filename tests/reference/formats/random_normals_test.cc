// Deviates beside those that numpy 2.4.6 draws: default_rng(seed + 1 + 2971 d + 17).standard_normal
// of d d in f32.

#include "reference/formats/random_normals.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace kvcheck {
namespace {

struct DrawnNormals {
  int64_t seed, d;
  std::array<uint32_t, 3> ends;  // the first, the second and the last one
  uint64_t hash;                 // FNV-1a of the bytes, little endian
  int from_tail;                 // beyond the ziggurat's edge
};

const std::vector<DrawnNormals> kDrawnNormals = {
    {0, 32, {0x3e0c2135, 0xbf0b1f10, 0x3f4e8f50}, 0x5cc86ac5fd1bdcca, 0},
    {1, 32, {0xbe007993, 0x3f91cb6e, 0x3e99392b}, 0x892b5061e23faf61, 1},
    {0, 64, {0x3f09996b, 0xbdc2e5ac, 0x3f1f582d}, 0x9386fc6952ddc1e4, 1},
    {1, 64, {0x3e06d1cc, 0xbf2c921d, 0x3f3c66e0}, 0x151523f03b2bdd60, 1},
    {97, 64, {0x3f3debca, 0xbf2da89e, 0xbf941d24}, 0x6901817d8a207994, 0},
    {0, 128, {0x3e8e226d, 0x3fe2932f, 0xbe1df180}, 0x3d573c039a6d6f27, 7},
    {1, 128, {0xbe333315, 0xc00a7fb3, 0x3e78dac9}, 0x50badc5858048ded, 9},
    {0, 256, {0xbea6237b, 0x3f940e64, 0xbf7b0b8c}, 0x8fad1e40f5f67b04, 13},
};

uint64_t HashOf(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ (std::bit_cast<uint32_t>(value) >> 8 * byte & 0xff)) * 0x100000001b3;
    }
  }
  return hash;
}

TEST(RandomNormals, AreThoseOfNumpy) {
  for (const DrawnNormals& drawn : kDrawnNormals) {
    const uint32_t seed = TurboquantProjectionSeed(drawn.seed, drawn.d);
    const std::vector<float> values = RandomNormals(seed, drawn.d * drawn.d);
    ASSERT_EQ(values.size(), static_cast<size_t>(drawn.d * drawn.d));
    EXPECT_EQ(std::bit_cast<uint32_t>(values[0]), drawn.ends[0]) << drawn.seed << " " << drawn.d;
    EXPECT_EQ(std::bit_cast<uint32_t>(values[1]), drawn.ends[1]);
    EXPECT_EQ(std::bit_cast<uint32_t>(values.back()), drawn.ends[2]);
    EXPECT_EQ(HashOf(values), drawn.hash) << drawn.seed << " " << drawn.d;
    int from_tail = 0;
    for (const float value : values) from_tail += std::fabs(value) > 3.6541528f ? 1 : 0;
    EXPECT_EQ(from_tail, drawn.from_tail);
  }
}

// Moments of 250,000 deviates within five standard errors: those of x, x^2, x^4 are 1, sqrt(2) and
// sqrt(96) over the root of their number.
TEST(RandomNormals, HaveTheMomentsOfTheirDistribution) {
  constexpr int64_t kCount = 250'000;
  double sum = 0, square = 0, fourth = 0;
  for (const float value : RandomNormals(7, kCount)) {
    const auto x = static_cast<double>(value);
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  const double error = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(sum / kCount, 0, error);
  EXPECT_NEAR(square / kCount, 1, std::sqrt(2.0) * error);
  EXPECT_NEAR(fourth / kCount, 3, std::sqrt(96.0) * error);
}

}  // namespace
}  // namespace kvcheck
