#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tests/tools/agree/dump_files.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST_F(Dumps, ACopyAgreesAndIsSaidToBeOne) {
  const std::string path = Safetensors("self", Drawn(70, 11));
  const DumpReport report = Compare(path, Copy("copy", path));
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
  EXPECT_EQ(report.figures.positions, 70);
  EXPECT_EQ(report.figures.kl_max, 0);
  EXPECT_EQ(report.largest, 0);
  EXPECT_TRUE(report.has_next);
  EXPECT_FALSE(report.is_lower_bound);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("byte for byte GOLD"));
}

// What numpy, tofile and a program in C++ leave of the same numbers.
TEST_F(Dumps, AreReadFromNumpysFilesAndFromRawElements) {
  const Rows rows = Drawn(40, 11);
  const std::string gold = Safetensors("gold", rows);
  std::string data;
  for (const auto& row : rows) {
    for (const float logit : row) Append(logit, &data);
  }
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 40, 11), }";
  header.resize(117, ' ');
  header += '\n';
  const std::string start = std::string("\x93NUMPY\x01\x00", 8) +
                            static_cast<char>(header.size() & 0xff) +
                            static_cast<char>(header.size() >> 8);
  const std::string npy = Path("rows.npy"), raw = Path("rows.bin");
  std::ofstream(npy, std::ios::binary) << start << header << data;
  std::ofstream(raw, std::ios::binary) << data;
  for (const std::string& got : {npy, raw + ":f32:40x11"}) {
    const DumpReport report = Compare(gold, got);
    EXPECT_EQ(report.outcome, Outcome::kPass) << got << report.why;
    EXPECT_EQ(report.figures.positions, 40) << got;
    EXPECT_EQ(report.figures.kl_max, 0) << got;
  }
  const DumpReport itself = Compare(raw + ":f32:40x11", raw + ":f32:40x11");
  EXPECT_EQ(itself.outcome, Outcome::kMistrusted);
  EXPECT_TRUE(itself.one_file);
}

// Index of the largest and second largest.
std::pair<size_t, size_t> TopTwo(const std::vector<float>& row) {
  size_t first = 0;
  for (size_t i = 1; i < row.size(); ++i) first = row[i] > row[first] ? i : first;
  size_t second = first == 0 ? 1 : 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (i != first && row[i] > row[second]) second = i;
  }
  return {first, second};
}

TEST_F(Dumps, AFlipIsExcusedByAStatedErrorOfHalfItsMargin) {
  Rows rows = Drawn(40, 11);
  auto& row = rows[17];
  const auto [top, second] = TopTwo(row);
  row[second] = row[top] - 0.01F;
  const std::string gold = Safetensors("gold", rows);
  // Either moves by a bit more than half the margin.
  row[top] -= 0.00501F;
  row[second] += 0.00501F;
  const std::string got = Safetensors("got", rows);
  const DumpReport report = Compare(gold, got);
  EXPECT_EQ(report.outcome, Outcome::kFail);
  ASSERT_EQ(report.flips.size(), 1u);
  EXPECT_EQ(report.flips[0].position, 17);
  EXPECT_EQ(report.flips[0].expected, static_cast<int64_t>(top));
  EXPECT_THAT(report.why, HasSubstr("position 17"));
  // Each of the two engines may be off by the error in each of two numbers: 4 errors.
  const double margin = report.flips[0].margin;
  const DumpReport stated = Compare(gold, got, margin / 4 * 1.02);
  EXPECT_EQ(stated.outcome, Outcome::kPass) << stated.why;
  EXPECT_THAT(Compare(gold, got, margin / 4 * (1 - 0x1p-10)).why, HasSubstr("1 flips"));
  // Beside an exact gold, only one of them: 2 errors.
  const auto of_got = [&](double error) {
    DumpQuestion question;
    question.gold = gold;
    question.got = got;
    question.got_error = error;
    return CompareDumps(question, {});
  };
  EXPECT_EQ(of_got(margin / 2 * 1.02).outcome, Outcome::kPass);
  EXPECT_THAT(of_got(margin / 2 * (1 - 0x1p-10)).why, HasSubstr("1 flips"));
}

TEST_F(Dumps, WhatARepeatedRunChangesIsNoFinding) {
  Rows rows = Drawn(40, 5);
  const auto [top, second] = TopTwo(rows[3]);
  rows[3][second] = rows[3][top] - 0.02F;
  const std::string gold = Safetensors("gold", rows);
  Rows again = rows;
  // The repeated run raises a second token by nearly its margin, the other engine by a bit more.
  again[3][second] += 0.0195F;
  rows[3][second] += 0.022F;
  const std::string repeated = Safetensors("again", again);
  const std::string got = Safetensors("got", rows);
  EXPECT_EQ(Compare(gold, got).outcome, Outcome::kFail);
  const DumpReport report = Compare(gold, got, std::nullopt, repeated);
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
  EXPECT_GT(*report.noise, 0);
  EXPECT_EQ(report.excused, 1);
  // The same of the other engine.
  DumpQuestion question;
  question.gold = gold;
  question.got = got;
  question.got_noise = *report.noise;
  EXPECT_EQ(CompareDumps(question, {}).outcome, Outcome::kPass);
}

