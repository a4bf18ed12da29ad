// Implementations in other processes, as the command line sees them: what kvcheck serves is judged
// as it is in this program; adapters are found; children that crash, hang or send nonsense are
// verdicts, and leave nothing behind.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"
#include "tests/tools/process/child_time.h"
#include "tools/corridor/adapters.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

using nlohmann::json;

constexpr const char* kSetup = "cache k=f32 v=f32 x=f32 hkv=1 hq=1 dk=8 dv=8 data=tokens:1";

std::string Serve(const std::string& implementation) {
  return ShellWord(KVCHECK_TOOL) + " serve --impl " + ShellWord(implementation);
}

std::string Hostile(const std::string& kind, const std::string& token = "") {
  return ShellWord(KVCHECK_HOSTILE_CHILD) + " " + kind + (token.empty() ? "" : " " + token);
}

// Living processes whose command line has the token.
int CountProcesses(const std::string& token) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    // Not by iterators over the stream, which throw where the process ends while it is read.
    std::string line;
    std::getline(in, line);
    // A zombie has no command line.
    if (line.find(KVCHECK_HOSTILE_CHILD) == 0 && line.find(token) != std::string::npos) ++count;
  }
  return count;
}

// The system may need a moment for what was killed.
void AwaitEnd(const std::string& token) {
  WaitUntil([&] { return CountProcesses(token) == 0; });
}

// How often the process has waited for something.
int64_t WaitsOf(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/status");
  const std::string key = "voluntary_ctxt_switches:";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  }
  return -1;
}

class AdapterCommandLine : public ToolTest {
 protected:
  std::string ContentOf(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // The campaign of fuzz, but for who it was.
  json Campaign(std::vector<std::string> arguments, const std::string& implementation) {
    arguments.insert(arguments.begin(), "fuzz");
    arguments.insert(arguments.end(), {"--impl", implementation, "--json", "report.json",
                                       "--keep-going", "--out", "found", "-j", "2"});
    const ToolRun run = Tool(arguments);
    EXPECT_LE(run.exit_code, 1) << run.err;
    const json report = json::parse(ContentOf("report.json"));
    json campaign = report.at("summary").at("campaigns").at(0);
    campaign.erase("implementation");
    campaign.erase("version");
    return campaign;
  }
};

TEST_F(AdapterCommandLine, JudgesServedCachesAsThoseInThisProgram) {
  const std::vector<std::string> arguments = {"--cases", "500"};
  const json here = Campaign(arguments, "optimized");
  EXPECT_EQ(here.at("passed"), 500);
  EXPECT_GT(here.at("states"), 1000);
  EXPECT_EQ(Campaign(arguments, Serve("optimized")), here);
}

TEST_F(AdapterCommandLine, FindsTheFaultsOfServedCaches) {
  for (const char* fault : {"fault:kept_evicted_on_wrap", "fault:merge_swaps_values"}) {
    const std::vector<std::string> arguments = {"--cases", "400", "--shrink-time", "0s"};
    const json here = Campaign(arguments, fault);
    EXPECT_GT(here.at("failed"), 0);
    EXPECT_EQ(Campaign(arguments, Serve(fault)), here) << fault;
  }
}

TEST_F(AdapterCommandLine, JudgesServedCodecsAndAttentionAsThoseInThisProgram) {
  const std::vector<std::string> codecs = {"--kind", "codec", "--cases", "200"};
  EXPECT_EQ(Campaign(codecs, Serve("optimized")), Campaign(codecs, "optimized"));
  EXPECT_EQ(Campaign(codecs, Serve("reference")), Campaign(codecs, "reference"));
  const std::vector<std::string> attention = {"--kind", "attention", "--cases", "40"};
  const char* kernel = "simulated:base=plain_f32 p=bf16";
  const json here = Campaign(attention, kernel);
  EXPECT_GT(here.at("elements"), 1000);
  EXPECT_EQ(Campaign(attention, Serve(kernel)), here);
}

// Whoever promises nothing is not caught in anything, and has not passed.
TEST_F(AdapterCommandLine, ZerosUnderAVacuousPlanDoNotPass) {
  const std::string zeros = ShellWord(KVCHECK_FLAKY_CHILD) + " zeros";
  std::ofstream(Path("one.cases")) << "case one\nreason any\nattention hq=2 hkv=1 l=1 t=9 d=8 "
                                      "q=f32 k=f32 v=f32 out=f32 data=gauss:1\n";
  const std::vector<std::string> commands[] = {
      {"fuzz", "--kind", "attention", "--cases", "60"},
      {"gate", "--suite", "one.cases", "--fuzz-cases", "8000"}};
  for (std::vector<std::string> arguments : commands) {
    arguments.insert(arguments.end(), {"--impl", zeros, "--json", "report.json", "-j", "2"});
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 3) << run.out << run.err;
    EXPECT_EQ(run.out.find("PASS"), std::string::npos) << run.out;
    const json report = json::parse(ContentOf("report.json"));
    const json& campaign = report.at("summary").at("campaigns").at(0);
    EXPECT_GT(campaign.at("mistrusted").get<int64_t>(),
              campaign.at("mistrusted_by_data").get<int64_t>())
        << campaign;
    arguments.push_back("--strict");
    EXPECT_EQ(Tool(arguments).exit_code, 1) << arguments[0];
  }
}

