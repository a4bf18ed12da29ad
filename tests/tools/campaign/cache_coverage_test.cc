#include "tools/campaign/cache_coverage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "optimized/cache/cache_factory.h"
#include "reference/cache/model_cache.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/run_trace.h"
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

// All that caches keep but those whose residual the layout would forget.
int64_t FormatsOf(const std::string& layout) {
  const std::vector<KvFormat> formats = ListedKvFormats();
  return std::count_if(formats.begin(), formats.end(), [&](const KvFormat& format) {
    return CachesKeep(format) && (layout == "linear" || !HasResidual(format));
  });
}

TEST(CacheCoverage, HasEveryOperationLayoutAndFormatOfOurCaches) {
  optimized::OptimizedCacheFactory factory;
  const std::vector<CoverageRow> rows = CoverageOf(&factory);
  EXPECT_EQ(rows.size(), 10u);
  EXPECT_EQ(CoveredOperations().size(), static_cast<size_t>(kCacheOpKinds) - 2);
  for (const CoverageRow& row : rows) {
    ASSERT_EQ(row.cells.size(), CoveredOperations().size());
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const CoverageCell& cell = row.cells[i];
      EXPECT_EQ(cell.plain + cell.affine, FormatsOf(row.layout))
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

// States that it has one kind of cache, and remembers for what it was asked.
class OneKind : public ModelFactory {
 public:
  CacheCapabilities GetCapabilities() const override {
    CacheCapabilities capabilities = ModelFactory::GetCapabilities();
    CacheSpace space;
    space.layouts = {"ring"};
    space.formats = {"f16"};
    space.same_format = space.stored_as_given = true;
    space.x = {DType::kFloat16};
    space.rows = SpaceRows::kSingle;
    space.window = space.sinks = false;
    space.operations &= ~(1U << static_cast<int>(CacheOpKind::kToQuantized));
    capabilities.spaces = {space};
    return capabilities;
  }
  OpResult Start(const CacheSetup& setup) override {
    types.insert(setup.x);
    return ModelFactory::Start(setup);
  }
  OpResult New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
               std::span<const int64_t> left_padding, std::unique_ptr<Cache>* out) override {
    made.insert(fmt::format("{} {} {} rows={}", Print(layout), Print(k), Print(v), rows));
    return ModelFactory::New(layout, k, v, rows, left_padding, out);
  }

  std::set<DType> types;
  std::set<std::string> made;
};

TEST(CacheCoverage, AsksForNothingOutsideOfTheSpaces) {
  OneKind factory;
  int64_t covered = 0;
  for (const CoverageRow& row : CoverageOf(&factory)) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const CoverageCell& cell = row.cells[i];
      EXPECT_EQ(cell.failed + cell.lost, 0) << row.layout << " " << Name(CoveredOperations()[i]);
      // Extend and merge would make rows.
      const CacheOpKind op = CoveredOperations()[i];
      const bool is_there = row.layout == std::string("ring:w=W") && !row.is_batch &&
                            op != CacheOpKind::kToQuantized && op != CacheOpKind::kExtend &&
                            op != CacheOpKind::kMerge;
      EXPECT_EQ(cell.plain, is_there ? 1 : 0) << row.layout << " " << Name(op);
      EXPECT_EQ(cell.affine, 0);
      covered += cell.plain;
    }
  }
  EXPECT_GT(covered, 0);
  EXPECT_EQ(factory.types, std::set<DType>{DType::kFloat16});
  EXPECT_EQ(factory.made, std::set<std::string>{"ring:w=4 f16 f16 rows=1"});
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
