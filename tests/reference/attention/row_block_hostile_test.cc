// Enclosures of rows (row_block.h) beside the rows themselves, one by one, under data that leave
// little room: scores that are huge, or equal, or of one key; V of subnormal numbers, of the
// largest, nearly constant or of two signs.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "reference/attention/evaluate.h"
#include "reference/attention/row_block.h"
#include "reference/attention/sensitivity.h"
#include "reference/data/generator.h"
#include "reference/numerics/convert.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

using ChangeOf = std::function<double(int64_t row, int64_t channel, double value)>;

void Change(TensorMap* inputs, const char* name, int64_t dim, const ChangeOf& change) {
  Tensor& tensor = inputs->at(name);
  std::vector<double> values = Decoded(tensor);
  const double largest = FloatTypeOf(tensor.dtype).largest_finite;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] = std::clamp(change(at / dim, at % dim, values[i]), -largest, largest);
  }
  EncodeFrom(values, tensor.dtype, tensor.bytes.data());
}

constexpr uint64_t kKinds = 9;

void MakeHostile(uint64_t kind, Generator* random, const AttentionCase& c, TensorMap* inputs) {
  if (!IsPlain(c.k) || !IsPlain(c.v)) return;
  const FloatType& type = FloatTypeOf(inputs->at("v").dtype);
  const auto power = [&](uint64_t most) {
    return std::ldexp(1.0, static_cast<int>(random->Bits() % most));
  };
  const auto heavy = static_cast<int64_t>(random->Bits() % static_cast<uint64_t>(c.kv_len));
  const auto of_q = [&](const ChangeOf& change) { Change(inputs, "q", c.k_dim, change); };
  const auto of_k = [&](const ChangeOf& change) { Change(inputs, "k", c.k_dim, change); };
  const auto of_v = [&](const ChangeOf& change) { Change(inputs, "v", c.v_dim, change); };
  const double factor = kind == 1   ? power(14)
                        : kind == 5 ? power(type.largest_finite > 1e300 ? 600 : 12)
                                    : power(24);
  switch (kind) {
    case 1:
      return of_q([&](int64_t, int64_t, double q) { return q * factor; });
    case 2:
      return of_k(
          [&](int64_t, int64_t channel, double) { return static_cast<double>(channel % 3); });
    case 3:
      of_q([](int64_t, int64_t, double q) { return std::fabs(q); });
      return of_k([&](int64_t row, int64_t, double k) {
        return row % c.kv_len == heavy ? 8 * std::fabs(k) : -std::fabs(k);
      });
    case 4:
      return of_v(
          [&](int64_t, int64_t, double v) { return v * type.smallest_normal * 16 / factor; });
    case 5:
      return of_v(
          [&](int64_t, int64_t, double v) { return v * (type.largest_finite / factor / 4); });
    case 6:
      return of_v([](int64_t, int64_t channel, double v) { return channel % 2 == 0 ? v : 0; });
    case 7:
      return of_v([&](int64_t, int64_t, double v) { return 1 + v / factor; });
    case 8:
      of_q([&](int64_t, int64_t, double q) { return q / factor; });
      return of_v([&](int64_t row, int64_t, double v) {
        return (row % 2 == 0 ? 1 : -1) * (1 + v / factor);
      });
    default:
      return;
  }
}

