// The tiles of an attention case: every row once, the same bits twice, nothing of what is
// invisible, and every convention that a case or plan can ask for.

#include "reference/attention/attention_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <set>

#include "fuzz/draw_attention.h"
#include "reference/judge/judge.h"
#include "reference/numerics/oracle.h"
#include "tests/reference/attention/judge_run.h"
#include "tests/reference/numerics/special_doubles.h"

namespace kvcheck {
namespace {

Plan PlainPlan() { return ParsePlan("base=plain_f32 block=all"); }

AttentionCase SmallCase() {
  AttentionCase c;
  c.batch = 2, c.query_heads = 6, c.kv_heads = 2, c.query_len = 17, c.kv_len = 33;
  c.k_dim = 9, c.v_dim = 5;
  c.data = {.regime = "gauss", .seed = 4, .file_hash = ""};
  return c;
}

void Poke(TensorMap* inputs, const std::string& name, size_t element, double value) {
  Tensor& tensor = inputs->at(name);
  EncodeFrom(std::vector<double>{value}, tensor.dtype,
             tensor.bytes.data() + element * SizeInBytes(tensor.dtype));
}

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
           return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
         });
}

TEST(AttentionSource, CoversEveryRowExactlyOnceAndRepeatsItself) {
  AttentionCase c = SmallCase();
  c.lse = LseKind::kNatural;
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const AttentionSource source(c, {}, {}, inputs);
  std::vector<std::multiset<int64_t>> rows(source.Outputs().size());
  const TileRequest request = {.precision = Precision::kDouble, .terms = true, .statistics = true};
  for (int64_t index = 0; index < source.TileCount(); ++index) {
    const auto tiles = source.Tiles(index, request), again = source.Tiles(index, request);
    for (size_t i = 0; i < tiles.size(); ++i) {
      for (int64_t r = 0; r < tiles[i].row_count; ++r) {
        rows[static_cast<size_t>(tiles[i].output)].insert(tiles[i].first_row + r);
      }
      EXPECT_TRUE(SameBits(tiles[i].value, again[i].value));
      EXPECT_TRUE(SameBits(tiles[i].bound, again[i].bound));
      EXPECT_TRUE(SameBits(tiles[i].reference_bound, again[i].reference_bound));
      if (!tiles[i].statistics) continue;
      EXPECT_TRUE(SameBits(tiles[i].statistics->variance[0], again[i].statistics->variance[0]));
    }
  }
  for (const auto& seen : rows) {
    ASSERT_EQ(seen.size(), static_cast<size_t>(2 * 6 * 17));
    int64_t expected = 0;
    for (int64_t row : seen) EXPECT_EQ(row, expected++);
  }
}

// Values and bounds of all tiles, one after another.
std::vector<double> AllNumbers(const AttentionCase& c, const Profile& profile, const Plan& plan,
                               const TensorMap& inputs) {
  const AttentionSource source(c, profile, plan, inputs);
  std::vector<double> numbers;
  for (int64_t index = 0; index < source.TileCount(); ++index) {
    for (const ExpectedTile& tile : source.Tiles(index, {})) {
      for (const auto* part : {&tile.value, &tile.value_lo, &tile.bound, &tile.reference_bound}) {
        numbers.insert(numbers.end(), part->begin(), part->end());
      }
      for (Standing standing : tile.standing) numbers.push_back(static_cast<double>(standing));
    }
  }
  return numbers;
}

TEST(AttentionSource, IgnoresWhatNoQuerySees) {
  for (const bool maximum_over_all : {false, true}) {
    AttentionCase c = SmallCase();
    c.mask.left_padding = {5, 0};
    c.mask.array = MaskArrayKind::kAdditive;
    c.mask.axes = MaskAxes::kB11T;
    Profile profile;
    profile.maximum_over_all = maximum_over_all;
    TensorMap inputs = GenerateInputs(Case(c), profile);
    // Column 20 of batch row 1 is hidden by -inf, columns 0..4 of batch row 0 are padding.
    Poke(&inputs, "mask", 33 + 20, -kInfinity);
    const std::vector<double> clean = AllNumbers(c, profile, PlainPlan(), inputs);
    for (double poison : {kNan, kInfinity}) {
      TensorMap poisoned = inputs;
      for (size_t h = 0; h < 2; ++h) {
        for (size_t j = 0; j < 5 && !maximum_over_all; ++j) {
          for (size_t i = 0; i < 9; ++i) Poke(&poisoned, "k", (h * 33 + j) * 9 + i, poison);
          for (size_t i = 0; i < 5; ++i) Poke(&poisoned, "v", (h * 33 + j) * 5 + i, poison);
        }
        Poke(&poisoned, "k", ((2 + h) * 33 + 20) * 9, poison);
        Poke(&poisoned, "v", ((2 + h) * 33 + 20) * 5, poison);
      }
      EXPECT_TRUE(SameBits(clean, AllNumbers(c, profile, PlainPlan(), poisoned)));
    }
  }
}

