// The statistical tier over kernels that stay in the basis in which K and V are stored: noise is
// what the roundings of sums of coordinates become when they are rotated back; clean kernels stay
// inside the limit, and a fault that the bound lets pass does not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/formats/codec.h"
#include "reference/judge/judge.h"
#include "tests/reference/attention/statistics_run.h"
#include "tests/reference/formats/format_named.h"

namespace kvcheck {
namespace {

Plan PlanInBasis(DType p, int roundings = 1) {
  Plan plan = StatisticsPlan(p);
  plan.dequantize = DequantizeKind::kRotated;
  plan.qk_operands.reset();
  plan.pv_operands.reset();
  plan.dequantize_roundings = roundings;
  return plan;
}

AttentionCase CaseInBasis(DType type, const std::string& k, const std::string& v,
                          std::string_view regime, int64_t kv_len, int64_t rows, uint64_t seed) {
  AttentionCase c = StatisticsCase(type, regime, kv_len, rows, seed);
  c.k = FormatNamed(k), c.v = FormatNamed(v);
  return c;
}

// The statistics of `out`, as a run has them.
StatisticsReport Judged(const AttentionCase& c, const Plan& plan, const TensorMap& inputs,
                        int64_t* failed, const AttentionRules& rules = {}) {
  SimulatedKernel kernel(plan, {}, rules);
  const Verdict verdict =
      Judge(AttentionSource(c, {}, plan, inputs), MemorySink(Answer(&kernel, c, inputs)));
  *failed += verdict.outputs[0].counts.failed;
  return *verdict.outputs[0].statistics;
}

double LargestZ(const StatisticsReport& report) {
  double largest = 0;
  for (const DirectionStatistic& d : report.directions) largest = std::max(largest, d.z);
  return largest;
}

TEST(RotatedStatistics, KeepCleanKernelsInsideTheLimit) {
  double largest = 0;
  int64_t failed = 0;
  uint64_t seed = 0;
  for (const DType type : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    const std::string rows(ShortName(type));
    const std::vector<std::pair<std::string, std::string>> formats = {
        {"turboquant:4:g64:" + rows, "turboquant:4:g64:s1:" + rows},
        {rows, "turboquant:3:g32:s7:" + rows},
        {"turboquant:2:g64:plain:" + rows, rows},
        {"turboquant:1:g32:" + rows, "turboquant:3.5:g64:ha53cc35affff0000:" + rows},
        {"hadamard:64:q4_0", "hadamard:32:q8_0"},
        {"hadamard:2:q8_0", "hadamard:64:affine:8:g64:bf16"}};
    for (const auto& [k, v] : formats) {
      for (const std::string_view regime :
           {"gauss", "outlier", "sink", "same_sign", "duplicated"}) {
        for (const int64_t kv_len : {7, 129}) {
          const AttentionCase c = CaseInBasis(type, k, v, regime, kv_len, 2, ++seed);
          const Plan plan = PlanInBasis(type, 2);
          const StatisticsReport report = Judged(c, plan, GenerateInputs(Case(c), {}), &failed);
          EXPECT_TRUE(report.over.empty()) << Print(Case(c)) << "\n" << report.over[0];
          EXPECT_EQ(report.skipped_elements, 0) << Print(Case(c));
          largest = std::max(largest, LargestZ(report));
        }
      }
    }
  }
  EXPECT_EQ(failed, 0);
  EXPECT_GT(largest, 1) << "the errors are not zero";
}

// One key, of weight 1: what a sum of coordinates rounds is (n + 20) u^2 / 3 times the square of
// its coordinate, and a channel has the mean of those of its block.
TEST(RotatedStatistics, HaveTheNoiseOfCoordinatesRotatedBack) {
  AttentionCase c =
      CaseInBasis(DType::kFloat32, "f32", "turboquant:4:g32:s7:f32", "gauss", 2, 1, 3);
  c.mask.causal = CausalAlignment::kTopLeft;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, PlanInBasis(DType::kFloat32), inputs);
  const StoredBasis basis = BasisOf(c.v, c.v_dim);
  const double one = 21 * 0x1p-48 / 3;
  // Sums of 64 squares, of rotated numbers: some hundred roundings of double.
  const auto expect_near = [](double got, double want) {
    EXPECT_LE(std::fabs(got - want), 0x1p-44 * want) << got << " for " << want;
  };
  for (int64_t head = 0; head < source.TileCount(); ++head) {
    const ExpectedTile tile = source.Tiles(head, {.statistics = true})[0];
    const TileStatistics& statistics = *tile.statistics;
    const std::vector<double> y =
        DecodeRowsInBasis(c.v, {}, CacheRows(c.v, inputs, "v"), head * c.kv_len, 1);
    double least = 1, most = 0;
    for (const RotatedBlock& block : basis.blocks) {
      double square = 0;
      for (const size_t i : block.channels) square += y[i] * y[i];
      for (const size_t i : block.channels) {
        expect_near(statistics.sigma_squared[i], one * square / 32);
        least = std::min(least, std::fabs(y[i])), most = std::max(most, std::fabs(y[i]));
      }
    }
    EXPECT_GT(most, 2 * least) << "coordinates that differ";
    bool has_effect = false;
    for (size_t d = 0; d < statistics.effect.size(); ++d) {
      std::vector<double> w = statistics.effect[d];
      for (size_t i = 0; i < w.size(); ++i) w[i] /= statistics.sigma_squared[i];
      basis.Rotate(w);
      double variance = 0;
      for (size_t i = 0; i < w.size(); ++i) variance += w[i] * w[i] * one * y[i] * y[i];
      expect_near(statistics.variance[d][0], variance);
      has_effect = has_effect || variance > 0;
    }
    EXPECT_TRUE(has_effect);
  }
}

// V in one channel almost alone, which the rotation spreads over all coordinates: channels that
// hold little err as much as the others do.
TEST(RotatedStatistics, SpreadRoundingsOverTheBlock) {
  AttentionCase c = CaseInBasis(DType::kFloat32, "f32", "hadamard:64:q8_0", "gauss", 65, 8, 5);
  TensorMap inputs = GenerateInputs(Case(c), {});
  Tensor v(DType::kFloat32, Shape::Unnamed({c.kv_heads * c.kv_len, c.v_dim}));
  for (int64_t row = 0; row < c.kv_heads * c.kv_len; ++row) {
    for (int64_t i = 0; i < c.v_dim; ++i) {
      const auto large = static_cast<float>(1 + row % 7);
      const auto small = static_cast<float>((row + 3 * i) % 5 - 2) * 0x1p-7f;
      v.As<float>()[static_cast<size_t>(row * c.v_dim + i)] = i == 0 ? large : small;
    }
  }
  const TensorMap encoded = EncodeRows(c.v, {}, v);
  for (const Plane& plane : PlanesOf(c.v, c.v_dim)) {
    Tensor& to = inputs.at(PlaneTensor(c.v, "v", plane));
    ASSERT_EQ(to.bytes.size(), encoded.at(std::string(plane.name)).bytes.size());
    to.bytes = encoded.at(std::string(plane.name)).bytes;
  }
  Plan plan = PlanInBasis(DType::kFloat32);
  plan.pv = ParsePlan("pv=bf16:sequential").pv;
  int64_t failed = 0;
  const StatisticsReport report = Judged(c, plan, inputs, &failed);
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(report.over.empty()) << report.over[0];
  // With the noise of sums of channels, they would be far outside.
  const AttentionSource source(c, {}, plan, inputs);
  SimulatedKernel kernel(plan, {});
  const std::vector<double> got = Decoded(Get(Answer(&kernel, c, inputs), "out"));
  const double one = (65 + 20) * 0x1p-16 / 3;
  double by_channel = 0, modelled = 0, limit = 0;
  for (int64_t index = 0; index < source.TileCount(); ++index) {
    const ExpectedTile tile = source.Tiles(index, {.statistics = true})[0];
    for (size_t at = 0; at < tile.value.size(); ++at) {
      const double error = got[static_cast<size_t>(tile.first_row * c.v_dim) + at] - tile.value[at];
      by_channel += error * error / (one * tile.mass[at] * tile.mass[at]);
      modelled += error * error / tile.statistics->sigma_squared[at];
    }
  }
  for (const QuadraticStatistic& q : report.quadratics) limit += q.limit;
  EXPECT_LT(modelled, limit);
  EXPECT_GT(by_channel, 2 * limit);
}

// One key, whose values are decoded and rotated back in bf16: what that rounds is far outside of
// the noise of sums in f32, and counts at its largest.
TEST(RotatedStatistics, CountDecodingAndTheWayBackAtTheirLargest) {
  Plan plan = PlanInBasis(DType::kFloat32);
  plan.op->dtype = DType::kBFloat16;
  int64_t failed = 0;
  double without = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    AttentionCase c =
        CaseInBasis(DType::kFloat32, "f32", "turboquant:4:g32:s7:f32", "gauss", 2, 1, seed);
    c.mask.causal = CausalAlignment::kTopLeft;
    const TensorMap inputs = GenerateInputs(Case(c), {});
    const StatisticsReport report = Judged(c, plan, inputs, &failed);
    EXPECT_TRUE(report.over.empty()) << Print(Case(c)) << "\n" << report.over[0];
    SimulatedKernel kernel(plan, {});
    const auto scores =
        HeadScores(AttentionSource(c, {}, plan, inputs), Answer(&kernel, c, inputs), false);
    for (const std::vector<double>& direction : scores) {
      without = std::max(without, *std::max_element(direction.begin(), direction.end()));
    }
  }
  EXPECT_EQ(failed, 0);
  EXPECT_GT(without, StatisticsLimit());
}

TEST(RotatedStatistics, SeeAFaultThatTheBoundLetsPass) {
  for (const std::string format : {"turboquant:4:g64:bf16", "hadamard:64:q8_0"}) {
    int64_t failed = 0;
    int seen = 0;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const AttentionCase c = CaseInBasis(DType::kBFloat16, format, format, "gauss", 256, 24, seed);
      AttentionRules rules;
      rules.scale = [](const AttentionCase& x) { return x.scale * 1.0015; };
      const StatisticsReport report =
          Judged(c, PlanInBasis(DType::kBFloat16), GenerateInputs(Case(c), {}), &failed, rules);
      seen += std::any_of(report.directions.begin(), report.directions.end(),
                          [](const DirectionStatistic& d) { return d.over; })
                  ? 1
                  : 0;
    }
    EXPECT_EQ(failed, 0) << format;
    EXPECT_EQ(seen, 4) << format;
  }
}

}  // namespace
}  // namespace kvcheck
