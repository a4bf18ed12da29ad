// The statistical tier: effects are those of really faulty outputs, clean kernels stay inside the
// limit, and a one-percent error of the temperature does not.

#include "reference/attention/statistics.h"

#include <gtest/gtest.h>

#include "tests/reference/attention/statistics_run.h"

namespace kvcheck {
namespace {

// An f64 kernel: its output is the definition under the rules, to 2^-45 or so.
Plan ExactPlan() {
  return ParsePlan(
      "qk=f64:sequential pv=f64:sequential l=f64:sequential op=f64 scale_roundings=1 prescale=none "
      "scores=f64 exp=exp exp_error=2^-52 exp_floor=2^-1022 lazy_rescale=0 block=all p=f64 "
      "p_scale=1 p_normalised=no merge=none splits=1 normalise=divide flush=no saturate=no");
}

TEST(FaultDirection, IsTheEffectOfTheFaultItself) {
  AttentionCase c;
  c.query_heads = 2, c.query_len = 3, c.kv_len = 17, c.k_dim = 8, c.v_dim = 5;
  c.q = c.out = DType::kFloat64;
  c.k = c.v = PlainFormat{DType::kFloat64};
  c.mask.causal = CausalAlignment::kBottomRight;
  c.data = {.regime = "gauss", .seed = 2, .file_hash = ""};
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, ExactPlan(), inputs);
  const ExpectedTile tile = source.Tiles(0, {.statistics = true})[0];
  const double step = 0x1p-20;

  const auto faulty = [&](size_t direction) {
    AttentionRules rules;
    switch (direction) {
      case 0:
        rules.scale = [&](const AttentionCase& x) { return x.scale * (1 + step); };
        break;
      case 1:
        rules.visible = [](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
          set->keys.erase(set->keys.begin());
        };
        break;
      case 2:
        rules.visible = [](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
          set->keys.pop_back();
        };
        break;
      case 4:
        rules.visible = [](const AttentionCase& x, const QueryIndex&, VisibleSet* set) {
          if (set->keys.back() + 1 < x.kv_len) set->keys.push_back(set->keys.back() + 1);
        };
        break;
      case 5:
        rules.v_row = [](std::span<const int32_t> keys, size_t i) {
          if (i + 2 == keys.size()) return keys[i + 1];
          return i + 1 == keys.size() ? keys[i - 1] : keys[i];
        };
        break;
      default:
        break;
    }
    SimulatedKernel kernel(ExactPlan(), {}, rules);
    return Decoded(Get(Answer(&kernel, c, inputs), "out"));
  };
  for (const size_t direction : {0u, 1u, 2u, 4u, 5u}) {
    const std::vector<double> out = faulty(direction);
    for (size_t at = 0; at < tile.value.size(); ++at) {
      const double effect = (out[at] - tile.value[at]) / (direction == 0 ? step : 1);
      // The scale is a derivative, so it keeps an error of second order: half the step times the
      // largest |s - m|^2 |v|, at most about (2 6)^2 5 here; the others are exact.
      const double tolerance = direction == 0 ? step / 2 * 144 * 5 : 0x1p-45;
      EXPECT_NEAR(tile.statistics->effect[direction][at], effect, tolerance)
          << FaultDirections()[direction].name << " element " << at;
    }
  }
}

TEST(Statistics, KeepCleanKernelsInsideTheLimit) {
  double largest = 0;
  int heads = 0;
  for (DType type : {DType::kBFloat16, DType::kFloat16}) {
    for (std::string_view regime :
         {"gauss", "outlier", "sink", "same_sign", "constant", "equal", "duplicated", "dominant"}) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const AttentionCase c = StatisticsCase(type, regime, 64 + 65 * (seed % 2), 2, seed);
        largest = std::max(largest, LargestHeadScore(c, StatisticsPlan(type)));
        heads += 4;
      }
    }
  }
  EXPECT_GE(heads, 320);
  EXPECT_LT(largest, StatisticsLimit());
  EXPECT_GT(largest, 1) << "the errors are not zero";
}

TEST(Statistics, SeeAOnePercentErrorOfTheTemperature) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const AttentionCase c = StatisticsCase(DType::kBFloat16, "gauss", 256, 16, seed);
    AttentionRules rules;
    rules.scale = [](const AttentionCase& x) { return x.scale * 1.01; };
    EXPECT_GT(LargestHeadScore(c, StatisticsPlan(DType::kBFloat16), rules), StatisticsLimit());
  }
}

TEST(Statistics, DoNotApplyWhereTheModelEnds) {
  const AttentionCase c = StatisticsCase(DType::kBFloat16, "gauss", 8, 1, 0);
  Plan plan = StatisticsPlan(DType::kBFloat16);
  EXPECT_TRUE(StatisticsApply(Resolve(plan, {}, c), c));
  plan.scores = DType::kBFloat16;
  EXPECT_FALSE(StatisticsApply(Resolve(plan, {}, c), c));
  plan = StatisticsPlan(DType::kBFloat16);
  plan.op->toward_zero = true;
  EXPECT_FALSE(StatisticsApply(Resolve(plan, {}, c), c));
}

}  // namespace
}  // namespace kvcheck
