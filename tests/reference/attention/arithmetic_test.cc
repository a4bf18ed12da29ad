// The depths and counts that a plan resolves to, against the table of bound.md, section 3; what is
// left unsaid; plans that contradict themselves.

#include "reference/attention/arithmetic.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "fuzz/draw_attention.h"
#include "reference/spec/error.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

SumPlan Sum(std::string_view text) { return *ParsePlan("pv=" + std::string(text)).pv; }

std::vector<int32_t> Range(int32_t first, int32_t last) {
  std::vector<int32_t> keys(static_cast<size_t>(last - first));
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

double Depth(std::string_view text, const std::vector<int32_t>& keys, int64_t kv_len, int64_t block,
             bool exact = true) {
  const SumPlan sum = Sum(text);
  const KeyPlaces places = PlaceKeys(keys, kv_len, block, kv_len, sum.width);
  return SumDepth(sum, static_cast<double>(keys.size()), places, exact);
}

TEST(SumDepth, OfOneRunIsThatOfTheTable) {
  for (double d : {1.0, 2.0, 127.0, 128.0, 129.0}) {
    EXPECT_EQ(SumDepth(Sum("f32:sequential"), d, true), d - 1);
    EXPECT_EQ(SumDepth(Sum("f32:sequential"), d, false), d);
    EXPECT_EQ(SumDepth(Sum("f32:sequential:fma"), d, false), d) << "the first product meets zero";
    EXPECT_EQ(SumDepth(Sum("f32:sequential:fma"), d, true), d - 1);
    EXPECT_EQ(SumDepth(Sum("f32:tensor_core:16:23"), d, false), d + 2 * std::ceil(d / 16));
    EXPECT_EQ(SumDepth(Sum("f32:depth:5"), d, false), 5);
  }
  EXPECT_EQ(SumDepth(Sum("f32:lanes:8"), 128, true), 16 - 1 + 3);
  EXPECT_EQ(SumDepth(Sum("f32:lanes:8"), 129, true), 17 - 1 + 3);
  EXPECT_EQ(SumDepth(Sum("f32:lanes:8"), 3, true), 2) << "three lanes hold one term each";
  EXPECT_EQ(SumDepth(Sum("f32:pairwise"), 128, true), 7);
  EXPECT_EQ(SumDepth(Sum("f32:pairwise"), 129, true), 8);
}

TEST(SumDepth, OverBlocksAddsTheJoinsOrChains) {
  const auto keys = Range(0, 256);
  EXPECT_EQ(Depth("f32:sequential", keys, 256, 64), 63 + 3);
  EXPECT_EQ(Depth("f32:sequential:chained", keys, 256, 64), 255);
  EXPECT_EQ(Depth("f32:lanes:8", keys, 256, 64), 8 - 1 + 3 + 3);
  EXPECT_EQ(Depth("f32:lanes:8:chained", keys, 256, 64), 32 - 1 + 3);
  EXPECT_EQ(Depth("f32:pairwise", keys, 256, 64), 6 + 3);
  EXPECT_EQ(Depth("f32:tensor_core:16:23", keys, 256, 64), 64 + 2 * 4 + 3);
  EXPECT_EQ(Depth("f32:tensor_core:16:23:chained", keys, 256, 64), 256 + 2 * 16);
  EXPECT_EQ(Depth("f32:sequential", keys, 256, 0), 255);
}

TEST(SumDepth, CountsThePlacesOfMaskedKeys) {
  // Every eighth column of 64: all on one lane, one in each half call.
  std::vector<int32_t> keys;
  for (int32_t j = 0; j < 64; j += 8) keys.push_back(j);
  EXPECT_EQ(Depth("f32:lanes:8", keys, 64, 0), 8 - 1 + 3);
  EXPECT_EQ(Depth("f32:tensor_core:8:23", keys, 64, 0), 8 + 2 * 8);
  EXPECT_EQ(Depth("f32:pairwise", keys, 64, 0), 6);
  EXPECT_EQ(Depth("f32:sequential", keys, 64, 0), 7);
  // Sixteen columns across a border of calls of sixteen are two calls.
  EXPECT_EQ(Depth("f32:tensor_core:16:23", Range(8, 24), 64, 0), 16 + 2 * 2);
  EXPECT_EQ(Depth("f32:tensor_core:16:23", Range(0, 16), 64, 0), 16 + 2);
  // Two keys in one block of a tree over 64 meet in one addition.
  EXPECT_EQ(Depth("f32:pairwise", {0, 63}, 64, 0), 1);
}

TEST(Depths, CountRescalesAndSplits) {
  AttentionCase c;
  c.kv_len = 1024;
  Plan plan = ParsePlan("block=64 merge=none p=f32 sink=last");
  Arithmetic a = Resolve(plan, {}, c);
  EXPECT_EQ(a.Depths(Range(0, 1024), 1024).rescales, 15);
  EXPECT_EQ(a.Depths(Range(0, 65), 1024).rescales, 1);
  EXPECT_EQ(a.Depths(Range(0, 1), 1024).rescales, 0);
  EXPECT_EQ(a.Depths(Range(32, 96), 1024).rescales, 2) << "blocks may start at the first key";
  plan.merge = MergeKind::kAccumulators;
  plan.p_normalised = false;
  plan.splits = 4;
  a = Resolve(plan, {}, c);
  const KeyDepths depths = a.Depths(Range(0, 1024), 1024);
  EXPECT_EQ(depths.splits, 4);
  EXPECT_LE(depths.rescales, 4 + 1) << "four blocks of a split, which may be cut, and the merge";
  EXPECT_EQ(a.Depths(Range(0, 2), 1024).splits, 2);
  c.sinks = DType::kFloat32;
  plan.merge = MergeKind::kNone, plan.splits = {};
  a = Resolve(plan, {}, c);
  EXPECT_EQ(a.Depths(Range(0, 1024), 1024).rescales, 16) << "the late sink rescales once more";
}

TEST(Resolve, CountsTruncationTwice) {
  AttentionCase c;
  c.out = DType::kBFloat16;
  const Arithmetic nearest =
      Resolve(ParsePlan("op=f32 scores=bf16 p=f16 pv=f32:sequential"), {}, c);
  const Arithmetic cut =
      Resolve(ParsePlan("op=f32.rz scores=bf16 p=f16 pv=f32.rz:sequential"), {}, c);
  EXPECT_EQ(nearest.u_a, 0x1p-24);
  EXPECT_EQ(cut.u_a, 0x1p-23);
  EXPECT_EQ(cut.u_pv, 2 * nearest.u_pv);
  EXPECT_EQ(cut.u_s, 2 * nearest.u_s);
  EXPECT_EQ(cut.u_p, 2 * nearest.u_p);
  EXPECT_EQ(cut.u_o, 2 * nearest.u_o);
}

TEST(Resolve, TakesTheCoarserOfAlignmentAndAccumulatorForATensorCore) {
  const AttentionCase c;
  EXPECT_EQ(Resolve(ParsePlan("qk=f32:tensor_core:16:13"), {}, c).u_qk, 0x1p-13);
  EXPECT_EQ(Resolve(ParsePlan("qk=f32:tensor_core:16:23"), {}, c).u_qk, 0x1p-23);
  EXPECT_EQ(Resolve(ParsePlan("qk=f32:tensor_core:16:30"), {}, c).u_qk, 0x1p-23)
      << "what is aligned more finely is still cut to f32";
}

TEST(Resolve, CountsTheRoundingsOfEveryNormalisation) {
  AttentionCase c;
  c.kv_len = 8, c.k_dim = c.v_dim = 8;
  const auto roundings = [&](const char* text) { return Resolve(ParsePlan(text), {}, c).c_d; };
  EXPECT_EQ(roundings("normalise=divide"), 1);
  EXPECT_EQ(roundings("normalise=reciprocal"), 2);
  EXPECT_EQ(roundings("normalise=approximate"), 5);
  EXPECT_EQ(roundings(""), 5) << "what is unsaid takes the loosest";
}

TEST(Resolve, StoresUnsaidPartialOutputsInTheLowestTypeOfTheCase) {
  AttentionCase c;
  c.kv_len = 8, c.k_dim = c.v_dim = 8;
  c.q = DType::kBFloat16;
  EXPECT_EQ(Resolve(ParsePlan("merge=lse"), {}, c).plan.partial, DType::kBFloat16);
  EXPECT_EQ(Resolve(ParsePlan("merge=lse partial=f32"), {}, c).plan.partial, DType::kFloat32);
}

TEST(Resolve, ListsWhatIsUnsaidAndNothingElse) {
  AttentionCase c;
  const Arithmetic stranger = Resolve({}, {}, c);
  EXPECT_GE(stranger.assumed.size(), 15u);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const DrawnAttention drawn = DrawAttention(seed, {.kv_len = 8, .head_dim = 32, .query_len = 2});
    const Arithmetic a = Resolve(drawn.plan, drawn.profile, drawn.c);
    EXPECT_TRUE(a.assumed.empty()) << a.assumed[0];
  }
}

