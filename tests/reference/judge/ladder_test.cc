// The precision ladder on references whose coarse steps are wrong, by as much as they admit or
// more.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

constexpr double kBound = 0x1p-10;
const Shape kFiveRows{{"T", 5}, {"Dv", 4}};

// What the reference says at each step of the ladder: its value of every element and its own bound.
struct Step {
  double value;
  double reference_bound;
};

FakeSource Ladder(const std::vector<Step>& steps, int64_t rows_per_tile = 5) {
  return FakeSource(AccuracyInfo(kFiveRows, DType::kFloat64), rows_per_tile,
                    [steps](ExpectedTile& tile, const TileRequest& request) {
                      const Step& step = steps[static_cast<size_t>(request.precision)];
                      tile.value.assign(tile.value.size(), step.value);
                      tile.bound.assign(tile.value.size(), kBound);
                      tile.reference_bound.assign(tile.value.size(), step.reference_bound);
                    });
}

Verdict JudgeValue(const FakeSource& source, double got, const JudgeOptions& options = {}) {
  return Judge(source,
               Observed(MakeTensor(DType::kFloat64, kFiveRows, std::vector<double>(20, got))),
               options);
}

bool Mentions(const std::vector<std::string>& lines, const std::string& text) {
  for (const std::string& line : lines) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(Ladder, StaysAtTheBottomWhenTheReferenceIsSure) {
  const FakeSource source = Ladder({{1, kBound * 0x1p-10}, {1, 0}, {1, 0}});
  const Verdict verdict = JudgeValue(source, 1 + kBound / 2);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].precision, Precision::kDouble);
  EXPECT_EQ(source.asked(Precision::kDoubleDouble), 0);
}

TEST(Ladder, ClimbsWhenTheReferenceBoundIsAboveItsShare) {
  const FakeSource source = Ladder({{1, kBound * 0x1.1p-10}, {1, 0}, {1, 0}});
  const Verdict verdict = JudgeValue(source, 1);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].precision, Precision::kDoubleDouble);
  EXPECT_EQ(source.asked(Precision::kOracle50), 0);
}

TEST(Ladder, ACoarseFailureIsOverruledByAFinerPass) {
  // The coarse value is off by twice the bound, and admits it.
  const FakeSource source = Ladder({{1 + 2 * kBound, 2 * kBound}, {1, 0}, {1, 0}});
  EXPECT_EQ(JudgeValue(source, 1 - kBound / 2).outcome, Outcome::kPass);
}

TEST(Ladder, ACoarsePassIsOverruledByAFinerFailure) {
  const FakeSource source = Ladder({{1 + 2 * kBound, 2 * kBound}, {1, 0}, {1, 0}});
  const Verdict verdict = JudgeValue(source, 1 + 2 * kBound);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].counts.failed, 20);
  EXPECT_EQ(verdict.outputs[0].worst->precision, Precision::kDoubleDouble);
}

TEST(Ladder, APassThanksToTheReferenceBoundIsAskedAgain) {
  const double slack = kBound * 0x1p-12;  // below the share: only the position of got matters
  const FakeSource source = Ladder({{1, slack}, {1 - slack / 2, 0}, {1, 0}});
  const Verdict verdict = JudgeValue(source, 1 + kBound + slack / 2);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(source.asked(Precision::kDoubleDouble), 1);
}

TEST(Ladder, AFailureIsConfirmedOnceOnly) {
  const FakeSource source = Ladder({{1, 0}, {1, 0}, {1, 0}});
  const Verdict verdict = JudgeValue(source, 2, {.explain = false});
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(source.asked(Precision::kDouble), 1);
  EXPECT_EQ(source.asked(Precision::kDoubleDouble), 1);
  EXPECT_EQ(source.asked(Precision::kOracle50), 0);
}

TEST(Ladder, GoesToFiftyDigitsWhenNeeded) {
  const FakeSource source = Ladder({{1, kBound}, {1, kBound * 0x1p-8}, {1, kBound * 0x1p-90}});
  const Verdict verdict = JudgeValue(source, 1);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].precision, Precision::kOracle50);
  EXPECT_EQ(verdict.outputs[0].rows_at[2], 5);
}

