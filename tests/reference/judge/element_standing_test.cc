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

const Shape kSixRows{{"L", 6}, {"Dv", 4}};

TEST(ElementStanding, WhatHasNoValueIsCountedAndItsNeighboursAreJudged) {
  OutputInfo info = AccuracyInfo(kSixRows);
  info.reasons = {"first", "no value"};
  const FakeSource source(info, 3, [](ExpectedTile& tile, const TileRequest&) {
    for (size_t i = 0; i < tile.value.size(); ++i) tile.value[i] = 1;
    tile.undefined.assign(tile.value.size(), 0);
    tile.undefined_reason = 1;
    if (tile.first_row == 0) tile.undefined[5] = 1, tile.value[5] = std::nan("");
  });
  std::vector<double> got(24, 1);
  got[5] = 77;
  const Verdict right = Judge(source, Observed(MakeTensor(DType::kFloat32, kSixRows, got)));
  EXPECT_EQ(right.outcome, Outcome::kPass);
  EXPECT_EQ(right.outputs[0].counts.undefined, 1);
  EXPECT_EQ(right.outputs[0].counts.judged, 23);
  ASSERT_EQ(right.outputs[0].not_judged.size(), 1u);
  EXPECT_EQ(right.outputs[0].not_judged[0].reason, "no value");
  EXPECT_EQ(right.outputs[0].warnings.size(), 1u);
  for (const size_t neighbour : {4u, 6u, 17u}) {
    std::vector<double> wrong = got;
    wrong[neighbour] = 2;
    EXPECT_EQ(Judge(source, Observed(MakeTensor(DType::kFloat32, kSixRows, wrong))).outcome,
              Outcome::kFail);
  }
}

TEST(ElementStanding, MostlyUndefinedProvesNothing) {
  const FakeSource source(AccuracyInfo(kSixRows), 3, [](ExpectedTile& tile, const TileRequest&) {
    tile.value.assign(tile.value.size(), 1);
    tile.undefined.assign(tile.value.size(), 1);
    for (size_t i = 0; i < tile.value.size(); i += 4) tile.undefined[i] = 0;
  });
  EXPECT_EQ(
      Judge(source, Observed(MakeTensor(DType::kFloat32, kSixRows, std::vector<double>(24, 1))))
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
  OutputInfo info = AccuracyInfo(kSixRows);
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
  return Judge(source, Observed(MakeTensor(DType::kFloat32, kSixRows, std::vector<double>(24, 1))));
}

TEST(ElementStanding, WhereNoLossOfInputsWouldShowNothingWasProved) {
  constexpr auto kShows = Sensitivity::kShows, kDim = Sensitivity::kDim,
                 kBlind = Sensitivity::kBlind, kNone = Sensitivity::kNoInputs;
  EXPECT_EQ(OfRows({kBlind, kBlind, kBlind, kNone, kBlind, kShows}).outcome, Outcome::kMistrusted);
  EXPECT_EQ(OfRows({kDim, kBlind, kDim, kNone, kDim, kShows}).outcome, Outcome::kMistrusted);
  const Verdict masked = OfRows({kNone, kNone, kNone, kNone, kNone, kNone});
  EXPECT_EQ(masked.outcome, Outcome::kMistrusted);
  EXPECT_TRUE(masked.outputs[0].reasons.at(0).starts_with(kNoQuerySeesAKey));
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

// What is judged of an element of row r.
struct RowNumbers {
  double value = 1, mass = 1, bound = 0x1p-20;
  Sensitivity sensitivity = Sensitivity::kShows;
};

Verdict OfNumbers(const std::vector<RowNumbers>& rows, const std::vector<double>& got) {
  OutputInfo info = AccuracyInfo(kSixRows);
  info.groups = {"h=0", "h=1", "h=2"};
  const FakeSource source(info, 4, [&](ExpectedTile& tile, const TileRequest&) {
    tile.mass.resize(tile.value.size());
    for (size_t i = 0; i < tile.value.size(); ++i) {
      const size_t row = static_cast<size_t>(tile.first_row) + i / 4;
      tile.value[i] = rows[row].value;
      tile.mass[i] = rows[row].mass;
      tile.bound[i] = rows[row].bound;
    }
    for (size_t r = 0; r < static_cast<size_t>(tile.row_count); ++r) {
      const size_t row = static_cast<size_t>(tile.first_row) + r;
      tile.sensitivity.push_back(rows[row].sensitivity);
      tile.group.push_back(static_cast<int>(row / 2));
    }
  });
  return Judge(source, Observed(MakeTensor(DType::kFloat32, kSixRows, got)));
}

Verdict OfNumbers(const std::vector<RowNumbers>& rows) {
  std::vector<double> got;
  for (const RowNumbers& row : rows) got.insert(got.end(), 4, row.value);
  return OfNumbers(rows, got);
}

TEST(ElementStanding, AVacuousRowIsNotCoveredByOthers) {
  const RowNumbers sound, wide = {.bound = 2};
  EXPECT_EQ(OfNumbers({sound, sound, sound, sound, sound, sound}).outcome, Outcome::kPass);
  // Negated, and zeros: both are inside the bound.
  for (const double wrong : {-1.0, 0.0}) {
    std::vector<double> got(24, 1.0);
    std::fill_n(got.begin() + 8, 8, wrong);
    const Verdict verdict = OfNumbers({sound, sound, wide, wide, sound, sound}, got);
    EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
    EXPECT_NE(verdict.reasons.at(0).find("in 2 of 6 rows"), std::string::npos)
        << verdict.reasons.at(0);
    EXPECT_TRUE(verdict.reasons.at(0).ends_with(": h=1")) << verdict.reasons.at(0);
  }
  const Verdict one = OfNumbers({sound, sound, sound, sound, sound, wide});
  EXPECT_EQ(one.outcome, Outcome::kMistrusted);
  EXPECT_TRUE(one.reasons.at(0).ends_with(": h=2 in 1 rows")) << one.reasons.at(0);
  // Less than the data, but zeros pass: the row may never have been written.
  const RowNumbers near_zero = {.value = 0.25, .bound = 0.5};
  EXPECT_EQ(OfNumbers({sound, sound, near_zero, sound, sound, sound}).outcome,
            Outcome::kMistrusted);
  // Neither the one nor the other.
  const RowNumbers half = {.bound = 0.5};
  EXPECT_EQ(OfNumbers({sound, sound, half, sound, sound, sound}).outcome, Outcome::kPass);
  // A size at which the type has no normal numbers: zeros may be right.
  const RowNumbers tiny = {.value = 0x1p-130, .mass = 0x1p-130, .bound = 0x1p-126};
  EXPECT_EQ(OfNumbers({sound, sound, tiny, sound, sound, sound}).outcome, Outcome::kPass);
}

TEST(ElementStanding, RowsWithoutInputsHaveNoSayInWhatIsVacuous) {
  const RowNumbers masked = {
      .value = 0, .mass = 0, .bound = 0, .sensitivity = Sensitivity::kNoInputs};
  const RowNumbers half = {.bound = 0.5};
  const Verdict verdict = OfNumbers({half, masked, masked, masked, masked, masked});
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_NE(verdict.reasons.at(0).find("in 4 of 4 elements"), std::string::npos)
      << verdict.reasons.at(0);
  EXPECT_EQ(OfNumbers({RowNumbers(), masked, masked, masked, masked, masked}).outcome,
            Outcome::kPass);
}

}  // namespace
}  // namespace kvcheck
