// Failing histories become small: of every fault the first drawn case that fails comes to within
// two operations of the shortest that is known, and still fails in the same way.

#include "fuzz/shrink_prefix.h"

#include <gtest/gtest.h>

#include "fuzz/draw_prefix.h"
#include "reference/prefix/model_store.h"
#include "reference/prefix/run_history.h"
#include "tools/faults/prefix_faults.h"

namespace kvcheck {
namespace {

TEST(ShrinkPrefix, ComesNearTheShortestKnownHistory) {
  const PrefixDrawer drawer;
  size_t compared = 0;
  for (const PrefixFault& fault : PrefixFaults()) {
    ModelStore store(fault.rules(), std::string(fault.id));
    HistoryRunner runner(&store);
    uint64_t index = 0;
    std::string signature;
    for (; signature.empty() && index < 20'000; ++index) {
      const PrefixCase c = drawer.Draw(1, index);
      signature = runner.Run(c).Signature(c);
    }
    ASSERT_FALSE(signature.empty()) << fault.id;
    const PrefixCase drawn = drawer.Draw(1, index - 1);
    const auto fails = [&](const PrefixCase& c) { return runner.Run(c).Signature(c) == signature; };
    const ShrunkPrefix shrunk = ShrinkPrefix(drawn, fails, 4000);
    EXPECT_TRUE(fails(shrunk.c)) << fault.id;
    // Other signatures need other histories.
    const PrefixCase smallest = ParsePrefixCase(fault.smallest);
    if (runner.Run(smallest).Signature(smallest) != signature) continue;
    ++compared;
    EXPECT_LE(std::ssize(shrunk.c.ops), std::ssize(smallest.ops) + 2)
        << fault.id << ", " << signature << ": " << Print(shrunk.c);
  }
  EXPECT_GT(compared, PrefixFaults().size() / 2);
}

TEST(ShrinkPrefix, TakesNothingThatIsNotThere) {
  const PrefixCase c = ParsePrefixCase(
      "prefix block=4 tokens=64 data=tokens:1; open A 0x9 salt=b; write A; close A keep; open B "
      "0x9");
  const auto has = [](const PrefixCase& candidate) { return candidate.setup.block_tokens == 4; };
  const ShrunkPrefix shrunk = ShrinkPrefix(
      c, [](const PrefixCase& candidate) { return candidate.ops.size() >= 2; }, 1000, has);
  EXPECT_EQ(shrunk.c.setup.block_tokens, 4);
  EXPECT_EQ(shrunk.c.ops.size(), 2u);
  EXPECT_TRUE(shrunk.complete);
}

}  // namespace
}  // namespace kvcheck
