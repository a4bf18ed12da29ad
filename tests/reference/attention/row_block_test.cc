// Rows that are accepted without being written out: their tolerance is no more than the row's own,
// what they prove no less, and their values are those of the row, within what both state.

#include "reference/attention/row_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/judge/tensor_source.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"

namespace kvcheck {
namespace {

struct Held {
  int64_t rows = 0;     // held against the row itself
  double tightest = 0;  // largest share of the bound that a tolerance had
};

// Every row that is not written out, beside the row that is.
void HoldBesideRows(const AttentionSource& source, bool noise, const std::string& name,
                    Held* held) {
  for (int64_t i = 0; i < source.TileCount(); ++i) {
    TileRequest request;
    request.noise = noise;
    const std::vector<ExpectedTile> own = source.Tiles(i, request);
    request.accepts = [](int, int64_t, std::span<const double>, std::span<const double>) {
      return true;
    };
    const std::vector<ExpectedTile> tiles = source.Tiles(i, request);
    ASSERT_EQ(tiles.size(), own.size());
    for (size_t t = 0; t < tiles.size(); ++t) {
      const ExpectedTile& tile = tiles[t];
      const ExpectedTile& row = own[t];
      if (tile.accepted.empty()) continue;
      const size_t length = tile.value.size() / static_cast<size_t>(tile.row_count);
      for (size_t e = 0; e < tile.value.size(); ++e) {
        if (tile.accepted[e / length] == 0) continue;
        ASSERT_TRUE(row.standing[e / length] == Standing::kJudged) << name;
        const double gap = std::fabs(tile.value[e] - row.value[e]);
        ASSERT_LE(gap, tile.reference_bound[e] + row.reference_bound[e]) << name;
        ASSERT_LE(tile.bound[e], row.bound[e] * (1 + 0x1p-40)) << name << " output " << t;
        held->tightest = std::max(held->tightest, tile.bound[e] / row.bound[e]);
        if (t > 0) continue;
        const double proven = row.proven_bound.empty() ? row.bound[e] : row.proven_bound[e];
        if (!tile.proven_bound.empty()) {
          ASSERT_GE(tile.proven_bound[e], proven) << name;
        }
        ASSERT_NEAR(tile.mass[e], row.mass[e], 1e-9 * row.mass[e]) << name;
        if (e % length == 0) ++held->rows;
      }
      if (t == 0) {
        for (size_t r = 0; r < tile.accepted.size(); ++r) {
          if (tile.accepted[r] == 0) continue;
          ASSERT_EQ(row.sensitivity[r], Sensitivity::kShows) << name;
        }
      }
    }
  }
}

TEST(RowBlock, EnclosesTheRowUnderEveryKnownPlan) {
  const char* const cases[] = {
      "attention hq=4 hkv=2 l=48 t=80 d=24 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:1",
      "attention hq=2 hkv=2 l=48 t=80 d=24 q=f16 k=f16 v=f16 out=f16 mask=causal_bottom_right "
      "lse=natural "
      "data=gauss:2",
      "attention hq=2 hkv=1 l=48 t=90 d=20 q=f32 k=f32 v=f32 out=f32 "
      "mask=causal_bottom_right+window:33 "
      "lse=base2 data=gauss:3",
      "attention hq=2 hkv=1 l=48 t=70 d=16 q=bf16 k=bf16 v=bf16 out=f32 softcap=20 sinks=f32 "
      "data=outlier:4",
      "attention hq=2 hkv=2 l=48 t=70 d=16 q=bf16 k=bf16 v=bf16 out=bf16 alibi=yes data=gauss:5",
      "attention b=2 hq=2 hkv=2 l=48 t=70 d=16 q=f16 k=f16 v=f16 out=f16 mask=bool:BHLT sinks=f32 "
      "data=same_sign:6",
      "attention hq=2 hkv=1 l=40 t=600 d=8 q=bf16 k=bf16 v=bf16 out=bf16 data=constant:7",
      "attention hq=2 hkv=1 l=40 t=300 d=8 q=f32 k=f32 v=f32 out=bf16 data=huge:8",
  };
  Held held;
  int asked = 0;
  for (const char* text : cases) {
    const Case c = ParseCase(text);
    const TensorMap inputs = GenerateInputs(c, {});
    for (const KnownPlan& known : KnownPlans()) {
      std::optional<AttentionSource> source;
      try {
        source.emplace(std::get<AttentionCase>(c), Profile(),
                       ParsePlan("base=" + std::string(known.name)), inputs);
      } catch (const Error&) {
        continue;  // a plan of another type or of codes
      }
      ++asked;
      for (const bool noise : {false, true}) {
        HoldBesideRows(*source, noise, std::string(known.name) + " " + text, &held);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(asked, 60);
  EXPECT_GT(held.rows, 1000);
  EXPECT_LE(held.tightest, 1);
}

TEST(RowBlock, EnclosesTheRowUnderDrawnPlans) {
  Held held;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const DrawnAttention drawn =
        DrawAttention(seed, {.kv_len = 128, .head_dim = 24, .query_len = 48});
    const Case c(drawn.c);
    const TensorMap inputs = GenerateInputs(c, drawn.profile);
    const AttentionSource source(drawn.c, drawn.profile, drawn.plan, inputs);
    HoldBesideRows(source, seed % 2 == 0, Print(c) + " | " + Print(drawn.plan), &held);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(held.rows, 300);
}

// What is wrong in a row that would have been accepted is found as if nothing were.
TEST(RowBlock, VerdictsAreThoseOfRowsWrittenOut) {
  const Case c = ParseCase(
      "attention hq=2 hkv=1 l=64 t=200 d=32 q=bf16 k=bf16 v=bf16 out=bf16 mask=causal_bottom_right "
      "data=gauss:9");
  const auto& attention = std::get<AttentionCase>(c);
  const TensorMap inputs = GenerateInputs(c, {});
  const Plan plan = ParsePlan("base=flash_attention_2");
  const AttentionSource source(attention, Profile(), plan, inputs);
  SimulatedKernel kernel(plan, {});
  MemorySink right;
  kernel.Run(c, inputs, right);
  JudgeOptions options;
  options.explain = false;
  const Verdict passed = Judge(source, right, options);
  EXPECT_EQ(passed.outcome, Outcome::kPass);
  EXPECT_EQ(passed.outputs[0].counts.judged, 2 * 64 * 32);
  // All rows but the 32 of each head that statistics look at, and one whose heaviest key may have
  // all that is not rounded.
  EXPECT_EQ(passed.outputs[0].counts.accepted, 2 * 32 * 32 - 32);
  // Twice the value, in a row that would have been accepted.
  const int64_t element = (64 + 4) * 32 + 7;
  uint16_t code = 0;
  std::byte* at = right.tensors().at("out").bytes.data() + 2 * element;
  std::memcpy(&code, at, 2);
  code = static_cast<uint16_t>(code + 128);
  std::memcpy(at, &code, 2);
  const Verdict failed = Judge(source, right, options);
  EXPECT_EQ(failed.outcome, Outcome::kFail);
  EXPECT_EQ(failed.outputs[0].counts.failed, 1);
  EXPECT_EQ(failed.outputs[0].worst->element, element);
  EXPECT_EQ(failed.outputs[0].counts.judged, 2 * 64 * 32);
}

using ValueAt = std::function<double(int64_t row, int64_t channel)>;

void Fill(TensorMap* inputs, const std::string& name, const ValueAt& value) {
  Tensor& tensor = inputs->at(name);
  const int64_t length = tensor.shape.RowLength();
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] = value(at / length, at % length);
  }
  EncodeFrom(values, tensor.dtype, tensor.bytes.data());
}

struct FilledCase {
  Case c;
  TensorMap inputs;
  Plan plan;
  AttentionSource source;

  FilledCase(const std::string& text, const std::string& plan_text,
             const std::function<void(TensorMap*)>& fill)
      : c(ParseCase(text)),
        inputs(GenerateInputs(c, {})),
        plan(ParsePlan(plan_text)),
        source((fill(&inputs), std::get<AttentionCase>(c)), Profile(), plan, inputs) {}

  Verdict JudgeRight() const {
    SimulatedKernel kernel(plan, {});
    MemorySink right;
    kernel.Run(c, inputs, right);
    JudgeOptions options;
    options.explain = false;
    return Judge(source, right, options);
  }
};

double Alternating(int64_t row, int64_t) { return row % 2 == 0 ? 1 : -1; }

// Scores of 19, of which a bias leaves 4: a tanh that is off by a share of itself is off by that of
// 19. All bounds are more than a tenth of the data.
TEST(RowBlock, ABiasThatCancelsTheSoftcapHidesNothingOfItsError) {
  const FilledCase filled(
      "attention hq=1 hkv=1 l=128 t=4 d=4 dv=4 q=f32 k=f32 v=f32 out=f32 scale=1 softcap=20 "
      "mask=additive:LT:f32 data=gauss:1",
      "base=plain_f32 tanh_error=0.006", [](TensorMap* inputs) {
        Fill(inputs, "q", [](int64_t, int64_t) { return 10; });
        Fill(inputs, "k", [](int64_t, int64_t) { return 1; });
        Fill(inputs, "mask", [](int64_t, int64_t) { return -15; });
        Fill(inputs, "v", Alternating);
      });
  Held held;
  HoldBesideRows(filled.source, true, "softcap", &held);
  EXPECT_EQ(filled.JudgeRight().outcome, Outcome::kMistrusted);
}

// A denominator of 100 keys in bf16 is off by half of itself: nothing of outputs near 0, and all
// that a log-sum-exp proves.
TEST(RowBlock, ALogSumExpThatProvesNothingIsNotAccepted) {
  const FilledCase filled(
      "attention hq=1 hkv=1 l=128 t=100 d=4 dv=4 q=f32 k=f32 v=f32 out=f32 scale=1 lse=natural "
      "data=gauss:1",
      "base=plain_f32 l=bf16:sequential", [](TensorMap* inputs) {
        Fill(inputs, "q", [](int64_t, int64_t) { return 0x1p-20; });
        Fill(inputs, "v", Alternating);
      });
  const Verdict verdict = filled.JudgeRight();
  EXPECT_EQ(verdict.outputs[0].outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[1].outcome, Outcome::kMistrusted);
}

// Squares of V are beyond the largest double, its roundings are not.
TEST(RowBlock, SquaresThatOverflowAreNoNoise) {
  const FilledCase filled(
      "attention hq=1 hkv=1 l=40 t=600 d=4 dv=4 q=f64 k=f64 v=f64 out=f64 data=gauss:1",
      "qk=f64:pairwise pv=f64:pairwise l=f64:pairwise op=f64 exp=exp block=all p=f32 "
      "p_normalised=no l_from=unrounded merge=none normalise=divide flush=no saturate=no",
      [](TensorMap* inputs) {
        Fill(inputs, "v", [](int64_t row, int64_t channel) {
          return 1e155 * (1 + 0x1p-6 * static_cast<double>((row * 7 + channel * 3) % 32));
        });
      });
  Held held;
  HoldBesideRows(filled.source, true, "squares", &held);
}

// Products of 1e-20, of numbers whose squares are 0 and 1e300, which cancel: scores are off by
// what their sizes leave, not by what is left.
TEST(RowBlock, NormsOfVerySmallNumbersAreNotLost) {
  const FilledCase filled(
      "attention hq=1 hkv=1 l=40 t=64 d=32 dv=4 q=f64 k=f64 v=f64 out=f64 scale=1e24 data=gauss:1",
      "qk=f64:sequential pv=f64:pairwise l=f64:pairwise op=f64 exp=exp block=all p=f32 "
      "p_normalised=no l_from=unrounded merge=none normalise=divide flush=no saturate=no",
      [](TensorMap* inputs) {
        const auto odd = [](int64_t n) { return 1 + 0.37 * std::sin(static_cast<double>(n)); };
        Fill(inputs, "q", [&](int64_t row, int64_t i) { return 1e-170 * odd(row * 16 + i / 2); });
        Fill(inputs, "k", [&](int64_t row, int64_t i) {
          const double size = 1e150 * odd(row * 16 + i / 2);
          return i % 2 == 0 ? size : -size * (1 + 1e-4 * odd(row + i));
        });
      });
  TileRequest request;
  request.accepts = [](int, int64_t, std::span<const double>, std::span<const double>) {
    return true;
  };
  TileRequest exact;
  exact.precision = Precision::kDoubleDouble;
  for (int64_t i = 0; i < filled.source.TileCount(); ++i) {
    const ExpectedTile tile = filled.source.Tiles(i, request)[0];
    const ExpectedTile row = filled.source.Tiles(i, exact)[0];
    for (size_t e = 0; e < tile.value.size(); ++e) {
      if (tile.accepted.empty() || tile.accepted[e / 4] == 0) continue;
      EXPECT_LE(std::fabs(tile.value[e] - row.value[e]),
                tile.reference_bound[e] + row.reference_bound[e]);
    }
  }
}

}  // namespace
}  // namespace kvcheck
