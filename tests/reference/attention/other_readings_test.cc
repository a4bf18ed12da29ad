// Hints: a mistake is named where the whole of the failing rows is what it makes, a declaration
// only where all would pass under it and something would be proved; nothing is advised otherwise.

#include "reference/attention/other_readings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/data/row_regime.h"
#include "reference/judge/judge.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

const char kShortCase[] = "attention b=2 hq=4 hkv=2 l=6 t=12 d=8 q=f32 k=f32 v=f32 out=f32 ";

// out[to] = in[from(to)], elements of `size` bytes.
template <typename From>
void Arrange(Tensor* tensor, size_t size, const From& from) {
  const std::vector<std::byte> old = tensor->bytes;
  for (size_t to = 0; to < old.size() / size; ++to) {
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(from(to) * size), size,
                tensor->bytes.begin() + static_cast<std::ptrdiff_t>(to * size));
  }
}

struct Asked {
  AttentionCase c;
  Profile profile;
  TensorMap inputs;
};

// The answer to a changed question, judged by the right one.
template <typename Change, typename After>
Verdict JudgeMistake(const std::string& text, const Change& change, const After& after,
                     const Plan& plan = ParsePlan("base=plain_f32")) {
  Asked right{CaseOf(text), {}, {}};
  right.inputs = GenerateInputs(Case(right.c), right.profile);
  Asked wrong = right;
  change(&wrong);
  SimulatedKernel kernel(plan, wrong.profile);
  TensorMap answer = Answer(&kernel, wrong.c, wrong.inputs);
  after(&answer);
  const AttentionSource source(right.c, right.profile, plan, right.inputs);
  return Judge(source, MemorySink(std::move(answer)));
}

const auto kAsItIs = [](TensorMap*) {};

void ExpectCause(const Verdict& verdict, const std::string& cause, size_t output = 0) {
  const OutputVerdict& out = verdict.outputs[output];
  EXPECT_EQ(out.outcome, Outcome::kFail) << cause;
  EXPECT_EQ(out.cause, cause) << (out.hints.empty() ? "" : out.hints[0]);
  ASSERT_FALSE(out.hints.empty()) << cause;
  EXPECT_TRUE(out.plan_changes.empty()) << Print(out.plan_changes[0]);
}

TEST(OtherReadings, NameKTransposedEitherWay) {
  for (const bool back : {false, true}) {
    ExpectCause(JudgeMistake(
                    kShortCase + std::string("data=gauss:1"),
                    [&](Asked* a) {
                      Arrange(&a->inputs.at("k"), 4, [&](size_t to) {
                        const size_t matrix = to / 96, at = to % 96;
                        return matrix * 96 + (back ? at % 12 * 8 + at / 12 : at % 8 * 12 + at / 8);
                      });
                    },
                    kAsItIs),
                "K transposed");
  }
}

TEST(OtherReadings, NameExchangedAxes) {
  const auto exchange = [](Tensor* tensor, size_t heads, size_t tokens) {
    Arrange(tensor, 32, [&](size_t to) {
      const size_t batch = to / (heads * tokens), h = to / tokens % heads, t = to % tokens;
      return (batch * tokens + t) * heads + h;
    });
  };
  const auto change = [&](bool q, bool kv) {
    return [=](Asked* a) {
      if (q) exchange(&a->inputs.at("q"), 4, 6);
      if (kv) exchange(&a->inputs.at("k"), 2, 12), exchange(&a->inputs.at("v"), 2, 12);
    };
  };
  // Row (b, l, h) of what was written is row (b, h, l).
  const auto write = [](TensorMap* answer) {
    Arrange(&answer->at("out"), 32, [](size_t to) {
      const size_t batch = to / 24, l = to / 4 % 6, h = to % 4;
      return (batch * 4 + h) * 6 + l;
    });
  };
  const std::string text = kShortCase + std::string("mask=causal_bottom_right data=gauss:1");
  ExpectCause(JudgeMistake(text, change(false, true), kAsItIs), "axes exchanged");
  ExpectCause(JudgeMistake(text, change(true, true), kAsItIs), "axes exchanged");
  ExpectCause(JudgeMistake(text, change(true, true), write), "axes exchanged");
  ExpectCause(JudgeMistake(text, change(false, false), write), "axes exchanged");
}

