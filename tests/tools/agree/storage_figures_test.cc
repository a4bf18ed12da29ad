#include "tools/agree/storage_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvcheck {
namespace {

using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// 100 positions of which something was judged, and nothing is wrong.
StorageFigures Right() {
  StorageFigures figures;
  figures.correctness.positions = 100;
  figures.steps.elements = 1;
  figures.propagated_largest = 1;
  return figures;
}

void AddFlips(int64_t count, bool excused, StorageFigures* figures) {
  for (int64_t i = 0; i < count; ++i) {
    Flip flip;
    flip.position = i;
    flip.margin = 1;
    flip.propagated = excused ? 1 : 0.5;
    figures->excused += flip.excused() ? 1 : 0;
    figures->flips.push_back(flip);
  }
}

TEST(Conclude, WhatIsRightPasses) {
  StorageFigures figures = Right();
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kPass);
  EXPECT_EQ(figures.why, "");
}

TEST(Conclude, WhereNothingCanBeWrongNothingIsProved) {
  StorageFigures figures = Right();
  figures.propagated_largest = 0;
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kMistrusted);
  EXPECT_THAT(figures.why, HasSubstr("zeros"));
}

TEST(Conclude, MoreThanOneExcusedFlipInTwentyPositionsProvesNothing) {
  StorageFigures figures = Right();
  AddFlips(5, true, &figures);
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kPass);
  AddFlips(1, true, &figures);
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kMistrusted);
  EXPECT_THAT(figures.why, HasSubstr("6 of 100 positions are excused flips"));
}

TEST(Conclude, OneFlipWithoutAnExcuseFailsAndIsNamed) {
  StorageFigures figures = Right();
  AddFlips(6, true, &figures);
  AddFlips(1, false, &figures);
  figures.flips.back().position = 42;
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kFail);
  EXPECT_THAT(figures.why, HasSubstr("token 42"));
}

TEST(Conclude, AMarginThatMovedFurtherThanArithmeticExplainsFails) {
  for (const double share : {1.0, 1 + 0x1p-52, kNan}) {
    StorageFigures figures = Right();
    figures.propagated_share = share;
    Conclude(&figures);
    EXPECT_EQ(figures.outcome, share == 1 ? Outcome::kPass : Outcome::kFail) << share;
  }
}

TEST(Conclude, LogitsThatDifferWhereTheyAreFedOtherwiseFail) {
  for (const double change : {0.0, 0x1p-149, kNan}) {
    StorageFigures figures = Right();
    figures.noise.emplace_back();
    figures.noise.back().what = "288 tokens of a prefix cache, reloaded from disk";
    figures.noise.back().largest = change;
    Conclude(&figures);
    EXPECT_EQ(figures.outcome, change == 0 ? Outcome::kPass : Outcome::kFail) << change;
    if (change != 0) {
      EXPECT_THAT(figures.why, HasSubstr("from disk"));
    }
  }
}

TEST(Conclude, KeptTokensThatDoNotHitFail) {
  StorageFigures figures = Right();
  figures.noise.emplace_back();
  figures.noise.back().what = "16 tokens of a prefix cache";
  figures.noise.back().missing_tokens = 272;
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kFail);
  EXPECT_THAT(figures.why, HasSubstr("272 more"));
}

TEST(Conclude, AStepThatFailedComesBeforeOneThatProvedNothing) {
  StorageFigures figures = Right();
  figures.first = StepFinding();
  figures.steps_mistrusted = 1;
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kMistrusted);
  figures.steps_failed = 1;
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kFail);
}

TEST(Conclude, NothingJudgedProvesNothing) {
  StorageFigures figures = Right();
  figures.steps.elements = 0;
  Conclude(&figures);
  EXPECT_EQ(figures.outcome, Outcome::kMistrusted);
}

TEST(Difference, IsTheLargestChangeAndANanStays) {
  const std::vector<float> a = {0, 1, 2, 3, 4, 5};
  std::vector<float> b = {0, 1.5F, 2, 7, 4, 5};
  NoiseFloor noise = Difference("chunks", 3, a, b);
  EXPECT_EQ(noise.positions, 2);
  EXPECT_EQ(noise.largest, 4);
  EXPECT_EQ(noise.flips, 1);
  b[0] = std::numeric_limits<float>::quiet_NaN();
  noise.Add(Difference("chunks", 3, a, b));
  EXPECT_EQ(noise.positions, 4);
  EXPECT_TRUE(std::isnan(noise.largest));
  noise.Add(Difference("chunks", 3, a, a));
  EXPECT_TRUE(std::isnan(noise.largest));
}

}  // namespace
}  // namespace kvcheck
