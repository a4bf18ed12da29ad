// The steps of the precision ladder against each other: every step's own error bound holds against
// the next, and double's is small enough to judge kernels of f32 and below.

#include <gtest/gtest.h>

#include <cmath>

#include "fuzz/draw_attention.h"
#include "reference/data/attention_regime.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

struct Steps {
  int64_t channels = 0;
  double largest[3] = {0, 0, 0};  // distance over the sum of both bounds, per step
  double largest_share = 0;       // double's reference bound over the plan's bound
  int64_t ranked = 0;             // channels that the share was taken over
};

double Distance(const ChannelReference& x, const ChannelReference& y) {
  return std::fabs((x.value - y.value) + (x.value_lo - y.value_lo));
}

// One row of a case at four precisions.
void ClimbRow(const AttentionCase& c, const Profile& profile, const Plan& plan,
              const QueryIndex& query, bool hundred, Steps* steps) {
  const TensorMap inputs = GenerateInputs(Case(c), profile);
  const Arithmetic arithmetic = Resolve(plan, profile, c);
  const MaskReader mask(c, profile, inputs);
  const HeadData head =
      LoadHead(c, profile, inputs, query.batch, query.query_head / (c.query_heads / c.kv_heads),
               arithmetic.Detail());
  const std::vector<double> all_q = Decoded(Get(inputs, "q"));
  const int64_t row = (query.batch * c.query_heads + query.query_head) * c.query_len + query.query;
  RowContext context;
  context.c = &c, context.arithmetic = &arithmetic, context.profile = profile;
  context.head = &head;
  context.q =
      std::span(all_q).subspan(static_cast<size_t>(row * c.k_dim), static_cast<size_t>(c.k_dim));
  std::vector<double> sinks;
  if (c.sinks) {
    sinks = Decoded(Get(inputs, "sinks"));
    context.has_sink = true;
    context.sink = sinks[static_cast<size_t>(query.query_head)];
  }
  OwnedQuestion owned;
  if (MakeQuestion(context, mask.Visible(query), &owned) != RowKind::kEvaluate) return;
  std::vector<RowReference> at;
  for (Precision precision : {Precision::kDouble, Precision::kDoubleDouble, Precision::kOracle50}) {
    at.push_back(ComputeRow(context, owned, precision));
  }
  if (hundred) at.push_back(ComputeRow(context, owned, Precision::kOracle100));
  if (!at[0].finite) return;
  for (size_t step = 0; step + 1 < at.size(); ++step) {
    const RowReference &low = at[step], &high = at[step + 1];
    ASSERT_EQ(low.channels.size(), high.channels.size());
    for (size_t i = 0; i < low.channels.size(); ++i) {
      // The value is handed on as a pair of doubles, which holds 2^-106 of it.
      const double pair = 0x1p-105 * std::fabs(high.channels[i].value) + 0x1p-1070;
      const double bound =
          low.channels[i].reference_bound + high.channels[i].reference_bound + 2 * pair;
      const double distance = Distance(low.channels[i], high.channels[i]);
      ASSERT_TRUE(distance <= bound) << "step " << step << " channel " << i << " distance "
                                     << distance << " bound " << bound << "\n"
                                     << Print(Case(c));
      if (distance > 0) steps->largest[step] = std::max(steps->largest[step], distance / bound);
      ++steps->channels;
    }
    if (c.lse != LseKind::kNone && std::isfinite(low.lse)) {
      const double distance = std::fabs((low.lse - high.lse) + (low.lse_lo - high.lse_lo));
      ASSERT_TRUE(distance <= low.lse_reference_bound + high.lse_reference_bound +
                                  0x1p-104 * std::fabs(high.lse))
          << "lse, step " << step << " distance " << distance << "\n"
          << Print(Case(c));
    }
  }
  for (const ChannelReference& channel : at[0].channels) {
    if (c.q == DType::kFloat64 || at[0].unbounded || channel.bound == 0) continue;
    ++steps->ranked;
    steps->largest_share = std::max(steps->largest_share, channel.reference_bound / channel.bound);
  }
}

TEST(PrecisionLadder, HoldsOnDrawnCases) {
  Steps steps;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 64, .head_dim = 33, .query_len = 4});
    const QueryIndex last = {drawn.c.batch - 1, drawn.c.query_heads - 1, drawn.c.query_len - 1};
    ClimbRow(drawn.c, drawn.profile, drawn.plan, last, seed % 5 == 0, &steps);
  }
  EXPECT_GT(steps.channels, 3000);
  EXPECT_GT(steps.ranked, 1000);
  // The judge climbs where the reference's bound exceeds 2^-10 of the tolerance.
  EXPECT_LT(steps.largest_share, 0x1p-10);
  EXPECT_GT(steps.largest[0], 0x1p-10) << "double's bound is not vacuous";
}

TEST(PrecisionLadder, HoldsInEveryRegimeAtOneHundredDigits) {
  Steps steps;
  for (const std::string_view regime : AttentionRegimes()) {
    AttentionCase c;
    c.query_len = 2, c.kv_len = 129, c.k_dim = 17, c.v_dim = 5;
    c.lse = LseKind::kNatural;
    c.softcap = regime == "huge" ? std::optional(30.0) : std::nullopt;
    c.data = {.regime = std::string(regime), .seed = 3, .file_hash = ""};
    ClimbRow(c, {}, {}, {0, 0, 1}, true, &steps);
  }
  EXPECT_GE(steps.channels, static_cast<int64_t>(AttentionRegimes().size() * 3 * 5));
}

TEST(PrecisionLadder, KeepsDoubleFarBelowTheBoundOfF32) {
  for (const std::string_view regime : AttentionRegimes()) {
    AttentionCase c;
    c.query_len = 1, c.kv_len = 513, c.k_dim = c.v_dim = 64;
    c.data = {.regime = std::string(regime), .seed = 5, .file_hash = ""};
    Steps steps;
    ClimbRow(c, {}, ParsePlan("base=plain_f32"), {0, 0, 0}, false, &steps);
    // Both bounds are the same formula; their unit roundoffs are 2^29 apart, and the reference's is
    // not centred, which costs a factor of at most spread over deviation.
    EXPECT_LT(steps.largest_share, 0x1p-20) << regime;
  }
}

}  // namespace
}  // namespace kvcheck