TEST_F(Dumps, LlamasBaseIsWithinTheStepsOfItsRows) {
  for (const size_t vocabulary : {10U, 11U}) {
    const Rows rows = Drawn(9, vocabulary);
    const std::string path = Llama("base", rows);
    const auto dump = OpenLogitsDump(path);
    TokenDistribution position;
    for (size_t t = 0; t < rows.size(); ++t) {
      ASSERT_TRUE(dump->Read(&position));
      EXPECT_TRUE(position.complete);
      EXPECT_EQ(position.next, static_cast<int64_t>(t % 3));
      const std::vector<double> log_p = LogP(rows[t]);
      for (size_t i = 0; i < vocabulary; ++i) {
        EXPECT_TRUE(std::fabs(position.log_p[i] - log_p[i]) <= position.error);
      }
    }
    EXPECT_FALSE(dump->Read(&position));
    // Beside the logits themselves: nothing is a flip.
    EXPECT_EQ(Compare(Safetensors("logits", rows), path).outcome, Outcome::kPass);
  }
}

TEST_F(Dumps, TheReportIsTheSameForAnyNumberOfThreads) {
  Rows rows = Drawn(101, 11);
  const std::vector<std::string> golds = {Safetensors("gold", rows), Llama("gold_llama", rows),
                                          Vllm("gold_vllm", rows)};
  for (size_t t = 0; t < rows.size(); t += 7) {
    std::rotate(rows[t].begin(), rows[t].begin() + 1, rows[t].end());
  }
  const std::vector<std::string> gots = {Safetensors("got", rows), Llama("got_llama", rows),
                                         Vllm("got_vllm", rows)};
  for (size_t kind = 0; kind < golds.size(); ++kind) {
    DumpQuestion question;
    question.gold = golds[kind];
    question.got = gots[kind];
    question.noise = Copy("noise" + std::to_string(kind), golds[kind]);
    question.logit_error = 0.1;
    const DumpReport one = CompareDumps(question, {});
    EXPECT_EQ(one.flips.size(), 15u);
    EXPECT_EQ(one.flips[1].position, 7);
    const std::string expected = Json(question, one);
    for (const int threads : {2, 3, 16, 200}) {
      question.threads = threads;
      EXPECT_EQ(Json(question, CompareDumps(question, {})), expected) << threads;
    }
  }
  // Of several errors the first is said.
  for (const size_t t : {90U, 40U, 60U}) rows[t][0] = std::numeric_limits<float>::quiet_NaN();
  const std::string wrong = Safetensors("nan", rows);
  try {
    DumpQuestion question;
    question.gold = wrong;
    question.got = golds[0];
    question.threads = 8;
    CompareDumps(question, {});
    FAIL() << "a gold without numbers was compared";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("position 40 "));
  }
}

TEST_F(Dumps, ALlamaBaseThatWasCutShortIsRefused) {
  const std::string path = Llama("base", Drawn(9, 10));
  const std::string bytes = golden_samples::ReadBytes(path);
  for (const size_t left : {bytes.size() - 1, size_t{60}, size_t{19}, size_t{8}}) {
    golden_samples::WriteBytes(path, bytes.substr(0, left));
    EXPECT_NE(Refusal(path, path), "") << left;
  }
  std::string huge = bytes;
  const int32_t many = std::numeric_limits<int32_t>::max();
  std::memcpy(huge.data() + 12, &many, 4);
  golden_samples::WriteBytes(path, huge);
  EXPECT_THAT(Refusal(path, path), HasSubstr("header is damaged"));
}

TEST_F(Dumps, PromptLogprobsOfServersAreRead) {
  const Rows rows = Drawn(30, 7);
  const std::string vllm = Vllm("vllm", rows);
  json sglang = json::array({nullptr});
  for (const auto& row : rows) {
    json entry = json::array();
    const std::vector<double> log_p = LogP(row);
    for (size_t i = 0; i < row.size(); ++i) {
      if (log_p[i] >= -3) entry.push_back({log_p[i], i, nullptr});
    }
    sglang.push_back(entry);
  }
  const std::string other =
      Text("sglang", json{{"meta_info", {{"input_top_logprobs", sglang}}}}.dump());
  const DumpReport report = Compare(vllm, other);
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
  EXPECT_EQ(report.figures.positions, 30);
  EXPECT_TRUE(report.is_lower_bound);
  EXPECT_FALSE(report.has_next);
  EXPECT_EQ(report.largest, 0);
}

TEST_F(Dumps, LumpedKlIsALowerBoundOfTheWhole) {
  const Rows rows = Drawn(50, 9);
  Rows others = rows;
  for (auto& row : others) {
    for (size_t i = 0; i < row.size(); ++i) row[i] += 0.25F * static_cast<float>(i % 3);
  }
  const DumpReport whole = Compare(Safetensors("a", rows), Safetensors("b", others), 10);
  const DumpReport part = Compare(Vllm("c", rows), Vllm("d", others), 10);
  EXPECT_GT(part.figures.kl_mean.value, 0);
  EXPECT_LT(part.figures.kl_mean.value, whole.figures.kl_mean.value);
}

