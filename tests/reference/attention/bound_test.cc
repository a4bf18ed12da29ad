// The derived bound against kernels of known arithmetic: a clean one never exceeds it and reaches
// it, one that hides a rounding is found, and cases small enough for a pencil have the values and
// bounds that the pencil gives.

#include "reference/attention/bound.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "tests/reference/attention/drawn_run.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

constexpr DrawLimits kLimits = {.kv_len = 128, .head_dim = 64, .query_len = 8};

TEST(AttentionBound, HoldsForCleanKernelsOfEveryDrawnPlanAndIsReached) {
  JudgedRun all;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const DrawnAttention drawn = DrawAttention(seed, kLimits);
    all.Add(RunDrawn(drawn, seed));
  }
  EXPECT_GT(all.judged, 800'000);
  EXPECT_LT(all.excused, all.judged / 4);
  // No constant factor is left to take out.
  EXPECT_GT(all.largest_ratio, 0.99);
  EXPECT_LE(all.largest_ratio, 1.0);
}

// A plain f32 kernel with the fewest roundings: what it hides stands out.
Plan TightPlan() {
  return ParsePlan(
      "qk=f32:lanes:8:fma pv=f32:lanes:8:fma l=f32:lanes:8 op=f32 scale_roundings=1 prescale=none "
      "scores=f32 bias_roundings=1 tanh_error=2^-22 exp=exp exp_error=2^-23 exp_floor=2^-126 "
      "lazy_rescale=0 block=all sink=first p=f32 p_scale=1 p_normalised=no l_from=unrounded "
      "merge=none splits=1 normalise=divide flush=no saturate=no log_error=2^-22");
}

AttentionCase PlainCase(uint64_t seed) {
  AttentionCase c;
  c.batch = 1, c.query_heads = 2, c.kv_heads = 1, c.query_len = 3, c.kv_len = 129;
  c.k_dim = c.v_dim = 33;
  c.data = {.regime = "gauss", .seed = seed, .file_hash = ""};
  return c;
}

struct Hidden {
  std::string name;
  std::function<void(Plan*)> change;
  std::function<void(AttentionCase*)> set;
};

std::vector<Hidden> HiddenRoundings() {
  const auto same = [](AttentionCase*) {};
  const auto regime = [](const std::string& name) {
    return [name](AttentionCase* c) { c->data.regime = name; };
  };
  return {
      {"p=bf16", [](Plan* p) { p->p = DType::kBFloat16; }, same},
      {"p=f16", [](Plan* p) { p->p = DType::kFloat16; }, same},
      {"scores=bf16", [](Plan* p) { p->scores = DType::kBFloat16; }, same},
      {"scores=f16", [](Plan* p) { p->scores = DType::kFloat16; }, same},
      {"denominator in bf16", [](Plan* p) { p->l->accumulator.dtype = DType::kBFloat16; }, same},
      {"P.V in f16", [](Plan* p) { p->pv->accumulator.dtype = DType::kFloat16; }, same},
      {"q.k in bf16", [](Plan* p) { p->qk->accumulator.dtype = DType::kBFloat16; }, same},
      {"pre-scaled in bf16",
       [](Plan* p) { p->prescale_dtype = DType::kBFloat16, p->prescale_roundings = 2; }, same},
      {"exp error 2^-14", [](Plan* p) { p->exp_error = 0x1p-14; }, same},
      {"operations truncate in bf16", [](Plan* p) { p->op = RoundedType{DType::kBFloat16, true}; },
       same},
      // Many equal weights and values: each addition of a sequential truncating sum errs alike.
      {"deeper sums",
       [](Plan* p) {
         for (auto* sum : {&*p->pv, &*p->l}) {
           sum->order = SumOrder::kSequential, sum->width = 0;
         }
         p->pv->accumulator.toward_zero = true;
       },
       [](AttentionCase* c) { c->data.regime = "same_sign", c->kv_len = 1025; }},
      {"approximate division", [](Plan* p) { p->normalise = NormaliseKind::kApproximate; },
       [](AttentionCase* c) { c->kv_len = 1; }},
      {"subnormals flushed", [](Plan* p) { p->flush_subnormals = true; }, regime("subnormal")},
      {"split with stored partials in bf16",
       [](Plan* p) { p->merge = MergeKind::kLse, p->splits = 4, p->partial = DType::kBFloat16; },
       same},
      {"division-free split of large scores",
       [](Plan* p) {
         p->merge = MergeKind::kLseDivisionFree, p->splits = 4, p->partial = DType::kFloat32;
       },
       [](AttentionCase* c) { c->data.regime = "constant", c->scale = 64; }},
  };
}

