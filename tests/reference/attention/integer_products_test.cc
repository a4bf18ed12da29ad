// q.k over integer codes of both sides: a kernel that encodes its query stays within the bound of a
// plan that says so, and every term that the variant adds is needed: left out, some kernel exceeds
// what remains.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fuzz/draw_attention.h"
#include "reference/attention/evaluate.h"
#include "reference/formats/codec.h"
#include "tests/reference/attention/drawn_run.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

JudgedRun SurveyIntegers(uint64_t first, int64_t kernels, const DrawLimits& limits) {
  JudgedRun all;
  for (uint64_t seed = first; kernels > 0; ++seed) {
    const DrawnAttention drawn = DrawAttention(seed, limits);
    if (!drawn.plan.integer_qk) continue;
    --kernels;
    all.Add(RunDrawn(drawn, seed));
  }
  return all;
}

TEST(IntegerProducts, StayWithinTheBoundOfEveryDrawnPlan) {
  const JudgedRun all = SurveyIntegers(0, 400, {.kv_len = 64, .head_dim = 64, .query_len = 4});
  EXPECT_GT(all.judged, 100'000);
  // Where scores reach 1e4 a query's codec errs by hundreds of nats, and nothing can be proved.
  EXPECT_LT(all.excused, all.judged / 3);
}

// One head of one query each, K and V attached.
AttentionCase Case8(int64_t d) {
  AttentionCase c;
  c.query_heads = 2, c.query_len = 8, c.kv_len = 33, c.k_dim = d, c.v_dim = 5;
  c.k = AffineFormat{8, 32, DType::kFloat32};
  c.scale = 1;
  c.data.regime = "gauss";
  return c;
}

Plan Plan8(const std::string& query = "affine:8:g32:f32") {
  return ParsePlan("integer_qk=" + query +
                   " qk=f32:sequential pv=f32:lanes:8:fma l=f32:lanes:8 op=f32 scale_roundings=1 "
                   "scores=f32 bias_roundings=1 tanh_error=2^-22 exp=exp exp_error=2^-23 "
                   "exp_floor=2^-126 lazy_rescale=0 block=all sink=first p=f32 p_scale=1 "
                   "p_normalised=no l_from=unrounded merge=none splits=1 normalise=divide flush=no "
                   "saturate=no log_error=2^-22");
}

using ChangeArithmetic = std::function<void(Arithmetic*)>;
using ChangeQuestion = std::function<void(OwnedQuestion*)>;

// Elements of the kernel's answer beyond a bound of which a term was changed.
int64_t Violations(const AttentionCase& c, const Plan& plan, const TensorMap& inputs,
                   const ChangeArithmetic& change_arithmetic,
                   const ChangeQuestion& change_question) {
  SimulatedKernel kernel(plan, {});
  const std::vector<double> out = Decoded(Get(Answer(&kernel, c, inputs), "out"));
  Arithmetic arithmetic = Resolve(plan, {}, c);
  change_arithmetic(&arithmetic);
  const HeadData head = LoadHead(c, {}, inputs, 0, 0, arithmetic.Detail());
  const MaskReader mask(c, {}, inputs);
  const std::vector<double> q = Decoded(Get(inputs, "q"));
  const auto d = static_cast<size_t>(c.k_dim), dv = static_cast<size_t>(c.v_dim);
  int64_t violations = 0;
  for (int64_t row = 0; row < c.query_heads * c.query_len; ++row) {
    RowContext context;
    context.c = &c, context.arithmetic = &arithmetic, context.head = &head;
    context.q = std::span(q).subspan(static_cast<size_t>(row) * d, d);
    OwnedQuestion owned;
    MakeQuestion(context, mask.Visible({0, row / c.query_len, row % c.query_len}), &owned);
    change_question(&owned);
    const RowReference reference = ComputeRow(context, owned, Precision::kDoubleDouble);
    for (size_t i = 0; i < dv; ++i) {
      const ChannelReference& channel = reference.channels[i];
      const double error = std::fabs(out[static_cast<size_t>(row) * dv + i] - channel.value);
      violations += !(error <= channel.bound + channel.reference_bound);
    }
  }
  return violations;
}

const ChangeArithmetic kSameArithmetic = [](Arithmetic*) {};
const ChangeQuestion kSameQuestion = [](OwnedQuestion*) {};
// The query of such a test is exactly representable in its codec.
const ChangeQuestion kExactQuery = [](OwnedQuestion* owned) {
  std::fill(owned->q_error.begin(), owned->q_error.end(), 0.0);
};

// What llama.cpp's CPU kernel does: both sides in q8_0, whose codes have signs and no bias.
TEST(IntegerProducts, OfBlocksOfGgmlHoldAndNeedTheErrorOfTheQuery) {
  AttentionCase c = Case8(64);
  c.k = Q8_0Format{};
  const Plan plan = Plan8("q8_0");
  const TensorMap inputs = GenerateInputs(Case(c), {});
  EXPECT_EQ(Violations(c, plan, inputs, kSameArithmetic, kSameQuestion), 0);
  EXPECT_GT(Violations(c, plan, inputs, kSameArithmetic, kExactQuery), 40);
}

TEST(IntegerProducts, NeedTheErrorOfTheQuerysCodec) {
  for (const char* query : {"affine:8:g32:f32", "affine:4:g64:bf16", "affine:2:g32:f16"}) {
    const AttentionCase c = Case8(64);
    const Plan plan = Plan8(query);
    const TensorMap inputs = GenerateInputs(Case(c), {});
    EXPECT_EQ(Violations(c, plan, inputs, kSameArithmetic, kSameQuestion), 0) << query;
    EXPECT_GT(Violations(c, plan, inputs, kSameArithmetic, kExactQuery), 40) << query;
    Plan silent = plan;
    silent.integer_qk.reset();
    silent.dequantize = DequantizeKind::kFactored;
    EXPECT_GT(RunAndJudge(c, {}, silent, plan).violations, 40) << "not declared: " << query;
  }
}

TEST(IntegerProducts, NeedBothCodecsAgainstOriginals) {
  AttentionCase c = Case8(64);
  c.against_original = true;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  for (const char* query : {"affine:8:g32:f32", "affine:2:g32:f32"}) {
    EXPECT_EQ(Violations(c, Plan8(query), inputs, kSameArithmetic, kSameQuestion), 0);
  }
  EXPECT_GT(Violations(c, Plan8("affine:2:g32:f32"), inputs, kSameArithmetic, kExactQuery), 0);
}

// Queries of whole multiples of 2^-3 from 0 to 255/8, both ends in every group: 8-bit codes hold
// them exactly, with scale 2^-3 and the upper end as bias.
TensorMap ExactQueries(const AttentionCase& c) {
  TensorMap inputs = GenerateInputs(Case(c), {});
  Tensor& q = inputs.at("q");
  std::vector<double> values(static_cast<size_t>(q.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 32 == 0 ? 0 : i % 32 == 1 ? 255 : static_cast<double>(i * 97 % 256);
    values[i] /= 8;
  }
  EncodeFrom(values, q.dtype, q.bytes.data());
  return inputs;
}

TEST(IntegerProducts, NeedTheRoundingsOfAGroup) {
  AttentionCase c = Case8(32);
  c.scale = 0x1p-4;
  Plan plan = Plan8();
  plan.op->toward_zero = true;
  const TensorMap inputs = ExactQueries(c);
  EXPECT_EQ(Violations(c, plan, inputs, kSameArithmetic, kExactQuery), 0);
  const ChangeArithmetic without = [](Arithmetic* a) {
    a->c_group = 0x1p-60;  // not zero, which would say that there are no codes
    a->c_s = 0;            // a scale of one multiplies without a rounding
  };
  EXPECT_GT(Violations(c, plan, inputs, without, kExactQuery), 0);
}

TEST(IntegerProducts, NeedTheSumOverGroups) {
  AttentionCase c = Case8(1024);
  c.scale = 0x1p-9;
  Plan plan = Plan8();
  plan.qk->accumulator.toward_zero = true;
  // Everything else is done in f64, so that nothing else accounts for what this sum loses.
  plan.op->dtype = plan.scores.emplace() = plan.p.emplace() = DType::kFloat64;
  plan.pv->accumulator.dtype = plan.l->accumulator.dtype = DType::kFloat64;
  plan.exp_error = 0x1p-50;
  const TensorMap inputs = ExactQueries(c);
  EXPECT_EQ(Violations(c, plan, inputs, kSameArithmetic, kExactQuery), 0);
  const ChangeArithmetic one_group = [](Arithmetic* a) { a->h_qk = 0; };
  EXPECT_GT(Violations(c, plan, inputs, one_group, kExactQuery), 0);
}

TEST(IntegerProducts, NeedTheUnderflowOfScales) {
  AttentionCase c = Case8(32);
  c.kv_len = 2;
  c.scale = 0x1p106;
  c.data.regime = "file";
  TensorMap inputs;
  for (const auto& [name, spec] : InputSpecs(Case(c)))
    inputs[name] = Tensor(spec.dtype, spec.shape);
  // Half the channels 0 (code 255), half 255/1024 (code 0): scale -2^-10, bias 255/1024.
  std::vector<double> q(static_cast<size_t>(inputs.at("q").ElementCount()));
  for (size_t i = 0; i < q.size(); ++i) q[i] = i % 2 == 0 ? 0 : 255 * 0x1p-10;
  EncodeFrom(q, DType::kFloat32, inputs.at("q").bytes.data());
  // The first key's codes are all 255, under a scale of 2^-117; the second is zero. The product of
  // both scales, 2^-127, is flushed, with 255 * 255 times that many channels.
  std::fill_n(inputs.at("k_codes").As<uint32_t>(), 8, 0xffffffffu);
  for (size_t key = 0; key < 2; ++key) inputs.at("k_scales").As<float>()[key] = 0x1p-117f;
  for (size_t i = 0; i < 5; ++i) inputs.at("v").As<float>()[i] = 1;
  Plan plan = Plan8();
  plan.flush_subnormals = true;
  EXPECT_EQ(Violations(c, plan, inputs, kSameArithmetic, kExactQuery), 0);
  const ChangeArithmetic without = [](Arithmetic* a) { a->q_codes = a->k_codes = 0; };
  EXPECT_GT(Violations(c, plan, inputs, without, kExactQuery), 0);
}

TEST(IntegerProducts, CountGroupsAndRoundings) {
  AttentionCase c = Case8(256);
  EXPECT_EQ(Resolve(Plan8(), {}, c).h_qk, 7);
  EXPECT_EQ(Resolve(Plan8(), {}, c).c_group, 5);
  EXPECT_EQ(Resolve(Plan8("affine:8:g128:f32"), {}, c).h_qk, 7) << "K's groups are the shorter";
  c.k = AffineFormat{4, 128, DType::kFloat32};
  EXPECT_EQ(Resolve(Plan8("affine:8:g64:f32"), {}, c).h_qk, 3) << "the query's groups are";
  EXPECT_EQ(Resolve(Plan8("affine:8:g128:f32"), {}, c).h_qk, 1);
  Plan low = Plan8("affine:8:g128:f32");
  low.qk->accumulator.dtype = DType::kBFloat16;
  EXPECT_EQ(Resolve(low, {}, c).h_qk, 2) << "a group's f32 result is rounded where it enters";
}

TEST(IntegerProducts, AreNotBoundedWhereTheirScalesOverflow) {
  AttentionCase c = Case8(32);
  TensorMap inputs = GenerateInputs(Case(c), {});
  const auto standing = [&] {
    return AttentionSource(c, {}, Plan8(), inputs).Tiles(0, {})[0].standing[0];
  };
  EXPECT_EQ(standing(), Standing::kJudged);
  // Codes, scales and biases of the first key, so that its value is 0 whatever its scale.
  std::fill_n(inputs.at("k_codes").As<uint32_t>(), 8, 0u);
  inputs.at("k_biases").As<float>()[0] = 0;
  inputs.at("k_scales").As<float>()[0] = 0x1.8p127f;
  EXPECT_EQ(standing(), Standing::kUnbounded) << "2 q s overflows before the codes make it nothing";
}

}  // namespace
}  // namespace kvcheck
