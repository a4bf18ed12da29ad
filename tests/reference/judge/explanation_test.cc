#include "reference/judge/explanation.h"

#include <gtest/gtest.h>

namespace kvcheck {
namespace {

TEST(Explanation, IsOfTheFirstOutputThatFails) {
  Verdict verdict;
  verdict.outputs.resize(2);
  verdict.outputs[0].cause = "of what passes";
  verdict.outputs[1].outcome = Outcome::kFail;
  verdict.outputs[1].cause = "sink left out";
  verdict.outputs[1].passes_with = "sinks=f32 (/sinks of the file is not in the case)";
  verdict.outputs[1].plan_changes = {{false, {{"p", "f32", "bf16", "P were rounded to bf16"}}}};
  const Explanation said = ExplanationOf(verdict);
  EXPECT_EQ(said, (Explanation{"sink left out", "sinks", {"p=bf16"}}));
  EXPECT_FALSE(said.empty());
  verdict.outputs[1].outcome = Outcome::kMistrusted;
  EXPECT_TRUE(ExplanationOf(verdict).empty());
}

TEST(Explanation, IsPoorerWithoutTheCauseOrWithAnotherOne) {
  const Explanation none;
  const Explanation named{"last key missing", "", {}};
  EXPECT_TRUE(IsPoorer(none, named));
  EXPECT_TRUE(IsPoorer(Explanation{"scale", "", {}}, named));
  EXPECT_FALSE(IsPoorer(named, named));
  EXPECT_FALSE(IsPoorer(named, none)) << "more may be said";
  EXPECT_TRUE(IsPoorer(none, Explanation{"", "softcap", {}}));
  EXPECT_TRUE(IsPoorer(Explanation{"", "scale", {}}, Explanation{"", "softcap", {}}));
}

TEST(Explanation, IsPoorerWithWordsThatWereNotSaid) {
  const Explanation two{"", "", {"p=bf16", "scores=bf16"}};
  EXPECT_FALSE(IsPoorer(Explanation{"", "", {"p=bf16"}}, two)) << "fewer words say more";
  EXPECT_TRUE(IsPoorer(Explanation{"", "", {"p=bf16", "l=bf16:sequential"}}, two));
  EXPECT_TRUE(IsPoorer(Explanation{"scale", "", {}}, two));
}

}  // namespace
}  // namespace kvcheck
