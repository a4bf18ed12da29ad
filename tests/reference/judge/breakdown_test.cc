// The sentences and pictures about a failing output.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "reference/judge/failure_tally.h"
#include "reference/judge/heat_map.h"
#include "reference/judge/shifts.h"
#include "reference/judge/tensor_source.h"
#include "tests/reference/judge/fake_source.h"

namespace kvcheck {
namespace {

const Shape kShape{{"B", 2}, {"Hq", 8}, {"L", 12}, {"Dv", 16}};

struct At {
  int64_t b, h, l, d;
};

std::vector<double> Values(const std::function<double(const At&)>& value) {
  std::vector<double> values;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 8; ++h) {
      for (int64_t l = 0; l < 12; ++l) {
        for (int64_t d = 0; d < 16; ++d) values.push_back(value({b, h, l, d}));
      }
    }
  }
  return values;
}

double Want(const At& at) {
  return Hashed(4, static_cast<uint64_t>(((at.b * 8 + at.h) * 12 + at.l) * 16 + at.d));
}

std::vector<std::string> BreakdownOf(const std::function<double(const At&)>& got) {
  const Tensor want = MakeTensor(DType::kFloat32, kShape, Values(Want));
  const Verdict verdict =
      JudgeTensors(want, MakeTensor(DType::kFloat32, kShape, Values(got)), AbsRelRule{0, 0x1p-10});
  return verdict.outputs[0].breakdown;
}

bool Has(const std::vector<std::string>& lines, const std::string& text) {
  for (const std::string& line : lines) {
    if (line.find(text) != std::string::npos) return true;
  }
  ADD_FAILURE() << "no \"" << text << "\" in:";
  for (const std::string& line : lines) ADD_FAILURE() << line;
  return false;
}

double Wrong(const At& at) {
  return Want(at) + 0.25 +
         0.25 * Hashed(9, static_cast<uint64_t>(((at.b * 8 + at.h) * 12 + at.l) * 16 + at.d));
}

TEST(Breakdown, NamesARangeWithinAHead) {
  EXPECT_TRUE(
      Has(BreakdownOf([](const At& at) { return at.h == 3 && at.l >= 7 ? Wrong(at) : Want(at); }),
          "all failures at hq=3, l >= 7, everything there"));
}

TEST(Breakdown, SaysOfNearlyEverythingThatItIsNotAll) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) {
                    const bool is_spared = at.b == 0 && at.h == 0 && at.l == 0 && at.d == 3;
                    return at.l <= 10 && !is_spared ? Wrong(at) : Want(at);
                  }),
                  "all failures at l <= 10, more than 99 % of what is there"));
}

TEST(Breakdown, NamesTheLastToken) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return at.l == 11 ? Wrong(at) : Want(at); }),
                  "all failures at the last l (l=11), everything there"));
}

TEST(Breakdown, NamesABlockOfChannels) {
  EXPECT_TRUE(
      Has(BreakdownOf([](const At& at) { return at.d >= 4 && at.d < 8 ? Wrong(at) : Want(at); }),
          "all failures at dv = 4..7"));
}

TEST(Breakdown, NamesEverySecondChannel) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return at.d % 2 == 1 ? Wrong(at) : Want(at); }),
                  "every second dv (from 1)"));
}

TEST(Breakdown, NamesTheFirstTokens) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return at.l < 3 ? Wrong(at) : Want(at); }),
                  "all failures at l <= 2"));
}

TEST(Breakdown, ListsAFewHeads) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) {
                    return at.h == 1 || at.h == 2 || at.h == 6 ? Wrong(at) : Want(at);
                  }),
                  "all failures at hq in {1, 2, 6}"));
}

TEST(Breakdown, SaysWhereMostOfTheFailuresAre) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) {
                    return at.h == 5 || (at.d == at.h && at.l == at.h) ? Wrong(at) : Want(at);
                  }),
                  "hq=5 holds 96 % of the failures"));
}

TEST(Breakdown, RecognisesAnotherHeadsValues) {
  EXPECT_TRUE(
      Has(BreakdownOf([](const At& at) { return Want({at.b, (at.h + 1) % 8, at.l, at.d}); }),
          "shifted by 1 along hq: hq looks like expected hq+1 (7 of 8 failing hq)"));
}

TEST(Breakdown, RecognisesOneWrongHead) {
  EXPECT_TRUE(Has(
      BreakdownOf([](const At& at) { return at.h == 5 ? Want({at.b, 2, at.l, at.d}) : Want(at); }),
      "hq=5 looks like expected hq=2"));
}

TEST(Breakdown, RecognisesSwappedBatchRows) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return Want({1 - at.b, at.h, at.l, at.d}); }),
                  "b=0 and b=1 are swapped"));
}

TEST(Breakdown, RecognisesAShiftAlongTokens) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) {
                    return at.l == 0 ? 9.0 : Want({at.b, at.h, at.l - 1, at.d});
                  }),
                  "shifted by 1 along l: l looks like expected l-1 (11 of 12 failing l)"));
}

TEST(Breakdown, RecognisesAnotherOrderOfHeads) {
  // Tiled instead of interleaved: 0 1 2 3 4 5 6 7 -> 0 4 1 5 2 6 3 7.
  EXPECT_TRUE(Has(
      BreakdownOf([](const At& at) { return Want({at.b, at.h / 2 + at.h % 2 * 4, at.l, at.d}); }),
      "hq in another order: hq=1 like expected hq=4, hq=2 like expected hq=1"));
}

