// A rule that allows more than a derived bound is found, with both numbers and the place.

#include "reference/judge/looseness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "reference/spec/error.h"
#include "tests/reference/judge/fake_source.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

// Values 1, 2, 3, ... with bounds 2^-10 of them, but `tight` at one element.
FakeSource Source(int64_t rows, int64_t element, double tight) {
  return FakeSource(AccuracyInfo({{"T", rows}, {"Dv", 4}}), 3,
                    [=](ExpectedTile& tile, const TileRequest&) {
                      for (size_t i = 0; i < tile.value.size(); ++i) {
                        const int64_t at = tile.first_row * 4 + static_cast<int64_t>(i);
                        tile.value[i] = static_cast<double>(at + 1);
                        tile.bound[i] = at == element ? tight : 0x1p-10 * tile.value[i];
                      }
                    });
}

ToleranceRule Rule(const std::string& text) { return ParseToleranceRule(WholeLine(text)); }

TEST(Looseness, NamesBothNumbersWhereTheRatioIsLargest) {
  for (const int threads : {1, 3}) {
    const auto found = FindLooseness(Source(10, 21, 0x1p-20), 0, Rule("rel:2^-12"), threads);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->element, 21);
    EXPECT_EQ(found->coordinates, "[t=5, dv=1]");
    EXPECT_EQ(found->tolerance, 22 * 0x1p-12);
    EXPECT_EQ(found->bound, 0x1p-20);
    EXPECT_EQ(found->ratio, 22 * 0x1p8);
    EXPECT_EQ(found->looser, 1);
    EXPECT_EQ(found->compared, 40);
  }
}

TEST(Looseness, ARuleAtTheBoundIsNotLooser) {
  EXPECT_FALSE(FindLooseness(Source(10, -1, 0), 0, Rule("rel:2^-10")).has_value());
  const auto found = FindLooseness(Source(10, -1, 0), 0, Rule("rel:2^-9"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->looser, 40);
  EXPECT_EQ(found->ratio, 2.0);
  EXPECT_EQ(found->element, 0);  // the first of equals
}

TEST(Looseness, ExactIsLooserThanNothingAndAnyToleranceThanABoundOfZero) {
  EXPECT_FALSE(FindLooseness(Source(2, 3, 0), 0, Rule("exact")).has_value());
  EXPECT_FALSE(FindLooseness(Source(2, 3, 0), 0, Rule("ulp:0")).has_value());
  const auto found = FindLooseness(Source(2, 3, 0), 0, Rule("ulp:1"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->element, 3);
  EXPECT_EQ(found->tolerance, 0x1p-21);  // the spacing of f32 at 4
  EXPECT_EQ(found->bound, 0.0);
  EXPECT_EQ(found->ratio, kInfinity);
}

TEST(Looseness, WhatIsNotJudgedDoesNotCount) {
  const FakeSource source(
      AccuracyInfo({{"T", 3}, {"Dv", 1}}), 3, [](ExpectedTile& tile, const TileRequest&) {
        tile.value = {1, kInfinity, 1};
        tile.bound = {kInfinity, 0, 0};
        tile.standing = {Standing::kJudged, Standing::kJudged, Standing::kUndefined};
      });
  EXPECT_FALSE(FindLooseness(source, 0, Rule("abs:1")).has_value());
}

TEST(Looseness, RulesThatAreBoundsAreRefused) {
  EXPECT_THROW(FindLooseness(Source(1, -1, 0), 0, Rule("derived")), Error);
  EXPECT_THROW(FindLooseness(Source(1, -1, 0), 0, Rule("codec:f16")), Error);
}

}  // namespace
}  // namespace kvcheck