TEST(Resolve, RefusesContradictions) {
  AttentionCase c;
  c.k_dim = 64, c.kv_len = 5;
  AttentionCase coded = c;
  coded.k = AffineFormat{8, 32, DType::kFloat32};
  struct Pair {
    std::string_view refused, allowed;
    AttentionCase c;
  };
  const Pair pairs[] = {
      {"p_normalised=yes merge=accumulators", "p_normalised=no merge=accumulators", c},
      {"p_normalised=yes l_from=rounded p=bf16", "p_normalised=no l_from=rounded p=bf16", c},
      {"merge=none splits=4", "merge=none splits=1", c},
      {"base=plain_f32 splits=4", "base=plain_f32 splits=4 merge=accumulators", c},
      {"merge=lse splits=1", "merge=lse splits=2", c},
      {"merge=accumulators splits=1 p_normalised=no", "merge=accumulators p_normalised=no", c},
      {"qk=f32:depth:0", "qk=f32:depth:1", c},
      {"pv=f32:depth:0", "pv=f32:depth:1", c},
      {"l=f32:depth:0", "l=f32:depth:1", c},
      {"p=f32 op=f32 p_scale=2^120", "p=f16 op=f32 p_scale=2^3", c},
      {"p_scale=2^3", "p=bf16 p_scale=2^3", c},
      {"p=f32 op=f32 p_scale=3", "p=f32 op=f32 p_scale=1", c},
      {"integer_qk=affine:8:g32:f32 qk=f32:depth:0", "integer_qk=affine:8:g32:f32 qk=f32:depth:1",
       coded},
      {"integer_qk=bf16", "integer_qk=affine:8:g32:f32", coded},
      {"integer_qk=affine:8:g128:f32", "integer_qk=affine:8:g64:f32", coded},
      {"integer_qk=affine:8:g32:f32 prescale=bf16:2", "integer_qk=affine:8:g32:f32 prescale=none",
       coded},
      {"integer_qk=affine:8:g32:f32 op=bf16", "integer_qk=affine:8:g32:f32 op=f32", coded},
  };
  const auto refuse = [](std::string_view text, const Profile& profile,
                         const AttentionCase& asked) {
    try {
      Resolve(ParsePlan(text), profile, asked);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIllegalCase) << text;
      EXPECT_FALSE(error.message().empty());
    }
  };
  for (const Pair& pair : pairs) {
    refuse(pair.refused, {}, pair.c);
    EXPECT_NO_THROW(Resolve(ParsePlan(pair.allowed), {}, pair.c)) << pair.allowed;
  }
  refuse("integer_qk=affine:8:g32:f32", {}, c);
  Profile rounded;
  rounded.decode = DecodeRounding::kTwoRoundings;
  refuse("integer_qk=affine:8:g32:f32", rounded, coded);
  // One term is no sum.
  c.kv_len = 1;
  EXPECT_NO_THROW(Resolve(ParsePlan("pv=f32:depth:0 l=f32:depth:0"), {}, c));
}

