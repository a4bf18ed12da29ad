// kvcheck bench: options, reports, errors. Times are never looked at.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "reference/spec/kv_format.h"
#include "reference/spec/token_groups.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

using nlohmann::json;

class Bench : public ToolTest {
 protected:
  void ExpectBenchRefused(std::vector<std::string> arguments, const std::string& message) {
    arguments.insert(arguments.begin(), "bench");
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2) << testing::PrintToString(arguments) << run.out << run.err;
    EXPECT_EQ(run.out, "") << testing::PrintToString(arguments);
    EXPECT_NE(run.err.find(message), std::string::npos)
        << testing::PrintToString(arguments) << run.err;
  }
  json JsonOf(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--json", "-"});
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return json::parse(run.out);
  }
};

std::string SourceFile(const std::string& path) {
  return (std::filesystem::path(KVCHECK_SOURCE_DIR) / path).string();
}

TEST_F(Bench, OptionsReachTheMeasurement) {
  const json report = JsonOf({"formats",
                              "--format",
                              "q8_0",
                              "--format",
                              "affine:[48]:g64:bf16",
                              "--head-dim",
                              "192",
                              "--rows",
                              "33",
                              "--data",
                              "cauchy",
                              "--type",
                              "bf16",
                              "--queries",
                              "2",
                              "--seed",
                              "9",
                              "--profile",
                              "decode=one_rounding",
                              "--no-times",
                              "-j",
                              "2"});
  EXPECT_EQ(report["k_dim"], 192);
  EXPECT_EQ(report["tokens"], 33);
  EXPECT_EQ(report["data"], "cauchy");
  EXPECT_EQ(report["dtype"], "bf16");
  EXPECT_EQ(report["queries"], 2);
  EXPECT_EQ(report["seed"], 9);
  EXPECT_EQ(report["profile"], "decode=one_rounding");
  ASSERT_EQ(report["formats"].size(), 3);
  EXPECT_EQ(report["formats"][0]["format"], "q8_0");
  EXPECT_EQ(report["formats"][1]["format"], "affine:4:g64:bf16");
  for (const json& format : report["formats"]) {
    EXPECT_EQ(format["rows"]["elements"], 2 * 33 * 192);
    EXPECT_EQ(format["attention"]["elements"], 2 * 192);
    EXPECT_TRUE(format["speed"].is_null());
  }
  const json timed = JsonOf({"formats", "--format", "q8_0", "--rows", "8", "--rounds", "1"});
  EXPECT_GT(timed["formats"][0]["speed"]["decode_ns_per_element"].get<double>(), 0);
}

TEST_F(Bench, EveryFormatOfTheBuildIsMeasured) {
  const json report =
      JsonOf({"formats", "--format", "*", "--rows", "2", "--queries", "1", "--no-times"});
  std::vector<std::string> measured;
  for (const json& format : report["formats"]) measured.push_back(format["format"]);
  std::vector<std::string> all;
  for (const KvFormat& format : AllKvFormats()) {
    const Planes planes = PlanesOf(format, FitsHeadDim(format, 128) ? 128 : BlockOf(format));
    const bool whole = std::all_of(planes.begin(), planes.end(), [](const Plane& plane) {
      return plane.scope == PlaneScope::kRow;
    });
    if (!GroupsTokens(format) && FitsHeadDim(format, 128) && whole) all.push_back(Print(format));
  }
  EXPECT_EQ(measured, all);
}

TEST_F(Bench, FiguresAreTheSameInEveryRun) {
  const auto printed = [&](const char* threads) {
    return Tool({"bench", "formats", "--rows", "300", "--no-times", "-j", threads}).out;
  };
  const std::string once = printed("1");
  EXPECT_NE(once.find("affine:4:g64:f16"), std::string::npos);
  EXPECT_EQ(printed("1"), once);
  EXPECT_EQ(printed("4"), once);
  const auto caches = [&] {
    json report =
        JsonOf({"kv-cache", "--layers", "2", "--seq-len", "40", "--rounds", "1", "--format", "q*"});
    for (json& cache : report["caches"]) {
      for (const char* differs : {"quantize", "dequantize", "resident_peak_bytes"}) {
        EXPECT_EQ(cache.erase(differs), 1) << differs;
      }
    }
    return report;
  };
  EXPECT_EQ(caches(), caches());
}

