// The statistical tier: effects are those of really faulty outputs, clean kernels stay inside the
// limit, and a one-percent error of the temperature does not.

#include "reference/attention/statistics.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reference/attention/evaluate.h"
#include "reference/judge/judge.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "tests/reference/attention/statistics_run.h"

namespace kvcheck {
namespace {

// An f64 kernel, whose arithmetic is as exact as the reference's own.
Plan ExactPlan() {
  return ParsePlan(
      "qk=f64:sequential pv=f64:sequential l=f64:sequential op=f64 scale_roundings=1 prescale=none "
      "scores=f64 exp=exp exp_error=2^-52 exp_floor=2^-1022 lazy_rescale=0 block=all p=f64 "
      "p_scale=1 p_normalised=no merge=none splits=1 normalise=divide flush=no saturate=no");
}

enum Direction : size_t {
  kScale,
  kFirstMissing,
  kLastMissing,
  kHeaviestMissing,
  kNextVisible,
  kLastValuesSwapped,
  kOtherHead,
  kPreviousVisible
};

// The fault of a direction as a rule of the kernel. step: of the scale.
AttentionRules FaultyRules(size_t direction, double step) {
  AttentionRules rules;
  switch (direction) {
    case kScale:
      rules.scale = [step](const AttentionCase& x) { return x.scale * (1 + step); };
      break;
    case kFirstMissing:
      rules.visible = [](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
        set->keys.erase(set->keys.begin());
      };
      break;
    case kLastMissing:
      rules.visible = [](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
        set->keys.pop_back();
      };
      break;
    case kNextVisible:
      rules.visible = [](const AttentionCase& x, const QueryIndex&, VisibleSet* set) {
        if (set->keys.back() + 1 < x.kv_len) set->keys.push_back(set->keys.back() + 1);
      };
      break;
    case kLastValuesSwapped:
      rules.v_row = [](std::span<const int32_t> keys, size_t i) {
        if (i + 2 == keys.size()) return keys[i + 1];
        return i + 1 == keys.size() ? keys[i - 1] : keys[i];
      };
      break;
    case kOtherHead:
      // Tiled grouping, which is also the own head of some query heads.
      rules.head_map = [](const AttentionCase& x, int64_t query_head) {
        return query_head % x.kv_heads;
      };
      break;
    case kPreviousVisible:
      rules.visible = [](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
        if (set->keys.front() > 0) set->keys.insert(set->keys.begin(), set->keys.front() - 1);
      };
      break;
    default:
      break;
  }
  return rules;
}

// A window over grouped heads: every direction but one of padding exists.
AttentionCase DirectionCase(DType type) {
  AttentionCase c;
  c.query_heads = 4, c.kv_heads = 2, c.query_len = 3, c.kv_len = 17, c.k_dim = 8, c.v_dim = 5;
  c.q = c.out = type;
  c.k = c.v = PlainFormat{type};
  c.mask.causal = CausalAlignment::kBottomRight;
  c.mask.window = 9;
  c.data = {.regime = "gauss", .seed = 2, .file_hash = ""};
  return c;
}

double Largest(const Tensor& tensor) {
  double largest = 0;
  for (const double x : Decoded(tensor)) largest = std::max(largest, std::fabs(x));
  return largest;
}

TEST(FaultDirection, IsTheEffectOfTheFaultItself) {
  AttentionCase c = DirectionCase(DType::kFloat64);
  c.lse = LseKind::kNatural;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, ExactPlan(), inputs);
  const double step = 0x1p-20;
  // Scores are at most `score`, with d + 3 roundings; a weight has the error of its score and of
  // the largest, and of exp; a sum over n keys n + 4 roundings. An output is off by that share of
  // its weights, times |v - o| <= 2 max |v|.
  const auto d = static_cast<double>(c.k_dim), n = static_cast<double>(*c.mask.window + 1);
  const double value = Largest(Get(inputs, "v"));
  const double score = c.scale * d * Largest(Get(inputs, "q")) * Largest(Get(inputs, "k"));
  const double output_error =
      (2 * (d + 3) * score * 0x1p-53 + 0x1p-52 + (n + 4) * 0x1p-53) * 2 * value;
  for (const size_t direction : {kScale, kFirstMissing, kLastMissing, kNextVisible,
                                 kLastValuesSwapped, kOtherHead, kPreviousVisible}) {
    SimulatedKernel kernel(ExactPlan(), {}, FaultyRules(direction, step));
    const TensorMap answer = Answer(&kernel, c, inputs);
    const std::vector<double> out = Decoded(Get(answer, "out"));
    const std::vector<double> lse = Decoded(Get(answer, "lse"));
    double largest = 0;
    for (int64_t index = 0; index < source.TileCount(); ++index) {
      const std::vector<ExpectedTile> tiles = source.Tiles(index, {.statistics = true});
      const ExpectedTile& tile = tiles[0];
      const auto first = static_cast<size_t>(tile.first_row * c.v_dim);
      for (size_t at = 0; at < tile.value.size(); ++at) {
        const size_t row = at / static_cast<size_t>(c.v_dim);
        const int64_t head = tile.group[row];
        const bool own_head = head % c.kv_heads == head / (c.query_heads / c.kv_heads);
        if (direction == kOtherHead && own_head) continue;
        const double got = (out[first + at] - tile.value[at]) / (direction == kScale ? step : 1);
        // Three numbers have the error of an output: both outputs, and the effect, which is made of
        // the same sums; a key that is left out makes its errors larger by the share that remains.
        // The scale is a derivative, so it keeps an error of second order: half the step times the
        // largest (s - m)^2 |v - o|.
        const double log_rest =
            lse[static_cast<size_t>(tile.first_row) + row] - tiles[1].value[row];
        const double rest = direction == kFirstMissing || direction == kLastMissing
                                ? std::exp(log_rest) * (1 - 0x1p-20)
                                : 1;
        const double tolerance =
            direction == kScale ? step / 2 * 4 * score * score * 2 * value + 3 * output_error / step
                                : 3 * output_error / rest;
        EXPECT_NEAR(tile.statistics->effect[direction][at], got, tolerance)
            << FaultDirections()[direction].name << " element " << at;
        largest = std::max(largest, std::fabs(got) / tolerance);
      }
    }
    EXPECT_GT(largest, 10) << FaultDirections()[direction].name << " has an effect";
  }
}

TEST(FaultDirection, IsNamedWhereAKernelHasTheFault) {
  AttentionCase c = DirectionCase(DType::kFloat32);
  const Plan plan = StatisticsPlan(DType::kFloat32);
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, plan, inputs);
  for (const size_t direction : {kScale, kFirstMissing, kLastMissing, kNextVisible,
                                 kLastValuesSwapped, kOtherHead, kPreviousVisible}) {
    const FaultDirection& fault = FaultDirections()[direction];
    SimulatedKernel kernel(plan, {}, FaultyRules(direction, 0.01));
    const Verdict verdict = Judge(source, MemorySink(Answer(&kernel, c, inputs)));
    ASSERT_EQ(verdict.outcome, Outcome::kFail) << fault.name;
    const OutputVerdict& out = verdict.outputs[0];
    ASSERT_FALSE(out.hints.empty()) << fault.name;
    EXPECT_EQ(out.cause, fault.name) << out.hints[0];
    // The statistics see it too, in some head.
    EXPECT_TRUE(std::any_of(
        out.statistics->directions.begin(), out.statistics->directions.end(),
        [&](const DirectionStatistic& s) { return s.direction == fault.name && s.over; }))
        << fault.name;
  }
}

