// Every string of bytes is a trace that the language has, and the optimized caches pass it.
// RapidCheck draws the bytes and shortens those that fail; replay with the RC_PARAMS line that it
// prints.

#include "fuzz/trace_bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "optimized/cache/cache_factory.h"
#include "reference/data/generator.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/run_trace.h"

namespace kvcheck {
namespace {

// A run without RC_PARAMS draws the same every time.
const int kSeeded = setenv("RC_PARAMS", "seed=7 max_success=500 max_size=400", /*overwrite=*/0);

RC_GTEST_PROP(TraceBytes, AreATraceThatItsTextSays, (const std::vector<uint8_t>& bytes)) {
  const CacheCase c = TraceOfBytes(bytes);
  ValidateCacheCase(c);
  RC_ASSERT(ParseCacheCase(Print(c)) == c);
  RC_ASSERT(c.ops.size() <= static_cast<size_t>(kMostTraceOps));
}

RC_GTEST_PROP(TraceBytes, OptimizedCachesPassThem, (const std::vector<uint8_t>& bytes)) {
  optimized::OptimizedCacheFactory factory;
  const CacheCase c = TraceOfBytes(bytes);
  const TraceResult result = TraceRunner(&factory).Run(c);
  RC_CLASSIFY(result.outcome == Outcome::kPass);
  if (result.outcome != Outcome::kPass && result.outcome != Outcome::kMistrusted) {
    RC_FAIL("kvcheck run '" + Print(c) + "' --impl optimized: " + result.reason);
  }
}

// What a search by bytes can reach: every operation carried out and refused, every layout and
// format.
TEST(TraceBytes, ReachEveryOperationLayoutAndFormat) {
  optimized::OptimizedCacheFactory factory;
  TraceRunner runner(&factory);
  TraceCounts total;
  std::set<std::string> formats;
  std::set<LayoutKind> layouts;
  int64_t passed = 0;
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    Generator random(seed, "trace_bytes", 0);
    std::vector<uint8_t> bytes(static_cast<size_t>(random.Between(20, 300)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
    const CacheCase c = TraceOfBytes(bytes);
    formats.insert(Print(c.setup.k));
    if (seed >= 1500) continue;  // there are more formats than so many traces reach
    layouts.insert(c.setup.layout.kind);
    const TraceResult result = runner.Run(c);
    passed += result.outcome == Outcome::kPass ? 1 : 0;
    ASSERT_NE(result.outcome, Outcome::kFail)
        << "kvcheck run '" << Print(c) << "' --impl optimized: " << result.reason;
    total.refusals += result.counts.refusals;
    total.operations += result.counts.operations;
    total.outputs += result.counts.outputs;
    for (size_t kind = 0; kind < total.by_kind.size(); ++kind) {
      total.by_kind[kind] += result.counts.by_kind[kind];
    }
  }
  for (size_t kind = 0; kind < total.by_kind.size(); ++kind) {
    EXPECT_GT(total.by_kind[kind], 50) << Name(static_cast<CacheOpKind>(kind));
  }
  EXPECT_EQ(layouts.size(), 3u);
  EXPECT_EQ(formats.size(), CacheFormats().size());
  EXPECT_GT(passed, 500);
  EXPECT_GT(total.refusals, 500);
  EXPECT_GT(total.operations - total.refusals, 5000);
  EXPECT_GT(total.outputs, 5000);
}

TEST(TraceBytes, ShortInputsAreShortTraces) {
  EXPECT_TRUE(TraceOfBytes({}).ops.empty());
  const std::vector<uint8_t> bytes(kSetupBytes, 0);
  EXPECT_TRUE(TraceOfBytes(bytes).ops.empty());
  std::vector<uint8_t> more = bytes;
  more.push_back(255);
  EXPECT_EQ(TraceOfBytes(more).ops.size(), 1u);
}

}  // namespace
}  // namespace kvcheck
