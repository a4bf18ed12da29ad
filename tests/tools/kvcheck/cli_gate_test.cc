// kvcheck gate: suites, known failures and their expiry, shards, budgets, reports.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"
#include "tests/tools/process/child_time.h"

namespace kvcheck {
namespace {

constexpr const char* kSuite =
    "case kept\n"
    "reason the first tokens of a ring stay\n"
    "cache layout=ring:w=2:keep=1 k=f32 dk=8 data=tokens:1\n"
    "new A\n"
    "append A 2\n"
    "append A 1\n"
    "\n"
    "case linear\n"
    "reason nothing is evicted\n"
    "cache k=f32 dk=8 data=tokens:1; new A; append A 2\n"
    "\n"
    "case rows\n"
    "reason bytes of codes\n"
    "codec op=encode format=affine:4:g32:bf16 x=f32 rows=3 d=64 data=gauss:1\n"
    "\n"
    "case decode\n"
    "reason one query\n"
    "attention hq=2 hkv=1 l=1 t=9 d=8 q=f32 k=f32 v=f32 out=f32 data=gauss:1\n";

constexpr const char* kFault = "fault:kept_evicted_on_wrap";

class GateCommand : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    Write("small.cases", kSuite);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  ToolRun Gate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"gate", "--suite", "small.cases", "--fuzz-cases", "0"});
    return Tool(arguments);
  }
  // A line of known failures about the fault's append.
  void Known(const std::string& rest) const {
    Write("known.txt", "signature=\"append visible_missing\" impl=" + std::string(kFault) +
                           " reason=\"issue 12\" " + rest + "\n");
  }
};

