// What is not decided by a difference, element by element and bit by bit: elements without a
// defined value, bits of a code that are free, rows whose inputs could be lost unseen.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

const Shape kRows{{"L", 6}, {"Dv", 4}};

TEST(ElementStanding, WhatHasNoValueIsCountedAndItsNeighboursAreJudged) {
  OutputInfo info = AccuracyInfo(kRows);
  info.reasons = {"first", "no value"};
  const FakeSource source(info, 3, [](ExpectedTile& tile, const TileRequest&) {
    for (size_t i = 0; i < tile.value.size(); ++i) tile.value[i] = 1;
    tile.undefined.assign(tile.value.size(), 0);
    tile.undefined_reason = 1;
    if (tile.first_row == 0) tile.undefined[5] = 1, tile.value[5] = std::nan("");
  });
  std::vector<double> got(24, 1);
  got[5] = 77;
  const Verdict right = Judge(source, Observed(MakeTensor(DType::kFloat32, kRows, got)));
  EXPECT_EQ(right.outcome, Outcome::kPass);
  EXPECT_EQ(right.outputs[0].counts.undefined, 1);
  EXPECT_EQ(right.outputs[0].counts.judged, 23);
  ASSERT_EQ(right.outputs[0].not_judged.size(), 1u);
  EXPECT_EQ(right.outputs[0].not_judged[0].reason, "no value");
  EXPECT_EQ(right.outputs[0].warnings.size(), 1u);
  for (const size_t neighbour : {4u, 6u, 17u}) {
    std::vector<double> wrong = got;
    wrong[neighbour] = 2;
    EXPECT_EQ(Judge(source, Observed(MakeTensor(DType::kFloat32, kRows, wrong))).outcome,
              Outcome::kFail);
  }
}

TEST(ElementStanding, MostlyUndefinedProvesNothing) {
  const FakeSource source(AccuracyInfo(kRows), 3, [](ExpectedTile& tile, const TileRequest&) {
    tile.value.assign(tile.value.size(), 1);
    tile.undefined.assign(tile.value.size(), 1);
    for (size_t i = 0; i < tile.value.size(); i += 4) tile.undefined[i] = 0;
  });
  EXPECT_EQ(Judge(source, Observed(MakeTensor(DType::kFloat32, kRows, std::vector<double>(24, 1))))
                .outcome,
            Outcome::kMistrusted);
}

TEST(ElementStanding, OfACodeOnlyTheFreeBitsAreFree) {
  OutputInfo info = AccuracyInfo({{"L", 2}, {"W", 2}}, DType::kUInt32);
  info.claim = Claim::kConformance;
  info.reasons = {"free"};
  const FakeSource source(info, 2, [](ExpectedTile& tile, const TileRequest&) {
    tile.value = {0x12345678, 0x9abcdef0, 1, 2};
    tile.alternatives.push_back(
        {.element = 1, .value = 0, .any = false, .reason = 0, .free_bits = 0xf0});
  });
  const auto outcome = [&](double second, double third) {
    return Judge(source,
                 Observed(MakeTensor(DType::kUInt32, info.shape, {0x12345678, second, third, 2})))
        .outcome;
  };
  EXPECT_EQ(outcome(0x9abcdef0, 1), Outcome::kPass);
  EXPECT_EQ(outcome(0x9abcde30, 1), Outcome::kPass);
  EXPECT_EQ(outcome(0x9abcde31, 1), Outcome::kFail);
  EXPECT_EQ(outcome(0x1abcdef0, 1), Outcome::kFail);
  EXPECT_EQ(outcome(0, 1), Outcome::kFail);
  EXPECT_EQ(outcome(0x9abcde30, 0xf1), Outcome::kFail);
}

// Of rows 0..5, each with its own sensitivity; row 5 is not judged.
Verdict OfRows(const std::vector<Sensitivity>& rows) {
  OutputInfo info = AccuracyInfo(kRows);
  info.groups = {"h=0", "h=1", "h=2"};
  const FakeSource source(info, 4, [&](ExpectedTile& tile, const TileRequest&) {
    for (size_t r = 0; r < static_cast<size_t>(tile.row_count); ++r) {
      const size_t row = static_cast<size_t>(tile.first_row) + r;
      tile.sensitivity.push_back(rows[row]);
      tile.group.push_back(static_cast<int>(row / 2));
      tile.standing.push_back(row == 5 ? Standing::kUnconstrained : Standing::kJudged);
    }
    tile.value.assign(tile.value.size(), 1);
    tile.bound.assign(tile.value.size(), 0x1p-20);
  });
  return Judge(source, Observed(MakeTensor(DType::kFloat32, kRows, std::vector<double>(24, 1))));
}

TEST(ElementStanding, WhereNoLossOfInputsWouldShowNothingWasProved) {
  constexpr auto kShows = Sensitivity::kShows, kDim = Sensitivity::kDim,
                 kBlind = Sensitivity::kBlind, kNone = Sensitivity::kNoInputs;
  EXPECT_EQ(OfRows({kBlind, kBlind, kBlind, kNone, kBlind, kShows}).outcome, Outcome::kMistrusted);
  EXPECT_EQ(OfRows({kDim, kBlind, kDim, kNone, kDim, kShows}).outcome, Outcome::kMistrusted);
  EXPECT_EQ(OfRows({kNone, kNone, kNone, kNone, kNone, kNone}).outcome, Outcome::kPass);
  const Verdict dim = OfRows({kDim, kDim, kDim, kShows, kDim, kShows});
  EXPECT_EQ(dim.outcome, Outcome::kPass);
  EXPECT_EQ(dim.outputs[0].blind_rows, 0);
  const Verdict head = OfRows({kShows, kShows, kBlind, kBlind, kShows, kShows});
  EXPECT_EQ(head.outcome, Outcome::kPass);
  EXPECT_EQ(head.outputs[0].blind_rows, 2);
  EXPECT_EQ(head.outputs[0].rows_with_inputs, 5);
  EXPECT_EQ(head.outputs[0].blind_where, "h=1");
  const Verdict rows = OfRows({kShows, kBlind, kBlind, kBlind, kShows, kShows});
  EXPECT_EQ(rows.outputs[0].blind_rows, 3);
  EXPECT_EQ(rows.outputs[0].blind_where, "");
}

}  // namespace
}  // namespace kvcheck