TEST_F(Bench, PublishedCompressionsStandInTheirColumns) {
  const json report = JsonOf({"formats", "--rows", "2", "--no-times", "--format",
                              "affine:[48]:g64:f32", "--format", "affine:[48]:g64:f16"});
  const auto ratio = [&](size_t i, const char* base) {
    return report["formats"][i][std::string("compression_of_") + base].get<double>();
  };
  EXPECT_EQ(ratio(1, "f32"), 32 / 9.0);
  EXPECT_EQ(ratio(0, "f32"), 6.4);
  EXPECT_EQ(ratio(3, "16_bits"), 16 / 8.5);
  EXPECT_EQ(ratio(2, "16_bits"), 16 / 4.5);
  const ToolRun run =
      Tool({"bench", "formats", "--rows", "2", "--no-times", "--format", "affine:8:g64:f32"});
  EXPECT_NE(run.out.find("3.556x"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("1.778x"), std::string::npos) << run.out;
}

TEST_F(Bench, RowsOfAFileAreMeasured) {
  const std::string file = SourceFile("golden/dumps/by_hand.safetensors");
  const json report = JsonOf({"formats", "--no-times", "--format", "q4_0", "--format", "f32",
                              "--tensor", file + ":key", "--tensor", file + ":/value"});
  EXPECT_EQ(report["heads"], 4);  // 2 rows of the batch of 2 heads
  EXPECT_EQ(report["tokens"], 9);
  EXPECT_EQ(report["k_dim"], 32);
  EXPECT_EQ(report["data"], file + ":key, " + file + ":/value");
  EXPECT_GT(report["formats"][0]["rows"]["mean"].get<double>(), 0);
  EXPECT_EQ(report["formats"][1]["rows"]["max"], 0);
  EXPECT_EQ(report["formats"][1]["rows"]["elements"], 2 * 4 * 9 * 32);
  // One alone is K and V.
  const json both =
      JsonOf({"formats", "--no-times", "--format", "q4_0", "--tensor", file + ":key"});
  EXPECT_NE(both["formats"][0]["rows"]["mean"], report["formats"][0]["rows"]["mean"]);
}

TEST_F(Bench, PlotIsDrawnBesideTheTable) {
  const ToolRun run = Tool({"bench", "formats", "--rows", "4", "--no-times", "--format", "q*",
                            "--plot", "plot.svg", "--json", "report.json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("q8_0"), std::string::npos);
  pugi::xml_document svg;
  ASSERT_TRUE(svg.load_string(ContentOfFile("plot.svg").c_str()));
  const size_t formats = json::parse(ContentOfFile("report.json"))["formats"].size();
  EXPECT_GE(formats, 2);
  EXPECT_EQ(svg.select_nodes("//circle").size(), 2 * formats);
}

// Between two looks of the work lies what takes much longer than a second: drawing rows, rounds of
// timing.
TEST_F(Bench, AnInterruptedRunReportsWhatItMeasured) {
  const ToolRun nothing = Signalled({"bench", "formats", "--rows", "200000", "--format", "f16",
                                     "--no-times", "--json", "report.json", "--plot", "plot.svg"},
                                    SIGINT, [](pid_t tool) { return Catches(tool, SIGINT); });
  EXPECT_EQ(nothing.exit_code, 130) << nothing.out << nothing.err;
  EXPECT_EQ(nothing.out, "interrupted before anything was measured\n");
  json report = json::parse(ContentOfFile("report.json"));
  EXPECT_EQ(report["interrupted"], true);
  EXPECT_TRUE(report["formats"].empty()) << report;
  EXPECT_FALSE(std::filesystem::exists(Path("plot.svg")));

  const auto has_worked = [](pid_t tool) { return ProcessorSeconds(tool) >= 1; };
  const ToolRun formats =
      Signalled({"bench", "formats", "--rows", "8", "--queries", "1", "--head-dim", "64",
                 "--format", "q*", "--rounds", "10000", "-j", "1", "--json", "report.json"},
                SIGTERM, has_worked);
  EXPECT_EQ(formats.exit_code, 130) << formats.out << formats.err;
  EXPECT_TRUE(formats.out.starts_with("INTERRUPTED, this is partial: ")) << formats.out;
  EXPECT_NE(formats.out.find("\n  q8_0 "), std::string::npos) << formats.out;
  report = json::parse(ContentOfFile("report.json"));
  EXPECT_EQ(report["interrupted"], true);
  ASSERT_FALSE(report["formats"].empty());
  for (const json& format : report["formats"]) {
    EXPECT_EQ(format["heads"], 1);
    EXPECT_EQ(format["rows"]["elements"], 2 * 8 * 64);
  }

  const ToolRun caches =
      Signalled({"bench", "kv-cache", "--layers", "1", "--seq-len", "64", "--format", "q8_0",
                 "--rounds", "10000", "--json", "report.json"},
                SIGINT, has_worked);
  EXPECT_EQ(caches.exit_code, 130) << caches.out << caches.err;
  EXPECT_TRUE(caches.out.starts_with("INTERRUPTED, this is partial: 1 of 1 caches, "))
      << caches.out;
  report = json::parse(ContentOfFile("report.json"));
  EXPECT_EQ(report["interrupted"], true);
  ASSERT_EQ(report["caches"].size(), 1);
  EXPECT_GT(report["caches"][0]["rounds"], 0);
  EXPECT_LT(report["caches"][0]["rounds"], 10000);
  EXPECT_EQ(report["caches"][0]["errors"]["elements"], 2 * 8 * 64 * 128);
}

TEST_F(Bench, KvCacheTakesItsShape) {
  const json report = JsonOf({"kv-cache", "--layers", "3", "--heads", "6", "--kv-heads", "2",
                              "--head-dim", "64", "--seq-len", "5,17", "--type", "bf16", "--format",
                              "q4_0", "--rounds", "1", "--seed", "4"});
  EXPECT_EQ(report["heads"], 6);
  ASSERT_EQ(report["caches"].size(), 2);
  EXPECT_EQ(report["caches"][0]["seq_len"], 5);
  EXPECT_EQ(report["caches"][1]["original_bytes"], 3 * 2 * 2 * 17 * 64 * 2);
  EXPECT_EQ(report["caches"][1]["stored_bytes"], 3 * 2 * 2 * 17 * 2 * 18);
  const ToolRun run = Tool({"bench", "kv-cache", "--layers", "2", "--seq-len", "8,16", "--format",
                            "q4_0", "--rounds", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("16 tokens"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("of 8 to 16 tokens"), std::string::npos) << run.out;
}

TEST_F(Bench, JudgeMeasuresEachCasePlanAndRule) {
  const std::string types = " q=bf16 k=bf16 v=bf16 out=bf16 ";
  const json report =
      JsonOf({"judge", "--case", "attention hq=4 hkv=2 l=3 t=33 d=32" + types + "data=gauss:1",
              "--case", "attention hq=1 hkv=1 l=5 t=17 d=64" + types + "data=gauss:2", "--plan",
              "base=torch_cpu_math", "--rounds", "2"});
  EXPECT_EQ(report["interrupted"], false);
  ASSERT_EQ(report["judged"].size(), 4);  // two cases by two rules
  const std::vector<std::string> rules = {"bound", "statistics", "bound", "statistics"};
  for (size_t i = 0; i < rules.size(); ++i) {
    const json& one = report["judged"][i];
    EXPECT_EQ(one["elements"], i < 2 ? 4 * 3 * 32 : 5 * 64);
    EXPECT_EQ(one["plan"], "base=torch_cpu_math");
    EXPECT_EQ(one["rule"], rules[i]);
    EXPECT_EQ(one["outcome"], "PASS");
    EXPECT_EQ(one["rounds"], 2);
    EXPECT_GT(one["processor"]["ns_per_element"], 0);
  }
  const ToolRun run =
      Tool({"bench", "judge", "--case",
            "attention hq=1 hkv=1 l=5 t=17 d=64" + types + "data=gauss:2", "--rounds", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("\n320 elements\n"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("base=flash_attention_2"), std::string::npos) << run.out;
}

TEST_F(Bench, JudgeInterruptedReportsWhatItHas) {
  const ToolRun run =
      Signalled({"bench", "judge", "--rounds", "10000", "--json", "report.json"}, SIGINT,
                [](pid_t tool) { return Catches(tool, SIGINT) && ProcessorSeconds(tool) > 0; });
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
  const json report = json::parse(ContentOfFile("report.json"));
  EXPECT_EQ(report["interrupted"], true);
  EXPECT_EQ(run.out.find("INTERRUPTED, this is partial: "), 0) << run.out;
}

TEST_F(Bench, BadInputIsNamed) {
  const std::string file = SourceFile("golden/dumps/by_hand.safetensors");
  ExpectBenchRefused({}, "subcommand");
  ExpectBenchRefused({"formatz"}, "did you mean 'formats'?");
  ExpectBenchRefused({"formats", "--format", "q9_0"}, "did you mean 'q8_0'?");
  ExpectBenchRefused({"formats", "--format", "q9*"}, "no format");
  ExpectBenchRefused({"formats", "--format", ""}, "the value is empty");
  ExpectBenchRefused({"formats", "--format", "q8_0", "--head-dim", "40"}, "head_dim 40");
  ExpectBenchRefused({"formats", "--head-dim", "0"}, "--head-dim");
  ExpectBenchRefused({"formats", "--rows", "-1"}, "--rows");
  ExpectBenchRefused({"formats", "--rows", "many"}, "--rows");
  ExpectBenchRefused({"formats", "--data", "gaus"}, "did you mean 'gauss'?");
  ExpectBenchRefused({"formats", "--type", "f64"}, "--type");
  ExpectBenchRefused({"formats", "--profile", "decode=mlx"}, "two_roundings");
  ExpectBenchRefused({"formats", "--rounds", "0"}, "--rounds");
  ExpectBenchRefused({"formats", "--json", "x", "--plot", "x"}, "two reports");
  ExpectBenchRefused({"formats", "--json", "-", "--plot", "-"}, "standard output");
  ExpectBenchRefused({"formats", "--tensor", file + ":key", "--rows", "3"}, "excludes");
  ExpectBenchRefused({"formats", "--tensor", file}, "FILE:NAME");
  ExpectBenchRefused({"formats", "--tensor", file + ":keys"}, "the file has /attn_output, /key");
  ExpectBenchRefused({"formats", "--tensor", "no.h5:k"}, "no.h5");
  ExpectBenchRefused({"formats", "--tensor", file + ":key", "--tensor", file + ":query"},
                     "as many heads and tokens");
  ExpectBenchRefused({"formats", "--tensor", file + ":key", "--json", file}, "is an input");
  ExpectBenchRefused({"kv-cache", "--heads", "3", "--kv-heads", "2"}, "multiple");
  ExpectBenchRefused({"kv-cache", "--seq-len", "8,0"}, "--seq-len");
  ExpectBenchRefused({"kv-cache", "--layers", "10000", "--seq-len", "10000000"}, "do not fit");
  ExpectBenchRefused({"kv-cache", "--type", "f8e4m3fn"}, "--type");
  ExpectBenchRefused(
      {"judge", "--case", "attention hq=1 hkv=1 l=1 t=4 d=8 q=f32 k=f32 v=f32 out=f32 data=file"},
      "write data=REGIME:SEED");
  ExpectBenchRefused(
      {"judge", "--case", "codec op=encode format=q8_0 x=f32 rows=1 d=32 data=gauss:1"},
      "no case of attention");
  ExpectBenchRefused({"judge", "--case", "attention hq=x"}, "hq");
  ExpectBenchRefused({"judge", "--plan", "base=flash_attention_22"}, "flash_attention_2");
  ExpectBenchRefused({"judge", "--rounds", "0"}, "--rounds");
}

}  // namespace
}  // namespace kvcheck
