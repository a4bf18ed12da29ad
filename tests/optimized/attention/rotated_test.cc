// Attention over rows that are stored rotated: q goes into their basis and the sums of V come back.
// The judge passes it under the plan that it states; it agrees with rows that are rotated back one
// by one; rows that kernels read as they are stored are those that the codec decodes, to the bit.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/attention/attention_implementation.h"
#include "optimized/attention/attention_plan.h"
#include "optimized/formats/row_codec.h"
#include "reference/attention/attention_source.h"
#include "reference/formats/generate_inputs.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

using optimized::AttentionShape;
using optimized::StoredHeads;

// Every width of codes, codebook and kind of signs, halves, and rotations around other formats.
const std::vector<std::string> kRotated = {
    "turboquant:1:g32:plain:f16",
    "turboquant:2:g64:s1:f32",
    "turboquant:3:g64:mlx_vlm:s1:bf16",
    "turboquant:4:g64:f32",
    "turboquant:4:g64:vllm:plain:f16",
    "turboquant:5:g64:f32",
    "turboquant:1.5:g64:h00ff00ff00ff00ff:s2:bf16",
    "turboquant:2.5:g64:hffff0000ffff0000:f32",
    "turboquant:3.5:g64:mlx_vlm:ha53cc35affff0000:f16",
    "turboquant:4.5:g64:h5555555555555555:f32",
    "hadamard:64:q4_0",
    "hadamard:32:q5_1",
    "hadamard:2:q8_0",
    "hadamard:16:affine:4:g32:bf16",
    "hadamard:64:affine:8:g64:f16",
    "hadamard:32:affine:3:g64:f16",
    "hadamard:8:mxfp8:e4m3:f32",
    "hadamard:64:fp8:e4m3fn:token:f32",
    "hadamard:32:uniform:4:token:f32",
};
const std::vector<std::string> kOthers = {"f32", "bf16", "affine:4:g64:f16", "q8_0"};
const std::vector<std::string> kMasks = {
    "none",    "causal_bottom_right", "causal_bottom_right+window:7",  "left_pad:0,9",
    "bool:LT", "additive:B11T:f32",   "left_pad:5,0+additive:B1LT:f64"};
const std::vector<std::string> kExtras = {"", "sinks=f32 lse=natural ", "softcap=5 ",
                                          "alibi=yes lse=base2 ", "against=original "};

// The answer of OptimizedAttention against the plan that it states.
struct Answered {
  Plan plan;
  JudgedRun run;
};
Answered AskAndJudge(const AttentionCase& c, bool portable, MaskedRow masked_row) {
  Profile profile;
  profile.masked_row = masked_row;
  const TensorMap inputs = GenerateInputs(Case(c), profile);
  OptimizedAttention attention(profile, portable);
  const TensorMap answer = Answer(&attention, c, inputs);
  const Plan plan = *attention.AnswerPlan();
  return {plan, JudgeRun(AttentionSource(c, profile, plan, inputs), answer)};
}

AttentionCase AttentionNamed(const std::string& text) {
  return std::get<AttentionCase>(ParseCase(text));
}

