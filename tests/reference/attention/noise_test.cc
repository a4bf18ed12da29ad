// The bound of independent roundings (bound.md, section 5): right kernels stay within it on data
// that make roundings common, it is never above the proven bound, and it shows faults that the
// proven bound cannot see.

#include "reference/attention/noise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "reference/data/generator.h"
#include "reference/judge/judge.h"
#include "reference/numerics/ulp.h"
#include "tests/reference/attention/judge_run.h"
#include "tools/faults/attention_faults.h"

namespace kvcheck {
namespace {

const TileRequest kNoise = {.noise = true};

AttentionCase OneHead(int64_t queries, int64_t keys, const std::string& type) {
  return std::get<AttentionCase>(
      ParseCase("attention hq=1 hkv=1 l=" + std::to_string(queries) + " t=" + std::to_string(keys) +
                " d=32 q=" + type + " k=" + type + " v=" + type + " out=" + type + " data=file"));
}

Plan Flash(const std::string& p, const std::string& l_from, const std::string& more = "") {
  return ParsePlan(
      "qk=f32:sequential:fma pv=f32:sequential:fma:chained l=f32:sequential op=f32 "
      "scale_roundings=1 prescale=none scores=f32 exp=exp exp_error=2^-23 exp_floor=2^-126 "
      "lazy_rescale=0 block=64 p=" +
      p + " p_scale=1 p_normalised=no l_from=" + l_from +
      " normalise=divide flush=no saturate=no " + (more.empty() ? "merge=none splits=1" : more));
}

// q, k, v of a row of numbers; index: of the element within (rows, d).
template <typename Fn>
Tensor Filled(const TensorSpec& spec, Fn value) {
  Tensor tensor(spec.dtype, spec.shape);
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  const int64_t d = spec.shape.RowLength();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = value(static_cast<int64_t>(i) / d, static_cast<int64_t>(i) % d);
  }
  EncodeFrom(values, spec.dtype, tensor.bytes.data());
  return tensor;
}

enum class Data { kGauss, kFewKeys, kOneAbove, kRamp, kZeroKeys, kConstantV, kWeightsAsValues };

TensorMap Inputs(const AttentionCase& c, Data data, uint64_t seed) {
  Generator random(seed);
  TensorMap inputs;
  std::vector<double> few(static_cast<size_t>(16 * c.k_dim));
  for (double& value : few) value = random.Gauss();
  for (const auto& [name, spec] : InputSpecs(Case(c))) {
    const bool is_k = name == "k", is_v = name == "v";
    inputs[name] = Filled(spec, [&](int64_t row, int64_t i) {
      const double normal = random.Gauss();
      switch (data) {
        case Data::kGauss:
          return normal;
        case Data::kFewKeys:  // 16 tokens, many copies each
          if (is_k) return few[static_cast<size_t>(row % 16 * c.k_dim + i)];
          return is_v ? few[static_cast<size_t>(row % 16 * c.k_dim + i)] + 2 : normal;
        case Data::kOneAbove:
          if (is_k) return row == 0 ? 3.0 : 0.25;
          return is_v ? 2 + normal : 0.5;
        case Data::kRamp:
          if (is_k) return i == 0 ? 12.0 * static_cast<double>(row) / 1000 : 0.0;
          return is_v ? 3 + 0.01 * normal : 1.0;
        case Data::kZeroKeys:
          if (is_k) return row > 20 ? 0.0 : normal;
          return is_v ? (row > 20 ? 0.0 : normal) + 2 : normal;
        case Data::kConstantV:
          return is_v ? 1.7 : normal;
        case Data::kWeightsAsValues:
          return is_v ? std::exp(few[static_cast<size_t>(row % 16)]) : normal;
      }
      return normal;
    });
  }
  return inputs;
}

// The weights of a merge may err by as much in one range as in the next, the other way, however
// many ranges there are: V that turns its sign with them takes up all of it.
TEST(Noise, AMergeOfAnyNumberOfRangesStaysInside) {
  constexpr int64_t kKeys = 256, kDim = 8;
  for (const int64_t ranges : {3, 5, 7, 11}) {
    const AttentionCase c = CaseOf(fmt::format(
        "attention hq=1 hkv=1 l=2 t={} d={} q=f32 k=f32 v=f32 out=f32 scale=1 data=file",
        ranges * kKeys, kDim));
    // Next to ties of bf16, on the one and on the other side, so that they are rounded apart.
    const double spacing = SpacingAt(DType::kBFloat16, 1.0 / static_cast<double>(ranges));
    const double tie = (std::floor(1 / spacing / static_cast<double>(ranges)) + 0.5) * spacing;
    std::vector<double> weight;
    double rest = 1;
    for (int64_t k = 0; k < ranges; ++k) {
      weight.push_back(k + 1 < ranges ? tie + (k % 2 == 0 ? 0.02 : -0.02) * spacing : rest);
      rest -= weight.back();
    }
    TensorMap inputs;
    for (const auto& [name, spec] : InputSpecs(Case(c))) {
      inputs[name] = Filled(spec, [&, name = name](int64_t row, int64_t channel) -> double {
        if (name == "q") return channel == 0 ? 1 : 0;
        const auto k = static_cast<size_t>(row / kKeys);
        if (name == "k") return channel == 0 ? std::log(weight[k] / kKeys) : 0;
        return k % 2 == 0 ? 1 : -1;
      });
    }
    double out = 0;
    for (size_t k = 0; k < weight.size(); ++k) {
      out += RoundTo(DType::kBFloat16, weight[k]) * (k % 2 == 0 ? 1 : -1);
    }
    TensorMap answer;
    for (const auto& [name, spec] : OutputSpecs(c)) {
      answer[name] = Filled(spec, [&](int64_t, int64_t) { return out; });
    }
    const Plan plan = ParsePlan(fmt::format(
        "base=plain_f32 block=64 merge=lse_division_free splits={} partial=f32 merge_weights=bf16",
        ranges));
    const JudgedRun run = JudgeRun(AttentionSource(c, {}, plan, inputs), answer, kNoise);
    EXPECT_EQ(run.judged, 2 * kDim);
    EXPECT_EQ(run.violations, 0) << run.first;
    EXPECT_GT(run.largest_ratio, 0.2);
  }
}

TEST(Noise, RightKernelsStayWithinTheLimitWhereRoundingsAreCommon) {
  JudgedRun all;
  int64_t cases = 0;
  for (const Data data : {Data::kGauss, Data::kFewKeys, Data::kOneAbove, Data::kRamp,
                          Data::kZeroKeys, Data::kConstantV, Data::kWeightsAsValues}) {
    for (const char* type : {"bf16", "f16"}) {
      for (const char* l_from : {"rounded", "unrounded"}) {
        for (const char* merge : {"", "merge=lse splits=4 partial=f32 log_error=2^-22",
                                  "merge=lse splits=4 partial=bf16 log_error=2^-22"}) {
          const AttentionCase c = OneHead(5, 1000, type);
          const Plan plan = Flash(type, l_from, merge);
          const TensorMap inputs = Inputs(c, data, static_cast<uint64_t>(++cases));
          SimulatedKernel kernel(plan, {});
          const JudgedRun run =
              JudgeRun(AttentionSource(c, {}, plan, inputs), Answer(&kernel, c, inputs), kNoise);
          EXPECT_EQ(run.violations, 0) << static_cast<int>(data) << " " << Print(plan) << "\n"
                                       << run.first;
          all.Add(run);
        }
      }
    }
  }
  EXPECT_EQ(all.judged, cases * 5 * 32);
}

// Under every drawn plan: integers, rotations, truncation, partial outputs, sinks.
TEST(Noise, IsNeverAboveTheProvenBound) {
  int64_t smaller = 0, elements = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 300, .head_dim = 32, .query_len = 3});
    const TensorMap inputs = GenerateInputs(drawn.c, drawn.profile);
    const AttentionSource source(drawn.c, drawn.profile, drawn.plan, inputs);
    for (int64_t index = 0; index < source.TileCount(); ++index) {
      const ExpectedTile proven = source.Tiles(index, {})[0];
      const ExpectedTile noise = source.Tiles(index, kNoise)[0];
      ASSERT_EQ(noise.proven_bound.size(), proven.bound.size());
      for (size_t i = 0; i < proven.bound.size(); ++i) {
        ++elements;
        ASSERT_EQ(noise.proven_bound[i], proven.bound[i]) << seed;
        ASSERT_LE(noise.bound[i], proven.bound[i]) << seed;
        smaller += noise.bound[i] < proven.bound[i] ? 1 : 0;
      }
    }
  }
  EXPECT_GT(smaller, elements / 20);
}

