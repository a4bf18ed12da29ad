// What an implementation does not have is skipped and counted, and what comes after it is judged;
// what a runner tells an implementation ahead of the calls.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "reference/spec/plan.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

const std::string kLinear = "cache layout=linear k=f32 dk=8 growth=2 data=tokens:1; ";

// How a DecliningFactory differs from the model, and what it was told.
struct Ways {
  std::set<CacheOpKind> declined;
  bool changes_although_declined = false;  // of trim
  bool tells_changed_inputs = false;
  bool tells_changed_queries = false;
  bool attends_wrongly = false;
  bool hides_tokens = false;
  bool writes_late = false;          // into what attend has answered, at the next trim
  std::byte* out = nullptr;          // of the last attend
  const std::byte* given = nullptr;  // K of the last append
  std::byte given_later{};           // what stands there when the state is asked for
  const Plan* plan = nullptr;
  std::vector<ObserveHint> hints;
  std::vector<int64_t> columns;  // of each prepare

  bool Declines(CacheOpKind kind) const { return declined.contains(kind); }
};

OpResult NotHere() { return OpResult::Unsupported("not here"); }

class DecliningCache : public Cache {
 public:
  DecliningCache(Ways* ways, std::unique_ptr<Cache> inner)
      : ways_(ways), inner_(std::move(inner)) {}

  OpResult Append(const TokenColumns& c) override {
    if (ways_->Declines(CacheOpKind::kAppend)) return NotHere();
    OpResult result = inner_->Append(c);
    ways_->given = c.k;
    result.inputs_changed = ways_->tells_changed_inputs;
    return result;
  }
  OpResult Prepare(std::span<const int64_t> lengths, int64_t columns) override {
    if (ways_->Declines(CacheOpKind::kPrepare)) return NotHere();
    ways_->columns.push_back(columns);
    return inner_->Prepare(lengths, columns);
  }
  OpResult Finalize() override {
    return ways_->Declines(CacheOpKind::kFinalize) ? NotHere() : inner_->Finalize();
  }
  OpResult Trim(int64_t count, int64_t* trimmed) override {
    if (ways_->writes_late && ways_->out != nullptr) *ways_->out ^= std::byte{1};
    if (!ways_->Declines(CacheOpKind::kTrim)) return inner_->Trim(count, trimmed);
    if (ways_->changes_although_declined) inner_->Trim(count, trimmed);
    return NotHere();
  }
  OpResult Filter(std::span<const int64_t> rows) override {
    return ways_->Declines(CacheOpKind::kFilter) ? NotHere() : inner_->Filter(rows);
  }
  OpResult Extend(const Cache& other) override {
    if (ways_->Declines(CacheOpKind::kExtend)) return NotHere();
    return inner_->Extend(*static_cast<const DecliningCache&>(other).inner_);
  }
  OpResult ToQuantized(const KvFormat& k, const KvFormat& v) override {
    return ways_->Declines(CacheOpKind::kToQuantized) ? NotHere() : inner_->ToQuantized(k, v);
  }
  OpResult Extract(int64_t row, std::unique_ptr<Cache>* out) const override {
    if (ways_->Declines(CacheOpKind::kExtract)) return NotHere();
    std::unique_ptr<Cache> made;
    const OpResult result = inner_->Extract(row, &made);
    return Wrap(result, std::move(made), out);
  }
  OpResult CopyTo(std::unique_ptr<Cache>* out) const override {
    if (ways_->Declines(CacheOpKind::kCopy)) return NotHere();
    std::unique_ptr<Cache> made;
    const OpResult result = inner_->CopyTo(&made);
    return Wrap(result, std::move(made), out);
  }
  OpResult Save(StateStore* store, std::string_view key) const override {
    return ways_->Declines(CacheOpKind::kSave) ? NotHere() : inner_->Save(store, key);
  }
  OpResult Attend(const AttendRequest& request, std::byte* out) override {
    if (ways_->Declines(CacheOpKind::kAttend)) return NotHere();
    OpResult result = inner_->Attend(request, out);
    ways_->out = out;
    result.inputs_changed = ways_->tells_changed_inputs || ways_->tells_changed_queries;
    if (ways_->attends_wrongly) *out ^= std::byte{0xff};
    result.plan = ways_->plan;
    return result;
  }
  void Observe(StepView* view) override {
    inner_->Observe(view);
    if (ways_->given != nullptr) ways_->given_later = *ways_->given;
    if (ways_->hides_tokens) view->retained = view->visible = nullptr;
  }
  int64_t RetainedTokens(int64_t row) const override { return inner_->RetainedTokens(row); }

