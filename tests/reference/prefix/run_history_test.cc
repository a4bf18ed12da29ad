// Histories on the reference store and on whoever lies about it.

#include "reference/prefix/run_history.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fuzz/draw_prefix.h"
#include "optimized/prefix/optimized_prefix.h"
#include "reference/prefix/model_store.h"

namespace kvcheck {
namespace {

constexpr const char* kStored =
    "prefix block=1 tokens=8 dk=16 data=tokens:1; open A 0,1,1; write A; close A keep; ";

HistoryResult RunOn(PrefixImplementation* implementation, const std::string& text) {
  HistoryRunner runner(implementation);
  return runner.Run(ParsePrefixCase(text));
}

HistoryResult RunModel(const std::string& text) {
  ModelStore model;
  return RunOn(&model, text);
}

// The reference store but for what a test changes of an answer.
class Changed : public ModelStore {
 public:
  std::function<void(PrefixHit*)> on_hit;
  std::function<void(int, PrefixRows*)> on_read;
  std::function<void(PrefixCounters*)> on_observe;
  std::function<OpResult(int)> on_close;
  bool publishes_at_write = false;
  bool uses_folder = false;
  std::string unwritten;

  bool UsesFolder() const override { return uses_folder; }
  std::string Unwritten() const override { return unwritten; }
  PrefixCapabilities GetCapabilities() const override {
    PrefixCapabilities capabilities = ModelStore::GetCapabilities();
    capabilities.prefix_profile.publishes_at_write = publishes_at_write;
    capabilities.prefix_profile.evicts_lru = !publishes_at_write;
    return capabilities;
  }
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override {
    OpResult result = ModelStore::Open(request, prompt, who, all, hit);
    if (on_hit) on_hit(hit);
    return result;
  }
  OpResult Read(int request, PrefixRows* rows) override {
    OpResult result = ModelStore::Read(request, rows);
    if (on_read) on_read(request, rows);
    return result;
  }
  OpResult Close(int request, bool keep) override {
    return on_close ? on_close(request) : ModelStore::Close(request, keep);
  }
  void Observe(PrefixCounters* counters) override {
    ModelStore::Observe(counters);
    if (on_observe) on_observe(counters);
  }
};

void ExpectClean(PrefixImplementation* implementation, uint64_t cases) {
  PrefixDrawOptions options;
  options.spaces = implementation->GetCapabilities().spaces;
  const PrefixDrawer drawer(options);
  HistoryRunner runner(implementation);
  int64_t hits = 0;
  int64_t due = 0;
  int64_t coded = 0;
  for (uint64_t index = 0; index < cases; ++index) {
    const PrefixCase c = drawer.Draw(1, index);
    ASSERT_EQ(ParsePrefixCase(Print(c)), c) << Print(c);
    const HistoryResult result = runner.Run(c);
    ASSERT_NE(result.outcome, Outcome::kFail) << "case " << index << ": " << result.reason << "\n"
                                              << Print(c);
    ASSERT_NE(result.outcome, Outcome::kUnsupported) << result.reason << "\n" << Print(c);
    hits += result.counts.hits;
    due += result.counts.due;
    coded += result.counts.coded;
  }
  EXPECT_GT(hits, static_cast<int64_t>(cases));
  EXPECT_GT(due, static_cast<int64_t>(cases));
  EXPECT_GT(coded, 0);
}

TEST(RunHistory, TheModelIsClean) {
  ModelStore model;
  ExpectClean(&model, 500);
}

TEST(RunHistory, TheOptimizedCacheIsClean) {
  optimized::OptimizedPrefix optimized;
  ExpectClean(&optimized, 1000);
}

TEST(RunHistory, DrawnCasesReachEveryProbe) {
  ModelStore model;
  HistoryRunner runner(&model);
  const PrefixDrawer drawer;
  HistoryProbeCounts probes{};
  for (uint64_t index = 0; index < 1500; ++index) {
    const HistoryResult result = runner.Run(drawer.Draw(2, index));
    for (size_t i = 0; i < probes.size(); ++i) probes[i] += result.probes[i];
  }
  for (size_t i = 0; i < probes.size(); ++i) {
    EXPECT_GT(probes[i], 0) << Name(static_cast<HistoryProbe>(i));
  }
}

// A store that copies what it finds needs room for the copy, and may evict for it: the same open
// again then finds less, and that is no fault of it. Where there is room for both it is one.
TEST(RunHistory, ARepeatedOpenMayHitLessWhereTheFirstTookTheRoom) {
  for (const bool has_room : {false, true}) {
    Changed store;
    int opens = 0;
    store.on_hit = [&opens](PrefixHit* hit) {
      if (++opens == 3) *hit = PrefixHit();
    };
    store.on_observe = [](PrefixCounters* counters) { *counters = PrefixCounters(); };
    const HistoryResult result =
        RunOn(&store, std::string("prefix block=1 tokens=") + (has_room ? "16" : "4") +
                          " dk=16 data=tokens:1; open A 0,1,1; write A; close A keep; open B 0,1,1 "
                          "all; open C 0,1,1 all");
    EXPECT_EQ(result.outcome == Outcome::kFail, has_room) << result.reason;
  }
}

TEST(RunHistory, AHitIsShownAndCounted) {
  const HistoryResult result = RunModel(std::string(kStored) + "open A 0,1,1,0; read A; close A");
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  EXPECT_EQ(result.counts.hits, 1);
  EXPECT_EQ(result.counts.hit_tokens, 3);
  EXPECT_EQ(result.counts.due, 1);
}

TEST(RunHistory, RowsThatChangeUnderAReaderFail) {
  Changed store;
  int reads = 0;
  std::vector<std::byte> other;
  store.on_read = [&](int request, PrefixRows* rows) {
    if (request != 0 || rows->vectors.tokens == 0 || ++reads < 4) return;
    const auto bytes = static_cast<size_t>(rows->vectors.k_strides.head);
    other.assign(rows->vectors.k, rows->vectors.k + bytes * 2);
    std::swap_ranges(other.begin(), other.begin() + 64, other.begin() + 64);
    rows->vectors.k = other.data();
  };
  const HistoryResult result =
      RunOn(&store, std::string(kStored) + "open A 0,1,1 all; observe; evict 1; observe");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.failure.fault, HistoryFault::kOtherPosition);
  EXPECT_TRUE(result.failure.held);
}

TEST(RunHistory, HitsOfAnotherLengthFail) {
  Changed store;
  store.on_hit = [](PrefixHit* hit) { hit->tokens = std::min<int64_t>(hit->tokens, 1); };
  EXPECT_EQ(RunOn(&store, std::string(kStored) + "open A 0,1,1 all").failure.fault,
            HistoryFault::kHitMissing);
  store.on_hit = [](PrefixHit* hit) { hit->tokens += 9; };
  EXPECT_EQ(RunOn(&store, std::string(kStored) + "open A 0,1,1 all").failure.fault,
            HistoryFault::kHitTooLong);
  store.on_hit = [](PrefixHit* hit) { hit->rows.vectors.k = nullptr; };
  EXPECT_EQ(RunOn(&store, std::string(kStored) + "open A 0,1,1 all").failure.fault,
            HistoryFault::kShape);
  std::vector<uint8_t> retained(64, 1);
  retained[1] = 0;
  store.on_hit = [&](PrefixHit* hit) { hit->rows.retained = retained.data(); };
  EXPECT_EQ(RunOn(&store, std::string(kStored) + "open A 0,1,1 all").failure.fault,
            HistoryFault::kRowMissing);
}

TEST(RunHistory, ARowThatAWindowLeftBehindNeedNotBeThere) {
  Changed store;
  std::vector<uint8_t> retained;
  store.on_read = [&](int, PrefixRows* rows) {
    const auto tokens = static_cast<size_t>(rows->vectors.tokens);
    retained.assign(2 * tokens, 1);
    for (size_t i = 0; i + 1 < tokens; ++i) retained[tokens + i] = 0;
    rows->retained = retained.data();
  };
  const std::string text =
      "prefix block=1 tokens=8 dk=16 window=2 data=tokens:1; open A 0,1,1; write A; close A keep; "
      "open A 0,1,1 all; read A";
  EXPECT_EQ(RunOn(&store, text).outcome, Outcome::kPass);
  store.on_read = [&](int, PrefixRows* rows) {
    retained.assign(static_cast<size_t>(2 * rows->vectors.tokens), 0);
    rows->retained = retained.data();
  };
  EXPECT_EQ(RunOn(&store, text).failure.fault, HistoryFault::kRowMissing);
}

TEST(RunHistory, NumbersThatAreNotTrueFail) {
  for (const auto& [member, fault] :
       {std::pair{&PrefixCounters::blocks_free, HistoryFault::kBlocks},
        {&PrefixCounters::blocks_held, HistoryFault::kBlocks},
        {&PrefixCounters::lookups, HistoryFault::kCounters},
        {&PrefixCounters::hit_tokens, HistoryFault::kCounters}}) {
    Changed store;
    store.on_observe = [member](PrefixCounters* counters) { counters->*member += 1; };
    EXPECT_EQ(RunOn(&store, std::string(kStored) + "open A 0,1,1 all").failure.fault, fault);
  }
  Changed store;
  store.on_observe = [](PrefixCounters* counters) { counters->bytes = counters->budget_bytes + 1; };
  EXPECT_EQ(RunOn(&store, kStored + std::string("observe")).failure.fault,
            HistoryFault::kOverBudget);
}

TEST(RunHistory, ALegalCallThatIsRefusedFails) {
  Changed store;
  store.on_close = [](int) { return OpResult::Refuse("not now"); };
  const HistoryResult result = RunOn(&store, std::string(kStored) + "observe");
  EXPECT_EQ(result.failure.fault, HistoryFault::kRefused);
  EXPECT_EQ(result.operation, 2);
}

// A full disk is no fault of the cache; a wrong row is one all the same.
TEST(RunHistory, WhatIsMissingForWantOfRoomProvesNothing) {
  const std::string stored =
      "prefix block=1 tokens=8 dk=16 disk=yes data=tokens:1; open A 0,1,1; write A; close A keep; ";
  Changed refuses;
  refuses.uses_folder = true;
  refuses.on_close = [](int) { return OpResult::Refuse("not now"); };
  EXPECT_EQ(RunOn(&refuses, stored + "observe").failure.fault, HistoryFault::kRefused);
  refuses.unwritten = "a.bin cannot be written: No space left on device";
  const HistoryResult result = RunOn(&refuses, stored + "observe");
  EXPECT_EQ(result.outcome, Outcome::kMistrusted);
  EXPECT_EQ(result.failure.fault, HistoryFault::kNone);
  EXPECT_FALSE(result.by_case);
  EXPECT_TRUE(result.reason.starts_with("no room in TMPDIR (")) << result.reason;
  EXPECT_NE(result.reason.find("a.bin cannot be written: No space left on device; make room there"),
            std::string::npos)
      << result.reason;
  // The next case begins anew.
  refuses.on_close = nullptr;
  EXPECT_EQ(RunOn(&refuses, stored + "open A 0,1,1 all; read A").outcome, Outcome::kPass);

  refuses.on_hit = [](PrefixHit* hit) { hit->tokens = std::min<int64_t>(hit->tokens, 1); };
  EXPECT_EQ(RunOn(&refuses, stored + "open A 0,1,1 all").outcome, Outcome::kMistrusted);
  refuses.on_hit = [](PrefixHit* hit) { hit->tokens += 9; };
  EXPECT_EQ(RunOn(&refuses, stored + "open A 0,1,1 all").outcome, Outcome::kFail);

  Changed wrong;
  wrong.uses_folder = true;
  wrong.unwritten = "full";
  wrong.on_read = [](int, PrefixRows* rows) {
    static std::vector<std::byte> zeros(1 << 16);
    rows->vectors.k = rows->vectors.v = zeros.data();
  };
  EXPECT_EQ(RunOn(&wrong, stored + "open A 0,1,1 all; read A").outcome, Outcome::kFail);
}

TEST(RunHistory, WhatProvesNothingIsMistrusted) {
  const HistoryResult nothing = RunModel("prefix block=1 tokens=4 data=tokens:1; open A 0");
  EXPECT_EQ(nothing.outcome, Outcome::kMistrusted) << nothing.reason;
  EXPECT_TRUE(nothing.by_case);
  // One channel does not tell tokens apart.
  std::string many = "prefix block=1 tokens=64 dk=1 data=tokens:1; open A r1:64; write A; read A";
  EXPECT_EQ(RunModel(many).outcome, Outcome::kMistrusted);
  // A hit of memory where the disk was asked for.
  const HistoryResult tier = RunModel(
      "prefix block=1 tokens=8 dk=16 disk=yes data=tokens:1; open A 0,1,1; write A; close A keep; "
      "open A 0,1,1 all from=disk");
  EXPECT_EQ(tier.outcome, Outcome::kMistrusted) << tier.reason;
  EXPECT_FALSE(tier.by_case);
  EXPECT_EQ(RunModel("prefix block=1 tokens=8 dk=16 disk=yes data=tokens:1; open A 0,1,1; write A; "
                     "close A keep; restart; open A 0,1,1 all from=disk")
                .outcome,
            Outcome::kPass);
}

TEST(RunHistory, AStoreThatNeverHitsUnderPressureIsMistrusted) {
  Changed store;
  store.on_hit = [](PrefixHit* hit) { hit->tokens = 0; };
  store.on_read = [](int, PrefixRows*) {};
  const HistoryResult result =
      RunOn(&store,
            "prefix block=1 tokens=8 entries=1 dk=16 data=tokens:1; open A 0,1,1; write A; close A "
            "keep; open B 1,1; write B; close B keep; open A 0,1,1");
  EXPECT_NE(result.outcome, Outcome::kPass);
}

TEST(RunHistory, AKillLosesNothingOlder) {
  for (int write = 1; write <= 5; ++write) {
    const HistoryResult result = RunModel(
        "prefix block=1 tokens=16 dk=16 disk=yes data=tokens:1; open A 0,1,1; write A; close A "
        "keep; "
        "open A 1,0,0,1; write A; close A keep kill=" +
        std::to_string(write) + "; open A 0,1,1 all from=disk; open B 1,0,0,1 all; close B");
    EXPECT_EQ(result.outcome, Outcome::kPass) << write << ": " << result.reason;
  }
}

TEST(RunHistory, SignaturesNameOperationFaultAndReader) {
  PrefixRules rules;
  rules.may_evict = [](const BlockState& state, bool* may) { *may = state.published; };
  ModelStore evicts_held(std::move(rules));
  const PrefixCase c = ParsePrefixCase(
      "prefix block=1 tokens=2 dk=16 data=tokens:1; open A 0; write A; close A keep; open A 0 all; "
      "open B 1x2; write B 1; write B");
  HistoryRunner runner(&evicts_held);
  const HistoryResult result = runner.Run(c);
  EXPECT_EQ(result.Signature(c), "write written_later held") << result.reason;
  EXPECT_EQ(result.failure.request, 0);
}

// A scheduler that computes what waits under the new weights.
class WaitsForWeights : public ModelStore {
 public:
  OpResult Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who, bool all,
                PrefixHit* hit) override {
    prompt_.assign(prompt.begin(), prompt.end());
    return ModelStore::Open(request, prompt, who, all, hit);
  }
  OpResult Epoch() override {
    OpResult result = ModelStore::Epoch();
    PrefixHit hit;
    ModelStore::Close(0, false);
    ModelStore::Open(0, prompt_, {}, false, &hit);
    return result;
  }
  void Observe(PrefixCounters*) override {}  // it has looked up twice

