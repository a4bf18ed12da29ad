// The runner on traces of known outcome, on the model and on implementations that misbehave in ways
// that no rule of the model can: the runner itself must notice.

#include "reference/trace/run_trace.h"

#include <gtest/gtest.h>

#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

const std::string kTwoHeads = "cache k=f32 dk=8 hkv=2 hq=4 data=tokens:1; ";

TraceResult RunModel(const std::string& text) {
  ModelFactory model;
  return TraceRunner(&model).Run(ParseCacheCase(text));
}

TEST(RunTrace, OperationsOnEmptySlotsDoNothing) {
  const TraceResult result = RunModel(
      kTwoHeads +
      "append A 1; prepare A 1; finalize A; trim A -1; filter A 7; extend A B; merge A,B -> C; "
      "extract A 0 -> B; to_quantized A k=f16; copy A -> B; save A s0; damage s0 flip; attend A; "
      "drop A; new A; extend A B; merge A,B -> C");
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  EXPECT_EQ(result.counts.idle, 16);
  EXPECT_EQ(result.counts.operations, 1);
}

TEST(RunTrace, IllegalCallsAreRefusedAndCounted) {
  const TraceResult result = RunModel(
      kTwoHeads +
      "load s0 -> A; new A layout=ring:w=2:keep=2; new A k=affine:4:g64:f16; new A rows=2 pad=1; "
      "new A pad=-1; new A; append A 2; append A 1 wrong=rows; append A 1 wrong=heads; "
      "append A 1 wrong=k_dim; append A 1 wrong=v_dim; append A 1 wrong=type; attend A window=0; "
      "attend A window=-3; attend A; trim A -1; filter A 1; filter A -1; extract A 1 -> B; "
      "extract A -1 -> B; to_quantized A k=affine:4:g64:f16; prepare A; prepare A 1,1; "
      "prepare A -1; prepare A 1; prepare A 1; finalize A; trim A 0; filter A 0; extend A A; "
      "merge A -> B; extract A 0 -> B; to_quantized A k=f32; copy A -> B; save A s1; attend A; "
      "append A 1; finalize A; attend A; new B rows=0; merge B -> C; new C v=f16; extend A C; "
      "extend C A; merge A,C -> D");
  EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
  EXPECT_EQ(result.counts.idle, 0);
  EXPECT_EQ(result.counts.refusals, 37);
  EXPECT_EQ(result.counts.operations, 45);
}

TEST(RunTrace, DamageIsRefusedAndRepairIsNot) {
  for (const char* damage :
       {"truncate", "truncate at=100", "flip at=3", "flip at=130", "foreign", "version"}) {
    const TraceResult result = RunModel(kTwoHeads + "new A; append A 2; save A s0; damage s0 " +
                                        damage + "; load s0 -> B; load s0 -> A; append A 1");
    EXPECT_EQ(result.outcome, Outcome::kPass) << damage << ": " << result.reason;
    EXPECT_EQ(result.counts.refusals, 2) << damage;
    EXPECT_EQ(result.counts.idle, 0);
  }
  // The same bit twice is the record as it was; saving again replaces what was damaged.
  EXPECT_EQ(
      RunModel(kTwoHeads + "new A; append A 1; save A s0; damage s0 flip at=9; damage s0 flip "
                           "at=9; load s0 -> B; append B 1")
          .counts.refusals,
      0);
  EXPECT_EQ(RunModel(kTwoHeads + "new A; save A s0; damage s0 foreign; save A s0; load s0 -> B")
                .counts.refusals,
            0);
  // Nothing but its hash can be damaged in a batch without rows.
  EXPECT_EQ(RunModel(kTwoHeads + "new A rows=0; save A s0; damage s0 truncate; load s0 -> B")
                .counts.refusals,
            1);
}

TEST(RunTrace, AttentionIsJudgedInEveryFormatAndLayout) {
  for (const char* setup :
       {"cache k=f32 dk=8 hkv=2 hq=4 data=tokens:1; ",
        "cache layout=ring:w=4:keep=1 k=bf16 v=f16 x=bf16 dk=32 dv=64 hkv=2 hq=4 data=tokens:2; ",
        "cache layout=chunk:c=3 k=affine:4:g32:bf16 v=affine:8:g64:f16 x=f16 dk=32 dv=64 hkv=2 "
        "hq=6 data=tokens:3; ",
        "cache layout=linear:w=2 k=f8e4m3fn v=f8e5m2 dk=16 hkv=1 data=tokens:4; "}) {
    const TraceResult result =
        RunModel(std::string(setup) +
                 "new A rows=2 pad=3,0; append A 2; attend A; append A 5; attend A sinks; "
                 "attend A window=2 scale=0.5; append A 1; attend A window=1 sinks");
    EXPECT_EQ(result.outcome, Outcome::kPass) << setup << result.reason;
    EXPECT_GT(result.counts.outputs, 200);
  }
}

