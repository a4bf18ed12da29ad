// Shrinking: what comes out still fails, is no longer, is a fixpoint and always the same; on faults
// of the catalogue it comes near the shortest trace that is known.

#include "fuzz/shrink_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/draw_trace.h"
#include "fuzz/shrink_steps.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

constexpr int64_t kRuns = 20000;

// Shrinks under a predicate over the text of the operations.
template <typename Predicate>
CacheCase Shrink(const std::string& text, Predicate still_fails) {
  const CacheCase c = ParseCacheCase(text);
  EXPECT_TRUE(still_fails(c)) << text;
  const ShrinkResult result = ShrinkTrace(c, still_fails, kRuns);
  EXPECT_TRUE(result.complete);
  EXPECT_TRUE(still_fails(result.c)) << Print(result.c);
  return result.c;
}

std::string Ops(const CacheCase& c) {
  std::string text;
  for (const CacheOp& op : c.ops) text += (text.empty() ? "" : "; ") + Print(op);
  return text;
}

bool HasOp(const CacheCase& c, CacheOpKind kind, int64_t count) {
  return std::any_of(c.ops.begin(), c.ops.end(),
                     [&](const CacheOp& op) { return op.kind == kind && op.count >= count; });
}

const std::string kRich =
    "cache layout=ring:w=5:keep=2 k=affine:3:g64:bf16 v=f8e4m3fn x=bf16 hkv=3 hq=6 dk=64 dv=128 "
    "growth=3 observe=last data=tokens:77; ";

TEST(ShrinkTrace, OneOperationIsLeftOfWhatOneOperationShows) {
  const CacheCase c = Shrink(
      kRich +
          "new C rows=2 pad=1,4; append C 7; copy C -> D; trim D 2; attend C window=3 scale=2 "
          "sinks; append D 9; drop C",
      [](const CacheCase& now) { return HasOp(now, CacheOpKind::kAppend, 4); });
  EXPECT_EQ(Print(c),
            "cache layout=linear k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 growth=8 observe=each "
            "data=tokens:1; append A 4");
}

TEST(ShrinkTrace, TwoOperationsThatNeedEachOtherGoTogether) {
  // Saves and loads come in equal numbers: neither can go alone.
  const CacheCase c =
      Shrink(kRich + "new A; save A s3; load s3 -> B; save B s4; load s4 -> C; append C 1",
             [](const CacheCase& now) {
               int balance = 0;
               for (const CacheOp& op : now.ops) {
                 balance += op.kind == CacheOpKind::kSave ? 1 : 0;
                 balance -= op.kind == CacheOpKind::kLoad ? 1 : 0;
               }
               return balance == 0 && HasOp(now, CacheOpKind::kAppend, 1);
             });
  EXPECT_EQ(Ops(c), "append A 1");
}

TEST(ShrinkTrace, AppendsAndTrimsOfOneSlotFuse) {
  const auto total = [](const CacheCase& now, CacheOpKind kind) {
    int64_t sum = 0;
    for (const CacheOp& op : now.ops) sum += op.kind == kind ? op.count : 0;
    return sum;
  };
  const CacheCase c = Shrink(
      "cache k=f32 dk=8 data=tokens:1; append B 2; append A 1; append B 3; append B 1; "
      "trim B 1; trim B 2",
      [&](const CacheCase& now) {
        return total(now, CacheOpKind::kAppend) >= 6 && total(now, CacheOpKind::kTrim) >= 3;
      });
  EXPECT_EQ(Ops(c), "append A 6; trim A 3");
}

TEST(ShrinkTrace, NumbersThatBelongTogetherAreLoweredTogether) {
  // A window and the append that outgrows it by two.
  const CacheCase c = Shrink("cache layout=ring:w=9 k=f32 dk=8 data=tokens:1; new A; append A 11",
                             [](const CacheCase& now) {
                               return now.setup.layout.kind == LayoutKind::kRing &&
                                      now.ops.size() == 2 &&
                                      now.ops[1].count == now.setup.layout.window + 2;
                             });
  EXPECT_EQ(Print(c.setup.layout), "ring:w=1");
  EXPECT_EQ(Ops(c), "new A rows=1; append A 3");
}