TEST(AttentionBound, FindsEveryHiddenRounding) {
  for (const Hidden& hidden : HiddenRoundings()) {
    int found = 0;
    constexpr int kSeeds = 4;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      AttentionCase c = PlainCase(seed);
      hidden.set(&c);
      Plan actual = TightPlan();
      ASSERT_EQ(RunAndJudge(c, {}, actual, actual).violations, 0) << hidden.name;
      hidden.change(&actual);
      if (RunAndJudge(c, {}, TightPlan(), actual).violations > 0) ++found;
      // Declared, the same kernel is right.
      const JudgedRun honest = RunAndJudge(c, {}, actual, actual);
      EXPECT_EQ(honest.violations, 0) << hidden.name << " " << honest.first;
    }
    EXPECT_GE(found, kSeeds / 2) << hidden.name;
  }
}

// A case of attached f32 tensors.
struct AttachedCase {
  AttentionCase c;
  TensorMap inputs;

  AttachedCase(int64_t kv_len, int64_t k_dim, int64_t v_dim, std::vector<double> q,
               std::vector<double> k, std::vector<double> v) {
    c.kv_len = kv_len, c.k_dim = k_dim, c.v_dim = v_dim;
    c.scale = 1;
    c.data.regime = "file";
    for (const auto& [name, spec] : InputSpecs(Case(c))) {
      Tensor tensor(spec.dtype, spec.shape);
      EncodeFrom(name == "q" ? q : name == "k" ? k : v, spec.dtype, tensor.bytes.data());
      inputs[name] = tensor;
    }
  }
  ExpectedTile Out(const Plan& plan) const {
    return AttentionSource(c, {}, plan, inputs).Tiles(0, {.terms = true})[0];
  }
};

// Two keys share the weight, in the first and the last of many blocks of one key. Each block
// between them moves the first by the rounding of the shift, which stays the same.
TEST(AttentionBound, CountsARoundedShiftOncePerBlockWhereItDrifts) {
  constexpr size_t kKeys = 513;
  int found = 0;
  for (const double score : {300.3, 411.7, 299.9, 123.4, 77.7, 501.2}) {
    std::vector<double> k(kKeys, -score), v(kKeys, 0);
    k.front() = k.back() = score;
    v.front() = 1, v.back() = -1;
    const AttachedCase tiny(kKeys, 1, 1, {1}, k, v);
    Plan once = TightPlan();
    once.exp = ExpForm::kExp2Fma, once.scale_roundings = 3, once.block = 1;
    Plan drifting = once;
    drifting.exp = ExpForm::kExp2FmaDrift;
    SimulatedKernel kernel(drifting, {});
    const TensorMap answer = Answer(&kernel, tiny.c, tiny.inputs);
    const auto judged = [&](const Plan& plan) {
      return JudgeRun(AttentionSource(tiny.c, {}, plan, tiny.inputs), answer);
    };
    found += judged(once).violations > 0 ? 1 : 0;
    const JudgedRun honest = judged(drifting);
    EXPECT_EQ(honest.violations, 0) << score << " " << honest.first;
    EXPECT_EQ(honest.judged, 1);
  }
  EXPECT_GE(found, 3);
}

TEST(AttentionBound, OfOneKeyIsTheNormalisationAlone) {
  const AttachedCase tiny(1, 2, 3, {1, -2}, {3, 0.5}, {0.75, -8, 0});
  const ExpectedTile out = tiny.Out(TightPlan());
  ASSERT_EQ(out.value, (std::vector<double>{0.75, -8, 0}));
  for (size_t c = 0; c < 3; ++c) {
    const double v = std::fabs(out.value[c]);
    // p = 1 and v - o = 0. The fused product 1 v is counted as one rounding (u / (1 - u)), the
    // division as another; underflow and the formula's own 2^-40 stay below 2^-30 of that.
    const double u = 0x1p-24;
    const double g = u / (1 - u);
    const double exact = g * v / (1 - out.terms[0][c]) + g * (v + g * v);
    EXPECT_LE(out.bound[c], exact * (1 + 0x1p-20) + 0x1p-120 * (1 + v));
    EXPECT_GE(out.bound[c], exact);
    EXPECT_EQ(out.terms[kScoreTerm][c], 0) << "one key cannot be weighed wrongly";
  }
}

