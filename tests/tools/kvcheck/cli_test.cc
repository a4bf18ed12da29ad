// The command line: exit codes, messages, reports; kvcheck run and list.

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class CommandLine : public ToolTest {};
class RunCommand : public ToolTest {};

using Arguments = std::vector<std::string>;

constexpr const char* kLiar = "simulated:base=plain_f32 p=bf16";
constexpr const char* kVacuousCase =
    "codec op=round_trip format=affine:2:g32:bf16 x=f32 rows=3 d=64 data=gauss:1";

// The same test in another process, as seen from this one.
class Twin : public ToolTest {
 public:
  using ToolTest::Path;
  using ToolTest::SetUp;
  using ToolTest::TearDown;
  void TestBody() override {}
};

TEST_F(CommandLine, TestsAtTheSameTimeHaveFoldersOfTheirOwn) {
  Twin twin;
  twin.SetUp();
  EXPECT_NE(twin.Path("x"), Path("x"));
  twin.TearDown();
  EXPECT_EQ(Tool({"list"}).exit_code, 0);
}

TEST_F(CommandLine, UsageErrorsExitWithTwoAndSayWhatToDo) {
  const std::vector<Arguments> wrong = {
      {},
      {"frobnicate"},
      {"--frobnicate"},
      {"run"},
      {"run", kAttentionCase, "--frobnicate"},
      {"run", kAttentionCase, "--rule", "maybe"},
      {"run", kAttentionCase, "--must-see", "no such fault"},
      {"run", kAttentionCase, "--rule", "bound", "--must-see", "standard"},
      {"run", kAttentionCase, "-j", "0"},
      {"run", kAttentionCase, "--impl", "frobnicate"},
      {"run", kAttentionCase, "--json", "-", "--junit", "-"},
      {"run", kAttentionCase, "-q", "-v"},
      {"run", kAttentionCase, "--data", "no-hash"},
      {"run", "tensor dtype=f32 shape=3 rule=exact data=gauss:1"},
      {"compare"},
      {"compare", "only-one.h5"},
      {"compare", "a.h5", "b.h5", "--map", "out=/x"},
      {"compare", "--case", kAttentionCase, "a.h5", "b.h5"},
      {"golden"},
      {"golden", "frobnicate"},
      {"golden", "verify"},
      {"golden", "make", "-o", "x.h5"},
  };
  for (const Arguments& arguments : wrong) {
    const ToolRun run = Tool(arguments);
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(run.exit_code, 2) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_TRUE(run.err.starts_with("kvcheck: error: ")) << line << run.err;
  }
}

TEST_F(CommandLine, EveryCommandHasHelp) {
  const std::vector<Arguments> commands = {{},
                                           {"run"},
                                           {"compare"},
                                           {"golden"},
                                           {"golden", "make"},
                                           {"golden", "verify"},
                                           {"golden", "show"},
                                           {"list"}};
  for (Arguments arguments : commands) {
    arguments.push_back("--help");
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_NE(run.out.find("Usage:"), std::string::npos) << testing::PrintToString(arguments);
  }
}

TEST_F(CommandLine, VersionIsPrinted) {
  const ToolRun run = Tool({"--version"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(run.out.starts_with("kvcheck 0."));
}

TEST_F(CommandLine, MissingFilesExitWithTwoAndAreNamed) {
  for (const Arguments& arguments :
       {Arguments{"compare", "no.h5", "no.h5"},
        Arguments{"compare", "--case", kAttentionCase, "no.h5"},
        Arguments{"golden", "verify", "no.h5"}, Arguments{"golden", "show", "no.h5"},
        Arguments{"run", "--data", "no.h5#x"}}) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_NE(run.err.find("no.h5"), std::string::npos) << run.err;
  }
}

TEST_F(CommandLine, FolderIsRefusedInOneLine) {
  const ToolRun run = Tool({"golden", "verify", "."});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "kvcheck: error: .: it is a folder without safetensors files and without .npy files: "
            "name a file\n");
}

TEST_F(CommandLine, ReportsThatCannotBeWrittenExitWithTwo) {
  EXPECT_EQ(Tool({"run", kCodecCase, "--json", "nowhere/report.json"}).exit_code, 2);
}

