// The statistical tier on data whose errors are known: uniform within half a spacing, which is
// sub-Gaussian with proxy sigma^2, as bound.md claims of real roundings.

#include "reference/judge/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

constexpr size_t kRowsOfHead = 16;
constexpr size_t kChannels = 32;
constexpr double kSigma = 0x1p-9;

OutputInfo Info(int64_t heads) {
  OutputInfo info =
      AccuracyInfo({{"Hq", heads}, {"L", static_cast<int64_t>(kRowsOfHead)}, {"Dv", kChannels}});
  info.directions = {"scale", "missing"};
  info.hints = {"the scale is off", "a key is missing"};
  return info;
}

// sqrt(3) sigma U(-1, 1) has the variance sigma^2.
double Noise(uint64_t seed, uint64_t i) { return kSigma * std::sqrt(3.0) * Hashed(seed, i); }

// One head's tile: identity covariance within a row, so gram_norm = sqrt(channels).
ExpectedTile Head(uint64_t head) {
  ExpectedTile tile;
  tile.row_count = kRowsOfHead;
  tile.value.assign(kRowsOfHead * kChannels, 0);
  tile.bound.assign(kRowsOfHead * kChannels, 1e9);
  tile.group.assign(kRowsOfHead, static_cast<int>(head));
  TileStatistics s;
  s.sigma_squared.assign(kRowsOfHead * kChannels, kSigma * kSigma);
  s.gram_norm.assign(kRowsOfHead, std::sqrt(static_cast<double>(kChannels)));
  s.slack.assign(2, std::vector<double>(kRowsOfHead, 0));
  s.slack_squared.assign(kRowsOfHead, 0);
  s.taken.assign(kRowsOfHead, 1);
  for (size_t row = 0; row < kRowsOfHead; ++row) s.identity.push_back(head * kRowsOfHead + row);
  for (uint64_t k = 0; k < 2; ++k) {
    std::vector<double> effect;
    std::vector<double> variance(kRowsOfHead, 0);
    for (size_t i = 0; i < kRowsOfHead * kChannels; ++i) {
      effect.push_back(Hashed(1000 * head + k, i));
      const double weight = effect[i] / (kSigma * kSigma);
      variance[i / kChannels] += weight * weight * kSigma * kSigma;
    }
    s.effect.push_back(effect);
    s.variance.push_back(variance);
    s.mean.push_back(std::vector<double>(kRowsOfHead, 0));
  }
  tile.statistics = std::move(s);
  return tile;
}

// Statistics of `heads` heads with errors noise_factor * noise + fault * effect of direction 0.
StatisticsReport ReportOf(int64_t heads, double noise_factor, double fault) {
  const OutputInfo info = Info(heads);
  StatisticsAccumulator accumulator;
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  for (uint64_t head = 0; head < static_cast<uint64_t>(heads); ++head) {
    const ExpectedTile tile = Head(head);
    std::vector<double> errors(kRowsOfHead * kChannels);
    for (size_t i = 0; i < errors.size(); ++i) {
      errors[i] = noise_factor * Noise(1000 * head + 7, i) + fault * tile.statistics->effect[0][i];
    }
    accumulator.Add(tile, info, errors, use);
  }
  return accumulator.Finish(info, accumulator.Tests(info), kFalseAlarm);
}

TEST(Statistics, LimitsAreThoseOfTheDerivation) {
  // bound.md, section 4: K' = 504 gives 6.4, 20000 gives 7.0, as printed with one decimal.
  EXPECT_NEAR(DirectionLimit(504, kFalseAlarm), 6.4, 0.05);
  EXPECT_NEAR(DirectionLimit(20000, kFalseAlarm), 7.0, 0.05);
  EXPECT_EQ(TailExponent(2, 1e-6), std::log(4e6));
}

TEST(Statistics, HonestRoundingRaisesNoAlarm) {
  const int64_t heads = 200;
  const StatisticsReport report = ReportOf(heads, 1, 0);
  EXPECT_EQ(report.tests, 3 * heads + 2);
  EXPECT_TRUE(report.over.empty());
  double squares = 0;
  for (const DirectionStatistic& d : report.directions) squares += d.z * d.z;
  const double count = static_cast<double>(report.directions.size());
  // z has at most unit variance: the mean of count squares stays below 1 + 5 standard deviations of
  // chi squared / count; and a statistic that is nearly always 0 would test nothing.
  EXPECT_LE(squares / count, 1 + 5 * std::sqrt(2 / count));
  EXPECT_GE(squares / count, 0.5);
  for (const QuadraticStatistic& q : report.quadratics) {
    EXPECT_EQ(q.elements, static_cast<int64_t>(kRowsOfHead * kChannels));
    EXPECT_NEAR(q.q / static_cast<double>(q.elements), 1, 5 * std::sqrt(2.0 / 512));
  }
}

