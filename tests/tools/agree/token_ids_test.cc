#include "tools/agree/token_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;

class TokenIds : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::vector<int64_t> Read(const std::string& text) {
    golden_samples::WriteBytes(path_, text);
    return ReadTokenIds(path_, 32000);
  }
  std::string Refusal(const std::string& text) {
    try {
      Read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.context(), path_);
      return error.message();
    }
    return "it was read";
  }
  const std::string path_ = golden_samples::TemporaryPath("token_ids");
};

TEST_F(TokenIds, ListsOfEveryFormAreRead) {
  const std::vector<int64_t> expected = {1, 31999, 0};
  for (const char* text : {"[1, 31999, 0]", "[[1,31999,0]]", R"({"input_ids": [1, 31999, 0]})",
                           R"({"input_ids": [[1, 31999, 0]], "attention_mask": [[1, 1, 1]]})",
                           "1 31999 0", "1\n31999\n0\n", " 1, 31999,0 "}) {
    EXPECT_EQ(Read(text), expected) << text;
  }
}

TEST_F(TokenIds, ATensorOfWholeNumbersIsRead) {
  const int32_t ids[] = {1, 31999, 0};
  const std::string data(reinterpret_cast<const char*>(ids), sizeof(ids));
  const auto file = [&](const std::string& name, const std::string& dtype,
                        const std::string& shape) {
    return golden_samples::SafetensorsBytes("{\"" + name + "\": {\"dtype\": \"" + dtype +
                                                "\", \"shape\": " + shape +
                                                ", \"data_offsets\": [0, 12]}}",
                                            data);
  };
  const std::vector<int64_t> expected = {1, 31999, 0};
  EXPECT_EQ(Read(file("any", "I32", "[3]")), expected);
  EXPECT_EQ(Read(file("tokens", "I32", "[1, 3]")), expected);
  EXPECT_THAT(Refusal(file("any", "F32", "[3]")), HasSubstr("a row of i32 or i64"));
}

TEST_F(TokenIds, WhatIsNoListOfTokensIsRefused) {
  EXPECT_THAT(Refusal("[1, 32000]"), HasSubstr("token 1 is 32000, and the model has 32000"));
  EXPECT_THAT(Refusal("-1"), HasSubstr("token 0 is -1"));
  EXPECT_THAT(Refusal(""), HasSubstr("no token id"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("no token id"));
  EXPECT_THAT(Refusal("[1.5]"), HasSubstr("number 0 of the list is 1.5"));
  EXPECT_THAT(Refusal("[[1], [2]]"), HasSubstr("number 0 of the list"));
  EXPECT_THAT(Refusal("[1"), HasSubstr("no JSON"));
  EXPECT_THAT(Refusal(R"({"ids": [1]})"), HasSubstr("input_ids"));
  EXPECT_THAT(Refusal(R"({"input_ids": [1], "input_ids": [2]})"), HasSubstr("twice"));
  EXPECT_THAT(Refusal("the quick brown fox"), HasSubstr("'the' is no whole number"));
  EXPECT_THAT(Refusal("99999999999999999999"), HasSubstr("no whole number"));
}

}  // namespace
}  // namespace kvcheck
