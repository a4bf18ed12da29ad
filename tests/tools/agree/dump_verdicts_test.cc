// What a verdict on two dumps, or their figures, must not say: that what proves nothing passed, and
// that a right engine failed because its file rounds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/tools/agree/dump_files.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// As of a model: normal, so that margins are of many sizes.
Rows Normal(size_t positions, size_t vocabulary, float scale, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> logits(0, scale);
  Rows rows(positions, std::vector<float>(vocabulary));
  for (auto& row : rows) {
    for (float& logit : row) logit = logits(random);
  }
  return rows;
}

// Every 25th row says something else.
Rows WithFlips(Rows rows) {
  for (size_t t = 0; t < rows.size(); t += 25) {
    std::rotate(rows[t].begin(), rows[t].begin() + 7, rows[t].end());
  }
  return rows;
}

DumpReport Ask(const DumpQuestion& question) { return CompareDumps(question, {}); }

DumpQuestion Question(const std::string& gold, const std::string& got) {
  DumpQuestion question;
  question.gold = gold;
  question.got = got;
  return question;
}

TEST_F(Dumps, AFileBesideItselfProvesNothing) {
  const std::string path = Safetensors("gold", Drawn(70, 11));
  const std::string hard = Path("hard");
  const std::string soft = Path("soft");
  std::filesystem::create_hard_link(path, hard);
  std::filesystem::create_symlink(path, soft);
  for (const std::string& same : {path, hard, soft}) {
    SCOPED_TRACE(same);
    for (const bool judge : {true, false}) {
      DumpQuestion question = Question(path, same);
      question.judge = judge;
      const DumpReport report = Ask(question);
      EXPECT_EQ(report.outcome, Outcome::kMistrusted);
      EXPECT_THAT(report.why, HasSubstr("compared with itself"));
    }
  }
}

TEST_F(Dumps, TheSameNumbersInAnotherFileAreNoted) {
  const Rows rows = Drawn(70, 11);
  const DumpReport report = Compare(Safetensors("a", rows), Safetensors("b", rows, false));
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("every number of GOT is that of GOLD"));
}

TEST_F(Dumps, OneFileGivenTwiceIsRefused) {
  const std::string gold = Safetensors("gold", Drawn(30, 11));
  const std::string got = Safetensors("got", Normal(30, 11, 3));
  const std::string link = Path("link");
  std::filesystem::create_symlink(got, link);
  DumpQuestion question = Question(gold, "");
  try {
    CompareSeveralDumps(question, {{got, "q8_0", 8.5}, {link, "q4_0", 4.5}}, {});
    FAIL() << "one run was two cache types";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.message(), HasSubstr("are one file"));
  }
}

TEST_F(Dumps, ANoiseThatIsGotOrGoldIsRefused) {
  const Rows rows = Normal(200, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  const std::string got = Safetensors("got", WithFlips(rows));
  const std::string link = Path("link");
  std::filesystem::create_symlink(got, link);
  for (const std::string& noise : {got, link, gold}) {
    DumpQuestion question = Question(gold, got);
    question.noise = noise;
    EXPECT_THROW(Ask(question), Error) << noise;
  }
}

TEST_F(Dumps, ANoiseThatSaysWhatGotSaysExplainsNothing) {
  Rows rows = Normal(200, 50, 3);
  for (auto& row : rows) row[0] = 40;  // decided in every position but one
  rows[7][1] = 39.99F;
  const std::string gold = Safetensors("gold", rows);
  std::swap(rows[7][0], rows[7][1]);
  const std::string got = Safetensors("got", rows);
  // A copy, and the same run in another type.
  for (const std::string& noise : {Copy("copy", got), Rounded("again", rows, DType::kFloat32)}) {
    const DumpReport report = Compare(gold, got, std::nullopt, noise);
    EXPECT_EQ(report.outcome, Outcome::kMistrusted);
    EXPECT_THAT(report.why, HasSubstr("that is what GOT says"));
  }
  // Another run that errs as far and not alike does.
  std::swap(rows[7][0], rows[7][1]);
  rows[9][1] = 40.02F;
  EXPECT_EQ(Compare(gold, got, std::nullopt, Safetensors("noise", rows)).outcome, Outcome::kPass);
}

TEST_F(Dumps, ListsOfTheTextsOwnTokenProveNothing) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> log_p(-9, 0);
  std::vector<std::string> paths;
  std::vector<int> tokens(200);
  for (int& token : tokens) token = static_cast<int>(random() % 50);
  for (const char* name : {"a", "b"}) {
    json entries = json::array({nullptr});
    for (const int token : tokens) {
      entries.push_back({{std::to_string(token), {{"logprob", log_p(random)}, {"rank", 9}}}});
    }
    paths.push_back(Text(name, json{{"prompt_logprobs", entries}}.dump()));
  }
  // Not one probability above a half in both is a top-1 that both are known to have.
  const DumpReport judged = Compare(paths[0], paths[1]);
  EXPECT_EQ(judged.outcome, Outcome::kMistrusted) << judged.why;
  EXPECT_GT(judged.top_unknown, 150);
  EXPECT_LT(judged.figures.top1_positions, 50);
  // With a stated error the token itself is judged.
  EXPECT_EQ(Compare(paths[0], paths[1], 0.1).outcome, Outcome::kFail);
}

