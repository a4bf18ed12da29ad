// A manager of blocks with a memory behind its ids is judged like a store with content.

#include "reference/prefix/block_memory.h"

#include <gtest/gtest.h>

#include "fuzz/draw_prefix.h"
#include "reference/prefix/model_store.h"
#include "reference/prefix/run_history.h"

namespace kvcheck {
namespace {

// The reference store, of which the ids alone are looked at.
class IdsAlone : public ModelStore {
 public:
  using ModelStore::ModelStore;
  PrefixCapabilities GetCapabilities() const override {
    PrefixCapabilities capabilities = ModelStore::GetCapabilities();
    PrefixSpace space;
    space.disk = false;
    space.quantizes = false;
    // Contents do not come back from a file.
    space.operations &= ~(1u << static_cast<int>(PrefixOpKind::kLoad));
    capabilities.spaces = {space};
    return capabilities;
  }
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override {
    const OpResult result = ModelStore::Open(request, prompt, who, all, hit);
    hit->rows.vectors = {};
    return result;
  }
  OpResult Read(int request, PrefixRows* rows) override {
    const OpResult result = ModelStore::Read(request, rows);
    rows->vectors = {};
    return result;
  }
};

TEST(BlockMemory, AManagerOfBlocksIsClean) {
  BlockMemory memory(std::make_unique<IdsAlone>());
  HistoryRunner runner(&memory);
  PrefixDrawOptions options;
  options.spaces = memory.GetCapabilities().spaces;
  const PrefixDrawer drawer(options);
  int64_t hits = 0;
  for (uint64_t index = 0; index < 300; ++index) {
    const PrefixCase c = drawer.Draw(3, index);
    const HistoryResult result = runner.Run(c);
    ASSERT_NE(result.outcome, Outcome::kFail) << result.reason << "\n" << Print(c);
    hits += result.counts.hits;
  }
  EXPECT_GT(hits, 300);
}

TEST(BlockMemory, AnIdGivenTwiceShowsAsRowsWrittenLater) {
  PrefixRules rules;
  rules.may_evict = [](const BlockState& state, bool* may) { *may = state.published; };
  BlockMemory memory(std::make_unique<IdsAlone>(std::move(rules)));
  const HistoryResult result = HistoryRunner(&memory).Run(ParsePrefixCase(
      "prefix block=1 tokens=2 dk=16 data=tokens:1; open A 0; write A; close A keep; open A 0 all; "
      "open B 1x2; write B 1; write B"));
  EXPECT_EQ(result.failure.fault, HistoryFault::kWrittenLater) << result.reason;
  EXPECT_TRUE(result.failure.held);
}

}  // namespace
}  // namespace kvcheck
