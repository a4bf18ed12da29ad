// Every fault is hit and caught by a check that its line names, nothing fails without it, and the
// committed table is what the command writes.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tools/campaign/fault_text.h"

namespace kvcheck {
namespace {

TEST(FaultsRun, CatchesEveryFaultAndTheCommittedTableSaysSo) {
  const std::vector<FaultOutcome> outcomes = RunFaults(AllFaults(), 2, [](int64_t) {});
  ASSERT_EQ(outcomes.size(), AllFaults().size());
  for (const FaultOutcome& outcome : outcomes) {
    for (const std::string& failure : outcome.failures) {
      ADD_FAILURE() << outcome.fault.text->id << ": " << failure;
    }
    EXPECT_GT(outcome.smallest.hits, 0) << outcome.fault.text->id;
    EXPECT_GT(outcome.drawn.hits, 0) << outcome.fault.text->id;
    EXPECT_LE(outcome.shrunk, outcome.elements) << outcome.fault.text->id;
  }
  std::ifstream file(KVCHECK_SOURCE_DIR "/tools/faults/TABLE.md");
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(RunTable(outcomes), committed.str())
      << "write it again: kvcheck faults run --table tools/faults/TABLE.md";
}

// A fault whose rule makes no difference proves nothing, and one that is caught by another check
// than its line names is no less a failure.
TEST(FaultsRun, FailsAFaultThatIsNeverHitOrCaughtByAnotherCheck) {
  FaultText never = *FindFault("window_too_wide")->text;
  never.smallest = kTwoKeys;  // has no window
  FaultOutcome outcome = RunFaults({{FaultKind::kAttention, &never}}, 1, [](int64_t) {})[0];
  ASSERT_EQ(outcome.failures.size(), 1u);
  EXPECT_EQ(outcome.failures[0],
            "the smallest case: never hit: the replaced rule made no difference");
  FaultText other = *FindFault("window_too_wide")->text;
  other.checks = "attention lse bound";
  outcome = RunFaults({{FaultKind::kAttention, &other}}, 1, [](int64_t) {})[0];
  ASSERT_EQ(outcome.failures.size(), 2u);
  EXPECT_EQ(outcome.failures[0],
            "the smallest case: caught by 'attention out bound', its line names 'attention lse "
            "bound'");
  const std::vector<FaultOutcome> failed = {outcome};
  EXPECT_EQ(ResultsOf(failed)[0].verdict.outcome, Outcome::kFail);
  EXPECT_NE(RunSummary(failed).find("1 fault: 0 caught"), std::string::npos);
}

}  // namespace
}  // namespace kvcheck
