// The judge on attention: every kind of row, mask and length, both arithmetics, under the plan that
// each answer states. A plan that is slack would pass anything: the worst error of every kernel
// must be a hundredth of its bound or more.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "optimized/attention/attention_implementation.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {
namespace {

constexpr double kSlack = 0.01;

// One format for every kernel of a row kind and every way of unpacking.
const std::vector<std::string> kFormats = {
    "f32",
    "f16",
    "bf16",
    "f8e4m3fn",
    "f8e5m2",
    "affine:2:g32:f16",
    "affine:3:g32:f32",
    "affine:4:g32:bf16",
    "affine:4:g64:f32",
    "affine:5:g64:f16",
    "affine:6:g64:bf16",
    "affine:8:g64:f16",
    "affine:8:g32:f32",
    "q8_0",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "iq4_nl",
    "fp8:e4m3fn:token:f32",
    "fp8:e5m2:inline:bf16",
    "int8:h0.03/0.05:f16",
    "uniform:3:inline:bf16",
    "uniform:4:token:f16",
};

const std::vector<std::string> kMasks = {
    "none",
    "causal_bottom_right",
    "causal_top_left",
    "causal_bottom_right+window:7",
    "window:70",
    "left_pad:0,1",
    "causal_bottom_right+window:3+left_pad:1,0",
    "bool:T",
    "bool:LT",
    "bool:BHLT",
    "causal_bottom_right+bool:B1LT",
    "additive:B11T:f32",
    "additive:BHLT:f16",
    "causal_top_left+additive:LT:bf16",
    "left_pad:1,0+additive:B1LT:f64",
};

const std::vector<std::string> kExtras = {
    "",
    "sinks=f32 lse=natural",
    "softcap=5",
    "alibi=yes lse=base2",
    "sinks=bf16 softcap=30 alibi=yes",
};

class Judged {
 public:
  // Judges one case under both arithmetics and remembers how much of the bound it used.
  void Ask(const std::string& text, const std::string& kernel, MaskedRow masked_row) {
    const Case c = ParseCase(text);
    for (const bool portable : {false, true}) {
      Profile profile;
      profile.masked_row = masked_row;
      Question question;
      question.c = c;
      question.plan = OptimizedAttention::StatedPlan(portable);
      question.profile = profile;
      question.inputs = GenerateCaseInputs(c, profile);
      OptimizedAttention attention(profile, portable);
      JudgeOptions options;
      options.explain = false;
      const Verdict verdict = AskAndJudge(attention, "optimized", question, {true, true}, options);
      EXPECT_TRUE(verdict.outcome == Outcome::kPass || verdict.outcome == Outcome::kMistrusted)
          << text << " portable=" << portable;
      for (const OutputVerdict& output : verdict.outputs) {
        elements_ += output.counts.judged;
        if (output.name != "out" || !output.worst) continue;
        double& worst = worst_[kernel + (portable ? " portable" : "")];
        worst = std::max(worst, output.worst->ratio);
      }
    }
  }
  void ExpectTight() const {
    for (const auto& [kernel, worst] : worst_) EXPECT_GE(worst, kSlack) << kernel;
    EXPECT_GT(elements_, 0);
  }

