// What no engine can have said: dumps that are no distributions, and numbers that are no tokens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/tools/agree/dump_files.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of the row of Llama's dump at a position: scale and smallest log-probability, f32 each.
void Patch(const std::string& path, size_t offset, float value) {
  std::string bytes = golden_samples::ReadBytes(path);
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  golden_samples::WriteBytes(path, bytes);
}

TEST_F(Dumps, ALlamaRowThatIsNoDistributionIsRefused) {
  const Rows rows = Drawn(9, 10);
  // The header, and the tokens of one chunk of 20.
  const size_t first_row = 20 + 4 * 20;
  const size_t row_bytes = 4 * 2 + 10 * 2;
  const size_t third = first_row + 2 * row_bytes;
  const std::string path = Llama("base", rows);
  const std::string right = golden_samples::ReadBytes(path);
  const struct {
    size_t offset;
    float value;
    const char* message;
  } kCases[] = {{third, 1e30F, "above 0"},
                {third + 4, 1000, "above 0"},
                // Every token as likely as the rarest.
                {third, 0, "sum to"},
                {third + 4, -60, "sum to"},
                // Half a nat: more than half a step and what f32 rounds.
                {third + 4,
                 [&] {
                   float least = 0;
                   std::memcpy(&least, right.data() + third + 4, 4);
                   return least + 0.5F;
                 }(),
                 "sum to"}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.value);
    golden_samples::WriteBytes(path, right);
    EXPECT_EQ(Refusal(path, path), "");
    Patch(path, c.offset, c.value);
    ExpectUnreadable(path, "position 2");
    ExpectUnreadable(path, c.message);
  }
}

TEST_F(Dumps, WhatLlamaCutsOffIsNotCountedAsSaid) {
  // 60,000 tokens 16 below the top or lower weigh 0.7 % when all are taken for the smallest number.
  Rows rows(2, std::vector<float>(60000, -40));
  for (auto& row : rows) row[7] = 0;
  const std::string path = Llama("flat", rows);
  EXPECT_EQ(Refusal(path, path), "");
  // All alike: a scale of 0, and nothing is cut.
  const std::string alike = Llama("alike", Rows(2, std::vector<float>(50, 3)));
  EXPECT_EQ(Refusal(alike, alike), "");
}

TEST_F(Dumps, ALogSumThatIsNoneIsRefused) {
  const std::vector<std::vector<int32_t>> ids = {{1, 2}, {3, 4}};
  const Rows logits = {{2, 1}, {3, 0}};
  for (const float wrong : {kInfinity, -kInfinity, std::nanf("")}) {
    const std::string path = TopK("lse", ids, logits, {2.5F, wrong});
    ExpectUnreadable(path, "position 1");
    ExpectUnreadable(path, "lse is");
  }
}

TEST_F(Dumps, ProbabilitiesAboveOneAreRefused) {
  const std::vector<std::vector<int32_t>> ids = {{1, 2}, {3, 4}};
  // exp(2) + exp(1) = e^2.3133, exp(3) + exp(0) = e^3.0486: the second is 5 too small.
  const Rows logits = {{2, 1}, {3, 0}};
  EXPECT_EQ(Refusal(TopK("right", ids, logits, {2.4F, 3.1F}), Path("right")), "");
  const std::string above = TopK("above", ids, logits, {2.4F, -1.9F});
  ExpectUnreadable(above, "position 1: the log-probability of token 3 is 4.9");
  // None is above 1, and together they are.
  const std::string together = TopK("together", ids, {{2, 1}, {3, 2.9F}}, {2.4F, 3.1F});
  ExpectUnreadable(together, "position 1: its probabilities sum to 1.7");
  // What the file says of its own error explains it.
  EXPECT_EQ(Refusal(TopK("stated", ids, {{2, 1}, {3, 2.9F}}, {2.4F, 3.1F}, "0.6"), Path("stated")),
            "");
  ExpectUnreadable(TopK("stated", ids, {{2, 1}, {3, 2.9F}}, {2.4F, 3.1F}, "0.5"), "sum to 1.7");
}