Outcome WithLastKeyDropped(const AttentionCase& c, const Plan& plan, bool noise, int64_t* failed) {
  const TensorMap inputs = GenerateInputs(Case(c), {});
  AttentionRules rules;
  for (const AttentionFault& fault : DetectionFaults()) {
    if (fault.id == "last_key_dropped") rules = fault.rules();
  }
  SimulatedKernel kernel(plan, {}, rules);
  MemorySink sink;
  kernel.Run(Case(c), inputs, sink);
  JudgeOptions options;
  options.rule = noise ? Rule::kNoise : Rule::kBound;
  options.explain = false;
  const Verdict verdict = Judge(AttentionSource(c, {}, plan, inputs), sink, options);
  *failed = verdict.outputs[0].counts.failed_by_noise;
  return verdict.outcome;
}

TEST(Noise, ShowsAKeyThatTheProvenBoundCannotSee) {
  const auto c = std::get<AttentionCase>(
      ParseCase("attention hq=4 hkv=2 l=4 t=4096 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:3"));
  const Plan plan = Flash("bf16", "unrounded");
  int64_t failed = 0;
  EXPECT_EQ(WithLastKeyDropped(c, plan, false, &failed), Outcome::kPass);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(WithLastKeyDropped(c, plan, true, &failed), Outcome::kFail);
  EXPECT_GT(failed, 0);
}