TEST(RunTrace, TokensThatCannotBeToldApartAreNotTrusted) {
  const TraceResult result = RunModel("cache k=f8e5m2 dk=1 data=tokens:1; new A; append A 60");
  EXPECT_EQ(result.outcome, Outcome::kMistrusted);
  EXPECT_GT(result.counts.collisions, 0);
  EXPECT_NE(result.reason.find("equal bytes"), std::string::npos);
}

TEST(RunTrace, NothingJudgedIsNoPass) {
  EXPECT_EQ(RunModel("cache k=f32 dk=8 data=tokens:1").outcome, Outcome::kMistrusted);
  EXPECT_EQ(RunModel(kTwoHeads + "append A 1; trim A 1").outcome, Outcome::kMistrusted);
  EXPECT_EQ(RunModel(kTwoHeads + "load s0 -> A").outcome, Outcome::kPass);  // refused
}

TEST(RunTrace, DataMustBeTokens) {
  ModelFactory model;
  TraceRunner runner(&model);
  EXPECT_THROW(runner.Run(ParseCacheCase("cache k=f32 dk=8 data=gauss:1; new A")), Error);
  EXPECT_THROW(runner.Run(ParseCacheCase("cache k=f32 dk=8 data=file; new A")), Error);
}

TEST(RunTrace, RunnerStartsEveryCaseAfresh) {
  ModelFactory model;
  TraceRunner runner(&model);
  const CacheCase first = ParseCacheCase(kTwoHeads + "new A rows=3; append A 5; save A s0");
  const CacheCase second = ParseCacheCase(
      "cache k=f16 dk=16 data=tokens:2; append A 1; load s0 -> A; new A; append A 1");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(runner.Run(first).outcome, Outcome::kPass);
    const TraceResult result = runner.Run(second);
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.reason;
    EXPECT_EQ(result.counts.idle, 1);
    EXPECT_EQ(result.counts.refusals, 1);
  }
}

// A model under one profile that states another.
class StatingOtherwise : public ModelFactory {
 public:
  StatingOtherwise(const std::string& done, const std::string& said)
      : ModelFactory(Under(done)), said_(ParseCacheProfile(said)) {}
  CacheCapabilities GetCapabilities() const override {
    CacheCapabilities capabilities = ModelFactory::GetCapabilities();
    capabilities.cache_profile = said_;
    return capabilities;
  }

 private:
  static CacheRules Under(const std::string& profile) {
    CacheRules rules;
    rules.profile = ParseCacheProfile(profile);
    return rules;
  }
  CacheProfile said_;
};

TEST(RunTrace, CachesThatCodeGroupsAgainAreHeldToWhatTheyState) {
  // 8 bits in bf16: what is read of a code makes other codes. Groups of tokens, and values that are
  // coded one by one.
  const std::vector<std::string> setups = {
      "cache k=channel:8:g8:r16:bf16 v=channel:4:g16:bf16 x=bf16 dk=16 hkv=2 hq=4 data=tokens:1; ",
      "cache k=bf16 v=affine:8:g32:r5:bf16 x=bf16 dk=16 dv=32 hkv=2 hq=4 data=tokens:1; "};
  const std::string batch =
      "new A rows=2 pad=1,0; append A 9; attend A; append A 8; attend A window=3; append A 9; "
      "attend A; extract A 1 -> B; save B s1; load s1 -> C; append C 7; attend C; merge B,C -> D; "
      "append D 3; extend A D; trim A 40; append A 33; attend A sinks; filter A 1,1; append A 1";
  const std::vector<std::string> profiles = {"", "reads=before", "regroup=all",
                                             "regroup=all reads=before", "regroup=open"};
  for (const std::string& done : profiles) {
    for (const std::string& said : profiles) {
      for (const std::string& setup : setups) {
        StatingOtherwise factory(done, said);
        const TraceResult result = TraceRunner(&factory).Run(ParseCacheCase(setup + batch));
        EXPECT_EQ(result.outcome, done == said ? Outcome::kPass : Outcome::kFail)
            << setup << "does '" << done << "', says '" << said << "': " << result.reason;
        if (done == said) {
          EXPECT_GT(result.counts.outputs, 1000);
          EXPECT_EQ(result.counts.idle, 0);
        }
      }
    }
  }
}