TEST_F(AdapterCommandLine, GivesTheVerdictsOfTheSuites) {
  const auto verdicts = [&](const std::string& implementation) {
    const ToolRun run = Tool(
        {"gate", "--impl", implementation, "--fuzz-cases", "0", "--json", "gate.json", "-j", "2"});
    json verdicts;
    const json report = json::parse(ContentOf("gate.json"));
    for (const json& result : report.at("cases")) {
      // It asks for a way to decode that attention has not: across the pipe that cannot be told
      // from the one that is stated for codecs, and the answer says what it did.
      if (result.at("name") == "attention/codes_of_4_and_8_bits") continue;
      verdicts.push_back({result.at("name"), result.at("outcome")});
    }
    EXPECT_GT(verdicts.size(), 20u) << run.err;
    return verdicts;
  };
  EXPECT_EQ(verdicts(Serve("optimized")), verdicts("optimized"));
}

TEST_F(AdapterCommandLine, PrintsACommandThatReproduces) {
  const std::string trace =
      std::string(kSetup) + " layout=ring:w=2:keep=1; new A; append A 1; append A 2";
  const ToolRun run = Tool({"run", "-v", trace, "--impl", Serve("fault:kept_evicted_on_wrap")});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_NE(run.out.find("observed     fault:kept_evicted_on_wrap 1 ("), std::string::npos)
      << run.out;
  const size_t at = run.out.find("reproduce    kvcheck ");
  ASSERT_NE(at, std::string::npos) << run.out;
  const std::string command = run.out.substr(at + 13, run.out.find('\n', at) - at - 13);
  std::vector<std::string> words = SplitCommandLine(command);
  words.erase(words.begin());
  words.emplace_back("-v");
  EXPECT_EQ(Tool(words).out, run.out);
}

TEST_F(AdapterCommandLine, FindsAdaptersByName) {
  const std::string folder = Path("adapters");
  std::filesystem::create_directories(folder + "/mine");
  std::filesystem::create_directories(folder + "/empty");
  const std::string program = folder + "/mine/run";
  std::ofstream(program) << "#!/bin/sh\necho a word of warning >&2\nexec " << Serve("model")
                         << "\n";
  setenv(kAdaptersVariable, folder.c_str(), 1);
  const std::string trace = std::string(kSetup) + "; new A; append A 1";
  // It cannot be executed yet.
  EXPECT_EQ(Tool({"run", trace, "--impl", "mine"}).exit_code, 2);
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const ToolRun run = Tool({"run", trace, "--impl", "mine", "-v"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("model 1 (mine)"), std::string::npos) << run.out;
  for (const char* name : {"empty", "nobody"}) {
    const ToolRun unknown = Tool({"run", trace, "--impl", name});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.err.find(", mine,"), std::string::npos) << unknown.err;
  }
  unsetenv(kAdaptersVariable);
}

