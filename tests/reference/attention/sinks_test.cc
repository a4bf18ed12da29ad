// Sinks that are disabled: logits of -inf, of the lowest finite value and of other large negative
// numbers weigh exactly nothing. A right answer passes, zeros fail, under every plan and at every
// precision, and the log-sum-exp is that without the sink.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "tests/reference/attention/judge_run.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

const char* const kPlans[] = {"base=plain_f32",
                              "base=plain_f32 block=2 sink=first",
                              "base=plain_f32 block=2 sink=last",
                              "base=plain_f32 block=2 splits=3 merge=accumulators sink=last",
                              "base=plain_f32 block=2 splits=3 merge=lse sink=last",
                              "base=plain_f32 block=2 splits=3 merge=lse_division_free sink=first",
                              "base=plain_f32 exp=exp2_log2 scale_roundings=4 block=2 sink=last",
                              "base=plain_f32 exp=exp2_fma scale_roundings=3 block=2 sink=first",
                              "base=plain_f32 p=bf16 l_from=rounded",
                              "base=plain_f32 p=bf16 p_normalised=yes"};

AttentionCase SinkCase(DType type, LseKind lse) {
  AttentionCase c;
  c.query_heads = 5, c.kv_heads = 1, c.query_len = 2, c.kv_len = 9, c.k_dim = c.v_dim = 8;
  c.q = type;
  c.out = DType::kFloat32;
  c.k = c.v = PlainFormat{type};
  c.sinks = type;
  c.lse = lse;
  c.data = {.regime = "gauss", .seed = 3, .file_hash = ""};
  return c;
}

void SetSinks(TensorMap* inputs, const std::vector<double>& sinks) {
  Tensor& tensor = inputs->at("sinks");
  EncodeFrom(sinks, tensor.dtype, tensor.bytes.data());
}

// What heads may have in place of a sink, and finite ones beside them.
std::vector<std::vector<double>> DisabledSinks(DType type) {
  const double lowest = -FloatTypeOf(type).largest_finite;
  const double large = std::max(-1e30, lowest), less = std::max(-3e18, lowest);
  return {std::vector<double>(5, -kInfinity),
          std::vector<double>(5, lowest),
          std::vector<double>(5, large),
          std::vector<double>(5, less),
          std::vector<double>(5, -1e4),
          {-kInfinity, lowest, 0.5, large, less},
          {1.5, -kInfinity, -2, -kInfinity, lowest}};
}

TensorMap WithZeroOut(TensorMap answer) {
  Tensor& out = answer.at("out");
  std::fill(out.bytes.begin(), out.bytes.end(), std::byte{0});
  return answer;
}

TEST(Sinks, ADisabledSinkIsJudgedUnderEveryPlan) {
  for (const char* text : kPlans) {
    const Plan plan = ParsePlan(text);
    for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const LseKind lse : {LseKind::kNone, LseKind::kNatural, LseKind::kBase2}) {
        const AttentionCase c = SinkCase(type, lse);
        TensorMap inputs = GenerateInputs(Case(c), {});
        for (const std::vector<double>& sinks : DisabledSinks(type)) {
          SetSinks(&inputs, sinks);
          const AttentionSource source(c, {}, plan, inputs);
          SimulatedKernel kernel(plan, {});
          const TensorMap right = Answer(&kernel, c, inputs);
          const std::string where = std::string(text) + " " + std::string(Name(type)) + " " +
                                    std::to_string(sinks[0]) + " " + std::to_string(sinks[1]);
          for (const Precision first : {Precision::kDouble, Precision::kDoubleDouble}) {
            JudgeOptions options;
            options.first_precision = first;
            const Verdict verdict = Judge(source, MemorySink(TensorMap(right)), options);
            EXPECT_EQ(verdict.outcome, Outcome::kPass)
                << where << ": " << (verdict.reasons.empty() ? "" : verdict.reasons[0]);
            EXPECT_EQ(Judge(source, MemorySink(WithZeroOut(right)), options).outcome,
                      Outcome::kFail)
                << where;
          }
        }
      }
    }
  }
}

// In a range of keys that is left empty the sink is the shift, whose rounding such a kernel's
// exponential may not survive: its answer is right or no number, and zeros are neither.
TEST(Sinks, ADisabledSinkThatIsAloneInARangeIsJudgedToo) {
  for (const char* text : {"base=flash_attention_2 p=f32", "base=flash_attention_3 p=f32",
                           "base=flashinfer_prefill p=f32",
                           "base=plain_f32 exp=exp2_fma scale_roundings=3 block=2 splits=7 "
                           "merge=lse_division_free sink=last"}) {
    const Plan plan = ParsePlan(text);
    for (const LseKind lse : {LseKind::kNone, LseKind::kNatural}) {
      const AttentionCase c = SinkCase(DType::kFloat32, lse);
      TensorMap inputs = GenerateInputs(Case(c), {});
      for (const std::vector<double>& sinks : DisabledSinks(DType::kFloat32)) {
        SetSinks(&inputs, sinks);
        const AttentionSource source(c, {}, plan, inputs);
        SimulatedKernel plain(ParsePlan("base=plain_f32"), {});
        const TensorMap right = Answer(&plain, c, inputs);
        const Verdict verdict = Judge(source, MemorySink(TensorMap(right)));
        EXPECT_EQ(verdict.outcome, Outcome::kPass)
            << text << ": " << (verdict.reasons.empty() ? "" : verdict.reasons[0]);
        EXPECT_EQ(Judge(source, MemorySink(WithZeroOut(right))).outcome, Outcome::kFail) << text;
        SimulatedKernel own(plan, {});
        EXPECT_NE(Judge(source, MemorySink(Answer(&own, c, inputs))).outcome, Outcome::kFail)
            << text;
        TensorMap nan = right;
        Tensor& out = nan.at("out");
        EncodeFrom(std::vector<double>(static_cast<size_t>(out.ElementCount()), std::nan("")),
                   out.dtype, out.bytes.data());
        EXPECT_NE(Judge(source, MemorySink(std::move(nan))).outcome, Outcome::kPass) << text;
      }
    }
  }
}

