// Every probe is reached by a trace written for it, is not reached by its neighbour that just
// misses it, and is reached by drawn traces.

#include "reference/trace/probes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "fuzz/draw_trace.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

struct ProbeCase {
  Probe probe;
  std::string setup;  // fields before dk
  std::string reaches;
  std::string misses;  // "": no near miss
};

const ProbeCase kProbeCases[] = {
    {Probe::kRingWrapped, "layout=ring:w=2", "new A; append A 3", "new A; append A 2"},
    {Probe::kRingWithKeepWrapped, "layout=ring:w=2:keep=1", "new A; append A 2; append A 1",
     "new A layout=ring:w=2; append A 3"},
    {Probe::kRingWrappedTwice, "layout=ring:w=2", "new A; append A 3; append A 2",
     "new A; append A 3; append A 1"},
    {Probe::kAppendAcrossWrap, "layout=ring:w=2", "new A; append A 1; append A 2",
     "new A; append A 2; append A 2"},
    {Probe::kOneTokenAfterWrap, "layout=ring:w=2", "new A; append A 3; append A 1",
     "new A; append A 2; append A 1"},
    {Probe::kAppendLargerThanWindow, "layout=linear:w=2", "new A; append A 3",
     "new A; append A 2; append A 2"},
    {Probe::kLinearWindowPassed, "layout=linear:w=2", "new A; append A 2; append A 1",
     "new A; append A 2"},
    {Probe::kChunkBoundaryCrossed, "layout=chunk:c=3", "new A; append A 2; append A 2",
     "new A; append A 3; append A 3; append A 1; append A 2"},
    {Probe::kGrowthPastStep, "growth=4", "new A; append A 4; append A 1",
     "new A; append A 5; append A 3"},
    {Probe::kTrimAcrossWrap, "layout=ring:w=3", "new A; append A 4; trim A 2",
     "new A; append A 5; trim A 1"},
    {Probe::kTrimIntoKept, "layout=ring:w=4:keep=2", "new A; append A 3; trim A 2",
     "new A; append A 3; trim A 1"},
    {Probe::kTrimReachesLess, "layout=ring:w=2", "new A; append A 3; append A 1; trim A 2",
     "new A; append A 2; trim A 3"},
    {Probe::kTrimToEmpty, "", "new A; append A 2; trim A 2", "new A; trim A 1"},
    {Probe::kTrimOfUnequalRows, "", "new A rows=2 pad=1,0; append A 2; trim A 1",
     "new A rows=2; append A 2; trim A 1"},
    {Probe::kTrimThenAppend, "", "new A; append A 2; trim A 1; append A 1",
     "new A; append A 1; trim A 0; append A 1"},
    {Probe::kFilterToNothing, "", "new A; filter A", "new A rows=0; filter A"},
    {Probe::kFilterRepeats, "", "new A; append A 1; filter A 0,0", "new A; filter A 0,0"},
    {Probe::kFilterPermutes, "", "new A rows=2; append A 1; filter A 1,0",
     "new A rows=2; append A 1; filter A 0,1"},
    {Probe::kFilterMovesUnfedPadding, "", "new A rows=2 pad=2,0; append A 1; filter A 1,0",
     "new A rows=2 pad=1,0; append A 1; filter A 1,0"},
    {Probe::kEmptyBatchUsed, "", "new A rows=0; append A 1", "new A rows=0; new A; append A 1"},
    {Probe::kExtendByEmptySide, "", "new A; append A 1; new B; extend A B",
     "new A; new B; extend A B"},
    {Probe::kExtendOfEmptySide, "", "new A; append A 1; new B; extend B A",
     "new A; append A 1; new B; extend A B"},
    {Probe::kExtendOfOtherCapacity, "growth=2", "new A; append A 1; new B; append B 3; extend A B",
     "new A; append A 1; new B; append B 2; extend A B"},
    {Probe::kExtendWithItself, "", "new A; extend A A", "new A; new B; extend A B"},
    {Probe::kMergeUnequalFill, "", "new A; append A 1; new B; append B 2; merge A,B -> C",
     "new A; append A 1; new B; append B 1; merge A,B -> C"},
    {Probe::kMergeOfHistories, "layout=ring:w=2",
     "new A; append A 3; new B; append B 2; merge A,B -> C",
     "new A; append A 3; new B; append B 3; merge A,B -> C"},
    {Probe::kMergeWithEmptyRow, "", "new A; append A 1; new B; merge B,A -> C",
     "new A; new B; merge A,B -> C"},
    {Probe::kMergeSameTwice, "", "new A; append A 1; merge A,A -> B",
     "new A; append A 1; copy A -> B; merge A,B -> C"},
    {Probe::kMergeOfCodes, "", "new A v=affine:2:g32:f16; append A 1; merge A,A -> B",
     "new A; append A 1; merge A,A -> B"},
    {Probe::kExtractLeftPaddedRow, "", "new A rows=2 pad=1,0; append A 2; extract A 0 -> B",
     "new A rows=2 pad=1,0; append A 2; extract A 1 -> B"},
    {Probe::kExtractThenAppend, "", "new A; extract A 0 -> B; append B 1",
     "new A; extract A 0 -> B; append A 1"},
    {Probe::kUnfedPaddingCopied, "", "new A pad=2; append A 1; copy A -> B",
     "new A pad=1; append A 1; copy A -> B"},
    {Probe::kUnfedPaddingSaved, "", "new A pad=1; save A s0", "new A pad=1; append A 1; save A s0"},
    {Probe::kUnfedPaddingMerged, "", "new A pad=1; merge A -> B", "new A; merge A -> B"},
    {Probe::kUnfedPaddingMerged, "", "new A; new B pad=1; extend A B",
     "new A pad=1; new B; extend A B"},
    {Probe::kUnfedPaddingExtracted, "", "new A rows=2 pad=0,1; extract A 1 -> B",
     "new A rows=2 pad=0,1; extract A 0 -> B"},
    {Probe::kPrepareZeroLength, "", "new A rows=2; prepare A 1,0", "new A; prepare A 0"},
    {Probe::kPrepareBehindPadding, "", "new A pad=1; prepare A 1",
     "new A pad=1; append A 1; prepare A 1"},
    {Probe::kPendingAppendSplit, "", "new A; prepare A 2; append A 1; append A 1",
     "new A; append A 1; append A 1; prepare A 1; append A 1"},
    {Probe::kFinalizeRefused, "", "new A; prepare A 2; append A 1; finalize A",
     "new A; prepare A 1; append A 1; finalize A"},
    {Probe::kIllegalWhilePending, "", "new A; prepare A 0; trim A 1", "new A; trim A -1"},
    {Probe::kQuantizeTokens, "", "new A; append A 1; to_quantized A k=affine:4:g32:f16",
     "new A; append A 1; to_quantized A k=f32"},
    {Probe::kQuantizeWrappedRing, "layout=ring:w=1", "new A; append A 2; to_quantized A k=f16",
     "new A; append A 1; to_quantized A k=f16"},
    {Probe::kQuantizeKeysOnly, "", "new A; append A 1; to_quantized A k=f16 v=f32",
     "new A; append A 1; to_quantized A k=f32 v=f16"},
    {Probe::kQuantizeRefused, "", "new A k=affine:4:g32:f16; to_quantized A k=affine:2:g32:f16",
     "new A; prepare A 0; to_quantized A k=f16"},
    {Probe::kLoadAfterDamage, "", "new A; save A s0; damage s0 foreign; load s0 -> B",
     "new A; save A s0; damage s1 foreign; load s0 -> B; load s1 -> B"},
    {Probe::kLoadThenAppend, "", "new A; save A s0; load s0 -> B; append B 1",
     "new A; save A s0; load s0 -> B; append A 1"},
    {Probe::kLoadOfWrappedRing, "layout=ring:w=1", "new A; append A 2; save A s0; load s0 -> B",
     "new A; append A 1; save A s0; load s0 -> B"},
    {Probe::kLoadAfterChange, "", "new A; save A s0; append A 1; load s0 -> A",
     "new A; save A s0; append A 1; save A s0; load s0 -> A"},
    {Probe::kAttendInsideWindow, "layout=linear:w=3", "new A; append A 3; attend A window=2",
     "new A; append A 3; attend A window=3"},
    {Probe::kAttendBesidePadding, "", "new A pad=1; append A 2; attend A",
     "new A pad=1; append A 1; append A 2; attend A"},
    {Probe::kAttendAfterWrap, "layout=ring:w=2", "new A; append A 3; attend A",
     "new A; append A 2; attend A"},
    {Probe::kAttendWithSinks, "", "new A; append A 1; attend A sinks",
     "new A; append A 1; attend A"},
};

