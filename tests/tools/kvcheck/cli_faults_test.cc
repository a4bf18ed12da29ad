// kvcheck faults: a few of them through the command. All of them: faults_run_test.cc.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class FaultsCommand : public ToolTest {
 protected:
  nlohmann::json Json(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return nlohmann::json::parse(in);
  }
};

// One of every kind, and those that are found by asking twice.
const std::vector<std::string> kSome = {"merge_swaps_values", "window_too_*", "codes_signed",
                                        "total_of_last_call", "ranges_by_threads"};

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(FaultsCommand, RunCatchesSomeOfEveryKindWhateverTheThreads) {
  const std::vector<std::string> run = With({"faults", "run", "--no-times"}, kSome);
  const ToolRun one = Tool(With(run, {"-j", "1", "--json", "one.json", "--junit", "one.xml"}));
  EXPECT_EQ(one.exit_code, 0) << one.out << one.err;
  EXPECT_NE(
      one.out.find("6 faults: 6 caught by a check that its line names, without a false alarm;"),
      std::string::npos)
      << one.out;
  EXPECT_NE(one.err.find("s of processor time"), std::string::npos) << one.err;
  const ToolRun three = Tool(With(run, {"-j", "3", "--json", "three.json"}));
  EXPECT_EQ(one.out, three.out);
  EXPECT_EQ(Json("one.json"), Json("three.json"));
  const nlohmann::json fault = Json("one.json")["faults"][0];
  EXPECT_EQ(fault["id"], "merge_swaps_values");
  EXPECT_EQ(fault["outcome"], "caught");
  EXPECT_EQ(fault["caught_by"], "merge kv_mismatch");
  EXPECT_GT(fault["hits"], 0);
  EXPECT_LE(fault["shrunk"], fault["size"]);
  EXPECT_FALSE(fault.contains("seconds"));
  pugi::xml_document xml;
  EXPECT_TRUE(xml.load_file(Path("one.xml").c_str()));
  EXPECT_STREQ(xml.select_node("//testsuite").node().attribute("tests").value(), "6");
  EXPECT_STREQ(xml.select_node("//testsuite").node().attribute("failures").value(), "0");
  // What was shrunk replays.
  const ToolRun timed = Tool({"faults", "run", "codes_signed"});
  EXPECT_NE(timed.out.find("seconds"), std::string::npos) << timed.out;
  EXPECT_NE(timed.out.find("\nuntil caught, on one core: median "), std::string::npos) << timed.out;
  EXPECT_EQ(timed.out.find("shrunk traces"), std::string::npos) << "a codec case is no trace";
}

TEST_F(FaultsCommand, RunSaysHowNearShrinkingCameToTheSmallestCase) {
  const ToolRun run =
      Tool({"faults", "run", "salt_not_in_key", "full_write_half_done", "--json", "run.json"});
  int64_t most = 0;
  const nlohmann::json json = Json("run.json");
  for (const auto& fault : json["faults"]) {
    most = std::max(most, fault["shrunk"].get<int64_t>() - fault["smallest_size"].get<int64_t>());
  }
  EXPECT_NE(run.out.find(fmt::format("of 2 at most 2 operations longer than the smallest case, the "
                                     "longest {}\n",
                                     most)),
            std::string::npos)
      << run.out;
}