TEST(OtherReadings, NameMistakesOfMasks) {
  ExpectCause(JudgeMistake(
                  kShortCase + std::string("mask=bool:LT data=gauss:2"),
                  [](Asked* a) {
                    for (std::byte& seen : a->inputs.at("mask").bytes) {
                      seen ^= std::byte{1};
                    }
                  },
                  kAsItIs),
              "boolean mask inverted");
  ExpectCause(JudgeMistake(
                  kShortCase + std::string("mask=causal_bottom_right data=gauss:1"),
                  [](Asked* a) { a->c.mask.causal = CausalAlignment::kTopLeft; }, kAsItIs),
              "causal alignment");
  ExpectCause(JudgeMistake(
                  kShortCase + std::string("mask=causal_bottom_right data=gauss:1"),
                  [](Asked* a) { a->c.mask.causal = CausalAlignment::kNone; }, kAsItIs),
              "causal mask ignored");
}

TEST(OtherReadings, NameAWrongHeadOfKAlone) {
  ExpectCause(JudgeMistake(
                  kShortCase + std::string("data=gauss:1"),
                  [](Asked* a) {
                    Arrange(&a->inputs.at("k"), size_t{12 * 8 * 4},
                            [](size_t to) { return to ^ 1U; });
                  },
                  kAsItIs),
              "wrong K head");
}

TEST(OtherReadings, NameTheBaseOfLse) {
  for (const auto& [asked, given] :
       {std::pair{"lse=natural ", LseKind::kBase2}, std::pair{"lse=base2 ", LseKind::kNatural}}) {
    const Verdict verdict = JudgeMistake(
        kShortCase + std::string(asked) + "data=gauss:1",
        [given = given](Asked* a) { a->c.lse = given; }, kAsItIs);
    EXPECT_EQ(verdict.outputs[0].outcome, Outcome::kPass);
    ExpectCause(verdict, given == LseKind::kBase2 ? "lse in base 2" : "natural lse", 1);
  }
}

TEST(OtherReadings, NameTheDecodersRoundings) {
  ExpectCause(JudgeMistake(
                  "attention hq=2 hkv=1 l=2 t=12 d=32 q=bf16 k=affine:4:g32:bf16 "
                  "v=affine:4:g32:bf16 out=f32 data=gauss:1",
                  [](Asked* a) { a->profile.decode = DecodeRounding::kTwoRoundings; }, kAsItIs,
                  ParsePlan("base=plain_f32 dequantize=stored")),
              "decode roundings");
}

TEST(OtherReadings, AdviseAPlanOnlyWhereAllWouldPassUnderIt) {
  Plan secret = ParsePlan("base=plain_f32");
  secret.p = DType::kBFloat16;
  const AttentionCase c = CaseOf(kShortCase + std::string("data=gauss:1"));
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(secret, {});
  TensorMap answer = Answer(&kernel, c, inputs);
  const AttentionSource source(c, {}, ParsePlan("base=plain_f32"), inputs);
  const Verdict rounded = Judge(source, MemorySink(TensorMap(answer)));
  EXPECT_EQ(rounded.outcome, Outcome::kFail);
  EXPECT_TRUE(rounded.outputs[0].hints.empty());
  ASSERT_FALSE(rounded.outputs[0].plan_changes.empty());
  EXPECT_TRUE(Print(rounded.outputs[0].plan_changes[0]).starts_with("p=bf16"));
  // The same, and one element that no rounding makes: nothing is advised.
  answer.at("out").As<float>()[77] += 0.5F;
  const Verdict broken = Judge(source, MemorySink(TensorMap(answer)));
  EXPECT_TRUE(broken.outputs[0].plan_changes.empty());
  EXPECT_TRUE(broken.outputs[0].cause.empty());
  ASSERT_EQ(broken.outputs[0].hints.size(), 1U);
  EXPECT_TRUE(broken.outputs[0].hints[0].starts_with("not explained"))
      << broken.outputs[0].hints[0];
}

