// Formats that code groups of tokens: their texts, and which tokens of a row are coded, against the
// definition played through token by token.

#include "reference/spec/token_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/spec/cache_space.h"
#include "reference/spec/case.h"
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
  EXPECT_EQ(CacheFormats().size() + pages, ListedKvFormats().size());
}

// Values that are coded by themselves leave a residual one by one.
TEST(Residual, TextsSayBitsGroupResidualAndType) {
  const KvFormat format = Format("affine:2:g32:r128:f16");
  EXPECT_EQ(Print(format), "affine:2:g32:r128:f16");
  EXPECT_EQ(TokenGroupOf(format), 1);
  EXPECT_EQ(ResidualOf(format), 128);
  EXPECT_EQ(RowDType(format), DType::kFloat16);
  EXPECT_TRUE(HasResidual(format));
  EXPECT_TRUE(ResidualRolls(format));
  EXPECT_FALSE(HasResidual(Format("affine:2:g32:f16")));
  EXPECT_TRUE(HasResidual(Format("channel:4:g8:f32")));
  EXPECT_FALSE(ResidualRolls(Format("channel:4:g8:r16:f32")));
  EXPECT_EQ(PlaneNames(format), (std::vector<std::string>{"codes", "scales", "biases", "vectors"}));
  for (const char* text :
       {"affine:2:g32:r0:f16", "affine:2:g32:r:f16", "affine:2:g32:r1048577:f16",
        "affine:2:g32:r-1:f16", "affine:2:g32:r3", "affine:2:g32:r3:f64", "affine:2:g32:3:f32",
        "affine:2:g48:r3:f32", "affine:7:g32:r3:f32", "affine:2:g32:f32:r3",
        "affine:2:g32:r3:f32:f32", "affine:2:r3:f32", "hadamard:64:affine:2:g64:r3:f16"}) {
    EXPECT_TRUE(ErrorOf([&] { Format(text); }).starts_with(Name(ErrorCode::kParse))) << text;
  }
}

// A queue of the newest tokens.
TEST(Residual, TheOldestTokenLeavesAFullOne) {
  for (const int64_t limit : {1, 3, 16, 129}) {
    const KvFormat format = Format("affine:4:g32:r" + std::to_string(limit) + ":f32");
    int64_t held = 0, coded = 0;
    for (int64_t tokens = 0; tokens < 200; ++tokens) {
      EXPECT_EQ(ClosedTokens(format, tokens), coded) << limit << " " << tokens;
      // What is coded has no vector to go back to.
      for (int64_t left = 0; left <= tokens; ++left) {
        const bool returns = left == 0 || left == tokens || coded == 0;
        EXPECT_EQ(CanReturnTo(format, tokens, left), returns) << limit << " " << left;
      }
      coded += held == limit ? 1 : 0;
      held += held == limit ? 0 : 1;
    }
  }
}

TEST(Residual, BytesAreThoseOfCodesAndVectors) {
  const KvFormat format = Format("affine:4:g32:r3:f16");
  const int64_t coded = 64 / 2 + 2 * 2 * 2, vector = 64 * 2;
  EXPECT_EQ(StoredBytes(format, 64, 0), 0);
  EXPECT_EQ(StoredBytes(format, 64, 3), 3 * vector);
  EXPECT_EQ(StoredBytes(format, 64, 7), 4 * coded + 3 * vector);
  EXPECT_EQ(StoredBytes(format, 64, 7, 7), 7 * coded);
  EXPECT_EQ(RoomBytes(format, 64, 2), 3 * vector);
  EXPECT_EQ(RoomBytes(format, 64, 7), 4 * coded + 3 * vector);
}

TEST(Residual, IsOfLinearCachesAlone) {
  const KvFormat format = Format("affine:2:g32:r3:f32");
  EXPECT_TRUE(KeepsGroups(CacheLayout{}, format));
  for (const CacheLayout& layout :
       {CacheLayout{LayoutKind::kLinear, 4, 0, 0}, CacheLayout{LayoutKind::kRing, 4, 0, 0},
        CacheLayout{LayoutKind::kChunk, 0, 0, 8}}) {
    EXPECT_FALSE(KeepsGroups(layout, format)) << Print(layout);
  }
  EXPECT_TRUE(FitsTokens(format, 64));
  EXPECT_FALSE(FitsTokens(format, 48));
  // A row by itself is not stored in it, nor is the shown form of a token asked for.
  EXPECT_FALSE(FitsHeadDim(format, 64));
  EXPECT_FALSE(CachesKeep(TokenFormatOf(format)));
  for (const std::string& error : {ErrorOf([&] { CheckHeadDim(format, 64, "codec case"); }),
                                   ErrorOf([&] { CheckTokens(TokenFormatOf(format), 64, "k"); }),
                                   ErrorOf([&] { CheckTokens(format, 48, "k"); })}) {
    EXPECT_TRUE(error.starts_with(Name(ErrorCode::kIllegalCase))) << error;
  }
  for (const char* text :
       {"codec op=round_trip format=affine:4:g32:r3:f32 x=f32 rows=3 d=64 data=gauss:1",
        "attention hq=1 hkv=1 l=1 t=2 d=32 q=f32 k=f32 v=affine:4:g32:r3:f32 out=f32 data=gauss:1",
        "prefix k=affine:4:g32:r3:f32 v=f32 data=tokens:1; observe"}) {
    const std::string error = ErrorOf([&] { ParseCase(text); });
    EXPECT_NE(error.find("leave the residual out"), std::string::npos) << text << "\n" << error;
  }
  for (const KvFormat& listed : AllKvFormats()) EXPECT_FALSE(IsOfCachesAlone(listed));
  EXPECT_EQ(AllKvFormats().size() + FormatsOfCachesAlone().size(), ListedKvFormats().size());
  EXPECT_GT(FormatsOfCachesAlone().size(), 0u);
}

// A pattern from before there were residuals means what it meant.
TEST(Residual, PatternsNameIt) {
  const KvFormat format = Format("affine:4:g32:r3:f32");
  EXPECT_TRUE(NamesCacheFormat({}, format));
  for (const char* pattern : {"affine:*:r*", "affine:4:g32:r3:*", "*:r3:f32"}) {
    EXPECT_TRUE(NamesCacheFormat({pattern}, format)) << pattern;
    EXPECT_FALSE(NamesCacheFormat({pattern}, Format("affine:4:g32:f32"))) << pattern;
  }
  EXPECT_TRUE(NamesCacheFormat({"*"}, format));
  for (const char* pattern : {"affine:*", "affine:4:g32:*", "affine:2:*:r*"}) {
    EXPECT_FALSE(NamesCacheFormat({pattern}, format)) << pattern;
  }
  EXPECT_TRUE(NamesCacheFormat({"affine:*"}, Format("affine:4:g32:f32")));
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
