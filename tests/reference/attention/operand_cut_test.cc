// Operands cut to TF32, bf16 and f16, in one pass and more: simulated kernels stay within the bound
// of a plan that says so and come close to it; a plan that says less is exceeded, and the cut is
// named. Likewise what else is stored low on the way: weights and sums of a merge, lse, outputs.

#include "reference/attention/operand_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "fuzz/draw_attention.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "tests/reference/attention/drawn_run.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

// All roundings of a kernel but those that a test adds, as small as f32 has them.
const std::string kAllButCuts =
    "qk=f32:sequential l=f32:sequential op=f32 scale_roundings=0 prescale=none "
    "bias_roundings=0 tanh_error=2^-22 exp=exp exp_error=2^-23 exp_floor=2^-126 "
    "lazy_rescale=0 sink=first p_normalised=no l_from=unrounded "
    "normalise=divide flush=no saturate=no log_error=2^-22";
const std::string kOneRange = " merge=none splits=1";

// What a test does not say is exact, too.
Plan CutPlan(const std::string& fields) {
  Plan plan = ParsePlan(kAllButCuts + " " + fields);
  if (!plan.pv) plan.pv = ParsePlan("pv=f32:sequential").pv;
  if (!plan.p) plan.p = DType::kFloat32;
  if (!plan.p_scale) plan.p_scale = 1;
  if (!plan.scores) plan.scores = DType::kFloat32;
  if (!plan.block) plan.block = 0;
  return plan;
}

TEST(OperandCut, StaysWithinTheBoundOfEveryDrawnPlan) {
  JudgedRun all;
  int64_t cut = 0, merged = 0, through = 0;
  for (uint64_t seed = 0; cut < 200 || merged < 60 || through < 60; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 96, .head_dim = 32, .query_len = 4});
    const bool has_cut = drawn.plan.qk_operands || drawn.plan.pv_operands;
    if (!has_cut && !drawn.plan.merge_weights && !drawn.plan.through) continue;
    cut += has_cut, merged += drawn.plan.merge_weights.has_value();
    through += drawn.plan.through.has_value();
    all.Add(RunDrawn(drawn, seed));
  }
  EXPECT_GT(all.judged, 50'000);
}

TEST(OperandCut, OfAnyPassesStaysWithinTheBoundAtEveryLength) {
  for (const std::string cut : {"tf32", "tf32.rz", "tf32x3", "tf32x3.rz", "tf32x6", "bf16",
                                "bf16.rz", "bf16x3", "bf16x6", "bf16x9", "f16", "f16x3"}) {
    for (const int n : {1, 2, 17, 129, 700}) {
      for (const std::string sum :
           {"f32:tensor_core:4:23:chained", "f32:lanes:8:fma", "f32:pairwise"}) {
        const AttentionCase c = CaseOf("attention hq=2 hkv=1 l=2 t=" + std::to_string(n) +
                                       " d=24 q=f32 k=f32 v=f32 out=f32 data=gauss:3");
        Plan plan = CutPlan("operands=" + cut + kOneRange);
        plan.qk = ParsePlan("qk=" + sum).qk;
        plan.pv = ParsePlan("qk=" + sum).qk;
        plan.block = 16;
        const JudgedRun run = RunAndJudge(c, {}, plan, plan);
        EXPECT_EQ(run.violations, 0) << cut << " " << n << " " << sum << ": " << run.first;
        EXPECT_GT(run.judged, 0);
      }
    }
  }
}

TensorMap FilledWith(const AttentionCase& c, float q, float k, float v) {
  TensorMap inputs;
  for (const auto& [name, spec] : InputSpecs(Case(c))) {
    inputs[name] = Tensor(spec.dtype, spec.shape);
    const float value = name == "q" ? q : name == "k" ? k : v;
    for (int64_t i = 0; i < spec.shape.ElementCount(); ++i) inputs[name].As<float>()[i] = value;
  }
  return inputs;
}

JudgedRun JudgedCut(const AttentionCase& c, const Plan& declared, const Plan& actual,
                    const TensorMap& inputs) {
  SimulatedKernel kernel(actual, {});
  return JudgeRun(AttentionSource(c, {}, declared, inputs), Answer(&kernel, c, inputs));
}

