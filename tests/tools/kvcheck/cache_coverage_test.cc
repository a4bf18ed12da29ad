#include "tools/kvcheck/cache_coverage.h"

#include <gtest/gtest.h>

#include <memory>

#include "fuzz/run_trace.h"
#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

// Knows no affine formats, and no merge at all.
class PlainFactory : public optimized::OptimizedCacheFactory {
 public:
  bool Supports(CacheOpKind op, const CacheLayout&, const KvFormat& k,
                const KvFormat& v) const override {
    return op != CacheOpKind::kMerge && IsPlain(k) && IsPlain(v);
  }
};

TEST(CacheCoverage, HasEveryOperationLayoutAndFormatOfOurCaches) {
  optimized::OptimizedCacheFactory factory;
  const std::vector<CoverageRow> rows = CoverageOf(&factory);
  EXPECT_EQ(rows.size(), 10u);
  EXPECT_EQ(CoveredOperations().size(), static_cast<size_t>(kCacheOpKinds) - 2);
  for (const CoverageRow& row : rows) {
    ASSERT_EQ(row.cells.size(), CoveredOperations().size());
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const CoverageCell& cell = row.cells[i];
      EXPECT_EQ(cell.plain + cell.affine, std::ssize(AllKvFormats()))
          << row.layout << " " << Name(CoveredOperations()[i]);
      EXPECT_EQ(cell.failed, 0);
    }
  }
}

// Says that it has everything, and declines loads.
class NoLoads : public ModelFactory {
 public:
  OpResult Load(const StateStore&, std::string_view, std::unique_ptr<Cache>*) override {
    return OpResult::Unsupported("no loads");
  }
};

TEST(CacheCoverage, WhatIsDeclinedIsNotCovered) {
  NoLoads factory;
  for (const CoverageRow& row : CoverageOf(&factory)) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const CacheOpKind op = CoveredOperations()[i];
      const bool loads = op == CacheOpKind::kSave || op == CacheOpKind::kLoad;
      EXPECT_EQ(row.cells[i].plain == 0, loads) << row.layout << " " << Name(op);
      EXPECT_EQ(row.cells[i].failed, 0);
    }
  }
}

TEST(CacheCoverage, ShowsWhatIsMissing) {
  PlainFactory factory;
  const std::vector<CoverageRow> rows = CoverageOf(&factory);
  const std::string text = CoverageText("mine", rows);
  EXPECT_NE(text.find("caches of 'mine'"), std::string::npos) << text;
  EXPECT_EQ(text.find(" all "), std::string::npos) << text;
  EXPECT_NE(text.find(" plain"), std::string::npos) << text;
  EXPECT_NE(text.find(" - "), std::string::npos) << text;
}

// Many catalogued faults sit in what the traces of the cells do; not all, which only the fuzzer
// finds.
TEST(CacheCoverage, AWrongOperationIsNotCovered) {
  int64_t seen = 0;
  for (const CacheFault& fault : CacheFaults()) {
    ModelFactory mutant(fault.rules());
    TraceRunner runner(&mutant);
    bool fails = false;
    for (const CacheOpKind op : CoveredOperations()) {
      const CacheLayout ring = {LayoutKind::kRing, 4, 2, 0};
      const CacheCase c = CoverageTrace(op, ring, PlainFormat{}, 3);
      fails = fails || runner.Run(c).outcome == Outcome::kFail;
    }
    seen += fails ? 1 : 0;
  }
  EXPECT_GT(3 * seen, std::ssize(CacheFaults()));
}

// Each trace has the operation, and every other is only there to make a state for it.
TEST(CacheCoverage, TracesNeedTheirOperation) {
  for (const CacheOpKind op : CoveredOperations()) {
    for (const int64_t rows : {1, 3}) {
      const CacheCase c = CoverageTrace(op, {}, PlainFormat{}, rows);
      bool found = false;
      for (const CacheOp& step : c.ops) found = found || step.kind == op;
      EXPECT_TRUE(found) << Name(op);
      EXPECT_EQ(c.ops[0].count, rows);
    }
  }
}

}  // namespace
}  // namespace kvcheck