  const Cache* inner() const { return inner_.get(); }
  OpResult Wrap(const OpResult& result, std::unique_ptr<Cache> made,
                std::unique_ptr<Cache>* out) const {
    if (result.ok()) *out = std::make_unique<DecliningCache>(ways_, std::move(made));
    return result;
  }

 private:
  Ways* ways_;
  std::unique_ptr<Cache> inner_;
};

class DecliningFactory : public ModelFactory {
 public:
  explicit DecliningFactory(Ways* ways) : ways_(ways) {}
  void ObserveAfter(ObserveHint hint) override { ways_->hints.push_back(hint); }
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> padding, std::unique_ptr<Cache>* out) override {
    if (ways_->Declines(CacheOpKind::kNew)) return NotHere();
    std::unique_ptr<Cache> made;
    const OpResult result = ModelFactory::New(layout, k, v, rows, padding, &made);
    return Wrap(result, std::move(made), out);
  }
  OpResult Merge(std::span<const Cache* const> caches, std::unique_ptr<Cache>* out) override {
    if (ways_->Declines(CacheOpKind::kMerge)) return NotHere();
    std::vector<const Cache*> inner;
    for (const Cache* cache : caches) {
      inner.push_back(static_cast<const DecliningCache*>(cache)->inner());
    }
    std::unique_ptr<Cache> made;
    const OpResult result = ModelFactory::Merge(inner, &made);
    return Wrap(result, std::move(made), out);
  }
  OpResult Load(const StateStore& store, std::string_view key,
                std::unique_ptr<Cache>* out) override {
    if (ways_->Declines(CacheOpKind::kLoad)) return NotHere();
    std::unique_ptr<Cache> made;
    const OpResult result = ModelFactory::Load(store, key, &made);
    return Wrap(result, std::move(made), out);
  }

 private:
  OpResult Wrap(const OpResult& result, std::unique_ptr<Cache> made, std::unique_ptr<Cache>* out) {
    if (result.ok()) *out = std::make_unique<DecliningCache>(ways_, std::move(made));
    return result;
  }
  Ways* ways_;
};

TraceResult RunDeclining(Ways* ways, const std::string& ops, const TraceOptions& options = {}) {
  // What an earlier run gave is gone with its runner.
  ways->out = nullptr, ways->given = nullptr;
  DecliningFactory factory(ways);
  return TraceRunner(&factory).Run(ParseCacheCase(kLinear + ops), options);
}

int64_t DeclinedOf(const TraceResult& result, CacheOpKind kind) {
  return result.counts.unsupported_by_kind[static_cast<size_t>(kind)];
}

