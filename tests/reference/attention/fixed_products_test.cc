// Sums over codes with integers in place of the query, and of weights times scales: a kernel stays
// within the bound of a plan that says so, its errors come close to what the plan states, and a
// plan that says less is refused or exceeded.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "fuzz/draw_attention.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "tests/reference/attention/drawn_run.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

TEST(FixedProducts, StayWithinTheBoundOfEveryDrawnPlan) {
  JudgedRun all;
  int64_t queries = 0, weights = 0;
  for (uint64_t seed = 0; queries < 150 || weights < 150; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 96, .head_dim = 64, .query_len = 4});
    if (!drawn.plan.fixed_q && !drawn.plan.fixed_p) continue;
    queries += drawn.plan.fixed_q ? 1 : 0;
    weights += drawn.plan.fixed_p ? 1 : 0;
    all.Add(RunDrawn(drawn, seed));
  }
  EXPECT_GT(all.judged, 50'000);
}

AttentionCase OneQuery(int64_t kv_len, const std::string& k, const std::string& v) {
  return std::get<AttentionCase>(ParseCase("attention hq=1 hkv=1 l=1 t=" + std::to_string(kv_len) +
                                           " d=32 dv=32 q=f32 k=" + k + " v=" + v +
                                           " out=f32 scale=1 lse=natural data=file"));
}

Plan FixedPlan(const std::string& fields) {
  return ParsePlan(fields +
                   " qk=f32:depth:3 pv=f32:lanes:8:fma l=f32:lanes:8 op=f32 scale_roundings=0 "
                   "scores=f32 bias_roundings=0 tanh_error=0 exp=exp exp_error=2^-23 "
                   "exp_floor=2^-126 lazy_rescale=0 block=16 sink=first p=f32 p_scale=1 "
                   "p_normalised=no l_from=unrounded merge=none splits=1 normalise=divide flush=no "
                   "saturate=no log_error=2^-22 dequantize=factored");
}

TensorMap ZeroInputs(const AttentionCase& c) {
  TensorMap inputs;
  for (const auto& [name, spec] : InputSpecs(Case(c))) {
    inputs[name] = Tensor(spec.dtype, spec.shape);
  }
  return inputs;
}

JudgedRun Judged(const AttentionCase& c, const Plan& declared, const Plan& actual,
                 const TensorMap& inputs) {
  SimulatedKernel kernel(actual, {});
  return JudgeRun(AttentionSource(c, {}, declared, inputs), Answer(&kernel, c, inputs));
}

void ExpectTight(const AttentionCase& c, const std::string& key, const TensorMap& inputs) {
  const Plan plan = FixedPlan(key + "=2^-10");
  const JudgedRun run = Judged(c, plan, plan, inputs);
  EXPECT_EQ(run.violations, 0) << run.first;
  EXPECT_GT(run.largest_ratio, 0.9);
  EXPECT_GT(Judged(c, FixedPlan(key + "=0.00087890625"), plan, inputs).violations, 0);
  EXPECT_GT(Judged(c, FixedPlan(key + "=none"), plan, inputs).violations, 0) << "not declared";
  EXPECT_GT(Judged(c, FixedPlan("name=unsaid"), plan, inputs).violations, 0) << "left out";
}

// The largest number of a group has a code of zero; all others are nearly half a step.
TEST(FixedProducts, RoundTheQueryByWhatThePlanStates) {
  const AttentionCase c = OneQuery(1, "affine:8:g32:f32", "f32");
  TensorMap inputs = ZeroInputs(c);
  for (size_t i = 0; i < 32; ++i) {
    inputs.at("q").As<float>()[i] = i == 0 ? 1.0f : 0x1.ffp-11f;
    inputs.at("k_codes").bytes[i] = std::byte{i == 0 ? uint8_t{0} : uint8_t{255}};
  }
  inputs.at("k_scales").As<float>()[0] = 1;
  ExpectTight(c, "fixed_q", inputs);
}

TEST(FixedProducts, RoundWeightsByWhatThePlanStatesInEveryBlock) {
  const AttentionCase c = OneQuery(48, "f32", "affine:8:g32:f32");
  TensorMap inputs = ZeroInputs(c);
  for (size_t key = 0; key < 48; ++key) {
    const bool largest = key % 16 == 5;
    inputs.at("v_scales").As<float>()[key] = largest ? 1.0f : 0x1.ffp-11f;
    for (size_t i = 0; i < 32; ++i) {
      inputs.at("v_codes").bytes[key * 32 + i] = std::byte{largest ? uint8_t{0} : uint8_t{255}};
    }
  }
  ExpectTight(c, "fixed_p", inputs);
  // Blocks of half as many keys would lose half as much, where one key outweighs the others.
  inputs.at("q").As<float>()[0] = 1;
  for (size_t key = 0; key < 48; ++key) {
    inputs.at("k").As<float>()[key * 32] = key == 5 ? 0.0f : -6.9f;
    inputs.at("v_scales").As<float>()[key] = key == 5 ? 1.0f : 0.48f;
  }
  const Plan plan = FixedPlan("fixed_p=2^-10");
  EXPECT_EQ(Judged(c, plan, plan, inputs).violations, 0);
  EXPECT_GT(Judged(c, plan, plan, inputs).largest_ratio, 0.2);
  Plan all = plan;
  all.block = 0;
  EXPECT_EQ(Judged(c, all, all, inputs).violations, 0);
  EXPECT_GT(Judged(c, plan, all, inputs).violations, 0) << "one block of 48 where 16 are stated";
}