TEST(AttentionBound, OfTwoEqualScoresHasTheMeanAsValue) {
  const AttachedCase tiny(2, 1, 2, {2}, {1, 1}, {1, 3, 5, -3});
  const ExpectedTile out = tiny.Out(TightPlan());
  ASSERT_EQ(out.value, (std::vector<double>{3, 0}));
  // A shift of weight delta between the keys moves o by delta (v1 - v2) / 2: the score term is
  // centred, so that it is the same multiple of the spread |v - o| in both channels.
  // Per channel four roundings: two products, their sum, the quotient; and here that of / 3.
  EXPECT_NEAR(out.terms[kScoreTerm][0] / 2, out.terms[kScoreTerm][1] / 3,
              out.terms[kScoreTerm][0] / 2 * 9 * 0x1p-53);
}

TEST(AttentionBound, OfOneHotScoresForgetsTheOtherKeys) {
  // The second key weighs e^-200: less than half an ulp of anything, so its V must not show.
  const AttachedCase tiny(2, 1, 1, {1}, {100, -100}, {1.5, 1e6});
  const ExpectedTile out = tiny.Out(TightPlan());
  EXPECT_EQ(out.value[0], 1.5);
  const AttachedCase alone(1, 1, 1, {1}, {100}, {1.5});
  const ExpectedTile single = alone.Out(TightPlan());
  // With fused products two terms pass at most two roundings where one passes one, and the
  // denominator one: no more than four times the bound of the key alone.
  EXPECT_LE(out.bound[0], 4 * single.bound[0]);
}

TEST(AttentionBound, CountsTheRangeOfTheAccumulators) {
  Plan plan = TightPlan();
  plan.pv->accumulator.dtype = DType::kFloat16;
  // Two keys of 40000 add up to 80000 before they are divided by two.
  const AttachedCase sums(2, 1, 1, {1}, {1, 1}, {40000, 40000});
  EXPECT_EQ(sums.Out(plan).standing[0], Standing::kUnbounded);
  EXPECT_EQ(sums.Out(TightPlan()).standing[0], Standing::kJudged);
  Plan scores = TightPlan();
  scores.scores = DType::kFloat16;
  const AttachedCase large(2, 1, 1, {300}, {300, 1}, {1, 2});
  EXPECT_EQ(large.Out(scores).standing[0], Standing::kUnbounded);
  EXPECT_EQ(large.Out(TightPlan()).standing[0], Standing::kJudged);
}

TEST(AttentionBound, DoesNotLoseAKeyWhoseWeightVanishes) {
  // A gap of 2^33 nats under operations of 24 bits: exp of the error bound overflows where the
  // weight itself is zero, and the product must be neither NaN nor nothing.
  const AttachedCase tiny(2, 1, 1, {1}, {0, -0x1p33}, {1, 2});
  const ExpectedTile out = tiny.Out(TightPlan());
  ASSERT_EQ(out.standing[0], Standing::kJudged);
  EXPECT_LT(out.bound[0], 0x1p-20);
}

// Where masked keys raise the maximum, the weight of a split that holds nothing but the sink may
// be nothing, and then its denominator has no reciprocal.
TEST(Bound, IsNoneWhereTheDenominatorOfASplitMayVanish) {
  const auto c = std::get<AttentionCase>(
      ParseCase("attention b=1 hq=2 hkv=2 l=1 t=38 d=64 dv=54 q=f32 k=affine:8:g64:f32 v=f32 "
                "out=bf16 mask=causal_top_left+window:10+bool:T scale=0.08838834764831843 "
                "sinks=f32 against=original data=tiny_p:49162"));
  const Plan plan = ParsePlan(
      "qk=f32:pairwise pv=f32:tensor_core:4:23 l=f32:sequential:chained op=f32 scale_roundings=2 "
      "prescale=none scores=f32 bias_roundings=1 tanh_error=2^-22 exp=exp exp_error=2^-23 "
      "exp_floor=2^-126 lazy_rescale=0 block=64 sink=first p=f32 p_scale=1 p_normalised=no "
      "l_from=unrounded merge=lse splits=3 log_error=2^-22 partial=f32 normalise=reciprocal "
      "flush=no saturate=no dequantize=rounded:f16");
  const Profile profile = ParseProfile("maximum=all");
  EXPECT_EQ(RunAndJudge(c, profile, plan, plan).violations, 0);
  Plan divides = plan;
  divides.normalise = NormaliseKind::kDivide;
  const JudgedRun run = RunAndJudge(c, profile, divides, divides);
  EXPECT_EQ(run.violations, 0);
  EXPECT_EQ(run.judged, 54) << "the other head";
}

}  // namespace
}  // namespace kvcheck