// Its bias roundings are an error of the row's own shift, however large the sink.
TEST(Sinks, ADisabledSinkThatIsAloneHasALogSumExp) {
  AttentionCase c = SinkCase(DType::kBFloat16, LseKind::kNatural);
  c.kv_len = 1;
  c.alibi = true;
  c.mask.causal = CausalAlignment::kBottomRight;  // query 0 sees nothing
  TensorMap inputs = GenerateInputs(Case(c), {});
  const double lowest = -FloatTypeOf(DType::kBFloat16).largest_finite;
  SetSinks(&inputs, {lowest, -1e30, 0.5, lowest, -3e18});
  for (const char* text :
       {"base=plain_f32 bias_roundings=1", "base=plain_f32 bias_roundings=2 block=2 sink=last"}) {
    const Plan plan = ParsePlan(text);
    const AttentionSource source(c, {}, plan, inputs);
    SimulatedKernel kernel(plan, {});
    TensorMap answer = Answer(&kernel, c, inputs);
    EXPECT_EQ(Judge(source, MemorySink(TensorMap(answer))).outcome, Outcome::kPass) << text;
    const double bound = source.Tiles(0, {})[1].bound[0];
    EXPECT_GT(bound, 0x1p-25 * -lowest) << text;  // and it is an error of lse
    EXPECT_LT(bound, 0x1p-20 * -lowest) << text;
    answer.at("lse").As<float>()[0] = 0;
    EXPECT_EQ(Judge(source, MemorySink(TensorMap(answer))).outcome, Outcome::kFail) << text;
  }
}

TEST(Sinks, ADisabledSinkChangesNothingAtAnyPrecision) {
  AttentionCase with = SinkCase(DType::kFloat32, LseKind::kNatural);
  AttentionCase without = with;
  without.sinks.reset();
  const Plan plan = ParsePlan("base=plain_f32");
  const TensorMap plain = GenerateInputs(Case(without), {});
  for (const double sink : {-kInfinity, -3.4e38, -1e30, -3e18, -1e4}) {
    TensorMap inputs = GenerateInputs(Case(with), {});
    SetSinks(&inputs, std::vector<double>(5, sink));
    for (const Precision precision : {Precision::kDouble, Precision::kDoubleDouble,
                                      Precision::kOracle50, Precision::kOracle100}) {
      const TileRequest request = {.precision = precision};
      const auto a = AttentionSource(with, {}, plan, inputs).Tiles(0, request);
      const auto b = AttentionSource(without, {}, plan, plain).Tiles(0, request);
      for (size_t output = 0; output < 2; ++output) {
        EXPECT_EQ(a[output].value, b[output].value) << sink;
        for (size_t i = 0; i < a[output].bound.size(); ++i) {
          EXPECT_GE(a[output].bound[i], b[output].bound[i]) << sink;
          EXPECT_LE(a[output].bound[i], 4 * b[output].bound[i]) << sink;
          EXPECT_LE(a[output].reference_bound[i], 4 * b[output].reference_bound[i]) << sink;
        }
      }
    }
  }
}

TEST(Sinks, OfLogitMinusInfinityIsNoKeyForAQueryThatSeesNone) {
  AttentionCase c = SinkCase(DType::kFloat32, LseKind::kNatural);
  c.kv_len = 1;
  c.mask.causal = CausalAlignment::kBottomRight;  // query 0 sees nothing
  TensorMap inputs = GenerateInputs(Case(c), {});
  SetSinks(&inputs, {-kInfinity, -1e30, 0.5, std::nan(""), kInfinity});
  Profile profile;
  profile.masked_row = MaskedRow::kNan;
  const Plan plan = ParsePlan("base=plain_f32");
  const AttentionSource source(c, profile, plan, inputs);
  const auto tiles = source.Tiles(0, {});
  EXPECT_TRUE(std::isnan(tiles[0].value[0]));
  EXPECT_EQ(tiles[1].standing[0], Standing::kJudged);
  EXPECT_EQ(tiles[1].value[0], -kInfinity);
  EXPECT_EQ(tiles[0].value[2 * 8], 0);
  EXPECT_EQ(tiles[1].value[2], static_cast<double>(-1e30F));
  EXPECT_EQ(tiles[0].standing[6], Standing::kUndefined);
  EXPECT_EQ(tiles[0].standing[8], Standing::kUndefined);
  SimulatedKernel kernel(plan, profile);
  EXPECT_EQ(JudgeRun(source, Answer(&kernel, c, inputs)).violations, 0);
}

}  // namespace
}  // namespace kvcheck
