// Drawn traces over every layout and format: the model as an implementation, which evicts
// and stores bytes, must agree with the judge's side, which does neither. Every operation must
// succeed and be refused somewhere, or the traces looked at little.

#include <gtest/gtest.h>

#include "fuzz/draw_trace.h"
#include "reference/cache/model_cache.h"
#include "reference/trace/run_trace.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

// Long traces: much is left behind that a later operation may meet.
TraceDrawer LongTraces() {
  TraceDrawOptions options;
  options.max_operations = 40;
  return TraceDrawer(options);
}

TEST(RandomTrace, ModelPassesBesideItself) {
  ModelFactory model;
  TraceRunner runner(&model);
  TraceDrawer drawer = LongTraces();
  TraceCounts total;
  int64_t judged = 0;
  for (uint64_t index = 0; index < 2000; ++index) {
    const CacheCase c = drawer.Draw(11, index);
    TraceOptions options;
    options.every_slot = index % 3 == 0;
    const TraceResult result = runner.Run(c, options);
    if (result.counts.states == 0) continue;  // everything was dropped before the end
    ++judged;
    // Drawn traces may hold nothing but padding.
    ASSERT_TRUE(result.outcome == Outcome::kPass || result.by_trace)
        << "kvcheck run '" << Print(c) << "'\n"
        << result.reason;
    for (size_t kind = 0; kind < total.by_kind.size(); ++kind) {
      total.by_kind[kind] += result.counts.by_kind[kind];
    }
    total.refusals += result.counts.refusals;
    total.outputs += result.counts.outputs;
  }
  for (size_t kind = 0; kind < total.by_kind.size(); ++kind) {
    EXPECT_GT(total.by_kind[kind], 150) << Name(static_cast<CacheOpKind>(kind));
  }
  EXPECT_GT(judged, 1950);
  EXPECT_GT(total.refusals, 2500);
  EXPECT_GT(total.outputs, 25000);
}

// A mutant stays a well-behaved program whatever it gets wrong, and most are found by chance.
TEST(RandomTrace, FaultsAreFoundAndNeverCrash) {
  TraceDrawer drawer = LongTraces();
  int64_t found = 0;
  for (const CacheFault& fault : CacheFaults()) {
    ModelFactory mutant(fault.rules());
    TraceRunner runner(&mutant);
    bool failed = false;
    for (uint64_t index = 0; index < 40; ++index) {
      failed = runner.Run(drawer.Draw(11, index)).outcome == Outcome::kFail || failed;
    }
    found += failed ? 1 : 0;
    if (failed) {
      EXPECT_GT(mutant.Hits(), 0) << fault.id;
    }
  }
  EXPECT_GT(2 * found, std::ssize(CacheFaults()));
}

}  // namespace
}  // namespace kvcheck
