// partial=last_block tells a cache with a window that keeps the rows of a prompt's last block's
// hits from one that keeps one block less, in drawn histories; and asks for nothing that the former
// one has given back, whatever prompts went on from others, were forked, kept again or saved.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/draw_prefix.h"
#include "reference/prefix/model_store.h"
#include "reference/prefix/run_history.h"

namespace kvcheck {
namespace {

// The reference store, with hits where a store of prompts has them that gives back what its window
// has left: of a kept prompt the blocks stay that the window before its last whole block touches.
// blocks_less: so many fewer stay.
class GivesBack : public ModelStore {
 public:
  GivesBack(std::string profile, int64_t blocks_less)
      : profile_(std::move(profile)), blocks_less_(blocks_less) {}

  PrefixCapabilities GetCapabilities() const override {
    PrefixCapabilities capabilities = ModelStore::GetCapabilities();
    capabilities.prefix_profile = ParsePrefixProfile(profile_);
    PrefixSpace space;
    space.quantizes = space.disk = space.tiers = space.entries = false;
    space.operations = 0;
    for (const PrefixOpKind kind :
         {PrefixOpKind::kOpen, PrefixOpKind::kWrite, PrefixOpKind::kRead, PrefixOpKind::kClose,
          PrefixOpKind::kFork, PrefixOpKind::kTrimTo, PrefixOpKind::kEvict, PrefixOpKind::kClear,
          PrefixOpKind::kSave, PrefixOpKind::kLoad}) {
      space.operations |= 1u << static_cast<int>(kind);
    }
    capabilities.spaces = {space};
    return capabilities;
  }
  OpResult Start(const PrefixSetup& setup, const std::string& folder,
                 PrefixStarted* started) override {
    setup_ = setup;
    kept_.clear();
    saved_.clear();
    requests_ = {};
    return ModelStore::Start(setup, folder, started);
  }
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override {
    const int64_t block = setup_.block_tokens;
    int64_t tokens = 0;
    int64_t first = 0;
    for (const Entry& entry : kept_) {
      if (!(entry.who == who)) continue;
      const auto end =
          std::mismatch(prompt.begin(), prompt.end(), entry.tokens.begin(), entry.tokens.end());
      const int64_t found = (end.first - prompt.begin()) / block * block;
      if (found <= tokens || FirstBlock(found) < entry.first) continue;
      tokens = found;
      first = entry.first;
    }
    OpResult result = ModelStore::Open(request, prompt, who, all, hit);
    if (result.status != OpStatus::kOk) return result;
    if (hit->tokens > tokens) {
      // The blocks that are gone are a miss.
      ModelStore::TrimTo(request, tokens);
      hit->tokens = tokens;
      ModelStore::Read(request, &hit->rows);
    }
    At(request) = {who, {prompt.begin(), prompt.begin() + hit->tokens}, first};
    At(request).first = std::min(first, FirstBlock(hit->tokens));
    return result;
  }
  OpResult Write(int request, std::span<const int32_t> tokens, const PrefixVectors& vectors,
                 bool* full) override {
    OpResult result = ModelStore::Write(request, tokens, vectors, full);
    if (result.status == OpStatus::kOk && !*full) {
      At(request).tokens.insert(At(request).tokens.end(), tokens.begin(), tokens.end());
      // While it runs as at its end, so that trimming brings nothing back.
      GiveBack(&At(request));
    }
    return result;
  }
  OpResult TrimTo(int request, int64_t tokens) override {
    if (FirstBlock(tokens) < At(request).first) return OpResult::Refuse("given back");
    OpResult result = ModelStore::TrimTo(request, tokens);
    if (result.status == OpStatus::kOk) At(request).tokens.resize(static_cast<size_t>(tokens));
    return result;
  }
  OpResult Fork(int request, int out) override {
    OpResult result = ModelStore::Fork(request, out);
    if (result.status == OpStatus::kOk) At(out) = At(request);
    return result;
  }
  OpResult Close(int request, bool keep) override {
    if (keep) {
      // What has the same tokens and identity is replaced.
      std::erase_if(kept_, [&](const Entry& entry) {
        return entry.who == At(request).who && entry.tokens == At(request).tokens;
      });
      kept_.push_back(At(request));
    }
    return ModelStore::Close(request, keep);
  }
  OpResult Clear() override {
    kept_.clear();
    return ModelStore::Clear();
  }
  OpResult Save(int key) override {
    saved_[key] = kept_;
    return ModelStore::Save(key);
  }
  OpResult Load(int key) override {
    OpResult result = ModelStore::Load(key);
    if (result.status == OpStatus::kOk) {
      kept_.insert(kept_.end(), saved_[key].begin(), saved_[key].end());
    }
    return result;
  }
  void Observe(PrefixCounters* counters) override {
    ModelStore::Observe(counters);
    // The reference store counts hits before this one shortens them.
    counters->hits = counters->hit_tokens = PrefixCounters::kUnknown;
  }

