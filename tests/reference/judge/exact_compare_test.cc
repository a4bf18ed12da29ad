#include "reference/judge/exact_compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

TEST(ExactCompare, DecidesWhereRoundingWouldHideTheDifference) {
  // got - value = 1 + 2^-60 rounds to 1.
  EXPECT_TRUE(IsWithin({2, 0}, {1, 0}, 1, 0));
  EXPECT_FALSE(IsWithin({2, 0}, {1, -0x1p-60}, 1, 0));
  EXPECT_TRUE(IsWithin({2, 0}, {1, 0x1p-60}, 1, 0));
  EXPECT_TRUE(IsWithin({2, 0}, {1, -0x1p-60}, 1, 0x1p-60));
  EXPECT_FALSE(IsWithin({2, 0}, {1, -0x1p-60}, 1, 0x1p-61));
  EXPECT_FALSE(IsWithin({-2, 0}, {-1, 0x1p-60}, 1, 0));
}

TEST(ExactCompare, DecidesAtTheEndsOfTheRange) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_TRUE(IsWithin({tiny, 0}, {0, 0}, tiny, 0));
  EXPECT_FALSE(IsWithin({2 * tiny, 0}, {0, 0}, tiny, 0));
  EXPECT_FALSE(IsWithin({tiny, 0}, {0, 0}, 0, 0));
  EXPECT_TRUE(IsWithin({0, 0}, {0, 0}, 0, 0));
  const double huge = std::numeric_limits<double>::max();
  EXPECT_FALSE(IsWithin({huge, 0}, {-huge, 0}, huge, 0));
  EXPECT_TRUE(IsWithin({huge, 0}, {-huge, 0}, huge, huge));
  EXPECT_TRUE(IsWithin({huge, 0}, {huge, 0}, 0, 0));
  EXPECT_FALSE(IsWithin({huge, 0}, {std::nextafter(huge, 0), 0}, 1, 0));
}

TEST(ExactCompare, NothingWithoutANumberIsWithin) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(IsWithin({nan, 0}, {0, 0}, 1, 0));
  EXPECT_FALSE(IsWithin({0, 0}, {nan, 0}, 1, 0));
  EXPECT_FALSE(IsWithin({infinity, 0}, {infinity, 0}, 1, 0));
  EXPECT_FALSE(IsWithin({0, 0}, {0, 0}, nan, 0));
  EXPECT_FALSE(IsWithin({0, 0}, {0, 0}, 0, nan));
  EXPECT_FALSE(IsWithin({1, 0}, {0, 0x1p-80}, nan, 0));
  EXPECT_FALSE(IsWithin({nan, 0}, {0, 0}, infinity, 0));
  EXPECT_TRUE(IsWithin({1, 0}, {0, 0}, 0, infinity));
}

// On multiples of 2^-20 below 2^20 every sum below is an exact integer, so the rule can be checked.
TEST(ExactCompare, AgreesWithIntegersAtEveryBoundary) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const double got = Hashed(1, i);
    const double value = Hashed(2, i);
    const double low = Hashed(3, i) * 0x1p-40;
    const double error = std::fabs(got - value);  // exact, and a multiple of 2^-20
    const double sign = got - value < 0 ? -1 : 1;
    // |(got - value) - low| == error - sign low, as a sum of bound and slack.
    const double slack = -sign * low;
    if (error == 0 || slack < 0) continue;
    EXPECT_TRUE(IsWithin({got, 0}, {value, low}, error, slack)) << i;
    EXPECT_FALSE(IsWithin({got, 0}, {value, low}, std::nextafter(error, 0), slack)) << i;
    if (slack > 0) {
      EXPECT_FALSE(IsWithin({got, 0}, {value, low}, error, std::nextafter(slack, 0))) << i;
    }
  }
}

TEST(ExactCompare, TheErrorKeepsWhatTheValueLeavesOut) {
  EXPECT_EQ(ErrorOf({1, 0}, {1, 0x1p-70}), -0x1p-70);
  EXPECT_EQ(ErrorOf({1, 0x1p-60}, {1, 0}), 0x1p-60);
  EXPECT_EQ(ErrorOf({3, 0}, {1, 0}), 2.0);
  // Where a step on the way is beyond the range, and the difference is not.
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(ErrorOf({0x1.999999999999bp+1022, 0}, {largest, 0}), -0x1.3333333333332p+1023);
}

}  // namespace
}  // namespace kvcheck
