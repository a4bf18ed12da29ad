#include "fuzz/shrink_case.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace kvcheck {
namespace {

constexpr const char* kAttention =
    "attention b=2 hq=8 hkv=2 l=5 t=33 d=64 dv=32 q=f32 k=affine:4:g32:f32 v=f16 out=bf16 "
    "mask=causal_bottom_right+window:4+left_pad:0,3+bool:B1LT scale=0.125 softcap=30 sinks=f32 "
    "alibi=yes lse=natural against=original data=outlier:77";
constexpr const char* kCodec =
    "codec op=encode format=affine:4:g32:bf16 x=f32 rows=9 d=160 data=mixed:5";

TEST(ShrinkCase, EverySmallerCaseIsLegalAndAnotherText) {
  for (const char* text : {kAttention, kCodec}) {
    const std::vector<Case> smaller = SmallerCases(ParseCase(text));
    EXPECT_GT(smaller.size(), 4u);
    for (const Case& c : smaller) {
      EXPECT_NE(Print(c), Print(ParseCase(text)));
      EXPECT_EQ(ParseCase(Print(c)), c);
    }
  }
}

TEST(ShrinkCase, FindsTheLeastCaseWhereEverythingFails) {
  const ShrunkCase attention =
      ShrinkCase(ParseCase(kAttention), [](const Case&) { return true; }, 1000);
  EXPECT_TRUE(attention.complete);
  EXPECT_EQ(Print(attention.c),
            "attention b=1 hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=bf16 mask=none "
            "scale=0.125 data=gauss:1");
  EXPECT_TRUE(SmallerCases(attention.c).empty());
  const ShrunkCase codec = ShrinkCase(ParseCase(kCodec), [](const Case&) { return true; }, 1000);
  EXPECT_EQ(Print(codec.c),
            "codec op=encode format=affine:4:g32:bf16 x=f32 rows=1 d=32 data=gauss:1");
}

TEST(ShrinkCase, KeepsWhatTheFailureNeeds) {
  const ShrunkCase shrunk = ShrinkCase(
      ParseCase(kAttention),
      [](const Case& c) {
        const auto& a = std::get<AttentionCase>(c);
        return a.kv_len >= 7 && a.softcap && a.k_dim % 32 == 0 && !IsPlain(a.k);
      },
      1000);
  const auto& c = std::get<AttentionCase>(shrunk.c);
  EXPECT_EQ(c.kv_len, 7);
  EXPECT_TRUE(c.softcap);
  EXPECT_EQ(c.k_dim, 32);
  EXPECT_EQ(c.batch, 1);
  EXPECT_FALSE(c.alibi);
}

TEST(ShrinkCase, StopsWhenItsRunsAreUsedUp) {
  const ShrunkCase shrunk = ShrinkCase(ParseCase(kAttention), [](const Case&) { return true; }, 3);
  EXPECT_EQ(shrunk.runs, 3);
  EXPECT_FALSE(shrunk.complete);
  const ShrunkCase none = ShrinkCase(ParseCase(kCodec), [](const Case&) { return false; }, 1000);
  EXPECT_TRUE(none.complete);
  EXPECT_EQ(Print(none.c), kCodec);
}

// `mask=none` is what the implementation never offered, and never becomes.
TEST(ShrinkCase, AsksOnlyAboutWhatIsThere) {
  const auto has = [](const Case& c) {
    const auto& a = std::get<AttentionCase>(c);
    return a.mask.array == MaskArrayKind::kBoolean && a.batch == 2;
  };
  const ShrunkCase shrunk = ShrinkCase(
      ParseCase(kAttention),
      [&](const Case& c) {
        EXPECT_TRUE(has(c));
        return true;
      },
      1000, has);
  EXPECT_TRUE(has(shrunk.c));
  EXPECT_EQ(std::get<AttentionCase>(shrunk.c).kv_len, 1);
}

TEST(ShrinkCase, LooksForFailuresOfTheDataInOtherData) {
  const auto rare = [](const Case& c) {
    const auto& codec = std::get<CodecCase>(c);
    return (static_cast<uint64_t>(codec.rows) + codec.data.seed) % 4 == 2;
  };
  ASSERT_TRUE(rare(ParseCase(kCodec)));
  const ShrunkCase shrunk = ShrinkCase(ParseCase(kCodec), rare, 1000);
  EXPECT_EQ(std::get<CodecCase>(shrunk.c).rows, 1) << Print(shrunk.c);
}

// A case cannot become plainer than what its plan says of codes and of rotated rows.
TEST(PlainerPlans, LeaveOutWhatOnlySomeFormatsMayHave) {
  using Plans = std::vector<Plan>;
  const auto plan = [](const std::string& fields) { return ParsePlan("p=bf16 " + fields); };
  EXPECT_EQ(PlainerPlans(plan("dequantize=rotated:2")), Plans{plan("dequantize=stored")});
  const std::string integers = "integer_qk=affine:8:g32:f32 ";
  EXPECT_EQ(PlainerPlans(plan(integers + "dequantize=rotated:1")),
            (Plans{plan(integers + "dequantize=stored"), plan("dequantize=rotated:1")}));
  EXPECT_EQ(
      PlainerPlans(plan("fixed_q=2^-8 fixed_p=2^-12 dequantize=factored")),
      (Plans{plan("fixed_p=2^-12 dequantize=factored"), plan("fixed_q=2^-8 dequantize=factored")}));
  EXPECT_TRUE(PlainerPlans(plan("dequantize=inside:2")).empty());
}

}  // namespace
}  // namespace kvcheck
