// Formats that code groups of tokens: their texts, and which tokens of a row are coded, against the
// definition played through token by token.

#include "reference/spec/token_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/spec/text.h"
#include "tests/reference/spec/expect_error.h"

namespace kvcheck {
namespace {

KvFormat Format(const std::string& text) { return ParseKvFormat(WholeLine(text)); }

// A row whose residual is coded when it is full.
struct PlayedRow {
  int64_t coded = 0;
  int64_t residual = 0;
  void Append(int64_t limit) {
    if (++residual < limit) return;
    coded += residual;
    residual = 0;
  }
};

TEST(TokenGroups, TextsSayBitsGroupResidualAndType) {
  const KvFormat format = Format("channel:2:g32:r128:f16");
  EXPECT_EQ(Print(format), "channel:2:g32:r128:f16");
  EXPECT_EQ(TokenGroupOf(format), 32);
  EXPECT_EQ(ResidualOf(format), 128);
  EXPECT_EQ(RowDType(format), DType::kFloat16);
  EXPECT_EQ(Print(TokenFormatOf(format)), "channel:2:g1:f16");
  EXPECT_EQ(ResidualOf(Format("channel:4:g8:bf16")), 8);
  EXPECT_EQ(TokenGroupOf(Format("affine:4:g64:f32")), 1);
  EXPECT_EQ(TokenFormatOf(Format("q8_0")), Format("q8_0"));
  for (const char* text :
       {"channel", "channel:4", "channel:4:g8", "channel:3:g8:f32", "channel:4:8:f32",
        "channel:4:g0:f32", "channel:4:g12:f32", "channel:4:g2048:f32", "channel:4:g8:r8:f32",
        "channel:4:g8:r12:f32", "channel:4:g1:r8:f32", "channel:4:g8:r16", "channel:4:g8:f64",
        "channel:4:g8:r16:f32:f32", "hadamard:64:channel:4:g8:f32"}) {
    EXPECT_TRUE(ErrorOf([&] { Format(text); }).starts_with(Name(ErrorCode::kParse))) << text;
  }
}

TEST(TokenGroups, TokensAreCodedWhenTheResidualIsFull) {
  for (const auto& [text, limit] : {std::pair("channel:4:g8:f32", 8),
                                    {"channel:4:g2:r6:f32", 6},
                                    {"channel:8:g4:r4096:f32", 4096},
                                    {"q4_0", 1},
                                    {"f16", 1}}) {
    const KvFormat format = Format(text);
    PlayedRow row;
    for (int64_t tokens = 0; tokens < 60; ++tokens) {
      EXPECT_EQ(ClosedTokens(format, tokens), row.coded) << text << " " << tokens;
      row.Append(limit);
    }
  }
}

// A row can lose tokens where what is left is what the tokens left would have made.
TEST(TokenGroups, ARowReturnsToWhereItHasBeen) {
  for (const auto& [text, limit] :
       {std::pair("channel:4:g8:f32", 8), {"channel:4:g2:r6:f32", 6}, {"q4_0", 1}}) {
    const KvFormat format = Format(text);
    for (int64_t tokens = 0; tokens < 40; ++tokens) {
      PlayedRow row;
      for (int64_t i = 0; i < tokens; ++i) row.Append(limit);
      for (int64_t left = 0; left <= tokens; ++left) {
        PlayedRow shorter;
        for (int64_t i = 0; i < left; ++i) shorter.Append(limit);
        // Tokens of its residual must not have been coded since.
        const bool returns =
            shorter.residual == 0 || left > row.coded || shorter.coded == row.coded;
        EXPECT_EQ(CanReturnTo(format, tokens, left), returns)
            << text << " " << tokens << " " << left;
      }
    }
  }
}

TEST(TokenGroups, BytesAreThoseOfGroupsAndResidual) {
  const KvFormat format = Format("channel:4:g8:r16:f16");
  const int64_t of_group = 8 * 32 / 2 + 2 * 32 * 2;  // codes; scales and zeros
  const int64_t of_token = 32 * 2;
  EXPECT_EQ(StoredBytes(format, 32, 0), 0);
  EXPECT_EQ(StoredBytes(format, 32, 15), 15 * of_token);
  EXPECT_EQ(StoredBytes(format, 32, 16), 2 * of_group);
  EXPECT_EQ(StoredBytes(format, 32, 37), 4 * of_group + 5 * of_token);
  EXPECT_EQ(RoomBytes(format, 32, 37), 4 * of_group + 16 * of_token);
  // A group that is not whole has the codes of its tokens, and scales and zeros.
  EXPECT_EQ(StoredBytes(format, 32, 11, 11), of_group + 3 * 32 / 2 + 2 * 32 * 2);
  EXPECT_EQ(StoredBytes(format, 32, 11, 8), of_group + 3 * of_token);
  EXPECT_EQ(RoomBytes(format, 32, 11, 11), 2 * of_group + 16 * of_token);
  EXPECT_EQ(StoredBytes(Format("q8_0"), 64, 3), 3 * 68);
  EXPECT_EQ(StoredBytes(Format("q8_0"), 64, 3, 0), 3 * 68);
  EXPECT_EQ(RoomBytes(Format("q8_0"), 64, 3), 3 * 68);
}

TEST(TokenGroups, StandInLinearCachesWithoutAWindow) {
  const CacheLayout linear;
  const KvFormat format = Format("channel:4:g8:f32");
  EXPECT_TRUE(KeepsGroups(linear, format));
  for (const CacheLayout& layout :
       {CacheLayout{LayoutKind::kLinear, 4, 0, 0}, CacheLayout{LayoutKind::kRing, 4, 0, 0},
        CacheLayout{LayoutKind::kChunk, 0, 0, 8}}) {
    EXPECT_FALSE(KeepsGroups(layout, format)) << Print(layout);
    EXPECT_TRUE(KeepsGroups(layout, Format("channel:4:g1:f32"))) << Print(layout);
    EXPECT_TRUE(KeepsGroups(layout, Format("affine:4:g64:f32"))) << Print(layout);
  }
}

// Codes of a page are those of its tokens: a cache has nothing to keep in it.
TEST(TokenGroups, CachesKeepNoPages) {
  const KvFormat page = Format("nvfp4:swizzled:x0.011:bf16");
  EXPECT_EQ(TokenGroupOf(page), 4);
  EXPECT_EQ(Print(TokenFormatOf(page)), "nvfp4:x0.011:bf16");
  EXPECT_FALSE(CachesKeep(page));
  EXPECT_FALSE(FitsTokens(page, 256));
  EXPECT_FALSE(KeepsGroups(CacheLayout{}, page));
  const std::string error = ErrorOf([&] { CheckTokens(page, 256, "k"); });
  EXPECT_TRUE(error.starts_with(Name(ErrorCode::kIllegalCase))) << error;
  EXPECT_NE(error.find("ask with nvfp4:x0.011:bf16"), std::string::npos) << error;
  size_t pages = 0;
  for (const KvFormat& format : AllKvFormats()) {
    pages += KindOf(format) == "nvfp4:swizzled" ? 1 : 0;
    EXPECT_EQ(CachesKeep(format), KindOf(format) != "nvfp4:swizzled") << Print(format);
  }
  EXPECT_GT(pages, 0u);
  EXPECT_EQ(CacheFormats().size() + pages, AllKvFormats().size());
}

TEST(TokenGroups, HeadDimensionsAreThoseOfWholeWords) {
  EXPECT_TRUE(FitsTokens(Format("channel:4:g128:f32"), 8));
  EXPECT_FALSE(FitsTokens(Format("channel:4:g128:f32"), 12));
  EXPECT_TRUE(FitsTokens(Format("channel:2:g8:f32"), 48));
  EXPECT_FALSE(FitsTokens(Format("channel:2:g8:f32"), 8));
  EXPECT_TRUE(ErrorOf([] {
                CheckTokens(Format("channel:2:g8:f32"), 8, "k");
              }).starts_with(Name(ErrorCode::kIllegalCase)));
}

}  // namespace
}  // namespace kvcheck
