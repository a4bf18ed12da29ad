// Two kernels of one case against each other: clean ones stay within the sum of both bounds,
// neither bound alone would do, and an answer that its own plan excuses (overflow, clamping) is not
// held against the other one.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fuzz/draw_attention.h"
#include "reference/attention/two_plans_source.h"
#include "reference/spec/error.h"
#include "tests/reference/attention/judge_run.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

TensorMap AnswerOf(const AttentionCase& c, const Profile& profile, const Plan& plan,
                   const TensorMap& inputs) {
  SimulatedKernel kernel(plan, profile);
  return Answer(&kernel, c, inputs);
}

TEST(TwoPlans, HoldForCleanKernelsOfDrawnPlansEitherWay) {
  JudgedRun all;
  const Plan plain =
      ParsePlan("base=plain_f32 exp=exp2_fma scale_roundings=3 normalise=reciprocal");
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 64, .head_dim = 64, .query_len = 4});
    if (drawn.c.q == DType::kFloat64) continue;
    const TensorMap inputs = GenerateInputs(Case(drawn.c), drawn.profile);
    const TensorMap first = AnswerOf(drawn.c, drawn.profile, drawn.plan, inputs);
    const TensorMap second = AnswerOf(drawn.c, drawn.profile, plain, inputs);
    const TwoPlansSource forth(drawn.c, drawn.profile, drawn.plan, plain, inputs, first);
    const TwoPlansSource back(drawn.c, drawn.profile, plain, drawn.plan, inputs, second);
    for (const JudgedRun& run : {JudgeRun(forth, second), JudgeRun(back, first)}) {
      EXPECT_EQ(run.violations, 0) << "seed " << seed << ": " << Print(Case(drawn.c)) << "\n"
                                   << Print(drawn.profile) << "\n"
                                   << Print(drawn.plan) << "\n"
                                   << run.first;
      all.Add(run);
    }
  }
  EXPECT_GT(all.judged, 200'000);
  EXPECT_LT(all.excused, all.judged / 2);
}

AttentionCase CaseOfRegime(const std::string& regime) {
  AttentionCase c;
  c.query_heads = 2, c.query_len = 3, c.kv_len = 65, c.k_dim = c.v_dim = 17;
  c.data = {.regime = regime, .seed = 3, .file_hash = ""};
  return c;
}

const Plan kTight = ParsePlan("base=plain_f32");
const Plan kLoose = ParsePlan("base=plain_f32 p=bf16");

TEST(TwoPlans, NeedTheBoundsOfBoth) {
  const AttentionCase c = CaseOfRegime("gauss");
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource tight(c, {}, kTight, inputs);
  const AttentionSource loose(c, {}, kLoose, inputs);
  const TensorMap exact = AnswerOf(c, {}, kTight, inputs);
  const TensorMap rounded = AnswerOf(c, {}, kLoose, inputs);
  const std::vector<double> a = Decoded(exact.at("out")), b = Decoded(rounded.at("out"));
  const TwoPlansSource forth(c, {}, kTight, kLoose, inputs, exact);
  const TwoPlansSource back(c, {}, kLoose, kTight, inputs, rounded);
  EXPECT_EQ(JudgeRun(forth, rounded).violations, 0);
  EXPECT_EQ(JudgeRun(back, exact).violations, 0);
  // With the tight plan's bound alone, on whichever side it stands, the other's errors are faults.
  EXPECT_GT(JudgeRun(TwoPlansSource(c, {}, kTight, kTight, inputs, exact), rounded).violations, 20);
  EXPECT_GT(JudgeRun(TwoPlansSource(c, {}, kTight, kTight, inputs, rounded), exact).violations, 20);
  for (int64_t index = 0; index < tight.TileCount(); ++index) {
    const ExpectedTile of_tight = tight.Tiles(index, {})[0];
    const ExpectedTile of_loose = loose.Tiles(index, {})[0];
    for (const auto* source : {&forth, &back}) {
      const ExpectedTile tile = source->Tiles(index, {.terms = true})[0];
      const std::vector<double>& gold = source == &forth ? a : b;
      for (size_t i = 0; i < tile.value.size(); ++i) {
        const size_t element = static_cast<size_t>(tile.first_row) * 17 + i;
        EXPECT_EQ(tile.value[i], gold[element]);
        EXPECT_EQ(tile.bound[i], of_tight.bound[i] + of_loose.bound[i]);
        double terms = 0;
        for (const auto& term : tile.terms) terms += term[i];
        EXPECT_NEAR(terms, tile.bound[i], tile.bound[i] * 0x1p-30);
      }
    }
  }
}

