// Every cache fault is seen on the shortest trace that is known for it, by what it changes and not
// by chance: its rule was used, the clean model passes the same trace, and no operation of the
// trace can be left out.

#include "tools/faults/cache_faults.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

TraceResult RunOn(const CacheFault& fault, const CacheCase& c, int64_t* hits) {
  ModelFactory factory(fault.rules(), std::string(fault.id));
  TraceRunner runner(&factory);
  TraceResult result = runner.Run(c);
  *hits = factory.Hits();
  return result;
}

TEST(CacheFaults, AreFoundOnTheirShortestTraceAndTheCleanModelPassesIt) {
  for (const CacheFault& fault : CacheFaults()) {
    const CacheCase c = ParseCacheCase(fault.smallest);
    ModelFactory clean;
    const TraceResult passed = TraceRunner(&clean).Run(c);
    EXPECT_EQ(passed.outcome, Outcome::kPass) << fault.id << ": " << passed.reason;
    EXPECT_EQ(clean.Hits(), 0);
    EXPECT_EQ(passed.counts.idle, 0) << fault.id;
    int64_t hits = 0;
    const TraceResult found = RunOn(fault, c, &hits);
    EXPECT_EQ(found.outcome, Outcome::kFail) << fault.id << ": " << found.reason;
    EXPECT_GT(hits, 0) << fault.id;
    EXPECT_FALSE(found.Signature(c).empty()) << fault.id;
    RecordProperty(std::string(fault.id), found.reason);
  }
}

TEST(CacheFaults, TracesCannotLoseAnOperation) {
  for (const CacheFault& fault : CacheFaults()) {
    const CacheCase c = ParseCacheCase(fault.smallest);
    for (size_t left_out = 0; left_out < c.ops.size(); ++left_out) {
      CacheCase shorter = c;
      shorter.ops.erase(shorter.ops.begin() + static_cast<std::ptrdiff_t>(left_out));
      int64_t hits = 0;
      const TraceResult result = RunOn(fault, shorter, &hits);
      EXPECT_NE(result.outcome, Outcome::kFail)
          << fault.id << " without " << Print(c.ops[left_out]) << ": " << result.reason;
    }
  }
}

TEST(CacheFaults, AreFoundWhereTheyHappenWhenEverySlotIsJudged) {
  for (const CacheFault& fault : CacheFaults()) {
    CacheCase c = ParseCacheCase(fault.smallest);
    // Operations after the failing one must not move the finger.
    c.ops.push_back(ParseCacheCase("cache k=f32 dk=8 data=tokens:1; new E; append E 1").ops[0]);
    ModelFactory factory(fault.rules());
    TraceOptions options;
    options.every_slot = true;
    const TraceResult result = TraceRunner(&factory).Run(c, options);
    EXPECT_EQ(result.outcome, Outcome::kFail) << fault.id;
    EXPECT_EQ(result.operation, std::ssize(c.ops) - 2) << fault.id << ": " << result.reason;
  }
}

// A run that observes at the end alone finds what it can see there, and never fails the clean
// model.
TEST(CacheFaults, ObservedLastAreFoundByTheSameOrALaterOperation) {
  int64_t found = 0;
  for (const CacheFault& fault : CacheFaults()) {
    CacheCase c = ParseCacheCase(fault.smallest);
    c.setup.observe = Observe::kLast;
    ModelFactory clean;
    EXPECT_EQ(TraceRunner(&clean).Run(c).outcome, Outcome::kPass) << fault.id;
    int64_t hits = 0;
    found += RunOn(fault, c, &hits).outcome == Outcome::kFail ? 1 : 0;
  }
  EXPECT_EQ(found, std::ssize(CacheFaults()));
}

TEST(CacheFaults, CoverTheProperties) {
  std::set<std::string_view> properties;
  for (const CacheFault& fault : CacheFaults()) {
    EXPECT_EQ(FindCacheFault(fault.id), &fault);
    properties.insert(fault.property);
  }
  EXPECT_EQ(FindCacheFault("nothing"), nullptr);
  EXPECT_GE(CacheFaults().size(), 25u);
  for (const char* property :
       {"P1", "P3", "P4", "P5", "P6", "P7", "P10", "P12", "P13", "P14", "P15"}) {
    EXPECT_TRUE(properties.contains(property)) << property;
  }
}

}  // namespace
}  // namespace kvcheck