TEST(DeclinedOperations, AreSkippedAndCountedAndTheRestIsJudged) {
  const std::string ops =
      "new A; append A 1; copy A -> B; append B 1; save A s0; append A 1; save A s1; trim A 1";
  Ways ways;
  ways.declined = {CacheOpKind::kCopy, CacheOpKind::kSave};
  const TraceResult result = RunDeclining(&ways, ops);
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  EXPECT_EQ(result.counts.unsupported, 3);
  EXPECT_EQ(DeclinedOf(result, CacheOpKind::kCopy), 1);
  EXPECT_EQ(DeclinedOf(result, CacheOpKind::kSave), 2);
  EXPECT_EQ(result.counts.operations, 4);
  EXPECT_EQ(result.counts.idle, 1);  // there is no B
  const CacheCase c = ParseCacheCase(kLinear + ops);
  EXPECT_EQ(ToVerdict(c, result).warnings,
            std::vector<std::string>{"operations declined by the implementation: copy 1, save 2"});
  Ways nothing;
  EXPECT_TRUE(ToVerdict(c, RunDeclining(&nothing, ops)).warnings.empty());
}

TEST(DeclinedOperations, EveryKindCanBeDeclined) {
  const std::string ops =
      "new A rows=2; append A 3; prepare A 1,2; append A 2; finalize A; trim A 1; filter A 1,0; "
      "extract A 0 -> B; merge B,B -> C; extend A B; copy A -> D; save A s0; damage s0 truncate; "
      "load s0 -> E; append A 1; attend A; new D k=f16 v=f16; append D 1; append A 2; drop A";
  Ways nothing;
  const TraceResult all = RunDeclining(&nothing, ops);
  ASSERT_EQ(all.outcome, Outcome::kPass) << all.reason;
  for (int i = 0; i < kCacheOpKinds; ++i) {
    const auto kind = static_cast<CacheOpKind>(i);
    Ways ways;
    ways.declined = {kind};
    const TraceResult result = RunDeclining(&ways, ops);
    const bool is_call = kind != CacheOpKind::kDamage && kind != CacheOpKind::kDrop &&
                         kind != CacheOpKind::kToQuantized;
    EXPECT_EQ(DeclinedOf(result, kind) > 0, is_call) << Name(kind);
    // Nothing is shown by caches that never hold a token.
    const bool is_empty = kind == CacheOpKind::kNew || kind == CacheOpKind::kAppend;
    EXPECT_EQ(result.outcome, is_empty ? Outcome::kUnsupported : Outcome::kPass)
        << Name(kind) << ": " << result.reason;
  }
}

// Records that somebody else keeps cannot always be damaged.
TEST(DeclinedOperations, DamageIsDeclinedByTheStore) {
  struct OfSomebodyElse : MemoryTraceStore {
    OpResult Damage(std::string_view, const CacheOp&) override { return NotHere(); }
  };
  OfSomebodyElse store;
  ModelFactory factory;
  const TraceResult result =
      TraceRunner(&factory, &store)
          .Run(ParseCacheCase(kLinear + "new A; append A 1; save A s0; damage s0 flip; "
                                        "load s0 -> B; append B 1"));
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  EXPECT_EQ(DeclinedOf(result, CacheOpKind::kDamage), 1);
  EXPECT_EQ(result.counts.refusals, 0);
  EXPECT_EQ(result.counts.operations, 5);
}

// Numbers alone say nothing of what is attended to.
TEST(HiddenTokens, AreMistrustedUnlessAttentionAnswers) {
  Ways ways;
  ways.hides_tokens = true;
  EXPECT_EQ(RunDeclining(&ways, "new A; append A 9; attend A").outcome, Outcome::kPass);
  EXPECT_EQ(RunDeclining(&ways, "new A").outcome, Outcome::kPass);  // there are none to hide
  const TraceResult hidden = RunDeclining(&ways, "new A; append A 3; append A 2");
  EXPECT_EQ(hidden.outcome, Outcome::kMistrusted);
  EXPECT_EQ(hidden.counts.shown, 0);
  EXPECT_EQ(hidden.reason,
            "tokens were never judged: none of 3 states shows which it retains or which its "
            "queries see, and no attention was answered");
  EXPECT_FALSE(hidden.by_trace);
  ways.declined = {CacheOpKind::kAttend};
  EXPECT_EQ(RunDeclining(&ways, "new A; append A 9; attend A").outcome, Outcome::kMistrusted);
}