TEST_F(GateCommand, OwnSuitesAndDrawnCasesPass) {
  const ToolRun run = Tool({"gate", "--fuzz-cases", "500", "-j", "2", "-q"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("fuzz cache on optimized 1, seed 1: 500 cases"), std::string::npos);
  EXPECT_NE(run.out.find("fuzz codec on optimized 1, seed 1: 50 cases"), std::string::npos);
  EXPECT_NE(run.out.find("fuzz attention on optimized 1, seed 1: 3 cases"), std::string::npos);
  EXPECT_EQ(run.out.find("FAIL"), std::string::npos) << run.out;
}

TEST_F(GateCommand, CasesRunInOrderWithTheirReasons) {
  const ToolRun run = Gate({"-j", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  size_t at = 0;
  for (const char* name : {"PASS  small/kept", "PASS  small/linear", "PASS  small/rows",
                           "PASS  small/decode", "4 cases: 4 passed"}) {
    at = run.out.find(name, at);
    ASSERT_NE(at, std::string::npos) << name << "\n" << run.out;
  }
}

TEST_F(GateCommand, FailureFailsWithSignatureReasonAndCommand) {
  const ToolRun run = Gate({"--impl", kFault});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("FAIL  small/kept"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("signature \"append visible_missing\""), std::string::npos);
  EXPECT_NE(run.out.find("this case: the first tokens of a ring stay"), std::string::npos);
  EXPECT_NE(run.out.find("reproduce    kvcheck run 'cache layout=ring:w=2:keep=1"),
            std::string::npos);
}

// A fault of caches has no codecs and no attention: these are one line.
TEST_F(GateCommand, CasesOutsideOfWhatIsStatedAreOneLineWithACount) {
  const ToolRun run = Gate({"--impl", kFault, "--json", "report.json", "--junit", "report.xml"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("UNSUPPORTED  2 of 4 cases of suites lie outside of the kinds and spaces "
                         "that the implementation states, and were not asked: codec 1, attention 1 "
                         "(-v lists them)\n"),
            std::string::npos)
      << run.out;
  EXPECT_EQ(run.out.find("small/rows"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("\n2 cases: 1 passed, 1 failed; "), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("; 2 cases of suites not asked, outside of what is stated\n"),
            std::string::npos)
      << run.out;
  // The reports have every case, and the same counts.
  const auto json = nlohmann::json::parse(ContentOfFile("report.json"));
  EXPECT_EQ(json["summary"]["outside"], 2);
  EXPECT_EQ(json["summary"]["unsupported"], 2);
  int outside = 0;
  for (const auto& result : json["cases"]) outside += result["outside"].get<bool>() ? 1 : 0;
  EXPECT_EQ(outside, 2);
  pugi::xml_document document;
  ASSERT_TRUE(document.load_file(Path("report.xml").c_str()));
  EXPECT_EQ(document.child("testsuites").attribute("skipped").as_int(), 2);
  EXPECT_EQ(document.child("testsuites").attribute("tests").as_int(), 4);
  // -v lists them; -q has the count alone.
  EXPECT_NE(Gate({"--impl", kFault, "-v"}).out.find("UNSUPPORTED  small/rows"), std::string::npos);
  const ToolRun quiet = Gate({"--impl", kFault, "-q"});
  EXPECT_EQ(quiet.out.find("UNSUPPORTED"), std::string::npos) << quiet.out;
  EXPECT_NE(quiet.out.find("2 cases of suites not asked"), std::string::npos) << quiet.out;
  // Strict runs do not let it pass that something was not asked.
  const ToolRun strict = Tool({"gate", "--suite", "small.cases", "--fuzz-cases", "0", "--impl",
                               "simulated:base=plain_f32", "--strict", "--json", "strict.json"});
  EXPECT_EQ(strict.exit_code, 1) << strict.out;
  EXPECT_NE(strict.out.find("FAIL  3 of 4 cases of suites lie outside"), std::string::npos)
      << strict.out;
  EXPECT_NE(strict.out.find("; 3 cases of suites not asked, outside of what is stated (strict: "
                            "failed)\n"),
            std::string::npos)
      << strict.out;
}

TEST_F(GateCommand, FailuresComeFirstEachWithItsTrace) {
  Write(
      "order.cases",
      "case passes\nreason r\ncache k=f32 dk=8 data=tokens:1; new A; append A 2\n\n"
      "case fails\nreason r\ncache layout=ring:w=2:keep=1 k=f32 dk=8 data=tokens:1; new A; append "
      "A 2; append A 1\n");
  const ToolRun run = Tool({"gate", "--suite", "order.cases", "--fuzz-cases", "100", "--impl",
                            kFault, "--max-print", "2", "-j", "1", "--json", "report.json"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(run.out.starts_with("FAIL  order/fails")) << run.out;
  const size_t drawn = run.out.find("\nFAIL  cache ");
  ASSERT_NE(drawn, std::string::npos) << run.out;
  EXPECT_LT(drawn, run.out.find("\nPASS  order/passes")) << run.out;
  EXPECT_NE(run.out.find("               new A", drawn), std::string::npos) << run.out;
  // The last line counts cases, drawn ones too, and not results.
  const auto json = nlohmann::json::parse(ContentOfFile("report.json"));
  const auto& campaign = json["summary"]["campaigns"][0];
  EXPECT_NE(
      run.out.find(fmt::format("\n102 cases (2 of suites, 100 drawn): {} passed, {} failed; {} "
                               "states and ",
                               1 + campaign["passed"].get<int>(), 1 + campaign["failed"].get<int>(),
                               campaign["states"].get<int>())),
      std::string::npos)
      << run.out;
}

TEST_F(GateCommand, KnownFailureIsAFinding) {
  Known("version=* expires=2999-12-31");
  const ToolRun run = Gate({"--impl", kFault, "--known", "known.txt"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("FAIL, as expected  small/kept"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("1 known findings found"), std::string::npos) << run.out;
}

TEST_F(GateCommand, DrawingGoesOnPastAKnownFailure) {
  const std::string impl = "fault:trim_renumbers";
  Write("known.txt", "signature=\"trim offset\" impl=" + impl +
                         " version=1 reason=\"issue 13\" expires=2999-12-31\n");
  const ToolRun known = Tool({"gate", "--suite", "small.cases", "--fuzz-cases", "300", "--impl",
                              impl, "--known", "known.txt"});
  EXPECT_EQ(known.exit_code, 0) << known.out << known.err;
  EXPECT_NE(known.out.find("FAIL, as expected  cache trim offset"), std::string::npos) << known.out;
  EXPECT_NE(known.out.find("300 cases: "), std::string::npos) << known.out;
  EXPECT_NE(known.out.find("PASS  fuzz cache"), std::string::npos) << known.out;
  const ToolRun unknown =
      Tool({"gate", "--suite", "small.cases", "--fuzz-cases", "300", "--impl", impl});
  EXPECT_EQ(unknown.exit_code, 1) << unknown.out;
}

TEST_F(GateCommand, KnownFailureOfAnotherVersionOrImplementationExcusesNothing) {
  Known("version=9.* expires=2999-12-31");
  EXPECT_EQ(Gate({"--impl", kFault, "--known", "known.txt"}).exit_code, 1);
  Known("version=* expires=2999-12-31");
  EXPECT_EQ(Gate({"--impl", "fault:trim_renumbers", "--known", "known.txt"}).exit_code, 0);
}

TEST_F(GateCommand, ExpiredKnownFailureFailsAndSaysSo) {
  Known("version=* expires=2020-01-31");
  const ToolRun run = Gate({"--impl", kFault, "--known", "known.txt"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("known (issue 12), until 2020-01-31: known.txt:1"), std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("was excused until 2020-01-31"), std::string::npos) << run.out;
}

TEST_F(GateCommand, KnownFailureThatPassesFails) {
  Write("known.txt",
        "signature=\"append visible_missing\" impl=optimized version=* reason=\"issue 12\" "
        "expires=2999-12-31 case=small/kept\n");
  const ToolRun run = Gate({"--known", "known.txt"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("expected FAIL (issue 12), got PASS"), std::string::npos) << run.out;
}

TEST_F(GateCommand, KnownFailureThatWasNotSeenIsListedOnly) {
  Write("known.txt",
        "signature=\"trim offset\" impl=optimized version=* reason=\"rare\" expires=2999-12-31\n");
  const ToolRun run = Gate({"--known", "known.txt"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_NE(run.out.find("\"trim offset\" of optimized (rare) was not seen in this run"),
            std::string::npos)
      << run.out;
}

TEST_F(GateCommand, KnownFailureOfANamedCaseDoesNotExcuseAnotherFailureThere) {
  Write("known.txt", "signature=\"trim offset\" impl=" + std::string(kFault) +
                         " version=* reason=r expires=2999-12-31 case=small/kept\n");
  const ToolRun run = Gate({"--impl", kFault, "--known", "known.txt"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("FAIL  small/kept"), std::string::npos) << run.out;
}

// A fault whose drawn failures are known by their traces, and one behind the same signature.
TEST_F(GateCommand, ASignatureThatIsKnownDoesNotExcuseAnotherCause) {
  const std::string impl = "fault:trim_renumbers";
  const std::string entry = "signature=\"trim offset\" impl=" + impl +
                            " version=1 reason=\"issue 13\" expires=2999-12-31\n";
  const std::vector<std::string> gate = {"gate",   "--suite", "small.cases", "--fuzz-cases", "300",
                                         "--impl", impl,      "--known",     "known.txt",    "-v"};
  Write("known.txt", entry);
  const ToolRun by_signature = Tool(gate);
  EXPECT_EQ(by_signature.exit_code, 0) << by_signature.out;
  EXPECT_NE(by_signature.out.find("known by its signature alone, which may hide another cause"),
            std::string::npos)
      << by_signature.out;
  EXPECT_NE(by_signature.out.find("attributed by the signature alone: the entry has no traces"),
            std::string::npos);
  Write("known.txt",
        entry +
            "  trace cache layout=chunk:c=2 k=affine:4:g32:f32 dk=32 data=tokens:1; new A "
            "rows=3; append A 5; filter A 2,0; trim A 2\n");
  const ToolRun other = Tool(gate);
  EXPECT_EQ(other.exit_code, 1) << other.out;
  EXPECT_NE(other.out.find("FAIL  cache trim offset"), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("the signature is known, this cause is not"), std::string::npos);
  EXPECT_NE(
      other.out.find("known.txt:1: \"trim offset\" of fault:trim_renumbers (issue 13) was not "
                     "seen in this run"),
      std::string::npos)
      << other.out;
}

TEST_F(GateCommand, WhatIsWrittenAsKnownIsKnownFromThenOn) {
  const std::string impl = "fault:trim_renumbers";
  const auto gate = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"gate", "--suite", "small.cases", "--fuzz-cases", "400", "--impl", impl});
    return Tool(more);
  };
  EXPECT_EQ(gate({"--write-known", "known.txt", "--expires", "2999-12-31", "--reason", "issue 13",
                  "--shrink-cases", "12"})
                .exit_code,
            1);
  const ToolRun known =
      gate({"--known", "known.txt", "--json", "report.json", "--shrink-cases", "3"});
  EXPECT_EQ(known.exit_code, 0) << known.out;
  EXPECT_NE(known.out.find("shrunk to a known trace, 0 to none; "), std::string::npos) << known.out;
  std::ifstream file(Path("report.json"));
  const auto report = nlohmann::json::parse(file);
  const auto& failure = report["summary"]["campaigns"][0]["failures"][0];
  EXPECT_EQ(failure["shrunk"], 3);
  EXPECT_EQ(failure["unseen"], failure["cases"].get<int64_t>() - 3);
  EXPECT_GT(failure["unseen"], 0);
}

TEST_F(GateCommand, StopAtNewEndsAtTheFirstFailureThatIsNotKnown) {
  const std::string impl = "fault:trim_renumbers";
  const std::string entry =
      "signature=\"trim offset\" impl=" + impl + " version=1 reason=r expires=2999-12-31\n";
  const auto gate = [&](const std::string& known) {
    Write("known.txt", known);
    return Tool({"gate", "--suite", "small.cases", "--fuzz-cases", "2000", "--impl", impl,
                 "--known", "known.txt", "--stop-at-new", "--json", "report.json", "-j", "1"});
  };
  const auto summary = [&] {
    std::ifstream file(Path("report.json"));
    return nlohmann::json::parse(file)["summary"];
  };
  const std::string note = "ended at the first failure that is not known (--stop-at-new)";
  // A signature of which nothing is known ends the drawing.
  EXPECT_EQ(gate("# nothing\n").exit_code, 1);
  EXPECT_LT(summary()["campaigns"][0]["cases"], 2000);
  EXPECT_EQ(summary()["notes"].back(), note);
  // Another cause under a known signature shows when its first case is shrunk.
  EXPECT_EQ(gate(entry + "  trace cache layout=chunk:c=2 k=affine:4:g32:f32 dk=32 data=tokens:1; "
                         "new A rows=3; append A 5; filter A 2,0; trim A 2\n")
                .exit_code,
            1);
  EXPECT_EQ(summary()["campaigns"][0]["cases"], 2000);
  EXPECT_EQ(summary()["campaigns"][0]["failures"][0]["shrunk"], 1);
  EXPECT_EQ(summary()["notes"].back(), note);
  // Where all is known the run is whole.
  EXPECT_EQ(gate(entry).exit_code, 0);
  EXPECT_EQ(summary()["campaigns"][0]["cases"], 2000);
  EXPECT_NE(summary()["notes"].back(), note);
  EXPECT_EQ(Gate({"--stop-at-new", "--write-known", "k.txt", "--expires", "2999-12-31"}).exit_code,
            2);
}

TEST_F(GateCommand, ACaseOfASuiteIsKnownByWhatItShrinksTo) {
  const std::string setup =
      "  trace cache layout=ring:w=2:keep=1 k=f32 dk=8 data=tokens:1; new A; ";
  Write("long.cases",
        "case long\nreason wraps\ncache layout=ring:w=4:keep=1 k=f16 x=f16 dk=8 data=tokens:4; new "
        "B; append B 2; new A rows=2; append A 4; append A 1; trim B 1\n");
  const auto gate = [&](const std::string& traces) {
    Write("known.txt", "signature=\"append visible_missing\" impl=" + std::string(kFault) +
                           " version=* reason=r expires=2999-12-31\n" + traces);
    return Tool({"gate", "--suite", "long.cases", "--fuzz-cases", "0", "--impl", kFault, "--known",
                 "known.txt", "-v"});
  };
  const ToolRun known =
      gate(setup + "append A 2; append A 1\n" + setup + "append A 1; append A 2\n");
  EXPECT_EQ(known.exit_code, 0) << known.out;
  EXPECT_NE(known.out.find("FAIL, as expected  long/long"), std::string::npos) << known.out;
  EXPECT_NE(known.out.find("known by its trace: known.txt:1"), std::string::npos) << known.out;
  const ToolRun unknown = gate(setup + "append A 3; save A s0; load s0 -> B; append B 1\n");
  EXPECT_EQ(unknown.exit_code, 1) << unknown.out;
  EXPECT_NE(unknown.out.find("shrunk to cache layout=ring"), std::string::npos) << unknown.out;
  // What is written is what it shrinks to, too.
  EXPECT_EQ(Tool({"gate", "--suite", "long.cases", "--fuzz-cases", "0", "--impl", kFault,
                  "--write-known", "new.txt", "--expires", "2999-12-31"})
                .exit_code,
            1);
  std::ifstream file(Path("new.txt"));
  const std::string written(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(written.find("  trace cache layout=ring"), std::string::npos) << written;
  EXPECT_EQ(written.find("trim B 1"), std::string::npos) << written;
}

TEST_F(GateCommand, WhatIsWrittenHasALastDay) {
  EXPECT_EQ(Gate({"--write-known", "known.txt"}).exit_code, 2);
  EXPECT_EQ(Gate({"--expires", "2999-12-31"}).exit_code, 2);
  const ToolRun run = Gate({"--write-known", "known.txt", "--expires", "2999-02-30"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("a date is YYYY-MM-DD"), std::string::npos) << run.err;
}

TEST_F(GateCommand, CrashesAndHangsAreVerdictsOfTheirCases) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  Write("small.cases",
        "case first\nreason passes\ncache k=f32 dk=8 data=tokens:1; new A; append A 1\n\n"
        "case bad\nreason trims\ncache k=f32 dk=8 data=tokens:1; new A rows=2; append A 3; trim A "
        "1\n\n"
        "case last\nreason passes\ncache k=f32 dk=8 data=tokens:1; new A; append A 2\n");
  const ToolRun crash = Gate({"--impl", "selftest:abort"});
  EXPECT_EQ(crash.exit_code, 1);
  EXPECT_NE(crash.out.find("CRASHED  small/bad  crashed (signal 6"), std::string::npos);
  EXPECT_NE(crash.out.find("signature \"trim CRASHED\""), std::string::npos) << crash.out;
  EXPECT_NE(crash.out.find("3 cases: 2 passed, 1 failed (1 crashed)"), std::string::npos)
      << crash.out;
  const SharedChildTime time(testing::TempDir());
  const ToolRun hang = Gate({"--impl", "selftest:hang", "--limit", "1h"});
  EXPECT_EQ(hang.exit_code, 1);
  EXPECT_NE(hang.out.find("3 cases: 2 passed, 1 failed (1 timed out)"), std::string::npos)
      << hang.out;
  EXPECT_NE(hang.out.find("TIMED_OUT  small/bad"), std::string::npos) << hang.out;
  // A crash may be known too.
  Write("known.txt",
        "signature=\"trim CRASHED\" impl=selftest:abort version=* reason=r expires=2999-12-31\n");
  const ToolRun known = Gate({"--impl", "selftest:abort", "--known", "known.txt"});
  EXPECT_EQ(known.exit_code, 0) << known.out;
}

TEST_F(GateCommand, InterruptGivesAPartialReport) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  Write("small.cases",
        "case first\nreason passes\ncache k=f32 dk=8 data=tokens:1; new A; append A 1\n\n"
        "case bad\nreason hangs\ncache k=f32 dk=8 data=tokens:1; new A rows=2; append A 3; trim A "
        "1\n");
  // The second case hangs in a loop: the first one takes less than a second of a processor.
  const auto has_looped = [](pid_t tool) {
    for (const pid_t process : TreeOf(tool)) {
      if (process != tool && ProcessorSeconds(process) >= 2) return true;
    }
    return false;
  };
  const ToolRun run = Signalled({"gate", "--suite", "small.cases", "--impl", "selftest:hang",
                                 "--limit", "10m", "-j", "1", "--fuzz-cases", "0"},
                                SIGINT, has_looped);
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
  EXPECT_NE(run.out.find("PASS  small/first"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("interrupted, this report is partial"), std::string::npos) << run.out;
}

TEST_F(GateCommand, ShardsPartTheCases) {
  std::multiset<std::string> names;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const ToolRun run = Tool({"gate", "--fuzz-cases", "0", "--shard", shard, "--json", "-"});
    ASSERT_EQ(run.exit_code, 0) << run.out;
    const auto report = nlohmann::json::parse(run.out);
    for (const auto& result : report["cases"]) names.insert(result["name"].get<std::string>());
  }
  const ToolRun whole = Tool({"gate", "--fuzz-cases", "0", "--json", "-"});
  std::multiset<std::string> all;
  const auto report = nlohmann::json::parse(whole.out);
  for (const auto& result : report["cases"]) all.insert(result["name"].get<std::string>());
  EXPECT_GT(all.size(), 100u);
  EXPECT_EQ(names, all);
}

TEST_F(GateCommand, ReportsDoNotDependOnWorkers) {
  const ToolRun one = Gate({"--impl", kFault, "-j", "1", "--json", "-"});
  const ToolRun three = Gate({"--impl", kFault, "-j", "3", "--json", "-"});
  EXPECT_EQ(one.out, three.out);
  const auto json = nlohmann::json::parse(one.out);
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["summary"]["failed"], 1);
  EXPECT_EQ(json["summary"]["exit_code"], 1);
}

TEST_F(GateCommand, JunitHasOneTestPerResult) {
  const ToolRun run = Tool(
      {"gate", "--suite", "small.cases", "--fuzz-cases", "100", "--impl", kFault, "--junit", "-"});
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(run.out.c_str())) << run.out;
  const pugi::xml_node suite = document.child("testsuites").child("testsuite");
  EXPECT_STREQ(suite.attribute("name").value(), "kvcheck gate");
  const auto with = [&](const char* child) {
    int count = 0;
    for (const pugi::xml_node test : suite.children("testcase")) {
      count += child == nullptr || test.child(child) ? 1 : 0;
    }
    return count;
  };
  EXPECT_GE(with("failure"), 2) << run.out;  // of the suite, and drawn
  EXPECT_EQ(suite.attribute("failures").as_int(), with("failure"));
  EXPECT_EQ(suite.attribute("skipped").as_int(), 2);
  EXPECT_EQ(with("skipped"), 2);
  EXPECT_EQ(suite.attribute("tests").as_int(), with(nullptr));
}

TEST_F(GateCommand, AnnotatesAWorkflowOfGithub) {
  const std::string gate = std::string("\"$KVCHECK\" gate --suite small.cases --impl '") + kFault +
                           "' --fuzz-cases 100 --github";
  const ToolRun run = Shell("echo before > step.md; GITHUB_STEP_SUMMARY=step.md " + gate);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.out.find("\n::error title="), std::string::npos) << run.out;
  const std::string summary = ContentOfFile("step.md");
  EXPECT_EQ(summary.rfind("before\n### kvcheck gate\n", 0), 0u) << summary;
  EXPECT_NE(summary.find("| FAIL |"), std::string::npos) << summary;

  // Elsewhere it runs, and warns that no summary is written.
  const ToolRun outside = Shell("unset GITHUB_STEP_SUMMARY; " + gate);
  EXPECT_EQ(outside.exit_code, 1) << outside.err;
  EXPECT_NE(outside.out.find("\n::error title="), std::string::npos) << outside.out;
  EXPECT_NE(outside.err.find("kvcheck: warning: --github: GITHUB_STEP_SUMMARY names no file"),
            std::string::npos)
      << outside.err;
  EXPECT_EQ(Shell("GITHUB_STEP_SUMMARY=step.md " + gate + " --json -").exit_code, 2);
}

TEST_F(GateCommand, WhatCannotBeAskedIsRefused) {
  Write("bad.cases", "case a\ncache k=f32 dk=8 data=tokens:1; new A\n");
  Write("bad.txt", "signature=x impl=y owner=z\n");
  Write("unknown_case.txt",
        "signature=x impl=y version=1 reason=r expires=2999-12-31 case=small/none\n");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--impl", "nobody"},
                                                    {"--suite", "nowhere.cases"},
                                                    {"--suite", "bad.cases"},
                                                    {"--suite", "small.cases"},
                                                    {"--suite", "/"},
                                                    {"--known", "nowhere.txt"},
                                                    {"--known", "bad.txt"},
                                                    {"--known", "unknown_case.txt"},
                                                    {"--shard", "4/3"},
                                                    {"--limit", "0"},
                                                    {"--fuzz-time", "x"},
                                                    {"--fuzz-cases", "-1"}}) {
    std::vector<std::string> all = {"gate", "--suite", "small.cases", "--fuzz-cases", "0"};
    if (arguments[0] == "--fuzz-time") all = {"gate", "--suite", "small.cases"};
    if (arguments[0] == "--fuzz-cases") all = {"gate", "--suite", "small.cases"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ToolRun run = Tool(all);
    EXPECT_EQ(run.exit_code, 2) << testing::PrintToString(arguments) << run.out;
    EXPECT_TRUE(run.err.starts_with("kvcheck: error: ")) << run.err;
  }
}

}  // namespace
}  // namespace kvcheck