TEST(TwoPlans, FindAnErrorBeyondBoth) {
  const AttentionCase c = CaseOfRegime("gauss");
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const TensorMap gold = AnswerOf(c, {}, kTight, inputs);
  TensorMap got = AnswerOf(c, {}, kLoose, inputs);
  const TwoPlansSource source(c, {}, kTight, kLoose, inputs, gold);
  EXPECT_EQ(JudgeRun(source, got).violations, 0);
  const ExpectedTile tile = source.Tiles(0, {})[0];
  const auto moved = static_cast<float>(tile.value[5] + 1.001 * tile.bound[5]);
  got.at("out").As<float>()[5] = moved;
  EXPECT_EQ(JudgeRun(source, got).violations, 1);
  got.at("out").As<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(JudgeRun(source, got).violations, 1);
}

// One key of value v: the output is v, to the type's own rounding.
struct OneValue {
  AttentionCase c;
  TensorMap inputs;
  explicit OneValue(double v) {
    c.kv_len = c.k_dim = c.v_dim = 1;
    c.out = DType::kFloat16;
    c.data.regime = "file";
    for (const auto& [name, spec] : InputSpecs(Case(c))) {
      Tensor tensor(spec.dtype, spec.shape);
      const double value = name == "v" ? v : 1;
      EncodeFrom({&value, 1}, spec.dtype, tensor.bytes.data());
      inputs[name] = tensor;
    }
  }
  static TensorMap Out(double value) {
    Tensor out(DType::kFloat16, Shape::Unnamed({1, 1, 1, 1}));
    EncodeFrom({&value, 1}, DType::kFloat16, out.bytes.data());
    return {{"out", out}};
  }
  int64_t Violations(const Plan& gold_plan, double gold, const Plan& plan, double got) const {
    const TensorMap stored = Out(gold);
    const TwoPlansSource source(c, {}, gold_plan, plan, inputs, stored);
    return JudgeRun(source, Out(got)).violations;
  }
};

TEST(TwoPlans, OverflowOfOneIsNotHeldAgainstTheOther) {
  const OneValue edge(65519.996);  // 2^-8 below what rounds to infinity
  EXPECT_EQ(edge.Violations(kTight, 65504, kTight, 65504), 0);
  EXPECT_EQ(edge.Violations(kTight, kInfinity, kLoose, 65504), 0);
  EXPECT_EQ(edge.Violations(kTight, 65504, kLoose, kInfinity), 0) << "its own plan may overflow";
  EXPECT_GT(edge.Violations(kTight, kInfinity, kTight, 60000), 0) << "but it must be near";
  EXPECT_GT(edge.Violations(kTight, 65504, kTight, -kInfinity), 0);
}

TEST(TwoPlans, ClampingOfOneDoesNotDrawTheOther) {
  const OneValue beyond(70000);
  const Plan clamps = ParsePlan("base=plain_f32 saturate=yes");
  EXPECT_EQ(beyond.Violations(clamps, 65504, clamps, 65504), 0);
  EXPECT_EQ(beyond.Violations(kTight, kInfinity, clamps, 65504), 0);
  EXPECT_EQ(beyond.Violations(clamps, 65504, kTight, kInfinity), 0);
  EXPECT_GT(beyond.Violations(clamps, 65504, clamps, 60000), 0);
  EXPECT_GT(beyond.Violations(clamps, 65504, kTight, 65504), 0) << "70000 is not near 65504";
}

TEST(TwoPlans, RefuseWhatGoldLacks) {
  AttentionCase c = CaseOfRegime("gauss");
  c.lse = LseKind::kNatural;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const TensorMap gold = AnswerOf(c, {}, kTight, inputs);
  EXPECT_NO_THROW(TwoPlansSource(c, {}, kTight, kLoose, inputs, gold));
  TensorMap without = gold;
  without.erase("lse");
  EXPECT_THROW(TwoPlansSource(c, {}, kTight, kLoose, inputs, without), Error);
  TensorMap other = gold;
  other["out"] = Tensor(DType::kFloat16, gold.at("out").shape);
  EXPECT_THROW(TwoPlansSource(c, {}, kTight, kLoose, inputs, other), Error);
  TensorMap shorter = gold;
  shorter["out"] = Tensor(DType::kFloat32, Shape::Unnamed({1, 2, 3, 16}));
  EXPECT_THROW(TwoPlansSource(c, {}, kTight, kLoose, inputs, shorter), Error);
}

}  // namespace
}  // namespace kvcheck