TEST(AttentionSource, DoesNotJudgeRowsWithVisibleNanInKOrChannelsWithItInV) {
  AttentionCase c = SmallCase();
  c.mask.causal = CausalAlignment::kBottomRight;
  for (const char* name : {"k", "v"}) {
    const TensorMap clean = GenerateInputs(Case(c), {});
    const ExpectedTile right = AttentionSource(c, {}, {}, clean).Tiles(0, {})[0];
    for (const double poison : {kNan, kInfinity}) {
      TensorMap inputs = clean;
      // Column 30 of batch 0, head 0: seen by queries 14 and later.
      const bool is_key = name[0] == 'k';
      Poke(&inputs, name, size_t{30} * (is_key ? 9U : 5U), poison);
      const ExpectedTile tile = AttentionSource(c, {}, {}, inputs).Tiles(0, {})[0];
      for (int64_t r = 0; r < tile.row_count; ++r) {
        const int64_t query = (tile.first_row + r) % c.query_len;
        const auto row = static_cast<size_t>(r);
        // Channel 0 of K times a negative query is a score of -inf, which weighs nothing.
        std::vector<double> q(1);
        DecodeTo(Get(inputs, "q"), (tile.first_row + r) * 9, q);
        const bool weighs = std::isnan(poison) || !(q[0] * c.scale < 0);
        EXPECT_EQ(tile.standing[row],
                  is_key && query >= 14 && weighs ? Standing::kUndefined : Standing::kJudged);
        for (size_t channel = 0; !is_key && channel < 5; ++channel) {
          const size_t at = row * 5 + channel;
          const bool open = channel == 0 && query >= 14;
          EXPECT_EQ(tile.undefined[at] != 0, open);
          if (open) continue;
          EXPECT_EQ(tile.value[at], right.value[at]);
          EXPECT_EQ(tile.bound[at], right.bound[at]);
        }
      }
    }
  }
}

TEST(AttentionSource, ANanInOneChannelOfVDoesNotFreeTheOthers) {
  AttentionCase c = SmallCase();
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (const size_t head : {0U, 1U, 2U, 3U}) Poke(&inputs, "v", head * 33 * 5 + 2, kNan);
  const AttentionSource source(c, {}, PlainPlan(), inputs);
  SimulatedKernel kernel(PlainPlan(), {});
  TensorMap answer = Answer(&kernel, c, inputs);
  const Verdict right = Judge(source, MemorySink(TensorMap(answer)));
  EXPECT_EQ(right.outcome, Outcome::kPass);
  EXPECT_EQ(right.outputs[0].counts.undefined, 2 * 6 * 17);
  EXPECT_EQ(right.outputs[0].counts.judged, 4 * 2 * 6 * 17);
  std::fill(answer.at("out").bytes.begin(), answer.at("out").bytes.end(), std::byte{0});
  const Verdict zeros = Judge(source, MemorySink(TensorMap(answer)));
  EXPECT_EQ(zeros.outcome, Outcome::kFail);
  EXPECT_EQ(zeros.outputs[0].counts.failed, zeros.outputs[0].counts.judged);
}

TEST(AttentionSource, NanInAllOfVDoesNotFreeTheLogSumExp) {
  AttentionCase c = SmallCase();
  c.lse = LseKind::kNatural;
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (size_t i = 0; i < 5; ++i) Poke(&inputs, "v", i, kNan);
  const auto tiles = AttentionSource(c, {}, PlainPlan(), inputs).Tiles(0, {});
  EXPECT_EQ(tiles[0].standing[0], Standing::kUndefined);
  EXPECT_EQ(tiles[1].standing[0], Standing::kJudged);
  EXPECT_GT(tiles[1].bound[0], 0);
}