// The plan that says nothing must allow whatever a plan that it covers allows, element by element.
// It does not cover every plan: it stands for accumulators of the widest type, P no lower than the
// lowest tensor, nothing else kept low, and a good exponential.
bool Covered(const DrawnAttention& drawn) {
  const Plan& p = drawn.plan;
  const AttentionCase& c = drawn.c;
  const DType wide = c.q == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const auto tame = [&](const SumPlan& sum) {
    return sum.accumulator.dtype == wide && !sum.accumulator.toward_zero &&
           sum.order != SumOrder::kPairwise;
  };
  const bool assumed_exp =
      *p.exp != ExpForm::kExp2FmaDrift || UnitRoundoff(c.q) > UnitRoundoff(wide);
  return assumed_exp && tame(*p.qk) && tame(*p.pv) && tame(*p.l) && !p.op->toward_zero &&
         *p.scores == wide && *p.prescale_roundings == 0 && *p.scale_roundings <= 3 &&
         *p.lazy_rescale == 0 && (*p.partial == wide || *p.partial == c.q) && *p.p_scale == 1 &&
         *p.p != DType::kFloat8E4M3FN && (*p.p == wide || *p.p == c.q) &&
         (*p.block == 0 || *p.block >= 16) && IsPlain(c.k) && IsPlain(c.v) &&
         !drawn.profile.maximum_over_all && !p.qk_operands && !p.pv_operands && !p.merge_weights &&
         !p.through;
}

TEST(Resolve, GivesAStrangerTheLoosestBound) {
  int64_t compared = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 40, .head_dim = 24, .query_len = 3});
    if (!Covered(drawn)) continue;
    const TensorMap inputs = GenerateInputs(Case(drawn.c), drawn.profile);
    const AttentionSource said(drawn.c, drawn.profile, drawn.plan, inputs);
    const AttentionSource unsaid(drawn.c, drawn.profile, {}, inputs);
    for (int64_t index = 0; index < said.TileCount(); ++index) {
      const auto tight = said.Tiles(index, {});
      const auto loose = unsaid.Tiles(index, {});
      for (size_t output = 0; output < tight.size(); ++output) {
        const size_t length = static_cast<size_t>(
            said.Outputs()[static_cast<size_t>(tight[output].output)].row_length);
        for (size_t at = 0; at < tight[output].bound.size(); ++at) {
          if (tight[output].standing[at / length] != Standing::kJudged ||
              loose[output].standing[at / length] != Standing::kJudged) {
            continue;
          }
          ++compared;
          ASSERT_GE(loose[output].bound[at], tight[output].bound[at])
              << "seed " << seed << " output " << output << ": " << Print(Case(drawn.c)) << "\n"
              << Print(drawn.plan);
        }
      }
    }
  }
  EXPECT_GT(compared, 20'000);
}

}  // namespace
}  // namespace kvcheck