TEST(FaultDirection, RaisesNothingForACleanKernel) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      AttentionCase c = DirectionCase(type);
      c.data.seed = seed;
      const Plan plan = StatisticsPlan(type);
      const TensorMap inputs = GenerateInputs(Case(c), {});
      SimulatedKernel kernel(plan, {});
      const Verdict verdict =
          Judge(AttentionSource(c, {}, plan, inputs), MemorySink(Answer(&kernel, c, inputs)), {});
      const OutputVerdict& out = verdict.outputs[0];
      EXPECT_EQ(out.counts.failed, 0);
      EXPECT_TRUE(out.hints.empty());
      EXPECT_TRUE(out.statistics->over.empty()) << out.statistics->over[0];
      // Q of every head, directions of every head and of all together.
      EXPECT_EQ(out.statistics->tests,
                c.query_heads * static_cast<int64_t>(FaultDirections().size() + 1) +
                    static_cast<int64_t>(FaultDirections().size()));
    }
  }
}

TEST(FaultDirection, IsZeroAndNeverReportedWhereTheFaultDoesNotExist) {
  // One key/value head, and nothing hidden before the first key.
  AttentionCase c = DirectionCase(DType::kFloat32);
  c.kv_heads = 1;
  c.mask.window = std::nullopt;
  const Plan plan = StatisticsPlan(DType::kFloat32);
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, plan, inputs);
  const ExpectedTile tile = source.Tiles(0, {.statistics = true})[0];
  for (const size_t direction : {kOtherHead, kPreviousVisible}) {
    for (const double effect : tile.statistics->effect[direction]) EXPECT_EQ(effect, 0);
    for (const double variance : tile.statistics->variance[direction]) EXPECT_EQ(variance, 0);
  }
  for (const size_t fault : {kFirstMissing, kLastMissing, kScale}) {
    SimulatedKernel kernel(plan, {}, FaultyRules(fault, 0.01));
    const Verdict verdict = Judge(source, MemorySink(Answer(&kernel, c, inputs)));
    const OutputVerdict& out = verdict.outputs[0];
    for (const size_t direction : {kOtherHead, kPreviousVisible}) {
      const std::string_view name = FaultDirections()[direction].name;
      for (const DirectionFit& fit : out.fits) {
        EXPECT_TRUE(fit.direction != name || fit.explained_share == 0) << name;
      }
      for (const DirectionStatistic& s : out.statistics->directions) {
        EXPECT_TRUE(s.direction != name || (!s.over && s.z == 0)) << name;
      }
    }
  }
}