TEST_F(CommandLine, ListNamesPlansFormatsAndData) {
  const ToolRun run = Tool({"list"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* word :
       {"plain_f32", "stranger", "affine:4:g64:bf16", "gauss", "attention", "numpy_example"}) {
    EXPECT_NE(run.out.find(word), std::string::npos) << word;
  }
  // Who answers each kind but tensor, whose two sides are files.
  for (const char* row : {"  attention  optimized", "  codec      optimized",
                          "  cache      optimized", "  prefix     optimized"}) {
    EXPECT_NE(run.out.find(row), std::string::npos) << row;
  }
  // What caches can do is run by request only: it takes seconds.
  EXPECT_NE(run.out.find("\noperations of caches\n  new append "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("kvcheck list --caches optimized "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("passed beside the model"), std::string::npos) << run.out;
  const size_t formats = run.out.find("storage formats"), layouts = run.out.find("layouts\n");
  ASSERT_LT(formats, layouts);
  std::istringstream lines(run.out.substr(formats, layouts - formats));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100) << line;
}

TEST_F(CommandLine, ListOfWhatCachesCanDoEndsAtAnInterrupt) {
  const ToolRun run = Signalled({"list", "--caches", "model"}, SIGINT,
                                [](pid_t tool) { return Catches(tool, SIGINT); });
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
}

TEST_F(RunCommand, MalformedCaseIsRefusedWithItsColumn) {
  const ToolRun run = Tool({"run", "codec op=encoode format=bf16 x=f32 rows=1 d=64 data=gauss:1"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("column 10"), std::string::npos) << run.err;
}

// What is filled in under a plan that says nothing contradicts nothing.
TEST_F(RunCommand, FaultsAreAskedUnderAPlanThatSaysNothing) {
  const std::string windowed =
      "attention hq=2 hkv=1 l=5 t=33 d=32 q=bf16 k=bf16 v=bf16 out=bf16 "
      "mask=causal_bottom_right+window:8 data=gauss:1";
  const ToolRun fault =
      Tool({"run", windowed, "--plan", "stranger", "--impl", "fault:window_too_wide"});
  EXPECT_EQ(fault.exit_code, 1) << fault.out << fault.err;
  EXPECT_TRUE(fault.out.starts_with("FAIL")) << fault.out;
  const ToolRun right = Tool({"run", windowed, "--plan", "stranger", "--impl", "simulated"});
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
}

TEST_F(RunCommand, PlanThatTheKernelFollowsPasses) {
  const ToolRun run =
      Tool({"run", kAttentionCase, "--plan", kHonestPlan, "--impl", "simulated", "-v"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("PASS  attention  ")) << run.out;
  EXPECT_NE(run.out.find("simulated (a check of itself"), std::string::npos) << run.out;
  EXPECT_EQ(run.err, "");
}

// What the reference says of itself is no answer to "does it work".
TEST_F(RunCommand, AsksOptimizedWhereNobodyIsNamedAndSaysSoInTheFirstLine) {
  const std::pair<std::string, const char*> cases[] = {
      {kAttentionCase, "PASS  attention on optimized 1  "},
      {kCodecCase, "PASS  codec on optimized 1  "},
      {"cache k=f32 dk=8 data=tokens:1; new A; append A 1", "PASS  cache on optimized 1  "}};
  for (const auto& [text, line] : cases) {
    const ToolRun run = Tool({"run", text, "--json", "report.json"});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(run.out.starts_with(line)) << run.out;
    std::ofstream(Path("mine.case")) << "case mine\nreason none\n" << text << "\n";
    const ToolRun file = Tool({"run", "mine.case", "-v"});
    EXPECT_EQ(file.exit_code, 0) << file.out << file.err;
    EXPECT_TRUE(file.out.starts_with("PASS  mine on optimized 1  ")) << file.out;
    EXPECT_NE(file.out.find("observed     optimized"), std::string::npos) << file.out;
    EXPECT_NE(file.out.find(" --impl optimized"), std::string::npos) << file.out;
  }
  // Its own answer to the default case can fail, since another plan judges it.
  const ToolRun judged = Tool({"run", kAttentionCase, "--plan", kBoastfulPlan});
  EXPECT_EQ(judged.exit_code, 1) << judged.out;
}

TEST_F(RunCommand, KernelThatRoundsMoreThanDeclaredFails) {
  const ToolRun run = Tool({"run", kAttentionCase, "--plan", kHonestPlan, "--impl", kLiar});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(run.out.starts_with("FAIL  attention  out[b=")) << run.out;
  EXPECT_NE(run.out.find("passes if P were rounded to bf16 (p=bf16), or if "), std::string::npos)
      << run.out;
}

TEST_F(RunCommand, FailureNamesTheCommandThatReproducesIt) {
  const ToolRun run =
      Tool({"run", kAttentionCase, "--plan", kHonestPlan, "--impl", kLiar, "--json", "-"});
  const std::string command = nlohmann::json::parse(run.out).at("cases").at(0).at("command");
  EXPECT_TRUE(command.starts_with("kvcheck run 'attention b=1 hq=4 ")) << command;
  EXPECT_TRUE(
      command.ends_with("data=gauss:1' --plan base=plain_f32 --impl "
                        "'simulated:base=plain_f32 p=bf16'"))
      << command;
}

TEST_F(RunCommand, BoundAsLargeAsTheDataIsMistrusted) {
  const ToolRun run = Tool({"run", kVacuousCase});
  EXPECT_EQ(run.exit_code, 3) << run.out;
  EXPECT_TRUE(run.out.starts_with("MISTRUSTED  ")) << run.out;
  EXPECT_EQ(Tool({"run", kVacuousCase, "--strict"}).exit_code, 1);
}

// Queries before the first visible key, of which nothing is promised.
TEST_F(RunCommand, RowsThatNobodyJudgesAreSaidAloud) {
  const auto run = [&](int queries) {
    return Tool({"run",
                 "attention hq=2 hkv=1 l=" + std::to_string(queries) +
                     " t=4 d=32 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right data=gauss:1",
                 "--plan", kHonestPlan, "--impl", "simulated", "--profile", "masked_row=any"});
  };
  EXPECT_TRUE(run(4).out.starts_with("PASS  attention  out: 256 elements")) << run(4).out;
  const ToolRun some = run(6);
  EXPECT_TRUE(some.out.starts_with("PASS  attention  out: 256 of 384 elements judged")) << some.out;
  EXPECT_EQ(some.out.find("most elements"), std::string::npos) << some.out;
  const ToolRun most = run(9);
  EXPECT_EQ(most.exit_code, 0) << most.out;
  EXPECT_NE(most.out.find("warning      most elements were not judged: 320 of 576"),
            std::string::npos)
      << most.out;
}

TEST_F(RunCommand, ImplementationThatDeclinesIsUnsupported) {
  const ToolRun run = Tool({"run", kAttentionCase, "--impl", "reference"});
  EXPECT_EQ(run.exit_code, 3) << run.out;
  EXPECT_TRUE(run.out.starts_with("UNSUPPORTED  ")) << run.out;
}

TEST_F(RunCommand, CodecsEncodeDecodeAndRoundTrip) {
  for (const char* text :
       {kCodecCase, "codec op=decode format=affine:4:g32:bf16 x=f32 rows=3 d=64 data=codes:1",
        "codec op=round_trip format=bf16 x=f32 rows=3 d=64 data=gauss:1"}) {
    const ToolRun run = Tool({"run", text});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  }
}

TEST_F(RunCommand, JsonOnStandardOutputStandsAlone) {
  const ToolRun run =
      Tool({"run", kAttentionCase, "--plan", kHonestPlan, "--impl", "simulated", "--json", "-"});
  EXPECT_EQ(run.exit_code, 0);
  const nlohmann::json report = nlohmann::json::parse(run.out);
  EXPECT_EQ(report.at("summary").at("exit_code"), 0);
  EXPECT_EQ(report.at("cases").at(0).at("outcome"), "PASS");
}

TEST_F(RunCommand, ReportsDoNotDependOnThreads) {
  const char* text =
      "attention b=2 hq=4 hkv=2 l=65 t=65 d=32 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:1";
  std::vector<std::string> reports;
  for (const char* threads : {"1", "2", "5"}) {
    const ToolRun run =
        Tool({"run", text, "--plan", kHonestPlan, "--impl", kLiar, "--json", "-", "-j", threads});
    EXPECT_EQ(run.exit_code, 1) << threads << " threads: " << run.err;
    reports.push_back(run.out);
  }
  EXPECT_NE(reports[0], "");
  EXPECT_EQ(reports[0], reports[1]);
  EXPECT_EQ(reports[0], reports[2]);
}

TEST_F(RunCommand, InterruptGivesAPartialReport) {
  // Far more work than the moment after which it is interrupted: f64 outputs climb the ladder.
  // The end of a terminal is told as a wish to end is.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const ToolRun run = Signalled(
        {"run", "attention hq=8 hkv=1 l=512 t=2048 d=64 q=f64 k=f32 v=f32 out=f64 data=gauss:1",
         "--impl", "simulated", "--junit", "j.xml", "--json", "-"},
        signal, [&](pid_t tool) { return Catches(tool, signal); });
    EXPECT_EQ(run.exit_code, 130) << signal << run.err;
    const nlohmann::json report = nlohmann::json::parse(run.out);
    EXPECT_EQ(report.at("summary").at("interrupted"), true);
    EXPECT_TRUE(std::filesystem::exists(Path("j.xml")));
    std::filesystem::remove(Path("j.xml"));
  }
}

// Seconds of processor time that the process has used.
double ProcessorTime(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(in, line);
  std::istringstream fields(line.substr(line.rfind(") ") + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Each works for minutes or hours between two places that ask. Where the interrupt is not heard the
// work ends with another code, or the test runs out of time.
TEST_F(RunCommand, AnInterruptIsHeardWhereverTheWorkIs) {
  const std::string temporary = Path("temporary");
  std::filesystem::create_directory(temporary);
  setenv("TMPDIR", temporary.c_str(), 1);
  for (const char* text :
       {"attention hq=1 hkv=1 l=1048576 t=1048576 d=1 q=f32 k=f32 v=f32 out=f32 data=gauss:1",
        "cache k=channel:4:g1024:f32 dk=64 data=tokens:1; new A; append A 1048576; append A "
        "1048576",
        "prefix block=1 tokens=1048576 layers=1 hkv=1 dk=1 disk=yes data=tokens:1; "
        "open A r1:1048576; write A; close A keep; restart; open B r1:1048576 all; read B"}) {
    const ToolRun run =
        Signalled({"run", text, "--json", "-", "--junit", "j.xml"}, SIGINT,
                  [&](pid_t tool) { return Catches(tool, SIGINT) && ProcessorTime(tool) > 1; });
    EXPECT_EQ(run.exit_code, 130) << text << run.err;
    const nlohmann::json report = nlohmann::json::parse(run.out, nullptr, false);
    ASSERT_FALSE(report.is_discarded()) << text;
    EXPECT_EQ(report.at("summary").at("interrupted"), true) << text;
    EXPECT_NE(ContentOfFile("j.xml").find("interrupted"), std::string::npos) << text;
    std::filesystem::remove(Path("j.xml"));
    EXPECT_TRUE(std::filesystem::is_empty(temporary)) << text;
  }
  unsetenv("TMPDIR");
}

// Over 4,096 keys in bf16 the worst case of P's rounding hides a lost key; roundings of random
// phase do not.
TEST_F(RunCommand, FailsByStatisticsUnlessTheBoundAloneIsAsked) {
  const Arguments asked = {"run",
                           "attention hq=4 hkv=2 l=4 t=4096 d=64 q=bf16 k=bf16 v=bf16 out=bf16 "
                           "data=gauss:3",
                           "--plan",
                           "flash_attention_2",
                           "--impl",
                           "fault:last_key_dropped"};
  const auto with = [&](const Arguments& more) {
    Arguments arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Tool(arguments);
  };
  const ToolRun by_default = with({"--json", Path("default.json")});
  EXPECT_EQ(by_default.exit_code, 1);
  EXPECT_EQ(by_default.out.rfind("FAIL", 0), 0U) << by_default.out;
  const auto output = [](const nlohmann::json& report) { return report["cases"][0]["outputs"][0]; };
  const nlohmann::json report = output(nlohmann::json::parse(ContentOfFile("default.json")));
  EXPECT_TRUE(report["decided_by"] == "noise" || report["decided_by"] == "statistics");
  EXPECT_FALSE(report["statistics"]["over"].empty());
  const ToolRun bound = with({"--rule", "bound", "--json", Path("bound.json")});
  EXPECT_EQ(bound.exit_code, 0);
  const std::string first = bound.out.substr(0, bound.out.find('\n'));
  EXPECT_NE(first.find("by the proven bound alone"), std::string::npos) << first;
  const nlohmann::json alone = output(nlohmann::json::parse(ContentOfFile("bound.json")));
  EXPECT_TRUE(alone["statistics"].is_null());
  EXPECT_EQ(alone["by_bound_alone"], true);
}

TEST_F(RunCommand, APassNamesWhatItCouldNotHaveSeen) {
  const Arguments asked = {"run",
                           "attention hq=2 hkv=1 l=1 t=4096 d=8 q=bf16 k=bf16 v=bf16 out=bf16 "
                           "data=gauss:3",
                           "--plan", "flash_attention_2"};
  const auto with = [&](const Arguments& more) {
    Arguments arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Tool(arguments);
  };
  const ToolRun run = with({});
  EXPECT_EQ(run.exit_code, 0);
  const std::string first = run.out.substr(0, run.out.find('\n'));
  EXPECT_NE(first.find("blind to: "), std::string::npos) << first;
  EXPECT_NE(first.find("row factor"), std::string::npos) << first;
  EXPECT_EQ(with({"--must-see", "standard"}).exit_code, 3);
  EXPECT_EQ(with({"--must-see", "row factor"}).exit_code, 3);
  EXPECT_EQ(with({"--must-see", "other key/value head"}).exit_code, 0) << "there is no other head";
  EXPECT_EQ(with({"--strict"}).exit_code, 1);
  EXPECT_EQ(with({"--strict", "--must-see", "none"}).exit_code, 0);
}

}  // namespace
}  // namespace kvcheck
