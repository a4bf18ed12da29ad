// The pass on every instruction set that this machine has: equal in every bit.

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <random>
#include <vector>

#include "optimized/compare/first_pass.h"
#include "tests/optimized/compare/drawn_pairs.h"
#include "tests/optimized/on_target.h"

namespace kvcheck {
namespace {

TEST(InstructionSets, GiveTheSameSummary) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  std::string names;
  for (const int64_t target : targets) names += std::string(hwy::TargetName(target)) + " ";
  RecordProperty("targets", names);
  EXPECT_GT(targets.size(), 1u) << names;
  for (const DType dtype : AllDTypes()) {
    std::mt19937_64 random(6);
    for (const PassRule& rule : DrawnRules(dtype)) {
      for (const PairRegime regime : kPairRegimes) {
        const CodePair pair = DrawPairs(dtype, rule, regime, 1000 + random() % 100, random);
        const PassSummary best = ComparePass(dtype, pair.expected, pair.got, rule);
        for (const int64_t target : targets) {
          const OnTarget forced(target);
          EXPECT_EQ(ComparePass(dtype, pair.expected, pair.got, rule), best)
              << hwy::TargetName(target) << " " << Name(dtype) << " " << Print(rule) << " "
              << Name(regime);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