 private:
  std::vector<int32_t> prompt_;
};

TEST(RunHistory, ARequestWithoutTokensMayGoOnUnderTheNewWeights) {
  const std::string history =
      "prefix block=1 tokens=8 dk=16 data=tokens:1; open A 0,1; epoch; write A; close A keep; "
      "open B 0,1,1";
  WaitsForWeights waits;
  const HistoryResult kept = RunOn(&waits, history);
  EXPECT_EQ(kept.outcome, Outcome::kPass) << kept.reason;
  EXPECT_EQ(kept.counts.hits, 1);
  // And need not be kept.
  const HistoryResult unkept = RunModel(history);
  EXPECT_NE(unkept.outcome, Outcome::kFail) << unkept.reason;
  EXPECT_EQ(unkept.counts.hits, 0);
}

TEST(RunHistory, ObserveDoesNotGoByWhatWasReadLongAgo) {
  const HistoryResult result = RunModel(
      "prefix block=1 tokens=8 dk=16 observe=last data=tokens:1; open A 0,1; write A; read A; "
      "close A; open B 1; write B; observe; open A 0");
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
}

// Rows are published as they are written, and the oldest block goes first, whoever kept it.
TEST(RunHistory, WhatWasNotKeptTakesRoomWhereWritesPublish) {
  const std::string history =
      "prefix block=1 tokens=8 layers=1 dk=16 data=tokens:1; open A 0,1,1; write A; close A keep; "
      "open A 0x5; write A; close A; open A 1,0; write A; close A; open A 0,1,1,0";
  Changed store;
  store.publishes_at_write = true;
  store.on_close = [&](int request) { return store.ModelStore::Close(request, true); };
  const HistoryResult result = RunOn(&store, history);
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  store.publishes_at_write = false;
  EXPECT_EQ(RunOn(&store, history).outcome, Outcome::kFail);
}

