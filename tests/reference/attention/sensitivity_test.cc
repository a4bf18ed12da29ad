// What a comparison must have seen to prove anything: values that are alike, keys that weigh
// nothing, rows of one key; and the verdict about them.

#include "reference/attention/sensitivity.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/judge/judge.h"
#include "reference/judge/tensor_source.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

// The simulated kernel's own answer, judged.
Verdict Judged(const AttentionCase& c, const TensorMap& inputs, const AttentionRules& rules = {}) {
  const Plan plan = ParsePlan("base=plain_f32 block=all");
  SimulatedKernel kernel(plan, {}, rules);
  MemorySink sink;
  kernel.Run(Case(c), inputs, sink);
  return Judge(AttentionSource(c, {}, plan, inputs), sink);
}

Verdict Judged(const std::string& text) {
  const AttentionCase c = CaseOf(text);
  return Judged(c, GenerateInputs(Case(c), {}));
}

void Poke(Tensor* tensor, size_t element, double value) {
  EncodeFrom(std::vector<double>{value}, tensor->dtype,
             tensor->bytes.data() + element * SizeInBytes(tensor->dtype));
}

TEST(Sensitivity, ValuesThatAreAllAlikeProveNothing) {
  for (const char* mask : {"", "mask=causal_bottom_right ", "mask=window:3 ", "mask=left_pad:5 "}) {
    for (const char* lengths : {"l=4 t=16", "l=16 t=16", "l=1 t=16", "l=2 t=6"}) {
      const std::string text = std::string("attention hq=2 hkv=1 ") + lengths +
                               " d=8 q=f32 k=f32 v=f32 out=f32 " + mask + "data=constant:1";
      const Verdict verdict = Judged(text);
      if (verdict.outputs[0].rows_with_inputs == 0) continue;
      EXPECT_EQ(verdict.outcome, Outcome::kMistrusted) << text;
      EXPECT_NE(verdict.reasons[0].find("0 % of the inputs"), std::string::npos) << text;
    }
  }
}

TEST(Sensitivity, DataThatTellKeysApartProveSomething) {
  for (const char* data : {"gauss", "sink", "same_sign", "equal", "duplicated", "dominant"}) {
    const Verdict verdict =
        Judged(std::string("attention hq=2 hkv=1 l=8 t=8 d=8 q=f32 k=f32 v=f32 out=f32 "
                           "mask=causal_bottom_right data=") +
               data + ":1");
    EXPECT_EQ(verdict.outcome, Outcome::kPass) << data;
    EXPECT_EQ(verdict.outputs[0].blind_rows, 0) << data;
  }
}

TEST(Sensitivity, TheOnlyKeyCouldBeAnother) {
  // One visible key of several: reading another one would show.
  const std::string diagonal =
      "attention hq=1 hkv=1 l=8 t=8 d=8 q=f32 k=f32 v=f32 out=f32 "
      "mask=causal_bottom_right+window:1 data=";
  EXPECT_EQ(Judged(diagonal + "gauss:1").outcome, Outcome::kPass);
  EXPECT_EQ(Judged(diagonal + "constant:1").outcome, Outcome::kMistrusted);
  // The only key there is: nothing in its place would show.
  const std::string single = "attention hq=1 hkv=1 l=1 t=1 d=8 q=f32 k=f32 v=f32 out=f32 data=";
  EXPECT_EQ(Judged(single + "constant:1").outcome, Outcome::kPass);
  EXPECT_EQ(Judged(single + "zeros:1").outcome, Outcome::kMistrusted);
}

TEST(Sensitivity, ASinkTellsKeysOfEqualValueApart) {
  EXPECT_EQ(Judged("attention hq=1 hkv=1 l=4 t=8 d=8 q=f32 k=f32 v=f32 out=f32 sinks=f32 "
                   "data=constant:1")
                .outcome,
            Outcome::kPass);
}

TEST(Sensitivity, BlindHeadsAreNamedBesideOthers) {
  const AttentionCase c =
      CaseOf("attention hq=4 hkv=2 l=3 t=8 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1");
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (size_t i = 0; i < 8 * 8; ++i) Poke(&inputs.at("v"), 8 * 8 + i, 1);
  const Verdict verdict = Judged(c, inputs);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.outputs[0].rows_with_inputs, 12);
  EXPECT_EQ(verdict.outputs[0].blind_rows, 6);
  EXPECT_EQ(verdict.outputs[0].blind_where, "b=0 hq=2, b=0 hq=3");
}

// Two of four heads have scores of hundreds of thousands, where f32 sums leave nothing of the
// weights: negated or never written, they are inside their bound.
TEST(Sensitivity, AVacuousHeadIsNotCoveredByOthers) {
  const AttentionCase c =
      CaseOf("attention hq=4 hkv=4 l=16 t=9 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:1");
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (const char* name : {"q", "k"}) {
    Tensor& tensor = inputs.at(name);
    std::vector<double> values = Decoded(tensor);
    const size_t half = values.size() / 2;
    for (size_t i = 0; i < half; ++i) values[i] *= 300;
    EncodeFrom(values, tensor.dtype, tensor.bytes.data());
  }
  const Plan plan = ParsePlan("base=stranger");
  const AttentionSource source(c, {}, plan, inputs);
  std::vector<double> right;
  for (int64_t i = 0; i < source.TileCount(); ++i) {
    const ExpectedTile tile = source.Tiles(i, {})[0];
    right.insert(right.end(), tile.value.begin(), tile.value.end());
  }
  for (const double factor : {1.0, -1.0, 0.0}) {
    std::vector<double> got = right;
    for (size_t i = 0; i < got.size() / 2; ++i) got[i] *= factor;
    Tensor out(c.out, source.Outputs()[0].shape);
    EncodeFrom(got, out.dtype, out.bytes.data());
    const Verdict verdict = Judge(source, MemorySink(TensorMap{{"out", out}}));
    EXPECT_EQ(verdict.outcome, Outcome::kMistrusted) << factor;
    const std::string reason = verdict.reasons.empty() ? "" : verdict.reasons.front();
    EXPECT_NE(reason.find("b=0 hq=0"), std::string::npos) << reason;
    EXPECT_EQ(reason.find("hq=2"), std::string::npos) << reason;
  }
}