 private:
  std::map<std::string, double> worst_;
  int64_t elements_ = 0;
};

constexpr MaskedRow kConventions[] = {MaskedRow::kZero, MaskedRow::kNan, MaskedRow::kMean};

TEST(OptimizedAttention, PassesTheJudgeForEveryFormatMaskAndLength) {
  Judged judged;
  size_t index = 0;
  for (const std::string& format : kFormats) {
    for (const bool is_key : {true, false}) {
      for (const int tokens : {1, 2, 63, 64, 65, 129}) {
        for (const int queries : {1, 5, 33}) {
          // Masks, extras and group sizes go round at lengths of their own.
          const std::string& mask = kMasks[index % kMasks.size()];
          const std::string& extra = kExtras[index / 2 % kExtras.size()];
          const int group = std::vector<int>{1, 2, 4, 5}[index / 3 % 4];
          const std::string text = fmt::format(
              "attention b=2 hq={} hkv=2 l={} t={} d=64 q=f32 k={} v={} out=f32 mask={} {}{}data="
              "gauss:{}",
              2 * group, queries, tokens, is_key ? format : "f32", is_key ? "f32" : format, mask,
              extra, extra.empty() ? "" : " ", index);
          judged.Ask(text, (is_key ? "k=" : "v=") + format, kConventions[index % 3]);
          ++index;
        }
      }
    }
  }
  judged.ExpectTight();
}

// Codes of two kinds, of which both have integer products, one, or neither.
TEST(OptimizedAttention, PassesTheJudgeForCodesOfTwoKinds) {
  const std::vector<std::string> formats = {
      "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_1", "affine:4:g64:f16", "bf16", "mxfp4:bf16"};
  Judged judged;
  int seed = 0;
  for (const std::string& k : formats) {
    for (const std::string& v : formats) {
      const std::string& mask = kMasks[static_cast<size_t>(seed) % kMasks.size()];
      judged.Ask(fmt::format("attention b=2 hq=8 hkv=2 l={} t={} d=64 dv=128 q=f32 k={} v={} "
                             "out=f32 mask={} data=gauss:{}",
                             seed % 3 == 0 ? 17 : 1, 65 + seed, k, v, mask, seed),
                 "k=" + k, MaskedRow::kZero);
      ++seed;
    }
  }
  judged.ExpectTight();
}

TEST(OptimizedAttention, PassesTheJudgeForEveryHeadDimension) {
  Judged judged;
  int seed = 0;
  for (const int dim : {1, 2, 8, 15, 16, 17, 24, 40, 127, 128, 129, 256, 512}) {
    for (const char* format : {"f32", "f16", "f8e5m2"}) {
      for (const int queries : {1, 17}) {
        judged.Ask(fmt::format("attention hq=4 hkv=1 l={} t=67 d={} dv={} q=bf16 k={} v={} out=f32 "
                               "mask=causal_bottom_right data=gauss:{}",
                               queries, dim, 513 - dim, format, format, seed++),
                   format, MaskedRow::kZero);
      }
    }
  }
  judged.ExpectTight();
}

// Of the regimes in which the exponential decides, so that the bound is used: over many blocks of
// gauss data the largest score hardly ever moves, while a rescale per block is counted.
TEST(OptimizedAttention, PassesTheJudgeOverSeveralSplits) {
  Judged judged;
  for (const int tokens : {2047, 2048, 2049, 3968, 3969, 4097, 6300}) {
    for (const char* rest : {"", "mask=left_pad:0,70", "mask=window:2100 sinks=f32 lse=natural"}) {
      for (const char* regime : {"outlier", "sink", "gauss"}) {
        judged.Ask(fmt::format("attention b=2 hq=4 hkv=1 l=1 t={} d=16 q=f32 k=f32 v=f32 out=f32 "
                               "{}{}data={}:{}",
                               tokens, rest, *rest == 0 ? "" : " ", regime, tokens),
                   fmt::format("{} tokens", tokens), MaskedRow::kZero);
      }
    }
  }
  judged.ExpectTight();
}

// Adversaries of the plan: inputs for which the roundings that it declares all go one way.
class Adversary {
 public:
  explicit Adversary(const std::string& text) : c_(ParseCase(text)) {
    inputs_ = GenerateCaseInputs(c_, {});
    inputs_.at("q").As<float>()[0] = 0;  // every score is the bias alone
  }
  float* Numbers(const std::string& name) { return inputs_.at(name).As<float>(); }
  std::byte* Flags() { return inputs_.at("mask").bytes.data(); }

  void ExpectPass(double at_least) {
    for (const bool portable : {false, true}) {
      OptimizedAttention attention({}, portable);
      Question question;
      question.c = c_;
      question.plan = OptimizedAttention::StatedPlan(portable);
      question.inputs = inputs_;
      JudgeOptions options;
      options.explain = false;
      const Verdict verdict = AskAndJudge(attention, "optimized", question, {true, true}, options);
      EXPECT_EQ(verdict.outcome, Outcome::kPass) << Print(c_) << " portable=" << portable;
      ASSERT_TRUE(verdict.outputs.at(0).worst);
      EXPECT_GE(verdict.outputs[0].worst->ratio, at_least);
    }
  }

