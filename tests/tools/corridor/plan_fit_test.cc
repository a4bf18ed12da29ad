// plan=auto says which known plans an answer fits, and never more than the plan that claims nothing
// proves; a call that the page of a plan excludes is warned of.

#include "tools/corridor/plan_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kDecode =
    "attention hq=2 hkv=1 l=1 t=65 d=32 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:3";

Question Asked(const std::string& text, const std::string& plan) {
  Question question;
  question.c = ParseCase(text);
  question.plan = ParsePlan(plan);
  question.inputs = GenerateCaseInputs(question.c, {});
  return question;
}

// What an implementation answers to the case.
MemorySink AnswerOf(const std::string& text, const std::string& name) {
  const Question question = Asked(text, "stranger");
  const std::unique_ptr<Implementation> kernel =
      MakeImplementation(CaseKind::kAttention, name, question.plan, {});
  std::optional<MemorySink> answer = Answer(*kernel, question);
  EXPECT_TRUE(answer) << name;
  return *std::move(answer);
}

Verdict Judged(const std::string& text, const std::string& name, const std::string& plan,
               bool strict = false) {
  const MemorySink answer = AnswerOf(text, name);
  JudgeOptions options;
  options.strict = strict;
  return EvaluateCase(Asked(text, plan), answer, options);
}

const PlanFit* FitOf(const std::vector<PlanFit>& fits, const std::string& name) {
  const auto found =
      std::find_if(fits.begin(), fits.end(), [&](const PlanFit& fit) { return fit.name == name; });
  return found == fits.end() ? nullptr : &*found;
}

std::vector<PlanFit> Fits(const std::string& text, const std::string& name) {
  const MemorySink answer = AnswerOf(text, name);
  return FitKnownPlans(Asked(text, "auto"), answer, {});
}

TEST(PlanFit, ThePlanThatAKernelFollowsHoldsAndTighterOnesDoNot) {
  for (const std::string plan : {"flash_attention_2", "torch_cpu_flash_bf16", "vllm_triton"}) {
    // In one range: where a plan leaves the number open, each of 65 keys would have a range of its
    // own, in which P is 1 and rounds to nothing.
    const std::vector<PlanFit> fits = Fits(kDecode, "simulated:" + plan + " merge=none splits=1");
    ASSERT_NE(FitOf(fits, plan), nullptr) << plan;
    EXPECT_TRUE(FitOf(fits, plan)->holds) << plan;
    // P in f32, where the kernel rounded it to bf16: by so much that it shows beside the output's
    // own rounding.
    ASSERT_NE(FitOf(fits, "torch_cpu_math"), nullptr);
    EXPECT_FALSE(FitOf(fits, "torch_cpu_math")->holds) << plan;
    EXPECT_GT(FitOf(fits, "torch_cpu_math")->worst_ratio, 1) << plan;
  }
}

TEST(PlanFit, PlansThatHoldComeFirstAndTheTightestOfThemIsTheFirst) {
  const std::vector<PlanFit> fits = Fits(kDecode, "simulated:torch_cpu_math");
  ASSERT_GT(fits.size(), 4U);
  for (size_t i = 1; i < fits.size(); ++i) {
    if (fits[i - 1].holds == fits[i].holds) {
      EXPECT_LE(fits[i - 1].bound_share, fits[i].bound_share);
    } else {
      EXPECT_TRUE(fits[i - 1].holds);
    }
  }
}

TEST(PlanFit, PlansThatAreNotOfTheCallAndThoseThatClaimNothingAreNotTried) {
  const std::vector<PlanFit> fits = Fits(kDecode, "simulated:torch_cpu_math");
  for (const char* plan : {"stranger", "auto", "torch_flex_attention", "mlx_cpu_sdpa_f32"}) {
    EXPECT_EQ(FitOf(fits, plan), nullptr) << plan;
  }
  EXPECT_NE(FitOf(fits, "torch_flex_decoding"), nullptr);
}

// Whatever the answer: the outcome under auto is the one under stranger.
TEST(PlanFit, AutoProvesNoMoreThanThePlanThatClaimsNothing) {
  const std::string vacuous =
      "attention hq=1 hkv=1 l=1 t=4097 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=equal:1";
  int outcomes[4] = {};
  for (const std::string& text : {std::string(kDecode), vacuous}) {
    for (const char* name :
         {"simulated:torch_cpu_math", "simulated:base=torch_cpu_math p=bf16 scores=f16",
          "simulated:plain_f32", "optimized"}) {
      const Outcome loose = Judged(text, name, "stranger").outcome;
      const Verdict automatic = Judged(text, name, "auto");
      EXPECT_EQ(automatic.outcome, loose) << text << " " << name;
      ++outcomes[static_cast<int>(loose)];
      EXPECT_THAT(automatic.warnings, Contains(HasSubstr("plan=auto: "))) << name;
      EXPECT_THAT(automatic.warnings, Contains(HasSubstr("verdict is that of plan stranger")));
    }
  }
  EXPECT_GT(outcomes[static_cast<int>(Outcome::kPass)], 0);
}

TEST(PlanFit, AutoNamesTheTightestAndSaysThatThisIsNoProof) {
  const Verdict verdict = Judged(kDecode, "simulated:flash_attention_2", "auto");
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  const std::vector<PlanFit> fits = Fits(kDecode, "simulated:flash_attention_2");
  EXPECT_THAT(verdict.warnings, Contains(HasSubstr("the tightest is " + fits.front().name)));
  EXPECT_THAT(verdict.warnings, Contains(HasSubstr("no proof of the kernel")));
  EXPECT_THAT(FitText({}), HasSubstr("no known plan is of such a call"));
  PlanFit none;
  none.name = "plain_f32";
  EXPECT_THAT(FitText({none}), HasSubstr("none holds"));
}

TEST(PlanFit, AutoBesideStrictIsRefused) {
  try {
    Judged(kDecode, "simulated:flash_attention_2", "auto", true);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.context(), "plan=auto");
  }
}

TEST(PlanScope, CallsThatThePlanExcludesAreWarnedOf) {
  const std::string softcapped = std::string(kDecode).replace(10, 0, "softcap=30 ");
  for (const char* plan : {"vllm_triton", "vllm_triton merge=accumulators splits=16"}) {
    EXPECT_THAT(ScopeWarnings(Asked(softcapped, plan)),
                ::testing::ElementsAre(HasSubstr("plan vllm_triton does not hold for softcap")))
        << plan;
  }
  EXPECT_THAT(ScopeWarnings(Asked(kDecode, "vllm_triton")), IsEmpty());
  EXPECT_THAT(ScopeWarnings(Asked(softcapped, "flash_attention_2")), IsEmpty());
  EXPECT_THAT(ScopeWarnings(Asked(softcapped, "vllm_triton name=mine")), IsEmpty());
  const Verdict verdict = Judged(softcapped, "simulated:vllm_triton", "vllm_triton");
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_THAT(verdict.warnings, Contains(HasSubstr("does not hold for softcap")));
  EXPECT_THAT(Judged(softcapped, "simulated:vllm_triton", "stranger").warnings, IsEmpty());
}

}  // namespace
}  // namespace kvcheck