TEST(Ladder, WhatFiftyDigitsCannotSettleIsMistrusted) {
  const FakeSource source = Ladder({{1, kBound}, {1, kBound}, {1, kBound}});
  const Verdict verdict = JudgeValue(source, 1);
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_EQ(verdict.outputs[0].counts.unresolved, 20);
  EXPECT_TRUE(Mentions(verdict.reasons, "reference: its own error is too large"));
  EXPECT_EQ(source.asked(Precision::kOracle100), 0);
}

TEST(Ladder, AFailureBeyondAllDoubtStaysAFailure) {
  const FakeSource source = Ladder({{1, kBound}, {1, kBound}, {1, kBound}});
  EXPECT_EQ(JudgeValue(source, 2).outcome, Outcome::kFail);
}

TEST(Ladder, TheHighestStepIsAnOption) {
  const FakeSource source = Ladder({{1, kBound}, {1, kBound}, {1, 0}});
  JudgeOptions options;
  options.highest_precision = Precision::kDoubleDouble;
  EXPECT_EQ(JudgeValue(source, 1, options).outcome, Outcome::kMistrusted);
  EXPECT_EQ(source.asked(Precision::kOracle50), 0);
}

TEST(Ladder, AReferenceThatContradictsItselfIsMistrusted) {
  // The coarse value claims to be exact and is wrong.
  const FakeSource source = Ladder({{1 + 4 * kBound, 0}, {1, 0}, {1, 0}});
  const Verdict verdict = JudgeValue(source, 1);
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_TRUE(Mentions(verdict.reasons,
                       "reference: two precisions differ by more than their own "
                       "error at [t=0, dv=0]"));
}

TEST(Ladder, OnlyTheTilesInDoubtAreRecomputed) {
  FakeSource source(AccuracyInfo(kFiveRows, DType::kFloat64), 1,
                    [](ExpectedTile& tile, const TileRequest& request) {
                      tile.value.assign(4, 1);
                      tile.bound.assign(4, kBound);
                      const bool doubtful =
                          tile.first_row == 3 && request.precision == Precision::kDouble;
                      tile.reference_bound.assign(4, doubtful ? kBound : 0);
                    });
  const Verdict verdict = JudgeValue(source, 1);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(source.asked(Precision::kDoubleDouble), 1);
  EXPECT_EQ(verdict.outputs[0].rows_at, (std::array<int64_t, kPrecisions>{4, 1, 0, 0}));
}

TEST(Ladder, ASourceWithoutFinerStepsIsAskedOnceMoreOnly) {
  FakeSource source(AccuracyInfo(kFiveRows, DType::kFloat64), 5,
                    [](ExpectedTile& tile, const TileRequest&) {
                      tile.precision = Precision::kDouble;
                      tile.value.assign(tile.value.size(), 1);
                    });
  EXPECT_EQ(JudgeValue(source, 2, {.explain = false}).outcome, Outcome::kFail);
  EXPECT_EQ(source.asked(Precision::kDoubleDouble), 1);
  EXPECT_EQ(source.asked(Precision::kOracle50), 0);
}

TEST(Ladder, CodesThatTheReferenceCannotNameAreMistrusted) {
  OutputInfo info = AccuracyInfo(kFiveRows, DType::kBFloat16);
  info.claim = Claim::kConformance;
  // 1 + 2^-20 is no bfloat16.
  FakeSource source(info, 5, [](ExpectedTile& tile, const TileRequest&) {
    tile.value.assign(tile.value.size(), 1);
    tile.value[7] = 1 + 0x1p-20;
  });
  std::vector<double> got(20, 1.0);
  const Verdict verdict = Judge(source, Observed(MakeTensor(DType::kBFloat16, kFiveRows, got)));
  EXPECT_NE(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].counts.unresolved, 1);
}

}  // namespace
}  // namespace kvcheck