 private:
  Case c_;
  TensorMap inputs_;
};

// A kernel's blocks begin after the padding, where no key is visible: from there, and from nowhere
// else that a visible key stands, 64 keys fill one block.
TEST(OptimizedAttention, StaysInsideTheBoundWhereHiddenKeysFollowThePadding) {
  Adversary adversary(
      "attention hq=1 hkv=1 l=1 t=192 d=1 dv=1 q=f32 k=f32 v=f32 out=f32 scale=1 "
      "mask=left_pad:32+bool:T data=gauss:1");
  for (int j = 0; j < 192; ++j) {
    adversary.Flags()[j] = std::byte{j == 64 || (j >= 96 && j < 160)};
    // The first one is large, and each that follows is lost beside it: just below half a spacing.
    const bool lost = j > 96 && j < 160;
    adversary.Numbers("v")[j] = j == 96 ? 1.0f : lost ? 0x1.fffffep-25f : 0.0f;
  }
  adversary.ExpectPass(0.5);
}

// The mask cancels slope times distance, so that an error of either is large beside their sum.
TEST(OptimizedAttention, RoundsTheSumOfAlibiAndMaskOnce) {
  constexpr int kTokens = 1025;
  Adversary adversary(
      "attention hq=1 hkv=1 l=1 t=1025 d=1 q=f32 k=f32 v=f32 out=f32 scale=1 alibi=yes "
      "mask=additive:T:f32 data=gauss:1");
  const float slope = 3.3f;
  adversary.Numbers("alibi_slopes")[0] = slope;
  for (int j = 0; j < kTokens; ++j) {
    const double exact = static_cast<double>(slope) * (kTokens - 1 - j);
    const auto rounded = static_cast<float>(exact);
    adversary.Numbers("mask")[j] = rounded;
    adversary.Numbers("v")[j] = static_cast<double>(rounded) > exact ? 1.0f : -1.0f;
  }
  adversary.ExpectPass(0);
}

// Weights below the normal numbers are dropped, which is no fault that the errors of many elements
// tell.
TEST(OptimizedAttention, RaisesNoStatisticWhereWeightsVanish) {
  Question question;
  question.c = ParseCase(
      "attention b=2 hq=2 hkv=1 l=15 t=1 d=64 dv=129 q=f32 k=f8e5m2 v=f8e4m3fn out=f32 "
      "mask=left_pad:0,1 sinks=f32 data=outlier:24");
  question.plan = OptimizedAttention::StatedPlan(false);
  question.inputs = GenerateCaseInputs(question.c, {});
  OptimizedAttention attention({}, false);
  const JudgeOptions options;
  const Verdict verdict = AskAndJudge(attention, "optimized", question, {true, true}, options);
  ASSERT_TRUE(verdict.outputs.at(0).statistics);
  EXPECT_FALSE(verdict.outputs[0].statistics->directions.empty());
  EXPECT_EQ(verdict.outputs[0].statistics->over, std::vector<std::string>());
}

// Windows that see everything, however far they reach.
TEST(OptimizedAttention, TakesWindowsOfAnyLength) {
  Judged judged;
  for (const char* window : {"9223372036854775807", "200", "4294967296"}) {
    judged.Ask(fmt::format("attention hq=2 hkv=1 l=100 t=90 d=16 q=f32 k=f32 v=f32 out=f32 "
                           "mask=window:{} data=gauss:1",
                           window),
               window, MaskedRow::kZero);
  }
  judged.ExpectTight();
}

TEST(OptimizedAttention, DeclinesWhatItDoesNotFollow) {
  const Case c = ParseCase(
      "attention hq=2 hkv=1 l=1 t=9 d=32 q=f32 k=affine:4:g32:f32 v=f32 out=f32 data=gauss:1");
  const auto outcome = [&](std::string_view text, const Case& of) {
    const Profile profile = ParseProfile(text);
    OptimizedAttention attention(profile, false);
    MemorySink sink;
    return attention.Run(of, GenerateCaseInputs(of, profile), sink);
  };
  EXPECT_EQ(outcome("", c), RunOutcome::kAnswered);
  EXPECT_EQ(outcome("mask_value=lowest", c), RunOutcome::kUnsupported);
  EXPECT_EQ(outcome("maximum=all", c), RunOutcome::kUnsupported);
  EXPECT_EQ(outcome("decode=two_roundings", c), RunOutcome::kUnsupported);
  const Case wide =
      ParseCase("attention hq=2 hkv=1 l=1 t=9 d=32 q=f32 k=f64 v=f32 out=f32 data=gauss:1");
  EXPECT_EQ(outcome("", wide), RunOutcome::kUnsupported);
  for (const char* cap : {"1e-50", "1e39"}) {  // no f32 is that cap
    const Case capped = ParseCase(fmt::format(
        "attention hq=2 hkv=1 l=1 t=9 d=32 q=f32 k=f32 v=f32 out=f32 softcap={} data=gauss:1",
        cap));
    EXPECT_EQ(outcome("", capped), RunOutcome::kUnsupported) << cap;
  }
}

}  // namespace
}  // namespace kvcheck