TEST(Statistics, AFaultOfTwiceTheDetectableSizeIsAlwaysFoundAndMeasured) {
  const double detectable = ReportOf(20, 1, 0).directions[0].detectable;
  const StatisticsReport report = ReportOf(20, 1, 2 * detectable);
  for (size_t i = 0; i < report.directions.size(); i += 2) {
    const DirectionStatistic& d = report.directions[i];
    EXPECT_TRUE(d.over) << d.group;
    EXPECT_EQ(d.direction, "scale");
    // z would be off by more than its limit otherwise.
    EXPECT_NEAR(d.coefficient, 2 * detectable, d.detectable) << d.group;
  }
  EXPECT_NE(report.over[0].find("errors along 'scale'"), std::string::npos) << report.over[0];
}

TEST(Statistics, ATenthOfTheDetectableSizeIsNot) {
  const double detectable = ReportOf(20, 1, 0).directions[0].detectable;
  EXPECT_TRUE(ReportOf(20, 1, detectable / 10).over.empty());
}

TEST(Statistics, ErrorsOfTwiceTheirDeclaredSizeAreSeenByQ) {
  const StatisticsReport report = ReportOf(5, 2, 0);
  for (const QuadraticStatistic& q : report.quadratics) EXPECT_TRUE(q.over) << q.group;
}

TEST(Statistics, TheQuadraticLimitIsTheGramForm) {
  const StatisticsReport report = ReportOf(1, 1, 0);
  const double t = TailExponent(3, kFalseAlarm);
  // F_r^2 = channels in each of the rows.
  const double limit = 512 + 2 * std::sqrt(t * 512) + 2 * t * std::sqrt(32.0);
  // Sums of positive numbers: 16 rows of F_r^2 with three roundings each, and ten operations here
  // and there.
  EXPECT_NEAR(report.quadratics[0].limit, limit, limit * (16 + 3 + 2 * 10) * 0x1p-53);
}

TEST(Statistics, WhatTheRoundingOfTheOutputMakesIsNoFault) {
  // With V nearly constant the output's rounding is a function of the value and lines up with the
  // direction: honest errors then have a mean far from 0.
  const OutputInfo info = Info(1);
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  ExpectedTile tile = Head(0);
  std::vector<double> errors(kRowsOfHead * kChannels);
  for (size_t i = 0; i < errors.size(); ++i) {
    errors[i] = Noise(7, i) + kSigma * tile.statistics->effect[0][i];
  }
  const auto report = [&] {
    StatisticsAccumulator accumulator;
    accumulator.Add(tile, info, errors, use);
    return accumulator.Finish(info, 3, kFalseAlarm);
  };
  EXPECT_TRUE(report().directions[0].over);
  for (size_t row = 0; row < kRowsOfHead; ++row) {
    double shift = 0;
    for (size_t i = row * kChannels; i < (row + 1) * kChannels; ++i) {
      const double effect = tile.statistics->effect[0][i];
      shift += effect / (kSigma * kSigma) * kSigma * effect;
    }
    tile.statistics->mean[0][row] = shift;
  }
  EXPECT_FALSE(report().directions[0].over);
}

// Equal rows make the same errors: sixteen of them are one, sixteen times as large.
TEST(Statistics, EqualRowsAddUpTheirDeviations) {
  const OutputInfo info = Info(1);
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  ExpectedTile tile = Head(0);
  const std::vector<double> errors(kRowsOfHead * kChannels, 0);
  StatisticsAccumulator apart;
  apart.Add(tile, info, errors, use);
  std::fill(tile.statistics->identity.begin(), tile.statistics->identity.end(), 7);
  StatisticsAccumulator equal;
  equal.Add(tile, info, errors, use);
  const StatisticsReport of_apart = apart.Finish(info, 3, kFalseAlarm);
  const StatisticsReport of_equal = equal.Finish(info, 3, kFalseAlarm);
  // The variances of rows differ by their effects: the root of a sum against a sum of roots.
  EXPECT_GT(of_equal.directions[0].detectable, 3.5 * of_apart.directions[0].detectable);
  EXPECT_GT(of_equal.quadratics[0].limit, of_apart.quadratics[0].limit);
}

// So do rows whose weights are those of others but for less than a spacing.
TEST(Statistics, RowsThatAreNearlyAlikeCountAsOne) {
  const OutputInfo info = Info(1);
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  const std::vector<double> errors(kRowsOfHead * kChannels, 0);
  const auto detectable = [&](double apart) {
    ExpectedTile tile = Head(0);
    tile.statistics->like_within = 0.25;
    for (size_t row = 0; row < kRowsOfHead; ++row) {
      tile.statistics->likeness.push_back({5, apart * static_cast<double>(row), 0, 0, 0, 0});
    }
    StatisticsAccumulator accumulator;
    accumulator.Add(tile, info, errors, use);
    return accumulator.Finish(info, 3, kFalseAlarm).directions[0].detectable;
  };
  EXPECT_GT(detectable(0.2), 3.5 * detectable(0.3));
  EXPECT_EQ(detectable(0.3), detectable(1));
}