TEST(RunTrace, CachesThatCodeGroupsAgainTrimToWhatTheyNeverHad) {
  const std::string setup = "cache k=channel:4:g4:r8:f32 v=f32 dk=16 hkv=2 data=tokens:1; new A; ";
  for (const auto& [profile, ops] :
       {std::pair<std::string, std::string>{
            "regroup=all", "append A 5; append A 6; trim A 8; trim A 9; append A 3; trim A 1"},
        {"regroup=open", "append A 5; append A 6; trim A 2; trim A 3; append A 1; trim A 1"}}) {
    StatingOtherwise right(profile, profile);
    EXPECT_EQ(TraceRunner(&right).Run(ParseCacheCase(setup + ops)).outcome, Outcome::kPass)
        << profile;
  }
  // Back into a group that was coded again: no state to go back to.
  CacheRules rules;
  rules.profile.regroup = RegroupRule::kOpen;
  rules.trim_reach = [](const ModelState&, int64_t count, int64_t* reach) { *reach = count; };
  ModelFactory factory(rules);
  const TraceResult result =
      TraceRunner(&factory).Run(ParseCacheCase(setup + "append A 5; append A 6; trim A 2"));
  EXPECT_EQ(result.failure.fault, StepFault::kTrimCount) << result.reason;
}

// A model whose caches pass every call on, so that one of them can be changed.
class Wrapped : public Cache {
 public:
  explicit Wrapped(std::unique_ptr<Cache> inner) : inner_(std::move(inner)) {}
  OpResult Append(const TokenColumns& c) override { return inner_->Append(c); }
  OpResult Prepare(std::span<const int64_t> l, int64_t columns) override {
    return inner_->Prepare(l, columns);
  }
  OpResult Finalize() override { return inner_->Finalize(); }
  OpResult Trim(int64_t n, int64_t* t) override { return inner_->Trim(n, t); }
  OpResult Filter(std::span<const int64_t> r) override { return inner_->Filter(r); }
  OpResult Extend(const Cache& o) override {
    return inner_->Extend(*static_cast<const Wrapped&>(o).inner_);
  }
  OpResult ToQuantized(const KvFormat& k, const KvFormat& v) override {
    return inner_->ToQuantized(k, v);
  }
  OpResult Extract(int64_t, std::unique_ptr<Cache>*) const override {
    return OpResult::Unsupported("no extract here");
  }
  OpResult CopyTo(std::unique_ptr<Cache>*) const override {
    return OpResult::Unsupported("no copy here");
  }
  OpResult Save(StateStore* s, std::string_view k) const override { return inner_->Save(s, k); }
  OpResult Attend(const AttendRequest& r, std::byte* out) override {
    return inner_->Attend(r, out);
  }
  void Observe(StepView* view) override { inner_->Observe(view); }
  int64_t RetainedTokens(int64_t row) const override { return inner_->RetainedTokens(row); }

 protected:
  std::unique_ptr<Cache> inner_;
};

template <typename Made>
class WrappedFactory : public ModelFactory {
 public:
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> padding, std::unique_ptr<Cache>* out) override {
    std::unique_ptr<Cache> inner;
    const OpResult result = ModelFactory::New(layout, k, v, rows, padding, &inner);
    if (result.ok()) *out = std::make_unique<Made>(std::move(inner));
    return result;
  }
};

template <typename Made>
TraceResult RunWrapped(const std::string& ops, CacheCase* c = nullptr) {
  WrappedFactory<Made> factory;
  const CacheCase parsed = ParseCacheCase(kTwoHeads + ops);
  if (c != nullptr) *c = parsed;
  return TraceRunner(&factory).Run(parsed);
}

