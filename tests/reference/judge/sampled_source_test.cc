// A sample of rows: which ones, that the judge looks at these alone, and that a fault is missed no
// more often than the verdict says.

#include "reference/judge/sampled_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

constexpr double kMissed = 1e-6;

OutputInfo Info(int64_t heads, int64_t tokens, int64_t channels) {
  return AccuracyInfo({{"Hq", heads}, {"L", tokens}, {"Dv", channels}});
}

// Values 1 with a bound of 2^-10, and observed values that are 2 in the rows named.
FakeSource Ones(const OutputInfo& info) {
  return FakeSource(info, 7, [](ExpectedTile& tile, const TileRequest&) {
    tile.value.assign(tile.value.size(), 1);
    tile.bound.assign(tile.bound.size(), 0x1p-10);
  });
}

MemorySink WithFaultyRows(const OutputInfo& info, const std::vector<int64_t>& rows) {
  std::vector<double> values(static_cast<size_t>(info.shape.ElementCount()), 1);
  for (const int64_t row : rows) {
    std::fill_n(values.begin() + row * info.row_length, info.row_length, 2.0);
  }
  return Observed(MakeTensor(info.dtype, info.shape, values));
}

JudgeOptions Sampled(int64_t rows, uint64_t seed = 1) {
  JudgeOptions options;
  options.sample_rows = rows;
  options.sample_seed = seed;
  return options;
}

TEST(RowSample, HoldsEndsAndEdgesOfHeadsAndOfEveryIntervalOneRow) {
  const OutputInfo info = Info(3, 200, 4);
  const ChosenRows chosen = ChooseRows(info, 160, 1, {}, kMissed);
  const std::set<int64_t> rows(chosen.rows.begin(), chosen.rows.end());
  EXPECT_EQ(rows.size(), chosen.rows.size());
  EXPECT_TRUE(std::is_sorted(chosen.rows.begin(), chosen.rows.end()));
  for (const int64_t head : {0, 1, 2}) {
    for (const int64_t token : {0, 199, 63, 64, 127, 128, 191, 192}) {
      EXPECT_TRUE(rows.contains(head * 200 + token)) << head << " " << token;
    }
  }
  EXPECT_EQ(chosen.report.at_ends, 6);
  EXPECT_EQ(chosen.report.at_edges, 18);
  EXPECT_EQ(chosen.report.of_rows, 600);
  EXPECT_EQ(chosen.report.rows, static_cast<int64_t>(rows.size()));
  EXPECT_LE(chosen.report.rows, 160);
  EXPECT_EQ(chosen.report.at_random, 136);
  for (int64_t i = 0; i < 136; ++i) {
    const auto next = rows.lower_bound(i * 600 / 136);
    ASSERT_NE(next, rows.end());
    EXPECT_LT(*next, (i + 1) * 600 / 136);
  }
}

TEST(RowSample, SeedsChooseOtherRowsAndTheSameAgain) {
  const OutputInfo info = Info(1, 100000, 4);
  const auto rows = [&](uint64_t seed) { return ChooseRows(info, 100, seed, {}, kMissed).rows; };
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
}

TEST(RowSample, UnusualRowsHaveAQuarterAtMost) {
  std::vector<int64_t> unusual;
  for (int64_t row = 1000; row < 2000; ++row) unusual.push_back(row);
  const ChosenRows chosen = ChooseRows(Info(1, 100000, 4), 400, 1, unusual, kMissed);
  EXPECT_EQ(chosen.report.unusual, 100);
  EXPECT_TRUE(std::binary_search(chosen.rows.begin(), chosen.rows.end(), 1000));
  EXPECT_TRUE(std::binary_search(chosen.rows.begin(), chosen.rows.end(), 1990));
}

TEST(RowSample, AFaultIsFoundFromTheRowsOnThatTheReportNames) {
  const SampleReport report = ChooseRows(Info(1, 100000, 4), 400, 1, {}, kMissed).report;
  EXPECT_LE(ChanceToMiss(report, report.found_rows), kMissed);
  EXPECT_GT(ChanceToMiss(report, report.found_rows - 1), kMissed);
  EXPECT_EQ(ChanceToMiss(report, 0), 1);
  EXPECT_EQ(ChanceToMiss(report, 100000), 0);
}

// Faulty rows in the shapes that faults have: anywhere, all together, one of each interval.
TEST(RowSample, FaultsAreMissedNoMoreOftenThanTheBoundSays) {
  const OutputInfo info = Info(1, 997, 1);
  constexpr int kSeeds = 4000;
  for (const int64_t spacing : {1, 9, 90}) {
    std::vector<int64_t> faulty;
    for (int64_t i = 0; i < 11; ++i) faulty.push_back(5 + i * spacing);
    int missed = 0;
    double bound = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const ChosenRows chosen = ChooseRows(info, 60, seed, {}, kMissed);
      bound = ChanceToMiss(chosen.report, 11);
      missed += std::none_of(faulty.begin(), faulty.end(), [&](int64_t row) {
        return std::binary_search(chosen.rows.begin(), chosen.rows.end(), row);
      });
    }
    // Five standard deviations of a count of kSeeds trials.
    const double most = kSeeds * bound + 5 * std::sqrt(kSeeds * bound * (1 - bound));
    EXPECT_LE(missed, most) << spacing;
    EXPECT_GT(bound, 0.01);  // else nothing was measured
  }
}

TEST(SampledJudge, LooksAtTheSampleAloneAndSaysSo) {
  const OutputInfo info = Info(2, 500, 8);
  const FakeSource source = Ones(info);
  const ChosenRows chosen = ChooseRows(info, 64, 3, {}, kMissed);
  std::vector<int64_t> left_out;
  for (int64_t row = 0; row < 1000; ++row) {
    if (!std::binary_search(chosen.rows.begin(), chosen.rows.end(), row)) left_out.push_back(row);
  }
  const Verdict verdict = Judge(source, WithFaultyRows(info, left_out), Sampled(64, 3));
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  const OutputVerdict& output = verdict.outputs.front();
  ASSERT_TRUE(output.sample.has_value());
  EXPECT_EQ(*output.sample, chosen.report);
  EXPECT_EQ(output.counts.judged, chosen.report.rows * 8);
  EXPECT_EQ(output.counts.left_out, (1000 - chosen.report.rows) * 8);
  EXPECT_EQ(output.counts.elements, 8000);
  EXPECT_TRUE(output.warnings.empty());

  const Verdict found = Judge(source, WithFaultyRows(info, {chosen.rows[7]}), Sampled(64, 3));
  EXPECT_EQ(found.outcome, Outcome::kFail);
  EXPECT_EQ(found.outputs.front().counts.failed, 8);
  EXPECT_EQ(found.outputs.front().worst->element / 8, chosen.rows[7]);
}

TEST(SampledJudge, OutputsOfFewRowsAreJudgedWhole) {
  const OutputInfo info = Info(1, 64, 8);
  const Verdict verdict = Judge(Ones(info), WithFaultyRows(info, {}), Sampled(64));
  EXPECT_FALSE(verdict.outputs.front().sample.has_value());
  EXPECT_EQ(verdict.outputs.front().counts.judged, 64 * 8);
}

TEST(SampledJudge, DoesNotDependOnThreads) {
  const OutputInfo info = Info(2, 500, 8);
  JudgeOptions options = Sampled(100);
  const MemorySink observed = WithFaultyRows(info, {0, 499, 700, 999});
  const Verdict one = Judge(Ones(info), observed, options);
  options.threads = 3;
  EXPECT_EQ(Judge(Ones(info), observed, options), one);
}

}  // namespace
}  // namespace kvcheck
