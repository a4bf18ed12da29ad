// What an implementation says that it has: patterns, membership, and the sentence for messages.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/spec/attention_space.h"
#include "reference/spec/cache_space.h"
#include "reference/spec/codec_space.h"
#include "reference/spec/glob.h"

namespace kvcheck {
namespace {

TEST(Glob, NoPatternsMatchEverything) {
  EXPECT_TRUE(MatchesAnyGlob({}, "x"));
  EXPECT_TRUE(MatchesAnyGlob({"y", "x"}, "x"));
  EXPECT_FALSE(MatchesAnyGlob({"y"}, "x"));
  EXPECT_TRUE(MatchesAnyGlob({"affine:[48]:*"}, "affine:4:g64:f16"));
  EXPECT_FALSE(MatchesAnyGlob({"affine:[48]:*"}, "affine:3:g64:f16"));
}

TEST(CacheSpace, FormatsGoWithTheTypeOfTheVectors) {
  const KvFormat f16 = PlainFormat{DType::kFloat16};
  const KvFormat f32 = PlainFormat{DType::kFloat32};
  const KvFormat codes = AffineFormat{4, 64, DType::kFloat16};
  const CacheSpace everything;
  EXPECT_TRUE(everything.HasFormats(DType::kFloat32, f16, codes));
  CacheSpace space;
  space.formats = {"f*", "affine:4:*"};
  EXPECT_FALSE(space.HasFormat(DType::kFloat32, PlainFormat{DType::kBFloat16}));
  space.stored_as_given = true;
  EXPECT_TRUE(space.HasFormat(DType::kFloat16, f16));
  EXPECT_FALSE(space.HasFormat(DType::kFloat16, f32));
  EXPECT_TRUE(space.HasFormat(DType::kFloat32, codes));
  space.scales_as_given = true;
  EXPECT_FALSE(space.HasFormat(DType::kFloat32, codes));
  EXPECT_TRUE(space.HasFormats(DType::kFloat16, f16, codes));
  space.same_format = true;
  EXPECT_FALSE(space.HasFormats(DType::kFloat16, f16, codes));
  EXPECT_TRUE(space.HasFormats(DType::kFloat16, codes, codes));
  space.x = {DType::kBFloat16};
  EXPECT_FALSE(space.HasFormats(DType::kFloat16, codes, codes));
}

TEST(CacheSpace, PairsGoTogetherAndOtherFormatsWithThemselves) {
  const KvFormat f32 = PlainFormat{DType::kFloat32};
  const KvFormat k = TurboquantFormat{3, 32};
  const KvFormat v = TurboquantFormat{4, 32, TurboquantCodebook::kExact, 1};
  CacheSpace space;
  space.formats = {"f32"};
  space.pairs = {{k, v}};
  space.scales_as_given = true;
  EXPECT_TRUE(space.HasFormats(DType::kFloat32, k, v));
  EXPECT_TRUE(space.HasFormats(DType::kFloat32, f32, f32));
  EXPECT_FALSE(space.HasFormats(DType::kFloat16, k, v));
  EXPECT_FALSE(space.HasFormats(DType::kFloat32, v, k));
  EXPECT_FALSE(space.HasFormats(DType::kFloat32, k, k));
  EXPECT_FALSE(space.HasFormats(DType::kFloat32, k, f32));
  CacheSpace alone = space;
  alone.formats.clear();
  EXPECT_TRUE(alone.HasFormats(DType::kFloat32, k, v));
  EXPECT_FALSE(alone.HasFormats(DType::kFloat32, f32, f32));
  EXPECT_EQ(Describe(space),
            "formats f32; K turboquant:3:g32:f32 with turboquant:4:g32:s1:f32; scales of the "
            "vectors' type");
}

TEST(CacheSpace, OperationsAndDamagesAreBits) {
  CacheSpace space;
  for (int kind = 0; kind < kCacheOpKinds; ++kind) {
    EXPECT_TRUE(space.Has(static_cast<CacheOpKind>(kind)));
  }
  space.operations &= ~(1u << static_cast<int>(CacheOpKind::kDrop));
  EXPECT_FALSE(space.Has(CacheOpKind::kDrop));
  EXPECT_TRUE(space.Has(CacheOpKind::kAttend));
  EXPECT_TRUE(space.Has(Damage::kVersion));
  space.damages = 1u << static_cast<int>(Damage::kFlip);
  EXPECT_TRUE(space.Has(Damage::kFlip));
  EXPECT_FALSE(space.Has(Damage::kVersion));
}

TEST(Spaces, SayWhatTheyHave) {
  EXPECT_EQ(Describe(CacheSpace()), "everything");
  EXPECT_EQ(Describe(AttentionSpace()), "everything");
  EXPECT_EQ(Describe(CodecSpace()), "everything");
  CacheSpace cache;
  cache.rows = SpaceRows::kSingle;
  cache.operations = 3;
  cache.damages = 3;
  EXPECT_EQ(Describe(cache), "rows single; operations new, append; damages truncate, flip");
  CacheSpace narrow;
  narrow.same_dims = true;
  narrow.grouped = narrow.empty_batch = narrow.window = narrow.sinks = false;
  EXPECT_EQ(
      Describe(narrow),
      "k_dim as v_dim; without grouped heads; without batches of no rows; without a window at "
      "attend; without sinks");
  AttentionSpace attention;
  attention.q = {DType::kFloat16};
  attention.masks = {"none"};
  attention.lse = false;
  EXPECT_EQ(Describe(attention), "q f16; masks none; without lse");
  CodecSpace codec;
  codec.formats = {"f8*"};
  codec.directions = {CodecDirection::kRoundTrip};
  codec.x = {DType::kFloat32, DType::kBFloat16};
  EXPECT_EQ(Describe(codec), "formats f8*; directions round_trip; x f32, bf16");
}

TEST(AttentionSpace, EveryFieldLeavesSomethingOut) {
  AttentionCase c;
  c.k = AffineFormat{4, 64, DType::kFloat32};
  c.query_heads = 2;
  c.v_dim = 32;
  c.lse = LseKind::kNatural;
  c.sinks = DType::kFloat32;
  c.softcap = 5.0;
  c.alibi = true;
  c.against_original = true;
  const auto has = [&](auto change) {
    AttentionSpace space;
    change(space);
    return space.Has(c);
  };
  using Space = AttentionSpace;
  EXPECT_TRUE(has([](Space&) {}));
  EXPECT_TRUE(has([](Space& s) { s.q = {DType::kFloat32}; }));
  EXPECT_TRUE(has([](Space& s) { s.k = {"affine:4:*"}; }));
  EXPECT_FALSE(has([](Space& s) { s.q = {DType::kFloat16}; }));
  EXPECT_FALSE(has([](Space& s) { s.out = {DType::kFloat16}; }));
  EXPECT_FALSE(has([](Space& s) { s.k = {"f32"}; }));
  EXPECT_FALSE(has([](Space& s) { s.v = {"f16"}; }));
  EXPECT_FALSE(has([](Space& s) { s.same_format = true; }));
  EXPECT_FALSE(has([](Space& s) { s.masks = {"causal*"}; }));
  EXPECT_FALSE(has([](Space& s) { s.same_dims = true; }));
  EXPECT_FALSE(has([](Space& s) { s.grouped = false; }));
  EXPECT_FALSE(has([](Space& s) { s.lse = false; }));
  EXPECT_FALSE(has([](Space& s) { s.sinks = false; }));
  EXPECT_FALSE(has([](Space& s) { s.softcap = false; }));
  EXPECT_FALSE(has([](Space& s) { s.alibi = false; }));
  EXPECT_FALSE(has([](Space& s) { s.against_original = false; }));
  c.out = DType::kBFloat16;
  EXPECT_FALSE(has([](Space& s) { s.out_as_q = true; }));
}

}  // namespace
}  // namespace kvcheck
