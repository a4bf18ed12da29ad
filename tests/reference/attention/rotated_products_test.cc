// Attention in the basis in which rotating formats store K and V: kernels that rotate the query and
// the sums of V stay within the bound of a plan that says so, whatever else the plan says; every
// term that the variant adds is needed; and a rotation that is left out does not pass.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "reference/formats/codec.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "tests/reference/attention/drawn_run.h"
#include "tests/reference/attention/judge_run.h"
#include "tests/reference/formats/format_named.h"

namespace kvcheck {
namespace {

// Formats that rotate rows of 64 channels in one block, in two, in gathered halves, with and
// without signs, around codes, blocks of ggml and scales of their own; and two that do not.
std::vector<std::string> Formats() {
  return {"turboquant:4:g64:f32",
          "turboquant:2:g32:s7:f32",
          "turboquant:3:g64:mlx_vlm:s1:bf16",
          "turboquant:1:g32:plain:f16",
          "turboquant:5:g64:f32",
          "turboquant:3.5:g64:ha53cc35affff0000:f32",
          "hadamard:64:q4_0",
          "hadamard:32:q5_1",
          "hadamard:2:q8_0",
          "hadamard:16:affine:4:g32:bf16",
          "hadamard:8:mxfp8:e4m3:f32",
          "hadamard:64:fp8:e4m3fn:token:f32",
          "affine:4:g32:f16",
          "f32"};
}

// A drawn case and plan, over rotating formats and in their basis.
DrawnAttention DrawRotated(uint64_t seed, const std::vector<std::string>& formats) {
  DrawnAttention drawn = DrawAttention(seed, {.kv_len = 70, .head_dim = 64, .query_len = 3});
  AttentionCase& c = drawn.c;
  c.k_dim = c.v_dim = 64;
  const size_t rotating = formats.size() - 2;
  c.k = FormatNamed(formats[seed % formats.size()]);
  c.v = FormatNamed(formats[seed / 2 % formats.size()]);
  if (seed % formats.size() >= rotating) c.v = FormatNamed(formats[seed % rotating]);
  drawn.profile.decode = DecodeRounding::kExact;
  Plan& plan = drawn.plan;
  plan.integer_qk.reset();
  plan.fixed_q.reset();
  plan.fixed_p.reset();
  plan.dequantize = DequantizeKind::kRotated;
  plan.qk_operands.reset();
  plan.pv_operands.reset();
  plan.dequantize_roundings = 2;
  plan.dequantize_dtype.reset();
  return drawn;
}

TEST(RotatedProducts, StayWithinTheBoundOfEveryDrawnPlan) {
  JudgedRun all;
  const std::vector<std::string> formats = Formats();
  for (uint64_t seed = 0; seed < 700; ++seed) {
    const DrawnAttention drawn = DrawRotated(seed, formats);
    all.Add(RunDrawn(drawn, seed));
  }
  EXPECT_GT(all.judged, 300'000);
  EXPECT_LT(all.excused, all.judged / 3);
  EXPECT_GT(all.largest_ratio, 0.5) << "of roundings that all plans have";
}

// As campaigns draw them.
TEST(RotatedProducts, AreDrawnOfEitherOperandAndStayWithinTheBound) {
  JudgedRun all;
  int64_t k_alone = 0, v_alone = 0, both = 0;
  for (uint64_t seed = 0; k_alone < 60 || v_alone < 60 || both < 4; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 96, .head_dim = 64, .query_len = 4});
    const bool k = BasisOf(drawn.c.k, drawn.c.k_dim).Rotates();
    const bool v = BasisOf(drawn.c.v, drawn.c.v_dim).Rotates();
    if (drawn.plan.dequantize != DequantizeKind::kRotated) continue;
    ASSERT_TRUE(k || v) << seed;
    ASSERT_LT(seed, 20'000) << "too seldom";
    k_alone += k && !v ? 1 : 0, v_alone += v && !k ? 1 : 0, both += k && v ? 1 : 0;
    all.Add(RunDrawn(drawn, seed));
  }
  EXPECT_GT(all.judged, 50'000);
  EXPECT_LT(all.excused, all.judged / 3);
}

AttentionCase CaseOfFormats(const std::string& k, const std::string& v,
                            const std::string& more = "") {
  return std::get<AttentionCase>(ParseCase("attention hq=4 hkv=2 l=3 t=41 d=64 q=f32 k=" + k +
                                           " v=" + v + " out=f32 lse=natural data=gauss:5" + more));
}

Plan PlanDequantizing(const std::string& dequantize) {
  return ParsePlan(
      "qk=f64:sequential pv=f64:sequential l=f64:sequential op=f32 scale_roundings=0 "
      "scores=f32 bias_roundings=0 tanh_error=0 exp=exp exp_error=2^-23 "
      "exp_floor=2^-126 lazy_rescale=0 block=all sink=first p=f32 p_scale=1 "
      "p_normalised=no l_from=unrounded merge=none splits=1 normalise=divide flush=no "
      "saturate=no log_error=2^-22 dequantize=" +
      dequantize);
}

TEST(RotatedProducts, AgreeWithRowsThatAreRotatedBack) {
  for (const std::string& format : Formats()) {
    if (!BasisOf(FormatNamed(format), 64).Rotates()) continue;
    const AttentionCase c = CaseOfFormats(format, format);
    const TensorMap inputs = GenerateInputs(Case(c), {});
    const AttentionSource rotated(c, {}, PlanDequantizing("rotated:2"), inputs);
    SimulatedKernel kernel(PlanDequantizing("rotated:2"), {});
    const JudgedRun run = JudgeRun(rotated, Answer(&kernel, c, inputs));
    EXPECT_EQ(run.violations, 0) << format << " " << run.first;
    // Both are exact but for f32: far tighter than what any wrong basis would do.
    const ExpectedTile tile = rotated.Tiles(0, {}).at(0);
    for (size_t i = 0; i < tile.bound.size(); ++i) {
      ASSERT_LT(tile.bound[i], 0x1p-14) << format << ": of a mean of about one";
    }
  }
}

// The sums of a rotation in bf16: half of the declared precision does not cover them.
TEST(RotatedProducts, RoundTheQueryAndTheSumsInTheTypeOfOperations) {
  for (const bool is_key : {true, false}) {
    const AttentionCase c = is_key ? CaseOfFormats("turboquant:4:g64:f32", "f32")
                                   : CaseOfFormats("f32", "turboquant:4:g64:f32");
    Plan low = PlanDequantizing("rotated:1");
    low.op->dtype = DType::kBFloat16;
    low.scores = low.p = DType::kFloat32;
    const JudgedRun stated = RunAndJudge(c, {}, low, low);
    EXPECT_EQ(stated.violations, 0) << stated.first;
    EXPECT_GT(stated.largest_ratio, 0.01);
    EXPECT_GT(RunAndJudge(c, {}, PlanDequantizing("rotated:1"), low).violations, 100);
  }
}

// A query that is rounded to bf16 before it is rotated: what that loses is a sum over its channels,
// as without a rotation, beside which what f32 loses of the rotation is less than 2^-10.
TEST(RotatedProducts, LoseOfARoundedQueryWhatOthersLose) {
  const AttentionCase c = CaseOfFormats("turboquant:4:g64:f32", "f32");
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const auto plan = [](const std::string& dequantize) {
    Plan low = PlanDequantizing(dequantize);
    low.prescale_dtype = DType::kBFloat16;
    low.prescale_roundings = 1;
    return low;
  };
  const auto bound = [&](const std::string& dequantize) {
    const AttentionSource source(c, {}, plan(dequantize), inputs);
    double sum = 0;
    const std::vector<ExpectedTile> tiles = source.Tiles(0, {});
    for (const double b : tiles.at(0).bound) sum += b;
    return sum;
  };
  EXPECT_LT(bound("rotated:1"), bound("stored") * (1 + 0x1p-10));
  const JudgedRun run = RunAndJudge(c, {}, plan("rotated:1"), plan("rotated:1"));
  EXPECT_EQ(run.violations, 0) << run.first;
  EXPECT_GT(run.largest_ratio, 0.01);
}

// A rule in place of the rotation, before or after a kernel that is right otherwise.
void RotateQueriesBack(const AttentionCase& c, TensorMap* inputs) {
  Tensor& q = inputs->at("q");
  std::vector<double> row(static_cast<size_t>(c.k_dim));
  const StoredBasis basis = BasisOf(c.k, c.k_dim);
  for (int64_t at = 0; at < q.ElementCount(); at += c.k_dim) {
    DecodeTo(q, at, row);
    basis.RotateBack(row);
    for (size_t i = 0; i < row.size(); ++i) {
      q.As<float>()[static_cast<size_t>(at) + i] = static_cast<float>(row[i]);
    }
  }
}

TEST(RotatedProducts, ThatLeaveARotationOutDoNotPass) {
  for (const char* format : {"turboquant:4:g64:f32", "turboquant:2.5:g64:ha53cc35affff0000:f32",
                             "hadamard:64:q8_0", "hadamard:4:q4_0"}) {
    const AttentionCase c = CaseOfFormats(format, format);
    const Plan plan = PlanDequantizing("rotated:2");
    const TensorMap inputs = GenerateInputs(Case(c), {});
    const AttentionSource source(c, {}, plan, inputs);
    SimulatedKernel right(plan, {});
    EXPECT_EQ(JudgeRun(source, Answer(&right, c, inputs)).violations, 0) << format;
    // What the kernel multiplies is then q itself.
    TensorMap unrotated = inputs;
    RotateQueriesBack(c, &unrotated);
    EXPECT_GT(JudgeRun(source, Answer(&right, c, unrotated)).violations, 300) << format;
    AttentionRules rules;
    rules.output = [](const AttentionCase& of, const QueryIndex&, std::span<double> out) {
      BasisOf(of.v, of.v_dim).Rotate(out);
    };
    SimulatedKernel left_rotated(plan, {}, rules);
    EXPECT_GT(JudgeRun(source, Answer(&left_rotated, c, inputs)).violations, 300) << format;
  }
}

TEST(RotatedProducts, CountTheRoundingsOfAValue) {
  const AttentionCase c = CaseOfFormats("turboquant:4:g64:f32", "turboquant:4:g64:f32");
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const auto bound = [&](const std::string& dequantize) {
    const AttentionSource source(c, {}, PlanDequantizing(dequantize), inputs);
    const std::vector<ExpectedTile> tiles = source.Tiles(0, {});
    double sum = 0;
    for (const double b : tiles.at(0).bound) sum += b;
    return sum;
  };
  EXPECT_LT(bound("rotated:0"), bound("rotated:1"));
  EXPECT_LT(bound("rotated:1"), bound("rotated:64"));
}

// Scores of hundreds, of which a rotation in f32 loses more than the f64 sums of the plan allow.
TEST(RotatedProducts, AreNamedWhereTheyWereNotDeclared) {
  AttentionCase c = CaseOfFormats("turboquant:4:g64:f32", "turboquant:4:g64:f32");
  c.scale = 1;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(PlanDequantizing("rotated:1"), {});
  const AttentionSource source(c, {}, PlanDequantizing("stored"), inputs);
  const Verdict verdict = Judge(source, MemorySink(Answer(&kernel, c, inputs)));
  const OutputVerdict& out = verdict.outputs[0];
  EXPECT_GT(out.counts.failed, 10);
  EXPECT_TRUE(std::any_of(out.plan_changes.begin(), out.plan_changes.end(),
                          [](const DeclaredChange& change) {
                            return Print(change).starts_with("dequantize=rotated:2");
                          }));
}

TEST(RotatedProducts, MeanNothingWithoutRotatedRows) {
  const auto refused = [](const AttentionCase& c, const Profile& profile) {
    try {
      Resolve(ParsePlan("dequantize=rotated:1"), profile, c);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIllegalCase);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused(CaseOfFormats("affine:4:g32:f16", "f32"), {}).find("neither"),
            std::string::npos);
  EXPECT_EQ(refused(CaseOfFormats("turboquant:4:g64:f32", "f32"), {}), "");
  EXPECT_EQ(refused(CaseOfFormats("f32", "hadamard:64:q4_0"), {}), "");
  Profile rounded;
  rounded.decode = DecodeRounding::kTwoRoundings;
  EXPECT_NE(refused(CaseOfFormats("turboquant:4:g64:bf16", "f32"), rounded).find("decode=exact"),
            std::string::npos);
}

}  // namespace
}  // namespace kvcheck