TEST(RotatedAttention, PassesTheJudgeUnderItsOwnPlan) {
  size_t index = 0;
  JudgedRun all;
  const auto ask = [&](const std::string& k, const std::string& v, int queries, int tokens) {
    const std::string text = fmt::format(
        "attention b=2 hq={} hkv=2 l={} t={} d=64 dv=128 q=f32 k={} v={} out=f32 mask={} {}"
        "data=gauss:{}",
        2 * (1 + index % 5), queries, tokens, k, v, kMasks[index % kMasks.size()],
        kExtras[index / 2 % kExtras.size()], index);
    const MaskedRow masked = index % 3 == 0   ? MaskedRow::kZero
                             : index % 3 == 1 ? MaskedRow::kNan
                                              : MaskedRow::kMean;
    for (const bool portable : {false, true}) {
      const Answered answered = AskAndJudge(AttentionNamed(text), portable, masked);
      EXPECT_EQ(answered.run.violations, 0)
          << text << " portable=" << portable << " " << answered.run.first;
      EXPECT_EQ(answered.plan.dequantize, DequantizeKind::kRotated) << text;
      all.Add(answered.run);
    }
    ++index;
  };
  for (size_t i = 0; i < kRotated.size(); ++i) {
    for (const int queries : {1, 3, 33}) {
      for (const int tokens : {33, 64, 129}) {
        const std::string& other = kOthers[index % kOthers.size()];
        ask(kRotated[i], other, queries, tokens);
        ask(other, kRotated[i], queries, tokens);
        ask(kRotated[i], kRotated[(i + index) % kRotated.size()], queries, tokens);
      }
    }
  }
  EXPECT_GT(all.judged, 10 * all.excused);
  EXPECT_GT(all.largest_ratio, 0.01) << "a bound that nothing comes near";
}

TEST(RotatedAttention, PassesTheJudgeOverSeveralSplitsAndBlocksOfTwoSizes) {
  for (const char* k : {"turboquant:4:g128:f32", "hadamard:64:q4_0"}) {
    for (const int tokens : {2049, 4100}) {
      const std::string text = fmt::format(
          "attention hq=4 hkv=1 l=1 t={} d=256 q=bf16 k={} v=turboquant:4:g256:s1:f32 out=f32 "
          "sinks=f32 lse=natural data=sink:{}",
          tokens, k, tokens);
      const Answered answered = AskAndJudge(AttentionNamed(text), false, MaskedRow::kZero);
      EXPECT_EQ(answered.run.violations, 0) << text << " " << answered.run.first;
      EXPECT_EQ(answered.run.excused, 0) << text;
      EXPECT_EQ(answered.plan.splits.value() > 1, tokens > 3968);
    }
  }
}

// One sequence of a case without a mask, asked of the kernels themselves.
struct Problem {
  explicit Problem(const std::string& text)
      : c(std::get<AttentionCase>(ParseCase(text))), inputs(GenerateInputs(Case(c), {})) {
    shape.query_heads = c.query_heads, shape.kv_heads = c.kv_heads;
    shape.k_dim = c.k_dim, shape.v_dim = c.v_dim;
    shape.k = c.k, shape.v = c.v;
    shape.scale = c.scale;
    sees_all.end = c.kv_len;
    visible.assign(static_cast<size_t>(c.query_len), sees_all);
    q.assign(inputs.at("q").As<float>(),
             inputs.at("q").As<float>() + inputs.at("q").ElementCount());
    out.resize(static_cast<size_t>(c.query_heads * c.query_len * c.v_dim));
  }

  StoredHeads Heads(bool is_key) const {
    const KvFormat& format = is_key ? c.k : c.v;
    const int64_t dim = is_key ? c.k_dim : c.v_dim;
    const optimized::RowBytes bytes = optimized::RowBytesOf(format, dim);
    const Planes planes = PlanesOf(format, dim);
    const auto plane = [&](size_t i) {
      return inputs.at(PlaneTensor(format, is_key ? "k" : "v", planes[i])).bytes.data();
    };
    StoredHeads heads;
    heads.codes = plane(0);
    heads.code_stride = bytes.codes;
    heads.code_head_stride = bytes.codes * c.kv_len;
    if (bytes.scales == 0) return heads;
    heads.scales = plane(1);
    heads.scale_stride = bytes.scales;
    heads.scale_head_stride = bytes.scales * c.kv_len;
    if (bytes.biases != 0) heads.biases = plane(2);
    return heads;
  }

