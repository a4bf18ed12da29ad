#include "reference/spec/rounding.h"

#include <gtest/gtest.h>

namespace kvcheck {
namespace {

TEST(RoundingNames, ParseBackToTheirValues) {
  for (const Rounding rounding :
       {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kNearestAway}) {
    EXPECT_EQ(ParseRounding(Name(rounding)), rounding);
  }
  for (const Overflow overflow : {Overflow::kDefault, Overflow::kInfinity, Overflow::kNaN,
                                  Overflow::kSaturate, Overflow::kSaturateAll}) {
    EXPECT_EQ(ParseOverflow(Name(overflow)), overflow);
  }
}

TEST(RoundingNames, AreTheOnesThatPlansUse) {
  EXPECT_EQ(Name(Rounding::kNearestEven), "nearest_even");
  EXPECT_EQ(Name(Rounding::kTowardZero), "toward_zero");
  EXPECT_EQ(Name(Rounding::kNearestAway), "nearest_away");
  EXPECT_EQ(Name(Overflow::kSaturate), "saturate");
  EXPECT_EQ(Name(Overflow::kNaN), "nan");
}

TEST(RoundingNames, RefuseOthers) {
  EXPECT_FALSE(ParseRounding("nearest"));
  EXPECT_FALSE(ParseRounding(""));
  EXPECT_FALSE(ParseOverflow("NaN"));
}

}  // namespace
}  // namespace kvcheck