TEST(AttentionSource, AnOverflowInOneChannelOfVDoesNotFreeTheOthers) {
  AttentionCase c = SmallCase();
  TensorMap inputs = GenerateInputs(Case(c), {});
  Poke(&inputs, "v", 2, 3.4e38);  // 33 keys of that size overflow f32
  const AttentionSource source(c, {}, PlainPlan(), inputs);
  SimulatedKernel kernel(PlainPlan(), {});
  TensorMap answer = Answer(&kernel, c, inputs);
  EXPECT_EQ(Judge(source, MemorySink(TensorMap(answer))).outcome, Outcome::kMistrusted);
  std::fill(answer.at("out").bytes.begin(), answer.at("out").bytes.end(), std::byte{0});
  EXPECT_EQ(Judge(source, MemorySink(TensorMap(answer))).outcome, Outcome::kFail);
}

TEST(AttentionSource, ReadsTheHeadOfItsGroupAndValuesOfTheirOwnLength) {
  const AttentionCase c = SmallCase();
  const TensorMap inputs = GenerateInputs(Case(c), {});
  const std::vector<double> q = Decoded(inputs.at("q")), k = Decoded(inputs.at("k")),
                            v = Decoded(inputs.at("v"));
  const AttentionSource source(c, {}, {}, inputs);
  for (int64_t index = 0; index < source.TileCount(); ++index) {
    const ExpectedTile tile = source.Tiles(index, {})[0];
    for (int64_t r = 0; r < tile.row_count; ++r) {
      const int64_t row = tile.first_row + r;
      const int64_t head = row / 17 % 6, batch = row / 17 / 6;
      const auto kv = static_cast<size_t>(batch * 2 + head / 3);
      long double total = 0, sum = 0;
      for (size_t j = 0; j < 33; ++j) {
        long double dot = 0;
        for (size_t i = 0; i < 9; ++i) {
          dot += static_cast<long double>(q[static_cast<size_t>(row) * 9 + i]) *
                 k[(kv * 33 + j) * 9 + i];
        }
        const long double weight = std::exp(dot * c.scale);
        total += weight;
        sum += weight * v[(kv * 33 + j) * 5 + 4];
      }
      // The plain sums have the roundings that reference_bound counts, each 2^-11 times as large,
      // and none of a shift; they are rounded to double at the end.
      const size_t at = static_cast<size_t>(r) * 5 + 4;
      const auto plain = static_cast<double>(sum / total);
      EXPECT_NEAR(tile.value[at], plain,
                  tile.reference_bound[at] * (1 + 0x1p-10) + 0x1p-53 * std::fabs(plain));
    }
  }
}

struct ChannelCase {
  AttentionCase c;
  TensorMap inputs;
};

// One query, one channel: scores q k_j, values v_j.
ChannelCase OneChannel(const std::vector<double>& k, const std::vector<double>& v, DType out) {
  ChannelCase tiny;
  tiny.c.kv_len = static_cast<int64_t>(k.size());
  tiny.c.k_dim = tiny.c.v_dim = 1;
  tiny.c.out = out;
  tiny.c.scale = 1;
  tiny.c.data.regime = "file";
  tiny.inputs = {{"q", Tensor(DType::kFloat32, InputSpecs(Case(tiny.c)).at("q").shape)},
                 {"k", Tensor(DType::kFloat32, InputSpecs(Case(tiny.c)).at("k").shape)},
                 {"v", Tensor(DType::kFloat32, InputSpecs(Case(tiny.c)).at("v").shape)}};
  Poke(&tiny.inputs, "q", 0, 1);
  for (size_t j = 0; j < k.size(); ++j) {
    Poke(&tiny.inputs, "k", j, k[j]);
    Poke(&tiny.inputs, "v", j, v[j]);
  }
  return tiny;
}

TEST(AttentionSource, AllowsInfinityWhereF16Overflows) {
  for (double sign : {1.0, -1.0}) {
    const ChannelCase tiny = OneChannel({0}, {sign * 65519.996}, DType::kFloat16);
    const ExpectedTile tile = AttentionSource(tiny.c, {}, PlainPlan(), tiny.inputs).Tiles(0, {})[0];
    ASSERT_EQ(tile.alternatives.size(), 1u);
    EXPECT_EQ(tile.alternatives[0].value, sign * kInfinity);
    const ChannelCase small = OneChannel({0}, {sign * 65400}, DType::kFloat16);
    EXPECT_TRUE(AttentionSource(small.c, {}, PlainPlan(), small.inputs)
                    .Tiles(0, {})[0]
                    .alternatives.empty());
    Plan saturating = PlainPlan();
    saturating.saturate_output = true;
    const ChannelCase beyond = OneChannel({0}, {sign * 1e6}, DType::kFloat16);
    const ExpectedTile clamped =
        AttentionSource(beyond.c, {}, saturating, beyond.inputs).Tiles(0, {})[0];
    EXPECT_EQ(clamped.value[0], sign * 65504);
    EXPECT_TRUE(clamped.alternatives.empty());
  }
}