// Without attention the states were compared: that padding is no token is something.
TEST(PaddingAlone, ProvesNothing) {
  Ways ways;
  DecliningFactory factory(&ways);
  const auto run = [&](const std::string& ops) {
    return TraceRunner(&factory).Run(ParseCacheCase("cache k=f32 dk=8 data=tokens:1; " + ops));
  };
  for (const char* ops : {"new A rows=2 pad=9,9; append A 3; attend A",
                          "new A pad=2; append A 2; attend A window=1"}) {
    const TraceResult padding = run(ops);
    EXPECT_EQ(padding.outcome, Outcome::kMistrusted) << ops;
    EXPECT_TRUE(padding.by_trace) << ops;
  }
  EXPECT_EQ(run("new A rows=2 pad=9,9; append A 3").outcome, Outcome::kPass);
  EXPECT_EQ(run("new A rows=2 pad=9,2; append A 3; attend A").outcome, Outcome::kPass);
  EXPECT_EQ(run("new A rows=2 pad=9,9; append A 3; append A 9; attend A").outcome, Outcome::kPass);
}

// Before the next append of a prepared prefill nothing can be asked about: not the cache's doing.
TEST(HiddenTokens, OfAPreparedPrefillAreTheTracesOwn) {
  Ways ways;
  ways.hides_tokens = true;
  const auto run = [&](const std::string& ops) {
    DecliningFactory factory(&ways);
    return TraceRunner(&factory).Run(
        ParseCacheCase("cache k=f32 dk=8 observe=last data=tokens:1; " + ops));
  };
  const TraceResult prepared = run("new A; append A 3; prepare A 2");
  EXPECT_EQ(prepared.outcome, Outcome::kMistrusted);
  EXPECT_TRUE(prepared.by_trace) << prepared.reason;
  EXPECT_FALSE(run("new A; append A 3; prepare A 2; append A 1").by_trace);
  EXPECT_FALSE(run("new A; append A 3; copy A -> B; prepare A 2").by_trace);
}

TEST(DeclinedOperations, NothingMayHaveChanged) {
  Ways ways;
  ways.declined = {CacheOpKind::kTrim};
  const std::string ops = "new A; append A 3; trim A 1; append A 1";
  EXPECT_EQ(RunDeclining(&ways, ops).outcome, Outcome::kPass);
  ways.changes_although_declined = true;
  const TraceResult result = RunDeclining(&ways, ops);
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.operation, 2);
}

TEST(DeclinedOperations, ATraceWithoutACacheIsUnsupportedForTheFirstReason) {
  Ways ways;
  ways.declined = {CacheOpKind::kNew, CacheOpKind::kLoad};
  const TraceResult result = RunDeclining(&ways, "append A 1; new A; append A 1; load s0 -> B");
  EXPECT_EQ(result.outcome, Outcome::kUnsupported);
  EXPECT_EQ(result.operation, 1);
  EXPECT_EQ(result.reason, "operation 2, new A rows=1: not here");
  EXPECT_EQ(result.counts.unsupported, 2);
}

// What stays empty because the rest is declined was not judged, whatever it refuses.
TEST(DeclinedOperations, ATraceWithoutATokenIsUnsupported) {
  Ways ways;
  ways.declined = {CacheOpKind::kAppend, CacheOpKind::kCopy};
  for (const char* ops : {"new A; append A 3; trim A 1", "new A; copy A -> B",
                          "new A rows=2; trim A -1; append A 1 wrong=rows; append A 1"}) {
    EXPECT_EQ(RunDeclining(&ways, ops).outcome, Outcome::kUnsupported) << ops;
    Ways nothing;
    EXPECT_EQ(RunDeclining(&nothing, ops).outcome, Outcome::kPass) << ops;
  }
}