TEST(FaultDirection, ReadsTheTiledHeadOrTheNext) {
  AttentionCase c;
  c.query_heads = 6, c.kv_heads = 3;  // own heads 0 0 1 1 2 2, tiled 0 1 2 0 1 2
  const int64_t expected[] = {1, 1, 2, 0, 1, 0};
  for (int64_t h = 0; h < 6; ++h) EXPECT_EQ(OtherKvHead(c, h), expected[h]) << h;
  c.kv_heads = 1;
  EXPECT_EQ(OtherKvHead(c, 3), std::nullopt);
}

// Decoded a few keys at a time, another head gives what it gives as a whole.
TEST(FaultDirection, ReadsAnotherHeadAFewKeysAtATime) {
  for (const std::string text :
       {"attention b=2 hq=4 hkv=2 l=3 t=700 d=32 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:3",
        "attention b=2 hq=4 hkv=2 l=3 t=700 d=32 q=f16 k=q8_0 v=q4_0 out=f16 data=outlier:3",
        "attention b=2 hq=4 hkv=2 l=3 t=513 d=64 dv=32 q=f32 k=affine:4:g32:f16 v=f16 out=f32 "
        "mask=causal_bottom_right+window:300+additive:BHLT:f32 softcap=20 sinks=f32 data=gauss:5",
        "attention b=2 hq=4 hkv=2 l=3 t=40 d=32 q=bf16 k=bf16 v=bf16 out=bf16 data=dominant:3"}) {
    SCOPED_TRACE(text);
    const auto c = std::get<AttentionCase>(ParseCase(text));
    const Profile profile;
    const TensorMap inputs = GenerateInputs(Case(c), profile);
    const Arithmetic arithmetic = Resolve(ExactPlan(), profile, c);
    const MaskReader mask(c, profile, inputs);
    const HeadData own = LoadHead(c, profile, inputs, 1, 0, arithmetic.Detail());
    const HeadData other = LoadHead(c, profile, inputs, 1, 1, arithmetic.Detail());
    std::vector<double> all_q = Decoded(Get(inputs, "q"));
    for (int64_t l = 0; l < c.query_len; ++l) {
      const auto d = static_cast<size_t>(c.k_dim);
      const auto row = static_cast<size_t>(c.query_heads * c.query_len + l);
      RowContext context;
      context.c = &c, context.arithmetic = &arithmetic, context.profile = profile;
      context.head = &own;
      context.q = std::span(all_q).subspan(row * d, d);
      context.has_sink = c.sinks.has_value();
      context.sink = 2.5;
      OwnedQuestion owned;
      ASSERT_EQ(MakeQuestion(context, mask.Visible({1, 0, l}), &owned), RowKind::kEvaluate);
      RowQuestion question = owned.question;
      question.head = &other;
      const std::vector<double> whole = Evaluate<double>(question).o;
      const std::vector<double> parts = OutputOverHead(c, profile, inputs, 1, 1, owned.question);
      ASSERT_EQ(parts.size(), whole.size());
      // Scores are the same bits. Each of the two sums is off by its additions and by the
      // roundings of exp's arguments, which weigh nothing beyond kVanishes.
      const double roundings = static_cast<double>(question.keys.size()) + 8 + kVanishes;
      const double tolerance = 2 * 2 * roundings * 0x1p-53 * other.v_largest;
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_NEAR(parts[i], whole[i], tolerance) << l << " " << i;
      }
    }
  }
}