TEST_F(Dumps, WhereNoListHasItsFirstTokenFiguresMeanNothing) {
  const std::string gold = Text("a", R"([{"3": {"logprob": -2.5, "rank": 4}}, {"5": -1.9}])");
  const std::string got = Text("b", R"([{"3": {"logprob": -2.6, "rank": 4}}, {"5": -1.1}])");
  const DumpReport report = Measure(gold, got);
  EXPECT_EQ(report.outcome, Outcome::kMistrusted);
  EXPECT_THAT(report.why, HasSubstr("ask the engine for more"));
  EXPECT_TRUE(std::isnan(report.figures.top1.value));
  // The rank of the first token, or its mass, says that it is there.
  const auto outcome = [&](const std::string& entry) {
    const std::string a = "[{\"7\": {\"logprob\": -0.1, \"rank\": 1}, \"8\": -4}, " + entry + "]";
    return Measure(Text("c", a), Text("d", a + " ")).top_unknown;
  };
  EXPECT_EQ(outcome(R"({"3": {"logprob": -2.5, "rank": 2}})"), 1);
  EXPECT_EQ(outcome(R"({"3": {"logprob": -2.5, "rank": 1}})"), 0);
  EXPECT_EQ(outcome(R"({"3": -0.7})"), 1);
  EXPECT_EQ(outcome(R"({"3": -0.69})"), 0);
}

TEST_F(Dumps, TopTokensWithoutAnyProbabilityAreRefused) {
  const float none = -std::numeric_limits<float>::infinity();
  ExpectUnreadable(TopK("none", {{1, 2}, {1, 2}}, {{none, none}, {none, none}}, {2.5F, 2.5F}),
                   "most likely token");
  // As logits that are all 40 too small.
  ExpectUnreadable(TopK("small", {{1, 2}}, {{-38, -39}}, {2.5F}), "most likely token");
}

