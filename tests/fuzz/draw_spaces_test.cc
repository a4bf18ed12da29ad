// What is drawn for an implementation that has not everything is among what it has, visits all of
// that, and is refused where the options leave nothing.

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "fuzz/draw_attention.h"
#include "fuzz/draw_codec.h"
#include "fuzz/draw_trace.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/trace/trace_space.h"

namespace kvcheck {
namespace {

constexpr uint64_t kCases = 2000;

uint32_t Operations(std::initializer_list<CacheOpKind> kinds) {
  uint32_t bits = 0;
  for (const CacheOpKind kind : kinds) bits |= 1u << static_cast<int>(kind);
  return bits;
}

// Two kinds of caches: batches without rings in half precision, quantized ones of one sequence.
std::vector<CacheSpace> TwoSpaces() {
  CacheSpace batch;
  batch.layouts = {"linear*", "chunk"};
  batch.formats = {"f16", "bf16"};
  batch.same_format = true;
  batch.stored_as_given = true;
  batch.rows = SpaceRows::kBatch;
  CacheSpace quantized;
  quantized.layouts = {"ring"};
  quantized.formats = {"affine:4:*", "affine:8:g64:*"};
  quantized.scales_as_given = true;
  quantized.x = {DType::kFloat16, DType::kFloat32};
  quantized.rows = SpaceRows::kSingle;
  quantized.padding = false;
  using enum CacheOpKind;
  quantized.operations =
      Operations({kNew, kAppend, kTrim, kCopy, kSave, kLoad, kDamage, kAttend, kToQuantized});
  quantized.damages = 1u << static_cast<int>(Damage::kFlip);
  return {batch, quantized};
}

// Pairs of formats of K and V; one format of a pair stands in no list of formats.
CacheSpace Pairs() {
  CacheSpace space;
  space.formats = {"f32", "bf16"};
  space.stored_as_given = space.scales_as_given = true;
  const auto format = [](const std::string& text) { return ParseKvFormat(WholeLine(text)); };
  for (const auto& [k, v] : {std::pair{"turboquant:3:g32:mlx_vlm:f32", "turboquant:4:g32:s7:f32"},
                             {"turboquant:3:g32:mlx_vlm:f32", "turboquant:3:g32:s7:f32"},
                             {"q8_0", "q4_0"}}) {
    space.pairs.emplace_back(format(k), format(v));
  }
  return space;
}

bool IsIn(const CacheSpace& space, const CacheCase& c) {
  const auto layout = [&](const CacheLayout& l) {
    return MatchesAnyGlob(space.layouts, LayoutVariants()[static_cast<size_t>(LayoutVariantOf(l))]);
  };
  if (!layout(c.setup.layout) || !space.HasFormats(c.setup.x, c.setup.k, c.setup.v)) return false;
  for (const CacheOp& op : c.ops) {
    if (!space.Has(op.kind)) return false;
    if (op.kind == CacheOpKind::kDamage && !space.Has(op.damage)) return false;
    if (op.layout && !layout(*op.layout)) return false;
    const KvFormat& k = op.k ? *op.k : c.setup.k;
    if (op.kind == CacheOpKind::kNew && !space.HasFormats(c.setup.x, k, op.v ? *op.v : c.setup.v)) {
      return false;
    }
    // What a cache is turned into; itself too.
    if (op.kind == CacheOpKind::kToQuantized && !space.HasFormats(c.setup.x, *op.k, *op.v)) {
      return false;
    }
    if (op.kind == CacheOpKind::kNew && !space.padding && !op.numbers.empty()) return false;
    if (op.kind == CacheOpKind::kNew && space.rows == SpaceRows::kSingle && op.count > 1) {
      return false;
    }
  }
  return true;
}

TEST(DrawSpaces, TracesAreOfTheSpacesByTurns) {
  TraceDrawOptions options;
  options.spaces = TwoSpaces();
  TraceDrawer drawer(options);
  std::array<std::set<std::string>, 2> seen;
  for (uint64_t index = 0; index < kCases; ++index) {
    const size_t space = index % 2;
    const CacheCase c = drawer.Draw(1, index);
    ASSERT_NO_THROW(ValidateCacheCase(c)) << Print(c);
    ASSERT_GE(c.ops.size(), 6u);
    ASSERT_TRUE(IsIn(options.spaces[space], c)) << Print(c);
    // The check can fail.
    ASSERT_FALSE(IsIn(options.spaces[1 - space], c)) << Print(c);
    for (const CacheOp& op : c.ops) seen[space].insert(std::string(Name(op.kind)));
    seen[space].insert(Print(c.setup.k));
    seen[space].insert(std::string(ShortName(c.setup.x)));
    seen[space].insert(
        std::string(LayoutVariants()[static_cast<size_t>(LayoutVariantOf(c.setup.layout))]));
  }
  for (const char* text : {"linear", "linear:w", "chunk", "f16", "bf16", "merge", "extract"}) {
    EXPECT_TRUE(seen[0].contains(text)) << text;
  }
  for (const char* text :
       {"ring", "affine:4:g32:f16", "affine:4:g128:f32", "affine:8:g64:f16", "append", "trim",
        "copy", "save", "load", "damage", "attend", "to_quantized"}) {
    EXPECT_TRUE(seen[1].contains(text)) << text;
  }
  EXPECT_FALSE(seen[1].contains("affine:8:g32:f16"));
}

// Every operation can be missing, and the trace has its length all the same.
TEST(DrawSpaces, PairsAreDrawnTogether) {
  TraceDrawOptions options;
  options.spaces = {Pairs()};
  TraceDrawer drawer(options);
  std::set<std::string> setups, quantized;
  for (uint64_t index = 0; index < kCases; ++index) {
    const CacheCase c = drawer.Draw(1, index);
    ASSERT_NO_THROW(ValidateCacheCase(c)) << Print(c);
    ASSERT_TRUE(HasTrace(options.spaces[0], c)) << Print(c);
    ASSERT_TRUE(IsIn(options.spaces[0], c)) << Print(c);
    setups.insert(Print(c.setup.k) + " " + Print(c.setup.v));
    for (const CacheOp& op : c.ops) {
      if (op.kind == CacheOpKind::kToQuantized) quantized.insert(Print(*op.k) + " " + Print(*op.v));
    }
  }
  // Both partners of one format, and plain vectors with themselves.
  EXPECT_EQ(setups, (std::set<std::string>{"turboquant:3:g32:mlx_vlm:f32 turboquant:4:g32:s7:f32",
                                           "turboquant:3:g32:mlx_vlm:f32 turboquant:3:g32:s7:f32",
                                           "q8_0 q4_0", "f32 f32", "bf16 bf16"}));
  EXPECT_EQ(quantized, setups);
}

TEST(DrawSpaces, AnyOperationCanBeMissing) {
  for (int i = 0; i < kCacheOpKinds; ++i) {
    const auto kind = static_cast<CacheOpKind>(i);
    TraceDrawOptions options;
    options.spaces.emplace_back();
    options.spaces[0].operations &= ~(1u << i);
    if (kind == CacheOpKind::kNew || kind == CacheOpKind::kAppend) {
      EXPECT_THROW(TraceDrawer{options}, Error);
      continue;
    }
    TraceDrawer drawer(options);
    for (uint64_t index = 0; index < 300; ++index) {
      const CacheCase c = drawer.Draw(1, index);
      ASSERT_GE(c.ops.size(), 6u);
      for (const CacheOp& op : c.ops) ASSERT_NE(op.kind, kind) << Print(c);
    }
  }
}

TEST(DrawSpaces, OneSpaceOfEverythingIsNoSpace) {
  TraceDrawOptions options;
  options.spaces.emplace_back();
  for (uint64_t index = 0; index < 200; ++index) {
    EXPECT_EQ(Print(DrawTrace(5, index, options)), Print(DrawTrace(5, index)));
    EXPECT_EQ(Print(Case(DrawAttention(index, {}, AttentionSpace()).c)),
              Print(Case(DrawAttention(index, {}).c)));
  }
}

TEST(DrawSpaces, PatternsAndRowsLeaveSpacesOut) {
  TraceDrawOptions options;
  options.spaces = TwoSpaces();
  options.layouts = {"ring", "ring:keep"};
  TraceDrawer rings(options);
  for (uint64_t index = 0; index < 100; ++index) {
    EXPECT_TRUE(IsIn(options.spaces[1], rings.Draw(1, index)));
  }
  options.layouts.clear();
  options.rows = SpaceRows::kBatch;
  TraceDrawer batches(options);
  for (uint64_t index = 0; index < 100; ++index) {
    EXPECT_TRUE(IsIn(options.spaces[0], batches.Draw(1, index)));
  }
  const auto refused = [](const TraceDrawOptions& o) {
    try {
      TraceDrawer drawer(o);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.message();
    }
    return std::string();
  };
  options.layouts = {"ring"};
  EXPECT_EQ(refused(options),
            "the implementation has no caches of this kind; what it has: layouts linear*, chunk; "
            "formats f16, bf16; K and V in one format; plain vectors stored as given; rows batch | "
            "layouts ring; formats affine:4:*, affine:8:g64:*; scales of the vectors' type; x f16, "
            "f32; rows single; without padding; operations new, append, trim, to_quantized, copy, "
            "save, load, damage, attend; damages flip");
  options = {};
  options.spaces = TwoSpaces();
  options.formats = {"f32", "affine:2:*"};
  EXPECT_NE(refused(options), "");
  // Plain formats that are not the vectors' type.
  options.formats = {"bf16"};
  options.spaces[0].x = {DType::kFloat16};
  EXPECT_NE(refused(options), "");
}

AttentionSpace Narrow() {
  AttentionSpace space;
  space.q = {DType::kFloat16, DType::kBFloat16};
  space.out_as_q = true;
  space.k = {"affine:4:g64:*", "affine:8:g32:bf16"};
  space.v = {"affine:4:*", "f16", "bf16"};
  space.masks = {"none", "causal_bottom_right", "bool:LT"};
  space.same_dims = true;
  space.grouped = false;
  space.lse = space.sinks = space.softcap = space.alibi = space.against_original = false;
  return space;
}

TEST(DrawSpaces, AttentionIsOfTheSpace) {
  AttentionSpace same = Narrow();
  same.same_format = true;
  same.grouped = true;
  AttentionSpace plain;
  plain.k = plain.v = {"f8e4m3fn"};
  plain.out = {DType::kFloat64};
  for (const AttentionSpace& space : {Narrow(), same, plain}) {
    std::set<std::string> q, k, v, masks;
    int others = 0;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      const DrawnAttention drawn = DrawAttention(seed, {}, space);
      ASSERT_TRUE(space.Has(drawn.c)) << Print(Case(drawn.c));
      ASSERT_NO_THROW(Validate(Case(drawn.c))) << Print(Case(drawn.c));
      others += space.Has(DrawAttention(seed, {}).c) ? 0 : 1;
      q.insert(std::string(ShortName(drawn.c.q)));
      k.insert(Print(drawn.c.k));
      v.insert(Print(drawn.c.v));
      masks.insert(Print(drawn.c.mask));
    }
    EXPECT_GT(others, 1000);
    EXPECT_EQ(q.size(), space.q.empty() ? 4u : 2u);
    if (space == Narrow()) {
      EXPECT_EQ(masks.size(), 3u);
      EXPECT_GE(k.size(), 3u);
      EXPECT_GE(v.size(), 4u);
    }
  }
}

TEST(DrawSpaces, AttentionThatCannotBeDrawnIsRefused) {
  AttentionSpace space;
  space.masks = {"no mask"};
  EXPECT_THROW(DrawAttention(1, {}, space), Error);
  space = {};
  space.k = {"f7"};
  EXPECT_THROW(DrawAttention(1, {}, space), Error);
  space = {};
  space.q = {DType::kFloat16};
  space.out = {DType::kFloat32};
  space.out_as_q = true;
  EXPECT_THROW(DrawAttention(1, {}, space), Error);
}

TEST(DrawSpaces, CodecsAreOfTheSpacesByTurns) {
  CodecDrawOptions options;
  options.spaces.resize(2);
  options.spaces[0].formats = {"affine:*:f16"};
  options.spaces[0].directions = {CodecDirection::kEncode};
  options.spaces[1].formats = {"f8*"};
  options.spaces[1].x = {DType::kBFloat16};
  const CodecDrawer drawer(options);
  std::set<std::string> seen;
  for (uint64_t index = 0; index < kCases; ++index) {
    const CodecCase c = drawer.Draw(1, index);
    ASSERT_TRUE(options.spaces[index % 2].Has(c)) << Print(Case(c));
    ASSERT_FALSE(options.spaces[1 - index % 2].Has(c)) << Print(Case(c));
    seen.insert(std::string(Name(c.direction)) + " " + Print(c.format));
  }
  EXPECT_TRUE(seen.contains("round_trip f8e5m2"));
  EXPECT_TRUE(seen.contains("encode affine:6:g128:f16"));
  options.formats = {PlainFormat{DType::kFloat16}};
  EXPECT_THROW(CodecDrawer{options}, Error);
}

}  // namespace
}  // namespace kvcheck
