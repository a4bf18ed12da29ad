// Prefix cases, profiles and spaces: both spellings, round trips, and refusals with their reason.

#include "reference/spec/prefix_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/prefix_profile.h"
#include "reference/spec/prefix_space.h"
#include "reference/spec/prefix_tokens.h"

namespace kvcheck {
namespace {

const std::string kSetup = "prefix block=4 tokens=64 data=tokens:1";

PrefixCase WithOps(const std::string& ops) { return ParsePrefixCase(kSetup + "; " + ops); }

std::string WhyNot(const std::string& text) {
  try {
    ParsePrefixCase(text);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(PrefixText, OperationsMeanWhatTheySay) {
  const PrefixCase c = WithOps(
      "open H 7,0x3,r5:2 all model=m salt=%20 adapter= version=2 image=a/b from=disk; write H 3; "
      "write H more=1x2; close H keep kill=2; restart killed block=2 x=bf16; damage swap at=9; "
      "trim_to A -1; write B 1 wrong=k_dim; load s3; evict 5");
  ASSERT_EQ(c.ops.size(), 10u);
  const PrefixOp& open = c.ops[0];
  EXPECT_EQ(open.request, 7);
  EXPECT_EQ(open.tokens, (TokenRuns{{7, 1, false}, {0, 3, false}, {5, 2, true}}));
  EXPECT_TRUE(open.all);
  EXPECT_EQ(open.who.model, "m");
  EXPECT_EQ(open.who.salt, " ");
  EXPECT_EQ(open.who.adapter, "");
  EXPECT_EQ(open.who.version, 2);
  EXPECT_EQ(open.who.image, "a/b");
  EXPECT_EQ(open.from, PrefixTier::kDisk);
  EXPECT_EQ(c.ops[1].count, 3);
  EXPECT_FALSE(c.ops[2].count.has_value());
  EXPECT_EQ(Expand(c.ops[2].tokens), (std::vector<int32_t>{1, 1}));
  EXPECT_TRUE(c.ops[3].keep);
  EXPECT_EQ(c.ops[3].kill, 2);
  EXPECT_TRUE(c.ops[4].killed);
  EXPECT_EQ(c.ops[4].block_tokens, 2);
  EXPECT_EQ(c.ops[4].x, DType::kBFloat16);
  EXPECT_EQ(c.ops[5].damage, FileDamage::kSwap);
  EXPECT_EQ(c.ops[5].at, 9);
  EXPECT_EQ(c.ops[6].count, -1);
  EXPECT_EQ(c.ops[7].wrong, WrongVectors::kKDim);
  EXPECT_EQ(c.ops[8].key, 3);
  EXPECT_EQ(Print(ParsePrefixCase(Print(c))), Print(c));
}

TEST(PrefixText, BothSpellingsMeanTheSame) {
  const PrefixCase c = WithOps("open A 0,1; write A; close A keep; observe");
  EXPECT_EQ(ParsePrefixCase(PrintLines(c)), c);
  EXPECT_EQ(ParsePrefixCase(Print(c)), c);
  EXPECT_EQ(ParsePrefixCase(Print(c) + "\n"), c);
  EXPECT_EQ(ParseCase(Print(c)), Case(c));
  EXPECT_EQ(Print(Case(c)), Print(c));
}

TEST(PrefixText, SetupsPrintWhatDiffers) {
  for (const char* text : {
           "prefix block=4 tokens=64 data=tokens:1",
           "prefix block=1 tokens=3 entries=2 layers=1 hkv=2 dk=16 dv=48 x=bf16 quantize_from=9 "
           "window=5 disk=yes observe=last data=tokens:7",
           "prefix block=2 tokens=8 k=affine:4:g32:f32 v=q8_0 data=tokens:1",
       }) {
    EXPECT_EQ(Print(ParsePrefixCase(text)), text);
  }
}

TEST(PrefixText, RefusalsNameWhatIsWrong) {
  for (const auto& [ops, reason] : {
           std::pair<std::string, std::string>{"open I 0", "'I' is not a request"},
           {"open A", "tokens is missing"},
           {"open A 0x0", "is outside"},
           {"open A r3", "rSEED:COUNT"},
           {"open A 0 salt=%2f", "two hexadecimal digits"},
           {"open A 0 salt=%41", "is written as it is"},
           {"open A 0 salt=a+b", "is written %2B"},
           {"open A 0 from=cloud", "not one of memory, disk"},
           {"open A 0 version=1", "version is that of an adapter"},
           {"write A 2 more=1", "more= follows after the whole prompt"},
           {"read A 1", "nothing may follow"},
           {"close A kept", "expected key=value"},
           {"read A kill=1", "nothing may follow"},
           {"load s4", "s0 to s3"},
           {"evict 0", "is outside"},
           {"damage burn", "not one of cut"},
           {"fork A B", "expected ->"},
           {"trim_to A", "the number of tokens is missing"},
       }) {
    EXPECT_NE(WhyNot(kSetup + "; " + ops).find(reason), std::string::npos)
        << ops << ": " << WhyNot(kSetup + "; " + ops);
  }
  for (const auto& [setup, reason] : {
           std::pair<std::string, std::string>{"prefix", "expected fields"},
           {"prefix block=4", "'data=' is missing"},
           {"prefix block=8 tokens=4 data=tokens:1", "tokens=4 is less than block=8"},
           {"prefix k=affine:4:g64:f16 data=tokens:1", "32"},
           {"prefix layers=65536 hkv=65536 data=tokens:1", "would exceed"},
           {"prefix data=file", "data is tokens:SEED"},
       }) {
    EXPECT_NE(WhyNot(setup).find(reason), std::string::npos) << setup << ": " << WhyNot(setup);
  }
}

TEST(PrefixText, EveryByteOfAnIdentityHasOneText) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const std::string text = EncodePercent(bytes);
  EXPECT_EQ(DecodePercent(WholeLine(text)), bytes);
  for (const char c : text) EXPECT_TRUE(c > 0x20 && c < 0x7f && c != ';');
  PrefixCase c = WithOps("open A 0");
  c.ops[0].who.salt = bytes;
  EXPECT_EQ(ParsePrefixCase(Print(c)), c);
}

TEST(PrefixText, DrawnTokensAreThoseOfTheirSeed) {
  const std::vector<int32_t> tokens = Expand({{3, 1000, true}});
  EXPECT_EQ(tokens, Expand({{3, 1000, true}}));
  EXPECT_NE(tokens, Expand({{4, 1000, true}}));
  // A shorter run is the beginning of a longer one.
  const std::vector<int32_t> longer = Expand({{3, 1001, true}});
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), longer.begin()));
  for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < (1 << 17));
  EXPECT_EQ(RunsOf({5, 5, 1}), (TokenRuns{{5, 2, false}, {1, 1, false}}));
}

