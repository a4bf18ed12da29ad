// Which formats are measured, and how many bits each has.

#include "tools/measure/format_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

std::vector<std::string> Texts(const std::vector<KvFormat>& formats) {
  std::vector<std::string> texts;
  for (const KvFormat& format : formats) texts.push_back(Print(format));
  return texts;
}

TEST(FormatBits, AreThoseCountedByHand) {
  struct Known {
    const char* format;
    int64_t head_dim;
    double bits;
  };
  // Codes, and per group of g channels two numbers of w bits: b + 2 w / g. Blocks of ggml: bytes a
  // block of 32.
  const Known known[] = {
      {"f32", 128, 32},
      {"bf16", 80, 16},
      {"f8e4m3fn", 128, 8},
      {"affine:8:g64:f32", 128, 9},
      {"affine:4:g64:f32", 128, 5},
      {"affine:8:g64:f16", 128, 8.5},
      {"affine:4:g64:bf16", 64, 4.5},
      {"affine:3:g128:bf16", 128, 3.25},
      {"affine:2:g32:f16", 96, 3},
      {"q8_0", 128, 34 * 8 / 32.0},
      {"q4_0", 32, 18 * 8 / 32.0},
      // Groups of tokens: the same of a group. Two norms of 16 bits for 128 channels.
      {"channel:4:g32:f16", 128, 5},
      {"channel:2:g128:f32", 64, 2.5},
      {"nvfp4:swizzled:bf16", 64, 4.5},
      {"turboquant:3.5:g128:hffff0000ffff0000ffff0000ffff0000:f16", 128, 3.75},
  };
  for (const Known& k : known) {
    EXPECT_EQ(BitsPerElement(ParseKvFormat(WholeLine(k.format)), k.head_dim), k.bits) << k.format;
  }
}

TEST(FormatChoice, NothingAskedMeansEachKindAndRowTypeOnce) {
  const std::vector<KvFormat> chosen = ChooseFormats({}, 128);
  std::set<std::pair<std::string, DType>> seen, all;
  for (const KvFormat& format : chosen) {
    EXPECT_TRUE(seen.emplace(KindOf(format), RowDType(format)).second) << Print(format);
    EXPECT_LE(BitsPerElement(format, 128), 32) << Print(format);
  }
  for (const KvFormat& format : AllKvFormats()) {
    if (!GroupsTokens(format) && FitsHeadDim(format, 128) && BitsPerElement(format, 128) <= 32) {
      all.emplace(KindOf(format), RowDType(format));
    }
  }
  EXPECT_EQ(seen, all);
  const std::vector<std::string> texts = Texts(chosen);
  for (const char* format : {"f16", "q8_0", "affine:4:g64:f16"}) {
    EXPECT_EQ(std::count(texts.begin(), texts.end(), format), 1) << format;
  }
}

TEST(FormatChoice, FormatsFitTheHeadDim) {
  for (const KvFormat& format : ChooseFormats({"*"}, 96)) {
    EXPECT_TRUE(FitsHeadDim(format, 96)) << Print(format);
  }
  EXPECT_THROW(ChooseFormats({"affine:4:g64:f16"}, 96), Error);
  // Rows of one token each.
  EXPECT_THROW(ChooseFormats({"channel:4:g32:f16"}, 128), Error);
}

TEST(FormatChoice, GroupsOfTokensAreThoseThatThereAre) {
  const auto up_to = [](int64_t most) { return [most](int64_t group) { return group <= most; }; };
  EXPECT_EQ(Texts(ChooseFormats({"channel:4:*:f16"}, 128, up_to(64))),
            (std::vector<std::string>{"channel:4:g8:f16", "channel:4:g32:f16"}));
  EXPECT_EQ(Texts(ChooseFormats({"nvfp4:swizzled:bf16"}, 128, up_to(4))),
            (std::vector<std::string>{"nvfp4:swizzled:bf16"}));
  EXPECT_THROW(ChooseFormats({"channel:4:g128:f16"}, 128, up_to(64)), Error);
  // Pages have whole 64 channels.
  EXPECT_THROW(ChooseFormats({"nvfp4:swizzled:bf16"}, 96, up_to(4)), Error);
  std::set<std::string> kinds;
  for (const KvFormat& format : ChooseFormats({}, 128, up_to(128))) kinds.insert(KindOf(format));
  for (const char* kind : {"channel:2", "channel:4", "channel:8", "nvfp4:swizzled"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
}

TEST(FormatChoice, PatternsMeanFormatsOnceInTheOrderAsked) {
  EXPECT_EQ(Texts(ChooseFormats({"q8_0", "affine:[48]:g64:f16", "q8_0", "q4_0*"}, 128)),
            (std::vector<std::string>{"q8_0", "affine:4:g64:f16", "affine:8:g64:f16", "q4_0"}));
}

TEST(FormatChoice, PatternWithoutAFormatIsAnError) {
  try {
    ChooseFormats({"affin:*"}, 128);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSelection);
  }
}

}  // namespace
}  // namespace kvcheck
