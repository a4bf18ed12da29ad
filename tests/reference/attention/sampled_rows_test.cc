// A sample of the rows of attention: the values are those of the whole, and rows that a mask makes
// unusual are in it.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/attention/attention_source.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/sampled_source.h"
#include "reference/spec/case.h"

namespace kvcheck {
namespace {

struct Source {
  explicit Source(const std::string& text)
      : c(std::get<AttentionCase>(ParseCase(text))), inputs(GenerateInputs(Case(c), {})) {}
  AttentionSource Make() const {
    return AttentionSource(c, {}, ParsePlan("base=plain_f32"), inputs);
  }
  AttentionCase c;
  TensorMap inputs;
};

TEST(SampledRows, HaveTheValuesOfTheWholeAndOthersAreLeftOut) {
  const Source source(
      "attention b=2 hq=4 hkv=2 l=40 t=50 d=8 q=f32 k=f32 v=f32 out=f32 lse=natural "
      "mask=causal_bottom_right data=gauss:3");
  const AttentionSource whole = source.Make();
  const SampledSource sampled(whole, 50, 1, 1e-6);
  int64_t judged = 0;
  int64_t left_out = 0;
  for (int64_t index = 0; index < whole.TileCount(); ++index) {
    const auto all = whole.Tiles(index, {});
    const auto some = sampled.Tiles(index, {});
    ASSERT_EQ(some.size(), all.size());
    for (size_t output = 0; output < all.size(); ++output) {
      const auto length = static_cast<size_t>(whole.Outputs()[output].row_length);
      EXPECT_EQ(some[output].first_row, all[output].first_row);
      ASSERT_EQ(some[output].standing.size(), all[output].standing.size());
      for (size_t row = 0; row < all[output].standing.size(); ++row) {
        if (some[output].standing[row] == Standing::kLeftOut) {
          ++left_out;
          continue;
        }
        ++judged;
        EXPECT_EQ(some[output].standing[row], all[output].standing[row]);
        for (size_t i = row * length; i < (row + 1) * length; ++i) {
          EXPECT_EQ(some[output].value[i], all[output].value[i]);
          EXPECT_EQ(some[output].bound[i], all[output].bound[i]);
        }
      }
    }
  }
  // out and lse have the same rows.
  EXPECT_EQ(judged, 2 * sampled.reports()[0]->rows);
  EXPECT_EQ(judged + left_out, 2 * 320);
}

TEST(SampledRows, QueriesBesidePaddingAreUnusual) {
  const Source source(
      "attention b=2 hq=2 hkv=1 l=12 t=12 d=4 q=f32 k=f32 v=f32 out=f32 "
      "mask=causal_bottom_right+left_pad:0,5 data=gauss:3");
  // Row 1 of the batch: the last query of padding, and the first one after it of the next head.
  EXPECT_EQ(source.Make().UnusualRows(0, 8), (std::vector<int64_t>{24 + 4, 24 + 12 + 5}));
  EXPECT_EQ(source.Make().UnusualRows(0, 1).size(), 1U);
}

TEST(SampledRows, FullyMaskedQueriesAreUnusual) {
  Source source(
      "attention hq=2 hkv=1 l=6 t=5 d=4 q=f32 k=f32 v=f32 out=f32 mask=bool:BHLT data=gauss:3");
  Tensor& mask = source.inputs.at("mask");
  std::fill(mask.bytes.begin(), mask.bytes.end(), std::byte{1});
  // Query 3 of head 1 sees nothing.
  std::fill_n(mask.bytes.begin() + (6 + 3) * 5, 5, std::byte{0});
  EXPECT_EQ(source.Make().UnusualRows(0, 8), (std::vector<int64_t>{9, 10}));
}

}  // namespace
}  // namespace kvcheck