TEST(AttentionSource, GivesTheLogSumExpInBothBases) {
  ChannelCase tiny = OneChannel({0, 0, 0, 0}, {1, 2, 3, 4}, DType::kFloat32);
  tiny.c.lse = LseKind::kNatural;
  const auto natural = AttentionSource(tiny.c, {}, PlainPlan(), tiny.inputs).Tiles(0, {});
  // The library's log is within an ulp, 2^-52 between 1 and 2.
  EXPECT_NEAR(natural[1].value[0], std::log(4.0), natural[1].reference_bound[0] + 0x1p-52);
  tiny.c.lse = LseKind::kBase2;
  const auto base2 = AttentionSource(tiny.c, {}, PlainPlan(), tiny.inputs).Tiles(0, {});
  EXPECT_NEAR(base2[1].value[0], 2, base2[1].reference_bound[0]);
  EXPECT_GT(base2[1].bound[0], natural[1].bound[0]);
}

TEST(AttentionSource, LetsASinkStandAlone) {
  ChannelCase tiny = OneChannel({0, 0}, {1, 2}, DType::kFloat32);
  tiny.c.sinks = DType::kFloat32;
  tiny.c.lse = LseKind::kNatural;
  tiny.c.mask.array = MaskArrayKind::kBoolean;
  tiny.c.mask.axes = MaskAxes::kT;
  tiny.inputs["sinks"] = Tensor(DType::kFloat32, InputSpecs(Case(tiny.c)).at("sinks").shape);
  Poke(&tiny.inputs, "sinks", 0, -2.5);
  tiny.inputs["mask"] = Tensor(DType::kBool, InputSpecs(Case(tiny.c)).at("mask").shape);
  const auto alone = AttentionSource(tiny.c, {}, PlainPlan(), tiny.inputs).Tiles(0, {});
  EXPECT_EQ(alone[0].value[0], 0);
  EXPECT_EQ(alone[0].bound[0], 0);
  EXPECT_EQ(alone[1].value[0], -2.5);
  Poke(&tiny.inputs, "mask", 1, 1);
  const auto both = AttentionSource(tiny.c, {}, PlainPlan(), tiny.inputs).Tiles(0, {});
  // exp within an ulp, a sum and a quotient: four half ulps.
  const double mean = 2 / (1 + std::exp(-2.5));
  EXPECT_NEAR(both[0].value[0], mean, both[0].reference_bound[0] + 4 * 0x1p-53 * mean);
}

AttentionCase AffineCase() {
  AttentionCase c;
  c.query_heads = 2, c.kv_heads = 1, c.query_len = 2, c.kv_len = 17, c.k_dim = c.v_dim = 64;
  c.q = DType::kFloat16, c.out = DType::kFloat32;
  c.k = AffineFormat{4, 32, DType::kFloat16};
  c.v = AffineFormat{8, 64, DType::kFloat16};
  c.data = {.regime = "gauss", .seed = 9, .file_hash = ""};
  return c;
}

Plan AffinePlan(std::string_view dequantize) {
  return ParsePlan(
      "qk=f32:sequential pv=f32:sequential l=f32:sequential op=f32 scale_roundings=2 "
      "prescale=none scores=f32 exp=exp exp_error=2^-23 exp_floor=2^-126 lazy_rescale=0 block=all "
      "p=f32 p_scale=1 p_normalised=no merge=none splits=1 normalise=divide flush=no saturate=no "
      "dequantize=" +
      std::string(dequantize));
}

