// Declarations under which a failing output would pass: in how many rows that was asked, and none
// under which any output would.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference/judge/judge.h"
#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

// Values of size 1 beside a mass of 100, as of attention over many keys, under a bound; declared
// otherwise, the bound is another one.
class TwoBounds : public FakeSource {
 public:
  TwoBounds(int64_t rows, double bound, double declared_bound)
      : FakeSource(AccuracyInfo(Shape({{"B", rows}, {"D", 16}})), 64,
                   [bound](ExpectedTile& tile, const TileRequest&) {
                     for (size_t i = 0; i < tile.value.size(); ++i) {
                       const auto element = static_cast<uint64_t>(tile.first_row) * 16 + i;
                       tile.value[i] = Hashed(1, element);
                     }
                     tile.bound.assign(tile.value.size(), bound);
                     tile.mass.assign(tile.value.size(), 100);
                   }),
        rows_(rows),
        declared_bound_(declared_bound) {}

  std::vector<OtherReading> OtherReadings(int) const override {
    OtherReading reading;
    reading.declared = {false, {{"l", "f32", "bf16", "the denominator were rounded to bf16"}}};
    reading.sources.push_back([rows = rows_, bound = declared_bound_] {
      return std::make_shared<TwoBounds>(rows, bound, bound);
    });
    return {reading};
  }

 private:
  int64_t rows_;
  double declared_bound_;
};

// Off by up to `size`, from what is expected or, of garbage, from 0.
OutputVerdict Judged(int64_t rows, double declared_bound, double size, bool is_garbage) {
  const TwoBounds source(rows, 1e-6, declared_bound);
  std::vector<double> got;
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows) * 16; ++i) {
    got.push_back((is_garbage ? 0 : Hashed(1, i)) + size * Hashed(2, i));
  }
  return Judge(source, Observed(MakeTensor(DType::kFloat32, source.Outputs()[0].shape, got)))
      .outputs[0];
}

TEST(DeclaredReadings, AreAdvisedWhereTheyExplainAndProveSomething) {
  const OutputVerdict small = Judged(64, 0.1, 0.1, /*is_garbage=*/false);
  EXPECT_EQ(small.outcome, Outcome::kFail);
  ASSERT_EQ(Texts(small.plan_changes), std::vector<std::string>{"l=bf16 instead of l=f32"});
  EXPECT_EQ(small.changes_of_rows, 0) << "all of them";
  const OutputVerdict large = Judged(1000, 0.1, 0.1, /*is_garbage=*/false);
  ASSERT_EQ(large.plan_changes.size(), 1U);
  EXPECT_EQ(large.changes_of_rows, 1000);
  EXPECT_GT(large.changes_rows, 0);
  EXPECT_LE(large.changes_rows, 256);
}

// A bound of 2 is 2 % of the mass, and more than any value.
TEST(DeclaredReadings, AreNotAdvisedWhereAnyAnswerOfThatSizePasses) {
  const OutputVerdict garbage = Judged(64, 2, 1, /*is_garbage=*/true);
  EXPECT_EQ(garbage.outcome, Outcome::kFail);
  EXPECT_TRUE(garbage.plan_changes.empty());
  EXPECT_EQ(garbage.changes_of_rows, 0);
  // Nor is it explained by that what is nearer.
  EXPECT_TRUE(Judged(64, 2, 0.1, /*is_garbage=*/false).plan_changes.empty());
}

}  // namespace
}  // namespace kvcheck
