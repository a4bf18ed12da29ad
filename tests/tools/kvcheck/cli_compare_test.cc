// kvcheck compare of files without the schema: selection, rules, reports, exit codes.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "golden/hdf5_file.h"
#include "reference/formats/codec.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/stored_files.h"
#include "tools/compare/bless.h"

namespace kvcheck {
namespace {

TEST_F(CompareStored, WhatAgreesIsOneLine) {
  const ToolRun run = Compare(CacheTensors(3), CacheTensors(3));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "6 tensors: 6 passed; 6 compared by 1 rule, 1920 bytes; 240 elements judged\n");
  EXPECT_EQ(run.err, "");
  const ToolRun verbose = Again({"-v"});
  EXPECT_NE(verbose.out.find("PASS  /layers/0/keys"), std::string::npos) << verbose.out;
}

TEST_F(CompareStored, AFolderOfShardsIsComparedAsOneFile) {
  using golden_samples::SafetensorsBytes;
  const auto tensor = [](const std::string& name, int64_t first) {
    return fmt::format(R"("{}":{{"dtype":"U8","shape":[2],"data_offsets":[{},{}]}})", name, first,
                       first + 2);
  };
  golden_samples::WriteBytes(
      Path("one.safetensors"),
      SafetensorsBytes("{" + tensor("a", 0) + "," + tensor("b", 2) + "}", "\1\2\3\4"));
  std::filesystem::create_directory(Path("shards"));
  golden_samples::WriteBytes(Path("shards/1.safetensors"),
                             SafetensorsBytes("{" + tensor("a", 0) + "}", "\1\2"));
  golden_samples::WriteBytes(Path("shards/2.safetensors"),
                             SafetensorsBytes("{" + tensor("b", 0) + "}", "\3\5"));
  const ToolRun run = Tool({"compare", "one.safetensors", "shards"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.out.find("FAIL  /b  tensor[1]: got 5, expected 4"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("2 tensors: 1 passed, 1 failed; 2 compared"), std::string::npos);
  EXPECT_NE(run.out.find("kvcheck compare one.safetensors shards --include /b"), std::string::npos);
  EXPECT_EQ(Tool({"compare", "shards", "one.safetensors", "--exclude", "b"}).exit_code, 0);
  // The same files are no evidence.
  EXPECT_EQ(Tool({"compare", "shards", "shards"}).exit_code, 3);
  std::filesystem::create_directory(Path("empty"));
  const ToolRun empty = Tool({"compare", "empty", "shards"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_NE(empty.err.find("a folder without safetensors files"), std::string::npos) << empty.err;
}

TEST_F(CompareStored, FailureNamesTensorElementDistanceAndCommand) {
  TensorMap got = CacheTensors(3);
  got.at("/layers/1/keys").As<float>()[33] = std::nextafter(1033.0F, 2000.0F);
  const ToolRun run = Compare(CacheTensors(3), got);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(
      run.out.starts_with("FAIL  /layers/1/keys  tensor[b=0, hkv=1, t=3, dk=1]: got 1033.0001"))
      << run.out;
  EXPECT_NE(Compare(CacheTensors(3), got, {"-v"}).out.find("ulp: elements  0: 39, 1: 1"),
            std::string::npos);
  EXPECT_NE(run.out.find("kvcheck compare gold.h5 got.h5 --include /layers/1/keys\n"),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("6 tensors: 5 passed, 1 failed; 6 compared"), std::string::npos);
  // The command repeats it.
  EXPECT_EQ(Again({"--include", "/layers/1/keys"}).exit_code, 1);
  EXPECT_EQ(Again({"--exclude", "layers/1/*"}).exit_code, 0);
}

TEST_F(CompareStored, MissingAndExtraTensorsFailUnlessAllowed) {
  TensorMap gold = CacheTensors(2);
  TensorMap got = CacheTensors(2);
  gold["/old"] = Counting({{"", 2}}, 0);
  got["/new"] = Counting({{"", 2}}, 0);
  const ToolRun run = Compare(gold, got);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("FAIL  /new  extra: got.h5 has it, gold.h5 has not"), std::string::npos);
  EXPECT_NE(run.out.find("FAIL  /old  missing: gold.h5 has it, got.h5 has not"), std::string::npos);
  EXPECT_NE(run.out.find("6 tensors: 4 passed, 2 failed (1 missing, 1 extra); 4 compared"),
            std::string::npos)
      << run.out;
  EXPECT_EQ(Again({"--allow-missing", "old"}).exit_code, 1);
  EXPECT_EQ(Again({"--allow-extra", "new"}).exit_code, 1);
  const ToolRun allowed = Again({"--allow-missing", "old", "--allow-extra", "new"});
  EXPECT_EQ(allowed.exit_code, 0);
  EXPECT_NE(allowed.out.find("(1 missing as allowed, 1 extra as allowed)"), std::string::npos)
      << allowed.out;
}

TEST_F(CompareStored, RenamesMatchOtherSpellings) {
  TensorMap got;
  for (const auto& [path, tensor] : CacheTensors(2)) got["/model/h" + path.substr(8)] = tensor;
  EXPECT_EQ(Compare(CacheTensors(2), got, {"--map", "s#^model/h#layers/#"}).exit_code, 0);
  std::ofstream(Path("map.txt")) << "# names\ns#^model/h#layers/#\n";
  EXPECT_EQ(Again({"--map-file", "map.txt"}).exit_code, 0);
  EXPECT_EQ(Again({}).exit_code, 1);
  const ToolRun idle = Again({"--map", "s#^/layers#x#"});
  EXPECT_EQ(idle.exit_code, 2);
  EXPECT_NE(idle.err.find("changes no name"), std::string::npos) << idle.err;
  const ToolRun collision = Again({"--map", "s#h\\d#h#"});
  EXPECT_EQ(collision.exit_code, 2);
  EXPECT_NE(collision.err.find("/model/h0/keys and /model/h1/keys become /model/h/keys"),
            std::string::npos)
      << collision.err;
}

TEST_F(CompareStored, RulesDecidePerTensor) {
  TensorMap got = CacheTensors(2);
  Change(&got, "/layers/1/keys", 7, 0.25F);
  EXPECT_EQ(Compare(CacheTensors(2), got, {"--tol", "abs:0.25"}).exit_code, 0);
  EXPECT_EQ(Again({"--tol", "abs:0.125"}).exit_code, 1);
  std::ofstream(Path("r.txt")) << "*/keys abs:0.25\n";
  const ToolRun ruled = Again({"--rules", "r.txt"});
  EXPECT_EQ(ruled.exit_code, 0) << ruled.out;
  EXPECT_NE(ruled.out.find("4 compared by 2 rules"), std::string::npos) << ruled.out;
  std::ofstream(Path("tight.txt")) << "*/keys abs:0.125 reason=\"new kernel\"\n";
  const ToolRun tight = Again({"--rules", "tight.txt"});
  EXPECT_EQ(tight.exit_code, 1);
  EXPECT_NE(tight.out.find("(tight.txt:1: new kernel)"), std::string::npos) << tight.out;
  // What --tol asks for is loosened with a reason only.
  const ToolRun loose = Again({"--tol", "exact", "--rules", "r.txt"});
  EXPECT_EQ(loose.exit_code, 2);
  EXPECT_NE(loose.err.find("r.txt:1: 'abs:0.25,rel:0' may let pass what 'exact' (--tol)"),
            std::string::npos)
      << loose.err;
  std::ofstream(Path("idle.txt")) << "*/kyes abs:0.25\n";
  EXPECT_EQ(Again({"--rules", "idle.txt"}).exit_code, 2);
  std::ofstream(Path("bad.txt")) << "*/keys abs:0.25 because=x\n";
  EXPECT_NE(Again({"--rules", "bad.txt"}).err.find("bad.txt:1:17: unknown key 'because'"),
            std::string::npos);
  EXPECT_EQ(Again({"--rules", "absent.txt"}).exit_code, 2);
  EXPECT_EQ(Again({"--tol", "derived"}).exit_code, 2);
}

TEST_F(CompareStored, SliceComparesAPartAndKeepsItsCoordinates) {
  TensorMap got = CacheTensors(1);
  Change(&got, "/layers/0/keys", 33, 1);  // hkv=1, t=3, dk=1
  EXPECT_EQ(Compare(CacheTensors(1), got, {"--slice", "h=0"}).exit_code, 0);
  EXPECT_EQ(Again({"--slice", "t=0:3"}).exit_code, 0);
  const ToolRun run = Again({"--slice", "h=1,t=3"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("tensor[b=0, hkv=1, t=3, dk=1]"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("--slice h=1,t=3"), std::string::npos);
  for (const char* part : {"t=5", "x=0", "t=2:2", "4=0"}) {
    EXPECT_EQ(Again({"--slice", part}).exit_code, 2) << part;
  }
}

TEST_F(CompareStored, OtherTypeFailsUnlessItIsCastToOneThatHoldsBoth) {
  const Shape shape = {{"T", 9}};
  const Tensor wide = Counting(shape, 0);
  const Tensor narrow = Counting(shape, 0, DType::kBFloat16);
  EXPECT_EQ(Exit(wide, narrow), 1);
  EXPECT_EQ(Exit(wide, narrow, {"--cast", "float32"}), 0);
  EXPECT_EQ(Exit(narrow, wide, {"--cast", "f64"}), 0);
  EXPECT_EQ(Exit(wide, narrow, {"--cast", "bf16"}), 2);
  EXPECT_EQ(Exit(wide, narrow, {"--cast", "float31"}), 2);
  // 1/3 is another number in bf16.
  EXPECT_EQ(Exit(Values(DType::kFloat32, {{"", 1}}, {static_cast<double>(1.0F / 3)}),
                 Values(DType::kBFloat16, {{"", 1}}, {1.0 / 3}), {"--cast", "f32"}),
            1);
}

TEST_F(CompareStored, ShardsAreAPartitionAndAnEmptyOneIsNoPass) {
  TensorMap got = CacheTensors(8);
  Change(&got, "/layers/5/values", 0, 1);
  Write("gold.h5", CacheTensors(8));
  Write("got.h5", got);
  int failures = 0;
  int64_t compared = 0;
  for (int i = 1; i <= 3; ++i) {
    const ToolRun run = Again({"--shard", std::to_string(i) + "/3", "--json", "-"});
    failures += run.exit_code;
    compared += nlohmann::json::parse(run.out)["summary"]["tensors"]["compared"].get<int64_t>();
  }
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(compared, 16);
  EXPECT_EQ(Again({"--shard", "0/3"}).exit_code, 2);
  // /layers/0/keys is in the first of two parts.
  EXPECT_EQ(Again({"--include", "layers/0/keys", "--shard", "1/2"}).exit_code, 0);
  EXPECT_EQ(Again({"--include", "layers/0/keys", "--shard", "2/2"}).exit_code, 2);
}

TEST_F(CompareStored, BisectSkipsWhatCouldNotBeCompared) {
  TensorMap got = CacheTensors(1);
  Write("gold.h5", CacheTensors(1));
  Write("got.h5", got);
  EXPECT_EQ(Again({"--bisect"}).exit_code, 0);
  EXPECT_EQ(Again({"--bisect", "--include", "nothing"}).exit_code, 125);
  EXPECT_EQ(Again({"--bisect", "--no-such-option"}).exit_code, 125);
  EXPECT_EQ(Tool({"compare", "--bisect", "gold.h5", "absent.h5"}).exit_code, 125);
  Change(&got, "/layers/0/keys", 0, 1);
  Write("got.h5", got);
  EXPECT_EQ(Again({"--bisect"}).exit_code, 1);
  // MISTRUSTED proves nothing about a commit.
  EXPECT_EQ(Again({"--tol", "abs:100000"}).exit_code, 3);
  EXPECT_EQ(Again({"--bisect", "--tol", "abs:100000"}).exit_code, 125);
}

TEST_F(CompareStored, PatternsAcrossTensorsAreTrueSentences) {
  TensorMap got = CacheTensors(16);
  for (int i = 12; i < 16; ++i) Change(&got, "/layers/" + std::to_string(i) + "/values", 1, 1);
  const ToolRun run = Compare(CacheTensors(16), got);
  EXPECT_NE(run.out.find("pattern: only values, never keys\n"
                         "pattern: all layers from 12 on\n"),
            std::string::npos)
      << run.out;
  TensorMap shifted = CacheTensors(5);
  TensorMap swapped = CacheTensors(5);
  for (int i = 0; i < 5; ++i) {
    const std::string layer = "/layers/" + std::to_string(i);
    shifted[layer + "/keys"] = CacheTensors(6).at("/layers/" + std::to_string(i + 1) + "/keys");
    shifted[layer + "/values"] = CacheTensors(6).at("/layers/" + std::to_string(i + 1) + "/values");
    std::swap(swapped[layer + "/keys"], swapped[layer + "/values"]);
  }
  EXPECT_NE(Compare(CacheTensors(5), shifted)
                .out.find("layer i of GOT equals layer i+1 of GOLD, bit for bit (8 tensors)"),
            std::string::npos);
  EXPECT_NE(Compare(CacheTensors(5), swapped)
                .out.find("keys and values are swapped, bit for bit (10 tensors)"),
            std::string::npos);
}

TEST_F(CompareStored, ReportsDoNotDependOnThreads) {
  TensorMap got = CacheTensors(6);
  for (int i = 0; i < 6; ++i) Change(&got, "/layers/" + std::to_string(i) + "/keys", i, 1);
  got["/big"] = Counting({{"T", 300}, {"Dk", 999}}, 0);
  TensorMap gold = CacheTensors(6);
  gold["/big"] = Counting({{"T", 300}, {"Dk", 999}}, 0);
  Change(&got, "/big", 123456, 3);
  Write("gold.h5", gold);
  Write("got.h5", got);
  const ToolRun text = Again({"-j", "1"});
  const ToolRun json = Again({"-j", "1", "--json", "-"});
  EXPECT_EQ(json.exit_code, 1) << json.err;
  for (const char* threads : {"2", "5"}) {
    const ToolRun again = Again({"-j", threads});
    EXPECT_EQ(again.exit_code, 1) << threads << " threads: " << again.err;
    EXPECT_EQ(again.out, text.out);
    EXPECT_EQ(Again({"-j", threads, "--json", "-"}).out, json.out);
  }
}

TEST_F(CompareStored, JsonAndJunitHoldTheCounts) {
  TensorMap got = CacheTensors(2);
  got.erase("/layers/0/keys");
  Change(&got, "/layers/1/keys", 0, 1);
  Write("gold.h5", CacheTensors(2));
  Write("got.h5", got);
  const nlohmann::json report = nlohmann::json::parse(Again({"--json", "-"}).out);
  const nlohmann::json& tensors = report["summary"]["tensors"];
  EXPECT_EQ(tensors["compared"], 3);
  EXPECT_EQ(tensors["missing"], 1);
  EXPECT_EQ(tensors["extra"], 0);
  EXPECT_EQ(tensors["bytes"], 3 * 40 * 4 * 2);
  EXPECT_EQ(report["summary"]["failed"], 2);
  EXPECT_EQ(report["cases"][2]["outputs"][0]["worst"]["coordinates"], "[b=0, hkv=0, t=0, dk=0]");
  EXPECT_NE(Again({"--junit", "-"}).out.find("tests=\"4\" failures=\"2\""), std::string::npos);
}

TEST_F(CompareStored, ReportsDoNotOverwriteInputsOrEachOther) {
  ASSERT_EQ(Compare(CacheTensors(1), CacheTensors(1)).exit_code, 0);
  for (const char* option : {"--json", "--junit"}) {
    const std::string before = golden_samples::ReadBytes(Path("got.h5"));
    EXPECT_EQ(Again({option, Path("got.h5")}).exit_code, 2);
    EXPECT_EQ(golden_samples::ReadBytes(Path("got.h5")), before);
  }
  EXPECT_EQ(Again({"--json", "report", "--junit", "./report"}).exit_code, 2);
  EXPECT_EQ(Again({"--json", "/dev/null", "--junit", "/dev/null"}).exit_code, 0);
}

TEST_F(CompareStored, BlessWritesANewGoldenWithItsReason) {
  TensorMap gold = CacheTensors(1);
  TensorMap got;
  for (const auto& [path, tensor] : CacheTensors(1)) got["/new" + path] = tensor;
  Change(&got, "/new/layers/0/keys", 3, 0.5F);
  Change(&got, "/new/layers/0/keys", 5, std::numeric_limits<float>::quiet_NaN());
  got["/new/added"] = Counting({{"", 2}}, 0);
  gold["/removed"] = Counting({{"", 2}}, 0);
  const std::vector<std::string> rename = {"--map", "s#^new/##"};
  const auto bless = [&](std::vector<std::string> more) {
    more.insert(more.end(), rename.begin(), rename.end());
    return Again(more);
  };
  EXPECT_EQ(Compare(gold, got, {"--map", "s#^new/##", "--bless", "next.h5"}).exit_code, 2);
  EXPECT_EQ(bless({"--reason", "why"}).exit_code, 2);
  const ToolRun run = bless({"--bless", "next.h5", "--reason", "rounding was fixed"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(
      run.out,
      "added    /added  float32 2\n"
      "changed  /layers/0/keys  2 of 40 elements, at most by 0.5 (2.1e+06 ulp), NaN observed, "
      "a number expected: 1\n"
      "removed  /removed  float32 2\n"
      "next.h5: 3 tensors written, 1 as in GOLD bit for bit; reason: rounding was fixed\n");
  const std::string bytes = golden_samples::ReadBytes(Path("next.h5"));
  for (const char* text : {kBlessReason, kBlessCommand, kBlessGoldHash, kBlessGotHash,
                           "rounding was fixed", "--map 's#^new/##' --bless next.h5"}) {
    EXPECT_NE(bytes.find(text), std::string::npos) << text;
  }
  // It is the golden of this GOT, and keeps GOLD's axes.
  EXPECT_EQ(Tool({"compare", "next.h5", "got.h5", "--map", "s#^new/##"}).exit_code, 0);
  EXPECT_EQ(Hdf5File(Path("next.h5")).index().objects.at("/layers/0/keys").shape.axes[1].name,
            "Hkv");
  // No other file is overwritten; GOLD is, whole.
  EXPECT_EQ(bless({"--bless", "next.h5", "--reason", "again"}).exit_code, 2);
  EXPECT_EQ(bless({"--bless", "got.h5", "--reason", "again"}).exit_code, 2);
  EXPECT_EQ(bless({"--bless", "gold.h5", "--reason", "r", "--exclude", "added"}).exit_code, 2);
  EXPECT_EQ(bless({"--bless", "./gold.h5", "--reason", "r"}).exit_code, 0);
  EXPECT_EQ(bless({}).exit_code, 0);
}

TEST_F(CompareStored, CodecRuleJudgesByTheFormatsOwnBound) {
  std::vector<double> values(4 * 128);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(static_cast<float>(std::sin(0.7 * static_cast<double>(i))));
  }
  const Tensor x = Values(DType::kFloat32, {{"T", 4}, {"Dk", 128}}, values);
  // Rounded to f16, kept as f16 or as f32.
  Tensor half = Values(DType::kFloat16, x.shape, values);
  EXPECT_EQ(Exit(x, half, {"--tol", "codec:f16"}), 0);
  half.As<uint16_t>()[77] ^= 2;
  EXPECT_EQ(Exit(x, half, {"--tol", "codec:f16"}), 1);
  // Codes, scales and biases in place of the tensor, as mlx-lm names them.
  const KvFormat format = ParseKvFormat(WholeLine("affine:4:g64:f32"));
  TensorMap encoded = EncodeRows(format, Profile(), x);
  const auto named = [&] {
    return TensorMap{{"/0.0.0", encoded.at("codes")},
                     {"/0.0.1", encoded.at("scales")},
                     {"/0.0.2", encoded.at("biases")}};
  };
  const ToolRun run = Compare({{"/0.0", x}}, named(), {"--tol", "codec:affine:4:g64"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("1 tensor: 1 passed; 1 compared by 1 rule"), std::string::npos) << run.out;
  EXPECT_EQ(Again({}).exit_code, 1);  // without the rule: missing and extra tensors
  EXPECT_EQ(Again({"--tol", "codec:affine:4:g64", "--slice", "t=0"}).exit_code, 2);
  encoded.at("scales").As<float>()[3] *= 2;
  EXPECT_EQ(Compare({{"/0.0", x}}, named(), {"--tol", "codec:affine:4:g64"}).exit_code, 1);
}

TEST_F(CompareStored, FirstPassAndJudgeAgreeOnWhatPasses) {
  TensorMap got = CacheTensors(4);
  for (int i = 0; i < 4; ++i) Change(&got, "/layers/" + std::to_string(i) + "/keys", i, 0.25F);
  Change(&got, "/layers/2/values", 5, 0.5F);
  Write("gold.h5", CacheTensors(4));
  Write("got.h5", got);
  const auto report = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--json", "-"});
    return nlohmann::json::parse(Again(arguments).out);
  };
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--tol", "abs:0.25"},
                                             {"--tol", "ulp:100"},
                                             {"--tol", "rel:2^-12"},
                                             {"--tol", "abs:0.25", "--slice", "t=0:2"},
                                             {"--tol", "abs:5000"}}) {
    std::vector<std::string> full = arguments;
    full.insert(full.end(), {"--stats", "full"});
    const nlohmann::json fast = report(arguments);
    const nlohmann::json slow = report(full);
    EXPECT_EQ(fast["summary"], slow["summary"]);
    for (size_t i = 0; i < fast["cases"].size(); ++i) {
      const nlohmann::json& a = fast["cases"][i]["outputs"][0];
      const nlohmann::json& b = slow["cases"][i]["outputs"][0];
      for (const char* same : {"outcome", "rule", "shape", "counts", "special", "warnings"}) {
        EXPECT_EQ(a[same], b[same]) << i << " " << same;
      }
      for (const char* metric : {"finite", "max_abs", "max_rel", "max_ulp"}) {
        EXPECT_EQ(a["metrics"][metric], b["metrics"][metric]) << i << " " << metric;
      }
      EXPECT_EQ(a["metrics"]["cosine"].is_null(), a["outcome"] == "PASS") << i;
      EXPECT_FALSE(b["metrics"]["cosine"].is_null()) << i;
    }
  }
}

TEST_F(CompareStored, OptionsThatDoNotBelongTogetherAreRefused) {
  Write("gold.h5", CacheTensors(1));
  Write("got.h5", CacheTensors(1));
  const std::vector<std::vector<std::string>> refused = {
      {"--plan", "base=stranger"}, {"--impl", "x"},         {"--nan", "maybe"},
      {"--stats", "some"},         {"--map", "a=/b"},       {"--include", "["},
      {"--tol", "ulp:-1"},         {"--cast", "nothing"},   {"--allow-missing", "none*"},
      {"--shard", "3/2"},          {"--map-file", "absent"}};
  for (const auto& arguments : refused) {
    const ToolRun run = Again(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments[0] << run.out;
    EXPECT_TRUE(run.err.starts_with("kvcheck: error: ")) << run.err;
  }
}

}  // namespace
}  // namespace kvcheck