TEST_F(Dumps, ExcusesWithoutLimitProveNothing) {
  const Rows rows = Normal(200, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  const std::string got = Safetensors("got", WithFlips(rows));
  EXPECT_EQ(Compare(gold, got).outcome, Outcome::kFail);
  for (const double error : {50.0, 1e30}) {
    EXPECT_EQ(Compare(gold, got, error).outcome, Outcome::kMistrusted) << error;
    DumpQuestion question = Question(gold, got);
    question.got_error = error;
    EXPECT_EQ(Ask(question).outcome, Outcome::kMistrusted) << error;
  }
  const std::string loose = Rounded("loose", rows, DType::kFloat32, "50");
  EXPECT_EQ(Compare(loose, got).outcome, Outcome::kMistrusted);
}

TEST_F(Dumps, GotDoesNotExcuseItself) {
  const Rows rows = Normal(200, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  for (const char* error : {"1e30", "50", "20"}) {
    const std::string got = Rounded("got", WithFlips(rows), DType::kFloat32, error);
    const DumpReport report = Compare(gold, got);
    EXPECT_EQ(report.outcome, Outcome::kMistrusted) << error;
    EXPECT_THAT(report.why, HasSubstr("its own error"));
    EXPECT_EQ(report.excused, 0);
  }
  // What it says of itself is less than what it is off by.
  EXPECT_EQ(Compare(gold, Rounded("got", WithFlips(rows), DType::kFloat32, "1e-3")).outcome,
            Outcome::kFail);
}

TEST_F(Dumps, WhereNothingIsDecidedNothingIsProved) {
  const auto both = [&](float gold, float got, size_t vocabulary) {
    const std::string a =
        Safetensors("gold", Rows(200, std::vector<float>(vocabulary, gold)), false);
    const std::string b = Safetensors("got", Rows(200, std::vector<float>(vocabulary, got)), false);
    for (const bool judge : {true, false}) {
      DumpQuestion question = Question(a, b);
      question.judge = judge;
      EXPECT_EQ(Ask(question).outcome, Outcome::kMistrusted) << vocabulary;
    }
  };
  both(0, 1, 50);
  both(3, 3, 1);
  // llama.cpp's base of such rows: scales of 0.
  const Rows alike(20, std::vector<float>(50, 3));
  EXPECT_EQ(Compare(Llama("alike", alike), Safetensors("ones", alike)).outcome,
            Outcome::kMistrusted);
  // A single position that no answer could fail is not covered by the others.
  Rows rows = Normal(200, 50, 3);
  std::fill(rows[77].begin(), rows[77].end(), 1.0F);
  const std::string gold = Safetensors("one", rows);
  rows[77][0] = 9;
  const DumpReport report = Compare(gold, Safetensors("other", rows));
  EXPECT_EQ(report.outcome, Outcome::kMistrusted);
  EXPECT_EQ(report.flat, 1);
  EXPECT_THAT(report.why, HasSubstr("the first is 77"));
}

TEST_F(Dumps, WrongProbabilitiesWithTheRightTokenFailWhereAnErrorIsStated) {
  const Rows rows = Normal(200, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  const auto is_found = [&](const Rows& wrong, const char* what) {
    SCOPED_TRACE(what);
    const std::string got = Safetensors("got", wrong);
    const DumpReport stated = Compare(gold, got, 0.01);
    EXPECT_EQ(stated.outcome, Outcome::kFail);
    EXPECT_THAT(stated.why, HasSubstr("moved by more than is explained"));
    EXPECT_TRUE(stated.judged_probabilities);
    const DumpReport silent = Compare(gold, got);
    EXPECT_EQ(silent.outcome, Outcome::kPass) << silent.why;
    EXPECT_THAT(FirstLine(Question(gold, got), silent), HasSubstr("PASS, top-1 only"));
  };
  Rows wrong = rows;
  for (auto& row : wrong) {
    for (float& logit : row) logit /= 100;
  }
  is_found(wrong, "temperature");
  wrong = rows;
  for (auto& row : wrong) {
    for (float& logit : row) logit *= 2;
  }
  is_found(wrong, "no softcap");
  wrong = rows;
  // One token of one position, and no likely one.
  *std::min_element(wrong[123].begin(), wrong[123].end()) += 0.5F;
  is_found(wrong, "one unlikely token");
  // A right engine, off by less than it states.
  wrong = rows;
  for (auto& row : wrong) {
    for (size_t i = 0; i < row.size(); ++i) row[i] += i % 2 == 0 ? 0.004F : -0.004F;
  }
  const DumpReport right = Compare(gold, Safetensors("right", wrong), 0.01);
  EXPECT_EQ(right.outcome, Outcome::kPass) << right.why;
  EXPECT_EQ(FirstLine(
                [&] {
                  DumpQuestion question = Question(gold, "right");
                  question.logit_error = 0.01;
                  return question;
                }(),
                right),
            "PASS");
}

TEST_F(Dumps, AWrongLseOfTopTokensIsFound) {
  const std::vector<std::vector<int32_t>> ids(40, {1, 2});
  const Rows logits(40, {2, 1});
  const std::string gold = TopK("gold", ids, logits, std::vector<float>(40, 2.4F));
  const std::string got = TopK("got", ids, logits, std::vector<float>(40, 5.4F));
  EXPECT_EQ(Compare(gold, got, 0.1).outcome, Outcome::kFail);
}

TEST_F(Dumps, ATokenThatALikelyListLeavesOutIsFound) {
  // GOLD's second is none of GOT's, which leaves 0.2 % to all others.
  const std::string gold = Text("gold", R"([{"0": -0.4, "1": -1.2}])");
  const std::string got = Text("got", R"([{"0": -0.4, "2": -1.115}])");
  const DumpReport report = Compare(gold, got, 0.2);
  EXPECT_EQ(report.outcome, Outcome::kFail);
  EXPECT_EQ(report.first_change->token, 1);
}

TEST_F(Dumps, TheRoundingOfAFileIsNoFlipOfTheEngine) {
  const Rows rows = Normal(2000, 1000, 4);
  const std::string exact = Safetensors("gold", rows, false);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const std::string rounded = Rounded("rounded", rows, dtype);
    for (const bool is_gold : {false, true}) {
      const DumpReport report = is_gold ? Compare(rounded, exact) : Compare(exact, rounded);
      EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
      EXPECT_EQ(report.excused, static_cast<int64_t>(report.flips.size()));
      EXPECT_TRUE(report.within_rounding);
    }
    // Stated errors are judged beside what the files round: none is found of none.
    const DumpReport stated = Compare(exact, rounded, 0);
    EXPECT_EQ(stated.outcome, Outcome::kPass) << stated.why;
    // bf16 hides some margins.
    if (dtype == DType::kBFloat16) {
      EXPECT_GT(Compare(exact, rounded).flips.size(), 0u);
    }
  }
  // A flip that no rounding explains is found in any type.
  EXPECT_EQ(Compare(exact, Rounded("wrong", WithFlips(rows), DType::kBFloat16)).outcome,
            Outcome::kFail);
}

TEST_F(Dumps, TokensThatPrintAlikeAreNoFlip) {
  // 0.1 and the next f32: log_softmax in f32 prints the same number of both.
  Rows rows(3, {0.1F, std::nextafterf(0.1F, 1), -1});
  json entries = json::array({nullptr});
  const double lse = std::log(2 * std::exp(0.1) + std::exp(-1.0));
  for (int i = 0; i < 3; ++i) {
    entries.push_back({{"0", 0.1 - lse}, {"1", 0.1 - lse}, {"2", -1 - lse}});
  }
  rows[1] = rows[2] = {5, 0, 0};
  entries[2] = entries[3] = {{"0", -0.013386}, {"1", -5.013386}, {"2", -5.013386}};
  const DumpReport report = Compare(Safetensors("gold", rows), Text("got", entries.dump()));
  EXPECT_EQ(report.flips.size(), 1u);
  EXPECT_EQ(report.excused, 1) << report.why;
}

TEST_F(Dumps, AKeptBaseKnowsWhatItsSourceRounds) {
  const Rows rows = Normal(500, 300, 4);
  const std::string kept = Path("kept");
  WriteTopTokens(OpenLogitsDump(Rounded("bf16", rows, DType::kBFloat16)).get(), 20, kept);
  const DumpReport report = Compare(kept, Safetensors("exact", rows));
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
}

TEST_F(Dumps, WhatIsKeptAreTheMostLikelyTokens) {
  // The third is the text's own, of rank 9: others are more likely.
  const std::string list = Text("list",
                                R"([{"1": {"logprob": -0.9, "rank": 1}, "2": {"logprob": -1,
                                    "rank": 2}, "5": {"logprob": -4, "rank": 9}}])");
  EXPECT_THROW(WriteTopTokens(OpenLogitsDump(list).get(), 3, Path("three")), Error);
  WriteTopTokens(OpenLogitsDump(list).get(), 2, Path("two"));
}

