// Responses that hold several texts: vLLM's `choices`, SGLang's list of responses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/agree/dump_files.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Positions(int count, int token) {
  json array = json::array({nullptr});
  for (int i = 0; i < count; ++i) {
    array.push_back({{std::to_string(token), {{"logprob", -0.1}}}, {"9", {{"logprob", -3}}}});
  }
  return array;
}

std::string Choices(const std::vector<json>& arrays) {
  json choices = json::array();
  for (const json& array : arrays) {
    choices.push_back({{"text", "\"prompt_logprobs\": [1]"}, {"prompt_logprobs", array}});
  }
  return json{{"object", "prompt_logprobs"}, {"choices", choices}, {"usage", {{"n", 1}}}}.dump(1);
}

TEST_F(Dumps, EveryChoiceOfAResponseIsRead) {
  const std::string two = Text("two", Choices({Positions(20, 1), Positions(10, 2)}));
  EXPECT_EQ(Compare(two, two).figures.positions, 30);
  // What differs in the second one is found there.
  const std::string wrong = Text("wrong", Choices({Positions(20, 1), Positions(10, 5)}));
  const DumpReport report = Compare(two, wrong);
  EXPECT_EQ(report.outcome, Outcome::kFail);
  EXPECT_EQ(report.flips.size(), 10u);
  EXPECT_EQ(report.flips.front().position, 20);
  const std::string one = Text("one", Choices({Positions(20, 1)}));
  EXPECT_THAT(Refusal(two, one), HasSubstr("ends after 20"));
}

TEST_F(Dumps, TextsEndWhereThoseOfTheOtherEnd) {
  const std::string a = Text("a", Choices({Positions(10, 1), Positions(20, 1)}));
  const std::string b = Text("b", Choices({Positions(15, 1), Positions(15, 1)}));
  EXPECT_THAT(Refusal(a, b), HasSubstr("position 10"));
  EXPECT_THAT(Refusal(a, b), HasSubstr("text"));
}

TEST_F(Dumps, AChoiceOfWhichNothingIsSaidIsPassedOver) {
  const std::string none = Text("none", Choices({nullptr, Positions(4, 1)}));
  EXPECT_EQ(Compare(none, none).figures.positions, 4);
  EXPECT_THAT(Refusal(Text("nulls", Choices({nullptr, nullptr})), none),
              HasSubstr("ask the server"));
  EXPECT_THAT(Refusal(Text("word", R"({"prompt_logprobs": "x"})"), none),
              HasSubstr("ask the server"));
}

TEST_F(Dumps, AListOfResponsesIsRead) {
  const auto list = [](int first, int second) {
    json responses = json::array();
    for (const auto& [count, token] : {std::pair{3, first}, std::pair{2, second}}) {
      json entries = json::array({nullptr});
      for (int i = 0; i < count; ++i) entries.push_back({{-0.2, token, nullptr}, {-2, 7, "}]"}});
      responses.push_back({{"text", "["}, {"meta_info", {{"input_top_logprobs", entries}}}});
    }
    return responses.dump();
  };
  const std::string gold = Text("gold", list(1, 2));
  EXPECT_EQ(Compare(gold, gold).figures.positions, 5);
  const DumpReport report = Compare(gold, Text("got", list(1, 3)));
  EXPECT_EQ(report.flips.size(), 2u);
  EXPECT_EQ(report.flips.front().position, 3);
}

}  // namespace
}  // namespace kvcheck