// A probe is reached by what was carried out, or refused; not by what was skipped.
TEST(DeclinedOperations, ReachNoProbe) {
  const std::string ops = "new A rows=2; append A 1; prepare A 2,1; append A 1; finalize A";
  const auto refused = [](const TraceResult& result) {
    return result.probes[static_cast<size_t>(Probe::kFinalizeRefused)];
  };
  Ways ways;
  EXPECT_EQ(refused(RunDeclining(&ways, ops)), 1);
  ways.declined = {CacheOpKind::kFinalize};
  EXPECT_EQ(refused(RunDeclining(&ways, ops)), 0);
}

// What was saved in an earlier, longer trace of the same runner is no origin of a later state.
TEST(DeclinedOperations, OriginsAreThoseOfThisTrace) {
  Ways ways;
  DecliningFactory factory(&ways);
  TraceRunner runner(&factory);
  const CacheCase longer = ParseCacheCase(
      kLinear +
      "new A; append A 1; append A 1; append A 1; append A 1; append A 1; save A s0; "
      "load s0 -> B; append B 1");
  ASSERT_EQ(runner.Run(longer).outcome, Outcome::kPass);
  for (const bool declines : {true, false}) {
    ways.declined = {CacheOpKind::kSave, CacheOpKind::kTrim};
    if (declines) ways.declined.insert(CacheOpKind::kLoad);
    ways.changes_although_declined = true;
    TraceOptions options;
    options.observe_each = false;
    CacheCase c = ParseCacheCase(
        "cache layout=linear k=f32 dk=8 growth=2 observe=last "
        "data=tokens:1; new B; append B 3; save B s0; trim B 1; "
        "load s0 -> B");
    const TraceResult result = runner.Run(c, options);
    EXPECT_EQ(result.outcome, Outcome::kFail);
    EXPECT_EQ(result.reason.find("saved by"), std::string::npos) << result.reason;
  }
}

TEST(ToldByTheImplementation, ChangedInputsAreAFailure) {
  Ways ways;
  ways.tells_changed_inputs = true;
  const TraceResult appended = RunDeclining(&ways, "new A; append A 1");
  EXPECT_EQ(appended.failure.fault, StepFault::kInputChanged);
  EXPECT_EQ(appended.operation, 1);
}

// A library that is known to change its queries would hide a wrong output for ever.
TEST(ToldByTheImplementation, AWrongOutputIsSaidBeforeChangedQueries) {
  Ways ways;
  ways.tells_changed_queries = true;
  const std::string ops = "new A; append A 9; attend A";
  EXPECT_EQ(RunDeclining(&ways, ops).failure.fault, StepFault::kInputChanged);
  ways.attends_wrongly = true;
  EXPECT_EQ(RunDeclining(&ways, ops).failure.fault, StepFault::kAttention);
  // A call that is refused may not change them either.
  ways.attends_wrongly = false;
  EXPECT_EQ(RunDeclining(&ways, "new A; append A 9; attend A window=0").failure.fault,
            StepFault::kInputChanged);
}

TEST(ReadAgain, AResultThatChangesLaterIsAFailure) {
  Ways ways;
  const std::string ops = "new A; append A 9; attend A; trim A 1";
  EXPECT_EQ(RunDeclining(&ways, ops).outcome, Outcome::kPass);
  ways.writes_late = true;
  const TraceResult result = RunDeclining(&ways, ops);
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.failure.fault, StepFault::kResultChanged);
  EXPECT_EQ(result.operation, 3);
  EXPECT_NE(result.reason.find("operation 3, attend A"), std::string::npos) << result.reason;
}

// A cache that keeps the pointers that it was given reads other bytes from then on.
TEST(ReadAgain, WhatWasAppendedIsGoneFromTheCallersArrays) {
  Ways ways;
  EXPECT_EQ(RunDeclining(&ways, "new A; append A 1").outcome, Outcome::kPass);
  EXPECT_EQ(ways.given_later, std::byte{0xff});
}