// Equal keys round alike: their errors add up, and so do their shares of the limit.
TEST(Noise, CountsTheRoundingsOfEqualKeysAsCommon) {
  const AttentionCase c = OneHead(1, 1024, "bf16");
  const Plan plan = Flash("bf16", "unrounded");
  // The part of the weights' roundings in the limit beside their worst case.
  const auto share = [&](bool equal) {
    Generator random(7);
    TensorMap inputs;
    for (const auto& [name, spec] : InputSpecs(Case(c))) {
      inputs[name] = Filled(spec, [&](int64_t row, int64_t) {
        if (name == "v") return 2.0;
        if (name == "q") return 0.5;
        return row == 0 ? 1.0 : (equal ? 0.25 : 0.25 * random.Gauss());
      });
    }
    const AttentionSource source(c, {}, plan, inputs);
    const ExpectedTile noise = source.Tiles(0, {.terms = true, .noise = true})[0];
    const ExpectedTile proven = source.Tiles(0, {.terms = true})[0];
    if (noise.bound[0] == proven.bound[0]) return 1.0;
    return noise.terms[kNoiseTerm][0] / proven.terms[kProbabilityTerm][0];
  };
  EXPECT_EQ(share(true), 1);
  EXPECT_LT(share(false), 0.5);
}

TEST(Noise, TruncationCountsAtItsLargest) {
  const auto c = std::get<AttentionCase>(
      ParseCase("attention hq=1 hkv=1 l=2 t=512 d=32 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:5"));
  Plan plan = Flash("bf16", "unrounded");
  plan.op->toward_zero = true;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, plan, inputs);
  const ExpectedTile tile = source.Tiles(0, {.terms = true, .noise = true})[0];
  const double truncated = tile.bound[0] / tile.proven_bound[0];
  plan.op->toward_zero = false;
  const ExpectedTile nearest =
      AttentionSource(c, {}, plan, inputs).Tiles(0, {.terms = true, .noise = true})[0];
  EXPECT_GT(truncated, 0.9);
  EXPECT_LT(nearest.bound[0] / nearest.proven_bound[0], 0.7);
}

// A verdict under the model is never greener: where the proven bound shows no lost input, neither
// does the verdict claim so.
TEST(Noise, WhatProvesNothingWithoutTheModelProvesNothingWithIt) {
  const auto c = std::get<AttentionCase>(ParseCase(
      "attention hq=1 hkv=1 l=4 t=16384 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:3"));
  const Plan plan = ParsePlan("base=stranger");
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(Flash("bf16", "unrounded"), {});
  MemorySink sink;
  kernel.Run(Case(c), inputs, sink);
  const AttentionSource source(c, {}, plan, inputs);
  JudgeOptions options;
  options.explain = false;
  options.rule = Rule::kBound;
  const Verdict without = Judge(source, sink, options);
  options.rule = Rule::kNoise;
  const Verdict with = Judge(source, sink, options);
  EXPECT_EQ(without.outcome, Outcome::kMistrusted);
  EXPECT_EQ(with.outcome, Outcome::kMistrusted);
  EXPECT_EQ(with.outputs[0].blind_rows, without.outputs[0].blind_rows);
}

// Halving the probability of a false alarm costs next to nothing: the factor is a root of a
// logarithm.
TEST(Noise, FactorIsThatOfTheSubGaussianTail) {
  const double factor = NoiseFactor();
  EXPECT_DOUBLE_EQ(factor * factor / 2, std::log(2 / kNoiseFalseAlarm));
}

}  // namespace
}  // namespace kvcheck
