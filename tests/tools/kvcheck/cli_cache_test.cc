// kvcheck run on traces of cache operations, and what other commands say about them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/kvcheck/tool_process.h"
#include "tools/faults/cache_faults.h"

namespace kvcheck {
namespace {

class CacheCommand : public ToolTest {};

constexpr const char* kTrace =
    "cache k=f32 dk=8 hkv=2 hq=4 data=tokens:1; new A rows=2; append A 3; attend A; trim A 1";

TEST_F(CacheCommand, ModelPassesItsOwnTrace) {
  const ToolRun run = Tool({"run", kTrace, "--impl", "model"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("PASS  cache  4 operations")) << run.out;
}

TEST_F(CacheCommand, OptimizedCachesPassAndAreNamed) {
  const ToolRun run = Tool({"run", kTrace, "--impl", "optimized", "-v"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("PASS  cache  4 operations")) << run.out;
  EXPECT_NE(run.out.find("optimized"), std::string::npos) << run.out;
}

TEST_F(CacheCommand, EveryFaultFailsAndTheReportNamesTheLastOperation) {
  for (const CacheFault& fault : CacheFaults()) {
    const std::string trace(fault.smallest);
    const ToolRun run = Tool({"run", trace, "--impl", "fault:" + std::string(fault.id)});
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    const std::string last = trace.substr(trace.rfind("; ") + 2);
    const std::string kind = last.substr(0, last.find(' '));
    EXPECT_NE(run.out.find(", " + kind + " "), std::string::npos) << fault.id << "\n" << run.out;
    EXPECT_NE(run.out.find("breaks P"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("--impl fault:" + std::string(fault.id)), std::string::npos) << run.out;
  }
}

// A window of one token over six of which each query sees one more: one key too many is a cause.
constexpr const char* kWindowTrace =
    "cache k=f32 dk=16 hkv=2 hq=4 data=tokens:1; new A; append A 6; attend A window=3";

TEST_F(CacheCommand, AFailingAttendHasHintMapAndMetricsAsAnyAttention) {
  const ToolRun run = Tool({"run", kWindowTrace, "--impl", "fault:attend_ignores_window", "-v",
                            "--json", "report.json", "--html", "report.html"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("FAIL  cache  operation 3, attend A window=3: A: out["))
      << run.out;
  for (const char* line :
       {"\n  hint         ", "\n  where        ", "\n  bound        ", "\n  map          ",
        "\n  metrics      ", "\n  output       out  FAIL"}) {
    EXPECT_NE(run.out.find(line), std::string::npos) << line << "\n" << run.out;
  }
  const nlohmann::json report = nlohmann::json::parse(ContentOfFile("report.json"));
  const nlohmann::json& outputs = report["cases"][0]["outputs"];
  ASSERT_EQ(outputs.size(), 1U) << report;
  EXPECT_EQ(outputs[0]["name"], "out");
  EXPECT_EQ(outputs[0]["outcome"], "FAIL");
  EXPECT_FALSE(outputs[0]["cause"].get<std::string>().empty());
  EXPECT_FALSE(outputs[0]["hints"].empty());
  EXPECT_GT(outputs[0]["metrics"]["max_abs"], 0);
  EXPECT_GT(outputs[0]["counts"]["failed"], 0);
  EXPECT_GT(outputs[0]["worst"]["ratio"], 1);
  // Each element of attention is counted once.
  EXPECT_EQ(report["summary"]["judged_elements"], outputs[0]["counts"]["judged"])
      << report["summary"];
  EXPECT_NE(ContentOfFile("report.html").find("largest error over the tolerance"),
            std::string::npos);
}

TEST_F(CacheCommand, TraceOfSeveralLinesIsReadAndPrintedAsOne) {
  const ToolRun run = Tool({"run", "cache k=f32 dk=8 data=tokens:1\nnew A\nappend A 1\n", "-v"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("data=tokens:1; new A rows=1; append A 1\n"), std::string::npos)
      << run.out;
  const ToolRun wrong = Tool({"run", "cache k=f32 dk=8 data=tokens:1\nnew A\nappend B x\n"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("line 3, column 10"), std::string::npos) << wrong.err;
}

TEST_F(CacheCommand, ElementsOfAttentionAreCountedInTheSummaryToo) {
  const ToolRun run = Tool({"run", kTrace, "--impl", "optimized", "--json", "report.json"});
  const std::string said = " elements of attention";
  const size_t end = run.out.find(said);
  const ToolRun verbose = Tool({"run", kTrace, "--impl", "optimized", "-v"});
  const size_t at = verbose.out.find(said);
  ASSERT_NE(at, std::string::npos) << verbose.out << end;
  const size_t begin = verbose.out.rfind(' ', at - 1) + 1;
  const std::string count = verbose.out.substr(begin, at - begin);
  EXPECT_NE(count, "0");
  EXPECT_NE(run.out.find("; " + count + " elements judged"), std::string::npos) << run.out;
}

TEST_F(CacheCommand, NothingJudgedIsMistrusted) {
  EXPECT_EQ(Tool({"run", "cache k=f32 dk=8 data=tokens:1; trim A 1"}).exit_code, 3);
}

TEST_F(CacheCommand, WhatCannotBeAskedIsRefused) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", kTrace, "--impl", "simulated"},
        {"run", kTrace, "--impl", "fault:none"},
        {"run", kTrace, "--plan", "base=plain_f32"},
        {"run", kTrace, "--profile", "masked_row=nan"},
        {"run", "cache k=f32 dk=8 hkv=2 hq=3 data=tokens:1"},
        {"compare", "--case", kTrace, "no.h5"},
        {"golden", "make", "-o", "x.h5", "--case", kTrace, "no.h5"}}) {
    const ToolRun run = Tool(arguments);
    EXPECT_NE(run.exit_code, 0) << testing::PrintToString(arguments) << run.out;
    EXPECT_NE(run.exit_code, 1) << testing::PrintToString(arguments) << run.out;
    EXPECT_NE(run.exit_code, 4) << testing::PrintToString(arguments) << run.err;
    EXPECT_LT(run.exit_code, 10) << testing::PrintToString(arguments) << run.err;
  }
}

TEST_F(CacheCommand, JsonCarriesTheVerdict) {
  const ToolRun run = Tool({"run", "cache k=f32 dk=8 data=tokens:1; new A; trim A -1", "--impl",
                            "fault:trim_negative_carried_out", "--json", "-"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("an illegal call was carried out"), std::string::npos) << run.out;
  EXPECT_TRUE(nlohmann::json::accept(run.out));
}

}  // namespace
}  // namespace kvcheck
