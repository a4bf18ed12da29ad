// The bound over many more drawn cases than a fast test can afford, at small and at larger shapes.

#include <gtest/gtest.h>

#include "fuzz/draw_attention.h"
#include "tests/reference/attention/drawn_run.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

JudgedRun Survey(uint64_t first, uint64_t count, const DrawLimits& limits) {
  JudgedRun all;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const DrawnAttention drawn = DrawAttention(seed, limits);
    all.Add(RunDrawn(drawn, seed));
  }
  return all;
}

TEST(AttentionBoundSurvey, HoldsOverFortyThousandSmallCases) {
  const JudgedRun all = Survey(10'000, 40'000, {.kv_len = 128, .head_dim = 64, .query_len = 8});
  EXPECT_GT(all.judged, 20'000'000);
  EXPECT_GT(all.largest_ratio, 0.999);
}

TEST(AttentionBoundSurvey, HoldsOverCasesOfAFewBitsPerSum) {
  // Short sums have few roundings, so each may well stand at its extreme.
  const JudgedRun all = Survey(100'000, 40'000, {.kv_len = 5, .head_dim = 3, .query_len = 3});
  EXPECT_GT(all.judged, 500'000);
  EXPECT_GT(all.largest_ratio, 0.999);
}

TEST(AttentionBoundSurvey, HoldsOverLongerRows) {
  const JudgedRun all = Survey(200'000, 1'500, {.kv_len = 1025, .head_dim = 129, .query_len = 4});
  EXPECT_GT(all.judged, 1'000'000);
}

TEST(AttentionBoundSurvey, HoldsOverIntegerProducts) {
  // Few drawn cases have a coded K; these all do.
  JudgedRun all;
  for (uint64_t seed = 300'000; seed < 600'000; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 64, .head_dim = 64, .query_len = 4});
    if (!drawn.plan.integer_qk) continue;
    all.Add(RunDrawn(drawn, seed));
  }
  EXPECT_GT(all.judged, 1'000'000);
}

}  // namespace
}  // namespace kvcheck