TEST_F(AdapterCommandLine, SaysWhyNothingAnswers) {
  const std::string trace = std::string(kSetup) + "; new A; append A 1";
  const ToolRun missing = Tool({"run", trace, "--impl", "/no/such/program --fast"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.err.find("'/no/such/program' cannot be executed"), std::string::npos)
      << missing.err;
  const ToolRun ends = Tool({"run", trace, "--impl", Hostile("in_hello:exit_3")});
  EXPECT_EQ(ends.exit_code, 2);
  EXPECT_NE(ends.err.find("exited with code 3 in 'hello'; it printed: a line"), std::string::npos)
      << ends.err;
  EXPECT_EQ(Tool({"run", trace, "--impl", "a 'quote"}).exit_code, 2);
  const ToolRun kind = Tool({"fuzz", "--kind", "codec", "--impl", Hostile("honest")});
  EXPECT_EQ(kind.exit_code, 2);
  EXPECT_NE(kind.err.find("it has cache"), std::string::npos) << kind.err;
}

TEST_F(AdapterCommandLine, JudgesOneCaseOfAChildThatIsLost) {
  const std::string trace = std::string(kSetup) + "; new A; append A 1";
  const ToolRun crashed = Tool({"run", trace, "--impl", Hostile("exit_3")});
  EXPECT_EQ(crashed.exit_code, 1);
  EXPECT_TRUE(crashed.out.starts_with("CRASHED")) << crashed.out;
  EXPECT_NE(crashed.out.find("signature \"append CRASHED\""), std::string::npos) << crashed.out;
  EXPECT_NE(crashed.out.find("operation 2, append A 1"), std::string::npos) << crashed.out;
  const ToolRun broken = Tool({"run", trace, "--impl", Hostile("no_map")});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_TRUE(broken.out.starts_with("FAIL")) << broken.out;
  EXPECT_NE(broken.out.find("signature \"append PROTOCOL\""), std::string::npos) << broken.out;
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const SharedChildTime time(testing::TempDir());
  const ToolRun hangs = Tool({"run", trace, "--impl", Hostile("in_start:hang"), "--limit", "1h"});
  EXPECT_EQ(hangs.exit_code, 1);
  EXPECT_TRUE(hangs.out.starts_with("TIMED_OUT")) << hangs.out;
  EXPECT_NE(hangs.out.find("signature \"start TIMED_OUT\""), std::string::npos) << hangs.out;
}

// A cache that shows no columns at all retains nothing, and says so.
TEST_F(AdapterCommandLine, JudgesMasksOverNoColumns) {
  const std::string trace = std::string(kSetup) + "; new A; append A 1";
  const ToolRun run = Tool({"run", trace, "--impl", Hostile("no_columns")});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_NE(run.out.find("append retained_missing"), std::string::npos) << run.out;
}

TEST_F(AdapterCommandLine, GoesOnPastLostChildren) {
  const std::string token = Path("token");
  for (const auto& [kind, outcome, signature] : {std::tuple("exit_3", "CRASHED", "append CRASHED"),
                                                 {"prints_text", "FAIL", "append PROTOCOL"},
                                                 {"extents_overflow", "FAIL", "append PROTOCOL"}}) {
    const ToolRun run = Tool({"fuzz", "--impl", Hostile(kind, token), "--cases", "30",
                              "--keep-going", "--out", "found", "-j", "2", "--json", "report.json",
                              "--limit", "10m", "--shrink-time", "10h"});
    EXPECT_EQ(run.exit_code, 1) << run.err;
    const json campaign = json::parse(ContentOf("report.json")).at("summary").at("campaigns").at(0);
    EXPECT_EQ(campaign.at("cases"), 30);
    const json failure = campaign.at("failures").at(0);
    EXPECT_EQ(failure.at("outcome"), outcome);
    EXPECT_EQ(failure.at("signature"), signature);
    EXPECT_GE(failure.at("cases"), 2) << kind;
    // Made smaller beside the loss: a cache and one append.
    const std::string slug = signature == std::string("append CRASHED")
                                 ? "found/cache-append-CRASHED.case"
                                 : "found/cache-append-PROTOCOL.case";
    const std::string found = ContentOf(slug);
    const std::string text = found.substr(std::min(found.size(), found.find("\ncache ") + 1));
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 1 + 2 + 1) << found;
    const ToolRun again = Tool({"run", slug, "--allow-commands"});
    EXPECT_EQ(again.exit_code, 1) << again.err;
    EXPECT_NE(again.out.find(signature), std::string::npos) << again.out;
    std::filesystem::remove_all(Path("found"));
  }
  AwaitEnd(token);
}