TEST_F(Dumps, ALogProbabilityAboveZeroInJsonIsRefused) {
  ExpectUnreadable(Text("v", R"([null, {"0": -0.6}, {"5": 5.0, "1": -9}])"),
                   "position 1: the log-probability of token 5 is 5");
  ExpectUnreadable(Text("s", R"({"input_top_logprobs": [null, [[0.01, 3, null]]]})"), "above 0");
  ExpectUnreadable(Text("sum", R"([{"0": -0.1, "1": -0.1}])"), "sum to 1.8");
}

TEST_F(Dumps, RoundingsOfF32AreNoRefusal) {
  // As an engine writes them that subtracts in f32: the top token above 0 by less than half a unit
  // of the others.
  const std::string json = Text("v", R"([{"1": 5.9e-8, "2": -16.5, "3": -17.25}])");
  EXPECT_EQ(Refusal(json, json), "");
  const float lse = 20.0F + 0x1p-24F * 20;
  const std::string top = TopK("t", {{1, 2}}, {{20.000002F, 1}}, {lse});
  EXPECT_EQ(Refusal(top, top), "");
}

TEST_F(Dumps, AnErrorThatIsNoNumberIsRefused) {
  for (const char* error : {"", "1e999", "-1", "nan", "inf", "0x1p-3", " 1"}) {
    const std::string path = TopK("error", {{1, 2}}, {{2, 1}}, {2.5F}, error);
    EXPECT_THAT(Refusal(path, path), HasSubstr("`error`")) << error;
  }
}

TEST_F(Dumps, ANumberThatIsNoTokenIsRefused) {
  ExpectUnreadable(Text("s", R"({"input_top_logprobs": [[[-0.1, 3, null]], [[-0.1, -7, null]]]})"),
                   "position 1: -7 is no token");
  ExpectUnreadable(Text("twice", R"({"input_top_logprobs": [[[-0.9, 3, "a"], [-1, 3, "a"]]]})"),
                   "names token 3 twice");
  const Rows rows = Drawn(3, 8);
  const std::string whole = Safetensors("whole", rows);
  const auto top = [&](int32_t token) {
    const std::vector<std::vector<int32_t>> ids = {{0, 1}, {0, token}, {0, 1}};
    return TopK("top", ids, {{2, 1}, {2, 1}, {2, 1}}, {2.5F, 2.5F, 2.5F});
  };
  ExpectUnreadable(top(-53), "position 1: -53 is no token");
  EXPECT_THAT(Refusal(whole, top(8)), HasSubstr("token 8"));
  EXPECT_THAT(Refusal(top(8), whole), HasSubstr("token 8"));
  EXPECT_EQ(Refusal(whole, top(7)).find("token 7"), std::string::npos);
}

TEST_F(Dumps, WhatFollowsAnArrayIsNotIgnored) {
  ExpectUnreadable(Text("garbage", R"([{"0": -0.6}] garbage)"), "follows");
  ExpectUnreadable(Text("comma", R"([{"0": -0.6},])"), "no JSON");
  ExpectUnreadable(Text("cut", R"({"prompt_logprobs": [{"0": -0.6}], "usage": {)"), "ends within");
  ExpectUnreadable(Text("more", R"({"prompt_logprobs": [{"0": -0.6}]} {"x": 1})"), "follows");
}

TEST_F(Dumps, WhatCannotBeABaseIsNotKept) {
  Rows rows = Drawn(5, 6);
  rows[3][2] = std::nanf("");
  const std::string out = Path("out");
  const auto refusal = [&](const std::string& path) {
    try {
      WriteTopTokens(OpenLogitsDump(path).get(), 2, out);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_THAT(refusal(Safetensors("nan", rows)), HasSubstr("position 3"));
  EXPECT_THAT(refusal(Text("none", "[null]")), HasSubstr("no position"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Dumps, WhatOnlyTheGoldSaysCostsTheOther) {
  // Gold leaves 8 % to other tokens, the other engine nothing: KL is far above 0, and the terms of
  // the common tokens alone are below it.
  const std::string gold = Text("gold", R"([{"0": -0.6, "1": -1.0}])");
  const std::string got = Text("got", R"([{"0": -0.5978370007556204, "1": -0.7985076962177716}])");
  // 0.0833 log(0.0833 / rounding), and -0.0753 of the common ones.
  EXPECT_GT(Compare(gold, got).figures.kl_max, 0.5);
}

}  // namespace
}  // namespace kvcheck
