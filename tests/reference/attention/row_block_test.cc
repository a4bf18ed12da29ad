// Rows that are accepted without being written out: their tolerance is no more than the row's own,
// what they prove no less, and their values are those of the row, within what both state.

#include "reference/attention/row_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/judge/tensor_source.h"
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
  // All rows but the 32 of each head that statistics look at.
  EXPECT_EQ(passed.outputs[0].counts.accepted, 2 * 32 * 32);
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

}  // namespace
}  // namespace kvcheck