// Every operand lies just below half a spacing of TF32, or just below a whole one where it is
// truncated, and loses all of that.
TEST(OperandCut, IsAsLargeAsThePlanSaysOfScoresAndOfValues) {
  const AttentionCase c = CaseOf(
      "attention hq=1 hkv=1 l=1 t=1 d=2 q=f32 k=f32 v=f32 out=f32 scale=1 lse=natural data=file");
  for (const auto& [cut, lost] : {std::pair{"tf32", 0x1.ffep-12f},
                                  {"tf32.rz", 0x1.ffcp-11f},
                                  {"bf16", 0x1.ffp-9f},
                                  {"bf16.rz", 0x1.ffp-8f}}) {
    const TensorMap inputs = FilledWith(c, 1 + lost, 1 + lost, 1 + lost);
    const Plan plan = CutPlan(std::string("operands=") + cut + kOneRange);
    const JudgedRun run = JudgedCut(c, plan, plan, inputs);
    EXPECT_EQ(run.violations, 0) << cut << run.first;
    EXPECT_GT(run.largest_ratio, 0.9) << cut;
    for (const std::string part : {"qk", "pv"}) {
      const Plan half = CutPlan("operands=" + part + ":" + cut + kOneRange);
      EXPECT_EQ(JudgedCut(c, half, half, inputs).violations, 0) << cut << part;
      EXPECT_GT(JudgedCut(c, half, plan, inputs).violations, 0)
          << cut << part << ": the other half";
    }
    EXPECT_GT(JudgedCut(c, CutPlan("operands=none" + kOneRange), plan, inputs).violations, 0);
    EXPECT_GT(JudgedCut(c, CutPlan("operands=tf32x3" + kOneRange), plan, inputs).violations, 0);
  }
}

TEST(OperandCut, LeavesOperandsThatFitAsTheyAre) {
  const AttentionCase c =
      CaseOf("attention hq=1 hkv=1 l=1 t=33 d=8 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:3");
  const Arithmetic cut = Resolve(CutPlan("p=bf16 operands=tf32" + kOneRange), {}, c);
  EXPECT_EQ(cut.cut_qk.lost, 0);
  EXPECT_EQ(cut.cut_pv.lost, 0);
  EXPECT_EQ(cut.cut_qk.passes, 1);
  // P in f32 is what one pass rounds, whatever V is.
  const Arithmetic of_p = Resolve(CutPlan("p=f32 operands=tf32" + kOneRange), {}, c);
  EXPECT_EQ(of_p.u_p, 0x1p-11);
  EXPECT_TRUE(of_p.p_in_numerator);
  EXPECT_FALSE(of_p.p_in_weights);
}

TEST(OperandCut, MeansNothingBesideCodesAndWiderTypes) {
  const auto refused = [](const std::string& c, const std::string& plan) {
    try {
      Resolve(ParsePlan(plan), {}, CaseOf(c));
    } catch (const Error& error) {
      return error.code() == ErrorCode::kIllegalCase ? std::string(error.what()) : "";
    }
    return std::string();
  };
  const std::string coded =
      "attention hq=1 hkv=1 l=1 t=4 d=32 q=f32 k=affine:8:g32:f32 v=f32 "
      "out=f32 data=gauss:1";
  const std::string wide =
      "attention hq=1 hkv=1 l=1 t=4 d=8 q=f64 k=f64 v=f64 out=f64 data=gauss:1";
  EXPECT_NE(refused(coded, "operands=tf32 dequantize=factored"), "");
  EXPECT_EQ(refused(coded, "operands=tf32 dequantize=inside:2"), "");
  EXPECT_NE(refused(wide, "operands=tf32"), "");
  EXPECT_NE(refused(coded, "merge=none merge_weights=bf16"), "");
}

Verdict CutVerdict(const AttentionCase& c, const Plan& declared, const Plan& actual) {
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(actual, {});
  return Judge(AttentionSource(c, {}, declared, inputs), MemorySink(Answer(&kernel, c, inputs)));
}

bool AdvisesChange(const OutputVerdict& output, const std::string& start) {
  return std::any_of(
      output.plan_changes.begin(), output.plan_changes.end(),
      [&](const DeclaredChange& change) { return Print(change).starts_with(start); });
}

