// Random traces over every layout and many formats: the model as an implementation, which evicts
// and stores bytes, must agree with the judge's side, which does neither. Every operation must
// succeed and be refused somewhere, or the traces looked at little.

#include <gtest/gtest.h>

#include <array>

#include "fuzz/run_trace.h"
#include "reference/cache/model_cache.h"
#include "reference/data/generator.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

template <typename T>
const T& Pick(Generator* random, const std::vector<T>& values) {
  return values[random->Below(values.size())];
}

CacheCase RandomCase(uint64_t seed) {
  Generator random(seed, "trace", 0);
  CacheCase c;
  CacheSetup& setup = c.setup;
  setup.layout = Pick<CacheLayout>(&random, {{},
                                             {LayoutKind::kLinear, 3, 0, 0},
                                             {LayoutKind::kRing, 4, 0, 0},
                                             {LayoutKind::kRing, 4, 2, 0},
                                             {LayoutKind::kRing, 1, 0, 0},
                                             {LayoutKind::kChunk, 0, 0, 3},
                                             {LayoutKind::kChunk, 0, 0, 1}});
  const std::vector<KvFormat> formats = {
      PlainFormat{DType::kFloat32}, PlainFormat{DType::kBFloat16},
      PlainFormat{DType::kFloat8E4M3FN}, AffineFormat{4, 32, DType::kFloat16},
      AffineFormat{3, 32, DType::kBFloat16}};
  setup.k = Pick(&random, formats);
  setup.v = Pick(&random, formats);
  setup.x = Pick<DType>(&random, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  setup.kv_heads = 2;
  setup.query_heads = 4;
  setup.k_dim = 32;
  setup.v_dim = random.Below(2) == 0 ? 32 : 64;
  setup.growth_tokens = 1 + static_cast<int64_t>(random.Below(4));
  setup.observe = random.Below(4) == 0 ? Observe::kLast : Observe::kEach;
  setup.data = {"tokens", seed, ""};
  const auto slot = [&] { return static_cast<int>(random.Below(3)); };
  for (int i = 0; i < 30; ++i) {
    CacheOp op;
    // Half of the operations append; the first fill a slot.
    op.kind = random.Below(2) == 0 ? CacheOpKind::kAppend
                                   : static_cast<CacheOpKind>(random.Below(kCacheOpKinds));
    if (i < 2) op.kind = CacheOpKind::kNew;
    op.slot = slot();
    op.target = slot();
    op.count = random.Between(-1, 4);
    switch (op.kind) {
      case CacheOpKind::kNew:
        op.count = random.Between(0, 3);
        if (random.Below(2) == 0) {
          for (int64_t b = 0; b < op.count; ++b) op.numbers.push_back(random.Between(0, 3));
        }
        break;
      case CacheOpKind::kAppend:
        op.count = random.Between(1, 6);
        if (random.Below(20) == 0) op.wrong = static_cast<WrongColumns>(random.Below(6));
        break;
      case CacheOpKind::kPrepare:
      case CacheOpKind::kFilter:
        for (int64_t n = random.Between(0, 3); n > 0; --n) {
          op.numbers.push_back(random.Between(random.Below(8) == 0 ? -1 : 0, 2));
        }
        break;
      case CacheOpKind::kMerge:
        for (int64_t n = random.Between(1, 3); n > 0; --n) op.operands.push_back(slot());
        break;
      case CacheOpKind::kToQuantized:
        op.k = Pick(&random, formats);
        op.v = Pick(&random, formats);
        break;
      case CacheOpKind::kDamage:
        op.damage = static_cast<Damage>(random.Below(4));
        op.at = random.Between(0, 500);
        break;
      case CacheOpKind::kAttend:
        if (random.Below(2) == 0) op.window = random.Between(0, 4);
        op.sinks = random.Below(2) == 0;
        break;
      default:
        break;
    }
    op.key = static_cast<int>(random.Below(2));
    c.ops.push_back(op);
  }
  return c;
}

TEST(RandomTrace, ModelPassesBesideItself) {
  ModelFactory model;
  TraceRunner runner(&model);
  TraceCounts total;
  int64_t judged = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const CacheCase c = RandomCase(seed);
    TraceOptions options;
    options.every_slot = seed % 3 == 0;
    const TraceResult result = runner.Run(c, options);
    if (result.counts.states == 0) continue;  // everything was dropped before the end
    ++judged;
    ASSERT_EQ(result.outcome, Outcome::kPass) << "kvcheck run '" << Print(c) << "'\n"
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
  int64_t found = 0;
  for (const CacheFault& fault : CacheFaults()) {
    ModelFactory mutant(fault.rules());
    TraceRunner runner(&mutant);
    bool failed = false;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      failed = runner.Run(RandomCase(seed)).outcome == Outcome::kFail || failed;
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