struct ChangesInput : Wrapped {
  using Wrapped::Wrapped;
  OpResult Append(const TokenColumns& c) override {
    const_cast<std::byte*>(c.v)[5] ^= std::byte{1};
    return Wrapped::Append(c);
  }
};
struct ChangesQueries : Wrapped {
  using Wrapped::Wrapped;
  OpResult Attend(const AttendRequest& r, std::byte* out) override {
    const OpResult result = Wrapped::Attend(r, out);
    const_cast<std::byte*>(r.q)[0] ^= std::byte{1};
    return result;
  }
};
struct WritesNoOutput : Wrapped {
  using Wrapped::Wrapped;
  OpResult Attend(const AttendRequest&, std::byte*) override { return {}; }
};
struct LiesAboutTrim : Wrapped {
  using Wrapped::Wrapped;
  OpResult Trim(int64_t n, int64_t* t) override {
    const OpResult result = Wrapped::Trim(n, t);
    --*t;
    return result;
  }
};
struct RetainsLess : Wrapped {
  using Wrapped::Wrapped;
  int64_t RetainedTokens(int64_t) const override { return 1; }
};
struct CannotTellRetained : Wrapped {
  using Wrapped::Wrapped;
  int64_t RetainedTokens(int64_t) const override { return StepView::kUnknown; }
};

TEST(RunTrace, NoticesWhatAnImplementationDoesOutsideItsCaches) {
  const auto fault = [](const TraceResult& result) {
    return std::string(Name(result.failure.fault));
  };
  const std::string ops = "new A; append A 3; attend A; trim A 2; append A 1";
  EXPECT_EQ(RunWrapped<Wrapped>(ops).outcome, Outcome::kPass);
  EXPECT_EQ(fault(RunWrapped<ChangesInput>(ops)), "input_changed");
  EXPECT_EQ(fault(RunWrapped<ChangesQueries>(ops)), "input_changed");
  EXPECT_EQ(fault(RunWrapped<WritesNoOutput>(ops)), "attention");
  EXPECT_EQ(fault(RunWrapped<LiesAboutTrim>(ops)), "trim_count");
  EXPECT_EQ(fault(RunWrapped<RetainsLess>(ops)), "retained_missing");
  // Where it cannot tell what it retains, what it says is gone is believed between the required
  // tokens and all of them; its state must then agree.
  EXPECT_EQ(RunWrapped<CannotTellRetained>(ops).outcome, Outcome::kPass);
  EXPECT_EQ(RunWrapped<CannotTellRetained>(
                "new A layout=ring:w=2; append A 3; trim A 2; append A 3; append A 1; trim A 3")
                .outcome,
            Outcome::kPass);
}

TEST(RunTrace, ReasonNamesTheOperationTheSlotAndTheToken) {
  CacheRules rules;
  rules.trim = [](const ModelState& before, ModelState* after) { CopyState(before, after); };
  ModelFactory factory(rules);
  const CacheCase c = ParseCacheCase(kTwoHeads + "new A rows=2; append A 2; trim A 1");
  const TraceResult result = TraceRunner(&factory).Run(c);
  EXPECT_EQ(result.reason, "operation 3, trim A 1: A: row 0: the offset is 2, 1 tokens were seen");
  EXPECT_EQ(result.Signature(c), "trim offset");
  const Verdict verdict = ToVerdict(c, result);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.case_text, Print(c));
  EXPECT_EQ(verdict.reasons.at(1), "breaks P14 (offset)");
}

// The operation after which it shows need not be the one that did it.
TEST(RunTrace, ReasonSaysWhereAStateComesFromThatTheOperationDoesNotName) {
  const auto reason = [](CacheOpKind shared, const std::string& ops) {
    CacheRules rules;
    rules.shares = [shared](CacheOpKind asked) { return asked == shared; };
    ModelFactory factory(rules);
    TraceOptions options;
    options.every_slot = true;
    return TraceRunner(&factory).Run(ParseCacheCase(kTwoHeads + ops), options).reason;
  };
  EXPECT_EQ(reason(CacheOpKind::kCopy, "new A; copy A -> B; append A 1; append B 1"),
            "operation 3, append A 1: B: the step has 1 queries, 0 are expected; this operation "
            "does not name it; it was made by operation 2, copy A -> B");
  EXPECT_EQ(reason(CacheOpKind::kSave, "new A; save A s0; append A 1; load s0 -> B"),
            "operation 4, load s0 -> B: B: the step has 1 queries, 0 are expected; it was saved by "
            "operation 2, save A s0");
  EXPECT_EQ(reason(CacheOpKind::kSave, "new A; save A s0; load s0 -> B; append A 1"),
            "operation 4, append A 1: B: the step has 1 queries, 0 are expected; this operation "
            "does not name it; it was made by operation 3, load s0 -> B; what was loaded was saved "
            "by operation 2, save A s0");
}

}  // namespace
}  // namespace kvcheck