TEST_F(Dumps, AnObjectWithOneKeyTwiceIsRefused) {
  ExpectUnreadable(Text("token", R"([{"5": -9, "5": -0.1}])"), "has the key \"5\" twice");
  ExpectUnreadable(Text("zero", R"([{"5": -9, "05": -0.1}])"), "names token 5 twice");
  ExpectUnreadable(Text("logprob", R"([{"5": {"logprob": -9, "logprob": -0.1}}])"),
                   "has the key \"logprob\" twice");
  ExpectUnreadable(Text("array", R"({"prompt_logprobs": [{"5": -0.1}], "x": {},
                                     "prompt_logprobs": [{"6": -0.1}]})"),
                   "the key \"prompt_logprobs\" twice");
  // Else these would be two texts.
  const std::string choices = R"("choices": [{"prompt_logprobs": [{"5": -0.1}]}])";
  ExpectUnreadable(Text("choices", "{" + choices + ", " + choices + "}"), "\"choices\" twice");
}

TEST_F(Dumps, FiguresHaveNoVerdict) {
  const Rows rows = Normal(200, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  const std::string got = Safetensors("got", WithFlips(rows));
  const DumpReport report = Measure(gold, got);
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
  EXPECT_EQ(report.flips.size(), 8u);
  DumpQuestion question = Question(gold, got);
  question.judge = false;
  EXPECT_EQ(json::parse(Json(question, report))["outcome"], "MEASURED");
  EXPECT_THAT(FirstLine(question, report), HasSubstr("MEASURED"));
  // 200 positions are 7 blocks.
  const std::string text = DumpText(question, DumpsReport{{GotDump{got, "", {}}}, {report}, false});
  EXPECT_EQ(text.find('['), std::string::npos) << text;
  // A number that is none is no figure.
  Rows wrong = rows;
  wrong[3][4] = std::nanf("");
  EXPECT_EQ(Measure(gold, Safetensors("nan", wrong)).outcome, Outcome::kFail);
}

TEST_F(Dumps, SeveralCachesAreOneTable) {
  const Rows rows = Normal(700, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  Rows fine = rows, coarse = rows;
  for (size_t t = 0; t < rows.size(); ++t) {
    for (size_t i = 0; i < 50; ++i) {
      const float sign = (t + i) % 3 == 0 ? 1 : -1;
      fine[t][i] += 0.001F * sign;
      coarse[t][i] += 0.1F * sign;
    }
  }
  DumpQuestion question;
  question.gold = gold;
  question.judge = false;
  question.noise = Safetensors("noise", fine, false);
  const auto got = [&](const std::string& cache, const Rows& of) {
    return ParseGotDump(cache + "=" + Safetensors("got" + cache, of), 128);
  };
  const DumpsReport report = CompareSeveralDumps(
      question, {got("q8_0", fine), got("q8_0,q4_0", coarse), got("fp8@8", coarse)}, {});
  ASSERT_EQ(report.reports.size(), 3u);
  EXPECT_EQ(report.gots[0].bits, 8.5);
  EXPECT_EQ(report.gots[1].bits, 6.5);
  EXPECT_EQ(report.gots[2].bits, 8);
  EXPECT_EQ(report.gots[2].cache, "fp8");
  EXPECT_LT(report.reports[0].figures.kl_mean.value, report.reports[1].figures.kl_mean.value);
  const json written = json::parse(DumpJson(question, report));
  EXPECT_EQ(written["gots"][1]["bits_per_element"], 6.5);
  EXPECT_EQ(written["gots"][1]["cache"], "q8_0,q4_0");
  EXPECT_GT(written["noise"]["largest"], 0);
  // 22 blocks: there is an interval.
  EXPECT_TRUE(written["gots"][1]["figures"]["kl_mean"]["low"].is_number());
  const std::string text = DumpText(question, report);
  EXPECT_THAT(text, HasSubstr("cache"));
  EXPECT_THAT(text, HasSubstr("gold again"));
  EXPECT_EQ(report.outcome(), Outcome::kPass);
}

TEST_F(Dumps, ACacheThatIsNoFormatIsRefusedAndTheOtherFormIsSaid) {
  for (const char* text :
       {"q9_0=x.kld", "=x.kld", "q8_0=", "fp8@=x", "fp8@eight=x", "fp8@-1=x", "affine:4:*=x"}) {
    EXPECT_THROW(ParseGotDump(text, 128), Error) << text;
  }
  try {
    ParseGotDump("fp8=x.kld", 128);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("fp8@8=FILE"));
  }
  // A file that has such a name is that file.
  const std::string path = Text("q8_0=name", "x");
  EXPECT_EQ(ParseGotDump(path, 128).path, path);
  EXPECT_EQ(ParseGotDump(path, 128).cache, "");
}

TEST_F(Dumps, WhatWasReadUntilItIsCancelledIsReported) {
  const Rows rows = Normal(400, 50, 3);
  const std::string gold = Safetensors("gold", rows);
  const std::string got = Safetensors("got", WithFlips(rows));
  for (const bool judge : {true, false}) {
    int asked = 0;
    DumpQuestion question = Question(gold, got);
    question.judge = judge;
    const DumpReport report = CompareDumps(question, Cancel([&] { return ++asked > 120; }));
    EXPECT_TRUE(report.interrupted);
    EXPECT_GT(report.figures.positions, 50);
    EXPECT_LT(report.figures.positions, 400);
    EXPECT_GT(report.flips.size(), 0u);
    const json written = json::parse(Json(question, report));
    EXPECT_EQ(written["interrupted"], true);
    EXPECT_THAT(FirstLine(question, report), HasSubstr("INTERRUPTED"));
    // A part without a finding is no PASS.
    EXPECT_NE(CompareDumps(question, Cancel([] { return true; })).outcome, Outcome::kPass);
  }
  // Of several, what is told of those before.
  const std::string other = Safetensors("other", Normal(400, 50, 4));
  std::vector<DumpsReport> told;
  const DumpsReport whole =
      CompareSeveralDumps(Question(gold, got), {{got, "", {}}, {other, "", {}}}, {},
                          [&](DumpsReport report) { told.push_back(std::move(report)); });
  EXPECT_FALSE(whole.interrupted);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].interrupted);
  EXPECT_EQ(told[0].reports.size(), 1u);
  EXPECT_EQ(told[0].reports[0].figures.positions, 400);
}

}  // namespace
}  // namespace kvcheck