TEST_F(Dumps, KeptTopTokensAreASmallBaseThatAgrees) {
  const Rows rows = Drawn(64, 100);
  const std::string whole = Safetensors("whole", rows);
  const std::string kept = Path("kept");
  WriteTopTokens(OpenLogitsDump(whole).get(), 10, kept);
  EXPECT_LT(std::filesystem::file_size(kept), std::filesystem::file_size(whole) / 3);
  const DumpReport report = Compare(kept, whole);
  EXPECT_EQ(report.outcome, Outcome::kPass) << report.why;
  EXPECT_TRUE(report.is_lower_bound);
  EXPECT_EQ(report.flips.size(), 0u);
  EXPECT_TRUE(OpenLogitsDump(kept)->Description().find("most likely 10") != std::string::npos);
  EXPECT_THROW(WriteTopTokens(OpenLogitsDump(whole).get(), 101, kept), Error);
}

TEST_F(Dumps, AMarginThatTheTokensDoNotShowProvesNothing) {
  // The gold keeps two tokens; the other engine says a third one.
  const std::string gold = Text("gold", R"([null, {"0": -0.6, "1": -1.0}])");
  const std::string got = Text("got", R"([null, {"2": -0.6, "0": -1.0}])");
  EXPECT_EQ(Compare(gold, got, 0.01).outcome, Outcome::kFail);
  // 1 flip of 40 positions is less than the share that proves nothing.
  std::string many = R"([null, {"0": -1.0, "1": -1.1})",
              more = R"([null, {"2": -0.95, "0": -1.15})";
  for (int i = 0; i < 39; ++i) many += R"(, {"0": -0.1})", more += R"(, {"0": -0.1})";
  const DumpReport report = Compare(Text("gold", many + "]"), Text("got", more + "]"), 0.2);
  EXPECT_EQ(report.outcome, Outcome::kMistrusted);
  EXPECT_EQ(report.undecided, 1);
}

TEST_F(Dumps, TooManyExcusedFlipsProveNothing) {
  Rows rows = Drawn(20, 3);
  const std::string gold = Safetensors("gold", rows);
  for (size_t t = 0; t < 2; ++t) std::rotate(rows[t].begin(), rows[t].begin() + 1, rows[t].end());
  const DumpReport report = Compare(gold, Safetensors("got", rows), 100);
  EXPECT_EQ(report.flips.size(), 2u);
  EXPECT_EQ(report.outcome, Outcome::kMistrusted);
}

TEST_F(Dumps, ANanFailsAndIsNamed) {
  Rows rows = Drawn(10, 4);
  const std::string gold = Safetensors("gold", rows);
  rows[6][1] = std::numeric_limits<float>::quiet_NaN();
  const std::string got = Safetensors("got", rows);
  const DumpReport report = Compare(gold, got);
  EXPECT_EQ(report.outcome, Outcome::kFail);
  EXPECT_EQ(report.not_finite, 1);
  EXPECT_THAT(Refusal(got, gold), HasSubstr("position 6"));
}

TEST_F(Dumps, DumpsOfDifferentTextsAreRefused) {
  const std::string ten = Safetensors("ten", Drawn(10, 4));
  EXPECT_THAT(Refusal(ten, Safetensors("nine", Drawn(9, 4))), HasSubstr("ends after 9"));
  EXPECT_THAT(Refusal(ten, Safetensors("wide", Drawn(10, 5))), HasSubstr("5 tokens"));
  EXPECT_THAT(Refusal(ten, Llama("llama", Drawn(9, 4))), HasSubstr("ends after 9"));
  EXPECT_THAT(Refusal(Text("no", "{\"text\": 1}"), ten), HasSubstr("prompt_logprobs"));
  EXPECT_THAT(Refusal(Text("cut", R"([null, {"0": -0.6)"), ten), HasSubstr("ends within"));
  EXPECT_THAT(Refusal(Text("word", R"([{"the": -0.6}])"), ten), HasSubstr("is no token"));
}

TEST_F(Dumps, TheJsonSaysWhatTheTextSays) {
  const std::string path = Safetensors("self", Drawn(40, 6));
  DumpQuestion question;
  question.gold = path;
  question.got = Copy("copy", path);
  const DumpReport report = CompareDumps(question, {});
  const json written = json::parse(Json(question, report));
  EXPECT_EQ(written["schema"], kDumpSchema);
  EXPECT_EQ(written["outcome"], "PASS");
  EXPECT_EQ(written["judged"], true);
  EXPECT_EQ(written["gots"][0]["figures"]["positions"], 40);
  EXPECT_EQ(written["gots"][0]["probabilities"]["judged"], false);
  // Of 40 positions there is no interval.
  EXPECT_EQ(written["gots"][0]["figures"]["top1"]["low"], nullptr);
  EXPECT_THAT(FirstLine(question, report), HasSubstr("PASS, top-1 only"));
}

}  // namespace
}  // namespace kvcheck