// Some rows of the first head.
void HoldRows(const DrawnAttention& drawn, const TensorMap& inputs, bool noise, int64_t* held) {
  const AttentionCase& c = drawn.c;
  const Arithmetic arithmetic = Resolve(drawn.plan, drawn.profile, c);
  const MaskReader mask(c, drawn.profile, inputs);
  const HeadData head = LoadHead(c, drawn.profile, inputs, 0, 0, arithmetic.Detail());
  const std::vector<double> q = Decoded(Get(inputs, "q"));
  const auto count = static_cast<size_t>(c.query_len), dim = static_cast<size_t>(c.k_dim);
  std::vector<RowContext> contexts(count);
  std::vector<OwnedQuestion> owned(count);
  std::vector<BlockRow> rows;
  for (size_t l = 0; l < count; ++l) {
    RowContext& context = contexts[l];
    context.c = &c, context.arithmetic = &arithmetic, context.profile = drawn.profile;
    context.head = &head, context.noise = noise;
    context.q = std::span(q).subspan(l * dim, dim);
    context.has_sink = c.sinks.has_value();
    if (context.has_sink) context.sink = Decoded(Get(inputs, "sinks"))[0];
    const VisibleSet visible = mask.Visible({0, 0, static_cast<int64_t>(l)});
    if (visible.kind != QueryKind::kOrdinary || !visible.hidden_keys.empty()) continue;
    if (MakeQuestion(context, visible, &owned[l]) != RowKind::kEvaluate) continue;
    rows.push_back({&context, &owned[l]});
  }
  const std::vector<RowEnclosure> enclosures = EncloseRows(rows);
  for (size_t r = 0; r < rows.size(); r += 5) {
    const RowEnclosure& of = enclosures[r];
    if (!of.is_known) continue;
    ++*held;
    const RowReference row = ComputeRow(*rows[r].context, *rows[r].owned, Precision::kDouble);
    const RowReference fine =
        ComputeRow(*rows[r].context, *rows[r].owned, Precision::kDoubleDouble);
    ASSERT_TRUE(row.finite && !row.unbounded && !row.may_overflow);
    for (size_t i = 0; i < row.channels.size(); ++i) {
      const ChannelReference& channel = row.channels[i];
      const double off =
          std::fabs((of.value[i] - fine.channels[i].value) - fine.channels[i].value_lo);
      ASSERT_LE(off, of.own[i] + fine.channels[i].reference_bound);
      ASSERT_LE(of.least[i], channel.bound * (1 + 0x1p-40));
      ASSERT_GE(of.proven[i], channel.proven_bound * (1 - 0x1p-40));
      ASSERT_LE(channel.proven_bound, kVacuousShare * channel.mass);
      ASSERT_LT(std::fabs(channel.value) + channel.before_output, arithmetic.overflow);
    }
    ASSERT_EQ(SensitivityOf(rows[r].owned->question, row, false).kind, Sensitivity::kShows);
    if (c.lse == LseKind::kNone) continue;
    ASSERT_LE(std::fabs((of.lse - fine.lse) - fine.lse_lo), of.lse_own + fine.lse_reference_bound);
    ASSERT_LE(of.lse_least, row.lse_bound * (1 + 0x1p-40));
    ASSERT_LE(row.lse_bound, kVacuousShare * (1 + std::fabs(row.lse)));
  }
}

TEST(RowBlock, EnclosesRowsOfHostileData) {
  const std::vector<std::string_view> targets = EvaluatorTargets();
  int64_t held = 0;
  for (uint64_t seed = 0; seed < 900 && !::testing::Test::HasFatalFailure(); ++seed) {
    Generator random(seed * 7919 + 13);
    DrawnAttention drawn = DrawAttention(
        7000000 + seed, {.kv_len = seed % 3 == 0 ? 17 : 400, .head_dim = 24, .query_len = 80});
    drawn.c.alibi = drawn.c.alibi || random.Bits() % 4 == 0;
    if (!drawn.c.softcap && random.Bits() % 6 == 0) drawn.c.softcap = 20;
    if (drawn.c.q != DType::kFloat64 && random.Bits() % 6 == 0) {
      drawn.plan.l->accumulator.dtype = DType::kBFloat16;
    }
    const Case whole = ParseCase(Print(Case(drawn.c)));
    TensorMap inputs = GenerateInputs(whole, drawn.profile);
    const uint64_t kind = random.Bits() % kKinds;
    MakeHostile(kind, &random, drawn.c, &inputs);
    SCOPED_TRACE(
        fmt::format("seed {}, kind {}: {} | {}", seed, kind, Print(whole), Print(drawn.plan)));
    SetEvaluatorTarget(targets[seed % targets.size()]);
    HoldRows(drawn, inputs, seed % 2 == 0, &held);
  }
  SetEvaluatorTarget("");
  EXPECT_GT(held, 1000);
}

}  // namespace
}  // namespace kvcheck