TEST_F(AdapterCommandLine, GoesOnPastHangingChildren) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const SharedChildTime time(testing::TempDir());
  const std::string token = Path("token");
  const ToolRun run = Tool({"fuzz", "--impl", Hostile("in_start:hang", token), "--cases", "4",
                            "--keep-going", "--out", "found", "-j", "2", "--json", "report.json",
                            "--limit", "1h", "--shrink-time", "1s"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const json campaign = json::parse(ContentOf("report.json")).at("summary").at("campaigns").at(0);
  EXPECT_EQ(campaign.at("timed_out"), 4);
  EXPECT_EQ(campaign.at("failures").at(0).at("signature"), "start TIMED_OUT");
  AwaitEnd(token);
}

TEST_F(AdapterCommandLine, LeavesNoChildWhenItIsStopped) {
  for (const int how : {SIGINT, SIGKILL}) {
    const std::string token = Path("token" + std::to_string(how));
    // Killed or interrupted while children hang under a limit that nobody waits for: one has
    // greeted, and each worker has its own.
    const ToolRun run = Signalled({"fuzz", "--impl", Hostile("in_start:hang", token), "--cases",
                                   "100", "--out", "found", "-j", "2", "--limit", "10m"},
                                  how, [&](pid_t) { return CountProcesses(token) >= 2; });
    EXPECT_EQ(run.exit_code, how == SIGINT ? 130 : 128 + SIGKILL) << run.err;
    AwaitEnd(token);
  }
}

// Before anything is judged there is a report too.
TEST_F(AdapterCommandLine, InterruptedWhileItGreetsGivesAReport) {
  for (const char* command : {"fuzz", "gate"}) {
    const std::string token = Path(std::string("greets") + command);
    const ToolRun run = Signalled(
        {command, "--impl", Hostile("in_hello:hang", token), "--limit", "10m", "--json", "-"},
        SIGTERM, [&](pid_t) { return CountProcesses(token) >= 1; });
    EXPECT_EQ(run.exit_code, 130) << run.err;
    const json report = json::parse(run.out);
    EXPECT_EQ(report.at("summary").at("interrupted"), true);
    EXPECT_EQ(report.at("summary").at("exit_code"), 130);
    AwaitEnd(token);
  }
}

// Suspended as a whole for longer than the limit: nobody was silent.
TEST_F(AdapterCommandLine, DoesNotTakeSuspensionForSilence) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const MachineTime time(Path("time"));
  setenv(MachineTime::kVariable, Path("time").c_str(), 1);
  const std::string token = Path("token");
  const auto exists = [&](const char* end) { return std::filesystem::exists(token + end); };
  const pid_t tool = Start({program(), "run", std::string(kSetup) + "; new A; append A 1", "--impl",
                            Hostile("waits", token), "--limit", "1h"});
  unsetenv(MachineTime::kVariable);
  WaitUntil([&] { return exists(".begun"); });
  // From the top, so that nothing is counted while the signs are waited for.
  kill(tool, SIGSTOP);
  WaitUntil([&] { return StateOf(tool) == 'T'; });
  std::ofstream(token + ".silent") << "1";
  WaitUntil([&] { return exists(".is_silent"); });
  const std::vector<pid_t> tree = TreeOf(tool);
  ASSERT_EQ(tree.size(), 2u);
  kill(tree[1], SIGSTOP);
  time.MoveOn(std::chrono::hours(10));  // the suspension itself
  const int64_t waits = WaitsOf(tool);
  kill(tool, SIGCONT);
  // It has looked by then, and found silence past the limit where it counts the suspension.
  WaitUntil([&] { return WaitsOf(tool) > waits + 3 || StateOf(tool) == 'Z'; });
  std::ofstream(token + ".answer") << "1";
  kill(tree[1], SIGCONT);
  const ToolRun run = End(tool);
  EXPECT_EQ(run.out.find("TIMED_OUT"), std::string::npos) << run.out;
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  AwaitEnd(token);
}

// Wrong at first and right when asked again, as races and memory that nobody wrote are.
TEST_F(AdapterCommandLine, FailsWhatDoesNotRepeat) {
  const json campaign = Campaign({"--kind", "codec", "--cases", "40", "--shrink-time", "0s"},
                                 ShellWord(KVCHECK_FLAKY_CHILD));
  EXPECT_GT(campaign.at("failed"), 0);
  // Those that fail are asked twice, so that each case begins with a wrong answer, but for the few
  // whose wrong element is not judged.
  EXPECT_GT(campaign.at("failed"), 2 * campaign.at("passed").get<int>());
  const std::string signature = campaign.at("failures").at(0).at("signature");
  EXPECT_TRUE(signature.ends_with(", not repeated")) << signature;
}