TEST(PrefixProfileText, RoundTrips) {
  for (const char* text :
       {"", "grain=token", "last=never", "last=exact", "partial=longer tail=kept", "partial=last_block",
        "minimum=128 persists=never slack=1 superseded=dropped fetch=takes",
        "shares=live publishes=write evict=lru busy=refused flips=served"}) {
    const PrefixProfile profile = ParsePrefixProfile(text);
    EXPECT_EQ(ParsePrefixProfile(Print(profile)), profile) << text;
    EXPECT_EQ(Print(profile).empty(), std::string(text).empty());
  }
  EXPECT_THROW(ParsePrefixProfile("grain=page"), Error);
  EXPECT_THROW(ParsePrefixProfile("minimum=-1"), Error);
}

TEST(PrefixSpaceTest, SaysWhatIsThere) {
  PrefixSpace space;
  EXPECT_TRUE(space.HasCase(WithOps("open A 0 salt=a from=disk")));
  space.identity = 1u << 2;
  EXPECT_FALSE(space.HasCase(WithOps("open A 0 salt=a")));
  EXPECT_TRUE(space.HasCase(WithOps("open A 0 adapter=a")));
  space.tiers = false;
  EXPECT_FALSE(space.HasCase(WithOps("open A 0 from=memory")));
  space.least_tokens = 3;
  EXPECT_FALSE(space.HasCase(WithOps("open A 0,1")));
  EXPECT_TRUE(space.HasCase(WithOps("open A 0x3")));
  space.blocks = {16};
  EXPECT_FALSE(space.HasCase(WithOps("open A 0x3")));
  space.blocks = {4};
  EXPECT_FALSE(space.HasCase(WithOps("restart block=2")));
  space.operations &= ~(1u << static_cast<int>(PrefixOpKind::kFork));
  EXPECT_FALSE(space.HasCase(WithOps("fork A -> B")));
  space.entries = false;
  EXPECT_FALSE(space.HasCase(ParsePrefixCase("prefix entries=1 data=tokens:1")));
  EXPECT_TRUE(space.HasCase(ParsePrefixCase("prefix data=tokens:1")));
  space.quantizes = false;
  EXPECT_FALSE(space.HasCase(ParsePrefixCase("prefix k=q8_0 data=tokens:1")));
  EXPECT_TRUE(space.HasCase(ParsePrefixCase("prefix k=f32 data=tokens:1")));
}

}  // namespace
}  // namespace kvcheck
