// Names that are nearly known, and texts too long to be shown.

#include "reference/spec/near_name.h"

#include <gtest/gtest.h>

#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/plan.h"
#include "reference/spec/profile.h"
#include "reference/spec/text_lines.h"

namespace kvcheck {
namespace {

using Names = std::vector<std::string>;

TEST(NearName, IsOneWithFewCharactersChanged) {
  const Names known = {"b", "hq", "hkv", "l", "t", "d", "dv", "mask", "softcap"};
  EXPECT_EQ(NearestName("hk", known), "hkv");
  EXPECT_EQ(NearestName("hvk", known), "hkv");
  EXPECT_EQ(NearestName("HKV", known), "hkv");
  EXPECT_EQ(NearestName("soft_cap", known), "softcap");
  EXPECT_EQ(NearestName("softacp", known), "softcap");
  EXPECT_EQ(NearestName("msak", known), "mask");
  EXPECT_EQ(NearestName("D", known), "d");
}

TEST(NearName, IsNoneWhereNothingIsAlike) {
  const Names known = {"b", "hq", "hkv", "l", "t", "d", "dv", "mask"};
  for (const char* other : {"", "x", "head", "zzz", "hkv"})
    EXPECT_EQ(NearestName(other, known), "");
  EXPECT_EQ(NearestName(std::string(100000, 'h'), known), "");
  EXPECT_EQ(NearestName("abc", Names{}), "");
}

TEST(NearName, IsTheLongerOneThatItBegins) {
  const Names known = {"flash_attention_2", "flash_attention_3", "torch_cpu_math"};
  EXPECT_EQ(NearestName("flash_attention", known), "flash_attention_2");
  EXPECT_EQ(NearestName("torch_cpu", known), "torch_cpu_math");
  // What goes on behind it, before what is as long.
  EXPECT_EQ(NearestName("cpu_flash", Names{"cpu_math", "cpu_flash_bf16", "cpu_flask"}),
            "cpu_flash_bf16");
  EXPECT_EQ(DidYouMean("flash_attention2", known), " (did you mean 'flash_attention_2'?)");
  EXPECT_EQ(DidYouMean("speed", known), "");
}

std::string MessageOf(const auto& parse) {
  try {
    parse();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(NearName, IsSaidOfEveryKindOfText) {
  const auto of_case = [](const std::string& text) { return MessageOf([&] { ParseCase(text); }); };
  const std::string attention =
      "attention hq=2 hkv=1 l=1 t=3 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = attention;
    return of_case(text.replace(text.find(from), from.size(), to));
  };
  const std::pair<std::string, std::string> rows[] = {
      {of_case("atention hq=1"), "'attention'"},
      {with("hkv=1", "hk=1"), "'hkv'"},
      {with("k=f32", "k=fp32"), "'f32'"},
      {with("out=f32", "out=f32 mask=causal_bottom_rigth"), "'causal_bottom_right'"},
      {with("out=f32", "out=f32 lse=nautral"), "'natural'"},
      {of_case("cache layout=rings:w=2 k=f32 dk=8 data=tokens:1"), "'ring'"},
      {of_case("cache k=f32 dk=8 dat=tokens:1"), "'data'"},
      {MessageOf([] { ParsePlan("base=plain_f23"); }), "'plain_f32'"},
      {MessageOf([] { ParsePlan("base=plain_f32 qkk=f32:pairwise"); }), "'qk'"},
      {MessageOf([] { ParseProfile("masked_rows=nan"); }), "'masked_row'"},
      {MessageOf([] { ParseProfile("masked_row=means"); }), "'mean'"},
  };
  for (const auto& [message, near] : rows) {
    EXPECT_NE(message.find("did you mean " + near), std::string::npos) << message;
  }
}

// A bare name is a base (plan_test.cc): only what is nearly one, or no name at all, is refused.
TEST(KnownPlan, IsSuggestedForABareNameThatIsNearlyOne) {
  ASSERT_FALSE(KnownPlans().empty());
  const std::string message = MessageOf([] { ParsePlan("plain_f31"); });
  EXPECT_NE(message.find("'plain_f31' is not a known plan"), std::string::npos) << message;
  EXPECT_NE(message.find("plain_f32"), std::string::npos) << message;
  EXPECT_NE(MessageOf([] { ParsePlan("quick"); }).find("'quick' is not a known plan"),
            std::string::npos);
}

TEST(ParseMessage, OfALongTextShowsWhatIsAroundTheMistake) {
  const std::string filler(200000, 'x');
  for (const std::string& text :
       {"attention hq=" + filler, "attention " + filler, "attention hq=2 " + filler + "=3",
        filler + " hq=2", "cache k=" + filler, "tensor dtype=f32 shape=2 rule=" + filler}) {
    const std::string message = MessageOf([&] { ParseCase(text); });
    EXPECT_LT(message.size(), 1500u) << message.substr(0, 3000);
    EXPECT_NE(message.find("bytes"), std::string::npos) << message;
  }
  EXPECT_LT(MessageOf([&] { ParsePlan("name=a qk=" + filler); }).size(), 1500u);
  // The offending place is shown wherever it is.
  std::string long_case =
      "attention hq=1 hkv=1 l=1 t=9 d=8 q=f32 k=f32 v=f32 out=f32 mask=left_pad:";
  for (int i = 0; i < 2000; ++i) long_case += "1,";
  long_case += "oops,1 data=gauss:1";
  const std::string message = MessageOf([&] { ParseCase(long_case); });
  EXPECT_NE(message.find("'oops' is not an integer (in '..."), std::string::npos) << message;
  EXPECT_NE(message.find("1,oops,1 data=gauss:1"), std::string::npos) << message;
}

TEST(TextLines, EndAsAnyEditorEndsThem) {
  TextLines lines("\xef\xbb\xbfone\r\ntwo\n\r\nfour");
  std::string_view line;
  Names read;
  while (lines.Next(&line)) read.emplace_back(line);
  EXPECT_EQ(read, (Names{"one", "two", "", "four"}));
  EXPECT_EQ(lines.number(), 4);
}

}  // namespace
}  // namespace kvcheck
