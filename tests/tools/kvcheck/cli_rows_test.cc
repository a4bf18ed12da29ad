// --rows and --html of the commands that judge.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCase =
    "attention hq=2 hkv=1 l=300 t=300 d=8 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
    "data=gauss:1";

using ToolRows = ToolTest;

TEST_F(ToolRows, ASampleIsJudgedAndSaid) {
  const ToolRun run =
      Tool({"run", kCase, "--plan", "base=plain_f32", "--impl", "simulated", "--rows", "100"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("of 4800 elements judged"));
  EXPECT_THAT(run.out, HasSubstr("a sample of "));
  const ToolRun whole =
      Tool({"run", kCase, "--plan", "base=plain_f32", "--impl", "simulated", "--rows", "600"});
  EXPECT_THAT(whole.out, HasSubstr("out: 4800 elements"));
}

TEST_F(ToolRows, TheCommandOfAFailureJudgesTheSameSample) {
  const std::vector<std::string> arguments = {
      "run", kCase,         "--plan", "base=plain_f32", "--impl", "fault:causal_ignored", "--rows",
      "64",  "--rows-seed", "5"};
  const ToolRun run = Tool(arguments);
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("--rows 64 --rows-seed 5"));
  std::vector<std::string> verbose = arguments;
  verbose.emplace_back("-v");
  EXPECT_THAT(Tool(verbose).out, HasSubstr("chance to miss a fault in 1 row: 0.9"));
  const size_t command = run.out.find("kvcheck run '");
  ASSERT_NE(command, std::string::npos);
  const std::string line = run.out.substr(command, run.out.find('\n', command) - command);
  const ToolRun again = Shell("\"$KVCHECK\"" + line.substr(std::string("kvcheck").size()));
  EXPECT_EQ(again.out, run.out);
}

TEST_F(ToolRows, WhatHasNoRowsToLeaveOutIsRefused) {
  const std::string dump = KVCHECK_SOURCE_DIR "/golden/dumps/by_hand.safetensors";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", kCase, "--rows", "0"},
        {"run", kCase, "--rows-seed", "3"},
        {"run", "cache layout=linear k=f32 dk=8 hkv=1 data=tokens:1; new A rows=1", "--rows", "5"},
        {"compare", dump, dump, "--rows", "5"}}) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments.back();
    EXPECT_THAT(run.err, HasSubstr("--rows"));
  }
}

TEST_F(ToolRows, AnHtmlReportIsWritten) {
  const ToolRun run = Tool({"run", kCase, "--plan", "base=plain_f32", "--impl",
                            "fault:causal_ignored", "--html", "report.html"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const std::string page = ContentOfFile("report.html");
  EXPECT_THAT(page, HasSubstr("<title>kvcheck run</title>"));
  EXPECT_THAT(page, HasSubstr("data-copy="));
  const ToolRun twice = Tool({"run", kCase, "--html", "-", "--json", "-"});
  EXPECT_EQ(twice.exit_code, 2);
}

}  // namespace
}  // namespace kvcheck