// As above, one head, of which the mask leaves one row.
TEST(Sensitivity, AVacuousRowIsNotCoveredByMaskedOnes) {
  const AttentionCase c = CaseOf(
      "attention hq=1 hkv=1 l=16 t=9 d=64 q=bf16 k=bf16 v=bf16 out=bf16 mask=bool:LT data=file");
  AttentionCase drawn = c;
  drawn.mask = {};
  for (int seed = 1; seed <= 20; ++seed) {
    drawn.data = {"gauss", static_cast<uint64_t>(seed), ""};
    TensorMap inputs = GenerateInputs(Case(drawn), {});
    for (const char* name : {"q", "k"}) {
      Tensor& tensor = inputs.at(name);
      std::vector<double> values = Decoded(tensor);
      for (double& value : values) value *= 300;
      EncodeFrom(values, tensor.dtype, tensor.bytes.data());
    }
    Tensor mask(DType::kBool, {{"L", 16}, {"T", 9}});
    std::fill_n(mask.bytes.begin(), 9, std::byte{1});
    inputs["mask"] = mask;
    const Plan plan = ParsePlan("base=flash_attention_2 merge=none splits=1 p=bf16");
    const AttentionSource source(c, {}, plan, inputs);
    Tensor out(c.out, source.Outputs()[0].shape);
    std::vector<double> got;
    for (int64_t i = 0; i < source.TileCount(); ++i) {
      const ExpectedTile tile = source.Tiles(i, {})[0];
      for (const double value : tile.value) got.push_back(-value);
    }
    EncodeFrom(got, out.dtype, out.bytes.data());
    EXPECT_NE(Judge(source, MemorySink(TensorMap{{"out", out}})).outcome, Outcome::kPass) << seed;
  }
}

TEST(Sensitivity, AllRowsMaskedProveNothing) {
  const AttentionCase c =
      CaseOf("attention hq=1 hkv=1 l=3 t=5 d=8 q=f32 k=f32 v=f32 out=f32 mask=bool:LT data=file");
  AttentionCase drawn = c;
  drawn.mask = {};
  drawn.data = {"gauss", 1, ""};
  TensorMap inputs = GenerateInputs(Case(drawn), {});
  inputs["mask"] = Tensor(DType::kBool, {{"L", 3}, {"T", 5}});
  const Verdict verdict = Judged(c, inputs);
  EXPECT_EQ(verdict.outcome, Outcome::kMistrusted);
  EXPECT_NE(verdict.reasons.at(0).find(kNoQuerySeesAKey), std::string::npos);
  inputs["mask"].bytes[0] = std::byte{1};
  EXPECT_EQ(Judged(c, inputs).outcome, Outcome::kPass);
}

TEST(Sensitivity, KeysThatWeighTooLittleOneByOneAreNotBlindTogether) {
  // A uniform row of many keys in bf16: none moves the mean by an ulp, most of them together do.
  const AttentionCase c =
      CaseOf("attention hq=1 hkv=1 l=1 t=4096 d=8 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:1");
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (size_t i = 0; i < 8; ++i) Poke(&inputs.at("q"), i, 0);
  for (size_t i = 0; i < 8 * 4096; ++i) Poke(&inputs.at("v"), i, i / 8 % 2 == 0 ? 1 : 1.5);
  const ExpectedTile tile =
      AttentionSource(c, {}, ParsePlan("base=plain_f32 block=all"), inputs).Tiles(0, {})[0];
  EXPECT_EQ(tile.sensitivity[0], Sensitivity::kDim);
  EXPECT_EQ(tile.detectable_share[0], 0);
}

TEST(Sensitivity, TheShareCountsTheKeysWhoseLossWouldShow) {
  const AttentionCase c =
      CaseOf("attention hq=1 hkv=1 l=1 t=4 d=1 q=f32 k=f32 v=f32 out=f32 scale=1 data=zeros:1");
  TensorMap inputs = GenerateInputs(Case(c), {});
  // The mean of 1, 1, 1 and 1: a key that weighs as much but has another value.
  for (size_t j = 0; j < 4; ++j) Poke(&inputs.at("v"), j, 1);
  EXPECT_EQ(Judged(c, inputs).outcome, Outcome::kMistrusted);
  Poke(&inputs.at("v"), 3, 2);
  const Verdict verdict = Judged(c, inputs);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(*verdict.outputs[0].detectable_share, 1);
}

TEST(Sensitivity, AKeyThatHasAllTheWeightIsNoLossWhereAllAreAlike) {
  AttentionCase c =
      CaseOf("attention hq=1 hkv=1 l=1 t=3 d=1 q=f32 k=f32 v=f32 out=f32 scale=1 data=zeros:1");
  TensorMap inputs = GenerateInputs(Case(c), {});
  Poke(&inputs.at("q"), 0, 1);
  Poke(&inputs.at("k"), 1, 1000);
  for (size_t j = 0; j < 3; ++j) Poke(&inputs.at("v"), j, 1);
  EXPECT_EQ(Judged(c, inputs).outcome, Outcome::kMistrusted);
  Poke(&inputs.at("v"), 2, 3);
  EXPECT_EQ(Judged(c, inputs).outcome, Outcome::kPass);
}

}  // namespace
}  // namespace kvcheck
