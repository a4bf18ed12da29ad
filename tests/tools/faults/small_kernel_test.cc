// The small kernel without a fault: right under every mask, on any number of threads and however
// often it is asked, and honest about what it does not do.

#include "tools/faults/small_kernel.h"

#include <gtest/gtest.h>

#include "tools/campaign/plain_answers.h"
#include "tools/corridor/case_judges.h"
#include "tools/faults/kernel_faults.h"

namespace kvcheck {
namespace {

Question Ask(const std::string& rest) {
  CaseEntry entry;
  entry.c = ParseCase("attention " + rest);
  return QuestionOf(entry, "small_kernel");
}

TEST(SmallKernel, IsRightUnderEveryMaskAndShape) {
  int64_t judged = 0;
  for (const char* shape : {"b=1 hq=1 hkv=1 l=1 t=1 d=1", "b=2 hq=6 hkv=2 l=3 t=16 d=8 dv=9",
                            "b=2 hq=2 hkv=1 l=5 t=33 d=7 dv=17", "b=1 hq=4 hkv=4 l=2 t=129 d=64"}) {
    for (const char* mask : {"none", "causal_bottom_right", "causal_top_left+window:2",
                             "causal_bottom_right+left_pad:", "bool:B1LT", "additive:BHLT:f32"}) {
      for (const char* types : {"q=f32 k=f32 v=f32 out=f32", "q=bf16 k=bf16 v=bf16 out=bf16",
                                "q=f16 k=f16 v=f16 out=f32"}) {
        std::string text = mask;
        if (text.ends_with(':')) text += std::string_view(shape).starts_with("b=2") ? "1,0" : "0";
        for (const char* seed : {"gauss:2", "huge:3", "zeros:1"}) {
          const Question question =
              Ask(std::string(shape) + " " + types + " mask=" + text + " lse=base2 data=" + seed);
          SmallKernel kernel("healthy", {});
          const auto answer = Answer(kernel, question);
          ASSERT_TRUE(answer.has_value());
          const Verdict verdict = EvaluateCase(question, *answer, {});
          EXPECT_NE(verdict.outcome, Outcome::kFail) << Print(question.c) << ReasonOf(verdict);
          judged += verdict.outcome == Outcome::kPass ? 1 : 0;
          for (const int threads : {1, 2, 3, 7}) {
            kernel.SetThreads(threads);
            EXPECT_EQ(DifferentElements(*Answer(kernel, question), *answer), 0) << threads;
          }
        }
      }
    }
  }
  EXPECT_EQ(judged, 144);  // of 216: all but those of zeros, which prove nothing
}

TEST(SmallKernel, DeclinesWhatItDoesNotDo) {
  const std::string base = "hq=1 hkv=1 l=1 t=2 d=32 ";
  for (const char* rest : {"q=f64 k=f64 v=f64 out=f64 data=gauss:1",
                           "q=f32 k=f32 v=f32 out=f32 softcap=5 data=gauss:1",
                           "q=f32 k=f32 v=f32 out=f32 sinks=f32 data=gauss:1",
                           "q=f32 k=affine:4:g32:f32 v=f32 out=f32 data=gauss:1",
                           "b=3 q=f32 k=f32 v=f32 out=f32 data=gauss:1"}) {
    const Question question = Ask(base + rest);
    SmallKernel kernel("healthy", {});
    EXPECT_FALSE(Answer(kernel, question).has_value()) << rest;
  }
}

}  // namespace
}  // namespace kvcheck
