#include "tools/agree/measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvcheck {
namespace {

// Rounding of sums of a few terms of size 1: some units of the last place.
constexpr double kRounding = 16 * std::numeric_limits<double>::epsilon();

TEST(ComparePosition, IsTheDefinitionOfKlOnTwoTokens) {
  const std::vector<double> p = {std::log(0.75), std::log(0.25)};
  const std::vector<double> q = {std::log(0.5) + 3, std::log(0.5) + 3};  // any shift of logits
  const PositionFigures figures = ComparePosition(p, q, 1);
  const double kl = 0.75 * std::log(0.75 / 0.5) + 0.25 * std::log(0.25 / 0.5);
  EXPECT_NEAR(figures.kl, kl, kRounding);
  EXPECT_NEAR(figures.reference_log_p, std::log(0.25), kRounding);
  EXPECT_NEAR(figures.log_p, std::log(0.5), kRounding);
  EXPECT_TRUE(figures.same_top1);
}

TEST(ComparePosition, SaysThatTheTopTokenChanged) {
  EXPECT_FALSE(
      ComparePosition(std::vector<double>{1, 2, 0}, std::vector<double>{2, 1, 0}, 0).same_top1);
  EXPECT_TRUE(
      ComparePosition(std::vector<double>{1, 2, 0}, std::vector<double>{0, 9, 8}, 0).same_top1);
}

TEST(ComparePosition, ANanIsNoAgreement) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(
      std::isnan(ComparePosition(std::vector<double>{0, 1}, std::vector<double>{0, nan}, 0).kl));
}

TEST(Summarize, QuantilesMeansAndRatioAreThoseOfTheDefinition) {
  std::vector<PositionFigures> positions(641);
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i].kl = static_cast<double>(i);
    positions[i].same_top1 = i % 2 == 0;
    positions[i].reference_log_p = -1;
    positions[i].log_p = -1.5;
  }
  const AgreementFigures figures = Summarize(positions);
  EXPECT_EQ(figures.positions, 641);
  EXPECT_EQ(figures.kl_mean.value, 320);
  EXPECT_EQ(figures.kl_median.value, 320);
  EXPECT_EQ(figures.kl_99.value, 633);
  EXPECT_EQ(figures.kl_max, 640);
  EXPECT_EQ(figures.top1.value, 321.0 / 641);
  EXPECT_NEAR(figures.perplexity_ratio.value, std::exp(0.5), 641 * kRounding);
  EXPECT_NEAR(figures.reference_bits, 1 / std::log(2.0), 641 * kRounding);
  // Blocks differ in their KL, so the interval is open and holds the figure.
  EXPECT_LT(figures.kl_mean.low, 320);
  EXPECT_GT(figures.kl_mean.high, 320);
  // All positions have the same ratio.
  EXPECT_NEAR(figures.perplexity_ratio.low, figures.perplexity_ratio.high, 641 * kRounding);
}

TEST(Summarize, AnIntervalOfOneMeanCoversTheTruthAboutAsOftenAsItSays) {
  // Means of 64 blocks of draws that are alike within a block: the truth is 0.5. Of 40 texts 38 are
  // expected inside; 30 is more than four standard deviations below.
  int inside = 0;
  uint64_t state = 1;
  for (int text = 0; text < 40; ++text) {
    std::vector<PositionFigures> positions;
    for (int block = 0; block < 64; ++block) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const double value = static_cast<double>(state >> 11) * 0x1p-53;
      for (int64_t i = 0; i < kBootstrapBlock; ++i) {
        positions.emplace_back();
        positions.back().kl = value;
      }
    }
    const AgreementFigures figures = Summarize(positions);
    inside += figures.kl_mean.low <= 0.5 && 0.5 <= figures.kl_mean.high ? 1 : 0;
  }
  EXPECT_GE(inside, 30);
}

TEST(Summarize, FewBlocksGiveNoInterval) {
  std::vector<PositionFigures> positions(19 * kBootstrapBlock);
  for (size_t i = 0; i < positions.size(); ++i) positions[i].kl = static_cast<double>(i);
  const AgreementFigures figures = Summarize(positions);
  EXPECT_EQ(figures.kl_mean.low, figures.kl_mean.value);
  EXPECT_EQ(figures.kl_mean.high, figures.kl_mean.value);
}

TEST(Summarize, NothingIsNoFigure) { EXPECT_EQ(Summarize({}).positions, 0); }

}  // namespace
}  // namespace kvcheck