TEST(Statistics, KeepCleanKernelsInsideTheLimit) {
  double largest = 0;
  int heads = 0;
  for (DType type : {DType::kBFloat16, DType::kFloat16}) {
    for (std::string_view regime :
         {"gauss", "outlier", "sink", "same_sign", "constant", "equal", "duplicated", "dominant"}) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const AttentionCase c = StatisticsCase(type, regime, 64 + 65 * (seed % 2), 2, seed);
        largest = std::max(largest, LargestHeadScore(c, StatisticsPlan(type)));
        heads += 4;
      }
    }
  }
  EXPECT_GE(heads, 320);
  EXPECT_LT(largest, StatisticsLimit());
  EXPECT_GT(largest, 1) << "the errors are not zero";
}

// The denominator that holds rounded weights holds the sink's, too.
TEST(Statistics, KeepCleanKernelsWithSinksInsideTheLimit) {
  const Plan plan = ParsePlan(
      "qk=f32:lanes:16:fma pv=f32:lanes:16:fma l=f32:lanes:16 op=f32 scale_roundings=1 "
      "prescale=none "
      "scores=f32 exp=exp exp_error=2^-23 exp_floor=2^-126 lazy_rescale=0 block=64 p_scale=1 "
      "p_normalised=no merge=none splits=1 normalise=divide saturate=no flush=no sink=last "
      "bias_roundings=0 p=bf16 l_from=rounded");
  for (const char* lengths : {"l=64 t=4", "l=32 t=32", "l=16 t=256"}) {
    const AttentionCase c = std::get<AttentionCase>(
        ParseCase(std::string("attention b=1 hq=4 hkv=4 ") + lengths +
                  " d=64 dv=64 q=bf16 k=bf16 v=bf16 out=bf16 sinks=f32 data=gauss:1"));
    EXPECT_LT(LargestHeadScore(c, plan), StatisticsLimit()) << lengths;
  }
}