TEST(OperandCut, IsNamedWhereItWasNotDeclared) {
  const AttentionCase c =
      CaseOf("attention hq=4 hkv=2 l=4 t=200 d=64 q=f32 k=f32 v=f32 out=f32 data=gauss:3");
  for (const auto& [actual, named] : {std::pair{"tf32.rz", "operands=tf32.rz"},
                                      {"tf32", "operands=tf32.rz"},
                                      {"qk:tf32.rz", "operands=qk:tf32.rz"},
                                      {"pv:tf32.rz", "operands=pv:tf32.rz"},
                                      {"bf16", "operands=bf16"}}) {
    const Verdict verdict =
        CutVerdict(c, CutPlan(kOneRange), CutPlan(std::string("operands=") + actual + kOneRange));
    EXPECT_EQ(verdict.outcome, Outcome::kFail) << actual;
    EXPECT_TRUE(AdvisesChange(verdict.outputs[0], named))
        << actual << ": "
        << (verdict.outputs[0].plan_changes.empty() ? ""
                                                    : Print(verdict.outputs[0].plan_changes[0]));
  }
}

TEST(StoredLow, WeightsAndSumsOfAMergeNeedTheirWords) {
  const AttentionCase c =
      CaseOf("attention hq=2 hkv=1 l=2 t=130 d=16 q=f32 k=f32 v=f32 out=f32 data=gauss:5");
  for (const std::string merge : {"accumulators", "lse", "lse_division_free"}) {
    for (const std::string type : {"bf16", "f16"}) {
      for (const std::string word : {"merge_weights", "partial"}) {
        const std::string rest = " merge=" + merge + " splits=5";
        const std::string other = word == "partial" ? "" : " partial=f32";
        const Plan plan = CutPlan(word + "=" + type + rest + other);
        const JudgedRun run = RunAndJudge(c, {}, plan, plan);
        EXPECT_EQ(run.violations, 0) << Print(plan) << run.first;
        EXPECT_GT(RunAndJudge(c, {}, CutPlan("partial=f32" + rest), plan).violations, 0)
            << Print(plan);
      }
    }
  }
}

TEST(StoredLow, OutputsThatPassedThroughALowTypeAreNamedSo) {
  const AttentionCase c =
      CaseOf("attention hq=4 hkv=2 l=4 t=64 d=32 q=f32 k=f32 v=f32 out=f32 data=gauss:3");
  for (const std::string type : {"bf16", "f16"}) {
    const Plan plan = CutPlan("through=" + type + kOneRange);
    const JudgedRun run = RunAndJudge(c, {}, plan, plan);
    EXPECT_EQ(run.violations, 0) << run.first;
    EXPECT_GT(run.largest_ratio, 0.9);
    const OutputVerdict out = CutVerdict(c, CutPlan(kOneRange), plan).outputs[0];
    ASSERT_EQ(out.plan_changes.size(), 1u) << type;
    EXPECT_TRUE(Print(out.plan_changes[0]).starts_with("through=" + type))
        << Print(out.plan_changes[0]);
  }
  // Scores in f16 make errors of the size of f16 outputs, which are no values of f16.
  const OutputVerdict out =
      CutVerdict(c, CutPlan(kOneRange), CutPlan("scores=f16" + kOneRange)).outputs[0];
  EXPECT_FALSE(AdvisesChange(out, "through="));
  EXPECT_TRUE(AdvisesChange(out, "scores=f16"));
}

TEST(StoredLow, LseInItsTypeStaysWithinTheBoundAndComesCloseToIt) {
  for (const std::string type : {"bf16", "f16"}) {
    for (const std::string kind : {"natural", "base2"}) {
      const std::string shape =
          "attention hq=4 hkv=2 l=8 t=64 d=32 q=f32 k=f32 v=f32 out=f32 lse=" + kind;
      const AttentionCase c = CaseOf(shape + ":" + type + " data=gauss:3");
      EXPECT_EQ(Print(Case(c)).find("lse=" + kind + ":" + type) == std::string::npos, false);
      const Plan plan = CutPlan(kOneRange);
      const JudgedRun run = RunAndJudge(c, {}, plan, plan);
      EXPECT_EQ(run.violations, 0) << run.first;
      EXPECT_GT(run.largest_ratio, 0.5);
      EXPECT_EQ(OutputSpecs(Case(c)).at("lse").dtype, *c.lse_type);
      // Without the type the same answer is one of another type.
      const AttentionCase unsaid = CaseOf(shape + " data=gauss:3");
      const TensorMap inputs = GenerateInputs(Case(c), {});
      SimulatedKernel kernel(plan, {});
      const Verdict verdict =
          Judge(AttentionSource(unsaid, {}, plan, inputs), MemorySink(Answer(&kernel, c, inputs)));
      EXPECT_EQ(verdict.outcome, Outcome::kFail);
    }
  }
  const AttentionCase plain = CaseOf(
      "attention hq=1 hkv=1 l=1 t=4 d=8 q=f32 k=f32 v=f32 out=f32 lse=natural:f32 data=gauss:1");
  EXPECT_FALSE(plain.lse_type) << "the default, said";
}

