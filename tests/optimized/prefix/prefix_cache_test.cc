// The cache itself: many threads, a hash that says nothing, codes, budgets and a tier.

#include "optimized/prefix/prefix_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "reference/data/generator.h"
#include "tests/optimized/prefix/prompt_rows.h"

namespace kvcheck::optimized {
namespace {

TEST(PrefixCache, EveryThreadReadsItsOwnRowsWhateverOthersDo) {
  const PrefixSetup setup = SetupOf("block=2 tokens=48 layers=2 dk=16");
  PrefixCache cache(setup);
  std::atomic<int64_t> hits = 0;
  std::atomic<int64_t> wrong = 0;
  const auto work = [&](uint64_t thread) {
    Generator random(1, "threads", thread);
    for (int i = 0; i < 300; ++i) {
      PrefixIdentity who;
      if (random.Below(2) == 0) who.salt = std::string(1, static_cast<char>('a' + random.Below(2)));
      std::vector<int32_t> prompt;
      const auto length = static_cast<size_t>(random.Between(1, 10));
      while (prompt.size() < length) prompt.push_back(static_cast<int32_t>(random.Below(2)));
      std::unique_ptr<PrefixCache::Request> request = cache.Open(prompt, who, true);
      const auto hit = static_cast<size_t>(request->tokens());
      hits += hit > 0 ? 1 : 0;
      std::vector<int32_t> has(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(hit));
      if (hit < prompt.size()) {
        const Rows rows(setup, who, prompt, hit);
        if (cache.Append(request.get(), std::span(prompt).subspan(hit), rows.vectors)) has = prompt;
      }
      wrong += ReadOf(&cache, setup, *request) == Rows(setup, who, has) ? 0 : 1;
      if (random.Below(4) == 0) cache.Evict(random.Between(1, 48));
      if (random.Below(50) == 0) cache.Clear();
      std::unique_ptr<PrefixCache::Request> fork;
      if (random.Below(4) == 0) fork = cache.Fork(*request);
      if (!has.empty() && random.Below(4) == 0) {
        cache.TrimTo(request.get(), random.Between(0, std::ssize(has)));
      }
      wrong += fork == nullptr || ReadOf(&cache, setup, *fork) == Rows(setup, who, has) ? 0 : 1;
      cache.Close(std::move(request), random.Below(4) != 0);
      if (fork != nullptr) cache.Close(std::move(fork), true);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 8; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(hits, 300);
  cache.Clear();
  const PrefixCache::Counters counters = cache.GetCounters();
  EXPECT_EQ(counters.bytes, 0);
  EXPECT_EQ(counters.blocks, 0);
  EXPECT_EQ(counters.lookups, 8 * 300);
}

TEST(PrefixCache, CodesTakeLessOfTheBudget) {
  const PrefixSetup setup =
      SetupOf("block=2 tokens=64 layers=1 dk=32 k=affine:4:g32:f32 quantize_from=4");
  PrefixCache cache(setup);
  const auto store = [&](const std::vector<int32_t>& prompt) {
    std::unique_ptr<PrefixCache::Request> request = cache.Open(prompt, {}, true);
    const auto hit = static_cast<size_t>(request->tokens());
    const Rows rows(setup, {}, prompt, hit);
    EXPECT_TRUE(cache.Append(request.get(), std::span(prompt).subspan(hit), rows.vectors));
    cache.Close(std::move(request), true);
    return cache.GetCounters().bytes;
  };
  const int64_t plain = store({0, 0});
  EXPECT_EQ(plain, 2 * 2 * 32 * 4);
  const int64_t both = store({1, 1, 1, 1});
  // 32 codes of 4 bits, and scale and bias in f32, for each of 8 vectors.
  EXPECT_EQ(both - plain, 8 * (16 + 8));
}

TEST(PrefixCache, WhatIsKeptInItsOwnTypeComesBackBitForBit) {
  const std::vector<int32_t> prompt = {0, 1, 1, 0};
  for (const bool codes_of_v : {false, true}) {
    const PrefixSetup setup = SetupOf("block=2 tokens=16 layers=2 hkv=2 dk=32 x=bf16 k=bf16" +
                                      std::string(codes_of_v ? " v=f8e4m3fn" : ""));
    PrefixCache cache(setup);
    std::unique_ptr<PrefixCache::Request> request = cache.Open(prompt, {}, true);
    const Rows rows(setup, {}, prompt);
    EXPECT_TRUE(cache.Append(request.get(), prompt, rows.vectors));
    cache.Close(std::move(request), true);
    request = cache.Open(prompt, {}, true);
    const Rows read = ReadOf(&cache, setup, *request);
    cache.Close(std::move(request), false);
    EXPECT_EQ(read.k, rows.k);
    EXPECT_EQ(read.v == rows.v, !codes_of_v);
  }
}

// A tier in memory.
class MapTier : public BlockTier {
 public:
  void Store(const TierKey& key, BlockState state, std::span<const std::byte> bytes) override {
    stored_[NameOf(key)] = {state, {bytes.begin(), bytes.end()}};
  }
  void Commit() override { blocks_.merge(stored_); }
  bool Load(const TierKey& key, BlockState* state, std::vector<std::byte>* bytes) override {
    const auto found = blocks_.find(NameOf(key));
    if (found == blocks_.end()) return false;
    *state = found->second.first;
    *bytes = found->second.second;
    return true;
  }
  void Clear() override { blocks_.clear(); }
  void Epoch() override { blocks_.clear(); }
  void Settle() override {}
  size_t size() const { return blocks_.size(); }

 private:
  static std::string NameOf(const TierKey& key) {
    std::string name = Print(key.who);
    for (const int32_t token : key.tokens) name += "," + std::to_string(token);
    return name;
  }
  using Blocks = std::map<std::string, std::pair<BlockState, std::vector<std::byte>>>;
  Blocks blocks_;
  Blocks stored_;
};

TEST(PrefixCache, WhatMemoryHasForgottenComesFromTheTier) {
  const PrefixSetup setup = SetupOf("block=2 tokens=8 layers=1 dk=16");
  MapTier tier;
  PrefixCache cache(setup, &tier);
  const std::vector<int32_t> prompt = {0, 1, 0, 1};
  std::unique_ptr<PrefixCache::Request> request = cache.Open(prompt, {}, true);
  EXPECT_TRUE(cache.Append(request.get(), prompt, Rows(setup, {}, prompt).vectors));
  cache.Close(std::move(request), true);
  EXPECT_EQ(tier.size(), 2u);
  cache.Evict(8);
  EXPECT_EQ(cache.GetCounters().blocks, 0);
  request = cache.Open(prompt, {}, true);
  EXPECT_EQ(request->hit_tokens(), 4);
  EXPECT_TRUE(request->is_from_tier());
  EXPECT_TRUE(ReadOf(&cache, setup, *request) == Rows(setup, {}, prompt));
  cache.Close(std::move(request), false);
  request = cache.Open(prompt, {}, true);
  EXPECT_FALSE(request->is_from_tier());
  cache.Close(std::move(request), false);
  cache.Epoch();
  request = cache.Open(prompt, {}, true);
  EXPECT_EQ(request->hit_tokens(), 0);
  cache.Close(std::move(request), false);
}

TEST(PrefixCache, AStoreIsKeptAgainTheMostRecentFirst) {
  const PrefixSetup setup = SetupOf("block=2 tokens=12 entries=4 layers=1 dk=16");
  PrefixCache cache(setup);
  const auto open = [&](PrefixCache* in, const std::vector<int32_t>& prompt, bool keep) {
    std::unique_ptr<PrefixCache::Request> request = in->Open(prompt, {}, true);
    const auto hit = static_cast<size_t>(request->tokens());
    EXPECT_TRUE(ReadOf(in, setup, *request) == Rows(setup, {}, std::span(prompt).first(hit)));
    if (keep && hit < prompt.size()) {
      const Rows rows(setup, {}, prompt, hit);
      EXPECT_TRUE(in->Append(request.get(), std::span(prompt).subspan(hit), rows.vectors));
    }
    in->Close(std::move(request), keep);
    return static_cast<int64_t>(hit);
  };
  open(&cache, {0, 0, 0, 1}, true);
  open(&cache, {1, 1, 1, 1}, true);
  open(&cache, {0, 0, 0, 0}, true);  // its first block is that of the oldest prompt
  const KeptStore store = cache.Kept();
  EXPECT_EQ(store.blocks.size(), 5u);
  EXPECT_EQ(store.prompts.size(), 3u);
  PrefixCache all(setup);
  all.Keep(store);
  EXPECT_EQ(open(&all, {0, 0, 0, 1}, false), 4);
  EXPECT_EQ(open(&all, {1, 1, 1, 1}, false), 4);
  EXPECT_EQ(open(&all, {0, 0, 0, 0}, false), 4);
  EXPECT_EQ(all.GetCounters().prompts, 3);
  // A reader leaves room for 3 blocks: 2 of the newest prompt, and one of what is before it.
  PrefixCache small(setup);
  const std::vector<int32_t> held = {2, 2, 2, 2, 2, 2};
  std::unique_ptr<PrefixCache::Request> reader = small.Open(held, {}, true);
  EXPECT_TRUE(small.Append(reader.get(), held, Rows(setup, {}, held).vectors));
  small.Keep(store);
  EXPECT_EQ(open(&small, {0, 0, 0, 0}, false), 4);
  EXPECT_EQ(open(&small, {1, 1, 1, 1}, false), 2);
  EXPECT_EQ(open(&small, {0, 0, 0, 1}, false), 2);
  EXPECT_LE(small.GetCounters().bytes, small.GetCounters().budget_bytes);
  small.Close(std::move(reader), false);
}

TEST(PrefixCache, WhatOfAStoreFindsNoRoomIsInTheTier) {
  const PrefixSetup setup = SetupOf("block=2 tokens=8 layers=1 dk=16");
  const std::vector<int32_t> prompt = {0, 1, 0, 1};
  PrefixCache first(setup);
  std::unique_ptr<PrefixCache::Request> request = first.Open(prompt, {}, true);
  EXPECT_TRUE(first.Append(request.get(), prompt, Rows(setup, {}, prompt).vectors));
  first.Close(std::move(request), true);
  MapTier tier;
  PrefixCache cache(setup, &tier);
  const std::vector<int32_t> held = {2, 2, 2, 2, 2, 2};
  std::unique_ptr<PrefixCache::Request> reader = cache.Open(held, {}, true);
  EXPECT_TRUE(cache.Append(reader.get(), held, Rows(setup, {}, held).vectors));
  cache.Keep(first.Kept());
  EXPECT_EQ(cache.GetCounters().blocks, 1);
  EXPECT_EQ(tier.size(), 2u);
  cache.Close(std::move(reader), false);
  request = cache.Open(prompt, {}, true);
  EXPECT_EQ(request->hit_tokens(), 4);
  EXPECT_TRUE(ReadOf(&cache, setup, *request) == Rows(setup, {}, prompt));
  cache.Close(std::move(request), false);
}

TEST(PrefixCache, OfTooManyPromptsTheLeastRecentGoes) {
  const PrefixSetup setup = SetupOf("block=1 tokens=16 entries=2 layers=1 dk=16");
  PrefixCache cache(setup);
  const auto open = [&](const std::vector<int32_t>& prompt, bool keep) {
    std::unique_ptr<PrefixCache::Request> request = cache.Open(prompt, {}, true);
    const auto hit = static_cast<size_t>(request->tokens());
    if (hit < prompt.size()) {
      const Rows rows(setup, {}, prompt, hit);
      EXPECT_TRUE(cache.Append(request.get(), std::span(prompt).subspan(hit), rows.vectors));
    }
    cache.Close(std::move(request), keep);
    return static_cast<int64_t>(hit);
  };
  open({0, 0}, true);
  open({1, 1}, true);
  open({0, 0}, true);  // kept again: recent
  open({2, 2}, true);
  EXPECT_EQ(cache.GetCounters().prompts, 2);
  EXPECT_EQ(open({1, 1}, false), 0);
  EXPECT_EQ(open({0, 0}, false), 2);
  EXPECT_EQ(open({2, 2}, false), 2);
}

}  // namespace
}  // namespace kvcheck::optimized