TEST(OtherReadings, AdviseAPlanOnlyWhereNoOutputIsAgainstIt) {
  Plan secret = ParsePlan("base=plain_f32");
  secret.p = DType::kBFloat16;
  const AttentionCase c = CaseOf(kShortCase + std::string("lse=natural data=gauss:1"));
  const TensorMap inputs = GenerateInputs(Case(c), {});
  SimulatedKernel kernel(secret, {});
  TensorMap answer = Answer(&kernel, c, inputs);
  const AttentionSource source(c, {}, ParsePlan("base=plain_f32"), inputs);
  const Verdict rounded = Judge(source, MemorySink(TensorMap(answer)));
  ASSERT_EQ(rounded.outputs[0].name, "out");
  EXPECT_EQ(rounded.outputs[1].outcome, Outcome::kPass);
  EXPECT_FALSE(rounded.outputs[0].plan_changes.empty());
  // Weights stored in bf16 make no such lse: who follows the advice fails again.
  answer.at("lse").As<float>()[5] += 0.5F;
  const Verdict broken = Judge(source, MemorySink(TensorMap(answer)));
  EXPECT_EQ(broken.outputs[0].outcome, Outcome::kFail);
  EXPECT_EQ(broken.outputs[1].outcome, Outcome::kFail);
  EXPECT_TRUE(broken.outputs[0].plan_changes.empty());
}

TEST(OtherReadings, AdviseNothingForAMistakeThatNoReadingIs) {
  // Additive mask times two; a plan loose enough to hide it would prove nothing.
  const Verdict verdict = JudgeMistake(
      kShortCase + std::string("mask=additive:LT:f32 data=gauss:2"),
      [](Asked* a) {
        float* mask = a->inputs.at("mask").As<float>();
        for (size_t i = 0; i < 72; ++i) mask[i] *= 2;
      },
      kAsItIs);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_TRUE(verdict.outputs[0].plan_changes.empty());
}

// Of a larger output a declaration is asked in some rows, and the verdict says in how many.
TEST(OtherReadings, SayInHowManyRowsADeclarationWasAsked) {
  Plan secret = ParsePlan("base=plain_f32");
  secret.p = DType::kBFloat16;
  for (const int64_t queries : {10, 100}) {
    const AttentionCase c = CaseOf("attention b=1 hq=4 hkv=2 l=" + std::to_string(queries) +
                                   " t=100 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1");
    const TensorMap inputs = GenerateInputs(Case(c), {});
    SimulatedKernel kernel(secret, {});
    const AttentionSource source(c, {}, ParsePlan("base=plain_f32"), inputs);
    const OutputVerdict out = Judge(source, MemorySink(Answer(&kernel, c, inputs))).outputs[0];
    ASSERT_FALSE(out.plan_changes.empty());
    EXPECT_EQ(out.changes_of_rows, queries == 10 ? 0 : 400);
    EXPECT_EQ(out.changes_rows > 0, queries != 10);
    EXPECT_LT(out.changes_rows, 400);
  }
}

// Random numbers of the size of the outputs: a denominator in bf16, one term after the other, may
// be off by more than that over so many keys, which is no explanation.
TEST(OtherReadings, AdviseNoDeclarationUnderWhichNothingIsProved) {
  for (const int64_t keys : {300, 500, 1000}) {
    const AttentionCase c = CaseOf("attention b=1 hq=2 hkv=1 l=4 t=" + std::to_string(keys) +
                                   " d=16 q=f32 k=f32 v=f32 out=f32 data=gauss:1");
    const TensorMap inputs = GenerateInputs(Case(c), {});
    TensorMap answer;
    answer["out"] = GenerateRows("gauss", 7, DType::kFloat32, 8, 16);
    answer.at("out").shape = OutputSpecs(Case(c)).at("out").shape;
    float* out = answer.at("out").As<float>();
    for (size_t i = 0; i < 128; ++i) out[i] /= std::sqrt(static_cast<float>(keys));
    const AttentionSource source(c, {}, ParsePlan("base=plain_f32"), inputs);
    for (const Rule rule : {Rule::kBound, Rule::kStatistics}) {
      JudgeOptions options;
      options.rule = rule;
      const Verdict verdict = Judge(source, MemorySink(TensorMap(answer)), options);
      EXPECT_EQ(verdict.outcome, Outcome::kFail);
      const std::vector<std::string> advised = Texts(verdict.outputs[0].plan_changes);
      EXPECT_TRUE(advised.empty()) << keys << " " << advised[0];
    }
  }
}

}  // namespace
}  // namespace kvcheck