  const std::vector<float>& Run(const StoredHeads& k, const StoredHeads& v) {
    const optimized::ColumnRun run = {0, 0, c.kv_len};
    optimized::SequenceQueries sequence;
    sequence.k = k, sequence.v = v;
    sequence.columns = {&run, 1};
    sequence.queries = c.query_len;
    sequence.q = q.data();
    sequence.q_stride = c.k_dim;
    sequence.q_head_stride = c.query_len * c.k_dim;
    sequence.visible = visible.data();
    sequence.out = out.data();
    sequence.out_stride = c.v_dim;
    sequence.out_head_stride = c.query_len * c.v_dim;
    optimized::Attention attention;
    attention.Run(shape, {&sequence, 1});
    return out;
  }
  const std::vector<float>& Run() { return Run(Heads(true), Heads(false)); }

  AttentionCase c;
  TensorMap inputs;
  AttentionShape shape;
  optimized::VisibleKeys sees_all;
  std::vector<optimized::VisibleKeys> visible;
  std::vector<float> q, out;
};

std::string ProblemText(const std::string& k, const std::string& v, int queries, int seed) {
  return fmt::format(
      "attention hq=6 hkv=2 l={} t=131 d=64 dv=64 q=f32 k={} v={} out=f32 data=outlier:{}", queries,
      k, v, seed);
}

TEST(RotatedAttention, AgreesWithRowsThatAreRotatedBackOneByOne) {
  int seed = 0;
  for (const std::string& format : kRotated) {
    for (const int queries : {1, 20}) {
      Problem problem(ProblemText(format, kRotated[static_cast<size_t>(seed) % kRotated.size()],
                                  queries, seed));
      ++seed;
      const std::vector<float> in_basis = problem.Run();
      const AttentionSource of_basis(
          problem.c, {}, optimized::PlanOf(problem.shape, {.kv_len = 131}), problem.inputs);
      problem.shape.in_basis = false;
      const std::vector<float> back = problem.Run();
      const Plan plan = optimized::PlanOf(problem.shape, {.kv_len = 131});
      EXPECT_NE(plan.dequantize, DequantizeKind::kRotated);
      const AttentionSource of_back(problem.c, {}, plan, problem.inputs);
      EXPECT_NE(in_basis, back) << format << ": the same arithmetic twice";
      for (int64_t index = 0; index < of_basis.TileCount(); ++index) {
        const ExpectedTile a = of_basis.Tiles(index, {}).at(0);
        const ExpectedTile b = of_back.Tiles(index, {}).at(0);
        for (size_t i = 0; i < a.bound.size(); ++i) {
          const size_t at = static_cast<size_t>(a.first_row * problem.c.v_dim) + i;
          // Each is within its bound of one value.
          const double tolerance =
              a.bound[i] + b.bound[i] + a.reference_bound[i] + b.reference_bound[i];
          ASSERT_LE(std::fabs(static_cast<double>(in_basis[at]) - static_cast<double>(back[at])),
                    tolerance)
              << format;
        }
      }
    }
  }
}

