// Section 4 of bound.md computed over the heads of one answer: per fault direction the standardised
// correlation z of the errors with the fault's effect.

#ifndef TESTS_REFERENCE_ATTENTION_STATISTICS_RUN_H_
#define TESTS_REFERENCE_ATTENTION_STATISTICS_RUN_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/attention/statistics.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {

// |z| per [direction][head]; without slack, as if nothing counted at its largest.
inline std::vector<std::vector<double>> HeadScores(const AttentionSource& source,
                                                   const TensorMap& answer,
                                                   bool with_slack = true) {
  const OutputInfo& info = source.Outputs()[0];
  const std::vector<double> got = Decoded(Get(answer, "out"));
  const size_t directions = info.directions.size();
  const size_t heads = info.groups.size();
  struct Sums {
    double z = 0, variance = 0, slack = 0;
  };
  std::vector<std::vector<Sums>> sums(directions, std::vector<Sums>(heads));
  for (int64_t index = 0; index < source.TileCount(); ++index) {
    const ExpectedTile tile = source.Tiles(index, {.statistics = true, .every_row = true})[0];
    const auto dv = static_cast<size_t>(info.row_length);
    const TileStatistics& statistics = *tile.statistics;
    for (size_t r = 0; r < static_cast<size_t>(tile.row_count); ++r) {
      if (tile.standing[r] != Standing::kJudged) continue;
      for (size_t d = 0; d < directions; ++d) {
        Sums& head = sums[d][static_cast<size_t>(tile.group[r])];
        head.variance += statistics.variance[d][r];
        head.z -= statistics.mean[d][r];
        if (with_slack) head.slack += statistics.slack[d][r];
        for (size_t c = 0; c < dv; ++c) {
          const size_t at = r * dv + c;
          const double sigma = statistics.sigma_squared[at];
          if (sigma == 0) continue;
          const double error = got[static_cast<size_t>(tile.first_row) * dv + at] - tile.value[at];
          head.z += statistics.effect[d][at] / sigma * error;
        }
      }
    }
  }
  std::vector<std::vector<double>> scores(directions);
  for (size_t d = 0; d < directions; ++d) {
    for (const Sums& head : sums[d]) {
      const double random = std::max(0.0, std::fabs(head.z) - head.slack);
      scores[d].push_back(head.variance > 0 ? random / std::sqrt(head.variance) : 0);
    }
  }
  return scores;
}

// A limit of bound.md, section 4, for 20000 statistics in a run.
inline double StatisticsLimit() { return std::sqrt(2 * std::log(2 * 20000 / 1e-6)); }

inline AttentionCase StatisticsCase(DType type, std::string_view regime, int64_t kv_len,
                                    int64_t rows, uint64_t seed) {
  AttentionCase c;
  c.batch = 1, c.query_heads = 4, c.kv_heads = 4, c.query_len = rows, c.kv_len = kv_len;
  c.k_dim = c.v_dim = 64;
  c.q = c.out = type;
  c.k = c.v = PlainFormat{type};
  c.data = {.regime = std::string(regime), .seed = seed, .file_hash = ""};
  return c;
}

inline Plan StatisticsPlan(DType p) {
  Plan plan = ParsePlan(
      "qk=f32:lanes:16:fma pv=f32:lanes:16:fma l=f32:lanes:16 op=f32 scale_roundings=1 "
      "prescale=none scores=f32 exp=exp exp_error=2^-23 exp_floor=2^-126 lazy_rescale=0 block=64 "
      "p_scale=1 p_normalised=no l_from=unrounded merge=none splits=1 normalise=divide flush=no "
      "saturate=no");
  plan.p = p;
  return plan;
}

inline double LargestHeadScore(const AttentionCase& c, const Plan& plan,
                               const AttentionRules& rules = {}) {
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(plan, {}, rules);
  const TensorMap answer = Answer(&kernel, c, inputs);
  double largest = 0;
  for (const auto& direction : HeadScores(AttentionSource(c, {}, plan, inputs), answer)) {
    for (double z : direction) largest = std::max(largest, z);
  }
  return largest;
}

}  // namespace kvcheck

#endif  // TESTS_REFERENCE_ATTENTION_STATISTICS_RUN_H_
