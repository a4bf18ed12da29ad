// kvcheck agree: options, reports, exit codes. What is measured: tests/tools/agree.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

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
  // A decoder of one layer with so many tokens.
  std::string TinyModel(int64_t vocabulary) {
    const std::string folder = Path("tiny");
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << json{
        {"model_type", "llama"},    {"vocab_size", vocabulary}, {"hidden_size", 64},
        {"intermediate_size", 64},  {"num_hidden_layers", 1},   {"num_attention_heads", 1},
        {"num_key_value_heads", 1}, {"head_dim", 64},           {"hidden_act", "silu"},
        {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},    {"tie_word_embeddings", true},
        {"bos_token_id", 1}};
    json header;
    std::string data;
    uint32_t state = 1;
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
      const size_t first = data.size();
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      for (int64_t i = 0; i < count; ++i) {
        state = state * 1664525U + 1013904223U;
        const float value =
            shape.size() == 1 ? 1 : static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {first, data.size()}}};
    };
    add("model.embed_tokens.weight", {vocabulary, 64});
    add("model.norm.weight", {64});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(fmt::format("model.layers.0.{}.weight", norm), {64});
    }
    for (const char* product :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      add(fmt::format("model.layers.0.{}.weight", product), {64, 64});
    }
    const std::string text = header.dump();
    const uint64_t bytes = text.size();
    std::ofstream file(folder + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    file << text << data;
    return folder;
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
  ExpectRefused(Agree({"--logits", Path("a"), Path("b"), "--logit-error", "1"}), "--judge");
  ExpectRefused(Agree({"--logits", Path("a"), "fp9=" + Path("b")}), "fp8@8=FILE");
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
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_EQ(report["outcome"], "MEASURED");
  const json got = report["gots"][0];
  EXPECT_EQ(got["figures"]["positions"], 40);
  EXPECT_EQ(got["text_is_known"], true);
  EXPECT_GT(got["figures"]["kl_mean"]["value"], 0);
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
  const std::string got = Write("got.json", R"([{"1": -0.2, "2": -2.0}])");
  for (const char* option : {"--logit-error", "--got-error", "--got-noise"}) {
    for (const char* value : {"nan", "inf", "-1", "x", "1e999"}) {
      const ToolRun run = Agree({"--logits", gold, got, "--judge", option, value});
      ExpectRefused(run, option);
      EXPECT_LT(run.err.size(), 200u) << run.err;
    }
    EXPECT_EQ(Agree({"--logits", gold, got, "--judge", option, "1e-3"}).exit_code, 0);
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

TEST_F(AgreeCommand, DumpsOfEnginesPassOrFailWhereAVerdictIsAskedFor) {
  const std::string gold = Write(
      "gold.json", R"({"prompt_logprobs": [null, {"1": -0.2, "2": -2}, {"1": -0.7, "2": -0.9}]})");
  const std::string same = Write(
      "same.json", R"({"prompt_logprobs": [null, {"2": -2, "1": -0.2}, {"1": -0.7, "2": -0.9}]})");
  const std::string got = Write(
      "got.json", R"({"prompt_logprobs": [null, {"1": -0.2, "2": -2}, {"1": -0.9, "2": -0.7}]})");
  const ToolRun passed = Agree({"--logits", gold, same, "--judge"});
  EXPECT_EQ(passed.exit_code, 0) << passed.out;
  EXPECT_TRUE(passed.out.starts_with("PASS, top-1 only: ")) << passed.out;
  const ToolRun run = Agree({"--logits", gold, got, "--judge"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.out.find("position 1: token 2 instead of 1"), std::string::npos) << run.out;
  // Half of all positions are excused: nothing is proved.
  EXPECT_EQ(Agree({"--logits", gold, got, "--judge", "--logit-error", "0.1"}).exit_code, 3);
  // Where none is asked for there are figures, which a flip does not make wrong.
  const ToolRun measured = Agree({"--logits", gold, got});
  EXPECT_EQ(measured.exit_code, 0) << measured.out;
  EXPECT_TRUE(measured.out.starts_with("MEASURED: figures and no verdict")) << measured.out;
  EXPECT_NE(measured.out.find("top-1       50.00 %\n"), std::string::npos) << measured.out;
}

TEST_F(AgreeCommand, ADumpBesideItselfIsMistrustedHoweverItIsNamed) {
  const std::string gold = Write("gold.json", R"([{"1": -0.2, "2": -2}])");
  std::filesystem::create_symlink(gold, Path("soft"));
  std::filesystem::create_hard_link(gold, Path("hard"));
  for (const std::string& got : {gold, Path("soft"), Path("hard")}) {
    const ToolRun run = Agree({"--logits", gold, got});
    EXPECT_EQ(run.exit_code, 3) << run.out;
    EXPECT_TRUE(run.out.starts_with("MISTRUSTED")) << run.out;
    EXPECT_NE(run.out.find("compared with itself"), std::string::npos) << run.out;
    EXPECT_EQ(Agree({"--logits", gold, got, "--judge"}).exit_code, 3);
  }
  std::filesystem::copy_file(gold, Path("copy"));
  const ToolRun copied = Agree({"--logits", gold, Path("copy")});
  EXPECT_EQ(copied.exit_code, 0) << copied.out;
  EXPECT_NE(copied.out.find("byte for byte GOLD"), std::string::npos) << copied.out;
}

TEST_F(AgreeCommand, CacheTypesStandInOneTableWithTheirBits) {
  const std::string gold = Write("f16.json", R"([{"1": -0.2, "2": -2}, {"1": -0.3, "2": -1.5}])");
  const std::string q8 = Write("q8.json", R"([{"1": -0.21, "2": -2}, {"1": -0.3, "2": -1.5}])");
  const std::string q4 = Write("q4.json", R"([{"1": -0.25, "2": -2}, {"1": -0.4, "2": -1.5}])");
  const std::string again =
      Write("again.json", R"([{"1": -0.2, "2": -2}, {"1": -0.3, "2": -1.51}])");
  const ToolRun run = Agree({"--logits", gold, "q8_0=" + q8, "q8_0,q4_0=" + q4, "--noise", again,
                             "--json", Path("r.json")});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const json report = json::parse(ContentOfFile("r.json"));
  EXPECT_EQ(report["gots"].size(), 2u);
  EXPECT_EQ(report["gots"][0]["bits_per_element"], 8.5);
  EXPECT_EQ(report["gots"][1]["bits_per_element"], 6.5);
  for (const char* text : {"cache", "gold again", "q8_0,q4_0", "6.5"}) {
    EXPECT_NE(run.out.find(text), std::string::npos) << run.out;
  }
  EXPECT_EQ(run.out.find('['), std::string::npos) << run.out;  // two positions have no interval
  ExpectRefused(Agree({"--logits", gold, q8, "q4_0=" + q8}), "are one file");
  ExpectRefused(Agree({"--logits", gold, q8, "--noise", q8}), "another run of GOLD's engine");
}

TEST_F(AgreeCommand, AnInterruptedRunWritesItsPartialReport) {
  // Of a model, as soon as it listens.
  const ToolRun run = Signalled(
      {"agree", "--model", kModel, "--text", kModel + "/held_out.txt", "--positions", "60000",
       "--format", "f16", "--no-times", "--json", Path("r.json"), "--write-logits", Path("l")},
      SIGINT, [](pid_t process) { return Catches(process, SIGINT); });
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
  EXPECT_NE(run.out.find("interrupted"), std::string::npos) << run.out;
  EXPECT_EQ(json::parse(ContentOfFile("r.json"))["interrupted"], true);
  EXPECT_NE(run.err.find("was not written"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(Path("l")));
}

TEST_F(AgreeCommand, ModelsWhoseTokensAreNoBytesAreGivenTokenIds) {
  const std::string model = TinyModel(300);
  const ToolRun text = Agree({"--model", model, "--text", kModel + "/held_out.txt"});
  ExpectRefused(text, "the model has 300 tokens, and a text is read as bytes");
  ExpectRefused(text, "--tokens");
  std::string ids = "[";
  for (int i = 0; i < 64; ++i) ids += fmt::format("{}{}", i == 0 ? "" : ", ", i * 37 % 300);
  const auto asked = [&](const std::string& file) {
    return Agree({"--model", model, "--tokens", file, "--positions", "32", "--context", "32",
                  "--format", "f32", "--no-times"});
  };
  const ToolRun run = asked(Write("ids.json", ids + "]"));
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(asked(Write("ids.txt", ids.substr(1))).out, run.out);
  ExpectRefused(asked(Write("more.json", "[1, 300]")), "token 1 is 300, and the model has 300");
  ExpectRefused(Agree({"--model", model, "--tokens", "a", "--text", "b"}), "--t");
}

TEST_F(AgreeCommand, GgufIsRefusedByItsName) {
  const std::string file = Write("m.bin", "GGUF\x03");
  std::filesystem::create_directories(Path("folder"));
  std::filesystem::copy_file(file, Path("folder/model.gguf"));
  for (const std::string& model : {file, Path("folder"), Path("folder/model.gguf")}) {
    ExpectRefused(Agree({"--model", model, "--text", file}), "GGUF is not read");
  }
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
