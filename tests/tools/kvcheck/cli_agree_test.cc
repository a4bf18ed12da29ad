// kvcheck agree: options, reports, exit codes. What is measured: tests/tools/agree.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

using nlohmann::json;

const std::string kModel = KVCHECK_SOURCE_DIR "/golden/model";

class AgreeCommand : public ToolTest {
 protected:
  ToolRun Agree(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "agree");
    return Tool(arguments);
  }
  ToolRun OfModel(std::vector<std::string> arguments) {
    for (const std::string& word : {std::string("--model"), kModel, std::string("--text"),
                                    kModel + "/held_out.txt", std::string("--no-times")}) {
      arguments.push_back(word);
    }
    return Agree(std::move(arguments));
  }
  void ExpectRefused(const ToolRun& run, const std::string& message) {
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
  }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  // The trained model with weights that are all of these two bytes.
  std::string ModelOf(const std::string& weight) {
    std::filesystem::create_directories(Path("model"));
    std::filesystem::copy_file(kModel + "/config.json", Path("model/config.json"),
                               std::filesystem::copy_options::overwrite_existing);
    std::ifstream file(kModel + "/model.safetensors", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    for (size_t i = 8 + header; i < bytes.size(); ++i) bytes[i] = weight[i % 2];
    std::ofstream(Path("model/model.safetensors"), std::ios::binary) << bytes;
    return Path("model");
  }
};

TEST_F(AgreeCommand, APathThatIsRightPassesAndReportsBothWays) {
  const ToolRun run = OfModel(
      {"--format", "q8_0", "--positions", "40", "--json", Path("a.json"), "--plot", Path("a.svg")});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("quality"), std::string::npos);
  EXPECT_NE(run.out.find("\nPASS\n"), std::string::npos);
  const json report = json::parse(ContentOfFile("a.json"));
  EXPECT_EQ(report["storages"][0]["k"], "q8_0");
  EXPECT_EQ(report["positions"], 40);
  // A point a panel, with its figure.
  const std::string plot = ContentOfFile("a.svg");
  EXPECT_EQ(plot.substr(0, 4), "<svg");
  const double kl = report["storages"][0]["quality"]["kl_mean"]["value"];
  EXPECT_NE(plot.find(fmt::format("q8_0: 8.5 bits, {:.4g}", kl)), std::string::npos);
  const ToolRun again = OfModel({"--format", "q8_0", "--positions", "40", "-j", "1"});
  EXPECT_EQ(again.out, run.out);
}

