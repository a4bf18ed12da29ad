// Rows whose every key is hidden by a large finite number in an additive mask: judged as what the
// declared rounding makes of them, or not at all and with the reason.

#include "reference/attention/hidden_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

AttentionCase HiddenCase(DType type) {
  AttentionCase c;
  c.query_heads = 2, c.kv_heads = 1, c.query_len = 4, c.kv_len = 9, c.k_dim = c.v_dim = 8;
  c.q = type, c.out = type, c.k = c.v = PlainFormat{type};
  c.mask.array = MaskArrayKind::kAdditive;
  c.mask.axes = MaskAxes::kLT;
  c.mask.additive_dtype = type;
  c.data = {.regime = "gauss", .seed = 4, .file_hash = ""};
  return c;
}

// Causal, as a sum: query l sees columns up to l + 2; row 1 sees none.
TensorMap InputsOf(const AttentionCase& c, double number) {
  TensorMap inputs = GenerateInputs(Case(c), {});
  std::vector<double> mask(static_cast<size_t>(c.query_len * c.kv_len));
  for (int64_t l = 0; l < c.query_len; ++l) {
    for (int64_t j = 0; j < c.kv_len; ++j) {
      mask[static_cast<size_t>(l * c.kv_len + j)] = l == 1 || j > l + 2 ? number : 0;
    }
  }
  Tensor& tensor = inputs.at("mask");
  EncodeFrom(mask, tensor.dtype, tensor.bytes.data());
  return inputs;
}

constexpr char kPlan[] = "base=plain_f32";

TEST(HiddenRows, AreTheMeanWhereTheNumberAbsorbsTheScores) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const double lowest = -FloatTypeOf(type).largest_finite;
    for (const double number : {lowest, std::max(lowest, -1e9)}) {
      // Scores of half a dozen do not change 65504 in f32, but they do in part.
      if (type == DType::kFloat16) continue;
      AttentionCase c = HiddenCase(type);
      // The lowest number and the log of the keys may be more than the type of lse holds.
      if (number > -1e30) c.lse = LseKind::kNatural;
      const TensorMap inputs = InputsOf(c, number);
      const Plan plan = ParsePlan(kPlan);
      const AttentionSource source(c, {}, plan, inputs);
      const ExpectedTile tile = source.Tiles(0, {})[0];
      EXPECT_EQ(tile.standing[1], Standing::kJudged);
      const std::vector<double> v = Decoded(inputs.at("v"));
      double mean = 0;
      for (size_t j = 0; j < 9; ++j) mean += v[j * 8] / 9;
      EXPECT_NEAR(tile.value[8], mean, 1e-12);
      SimulatedKernel kernel(plan, {});
      TensorMap answer = Answer(&kernel, c, inputs);
      const JudgedRun run = JudgeRun(source, answer);
      EXPECT_EQ(run.violations, 0) << run.first;
      EXPECT_EQ(run.excused, 0);
      EXPECT_EQ(Judge(source, MemorySink(TensorMap(answer))).outcome, Outcome::kPass);
      // Zeros in that row alone are found.
      Tensor& out = answer.at("out");
      const size_t row = 8 * SizeInBytes(type);
      std::fill_n(out.bytes.begin() + static_cast<std::ptrdiff_t>(row), row, std::byte{0});
      EXPECT_EQ(Judge(source, MemorySink(TensorMap(answer))).outcome, Outcome::kFail);
    }
  }
}

TEST(HiddenRows, AreMistrustedWithAdviceWhereTheRoundingDecides) {
  // Scores of some hundred against a gap of 64: which keys are left is decided by rounding.
  AttentionCase c = HiddenCase(DType::kFloat32);
  c.scale = 60;
  const TensorMap inputs = InputsOf(c, -1e9);
  const Plan plan = ParsePlan(kPlan);
  const AttentionSource source(c, {}, plan, inputs);
  SimulatedKernel kernel(plan, {});
  const TensorMap answer = Answer(&kernel, c, inputs);
  const Verdict verdict = Judge(source, MemorySink(TensorMap(answer)));
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_NE(verdict.reasons[0].find("hidden by a large finite number"), std::string::npos)
      << verdict.reasons[0];
  EXPECT_NE(verdict.reasons[0].find("masked_row=any"), std::string::npos);
  Profile any;
  any.masked_row = MaskedRow::kAny;
  const AttentionSource free(c, any, plan, inputs);
  EXPECT_EQ(free.Tiles(0, {})[0].standing[1], Standing::kUnconstrained);
  EXPECT_EQ(Judge(free, MemorySink(TensorMap(answer))).outcome, Outcome::kPass);
}

TEST(HiddenRows, AreNotGuessedOfKernelsThatDoNotSayHowTheyAdd) {
  const AttentionCase c = HiddenCase(DType::kFloat32);
  const TensorMap inputs = InputsOf(c, -1e9);
  for (const char* plan : {"", "base=plain_f32 op=f32.rz", "base=plain_f32 exp=exp2_fma"}) {
    const ExpectedTile tile = AttentionSource(c, {}, ParsePlan(plan), inputs).Tiles(0, {})[0];
    EXPECT_EQ(tile.standing[1], Standing::kUnbounded) << plan;
    EXPECT_EQ(tile.standing[0], Standing::kJudged) << plan;
  }
}

TEST(HiddenRows, AreJudgedAsAnyOtherWhereTheScoresSurvive) {
  // In f64 a number of 1e9 leaves the scores 2^-24 exact.
  AttentionCase c = HiddenCase(DType::kFloat64);
  const TensorMap inputs = InputsOf(c, -1e9);
  const Plan plan = ParsePlan(
      "qk=f64:sequential pv=f64:sequential l=f64:sequential op=f64 scale_roundings=2 "
      "prescale=none scores=f64 exp=exp exp_error=2^-51 exp_floor=2^-1022 lazy_rescale=0 block=all "
      "p=f64 p_scale=1 p_normalised=no merge=none splits=1 normalise=divide flush=no saturate=no");
  const AttentionSource source(c, {}, plan, inputs);
  const ExpectedTile tile = source.Tiles(0, {})[0];
  EXPECT_EQ(tile.standing[1], Standing::kJudged);
  SimulatedKernel kernel(plan, {});
  const JudgedRun run = JudgeRun(source, Answer(&kernel, c, inputs));
  EXPECT_EQ(run.violations, 0) << run.first;
  // Of a kernel that declares less than it has, the report says so, and nothing of its mask.
  const AttentionSource narrow(c, {}, ParsePlan(kPlan), inputs);
  const Verdict verdict = Judge(narrow, MemorySink(Answer(&kernel, c, inputs)));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].cause, "scores kept beside a large mask");
  EXPECT_EQ(verdict.outputs[0].hints.size(), 1U);
  EXPECT_TRUE(verdict.outputs[0].plan_changes.empty());
  // A bias that hides nothing is none of these rows.
  const TensorMap mild = InputsOf(c, -30);
  Profile any;
  any.masked_row = MaskedRow::kAny;
  EXPECT_EQ(AttentionSource(c, any, plan, mild).Tiles(0, {})[0].standing[1], Standing::kJudged);
}

}  // namespace
}  // namespace kvcheck
