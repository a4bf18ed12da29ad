// The optimized caches beside the model of the contract: the shortest trace of every catalogued
// fault, traces of states that are easily got wrong, and drawn traces over all layouts and formats,
// single and batched.

#include <gtest/gtest.h>

#include <map>

#include "drawn_traces.h"
#include "optimized/cache/cache_factory.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/run_trace.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

TraceOptions EverySlot() {
  TraceOptions options;
  options.every_slot = true;
  options.observe_each = true;
  return options;
}

TraceResult RunOptimized(const CacheCase& c, const TraceOptions& options = EverySlot()) {
  optimized::OptimizedCacheFactory factory;
  return TraceRunner(&factory).Run(c, options);
}

TEST(OptimizedCache, PassesTheTraceOfEveryCataloguedFault) {
  EXPECT_GE(CacheFaults().size(), 25u);
  for (const CacheFault& fault : CacheFaults()) {
    const TraceResult result = RunOptimized(ParseCacheCase(std::string(fault.smallest)));
    EXPECT_EQ(result.outcome, Outcome::kPass) << fault.id << ": " << result.reason;
  }
}

TEST(OptimizedCache, PassesTracesOfRareStates) {
  const char* kTraces[] = {
      // A ring wraps, is widened by a long append, narrowed again, and trimmed across both.
      "cache layout=ring:w=4:keep=1 k=f32 dk=8 hkv=2 hq=4 growth=1 data=tokens:1; new A rows=2 "
      "pad=1,0; append A 3; append A 1; append A 1; append A 40; append A 1; append A 1; trim A 1; "
      "append A 2; attend A; trim A 60; append A 3; attend A window=1 sinks",
      // Rows at different places of their rings in one batch, and back.
      "cache layout=ring:w=5:keep=2 k=affine:4:g32:f16 v=affine:8:g32:bf16 x=bf16 dk=32 hkv=2 "
      "growth=3 data=tokens:2; new A; append A 9; new B; append B 1; new C; append C 5; append C "
      "1; "
      "merge A,B,C -> D; append D 1; attend D; append D 3; extract D 1 -> B; append B 1; "
      "filter D 2,0,2; append D 7; attend D; extend D D; append D 1; extract D 4 -> A; append A 2",
      // A ring in which everything newest is one token, and one that keeps all but that.
      "cache layout=ring:w=1 k=f16 dk=16 data=tokens:3; new A; append A 1; append A 3; trim A 1; "
      "append A 1; extract A 0 -> B; append B 1",
      "cache layout=ring:w=3:keep=2 k=f16 dk=16 data=tokens:3; new A; append A 2; append A 1; "
      "append A 1; append A 4; trim A 4; append A 1; trim A 7; extract A 0 -> B; append B 1; "
      "append B 1; trim B 1; extract B 0 -> C; append C 1",
      // Chunks: trimmed to a border, which nothing is required of.
      "cache layout=chunk:c=4 k=f8e4m3fn v=f8e5m2 x=f32 dk=32 data=tokens:4; new A rows=2; "
      "append A 6; append A 3; trim A 2; trim A 1; append A 9; trim A 1; trim A 5; append A 1",
      // Right padding while unfed left padding is due, rows of length 0 included.
      "cache k=bf16 x=f16 dk=16 hkv=2 growth=2 data=tokens:5; new A rows=3 pad=0,2,5; "
      "prepare A 4,0,2; append A 3; append A 5; finalize A; append A 1; attend A; trim A 2; "
      "append A 2",
      // Converted twice, and again to the same.
      "cache k=f32 dk=64 hkv=2 data=tokens:6; new A rows=2 pad=1,0; append A 5; to_quantized A "
      "k=bf16 "
      "v=f16; append A 1; to_quantized A k=affine:3:g64:f16 v=f16; append A 2; to_quantized A "
      "k=affine:3:g64:f16 v=affine:6:g32:f32; attend A; append A 2; attend A; to_quantized A "
      "k=affine:3:g64:f16 v=affine:6:g32:f32; append A 1; to_quantized A k=f32 v=f32",
      // f64 holds what it was given.
      "cache k=f64 v=f64 x=bf16 dk=32 data=tokens:8; new A; append A 4; attend A; to_quantized A "
      "k=affine:2:g32:bf16 v=f8e5m2; append A 1; attend A",
      // Values behind a residual of one token, and of more than ever come.
      "cache k=f32 v=affine:4:g32:r1:f32 dk=8 dv=64 hkv=2 hq=4 growth=1 data=tokens:9; new A "
      "rows=2 pad=1,0; append A 1; attend A; append A 1; append A 6; attend A window=3; trim A 1; "
      "extract A 0 -> B; append B 2; attend B; trim B 8; append B 3; attend B",
      "cache k=affine:2:g64:r129:bf16 v=affine:4:g32:r64:bf16 x=bf16 dk=64 dv=32 hkv=2 growth=3 "
      "data=tokens:9; new A rows=2; prepare A 7,3; append A 7; finalize A; append A 40; trim A 11; "
      "append A 30; attend A; save A s1; load s1 -> B; append B 1; attend B; trim B 5",
      // A residual that has wrapped: copied, filtered, joined with shorter rows, and filled on.
      "cache k=channel:2:g8:f16 v=affine:2:g32:r5:f16 x=f16 dk=32 hkv=2 hq=4 growth=2 "
      "data=tokens:10; new A rows=2 pad=0,2; append A 8; copy A -> B; filter B 1,0,1; append B 3; "
      "attend B; new C; append C 2; extend B C; append B 4; attend B; extract B 3 -> D; extract B "
      "0 -> E; merge D,E -> C; append C 19; attend C; save C s1; load s1 -> D; append D 1; attend "
      "D; trim D 30; append D 6; attend D",
      // Quantized later, one operand after the other.
      "cache k=f16 v=bf16 x=f16 dk=32 hkv=2 data=tokens:11; new A rows=2 pad=3,0; append A 9; "
      "to_quantized A k=affine:4:g32:r16:f16 v=bf16; append A 9; attend A; to_quantized A "
      "k=affine:4:g32:r16:f16 v=affine:2:g32:r3:bf16; append A 1; attend A; to_quantized A k=f16 "
      "v=affine:2:g32:r3:bf16",
      // Batches without rows.
      "cache k=f32 dk=8 hkv=2 data=tokens:7; new A rows=0; append A 3; attend A; trim A 1; extend "
      "A "
      "A; prepare A; finalize A; save A s0; load s0 -> B; new C; append C 2; extend B C; append B "
      "1; "
      "filter B; extend B C; append B 1; attend B",
  };
  for (const char* trace : kTraces) {
    const TraceResult result = RunOptimized(ParseCacheCase(trace));
    EXPECT_EQ(result.outcome, Outcome::kPass) << trace << "\n" << result.reason;
    EXPECT_EQ(result.counts.idle, 0) << trace;
  }
}