// K and V decoded in their basis, as f32, with queries that are rotated before and outputs that are
// rotated back after.
TEST(RotatedAttention, IsAttentionOverDecodedRowsToTheBit) {
  for (const bool portable : {false, true}) {
    for (const int queries : {1, 4, 20, 64}) {
      for (const char* format : {"turboquant:4:g64:f32",
                                 "turboquant:4:g32:s3:f16",
                                 "turboquant:3:g64:f32",
                                 "turboquant:3:g32:s3:bf16",
                                 "turboquant:2:g64:plain:f32",
                                 "turboquant:2:g32:s3:f16",
                                 "turboquant:1:g32:f32",
                                 "turboquant:5:g64:f32",
                                 "turboquant:1.5:g64:h5555555555555555:f16",
                                 "turboquant:2.5:g64:ha53cc35affff0000:bf16",
                                 "turboquant:3.5:g64:hffff0000ffff0000:f32",
                                 "turboquant:4.5:g64:ha53cc35affff0000:f32",
                                 "hadamard:32:q4_0",
                                 "hadamard:64:q4_1",
                                 "hadamard:2:q5_0",
                                 "hadamard:64:q5_1",
                                 "hadamard:32:q8_0",
                                 "hadamard:16:iq4_nl",
                                 "hadamard:32:uniform:4:token:f32",
                                 "hadamard:64:uniform:3:inline:f32",
                                 "hadamard:64:fp8:e4m3fn:token:f32",
                                 "hadamard:32:fp8:e5m2:inline:bf16",
                                 "hadamard:64:int8:h0.05/0.25:f16",
                                 "hadamard:2:fp8:e4m3fnuz:token:f32",
                                 "hadamard:8:mxfp8:e4m3:f32",
                                 "hadamard:64:affine:4:g64:f16",
                                 "hadamard:2:affine:4:g32:bf16",
                                 "hadamard:32:affine:8:g32:f16",
                                 "hadamard:16:affine:2:g64:f16",
                                 "hadamard:64:affine:3:g32:bf16",
                                 "hadamard:8:affine:5:g64:bf16",
                                 "hadamard:64:affine:6:g64:f16"}) {
        Problem stored(ProblemText(format, format, queries, queries));
        stored.shape.portable = portable;
        const std::vector<float> got = stored.Run();

        Problem decoded(ProblemText("f32", "f32", queries, queries));
        decoded.shape.portable = portable;
        decoded.q = stored.q;
        for (size_t at = 0; at < decoded.q.size(); at += 64) {
          optimized::RotateToBasis(stored.c.k, 64, &decoded.q[at]);
        }
        std::vector<float> rows[2];
        StoredHeads heads[2];
        for (const bool is_key : {true, false}) {
          std::vector<float>& values = rows[is_key ? 0 : 1];
          values.resize(2 * 131 * 64);
          optimized::RowCodec codec;
          codec.Start(stored.c.k, DType::kFloat32, 64);
          const StoredHeads from = stored.Heads(is_key);
          optimized::StoredRowsView of_head = {from.codes, from.scales, from.biases,
                                               from.code_stride, from.scale_stride};
          for (const int64_t head : {0, 1}) {
            codec.SetHead(head);
            codec.DecodeInBasis(of_head, 131, values.data() + head * 131 * 64);
            of_head.codes += from.code_head_stride;
            if (from.scales != nullptr) of_head.scales += from.scale_head_stride;
            if (from.biases != nullptr) of_head.biases += from.scale_head_stride;
          }
          heads[is_key ? 0 : 1] = decoded.Heads(is_key);
          heads[is_key ? 0 : 1].codes = reinterpret_cast<const std::byte*>(values.data());
        }
        std::vector<float> want = decoded.Run(heads[0], heads[1]);
        for (size_t at = 0; at < want.size(); at += 64) {
          optimized::RotateFromBasis(stored.c.v, 64, &want[at]);
        }
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
              << format << " queries " << queries << " portable " << portable << " at " << i;
        }
      }
    }
  }
}

TEST(RotatedAttention, StatesRoundingsOfBothOperands) {
  AttentionShape shape;
  const auto roundings = [&](const std::string& k, const std::string& v) {
    shape.k = ParseKvFormat(WholeLine(k)), shape.v = ParseKvFormat(WholeLine(v));
    const Plan plan = optimized::PlanOf(shape, {});
    EXPECT_EQ(plan.dequantize, DequantizeKind::kRotated) << k << " " << v;
    return plan.dequantize_roundings.value();
  };
  shape.portable = true;
  EXPECT_EQ(roundings("turboquant:4:g64:f32", "f32"), 1);
  EXPECT_EQ(roundings("f32", "turboquant:2.5:g64:hffff0000ffff0000:f32"), 1);
  EXPECT_EQ(roundings("hadamard:64:q4_0", "f16"), 0);
  EXPECT_EQ(roundings("hadamard:64:q4_0", "q5_1"), 1);
  EXPECT_EQ(roundings("hadamard:64:affine:4:g64:f16", "f16"), 1);
  EXPECT_EQ(roundings("hadamard:64:q4_0", "affine:4:g64:f32"), 2);
}

}  // namespace
}  // namespace kvcheck