TEST(FixedProducts, AreNamedWhereTheyWereNotDeclared) {
  AttentionCase c = OneQuery(24, "affine:8:g32:f32", "affine:4:g32:f32");
  c.data = {"gauss", 3, ""};
  c.scale = 0.02;  // at larger scores a plan with 2^-8 would prove nothing, and is not advised
  const TensorMap inputs = GenerateInputs(Case(c), {});
  for (const std::string key : {"fixed_q", "fixed_p"}) {
    SimulatedKernel kernel(FixedPlan(key + "=2^-8"), {});
    const AttentionSource source(c, {}, FixedPlan("name=silent"), inputs);
    const Verdict verdict = Judge(source, MemorySink(Answer(&kernel, c, inputs)));
    const OutputVerdict& out = verdict.outputs[0];
    EXPECT_GT(out.counts.failed, 10) << key;
    EXPECT_TRUE(std::any_of(
        out.plan_changes.begin(), out.plan_changes.end(),
        [&](const DeclaredChange& change) { return Print(change).starts_with(key + "="); }))
        << key;
  }
}

TEST(FixedProducts, MeanNothingBesideOtherWaysToMultiply) {
  const AttentionCase coded = OneQuery(4, "affine:8:g32:f32", "affine:4:g32:f32");
  const auto refused = [](const AttentionCase& c, const std::string& plan,
                          const Profile& profile = {}) {
    try {
      Resolve(ParsePlan(plan), profile, c);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIllegalCase);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string good = "dequantize=factored fixed_q=2^-23 fixed_p=2^-23";
  EXPECT_EQ(refused(coded, good), "");
  const auto names = [](const std::string& message, const std::string& part) {
    return message.find(part) != std::string::npos;
  };
  EXPECT_PRED2(names, refused(OneQuery(4, "f32", "affine:8:g32:f32"), good), "k=f32");
  EXPECT_PRED2(names, refused(OneQuery(4, "affine:8:g32:f32", "f32"), good), "v=f32");
  EXPECT_PRED2(names, refused(coded, "dequantize=inside:2 fixed_q=2^-23"), "dequantize=factored");
  EXPECT_PRED2(names, refused(coded, "fixed_p=2^-23"), "dequantize=factored");
  EXPECT_PRED2(names, refused(coded, good + " prescale=f32:1"), "prescale=none");
  EXPECT_PRED2(names, refused(coded, good + " integer_qk=affine:8:g32:f32"), "integer_qk");
  Profile rounded;
  rounded.decode = DecodeRounding::kTwoRoundings;
  EXPECT_PRED2(names, refused(coded, good, rounded), "decode=exact");
}

// What integers add may overflow where the values do not: sums in f16 of 9 times 2200, thrice, by
// steps of 4096.
TEST(FixedProducts, AreNotBoundedWhereTheyMayOverflow) {
  const AttentionCase c = OneQuery(3, "f32", "affine:8:g32:f32");
  TensorMap inputs = ZeroInputs(c);
  for (size_t key = 0; key < 3; ++key) {
    inputs.at("v_scales").As<float>()[key] = key == 0 ? 30000.0f : 2200.0f;
    for (size_t i = 0; i < 32; ++i) {
      inputs.at("v_codes").bytes[key * 32 + i] = std::byte{key == 0 ? uint8_t{0} : uint8_t{9}};
    }
  }
  for (const bool normalised : {false, true}) {
    Plan plan = FixedPlan("fixed_p=2^-3");
    plan.pv->accumulator.dtype = DType::kFloat16;
    plan.p_normalised = normalised;
    if (normalised) {  // values, not three times as much
      for (size_t key = 0; key < 3; ++key) inputs.at("v_scales").As<float>()[key] *= 2.9f;
    }
    const JudgedRun run = Judged(c, plan, plan, inputs);
    EXPECT_EQ(run.violations, 0) << run.first;
    EXPECT_EQ(run.excused, 33) << "the log-sum-exp with them";
    Plan exact = plan;
    exact.fixed_p.reset();
    EXPECT_EQ(AttentionSource(c, {}, exact, inputs).Tiles(0, {})[0].standing[0], Standing::kJudged);
  }
  // A stored partial result of one split.
  inputs.at("v_scales").As<float>()[0] = 6000;
  inputs.at("v_scales").As<float>()[1] = inputs.at("v_scales").As<float>()[2] = 6500;
  Plan plan = FixedPlan("fixed_p=2^-4");
  plan.merge = MergeKind::kLse;
  plan.splits = 2;
  plan.partial = DType::kFloat16;
  EXPECT_EQ(AttentionSource(c, {}, plan, inputs).Tiles(0, {})[0].standing[0], Standing::kUnbounded);
  plan.fixed_p.reset();
  EXPECT_EQ(AttentionSource(c, {}, plan, inputs).Tiles(0, {})[0].standing[0], Standing::kJudged);
}

TEST(FixedProducts, AreNotBoundedWhereAWeightIsNoNumber) {
  const AttentionCase c = OneQuery(3, "f32", "affine:8:g32:f32");
  TensorMap inputs = ZeroInputs(c);
  inputs.at("v_scales").As<float>()[1] = std::numeric_limits<float>::infinity();
  const AttentionSource source(c, {}, FixedPlan("fixed_p=2^-10"), inputs);
  EXPECT_NE(source.Tiles(0, {})[0].standing[0], Standing::kJudged);
}

}  // namespace
}  // namespace kvcheck