TEST(ShrinkTrace, ACacheWithRowsAndTokensIsPreferredToABareOne) {
  const auto trims = [](const CacheCase& now) {
    return !now.ops.empty() && now.ops.back().kind == CacheOpKind::kTrim && now.ops.size() >= 2 &&
           now.ops[0].kind == CacheOpKind::kNew;
  };
  // It begins with rows and tokens, and keeps them.
  EXPECT_EQ(
      Ops(Shrink("cache k=f32 dk=8 data=tokens:1; new A rows=2; append A 5; trim A 3", trims)),
      "new A rows=1; append A 1; trim A 0");
  // It gets them, though that takes an operation more.
  EXPECT_EQ(Ops(Shrink("cache k=f32 dk=8 data=tokens:1; new A rows=0; trim A 3", trims)),
            "new A rows=1; append A 1; trim A 0");
  EXPECT_EQ(Ops(Shrink("cache k=f32 dk=8 data=tokens:1; new A rows=2; trim A 3", trims)),
            "new A rows=1; append A 1; trim A 0");
}

TEST(ShrinkTrace, ABareCacheStaysWhereOnlyItFails) {
  const auto without_rows = [](const CacheCase& now) {
    return std::any_of(now.ops.begin(), now.ops.end(), [](const CacheOp& op) {
      return op.kind == CacheOpKind::kFilter && op.numbers.empty();
    });
  };
  EXPECT_EQ(Ops(Shrink("cache k=f32 dk=8 data=tokens:1; new A rows=3; append A 5; filter A; "
                       "append A 2",
                       without_rows)),
            "filter A");
}

TEST(ShrinkTrace, BarenessIsOfWhatTheLastOperationNames) {
  const auto bareness = [](const std::string& ops) {
    return BarenessOf(ParseCacheCase("cache k=f32 dk=8 data=tokens:1; " + ops));
  };
  EXPECT_EQ(bareness("new A; append A 1"), 0);
  EXPECT_EQ(bareness("new A; append A 2; trim A 2"), 0);
  EXPECT_EQ(bareness("new A; append A 2; save A s0; damage s0 flip at=0; load s0 -> B"), 0);
  EXPECT_EQ(bareness("append A 1"), 0);
  EXPECT_EQ(bareness("new A rows=2; append A 2; filter A"), 0);
  EXPECT_EQ(bareness("new A; trim A 0"), 1);
  EXPECT_EQ(bareness("new A; append A 1; new B; trim B 0"), 1);
  EXPECT_EQ(bareness("new A rows=2 pad=3,3; append A 1"), 1);
  EXPECT_EQ(bareness("new A; new B; append B 1; extract A 0 -> B"), 1);
  EXPECT_EQ(bareness("new A; append A 1; new B; extract A 0 -> B"), 0);
  EXPECT_EQ(bareness("new A rows=0; append A 1"), 2);
  EXPECT_EQ(bareness("new A rows=2; append A 1; filter A; extend A A"), 2);
}

TEST(ShrinkTrace, RowsGoFromEverythingThatCountsThem) {
  const CacheCase c = Shrink(
      "cache k=f32 dk=8 data=tokens:1; new A rows=4 pad=0,1,2,3; prepare A 1,2,3,4; append A 9; "
      "finalize A; extract A 3 -> B",
      [](const CacheCase& now) {
        // Legal, and some row has padding and is extracted.
        ModelFactory model;
        const TraceResult result = TraceRunner(&model).Run(now);
        return now.ops.size() == 5 && result.counts.refusals == 0 && result.counts.idle == 0 &&
               result.probes[static_cast<size_t>(Probe::kPrepareBehindPadding)] > 0 &&
               now.ops[4].kind == CacheOpKind::kExtract;
      });
  EXPECT_EQ(Ops(c), "new A rows=1 pad=1; prepare A 1; append A 2; finalize A; extract A 0 -> A");
}

TEST(ShrinkTrace, AStateIsMadeDirectly) {
  // Rows of unequal length, however they came about.
  const CacheCase c = Shrink(
      "cache k=f32 dk=8 data=tokens:1; new A; append A 2; save A s0; append A 1; load s0 -> B; "
      "append B 3; merge A,B -> C; trim C 1; trim C 1",
      [](const CacheCase& now) {
        ModelFactory model;
        const TraceResult result = TraceRunner(&model).Run(now);
        return result.probes[static_cast<size_t>(Probe::kTrimOfUnequalRows)] > 0;
      });
  EXPECT_EQ(Ops(c), "new A rows=2 pad=0,1; append A 2; trim A 1");
}