 private:
  struct Entry {
    PrefixIdentity who;
    std::vector<int32_t> tokens;
    int64_t first = 0;  // the first block that is there
  };
  Entry& At(int request) { return requests_[static_cast<size_t>(request)]; }
  // The first block that the window before this token touches.
  int64_t FirstBlock(int64_t token) const {
    if (setup_.window == 0) return 0;
    return std::max<int64_t>(0, token - (setup_.window - 1)) / setup_.block_tokens;
  }
  void GiveBack(Entry* entry) const {
    const int64_t block = setup_.block_tokens;
    const int64_t whole = std::ssize(entry->tokens) / block;
    const int64_t last_block = std::max<int64_t>(0, whole - 1 + blocks_less_) * block;
    entry->first = std::max(entry->first, FirstBlock(last_block));
  }

  std::string profile_;
  int64_t blocks_less_ = 0;
  PrefixSetup setup_;
  std::vector<Entry> kept_;
  std::map<int, std::vector<Entry>> saved_;
  std::array<Entry, kRequests> requests_;
};

struct Found {
  int64_t failed = 0;
  int64_t windows = 0;     // hits that were due in cases with a window
  int64_t elsewhere = 0;   // hits that were due in cases without one
  std::string signatures;  // one line for each kind of failure
  std::string first;       // the first failure, with its case
};

Found Histories(GivesBack* store, uint64_t cases) {
  PrefixDrawOptions options;
  options.spaces = store->GetCapabilities().spaces;
  const PrefixDrawer drawer(options);
  HistoryRunner runner(store);
  Found found;
  for (uint64_t index = 0; index < cases; ++index) {
    const PrefixCase c = drawer.Draw(3, index);
    const HistoryResult result = runner.Run(c);
    (c.setup.window > 0 ? found.windows : found.elsewhere) += result.counts.due;
    if (result.outcome != Outcome::kFail) continue;
    ++found.failed;
    const std::string signature = result.Signature(c) + "\n";
    if (found.signatures.find(signature) == std::string::npos) found.signatures += signature;
    if (found.first.empty()) found.first = result.reason + "\n" + Print(c);
  }
  return found;
}

constexpr uint64_t kHistories = 600;

TEST(LastBlock, ACacheThatKeepsTheWindowOfItsLastBlockPasses) {
  GivesBack store("partial=last_block", 0);
  const Found found = Histories(&store, kHistories);
  EXPECT_EQ(found.failed, 0) << found.first;
  EXPECT_GT(found.windows, 100);
  EXPECT_GT(found.elsewhere, 100);
}

TEST(LastBlock, OneThatKeepsABlockLessFails) {
  GivesBack store("partial=last_block", 1);
  const Found found = Histories(&store, kHistories);
  EXPECT_GT(found.failed, 0);
  EXPECT_EQ(found.signatures, "open hit_missing\n") << found.first;
}

// Under the two other words they cannot be told apart.
TEST(LastBlock, OtherWordsAskForMoreOrForLess) {
  GivesBack repaired("partial=common", 0);
  EXPECT_GT(Histories(&repaired, kHistories).failed, 0);
  GivesBack faulty("partial=prefix", 1);
  const Found found = Histories(&faulty, kHistories);
  EXPECT_EQ(found.failed, 0) << found.first;
}

}  // namespace
}  // namespace kvcheck