// Codes of a scaled low type fit any type of operands; truncation stops at the largest number.
TEST(StoredLow, HoldsForScaledWeightsAndAtTheEndOfAType) {
  const AttentionCase c =
      CaseOf("attention hq=2 hkv=1 l=2 t=40 d=16 q=f32 k=f32 v=f32 out=f32 data=gauss:5");
  const Plan scaled = CutPlan("p=f8e4m3fn p_scale=440 operands=pv:tf32.rz" + kOneRange);
  const JudgedRun run = RunAndJudge(c, {}, scaled, scaled);
  EXPECT_EQ(run.violations, 0) << run.first;
  AttentionCase large = c;
  large.data.regime = "large_v";
  for (const std::string op : {"f32", "f32.rz"}) {
    const Plan plan = ParsePlan("plain_f32 through=f16 op=" + op);
    const JudgedRun end = RunAndJudge(large, {}, plan, plan);
    EXPECT_EQ(end.violations, 0) << op << end.first;
    EXPECT_GT(end.alternatives, 0) << op;
  }
}

// The model of independent roundings holds for what the words add.
TEST(StoredLow, KeepsTheModelOfIndependentRoundings) {
  for (const std::string data : {"gauss", "constant", "outlier", "same_sign"}) {
    for (const std::string fields :
         {"operands=tf32", "operands=tf32.rz", "operands=bf16x3", "operands=bf16",
          "merge=accumulators splits=9 partial=bf16", "merge=accumulators splits=9 partial=f16",
          "merge=lse splits=9 partial=f32 merge_weights=bf16", "through=bf16"}) {
      AttentionCase c =
          CaseOf("attention hq=2 hkv=1 l=2 t=2000 d=16 q=f32 k=f32 v=f32 out=f32 data=gauss:5");
      c.data.regime = data;
      const bool merges = fields.starts_with("merge");
      const Plan plan = CutPlan(fields + (merges ? "" : kOneRange));
      const TensorMap inputs = GenerateInputs(Case(c), {});
      SimulatedKernel kernel(plan, {});
      const AttentionSource source(c, {}, plan, inputs);
      TileRequest request;
      request.noise = true;
      const JudgedRun run = JudgeRun(source, Answer(&kernel, c, inputs), request);
      EXPECT_EQ(run.violations, 0) << data << " " << fields << ": " << run.first;
      EXPECT_GT(run.judged, 0);
    }
  }
}

// Over thousands of keys the worst case of an f16 accumulator is no bound at all; the model has one
// that proves something, and holds.
TEST(LowAccumulator, HasABoundUnderTheModelWhereTheWorstCaseHasNone) {
  int64_t proving = 0, judged = 0;
  for (const std::string data :
       {"gauss", "duplicated", "outlier", "same_sign", "constant", "sink"}) {
    for (const std::string sum :
         {"f16:sequential", "f16:sequential:chained", "f16:sequential:fma"}) {
      AttentionCase c =
          CaseOf("attention hq=2 hkv=1 l=2 t=6000 d=16 q=f16 k=f16 v=f16 out=f16 data=gauss:5");
      c.data.regime = data;
      const Plan plan = CutPlan("p=f16 block=32 pv=" + sum + kOneRange);
      const TensorMap inputs = GenerateInputs(Case(c), {});
      SimulatedKernel kernel(plan, {});
      const TensorMap answer = Answer(&kernel, c, inputs);
      const AttentionSource source(c, {}, plan, inputs);
      TileRequest request;
      request.noise = true;
      const JudgedRun run = JudgeRun(source, answer, request);
      EXPECT_EQ(run.violations, 0) << data << " " << sum << ": " << run.first;
      judged += run.judged;
      for (int64_t index = 0; index < source.TileCount(); ++index) {
        const ExpectedTile tile = source.Tiles(index, request)[0];
        for (size_t i = 0; i < tile.bound.size(); ++i) {
          const bool is_judged = tile.standing[i / 16] == Standing::kJudged;
          EXPECT_TRUE(!is_judged || !sum.ends_with("chained") ||
                      !std::isfinite(tile.proven_bound[i]));
          proving += tile.standing[0] == Standing::kJudged && tile.bound[i] < 0.1 * tile.mass[i];
        }
      }
    }
  }
  EXPECT_GT(judged, 500);
  EXPECT_GT(proving, 100);
}

}  // namespace
}  // namespace kvcheck
