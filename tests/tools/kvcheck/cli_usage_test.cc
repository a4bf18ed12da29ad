// Values of options that mean something else than they seem to, and questions that select nothing,
// are errors of usage: 2, with what to do.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden/writer.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class Usage : public ToolTest {
 protected:
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& message) {
    const ToolRun run = Tool(arguments);
    std::string command;
    for (const std::string& argument : arguments) command += argument + " ";
    EXPECT_EQ(run.exit_code, 2) << command << run.out << run.err;
    EXPECT_EQ(run.out, "") << command;
    EXPECT_NE(run.err.find(message), std::string::npos) << command << run.err;
  }
};

// What a verdict leaves out can be asked for wherever one is printed.
TEST_F(Usage, EveryCommandThatPrintsVerdictsHasVerbose) {
  const std::vector<std::vector<std::string>> commands = {
      {"run"},  {"compare"}, {"flashinfer"},       {"golden", "verify"}, {"golden", "make"},
      {"fuzz"}, {"gate"},    {"faults", "explain"}};
  for (std::vector<std::string> command : commands) {
    command.emplace_back("--help");
    EXPECT_NE(Tool(command).out.find("-v,--verbose"), std::string::npos) << command.front();
  }
}

TEST_F(Usage, NumbersAreDecimal) {
  const auto counted = [&](const std::string& cases, const std::string& seed) {
    const ToolRun run = Tool({"fuzz", "--cases", cases, "--seed", seed, "-j", "01", "--json", "-"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const auto json = nlohmann::json::parse(run.out);
    const auto& campaign = json["summary"]["campaigns"][0];
    return std::pair(campaign["cases"].get<int64_t>(), campaign["seed"].get<uint64_t>());
  };
  EXPECT_EQ(counted("010", "0"), std::pair(int64_t{10}, uint64_t{0}));
  EXPECT_EQ(counted("08", "0099"), std::pair(int64_t{8}, uint64_t{99}));
  EXPECT_EQ(counted("2", "18446744073709551615").second, 18446744073709551615u);
}

TEST_F(Usage, NumbersBeyond64BitsAreRefusedAsSuch) {
  for (const char* command : {"fuzz", "gate"}) {
    ExpectRefused({command, "--seed", "18446744073709551616"},
                  "--seed: 18446744073709551616 is larger than 2^64 - 1");
    ExpectRefused({command, "--seed", "-1"}, "--seed");
  }
  ExpectRefused({"fuzz", "--cases", "99999999999999999999"}, "--cases: ");
}

TEST_F(Usage, EmptyValuesAreNoAbsentOptions) {
  const std::string what = "the value is empty; leave the option out, or give it one";
  ExpectRefused({"fuzz", "--layout", ""}, "--layout: " + what);
  ExpectRefused({"fuzz", "--layout", "ring", "--layout", ""}, "--layout: " + what);
  ExpectRefused({"fuzz", "--format", "", "--cases", "1"}, "--format: " + what);
  ExpectRefused({"fuzz", "--impl", ""}, "--impl: " + what);
  ExpectRefused({"fuzz", "--time", ""}, "--time: " + what);
  ExpectRefused({"fuzz", "--out="}, "--out: ");
  ExpectRefused({"gate", "--known", ""}, "--known: " + what);
  ExpectRefused({"run", kAttentionCase, "--plan", ""}, "--plan: " + what);
  ExpectRefused({"run", ""}, "CASE: " + what);
  ExpectRefused({"run", kAttentionCase, "--json", ""}, "--json: " + what);
  ExpectRefused({"compare", "a.h5", "b.h5", "--include", ""}, "--include: " + what);
  ExpectRefused({"golden", "verify", "g.h5", "--only", ""}, "--only: " + what);
}

TEST_F(Usage, MistypedNamesComeWithTheNearOne) {
  const std::string text = kAttentionCase;
  ExpectRefused({"comprae", "a", "b"}, "no command 'comprae' (did you mean 'compare'?)");
  ExpectRefused({"run", text, "--plann", "x"}, "--plann (did you mean '--plan'?)");
  ExpectRefused({"golden", "verfy", "x"}, "did you mean 'verify'?");
  ExpectRefused({"run", text, "--impl", "optimised"}, "did you mean 'optimized'?");
  ExpectRefused({"run", text, "--impl", "torch-sdpa"}, "did you mean 'torch_sdpa'?");
  ExpectRefused({"run", text, "--impl", "fault:causal_ignore"}, "did you mean 'causal_ignored'?");
  ExpectRefused({"run", "cache k=f32 dk=8 data=tokens:1; new A; append A 1", "--impl", "modle"},
                "did you mean 'model'?");
  ExpectRefused({"run", text, "--plan", "plain_f23"}, "plain_f32");
  ExpectRefused({"run", text, "--plan", "base=plain_f23"}, "did you mean 'plain_f32'?");
  ExpectRefused({"run", text, "--profile", "maskd_row=nan"}, "did you mean 'masked_row'?");
  ExpectRefused({"faults", "explain", "causal_ignore"}, "did you mean 'causal_ignored'?");
  std::string regime = text;
  regime.replace(regime.find("gauss"), 5, "gaus");
  ExpectRefused({"run", regime}, "did you mean 'gauss'?");
}

TEST_F(Usage, RunTakesASuiteAsItTakesACaseFile) {
  std::ofstream(Path("two.cases"))
      << "case one\nreason any\ncodec op=decode format=f16 x=f32 rows=2 d=8 data=gauss:1\n\n"
         "case two\nreason any\ncodec op=decode format=bf16 x=f32 rows=2 d=8 data=gauss:1\n";
  const ToolRun run = Tool({"run", "two.cases"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.out, Tool({"run", "--file", "two.cases"}).out);
  ExpectRefused({"run", "none.cases"}, "none.cases: No such file");
}

TEST_F(Usage, LongTextsAreCutInMessages) {
  const std::string filler(100000, 'x');
  const std::vector<std::vector<std::string>> rows = {{"run", filler},
                                                      {"run", "attention " + filler},
                                                      {"run", kAttentionCase, "--plan", filler},
                                                      {"run", kAttentionCase, "--impl", filler},
                                                      {"run", kAttentionCase, "--" + filler},
                                                      {filler}};
  for (const std::vector<std::string>& arguments : rows) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_LT(run.err.size(), 7000u);
    EXPECT_TRUE(run.err.starts_with("kvcheck: error: ")) << run.err;
  }
}

// A report that nobody gets loses no verdict.
TEST_F(Usage, VerdictOutlivesAReportThatCannotBeWritten) {
  UseProgram("/bin/sh");
  const std::string passing = std::string(KVCHECK_TOOL) + " run '" + kAttentionCase +
                              "' --impl simulated --plan " + kHonestPlan;
  const std::string failing = std::string(KVCHECK_TOOL) + " run '" + kAttentionCase +
                              "' --impl fault:causal_ignored --plan " + kHonestPlan;
  for (const std::string where :
       {" >/dev/full", " --json - >/dev/full", " --json /dev/full", " --junit /dev/full"}) {
    const ToolRun failed = Tool({"-c", failing + where});
    EXPECT_EQ(failed.exit_code, 1) << where << failed.err;
    EXPECT_NE(failed.err.find("the report cannot be written"), std::string::npos) << failed.err;
    EXPECT_NE(failed.err.find("1 case: 1 failed"), std::string::npos) << failed.err;
    const ToolRun passed = Tool({"-c", passing + where});
    EXPECT_EQ(passed.exit_code, 2) << where << passed.err;
    EXPECT_NE(passed.err.find("1 case: 1 passed"), std::string::npos) << passed.err;
  }
}

TEST_F(Usage, VerifyOfNoCaseIsNoPass) {
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS")}));
  ASSERT_EQ(Tool({"golden", "verify", "g.h5", "--only", "a*"}).exit_code, 0);
  const ToolRun none = Tool({"golden", "verify", "g.h5", "--only", "nosuch"});
  EXPECT_EQ(none.exit_code, 2) << none.out;
  EXPECT_TRUE(none.out.starts_with("0 cases: nothing was selected")) << none.out;
}

TEST_F(Usage, MakeReplacesGoldenFilesAlone) {
  const std::vector<std::string> make = {"golden", "make", "--case", kCodecCase, "-o"};
  const auto to = [&](const std::string& path) {
    std::vector<std::string> arguments = make;
    arguments.push_back(path);
    return arguments;
  };
  EXPECT_EQ(Tool(to("g.h5")).exit_code, 0);
  EXPECT_EQ(Tool(to("g.h5")).exit_code, 0);  // made again
  {
    const std::ofstream empty(Path("empty"));
  }
  EXPECT_EQ(Tool(to("empty")).exit_code, 0);
  const std::string notes = "what somebody wrote\n";
  std::ofstream(Path("notes.txt")) << notes;
  ExpectRefused(to("notes.txt"), "notes.txt is no golden file, and would be replaced");
  std::ifstream still(Path("notes.txt"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(still), {}), notes);
}

// What an implementation has is all that is drawn for it, and all that it is held to.
TEST_F(Usage, FuzzDrawsWhatTheImplementationHas) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const ToolRun run = Tool(
      {"fuzz", "--impl", "selftest:few", "--cases", "5000", "--seed", "2", "--json", "f.json"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("PASS  fuzz cache  5000 cases passed\n")) << run.out;
  EXPECT_EQ(run.out.find("declined"), std::string::npos) << run.out;
  ExpectRefused({"fuzz", "--impl", "selftest:few", "--layout", "ring"},
                "the implementation has no caches of this kind; what it has: layouts linear; rows "
                "single; operations new, append, trim, attend");
  // Without saying so: what it declines is counted.
  const ToolRun declines =
      Tool({"fuzz", "--impl", "selftest:no_rings", "--cases", "500", "--json", "declined.json"});
  EXPECT_NE(declines.out.find("\noperations declined by the implementation: new "),
            std::string::npos)
      << declines.out;
  std::ifstream file(Path("declined.json"));
  const auto json = nlohmann::json::parse(file);
  const auto& declined = json["summary"]["campaigns"][0]["declined"];
  EXPECT_EQ(declined.size(), 1u);
  EXPECT_GT(declined["new"].get<int64_t>(), 100);
}

}  // namespace
}  // namespace kvcheck