// The profile that a child states counts for stored inputs as it does for generated ones.
TEST_F(AdapterCommandLine, AsksOfStoredInputsWhatIsStated) {
  const std::string stored =
      std::string(KVCHECK_SOURCE_DIR) + "/golden/data/mlx_affine.h5#decode.b2.g128.f16";
  for (const std::string& name : {std::string("optimized"), Serve("optimized")}) {
    const ToolRun run = Tool({"run", "--data", stored, "--impl", name, "-v"});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_NE(run.out.find("decode=two_roundings"), std::string::npos) << run.out;
  }
  // What the command line names stands, and the answer's other profile is a warning.
  const ToolRun named = Tool({"run", "--data", stored, "--impl", Serve("optimized"), "--profile",
                              "decode=one_rounding", "-v"});
  EXPECT_NE(named.out.find("it was judged by the one that the question names"), std::string::npos)
      << named.out << named.err;
}

// A suite may ask for a convention that an implementation does not follow, and says so: then it has
// not what is asked for.
TEST_F(AdapterCommandLine, DeclinesCasesOfConventionsThatItSaysItDoesNotFollow) {
  std::ofstream(Path("conventions.cases"))
      << "case once\nreason one rounding\nprofile decode=one_rounding\n"
         "codec op=decode format=affine:4:g64:bf16 x=f32 rows=7 d=192 data=codes:4\n\n"
         "case twice\nreason two roundings\nprofile decode=two_roundings\n"
         "codec op=decode format=affine:4:g64:bf16 x=f32 rows=7 d=192 data=codes:4\n";
  const ToolRun run = Tool(
      {"gate", "--suite", "conventions.cases", "--fuzz-cases", "0", "--impl", Serve("optimized")});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("UNSUPPORTED  conventions/once  the case asks for 'decode=one_rounding'"),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("PASS  conventions/twice"), std::string::npos) << run.out;
}

TEST_F(AdapterCommandLine, KeepsFailuresOfCommandsThatAFileCannotName) {
  const std::string folder = Path("caf\u00e9");
  std::filesystem::create_directories(folder);
  std::filesystem::create_symlink(KVCHECK_TOOL, folder + "/tool");
  const ToolRun run = Tool({"fuzz", "--impl",
                            ShellWord(folder + "/tool") + " serve --impl fault:merge_swaps_values",
                            "--cases", "400", "--out", "found"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_EQ(run.out.find("not shrunk to the end"), std::string::npos) << run.out;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("found"))) {
    ++files;
    const ToolRun again =
        Tool({"run", entry.path().string(), "--impl", "fault:merge_swaps_values"});
    EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(AdapterCommandLine, ObservesWhenItIsTold) {
  const std::vector<std::string> cases = {"--cases", "200", "--observe"};
  const auto states = [&](const char* when) {
    std::vector<std::string> arguments = cases;
    arguments.emplace_back(when);
    const json served = Campaign(arguments, Serve("optimized"));
    EXPECT_EQ(served, Campaign(arguments, "optimized")) << when;
    return served.at("states").get<int64_t>();
  };
  EXPECT_GT(states("each"), 2 * states("last"));
}

TEST(SplitCommandLine, TakesWordsAsAShellDoes) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(SplitCommandLine("a  b\tc "), (Words{"a", "b", "c"}));
  EXPECT_EQ(SplitCommandLine("a 'b c' \"d 'e'\" f\\ g ''"),
            (Words{"a", "b c", "d 'e'", "f g", ""}));
  EXPECT_EQ(SplitCommandLine("'it'\\''s' \"a\\\"b\\\\c\\d\""), (Words{"it's", "a\"b\\c\\d"}));
  for (const char* word : {"", "plain", "it's", "a b", "\\", "$HOME", "\"q\""}) {
    EXPECT_EQ(SplitCommandLine("x " + ShellWord(word)), (Words{"x", std::string(word)}));
  }
  for (const char* wrong : {"", "  ", "a 'b", "a \"b", "'' a"}) {
    EXPECT_ANY_THROW(SplitCommandLine(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace kvcheck