TEST(OptimizedCache, PassesDrawnTracesOfEveryLayoutAndFormat) {
  optimized::OptimizedCacheFactory factory;
  TraceRunner runner(&factory);
  TraceCounts total;
  std::map<std::string, int> formats;
  int64_t judged = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const CacheCase c = DrawTrace(seed);
    TraceOptions options;
    options.every_slot = seed % 4 == 0;
    const TraceResult result = runner.Run(c, options);
    // Tokens with equal bytes, or nothing left to judge.
    if (result.outcome == Outcome::kMistrusted) continue;
    ++judged;
    ++formats[Print(c.setup.k)];
    ASSERT_EQ(result.outcome, Outcome::kPass)
        << "kvcheck run '" << Print(c) << "' --impl optimized\n"
        << result.reason;
    for (size_t kind = 0; kind < total.by_kind.size(); ++kind) {
      total.by_kind[kind] += result.counts.by_kind[kind];
    }
    total.refusals += result.counts.refusals;
    total.operations += result.counts.operations;
    total.outputs += result.counts.outputs;
  }
  for (size_t kind = 0; kind < total.by_kind.size(); ++kind) {
    EXPECT_GT(total.by_kind[kind], 400) << Name(static_cast<CacheOpKind>(kind));
  }
  EXPECT_EQ(formats.size(), CacheFormats().size());
  EXPECT_GT(judged, 3900);
  EXPECT_GT(total.refusals, 4000);
  EXPECT_GT(total.outputs, 100000);
  EXPECT_GT(total.operations - total.refusals, 60000);
}

}  // namespace
}  // namespace kvcheck
