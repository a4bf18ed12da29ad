// What is drawn for a space is in it by HasTrace, and shrinking never leaves it; wrong calls of
// every kind are refused by the model.

#include "reference/trace/trace_space.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fuzz/draw_trace.h"
#include "fuzz/shrink_trace.h"
#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

constexpr uint64_t kDrawnTraces = 1000;

CacheSpace Narrow() {
  CacheSpace space;
  space.layouts = {"ring"};
  space.formats = {"f16", "affine:4:*"};
  space.same_format = space.stored_as_given = space.scales_as_given = true;
  space.x = {DType::kFloat16};
  space.same_dims = true;
  space.grouped = space.empty_batch = space.window = space.sinks = space.padding = false;
  return space;
}

std::vector<CacheSpace> Spaces() {
  std::vector<CacheSpace> spaces(4);
  spaces[0] = Narrow();
  spaces[1] = Narrow();
  spaces[1].rows = SpaceRows::kSingle;
  spaces[2].rows = SpaceRows::kBatch;
  spaces[3].rows = SpaceRows::kSingle;
  spaces[3].padding = false;
  spaces[3].operations &= ~(1u << static_cast<int>(CacheOpKind::kMerge));
  return spaces;
}

TEST(TraceSpace, HoldsWhatIsDrawnForIt) {
  for (const CacheSpace& space : Spaces()) {
    TraceDrawOptions options;
    options.spaces = {space};
    TraceDrawer drawer(options);
    for (uint64_t index = 0; index < kDrawnTraces; ++index) {
      const CacheCase c = drawer.Draw(3, index);
      ASSERT_TRUE(HasTrace(space, c)) << Describe(space) << "\n" << PrintLines(c);
    }
  }
}

TEST(TraceSpace, LeavesOutWhatItDoesNotHave) {
  const std::string setup =
      "cache layout=ring:w=3 k=f16 x=f16 hkv=2 hq=2 dk=8 dv=8 growth=1 data=tokens:1; ";
  const auto has = [](const std::string& text) { return HasTrace(Narrow(), ParseCacheCase(text)); };
  ASSERT_TRUE(has(setup + "new A rows=2; append A 2; attend A; filter A 1"));
  for (const char* ops :
       {"new A rows=0", "new A pad=1", "new A layout=linear", "new A k=f32", "filter A",
        "attend A window=2", "attend A sinks", "to_quantized A k=affine:8:g32:f16"}) {
    EXPECT_FALSE(has(setup + ops)) << ops;
  }
  for (const char* other :
       {"cache layout=linear k=f16 x=f16 dk=8; new A", "cache layout=ring:w=3 k=f32 dk=8; new A",
        "cache layout=ring:w=3 k=f16 x=f16 dk=8 dv=9; new A",
        "cache layout=ring:w=3 k=f16 x=f16 hkv=1 hq=2 dk=8; new A"}) {
    std::string text = other;
    text.insert(text.find(';'), " data=tokens:1");
    EXPECT_FALSE(has(text)) << text;
  }
}

TEST(TraceSpace, RowsOfASingleSpaceAreCountedAlongTheTrace) {
  CacheSpace single;
  single.rows = SpaceRows::kSingle;
  const std::string setup = "cache layout=linear k=f32 dk=8 data=tokens:1; new A; append A 1; ";
  EXPECT_TRUE(HasTrace(single, ParseCacheCase(setup + "merge A -> B; filter A 0")));
  EXPECT_FALSE(HasTrace(single, ParseCacheCase(setup + "merge A,A -> B")));
  EXPECT_FALSE(HasTrace(single, ParseCacheCase(setup + "filter A 0,0")));
  EXPECT_FALSE(HasTrace(single, ParseCacheCase(setup + "extend A A")));
}

TEST(TraceSpace, ShrinkingStaysInsideWhateverFails) {
  int64_t shrunk = 0;
  for (const CacheSpace& space : Spaces()) {
    TraceDrawOptions options;
    options.spaces = {space};
    const std::vector<CacheSpace> spaces = {space};
    for (uint64_t index = 0; index < 20; ++index) {
      const CacheCase c = DrawTrace(5, index, options);
      const ShrinkResult result = ShrinkTrace(
          c,
          [&](const CacheCase& candidate) {
            EXPECT_TRUE(HasTrace(space, candidate)) << Print(candidate);
            return candidate.ops.size() > 1;
          },
          2000, WithinSpaces(spaces, c));
      shrunk += result.c.ops.size() < c.ops.size() ? 1 : 0;
    }
  }
  EXPECT_EQ(shrunk, 80);
}

TEST(TraceSpace, ACaseOfNoSpaceIsShrunkAnywhere) {
  const CacheCase c =
      ParseCacheCase("cache layout=chunk:c=2 k=f32 dk=8 data=tokens:1; new A; append A 1");
  const std::vector<CacheSpace> spaces = {Narrow()};
  EXPECT_TRUE(WithinSpaces(spaces, c)(c));
  EXPECT_TRUE(WithinSpaces({}, c)(c));
}

// A fault of one code in some hundred: the drawn trace needs its many operations to hit the data.
TEST(TraceSpace, FailuresOfTheDataAreLookedForInOtherData) {
  const auto rare = [](const CacheCase& c) {
    // As data decide: of each token of an append, by the seed, one in 97.
    uint64_t tokens = 0;
    for (size_t i = 0; i < c.ops.size(); ++i) {
      if (c.ops[i].kind != CacheOpKind::kAppend) continue;
      for (int64_t n = 0; n < c.ops[i].count; ++n) {
        const uint64_t mixed =
            (c.setup.data.seed * 131 + i * 17 + static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15u;
        tokens += (mixed >> 40) % 97 == 0 ? 1 : 0;
      }
    }
    return tokens > 0;
  };
  CacheCase c = ParseCacheCase("cache layout=linear k=f32 dk=8 data=tokens:9; new A");
  CacheOp append;
  append.kind = CacheOpKind::kAppend;
  append.count = 2;
  while (!rare(c)) c.ops.push_back(append);
  ASSERT_GT(c.ops.size(), 3u);
  EXPECT_EQ(ShrinkTrace(c, rare, 20'000).c.ops.size(), 1u);
}

TEST(WrongColumns, OfEveryKindAreRefused) {
  optimized::OptimizedCacheFactory optimized;
  ModelFactory model;
  for (CacheFactory* factory : std::vector<CacheFactory*>{&optimized, &model}) {
    TraceRunner runner(factory);
    for (const char* wrong :
         {"rows", "heads", "k_dim", "v_dim", "type", "fewer_rows", "fewer_heads", "fewer_v"}) {
      for (const char* columns : {"1", "3"}) {
        const TraceResult result = runner.Run(ParseCacheCase(
            std::string("cache layout=linear k=f32 hkv=2 dk=8 data=tokens:1; new A rows=2; append "
                        "A 2; append A ") +
            columns + " wrong=" + wrong + "; append A 1"));
        EXPECT_EQ(result.outcome, Outcome::kPass) << wrong << ": " << result.reason;
        EXPECT_EQ(result.counts.refusals, 1) << wrong;
      }
    }
  }
}

}  // namespace
}  // namespace kvcheck
