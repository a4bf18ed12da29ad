// Shrinking keeps what is said of a failure: a smaller case with a poorer explanation is none.

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "reference/judge/explanation.h"
#include "tools/campaign/fuzz_campaign.h"
#include "tools/campaign/fuzz_subjects.h"
#include "tools/corridor/judge_trace.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

FoundFailure ShrinkFailure(const std::string& implementation, const CaseEntry& entry,
                           const std::string& signature) {
  const auto subject = MakeSubject(FindAnswerer(KindOf(entry.c), implementation), {});
  CampaignOptions options;
  options.since_progress = std::chrono::hours(1);
  options.shrink_time = std::chrono::hours(1);
  FailureSum sum;
  sum.outcome = Outcome::kFail;
  sum.signature = signature;
  return FailureShrinker(*subject, options)(sum, entry);
}

void ExpectAsGood(const Verdict& drawn, const FoundFailure& found) {
  const Explanation before = ExplanationOf(drawn);
  EXPECT_FALSE(before.empty());
  ASSERT_TRUE(found.verdict);
  const Explanation after = ExplanationOf(*found.verdict);
  EXPECT_FALSE(IsPoorer(after, before)) << before.cause << " became " << after.cause;
  EXPECT_TRUE(found.shrunk_whole);
}

// Two tokens and a window of one would fail too, as of any mask that is off by one.
TEST(ShrunkExplanation, OfAnAttendIsThatOfTheDrawnTrace) {
  const std::string implementation = "fault:attend_ignores_window";
  CaseEntry entry;
  entry.name = "drawn";
  entry.reason = "drawn";
  entry.c = ParseCase(
      "cache k=f32 dk=8 hkv=2 hq=4 data=tokens:1; new A; new B; append A 12; append B 2; "
      "attend A window=3");
  const auto factory = MakeCacheFactory(implementation);
  const Verdict drawn = EvaluateCacheCase(std::get<CacheCase>(entry.c), factory.get());
  ASSERT_EQ(drawn.outputs.size(), 1U);
  const FoundFailure found = ShrinkFailure(implementation, entry, "attend attention operand");
  ExpectAsGood(drawn, found);
  const auto& shrunk = std::get<CacheCase>(found.shrunk.c);
  EXPECT_EQ(shrunk.ops.size(), 3U) << Print(shrunk);
  EXPECT_GT(shrunk.ops[1].count, 2) << Print(shrunk);
  EXPECT_LE(shrunk.ops[1].count, 12 + 2) << Print(shrunk);
}

TEST(ShrunkExplanation, OfAttentionIsThatOfTheDrawnCase) {
  for (const std::string implementation : {"fault:p_rounded_to_bf16", "fault:window_ignored"}) {
    CaseEntry entry;
    entry.name = "drawn";
    entry.reason = "drawn";
    entry.c = ParseCase(
        "attention hq=4 hkv=2 l=9 t=40 d=16 q=f32 k=f32 v=f32 out=f32 "
        "mask=causal_bottom_right+window:8 data=gauss:1");
    entry.plan = "base=plain_f32";
    const Question question = QuestionOf(entry, implementation);
    const auto kernel =
        MakeImplementation(CaseKind::kAttention, implementation, question.plan, question.profile);
    const Verdict drawn = AskAndJudge(*kernel, implementation, question, {}, {});
    ExpectAsGood(drawn, ShrinkFailure(implementation, entry, SignatureOf(entry.c, drawn)));
  }
}

}  // namespace
}  // namespace kvcheck
