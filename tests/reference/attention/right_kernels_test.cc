// Right kernels that statistics, or a bound, once failed, or simulated wrongly: sums whose grid is
// coarse or that are cut, rows and channels that round alike, roundings that the output takes back
// (bound.md, sections 4 and 5). Each passes, or proves nothing.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/data/generator.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"

namespace kvcheck {
namespace {

// "plan qk=..." without its first word.
std::string After(const std::string& word, const std::string& line) {
  EXPECT_EQ(line.rfind(word, 0), 0U) << line;
  return line.size() > word.size() ? line.substr(word.size() + 1) : "";
}

TEST(RightKernels, ThatOnceFailedDoNot) {
  std::ifstream file(KVCHECK_SOURCE_DIR "/tests/reference/attention/right_kernels.txt");
  std::string line;
  int kernels = 0;
  while (std::getline(file, line)) {
    if (line.rfind('#', 0) == 0) continue;
    const Case asked = ParseCase(line);
    const auto& c = std::get<AttentionCase>(asked);
    ASSERT_TRUE(std::getline(file, line));
    const Plan plan = ParsePlan(After("plan", line));
    ASSERT_TRUE(std::getline(file, line));
    const Profile profile = ParseProfile(After("profile", line));
    const TensorMap inputs = GenerateInputs(asked, profile);
    SimulatedKernel kernel(plan, profile);
    MemorySink answer;
    kernel.Run(asked, inputs, answer);
    JudgeOptions options;
    options.explain = false;
    const Verdict verdict = Judge(AttentionSource(c, profile, plan, inputs), answer, options);
    EXPECT_NE(verdict.outcome, Outcome::kFail) << Print(asked) << "\n" << verdict.reasons[0];
    ++kernels;
  }
  EXPECT_EQ(kernels, 166);
}

}  // namespace
}  // namespace kvcheck
