// Every fault of prefix caches is seen on the shortest history that is known for it, by the check
// that its line names and by what it changes: its rule was used, the reference store passes the
// same history, and no operation of it can be left out.

#include "tools/faults/prefix_faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reference/prefix/model_store.h"
#include "reference/prefix/run_history.h"

namespace kvcheck {
namespace {

HistoryResult RunOn(const PrefixFault& fault, const PrefixCase& c, int64_t* hits) {
  ModelStore store(fault.rules(), std::string(fault.id));
  const HistoryResult result = HistoryRunner(&store).Run(c);
  *hits = store.Hits();
  return result;
}

bool Names(const PrefixFault& fault, const std::string& check) {
  const std::string named = " | " + std::string(fault.checks) + " | ";
  return named.find(" | " + check + " | ") != std::string::npos;
}

TEST(PrefixFaults, AreFoundOnTheirShortestHistoryAndTheReferenceStorePassesIt) {
  for (const PrefixFault& fault : PrefixFaults()) {
    const PrefixCase c = ParsePrefixCase(fault.smallest);
    ModelStore clean;
    const HistoryResult passed = HistoryRunner(&clean).Run(c);
    EXPECT_EQ(passed.outcome, Outcome::kPass) << fault.id << ": " << passed.reason;
    EXPECT_EQ(clean.Hits(), 0);
    EXPECT_EQ(passed.counts.idle, 0) << fault.id;
    int64_t hits = 0;
    const HistoryResult found = RunOn(fault, c, &hits);
    EXPECT_EQ(found.outcome, Outcome::kFail) << fault.id << ": " << found.reason;
    EXPECT_GT(hits, 0) << fault.id;
    EXPECT_TRUE(Names(fault, found.Signature(c)))
        << fault.id << ": " << found.Signature(c) << ": " << found.reason;
  }
}

TEST(PrefixFaults, HistoriesCannotLoseAnOperation) {
  for (const PrefixFault& fault : PrefixFaults()) {
    const PrefixCase c = ParsePrefixCase(fault.smallest);
    int64_t hits = 0;
    const HistoryResult found = RunOn(fault, c, &hits);
    // What follows the failure makes it a case that proves something without the fault.
    const int64_t last = std::min(found.operation, std::ssize(c.ops) - 1);
    for (int64_t left_out = 0; left_out <= last; ++left_out) {
      PrefixCase shorter = c;
      shorter.ops.erase(shorter.ops.begin() + left_out);
      const HistoryResult result = RunOn(fault, shorter, &hits);
      EXPECT_NE(result.Signature(shorter), found.Signature(c))
          << fault.id << " without " << Print(c.ops[static_cast<size_t>(left_out)]) << ": "
          << result.reason;
    }
  }
}

TEST(PrefixFaults, AreManyAndNamedOnce) {
  for (const PrefixFault& fault : PrefixFaults()) EXPECT_EQ(FindPrefixFault(fault.id), &fault);
  EXPECT_EQ(FindPrefixFault("nothing"), nullptr);
  EXPECT_GE(PrefixFaults().size(), 40u);
}

}  // namespace
}  // namespace kvcheck
