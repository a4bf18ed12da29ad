// OpenAI's log-probabilities, of completions and of chats, as one response, several or line by
// line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/agree/dump_files.h"
#include "tools/agree/token_texts.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// The text "a b b b...", each token beside another one.
json Completion(int count, double log_p = -0.2) {
  json said = {{"tokens", {"a"}}, {"token_logprobs", {nullptr}}, {"top_logprobs", {nullptr}}};
  for (int i = 0; i < count; ++i) {
    said["tokens"].push_back(" b");
    said["token_logprobs"].push_back(log_p);
    said["top_logprobs"].push_back({{" b", log_p}, {" c", -2.5}});
  }
  said["text_offset"] = json::array();
  return {{"object", "text_completion"},
          {"choices", {{{"text", "\"logprobs\": {"}, {"logprobs", said}, {"index", 0}}}}};
}

json ChatToken(const std::string& token, double log_p, const json& top = json::array()) {
  return {{"token", token}, {"logprob", log_p}, {"bytes", nullptr}, {"top_logprobs", top}};
}

json Chat(int count, const std::string& second = " c") {
  json content = json::array();
  for (int i = 0; i < count; ++i) {
    content.push_back(ChatToken(" b", -0.2, {ChatToken(" b", -0.2), ChatToken(second, -2.5)}));
  }
  return {{"object", "chat.completion"},
          {"choices", {{{"logprobs", {{"content", content}, {"refusal", nullptr}}}}}}};
}

TEST_F(Dumps, CompletionsAndChatsOfOpenAiAreRead) {
  for (const auto& [a, b] :
       {std::pair{Completion(40), Completion(40, -0.25)}, std::pair{Chat(40), Completion(40)}}) {
    const DumpReport report = Measure(Text("gold", a.dump()), Text("got", b.dump(1)));
    EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
    EXPECT_EQ(report.figures.positions, 40);
    // The text is there, and so perplexities are.
    EXPECT_TRUE(report.has_next);
    EXPECT_EQ(report.top_unknown, 0);
  }
  EXPECT_THAT(OpenLogitsDump(Text("d", Chat(2).dump()))->Description(), HasSubstr("OpenAI"));
}

TEST_F(Dumps, TokensOfOpenAiAreTheirTextOrTheirBytes) {
  const std::string gold = Text("gold", Chat(2).dump());
  json other = Chat(2);
  other["choices"][0]["logprobs"]["content"][1] =
      ChatToken(" d", -0.2, json::array({ChatToken(" d", -0.2), ChatToken(" c", -2.5)}));
  EXPECT_THAT(Refusal(gold, Text("other", other.dump())), HasSubstr("goes on with token ' d'"));
  json bytes = Chat(2);
  bytes["choices"][0]["logprobs"]["content"][1]["token"] = "\xef\xbf\xbd";
  bytes["choices"][0]["logprobs"]["content"][1]["bytes"] = {32, 98};
  EXPECT_EQ(Refusal(gold, Text("bytes", bytes.dump())), "");
  bytes["choices"][0]["logprobs"]["content"][1]["bytes"] = {32, 300};
  EXPECT_THAT(Refusal(gold, Text("bytes", bytes.dump())), HasSubstr("no bytes"));
  // vLLM's ids are ids.
  const std::string ids = R"({"choices": [{"logprobs": {"content": [
      {"token": "token_id:7", "logprob": -0.1, "top_logprobs": []}]}}]})";
  TokenDistribution position;
  ASSERT_TRUE(OpenLogitsDump(Text("ids", ids))->Read(&position));
  EXPECT_EQ(position.tokens, std::vector<int64_t>{7});
  EXPECT_EQ(position.next, 7);
  EXPECT_THAT(Refusal(Text("ids", ids), Text("one", Chat(1).dump())),
              HasSubstr("names its tokens by their text"));
}

TEST_F(Dumps, ResponsesLineByLineAreTexts) {
  const std::string lines =
      Completion(20).dump() + "\n" +
      json{{"custom_id", "2"}, {"response", {{"body", Completion(10)}}}}.dump() + "\n";
  EXPECT_EQ(Measure(Text("a", lines), Text("b", lines + "\n")).figures.positions, 30);
  // vLLM's and SGLang's too.
  const std::string vllm = R"({"prompt_logprobs": [null, {"1": -0.1, "2": -3}]})";
  EXPECT_EQ(
      Measure(Text("c", vllm + "\n" + vllm), Text("d", vllm + "\r\n" + vllm)).figures.positions, 2);
  // A text that is not there would shift those behind it.
  const std::string error = R"({"error": "overloaded"})";
  ExpectUnreadable(Text("e", vllm + "\n" + error + "\n" + vllm), "response 2 has no log-prob");
  ExpectUnreadable(Text("f", vllm + "\n" + error), "response 2 has no log-prob");
  ExpectUnreadable(Text("g", Completion(3).dump() + " " + Completion(3).dump()), "follows");
}