// A factor whose sign is another in each row is seen by the squares of z, where their sum is
// nothing.
TEST(Statistics, AMultipleThatVariesIsSeenBySquares) {
  OutputInfo info = Info(1);
  info.varying_direction = 0;
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  const auto report = [&](double fault) {
    const ExpectedTile tile = Head(0);
    std::vector<double> errors(kRowsOfHead * kChannels);
    for (size_t i = 0; i < errors.size(); ++i) {
      const double sign = i / kChannels % 2 == 0 ? 1 : -1;
      errors[i] = Noise(7, i) + sign * fault * tile.statistics->effect[0][i];
    }
    StatisticsAccumulator accumulator;
    accumulator.Add(tile, info, errors, use);
    return accumulator.Finish(info, accumulator.Tests(info), kFalseAlarm);
  };
  const StatisticsReport right = report(0);
  ASSERT_EQ(right.quadratics.size(), 2U);
  EXPECT_EQ(right.quadratics[0].direction, "scale");
  EXPECT_TRUE(right.over.empty());
  const StatisticsReport wrong = report(2 * right.quadratics[0].detectable);
  EXPECT_TRUE(wrong.quadratics[0].over);
  EXPECT_NE(wrong.over[0].find("scale at"), std::string::npos) << wrong.over[0];
  for (const DirectionStatistic& d : wrong.directions) EXPECT_NE(d.direction, "scale");
}

// A fault of every head shows in all heads together before it shows in one.
TEST(Statistics, AllGroupsTogetherSeeASmallerFault) {
  const StatisticsReport report = ReportOf(20, 1, 0);
  const DirectionStatistic& one = report.directions[0];
  const DirectionStatistic& all = report.directions[20 * 2];
  EXPECT_EQ(all.group, kAllGroups);
  EXPECT_EQ(all.direction, one.direction);
  EXPECT_LT(all.detectable, one.detectable / 3);
}

TEST(Statistics, NameWhatTheyWouldNotHaveSeen) {
  const OutputInfo info = Info(2);
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  const auto blind_to = [&](double effect, double bound) {
    StatisticsAccumulator accumulator;
    for (uint64_t head = 0; head < 2; ++head) {
      ExpectedTile tile = Head(head);
      tile.bound.assign(tile.bound.size(), bound);
      for (double& value : tile.statistics->effect[0]) value = effect;
      const std::vector<double> errors(kRowsOfHead * kChannels, 0);
      accumulator.Add(tile, info, errors, use);
    }
    return accumulator.Finish(info, accumulator.Tests(info), kFalseAlarm).blind_to;
  };
  const auto names = [](const std::vector<BlindSpot>& list) {
    return std::any_of(list.begin(), list.end(), [](const BlindSpot& spot) {
      return spot.direction == "scale" && spot.where.empty();
    });
  };
  EXPECT_TRUE(names(blind_to(1e-9 * kSigma, 1)));
  EXPECT_FALSE(names(blind_to(100 * kSigma, 1))) << "a statistic sees it";
  EXPECT_FALSE(names(blind_to(1e-9 * kSigma, 1e-10 * kSigma))) << "an element sees it";
}

TEST(Statistics, RowsThatAreNotJudgedAndElementsWithoutNoiseAreLeftOut) {
  const OutputInfo info = Info(1);
  ExpectedTile tile = Head(0);
  std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  use[5] = 0;                                     // row 0 goes
  tile.statistics->sigma_squared[kChannels] = 0;  // one element of row 1
  std::vector<double> errors(kRowsOfHead * kChannels, 0);
  errors[6] = 1e30;
  StatisticsAccumulator accumulator;
  accumulator.Add(tile, info, errors, use);
  const StatisticsReport report = accumulator.Finish(info, 3, kFalseAlarm);
  EXPECT_EQ(report.skipped_elements, static_cast<int64_t>(kChannels));
  EXPECT_EQ(report.quadratics[0].elements, static_cast<int64_t>((kRowsOfHead - 1) * kChannels - 1));
  EXPECT_EQ(report.quadratics[0].q, 0);
}

TEST(Statistics, MergedTilesEqualOneGroup) {
  const OutputInfo info = Info(1);
  const ExpectedTile tile = Head(0);
  const std::vector<uint8_t> use(kRowsOfHead * kChannels, 1);
  std::vector<double> errors(kRowsOfHead * kChannels);
  for (size_t i = 0; i < errors.size(); ++i) errors[i] = Noise(1, i);
  StatisticsAccumulator a;
  a.Add(tile, info, errors, use);
  StatisticsAccumulator b = a;
  b.Merge(a);
  const StatisticsReport once = a.Finish(info, 3, kFalseAlarm);
  const StatisticsReport twice = b.Finish(info, 3, kFalseAlarm);
  EXPECT_EQ(twice.quadratics[0].q, 2 * once.quadratics[0].q);
  EXPECT_EQ(twice.quadratics[0].elements, 2 * once.quadratics[0].elements);
  EXPECT_EQ(b.Tests(info), 3);
}

}  // namespace
}  // namespace kvcheck