// One element a head that is another head's, as codes of few bits often are.
TEST(Breakdown, TakesNoOrderFromSingleElements) {
  for (const std::string& line : BreakdownOf([](const At& at) {
         const bool is_one = at.b == 0 && at.l == 3 && at.d == 1;
         return is_one ? Want({at.b, (3 * at.h + 1) % 8, at.l, at.d}) : Want(at);
       })) {
    EXPECT_EQ(line.find("like"), std::string::npos) << line;
  }
}

TEST(Breakdown, RecognisesZerosSignsAndMultiples) {
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return at.l == 4 ? 0.0 : Want(at); }),
                  "every failing value is 0: never written?"));
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return at.l == 4 ? -Want(at) : Want(at); }),
                  "failing values have the opposite sign"));
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) { return at.l == 4 ? 1.25 * Want(at) : Want(at); }),
                  "failing values are about 1.25 times the expected ones (100 % of the error)"));
  EXPECT_TRUE(Has(BreakdownOf([](const At& at) {
                    return at.l == 4 ? std::numeric_limits<double>::quiet_NaN() : Want(at);
                  }),
                  "no failing value is finite"));
}

TEST(Breakdown, SaysNothingOfLikenessAboutNoise) {
  for (const std::string& line : BreakdownOf(Wrong)) {
    EXPECT_EQ(line.find("like"), std::string::npos) << line;
    EXPECT_EQ(line.find("swapped"), std::string::npos) << line;
  }
}

TEST(Breakdown, SaysNothingAboutValuesThatHaveNothingToDoWithTheExpectedOnes) {
  const auto lines = BreakdownOf([](const At& at) {
    return Hashed(31, static_cast<uint64_t>(((at.b * 8 + at.h) * 12 + at.l) * 16 + at.d));
  });
  for (const std::string& line : lines) EXPECT_EQ(line.find("times"), std::string::npos) << line;
}

TEST(Window, KeepsShortAxesWholeAndHoldsTheElement) {
  const Shape shape{{"B", 2}, {"Hq", 8}, {"L", 4096}, {"Dv", 64}};
  const int64_t element = shape.ElementCount() - 1;
  const Window window = MakeWindow(shape, element, 100000);
  EXPECT_LE(window.Size(), 100000);
  EXPECT_EQ(window.extent[0], 2);
  EXPECT_EQ(window.extent[1], 8);
  EXPECT_GE(window.IndexOf(element), 0);
  EXPECT_EQ(window.IndexOf(0), -1);
}

TEST(FailureTally, CutsLongAxesIntoCells) {
  const Shape shape = Shape::Unnamed({int64_t{1} << 20});
  FailureTally tally(shape, 1);
  tally.Add({1 << 19, 1 << 19});
  EXPECT_EQ(tally.elements(), 1 << 19);
  const auto lines = DescribeFailures(tally, shape, 1);
  EXPECT_TRUE(Has(lines, "all failures at axis 0 >= 524288, everything there"));
}

TEST(HeatMap, DrawsRatiosInAtMost72Columns) {
  HeatMap map(MakeHeatAxis("hq", 3, 24), MakeHeatAxis("l", 129, 56));
  map.Add(0, 0, 0.01);
  map.Add(0, 3, 0.4);
  map.Add(1, 128, 1.0);
  map.Add(1, 127, 1.5);
  map.Add(2, 10, 100);
  map.Add(2, 60, std::numeric_limits<double>::quiet_NaN());
  const std::vector<std::string> lines = Render(map);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "                l 0..128, 3 per column");
  EXPECT_EQ(lines[1], "           hq=0 .:" + std::string(41, ' '));
  EXPECT_EQ(lines[2], "           hq=1 " + std::string(42, ' ') + "*");
  EXPECT_EQ(lines[3], "           hq=2    #" + std::string(16, ' ') + "!" + std::string(22, ' '));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 72u) << line;
}

TEST(HeatMap, BlocksHaveTheWidthOfAscii) {
  HeatMap map(MakeHeatAxis("row", 100000, 24), MakeHeatAxis("dv", 256, 56));
  for (int64_t r = 0; r < 100000; r += 7) map.Add(r, r % 256, static_cast<double>(r) / 50000);
  const std::vector<std::string> ascii = Render(map, false);
  const std::vector<std::string> blocks = Render(map, true);
  ASSERT_EQ(ascii.size(), blocks.size());
  for (size_t i = 0; i < ascii.size(); ++i) {
    size_t width = 0;
    for (const char c : blocks[i]) width += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    EXPECT_EQ(width, ascii[i].size());
    EXPECT_LE(width, 72u);
  }
}

TEST(HeatMap, ShowsTheFailingHeadAndToken) {
  const Tensor want = MakeTensor(DType::kFloat32, kShape, Values(Want));
  const Tensor got =
      MakeTensor(DType::kFloat32, kShape,
                 Values([](const At& at) { return at.h == 3 && at.l == 7 ? 1e9 : Want(at); }));
  const HeatMaps heat = JudgeTensors(want, got, AbsRelRule{0, 0x1p-10}).outputs[0].heat;
  EXPECT_GT(heat.heads_by_token.At(3, 7), 1);
  EXPECT_EQ(heat.heads_by_token.At(3, 6), 0);
  EXPECT_EQ(heat.heads_by_token.down().label, "hq");
  EXPECT_EQ(heat.heads_by_token.across().label, "l");
  EXPECT_EQ(heat.rows_by_channel.across().label, "dv");
}

}  // namespace
}  // namespace kvcheck