int64_t Count(const std::string& setup, const std::string& ops, Probe probe) {
  ModelFactory model;
  const std::string text =
      "cache " + setup + (setup.empty() ? "" : " ") + "k=f32 dk=32 data=tokens:1; " + ops;
  const TraceResult result = TraceRunner(&model).Run(ParseCacheCase(text));
  EXPECT_EQ(result.outcome, Outcome::kPass) << text << "\n" << result.reason;
  EXPECT_EQ(result.counts.idle, ops.find("damage s1") == std::string::npos ? 0 : 1) << text;
  return result.probes[static_cast<size_t>(probe)];
}

TEST(Probes, AreReachedByTheirTraceAndNotByItsNeighbour) {
  std::set<Probe> tried;
  for (const ProbeCase& c : kProbeCases) {
    EXPECT_EQ(Count(c.setup, c.reaches, c.probe), 1) << Name(c.probe);
    EXPECT_EQ(Count(c.setup, c.misses, c.probe), 0) << Name(c.probe);
    tried.insert(c.probe);
  }
  EXPECT_EQ(tried.size(), static_cast<size_t>(kProbes));
}

TEST(Probes, HaveNamesOfTheirOwnAndDescriptions) {
  std::set<std::string> names;
  for (int i = 0; i < kProbes; ++i) {
    const auto probe = static_cast<Probe>(i);
    names.insert(std::string(Name(probe)));
    EXPECT_GT(Description(probe).size(), 10u) << Name(probe);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kProbes));
}