TEST_F(AgreeCommand, AFaultFailsAndNamesItsLayer) {
  const ToolRun run = OfModel({"--format", "f16", "--positions", "40", "--impl",
                               "fault:k_scale_of_one_head", "--json", "-"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const json first = json::parse(run.out)["storages"][0]["first"];
  EXPECT_EQ(first["layer"], 2);
  EXPECT_EQ(first["step"], "stored k");
  EXPECT_EQ(first["head"], 1);
}

TEST_F(AgreeCommand, WhatCannotBeAskedIsRefused) {
  ExpectRefused(OfModel({"--impl", "fault:left_padding_off_by_one"}), "--batch 2");
  ExpectRefused(OfModel({"--impl", "fault:none"}), "fault:last_key_dropped");
  ExpectRefused(OfModel({"--layout", "spiral"}), "linear, ring");
  ExpectRefused(OfModel({"--format", "q9_0"}), "q9_0");
  ExpectRefused(OfModel({"--positions", "200000"}), "ask for fewer");
  ExpectRefused(Agree({"--model", Path("none"), "--text", kModel + "/held_out.txt"}),
                "config.json");
  ExpectRefused(Agree({"--logits", Path("a")}), "--logits");
  ExpectRefused(Agree({"--logits", Path("a"), Path("b")}), Path("a"));
  ExpectRefused(Agree({"--model", "/nonexistent", "--text", kModel + "/held_out.txt"}),
                "/nonexistent: there is no such file");
  ExpectRefused(Agree({"--noise", Path("a")}), "--logits");
  ExpectRefused(Agree({"--keep", Path("a")}), "--out");
}

TEST_F(AgreeCommand, WrittenLogitsAreAGoldForEngines) {
  const std::string full = Path("full.safetensors");
  const std::string stored = Path("stored.safetensors");
  const ToolRun alone = OfModel({"--positions", "40", "--write-logits", full});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(alone.out, "");
  EXPECT_EQ(OfModel({"--positions", "40", "--format", "q8_0", "--write-logits", stored}).exit_code,
            0);
  const ToolRun compared = Agree({"--logits", full, stored, "--json", "-"});
  const json report = json::parse(compared.out);
  EXPECT_EQ(report["figures"]["positions"], 40);
  EXPECT_EQ(report["text_is_known"], true);
  EXPECT_GT(report["figures"]["kl_mean"]["value"], 0);
  ExpectRefused(OfModel({"--format", "q8_0", "--format", "q4_0", "--write-logits", full}),
                "name one --format");
  ExpectRefused(OfModel({"--write-logits", kModel + "/held_out.txt"}), "--write-logits");
}

TEST_F(AgreeCommand, AnOptionThatWouldNotBeLookedAtIsRefused) {
  const std::string gold = Write("gold.json", R"([{"1": -0.2, "2": -2}])");
  const std::vector<std::vector<std::string>> of_model = {{"--impl", "fault:last_key_dropped"},
                                                          {"--positions", "5"},
                                                          {"--format", "f32"},
                                                          {"--layout", "ring"},
                                                          {"--batch", "2"},
                                                          {"--context", "5"},
                                                          {"--chunk", "5"},
                                                          {"--model", kModel},
                                                          {"--text", gold},
                                                          {"--no-times"},
                                                          {"--plot", "p.svg"},
                                                          {"--write-logits", "l"}};
  for (const std::vector<std::string>& option : of_model) {
    SCOPED_TRACE(option[0]);
    std::vector<std::string> logits = {"--logits", gold, gold};
    std::vector<std::string> keep = {"--keep", gold, "--top", "1", "--out", Path("kept")};
    logits.insert(logits.end(), option.begin(), option.end());
    keep.insert(keep.end(), option.begin(), option.end());
    ExpectRefused(Agree(logits), option[0]);
    ExpectRefused(Agree(keep), option[0]);
  }
  ExpectRefused(Agree({"--keep", gold, "--top", "1", "--out", Path("kept"), "--json", "-"}),
                "--json");
  ExpectRefused(OfModel({"--top", "3"}), "--keep");
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"--json", Path("j")},
                                             {"--plot", Path("p")},
                                             {"--layout", "ring"},
                                             {"--impl", "fault:last_key_dropped"}}) {
    ExpectRefused(
        OfModel({"--positions", "5", "--write-logits", Path("full"), option[0], option[1]}),
        option[0]);
  }
  EXPECT_FALSE(std::filesystem::exists(Path("kept")) || std::filesystem::exists(Path("full")));
}

TEST_F(AgreeCommand, AnErrorThatIsNoNumberIsRefusedInAFewWords) {
  const std::string gold = Write("gold.json", R"([{"1": -0.2, "2": -2}])");
  for (const char* option : {"--logit-error", "--got-error"}) {
    for (const char* value : {"nan", "inf", "-1", "x", "1e999"}) {
      const ToolRun run = Agree({"--logits", gold, gold, option, value});
      ExpectRefused(run, option);
      EXPECT_LT(run.err.size(), 200u) << run.err;
    }
    EXPECT_EQ(Agree({"--logits", gold, gold, option, "1e-3"}).exit_code, 0);
  }
}

