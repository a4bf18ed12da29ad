// What is drawn: a pure function of seed, index and options; legal text; every layout, format and
// operation; and what options leave out.

#include "fuzz/draw_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "reference/cache/model_cache.h"
#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/run_trace.h"
#include "reference/trace/trace_shadow.h"
#include "reference/trace/trace_space.h"

namespace kvcheck {
namespace {

constexpr uint64_t kTraces = 3000;

TEST(DrawTrace, IsAFunctionOfSeedAndIndexAlone) {
  TraceDrawer forwards;
  TraceDrawer backwards;
  std::map<uint64_t, std::string> texts;
  for (uint64_t index = 0; index < kTraces; ++index) texts[index] = Print(forwards.Draw(3, index));
  for (uint64_t index = kTraces; index-- > 0;) {
    EXPECT_EQ(Print(backwards.Draw(3, index)), texts[index]);
    EXPECT_EQ(Print(DrawTrace(3, index)), texts[index]);
    EXPECT_NE(Print(backwards.Draw(4, index)), texts[index]);
  }
  std::set<std::string> different;
  for (const auto& [index, text] : texts) different.insert(text);
  EXPECT_EQ(different.size(), texts.size());
}

TEST(DrawTrace, IsLegalAndMeansWhatItsTextSays) {
  TraceDrawer drawer;
  for (uint64_t index = 0; index < kTraces; ++index) {
    const CacheCase c = drawer.Draw(1, index);
    ASSERT_NO_THROW(ValidateCacheCase(c)) << Print(c);
    ASSERT_EQ(ParseCacheCase(Print(c)), c) << Print(c);
    ASSERT_EQ(ParseCacheCase(PrintLines(c)), c) << Print(c);
    ASSERT_GE(c.ops.size(), 6u);
    ASSERT_LE(c.ops.size(), 20u);
  }
}

TEST(DrawTrace, VisitsEveryLayoutFormatTypeAndOperation) {
  TraceDrawer drawer;
  std::array<std::array<int, 2>, 5> layouts{};
  std::set<std::string> k, v, x, quantized, damages, wrongs;
  std::array<std::array<int, kCacheOpKinds>, 5> kinds{};
  int split = 0, windows = 0, scales = 0, sinks = 0, last = 0, large = 0, twice = 0, itself = 0;
  for (uint64_t index = 0; index < kTraces; ++index) {
    const CacheCase c = drawer.Draw(1, index);
    const auto layout = static_cast<size_t>(LayoutVariantOf(c.setup.layout));
    k.insert(Print(c.setup.k));
    v.insert(Print(c.setup.v));
    x.insert(std::string(ShortName(c.setup.x)));
    split += c.setup.k == c.setup.v ? 0 : 1;
    last += c.setup.observe == Observe::kLast ? 1 : 0;
    bool batch = false;
    for (const CacheOp& op : c.ops) {
      ++kinds[layout][static_cast<size_t>(op.kind)];
      batch = batch || (op.kind == CacheOpKind::kNew && op.count > 1);
      large += op.kind == CacheOpKind::kAppend && op.count > 64 ? 1 : 0;
      windows += op.window ? 1 : 0;
      scales += op.scale ? 1 : 0;
      sinks += op.sinks ? 1 : 0;
      itself += op.kind == CacheOpKind::kExtend && op.slot == op.target ? 1 : 0;
      if (op.kind == CacheOpKind::kMerge) {
        const std::set<int> operands(op.operands.begin(), op.operands.end());
        twice += operands.size() < op.operands.size() ? 1 : 0;
      }
      if (op.kind == CacheOpKind::kToQuantized) quantized.insert(Print(*op.k));
      if (op.kind == CacheOpKind::kDamage) damages.insert(Print(op).substr(10, 4));
      if (op.wrong != WrongColumns::kNothing) wrongs.insert(Print(op).substr(10));
    }
    ++layouts[layout][batch ? 1 : 0];
  }
  for (size_t layout = 0; layout < layouts.size(); ++layout) {
    // A fifth each, but that codes per channel are of linear caches alone: one format in twelve.
    const int drawn = layouts[layout][0] + layouts[layout][1];
    EXPECT_GE(drawn, static_cast<int>(kTraces) / 5 * 9 / 10) << LayoutVariants()[layout];
    EXPECT_GT(layouts[layout][0], 150) << LayoutVariants()[layout];
    EXPECT_GT(layouts[layout][1], 250) << LayoutVariants()[layout];
    for (size_t kind = 0; kind < kinds[layout].size(); ++kind) {
      EXPECT_GT(kinds[layout][kind], 20)
          << LayoutVariants()[layout] << " " << Name(static_cast<CacheOpKind>(kind));
    }
  }
  // There are more formats than so many traces reach.
  for (uint64_t index = kTraces; index < 4 * kTraces; ++index) {
    const CacheCase c = drawer.Draw(1, index);
    k.insert(Print(c.setup.k));
    v.insert(Print(c.setup.v));
  }
  for (const KvFormat& format : CacheFormats()) {
    EXPECT_TRUE(k.contains(Print(format))) << Print(format);
    EXPECT_TRUE(v.contains(Print(format))) << Print(format);
  }
  EXPECT_GT(quantized.size(), 30u);
  EXPECT_EQ(x, (std::set<std::string>{"f32", "f16", "bf16"}));
  EXPECT_EQ(damages.size(), 4u);
  EXPECT_EQ(wrongs.size(), static_cast<size_t>(kWrongColumns));
  for (const int count : {split, windows, scales, sinks, last, twice, itself}) {
    EXPECT_GT(count, 100);
  }
  EXPECT_GT(large, 10);
}

TEST(DrawTrace, OptionsLeaveOutTheRest) {
  TraceDrawOptions options;
  options.layouts = {"ring*", "chunk"};
  options.formats = {"affine:4:*", "bf16"};
  options.max_operations = 9;
  TraceDrawer drawer(options);
  std::set<int> layouts;
  std::set<std::string> formats;
  for (uint64_t index = 0; index < 1000; ++index) {
    const CacheCase c = drawer.Draw(1, index);
    EXPECT_LE(c.ops.size(), 9u);
    layouts.insert(LayoutVariantOf(c.setup.layout));
    formats.insert(Print(c.setup.k));
    formats.insert(Print(c.setup.v));
    for (const CacheOp& op : c.ops) {
      if (op.layout && IsLegal(*op.layout)) layouts.insert(LayoutVariantOf(*op.layout));
      if (op.k) formats.insert(Print(*op.k));
      if (op.v) formats.insert(Print(*op.v));
    }
  }
  EXPECT_EQ(layouts, (std::set<int>{2, 3, 4}));
  EXPECT_EQ(formats.size(), 10u);  // 3 groups x 3 scale types, and bf16
  for (const std::string& format : formats) {
    EXPECT_TRUE(format == "bf16" || format.starts_with("affine:4:")) << format;
  }
  TraceDrawOptions few;
  few.max_operations = 2;
  EXPECT_EQ(DrawTrace(1, 1, few).ops.size(), 2u);
}

TEST(DrawTrace, SingleTracesNeverHoldASecondRow) {
  TraceDrawOptions options;
  options.rows = SpaceRows::kSingle;
  TraceDrawer drawer(options);
  TraceShadow shadow;
  for (uint64_t index = 0; index < kTraces; ++index) {
    const CacheCase c = drawer.Draw(2, index);
    shadow.Start(c.setup);
    for (const CacheOp& op : c.ops) {
      shadow.Apply(op);
      for (int slot = 0; slot < kSlots; ++slot) {
        ASSERT_LE(shadow.Used(slot) ? shadow.State(slot).rows.size() : 0, 1u) << Print(c);
      }
    }
  }
  options.rows = SpaceRows::kBatch;
  TraceDrawer batches(options);
  for (uint64_t index = 0; index < 500; ++index) {
    EXPECT_NE(batches.Draw(2, index).ops[0].count, 1);
  }
}

TEST(DrawTrace, PatternsThatMatchNothingAreRefused) {
  const auto refused = [](const TraceDrawOptions& options) {
    EXPECT_THROW(TraceDrawer drawer(options), Error);
  };
  refused({.layouts = {"ring", "paged"}, .formats = {}});
  refused({.layouts = {}, .formats = {"affine:7*"}});
  refused({.layouts = {}, .formats = {}, .max_operations = 0});
}

// The shadow by which traces are steered is the model: it refuses what the model refuses. Records
// that are damaged twice may be whole again, which the shadow does not follow.
TEST(TraceShadow, CarriesOutWhatTheModelCarriesOut) {
  TraceDrawer drawer;
  ModelFactory model;
  TraceRunner runner(&model);
  TraceShadow shadow;
  int64_t compared = 0;
  for (uint64_t index = 0; index < 2000; ++index) {
    const CacheCase c = drawer.Draw(5, index);
    const auto damages = std::count_if(c.ops.begin(), c.ops.end(), [](const CacheOp& op) {
      return op.kind == CacheOpKind::kDamage;
    });
    if (damages > 1) continue;
    ++compared;
    shadow.Start(c.setup);
    int64_t nothing = 0;
    for (const CacheOp& op : c.ops) nothing += shadow.Apply(op) ? 0 : 1;
    const TraceResult result = runner.Run(c);
    ASSERT_TRUE(result.outcome == Outcome::kPass || result.by_trace)
        << Print(c) << "\n" << result.reason;
    ASSERT_EQ(nothing, result.counts.idle + result.counts.refusals) << Print(c);
  }
  EXPECT_GT(compared, 1500);
}

}  // namespace
}  // namespace kvcheck