TEST(Probes, StandInTheReadmeAsTheyAre) {
  std::ifstream file(KVCHECK_SOURCE_DIR "/fuzz/README.md");
  std::stringstream readme;
  readme << file.rdbuf();
  std::string table = "| probe | reached by |\n|---|---|\n";
  for (int i = 0; i < kProbes; ++i) {
    const auto probe = static_cast<Probe>(i);
    table += "| `" + std::string(Name(probe)) + "` | " + std::string(Description(probe)) + " |\n";
  }
  EXPECT_NE(readme.str().find(table), std::string::npos) << table;
}

TEST(Probes, AreAllReachedByDrawnTraces) {
  TraceDrawer drawer;
  ModelFactory model;
  TraceRunner runner(&model);
  ProbeCounts total{};
  for (uint64_t index = 0; index < 2000; ++index) {
    const TraceResult result = runner.Run(drawer.Draw(9, index));
    ASSERT_TRUE(result.outcome == Outcome::kPass || result.by_trace) << result.reason;
    for (size_t i = 0; i < total.size(); ++i) total[i] += result.probes[i];
  }
  for (int i = 0; i < kProbes; ++i) {
    EXPECT_GT(total[static_cast<size_t>(i)], 0) << Name(static_cast<Probe>(i));
  }
}

// A runner counts one case at a time.
TEST(Probes, StartAfreshWithEveryCase) {
  ModelFactory model;
  TraceRunner runner(&model);
  const CacheCase c =
      ParseCacheCase("cache layout=ring:w=1 k=f32 dk=8 data=tokens:1; new A; append A 2");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(runner.Run(c).probes[static_cast<size_t>(Probe::kRingWrapped)], 1);
  }
}

}  // namespace
}  // namespace kvcheck