// Where some outputs may leave the type that they pass through, the others of the row are asked.
TEST(Statistics, LeaveOutTheChannelsThatMayOverflow) {
  const AttentionCase c = std::get<AttentionCase>(ParseCase(
      "attention hq=2 hkv=1 l=8 t=40 d=16 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
      "data=gauss:5"));
  TensorMap inputs = GenerateInputs(Case(c), {});
  const auto large = [](size_t channel) { return channel % 16 == 3 || channel % 16 == 9; };
  float* v = inputs.at("v").As<float>();
  for (size_t i = 0; i < 40 * 16; ++i) v[i] = large(i) ? 1e5F + v[i] : v[i];
  const Plan plan = ParsePlan("plain_f32 through=f16");
  SimulatedKernel kernel(plan, {});
  const AttentionSource source(c, {}, plan, inputs);
  const ExpectedTile tile = source.Tiles(0, {.statistics = true, .every_row = true})[0];
  ASSERT_EQ(tile.row_count, 16);
  for (size_t row = 0; row < 16; ++row) EXPECT_EQ(tile.statistics->taken[row], 1) << row;
  for (size_t i = 0; i < tile.value.size(); ++i) {
    EXPECT_EQ(tile.statistics->sigma_squared[i] > 0, !large(i)) << i;
  }
  const Verdict right = Judge(source, MemorySink(Answer(&kernel, c, inputs)));
  EXPECT_EQ(right.outcome, Outcome::kPass) << (right.reasons.empty() ? "" : right.reasons[0]);
  ASSERT_TRUE(right.outputs[0].statistics);
  EXPECT_EQ(right.outputs[0].statistics->skipped_elements, 0);
  EXPECT_FALSE(right.outputs[0].statistics->directions.empty());
  // All of them: no statistics.
  for (size_t i = 0; i < 40 * 16; ++i) v[i] = 1e5F;
  const AttentionSource none(c, {}, plan, inputs);
  const ExpectedTile without = none.Tiles(0, {.statistics = true, .every_row = true})[0];
  for (size_t row = 0; row < 16; ++row) EXPECT_EQ(without.statistics->taken[row], 0) << row;
}

TEST(Statistics, SeeAOnePercentErrorOfTheTemperature) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const AttentionCase c = StatisticsCase(DType::kBFloat16, "gauss", 256, 16, seed);
    AttentionRules rules;
    rules.scale = [](const AttentionCase& x) { return x.scale * 1.01; };
    EXPECT_GT(LargestHeadScore(c, StatisticsPlan(DType::kBFloat16), rules), StatisticsLimit());
  }
}

// Whatever a plan leaves unsaid or counts at its largest, its rows take part, and a fault that is
// large beside all of that shows.
TEST(Statistics, HoldForEveryPlan) {
  AttentionRules rules;
  rules.scale = [](const AttentionCase& x) { return x.scale * 1.5; };
  std::vector<std::pair<std::string, Plan>> plans;
  for (const KnownPlan& known : KnownPlans()) {
    plans.emplace_back(known.name, ParsePlan("base=" + std::string(known.name)));
  }
  Plan low_scores = StatisticsPlan(DType::kBFloat16);
  low_scores.scores = DType::kBFloat16;
  plans.emplace_back("scores=bf16", low_scores);
  Plan truncating = StatisticsPlan(DType::kBFloat16);
  truncating.op->toward_zero = true;
  plans.emplace_back("op=f32.rz", truncating);
  const AttentionCase c = StatisticsCase(DType::kBFloat16, "gauss", 64, 16, 0);
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(StatisticsPlan(DType::kBFloat16), {}, rules);
  MemorySink sink;
  kernel.Run(Case(c), inputs, sink);
  int64_t taken = 0;
  for (const auto& [name, plan] : plans) {
    JudgeOptions options;
    options.explain = false;
    std::optional<AttentionSource> source;
    try {
      source.emplace(c, Profile(), plan, inputs);
    } catch (const Error&) {
      continue;  // a plan of another type or of codes
    }
    const Verdict verdict = Judge(*source, sink, options);
    const auto& statistics = verdict.outputs[0].statistics;
    ASSERT_TRUE(statistics.has_value()) << name;
    EXPECT_EQ(statistics->skipped_elements, 0) << name;
    // Under sums in bf16 the proven bound is no smaller than the fault.
    EXPECT_TRUE(!statistics->over.empty() || verdict.outcome == Outcome::kMistrusted) << name;
    ++taken;
  }
  EXPECT_GT(taken, 10);
}

}  // namespace
}  // namespace kvcheck