TEST(ShrinkTrace, StopsWhenItsRunsAreUsedUp) {
  const CacheCase c = DrawTrace(1, 4);
  int64_t asked = 0;
  const ShrinkResult result = ShrinkTrace(
      c,
      [&](const CacheCase& now) {
        ++asked;
        return HasOp(now, CacheOpKind::kAppend, 1);
      },
      3);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.runs, 3);
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(HasOp(result.c, CacheOpKind::kAppend, 1));
  EXPECT_EQ(ShrinkTrace(c, [](const CacheCase&) { return true; }, 0).c, c);
}

TEST(ShrinkTrace, AsksOnlyAboutLegalAndSmallerCasesAndNeverTwice) {
  const CacheCase c = DrawTrace(1, 11);
  std::vector<std::string> asked;
  TraceSize best = SizeOf(c);
  uint64_t calls = 0;
  ShrinkTrace(
      c,
      [&](const CacheCase& now) {
        EXPECT_NO_THROW(ValidateCacheCase(now));
        EXPECT_EQ(ParseCacheCase(Print(now)), now);
        EXPECT_LT(SizeOf(now), best);
        asked.push_back(Print(now));
        // Whether it fails is as good as random, and a function of the case.
        const bool fails = ++calls % 7 == 0;
        if (fails) best = SizeOf(now);
        return fails;
      },
      kRuns);
  EXPECT_GT(asked.size(), 100u);
  std::sort(asked.begin(), asked.end());
  EXPECT_EQ(std::adjacent_find(asked.begin(), asked.end()), asked.end());
}

// On the model with a fault: the first failing trace that is drawn.
class ShrinkFault : public testing::TestWithParam<size_t> {
 protected:
  static TraceOptions Closely() {
    TraceOptions options;
    options.every_slot = true;
    options.observe_each = true;
    return options;
  }
};

TEST_P(ShrinkFault, ComesNearTheShortestTraceThatIsKnown) {
  const CacheFault& fault = CacheFaults()[GetParam()];
  const auto known = std::ssize(ParseCacheCase(fault.smallest).ops);
  ModelFactory factory(fault.rules(), std::string(fault.id));
  TraceRunner runner(&factory);
  TraceDrawer drawer;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    uint64_t index = 0;
    CacheCase c = drawer.Draw(seed, index);
    while (runner.Run(c).outcome != Outcome::kFail) {
      ASSERT_LT(++index, 20000u) << fault.id;
      c = drawer.Draw(seed, index);
    }
    const std::string signature = runner.Run(c, Closely()).Signature(c);
    const auto still_fails = [&](const CacheCase& now) {
      const TraceResult result = runner.Run(now, Closely());
      return result.outcome == Outcome::kFail && result.Signature(now) == signature;
    };
    const ShrinkResult shrunk = ShrinkTrace(c, still_fails, kRuns);
    EXPECT_TRUE(shrunk.complete) << fault.id;
    EXPECT_TRUE(still_fails(shrunk.c)) << fault.id;
    // Seeds come to mean other traces with each new format; three operations hold for all so far.
    EXPECT_LE(std::ssize(shrunk.c.ops), known + 3) << fault.id << ": " << Print(shrunk.c);
    EXPECT_LE(shrunk.c.ops.size(), c.ops.size());
    EXPECT_EQ(ShrinkTrace(c, still_fails, kRuns).c, shrunk.c) << fault.id;
    EXPECT_EQ(ShrinkTrace(shrunk.c, still_fails, kRuns).c, shrunk.c) << fault.id;
    // Replayed from its text, without further options, it fails in the same way.
    const TraceResult replayed = runner.Run(ParseCacheCase(Print(shrunk.c)));
    EXPECT_EQ(replayed.outcome, Outcome::kFail) << fault.id;
    EXPECT_EQ(replayed.Signature(shrunk.c), signature) << fault.id;
  }
}

INSTANTIATE_TEST_SUITE_P(CacheFaults, ShrinkFault, testing::Range<size_t>(0, 60),
                         [](const testing::TestParamInfo<size_t>& param) {
                           return std::string(CacheFaults()[param.param].id);
                         });

TEST(ShrinkFaults, AreAllTried) { EXPECT_EQ(CacheFaults().size(), 60u); }

}  // namespace
}  // namespace kvcheck