TEST_F(FaultsCommand, InterruptGivesAPartialReport) {
  const ToolRun run = Signalled({"faults", "run", "--json", "f.json", "--junit", "f.xml", "--table",
                                 "t.md", "-j", "1", "--no-times"},
                                SIGINT, [](pid_t tool) { return Catches(tool, SIGINT); });
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
  EXPECT_NE(run.out.find(" faults were asked; interrupted, this report is partial\n"),
            std::string::npos)
      << run.out;
  EXPECT_EQ(Json("f.json")["interrupted"], true);
  EXPECT_NE(ContentOfFile("f.xml").find("the run was interrupted"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(Path("t.md")));
  EXPECT_NE(run.err.find("t.md is not written: the run was interrupted"), std::string::npos);
}

TEST_F(FaultsCommand, AKindSelects) {
  const ToolRun codecs = Tool({"faults", "list", "--kind", "codec"});
  EXPECT_NE(codecs.out.find("\ncodes_signed "), std::string::npos) << codecs.out;
  EXPECT_EQ(codecs.out.find("\nsalt_not_in_key "), std::string::npos) << codecs.out;
  const ToolRun none = Tool({"faults", "list", "--kind", "prefix", "codes_signed"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("no fault of kind prefix matches 'codes_signed'"), std::string::npos)
      << none.err;
}

TEST_F(FaultsCommand, QuietShowsCountsAlone) {
  const ToolRun run = Tool({"faults", "run", "codes_signed", "-q"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(run.out.starts_with("1 fault: 1 caught")) << run.out;
  EXPECT_EQ(run.err, "");
}

TEST_F(FaultsCommand, ListShowsFaultsAndReports) {
  const ToolRun list = Tool({"faults", "list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_NE(list.out.find("\nwindow_too_wide "), std::string::npos) << list.out;
  const ToolRun some = Tool({"faults", "list", "window_*", "--json", "list.json"});
  EXPECT_LT(some.out.size(), list.out.size());
  EXPECT_EQ(Json("list.json")["faults"][0]["kind"], "attention");
  EXPECT_FALSE(Json("list.json")["uncovered"].empty());
  const ToolRun reports = Tool({"faults", "list", "--reports"});
  EXPECT_NE(reports.out.find("| lcpp-tokens-rm-index | trim_removes_oldest |"), std::string::npos)
      << reports.out;
}

TEST_F(FaultsCommand, ExplainShowsTheVerdictAndTheCommandWhichRepeatsIt) {
  const ToolRun run = Tool({"faults", "explain", "window_too_wide"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  for (const char* part :
       {"window_too_wide: a window of W shows W + 1 keys", "'window' replaced",
        "vllm-window-inclusive", "FAIL  smallest case  out[", "without the fault: PASS",
        "check: attention out bound", "reproduce    kvcheck run 'attention "}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
  const ToolRun twice = Tool({"faults", "explain", "total_of_last_call"});
  EXPECT_EQ(twice.exit_code, 0) << twice.out;
  EXPECT_NE(twice.out.find("changes when it is asked again"), std::string::npos) << twice.out;
  EXPECT_NE(twice.out.find("kvcheck faults explain total_of_last_call"), std::string::npos);
  EXPECT_EQ(Tool({"faults", "explain", "load_loses_keep"}).exit_code, 0);
  EXPECT_EQ(Tool({"faults", "explain", "codes_signed"}).exit_code, 0);
}

TEST_F(FaultsCommand, RefusesWhatDoesNotExist) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"faults"},
        {"faults", "explain", "nothing"},
        {"faults", "run", "nothing*"},
        {"faults", "run", "codes_signed", "--table", "t.md"},
        {"run", kAttentionCase, "--impl", "fault:nothing"}}) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_NE(run.err.find("error"), std::string::npos) << run.err;
  }
}

TEST_F(FaultsCommand, OtherCommandsTakeFaultsOfEveryKind) {
  EXPECT_EQ(Tool({"run", kCodecCase, "--impl", "fault:levels_one_more"}).exit_code, 1);
  EXPECT_EQ(Tool({"run", kCodecCase, "--impl", "reference"}).exit_code, 0);
  EXPECT_EQ(Tool({"run", kAttentionCase, "--impl", "fault:update_lost"}).exit_code, 1);
  EXPECT_EQ(Tool({"run", kAttentionCase, "--impl", "small_kernel"}).exit_code, 0);
  const ToolRun fuzz = Tool({"fuzz", "--kind", "codec", "--impl", "fault:minus_zero_lost",
                             "--cases", "5000", "--out", "found"});
  EXPECT_EQ(fuzz.exit_code, 1) << fuzz.out << fuzz.err;
}

}  // namespace
}  // namespace kvcheck