TEST_F(AgreeCommand, AFaultThatCannotShowIsRefused) {
  const auto asked = [&](const char* fault, const char* positions) {
    return OfModel({"--format", "f32", "--context", positions, "--positions", positions, "--impl",
                    fault, "-j", "1024"});
  };
  ExpectRefused(asked("fault:v_rows_swapped", "1"), "--positions");
  ExpectRefused(asked("fault:rope_offset_after_trim", "7"), "--positions");
  EXPECT_EQ(asked("fault:v_rows_swapped", "2").exit_code, 1);
  EXPECT_EQ(asked("fault:rope_offset_after_trim", "8").exit_code, 1);
  for (const char* fault : {"fault:last_key_dropped", "fault:k_scale_of_one_head"}) {
    EXPECT_EQ(asked(fault, "1").exit_code, 1) << fault;
  }
  // Rows of one token each, and of two and one.
  const auto padded = [&](const char* positions) {
    return OfModel({"--format", "f32", "--context", "2", "--positions", positions, "--batch", "2",
                    "--impl", "fault:left_padding_off_by_one"});
  };
  ExpectRefused(padded("2"), "no row has padding");
  EXPECT_EQ(padded("3").exit_code, 1);
}

TEST_F(AgreeCommand, OfWeightsThatSayNothingNothingIsProved) {
  const auto asked = [&](const std::string& model) {
    return Agree({"--model", model, "--text", kModel + "/held_out.txt", "--positions", "16",
                  "--context", "16", "--format", "f32", "--no-times"});
  };
  const ToolRun zeros = asked(ModelOf(std::string(2, '\0')));
  EXPECT_EQ(zeros.exit_code, 3) << zeros.out << zeros.err;
  EXPECT_NE(zeros.out.find("MISTRUSTED"), std::string::npos) << zeros.out;
  ExpectRefused(asked(ModelOf("\x80\x7f")), "is NaN or infinite at element 0");
  ExpectRefused(asked(ModelOf("\xc0\x7f")), "model/model.safetensors: ");
}

TEST_F(AgreeCommand, TheTrainedModelIsFoundBesideTheProgramOrItsPlaceIsSaid) {
  // In a folder of the test, far from the sources.
  const ToolRun run = Agree({"--positions", "16", "--context", "16", "--format", "f32"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::filesystem::create_directories(Path("bin"));
  std::filesystem::copy_file(program(), Path("bin/kvcheck"));
  UseProgram(Path("bin/kvcheck"));
  ExpectRefused(Agree({"--positions", "16"}), "share/kvcheck/model");
  ExpectRefused(Agree({"--model", kModel}), "give --model FOLDER and --text FILE");
}

TEST_F(AgreeCommand, DumpsOfEnginesPassOrFail) {
  const std::string gold = Write(
      "gold.json", R"({"prompt_logprobs": [null, {"1": -0.2, "2": -2}, {"1": -0.7, "2": -0.9}]})");
  const std::string got = Write(
      "got.json", R"({"prompt_logprobs": [null, {"1": -0.2, "2": -2}, {"1": -0.9, "2": -0.7}]})");
  EXPECT_EQ(Agree({"--logits", gold, gold}).exit_code, 0);
  const ToolRun run = Agree({"--logits", gold, got});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.out.find("position 1: token 2 instead of 1"), std::string::npos) << run.out;
  // Half of all positions are excused: nothing is proved.
  EXPECT_EQ(Agree({"--logits", gold, got, "--logit-error", "0.1"}).exit_code, 3);
}

TEST_F(AgreeCommand, KeptTokensAgreeWithWhatTheyWereKeptFrom) {
  const std::string gold =
      Write("gold.json", R"([{"1": -0.2, "2": -2, "3": -4}, {"5": -0.1, "6": -3, "7": -4}])");
  EXPECT_EQ(Agree({"--keep", gold, "--top", "2", "--out", Path("kept")}).exit_code, 0);
  const ToolRun run = Agree({"--logits", Path("kept"), gold});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("at least"), std::string::npos);
}

}  // namespace
}  // namespace kvcheck