// The answer's own plan takes the place of the one that the capabilities state.
TEST(ToldByTheImplementation, ThePlanOfAnAnswerIsWhatItIsJudgedBy) {
  Ways ways;
  const std::string ops = "new A; append A 9; attend A";
  ASSERT_EQ(RunDeclining(&ways, ops).outcome, Outcome::kPass);
  // Exponentials that may be off by half: nothing is proved by such a bound.
  Plan loose = ModelFactory().GetCapabilities().plan;
  loose.exp_error = 0.5;
  ways.plan = &loose;
  EXPECT_EQ(RunDeclining(&ways, ops).outcome, Outcome::kMistrusted);
}

TEST(ToldByTheImplementation, APlanThatCannotBeIsAFailureOfTheAnswer) {
  Ways ways;
  Plan plan = ModelFactory().GetCapabilities().plan;
  plan.merge = MergeKind::kNone;
  plan.splits = 3;
  ways.plan = &plan;
  const TraceResult result = RunDeclining(&ways, "new A; append A 9; attend A");
  EXPECT_EQ(result.outcome, Outcome::kFail);
  EXPECT_EQ(result.failure.fault, StepFault::kPlan);
  EXPECT_EQ(result.operation, 2);
}

TEST(ToldToTheImplementation, ColumnsUntilFinalize) {
  const auto columns = [](const std::string& ops) {
    Ways ways;
    const TraceResult result = RunDeclining(&ways, ops);
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
    return ways.columns;
  };
  const std::string start = "new A rows=2 pad=0,2; prepare A 2,1; ";
  using Columns = std::vector<int64_t>;
  EXPECT_EQ(columns(start + "append A 3; finalize A"), Columns{3});
  // Right padding counts, illegal columns and another slot's do not.
  EXPECT_EQ(columns(start + "append A 2; new B; append B 5; append A 1 wrong=rows; append A 3; "
                            "finalize A; append A 9"),
            Columns{5});
  // Too early is refused.
  EXPECT_EQ(columns(start + "append A 2; finalize A; append A 1; finalize A"), Columns{3});
  // Never finalized, or replaced before.
  EXPECT_EQ(columns(start + "append A 3"), Columns{-1});
  EXPECT_EQ(columns(start + "append A 3; new A rows=1; finalize A"), Columns{-1});
  EXPECT_EQ(columns(start + "append A 3; drop A; finalize A"), Columns{-1});
  EXPECT_EQ(columns("new A; append A 1; prepare A 1; new B; copy B -> A; append A 1; finalize A"),
            Columns{-1});
  // Refused itself.
  EXPECT_EQ(columns("new A rows=2; prepare A 1; append A 1; finalize A"), Columns{-1});
}

TEST(ToldToTheImplementation, WhatWillBeObserved) {
  const auto hints = [](const char* observe, const TraceOptions& options) {
    Ways ways;
    DecliningFactory factory(&ways);
    TraceRunner(&factory).Run(ParseCacheCase(std::string("cache k=f32 dk=8 ") + observe +
                                             "data=tokens:1; new A; append A 1; append A 1"),
                              options);
    return ways.hints;
  };
  using Hints = std::vector<ObserveHint>;
  TraceOptions every;
  every.every_slot = true;
  TraceOptions each;
  each.observe_each = true;
  EXPECT_EQ(hints("", {}), (Hints{ObserveHint::kTouched, ObserveHint::kEverySlot}));
  EXPECT_EQ(hints("", every), (Hints{ObserveHint::kEverySlot, ObserveHint::kEverySlot}));
  EXPECT_EQ(hints("observe=last ", {}), (Hints{ObserveHint::kNothing}));
  EXPECT_EQ(hints("observe=last ", each), (Hints{ObserveHint::kTouched, ObserveHint::kEverySlot}));
}

}  // namespace
}  // namespace kvcheck