// What a request has found is no longer among what is kept after a clear, and takes room of its own
// when it is kept again.
TEST(RunHistory, AKeptHitFromBeforeAClearTakesRoom) {
  const std::string before =
      "prefix block=1 tokens=9 dk=16 data=tokens:1; open A 0,1,1; write A; close A keep; "
      "open B 0,1,1 all; clear; open D 2x3; write D; close D keep; open C 0,1,1; write C; "
      "close C keep; ";
  const std::string after = "; open E 3; write E; close E keep; open D 2x3 all";
  Changed store;
  int opens = 0;
  store.on_hit = [&](PrefixHit* hit) { hit->tokens = ++opens == 6 ? 0 : hit->tokens; };
  store.on_observe = [](PrefixCounters* counters) { *counters = {}; };
  const HistoryResult twice = RunOn(&store, before + "close B keep" + after);
  EXPECT_EQ(twice.outcome, Outcome::kPass) << twice.reason;
  opens = 0;
  EXPECT_EQ(RunOn(&store, before + "close B" + after).failure.fault, HistoryFault::kHitMissing);
}

class RefusesToLoad : public ModelStore {
 public:
  OpResult Load(int) override { return OpResult::Refuse("no file of mine"); }
};

TEST(RunHistory, AfterDamageALoadMayBeRefused) {
  const std::string saved =
      "prefix block=1 tokens=8 dk=16 disk=yes data=tokens:1; open A 0,1; write A; close A keep; "
      "save s0; ";
  RefusesToLoad store;
  EXPECT_EQ(RunOn(&store, saved + "load s0; open A 0,1").outcome, Outcome::kFail);
  const HistoryResult damaged = RunOn(&store, saved + "damage cut at=1; load s0; open A 0,1");
  EXPECT_NE(damaged.outcome, Outcome::kFail) << damaged.reason;
}

}  // namespace
}  // namespace kvcheck