TEST_F(Dumps, LogprobsOfAPromptComeBeforeThoseOfWhatWasGenerated) {
  json both = Completion(5);
  both["choices"][0]["prompt_logprobs"] = {nullptr, {{"1", -0.1}, {"2", -3}}, {{"1", -0.2}}};
  const std::string path = Text("both", both.dump());
  EXPECT_EQ(Measure(path, path).figures.positions, 2);
  // Of a request: how many are asked for.
  const std::string request =
      R"({"request": {"logprobs": 5, "x": {"logprobs": true}}, "response": )" + Chat(3).dump() +
      "}";
  const std::string asked = Text("asked", request);
  EXPECT_EQ(Measure(asked, asked).figures.positions, 3);
}

TEST_F(Dumps, WhetherOpenAiListsTheTopTokenIsKnownOrNot) {
  const auto unknown = [&](const json& top, double own) {
    json said = Chat(1);
    said["choices"][0]["logprobs"]["content"][0] = ChatToken(" b", own, top);
    const std::string path = Text("said", said.dump());
    return Measure(path, path).top_unknown;
  };
  EXPECT_EQ(unknown(json::array(), -2), 1);
  EXPECT_EQ(unknown(json::array(), -0.1), 0);  // more than all the others together
  EXPECT_EQ(unknown(json::array({ChatToken(" c", -1)}), -2), 0);
  // The text's own token only, which the list may hold for its own sake.
  EXPECT_EQ(unknown(json::array({ChatToken(" b", -2)}), -2), 1);
  ExpectUnreadable(Text("two",
                        [] {
                          json said = Chat(1);
                          said["choices"][0]["logprobs"]["content"][0]["logprob"] = -0.3;
                          return said.dump();
                        }()),
                   "twice");
}

// Texts are read whole, and still the position that is wrong is named, over all texts.
TEST_F(Dumps, RefusalsOfOpenAiNameTheirPosition) {
  const auto chat = [](const std::string& second) {
    return R"({"choices": [{"logprobs": {"content": [{"token": "token_id:3", "logprob": -0.5}, )" +
           second + "]}}]}";
  };
  const std::string right = R"({"token": "token_id:4", "logprob": -0.7})";
  const std::string wrong = R"({"token": "token_id:x", "logprob": -0.7})";
  ExpectUnreadable(Text("one", chat(wrong)), "position 1: \"x\" is no token");
  ExpectUnreadable(Text("two.jsonl", chat(right) + "\n" + chat(wrong)),
                   "position 3: \"x\" is no token");
  ExpectUnreadable(
      Text("unlikely.jsonl", chat(right) + "\n" + chat(R"({"token": "token_id:4", "logprob": 5})")),
      "position 3: the log-probability of token 4 is 5");
  ExpectUnreadable(Text("completion", R"({"choices": [{"logprobs": {"tokens": ["token_id:1",
                                          "token_id:2", 3], "token_logprobs": [-0.5, -0.5, -1]}}]})"),
                   "position 2: a token is no text");
  // What is seen before positions are counted is of a response.
  ExpectUnreadable(Text("keys.jsonl", chat(right) + "\n" + R"({"a": 1, "a": 2, "choices": []})"),
                   "response 2: an object has the key \"a\" twice");
}

TEST_F(Dumps, DamagedOpenAiResponsesAreRefused) {
  json said = Completion(3);
  said["choices"][0]["logprobs"]["token_logprobs"].erase(1);
  ExpectUnreadable(Text("lengths", said.dump()), "different lengths");
  ExpectUnreadable(Text("none", R"({"choices": [{"logprobs": {"x": 1}}]})"), "neither");
  ExpectUnreadable(Text("null", R"({"choices": [{"logprobs": null}]})"), "ask the server");
  ExpectUnreadable(Text("content", R"({"logprobs": {"content": 3}})"), "no array");
  ExpectUnreadable(Text("cut", R"({"logprobs": {"content": [)"), "ends within");
  ExpectUnreadable(Text("twice", R"({"logprobs": {"content": [], "content": []}})"), "twice");
  ExpectUnreadable(Text("number", R"({"logprobs": {"content": [{"token": 3, "logprob": -1}]}})"),
                   "no text");
}

}  // namespace
}  // namespace kvcheck