TEST(AttentionSource, JudgesAffineCodesUnderEveryDecoderAndPlan) {
  const AttentionCase c = AffineCase();
  std::vector<double> values[3];
  size_t i = 0;
  for (DecodeRounding decode :
       {DecodeRounding::kExact, DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
    Profile profile;
    profile.decode = decode;
    const TensorMap inputs = GenerateInputs(Case(c), profile);
    values[i++] = AttentionSource(c, profile, AffinePlan("stored"), inputs).Tiles(0, {})[0].value;
    for (std::string_view dequantize :
         {"stored", "inside:1", "inside:2", "factored", "rounded:f16"}) {
      const Plan plan = AffinePlan(dequantize);
      EXPECT_EQ(RunAndJudge(c, profile, plan, plan).violations, 0) << dequantize;
    }
  }
  EXPECT_NE(values[0], values[1]);
  EXPECT_NE(values[1], values[2]);
  // Rounding that the plan does not tell is found.
  EXPECT_GT(RunAndJudge(c, {}, AffinePlan("inside:2"), AffinePlan("rounded:f16")).violations, 0);
  EXPECT_GT(RunAndJudge(c, {}, AffinePlan("inside:2"), AffinePlan("rounded:bf16")).violations, 0);
}

TEST(AttentionSource, AddsTheCodecsErrorAgainstOriginals) {
  AttentionCase c = AffineCase();
  Profile profile;
  profile.decode = DecodeRounding::kTwoRoundings;
  c.against_original = true;
  const JudgedRun run = RunAndJudge(c, profile, AffinePlan("stored"), AffinePlan("stored"));
  EXPECT_EQ(run.violations, 0) << run.first;
  EXPECT_GT(run.largest_ratio, 0.01) << "the codec's error is worst case, not absurd";
  const TensorMap inputs = GenerateInputs(Case(c), profile);
  const ExpectedTile tile =
      AttentionSource(c, profile, AffinePlan("stored"), inputs).Tiles(0, {.terms = true})[0];
  for (size_t at = 0; at < tile.bound.size(); ++at) {
    EXPECT_GT(tile.terms[kCodecTerm][at], 0);
    EXPECT_LE(tile.terms[kCodecTerm][at], tile.bound[at]);
  }
}

// What a plan that says nothing, and plans beside which some readings mean nothing, ask for.
TEST(AttentionSource, ReadingsThatContradictThePlanAreLeftOut) {
  AttentionCase c = SmallCase();
  c.k = c.v = AffineFormat{8, 32, DType::kFloat32};
  c.k_dim = c.v_dim = 32;
  const TensorMap coded = GenerateInputs(Case(c), {});
  for (const char* plan : {"", "dequantize=factored fixed_q=2^-23 fixed_p=2^-23",
                           "dequantize=inside:1 integer_qk=affine:8:g32:f32"}) {
    const AttentionSource source(c, {}, ParsePlan(plan), coded);
    int made = 0;
    for (const OtherReading& reading : source.OtherReadings(0)) {
      for (const auto& make : reading.sources) made += make() != nullptr ? 1 : 0;
    }
    EXPECT_GT(made, 3) << plan;
  }
}

// The last of three queries sees no key.
TEST(AttentionSource, TheLseOfAQueryWithoutKeysIsJudged) {
  AttentionCase c = std::get<AttentionCase>(
      ParseCase("attention hq=1 hkv=1 l=3 t=5 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1"));
  TensorMap inputs = GenerateInputs(Case(c), {});
  c.mask.array = MaskArrayKind::kBoolean;
  c.mask.axes = MaskAxes::kLT;
  Tensor mask(DType::kBool, {{"L", 3}, {"T", 5}});
  std::fill_n(mask.bytes.begin(), 10, std::byte{1});
  inputs["mask"] = mask;
  for (const LseKind kind : {LseKind::kNatural, LseKind::kBase2}) {
    c.lse = kind;
    for (const char* profile : {"", "masked_row=nan", "masked_row=mean", "masked_row=any"}) {
      const AttentionSource source(c, ParseProfile(profile), ParsePlan("base=plain_f32"), inputs);
      const auto tiles = source.Tiles(0, {});
      Tensor out(c.out, source.Outputs()[0].shape), lse(DType::kFloat32, source.Outputs()[1].shape);
      EncodeFrom(tiles[0].value, out.dtype, out.bytes.data());
      std::vector<double> values = tiles[1].value;
      const std::string text = profile;
      const bool is_judged = text.empty() || text == "masked_row=nan";
      const std::vector<std::pair<double, bool>> asked = {{-kInfinity, true},
                                                          {kInfinity, true},
                                                          {0, true},
                                                          {-5e4, true},
                                                          {5, false},
                                                          {-100, false},
                                                          {kNan, text == "masked_row=nan"}};
      for (const auto& [value, is_right] : asked) {
        values[2] = value;
        EncodeFrom(values, lse.dtype, lse.bytes.data());
        const Verdict verdict = Judge(source, MemorySink(TensorMap{{"out", out}, {"lse", lse}}));
        const OutputVerdict& judged = verdict.outputs.at(1);
        EXPECT_EQ(judged.outcome, is_right || !is_judged ? Outcome::kPass : Outcome::kFail)
            << text << " " << value;
        EXPECT_EQ(judged.counts.judged, is_judged ? 3 : 2) << text << " " << value;
        const bool is_other = is_judged && is_right && value != -kInfinity;
        EXPECT_EQ(judged.alternatives.size(), is_other ? 1u : 0u) << text << " " << value;
        for (const ReasonCount& other : judged.alternatives) EXPECT_EQ(other.reason, kLseOfOthers);
      }
    }
  }
}

// A row that is asked again for its output keeps what its log-sum-exp may be besides.
TEST(AttentionSource, TheLseOfAQueryWithoutKeysStandsBesideAWrongOutput) {
  AttentionCase c = std::get<AttentionCase>(ParseCase(
      "attention hq=1 hkv=1 l=3 t=5 d=8 q=f32 k=f32 v=f32 out=f32 lse=natural data=gauss:1"));
  TensorMap inputs = GenerateInputs(Case(c), {});
  c.mask.array = MaskArrayKind::kBoolean;
  c.mask.axes = MaskAxes::kLT;
  Tensor mask(DType::kBool, {{"L", 3}, {"T", 5}});
  std::fill_n(mask.bytes.begin(), 10, std::byte{1});
  inputs["mask"] = mask;
  const AttentionSource source(c, {}, ParsePlan("base=plain_f32"), inputs);
  const auto tiles = source.Tiles(0, {});
  Tensor out(c.out, source.Outputs()[0].shape), lse(DType::kFloat32, source.Outputs()[1].shape);
  EncodeFrom(tiles[0].value, out.dtype, out.bytes.data());
  out.As<float>()[2 * 8] = 1;  // of the last query, where 0 is expected
  std::vector<double> values = tiles[1].value;
  values[2] = -5e4;
  EncodeFrom(values, lse.dtype, lse.bytes.data());
  const Verdict verdict = Judge(source, MemorySink(TensorMap{{"out", out}, {"lse", lse}}));
  EXPECT_EQ(verdict.outputs.at(0).counts.failed, 1);
  EXPECT_EQ(verdict.outputs.at(1).outcome, Outcome::kPass);
}

// A range without keys in a merge of partial results: q = 1, k the log-sum-exps, v the outputs.
TEST(AttentionSource, AKeyOfMinusInfinityWeighsNothing) {
  const auto c =
      std::get<AttentionCase>(ParseCase("attention hq=1 hkv=1 l=1 t=4 d=1 dv=2 q=f32 k=f32 v=f32 "
                                        "out=f32 scale=1 lse=natural data=file"));
  const float none = -std::numeric_limits<float>::infinity();
  const auto tiles = [&](std::vector<float> keys) {
    TensorMap inputs;
    for (const auto& [name, spec] : InputSpecs(Case(c))) {
      inputs[name] = Tensor(spec.dtype, spec.shape);
      const auto count = static_cast<size_t>(inputs[name].ElementCount());
      for (size_t i = 0; i < count; ++i) {
        inputs[name].As<float>()[i] = name == "k"   ? keys[i]
                                      : name == "v" ? static_cast<float>(i)
                                                    : 1.0F;
      }
    }
    return AttentionSource(c, {}, ParsePlan("base=plain_f32"), inputs).Tiles(0, {});
  };
  const std::vector<ExpectedTile> with = tiles({1, none, 2, none});
  ASSERT_EQ(with[0].standing[0], Standing::kJudged);
  const double weight = 1 / (1 + std::exp(1.0));  // of the first; V is 0, 1 and 4, 5
  EXPECT_NEAR(with[0].value[0], 4 * (1 - weight), with[0].bound[0]);
  EXPECT_NEAR(with[1].value[0], 2 + std::log1p(std::exp(-1.0)), with[1].bound[0]);
  EXPECT_NE(tiles({none, none, none, none})[0].standing[0], Standing::kJudged);
  EXPECT_NE(tiles({1, std::nanf(""), 2, none})[0].standing[0], Standing::kJudged);
  EXPECT_NE(tiles({1, -none, 2, none})[0].standing[0], Standing::kJudged);
}

}  // namespace
}  // namespace kvcheck
