// kvcheck fuzz: finding, shrinking, writing and replaying failures; crashes and hangs; reports that
// depend on nothing but the cases.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"
#include "tests/tools/process/child_time.h"

namespace kvcheck {
namespace {

class FuzzCommand : public ToolTest {
 protected:
  std::string Content(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> CaseFiles(const std::string& folder) const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(Path(folder))) return names;
    for (const auto& entry : std::filesystem::directory_iterator(Path(folder))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

TEST_F(FuzzCommand, OptimizedPassesAndReachesEveryProbe) {
  const ToolRun run = Tool({"fuzz", "--cases", "5000", "-j", "2", "-v"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("every probe was reached"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("fuzz cache on optimized 1, seed 1: 5000 cases: "), std::string::npos);
  EXPECT_NE(run.out.find("ring_wrapped "), std::string::npos);
  EXPECT_NE(run.err.find("5000 cases in "), std::string::npos) << run.err;
  EXPECT_TRUE(CaseFiles("fuzz-failures").empty());
}

TEST_F(FuzzCommand, FindsShrinksWritesAndReplays) {
  const ToolRun run = Tool({"fuzz", "--impl", "fault:kept_evicted_on_wrap", "--out", "found"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("FAIL  cache append visible_missing  operation ")) << run.out;
  EXPECT_EQ(CaseFiles("found"), std::vector<std::string>{"cache-append-visible_missing.case"});
  const std::string file = "found/cache-append-visible_missing.case";
  EXPECT_NE(run.out.find("written to " + file), std::string::npos) << run.out;
  const std::string text = Content(file);
  EXPECT_NE(text.find("# append visible_missing on fault:kept_evicted_on_wrap 1: operation "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("# Replay: kvcheck run " + file), std::string::npos) << text;
  // The shortest trace known has three operations.
  const std::string trace = text.substr(text.find("\ncache ") + 1);
  EXPECT_LE(std::count(trace.begin(), trace.end(), '\n'), 1 + 3 + 2) << trace;
  for (const std::vector<std::string>& replay :
       {std::vector<std::string>{"run", "-v", file}, {"run", "-v", "--file", file}}) {
    const ToolRun again = Tool(replay);
    EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
    EXPECT_NE(again.out.find("signature \"append visible_missing\""), std::string::npos);
    EXPECT_NE(again.out.find("observed     fault:kept_evicted_on_wrap"), std::string::npos);
  }
  EXPECT_EQ(Tool({"run", file, "--impl", "optimized"}).exit_code, 0);
}

// An append behind what fails gave a cache its tokens too late, and was kept.
TEST_F(FuzzCommand, AShrunkTraceEndsWithTheOperationThatFails) {
  for (const std::string fault : {"merge_empty_refused", "merge_skips_empty_row", "save_shares"}) {
    const ToolRun run = Tool({"fuzz", "--impl", "fault:" + fault, "--cases", "400", "--keep-going",
                              "--json", "report.json"});
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    const auto report = nlohmann::json::parse(Content("report.json"));
    for (const auto& failure : report["cases"]) {
      const std::string trace = failure["case"];
      const std::string reason = failure["reasons"][0];
      const auto operations = std::count(trace.begin(), trace.end(), '\n');
      EXPECT_TRUE(reason.starts_with("operation " + std::to_string(operations) + ", "))
          << reason << "\n"
          << trace;
    }
    EXPECT_FALSE(report["cases"].empty());
  }
}

TEST_F(FuzzCommand, ReportDependsOnTheCasesAlone) {
  const std::vector<std::string> common = {"fuzz",    "--impl", "fault:merge_swaps_values",
                                           "--cases", "3000",   "--keep-going",
                                           "--seed",  "7",      "--out",
                                           "found",   "--json"};
  const auto with = [&](const char* json, const char* j) {
    std::vector<std::string> arguments = common;
    arguments.insert(arguments.end(), {json, "-j", j});
    return Tool(arguments);
  };
  const ToolRun one = with("one.json", "1");
  const ToolRun four = with("four.json", "4");
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_EQ(one.out, four.out);
  EXPECT_EQ(Content("one.json"), Content("four.json"));
  const auto json = nlohmann::json::parse(Content("one.json"));
  const auto& campaign = json["summary"]["campaigns"][0];
  EXPECT_EQ(campaign["cases"], 3000);
  EXPECT_EQ(campaign["seed"], 7);
  EXPECT_EQ(campaign["passed"].get<int64_t>() + campaign["failed"].get<int64_t>() +
                campaign["mistrusted"].get<int64_t>() + campaign["unsupported"].get<int64_t>(),
            3000);
  EXPECT_EQ(json["cases"].size(), campaign["failures"].size());
  EXPECT_EQ(json["cases"][0]["outcome"], "FAIL");
  EXPECT_GT(campaign["probes"]["ring_wrapped"].get<int64_t>(), 100);
}

// What proves nothing is listed by why, and under which plan: here the plan's own roundings.
TEST_F(FuzzCommand, MistrustedAttentionSaysWhyAndUnderWhichPlan) {
  const ToolRun run =
      Tool({"fuzz", "--kind", "attention", "--impl", "simulated:base=mlx_lm_quantized_bf16",
            "--cases", "40", "--keep-going", "--json", "report.json"});
  EXPECT_NE(run.out.find("plan mlx_lm_quantized_bf16 qk=bf16:sequential pv=bf16:sequential "
                         "scores=bf16 p=bf16"),
            std::string::npos)
      << run.out;
  const auto report = nlohmann::json::parse(Content("report.json"));
  std::set<std::string> signatures;
  for (const auto& finding : report["summary"]["campaigns"][0]["unproved"]) {
    signatures.insert(finding["signature"].get<std::string>());
  }
  EXPECT_TRUE(signatures.contains("attention out MISTRUSTED: vacuous under mlx_lm_quantized_bf16"))
      << run.out;
  EXPECT_GT(signatures.size(), 1u) << run.out;
}

TEST_F(FuzzCommand, FolderThatCannotBeWrittenIsRefusedBeforeTheWork) {
  for (const char* command : {"fuzz", "gate"}) {
    for (const char* out : {"/dev/null", "/dev/null/found"}) {
      const ToolRun run = Tool({command, "--out", out, "-j", "1"});
      EXPECT_EQ(run.exit_code, 2) << command << " " << out;
      EXPECT_EQ(run.out, "") << command << " " << out;
      EXPECT_NE(run.err.find("--out: "), std::string::npos) << run.err;
    }
  }
}

TEST_F(FuzzCommand, FoldersInPlaceOfFilesAreRefused) {
  EXPECT_EQ(Tool({"run", "--file", "/tmp"}).exit_code, 2);
  EXPECT_EQ(Tool({"gate", "--known", "/tmp"}).exit_code, 2);
}

TEST_F(FuzzCommand, TimeRunsAPrefixOfTheSameSequence) {
  const ToolRun timed = Tool({"fuzz", "--time", "300ms", "--json", "-", "-j", "2"});
  ASSERT_EQ(timed.exit_code, 0) << timed.out << timed.err;
  const auto json = nlohmann::json::parse(timed.out);
  const int64_t cases = json["summary"]["campaigns"][0]["cases"];
  const ToolRun counted =
      Tool({"fuzz", "--cases", std::to_string(cases), "--json", "-", "-j", "1"});
  EXPECT_EQ(counted.out, timed.out);
}

TEST_F(FuzzCommand, LayoutsAndFormatsRestrictWhatIsDrawn) {
  const ToolRun run = Tool({"fuzz", "--impl", "fault:kept_evicted_on_wrap", "--layout", "linear*",
                            "--format", "affine:4:*", "--cases", "500", "-v"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_NE(run.out.find("ring_wrapped "), std::string::npos);
  EXPECT_EQ(Tool({"fuzz", "--layout", "spiral"}).exit_code, 2);
  EXPECT_EQ(Tool({"fuzz", "--kind", "codec", "--format", "q9_9"}).exit_code, 2);
}

// No cache but a linear one keeps its newest tokens as vectors.
TEST_F(FuzzCommand, CasesOfWhichEveryOperationIsRefusedProveNothing) {
  const ToolRun run = Tool({"fuzz", "--kind", "cache", "--layout", "ring", "--format",
                            "affine:4:g32:r3:f16", "--cases", "20"});
  EXPECT_EQ(run.exit_code, 3) << run.out << run.err;
  EXPECT_NE(run.out.find("no state and no element was judged"), std::string::npos) << run.out;
}

TEST_F(FuzzCommand, CrashesAreVerdictsAndShrink) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const std::pair<const char*, const char*> impls[] = {
      {"selftest:abort", "crashed (signal 6, Aborted)"},
      {"selftest:throw", "threw: out of columns"},
      {"selftest:exit", "exited with code 0"}};
  for (const auto& [impl, reason] : impls) {
    const ToolRun run = Tool({"fuzz", "--impl", impl, "--out", "found", "-j", "2"});
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    EXPECT_TRUE(run.out.starts_with("CRASHED  cache trim CRASHED  " + std::string(reason)))
        << run.out;
    const std::string text = Content("found/cache-trim-CRASHED.case");
    const std::string trace = text.substr(text.find("\ncache ") + 1);
    // new, append, trim.
    EXPECT_EQ(std::count(trace.begin(), trace.end(), '\n'), 4) << trace;
  }
}

TEST_F(FuzzCommand, HangsAreVerdictsAndShrink) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const SharedChildTime time(testing::TempDir());
  const ToolRun run = Tool({"fuzz", "--impl", "selftest:hang", "--out", "found", "--limit", "1h",
                            "--shrink-time", "10h", "-j", "2"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("TIMED_OUT  cache trim TIMED_OUT  made no progress for 3600.0 s"))
      << run.out;
  const std::string text = Content("found/cache-trim-TIMED_OUT.case");
  const std::string trace = text.substr(text.find("\ncache ") + 1);
  EXPECT_LE(std::count(trace.begin(), trace.end(), '\n'), 6) << trace;
}

TEST_F(FuzzCommand, GoesOnPastCrashes) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const auto run = [&](const char* j) {
    return Tool({"fuzz", "--impl", "selftest:segv", "--cases", "80", "--keep-going", "-j", j});
  };
  const ToolRun one = run("1");
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_NE(one.out.find("80 cases: "), std::string::npos) << one.out;
  EXPECT_NE(one.out.find(" crashed)"), std::string::npos) << one.out;
  EXPECT_EQ(one.out, run("3").out);
}

TEST_F(FuzzCommand, ProbeThatIsNotReachedIsMistrusted) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const ToolRun run = Tool({"fuzz", "--impl", "selftest:no_rings", "--cases", "5000", "-j", "2"});
  EXPECT_EQ(run.exit_code, 3) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("MISTRUSTED  fuzz cache  probe ring_wrapped was not reached\n"))
      << run.out;
  EXPECT_NE(run.out.find("probe load_of_wrapped_ring was not reached"), std::string::npos);
  EXPECT_EQ(run.out.find("probe chunk_boundary_crossed was not reached"), std::string::npos);
  EXPECT_NE(run.out.find("UNSUPPORTED: "), std::string::npos) << run.out;
  // Fewer cases, or cases of some layouts alone, need not reach every probe.
  EXPECT_EQ(Tool({"fuzz", "--impl", "selftest:no_rings", "--cases", "200"}).exit_code, 0);
  EXPECT_EQ(Tool({"fuzz", "--impl", "selftest:no_rings", "--cases", "5000", "--layout", "linear*"})
                .exit_code,
            0);
  // Nothing was judged.
  EXPECT_EQ(
      Tool({"fuzz", "--impl", "selftest:no_rings", "--cases", "50", "--layout", "ring"}).exit_code,
      3);
}

TEST_F(FuzzCommand, CacheThatOnlyMakesCachesPassesNothing) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  std::ofstream(Path("one.cases")) << "case one\nreason any\n"
                                      "cache k=f32 dk=8 data=tokens:1; new A; append A 1\n";
  // A suite that passes does not make up for what was drawn.
  std::ofstream(Path("new.cases")) << "case new\nreason any\n"
                                      "cache k=f32 dk=8 data=tokens:1; new A\n";
  const ToolRun beside =
      Tool({"gate", "--impl", "selftest:only_new", "--fuzz-cases", "60", "--suite", "new.cases"});
  EXPECT_EQ(beside.exit_code, 3) << beside.out;
  EXPECT_NE(beside.out.find("fuzz cache  60 of 60 cases proved nothing"), std::string::npos)
      << beside.out;
  for (const char* command : {"fuzz", "gate"}) {
    std::vector<std::string> arguments = {command, "--impl", "selftest:only_new", "--json", "-"};
    if (command == std::string("fuzz")) {
      arguments.insert(arguments.end(), {"--cases", "60"});
    } else {
      arguments.insert(arguments.end(), {"--fuzz-cases", "60", "--suite", "one.cases"});
    }
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 3) << command << run.out << run.err;
    const auto campaign = nlohmann::json::parse(run.out)["summary"]["campaigns"][0];
    EXPECT_EQ(campaign["passed"], 0) << campaign;
    EXPECT_EQ(campaign["unsupported"], 60) << campaign;
    arguments.push_back("--strict");
    EXPECT_EQ(Tool(arguments).exit_code, 1) << command;
  }
}

TEST_F(FuzzCommand, ShareThatMayProveNothingIsAnOption) {
  UseProgram(KVCHECK_SELFTEST_TOOL);
  const auto with = [&](const char* percent) {
    return Tool({"fuzz", "--impl", "selftest:no_rings", "--cases", "200", "--max-unproved", percent,
                 "--json", "report.json"});
  };
  const ToolRun all = with("100");
  EXPECT_EQ(all.exit_code, 0) << all.out;
  const auto campaign = nlohmann::json::parse(Content("report.json"))["summary"]["campaigns"][0];
  const int64_t share = 100 * campaign["unsupported"].get<int64_t>() / 200;
  ASSERT_GT(share, 0);
  ASSERT_LT(share, 100);
  EXPECT_NE(all.out.find(" of 200 drawn cases proved nothing"), std::string::npos) << all.out;
  EXPECT_EQ(with(std::to_string(share + 1).c_str()).exit_code, 0);
  const ToolRun above = with(std::to_string(share - 1).c_str());
  EXPECT_EQ(above.exit_code, 3) << above.out;
  EXPECT_NE(above.out.find("more than " + std::to_string(share - 1) + " % (--max-unproved)"),
            std::string::npos)
      << above.out;
}

// Two bits of a normal row tell nothing, whoever keeps them.
TEST_F(FuzzCommand, CasesWhoseDataProveNothingAreCountedApart) {
  const std::vector<std::string> codecs = {"fuzz",     "--kind",     "codec",
                                           "--format", "affine:2:*", "--cases",
                                           "200",      "--json",     "report.json"};
  const ToolRun run = Tool(codecs);
  EXPECT_EQ(run.exit_code, 0) << run.out;
  const auto campaign = nlohmann::json::parse(Content("report.json"))["summary"]["campaigns"][0];
  EXPECT_GT(campaign["mistrusted"].get<int64_t>(), 0) << campaign;
  EXPECT_EQ(campaign["mistrusted_by_data"], campaign["mistrusted"]);
  EXPECT_NE(run.out.find(" mistrusted by their own data)"), std::string::npos) << run.out;
  std::vector<std::string> strict = codecs;
  strict.push_back("--strict");
  const ToolRun strictly = Tool(strict);
  EXPECT_EQ(strictly.exit_code, 0) << strictly.out;
}

// The same figure in every place of the report, and no part of what is mistrusted.
TEST_F(FuzzCommand, JsonOfFuzzAndGateCountsCasesThatTheirOwnDataBlind) {
  std::ofstream(Path("one.cases")) << "case one\nreason any\ncodec op=encode format=q8_0 x=f32 "
                                      "rows=2 d=32 data=gauss:1\n";
  const std::vector<std::string> commands[] = {
      {"fuzz", "--kind", "attention", "--cases", "200", "--strict"},
      {"gate", "--suite", "one.cases", "--fuzz-cases", "2000"}};
  for (std::vector<std::string> words : commands) {
    words.insert(words.end(), {"--json", "report.json", "-j", "2"});
    const ToolRun run = Tool(words);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    const auto summary = nlohmann::json::parse(Content("report.json")).at("summary");
    int64_t by_data = 0, of_attention = 0;
    for (const auto& campaign : summary.at("campaigns")) {
      const auto count = [&](const char* name) { return campaign.at(name).get<int64_t>(); };
      EXPECT_EQ(count("passed") + count("mistrusted") + count("unsupported"), count("cases"));
      EXPECT_LE(count("mistrusted_by_data"), count("mistrusted")) << campaign;
      by_data += count("mistrusted_by_data");
      if (campaign.at("kind") != "attention") continue;
      // Nothing else keeps a case of attention from proving something of what is right.
      of_attention = count("mistrusted_by_data");
      EXPECT_EQ(of_attention, count("mistrusted")) << campaign;
    }
    EXPECT_GT(of_attention, 0) << words[0];
    EXPECT_EQ(summary.at("mistrusted_by_data"), by_data) << words[0];
    EXPECT_EQ(summary.at("mistrusted"), 0) << words[0];
    EXPECT_NE(run.out.find(std::to_string(by_data) + " mistrusted by their own data"),
              std::string::npos)
        << run.out;
  }
}

TEST_F(FuzzCommand, StrictFailsWhatAnImplementationLeavesUnproved) {
  // Exponentials that may be off by half.
  const std::vector<std::string> vague = {"fuzz",
                                          "--kind",
                                          "attention",
                                          "--cases",
                                          "40",
                                          "--impl",
                                          "simulated:base=stranger exp_error=0.5"};
  const ToolRun run = Tool(vague);
  EXPECT_EQ(run.exit_code, 3) << run.out;
  EXPECT_TRUE(run.out.starts_with("MISTRUSTED  fuzz attention  ")) << run.out;
  std::vector<std::string> strict = vague;
  strict.push_back("--strict");
  EXPECT_EQ(Tool(strict).exit_code, 1);
  // The first case that proved nothing is named, and proves nothing when it is run.
  const std::string label = "  reproduce    kvcheck ";
  const size_t at = run.out.find(label);
  ASSERT_NE(at, std::string::npos) << run.out;
  const size_t end = run.out.find('\n', at);
  const std::string command = run.out.substr(at + label.size(), end - at - label.size());
  EXPECT_TRUE(command.starts_with("run 'attention ")) << command;
  EXPECT_EQ(Shell("\"$KVCHECK\" " + command).exit_code, 3) << command;
}

TEST_F(FuzzCommand, OwnImplementationsPassStrictly) {
  for (const char* kind : {"cache", "attention", "codec"}) {
    const ToolRun run = Tool({"fuzz", "--kind", kind, "--cases", "60", "--strict"});
    EXPECT_EQ(run.exit_code, 0) << kind << run.out;
  }
}

TEST_F(FuzzCommand, CodecOfAnotherProfileIsDeclined) {
  const char* c = "codec op=decode format=affine:4:g32:f16 x=f32 rows=2 d=32 data=codes:1";
  EXPECT_EQ(Tool({"run", c, "--impl", "optimized"}).exit_code, 0);
  const ToolRun exact = Tool({"run", c, "--impl", "optimized", "--profile", "decode=one_rounding"});
  EXPECT_EQ(exact.exit_code, 3) << exact.out;
  EXPECT_TRUE(exact.out.starts_with("UNSUPPORTED")) << exact.out;
}

TEST_F(FuzzCommand, AttentionFaultsAreFoundAndShrunkAndReplay) {
  const ToolRun run = Tool({"fuzz", "--kind", "attention", "--impl", "fault:last_key_dropped",
                            "--cases", "50", "--out", "found"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(run.out.starts_with("FAIL  attention out bound")) << run.out;
  const std::vector<std::string> files = CaseFiles("found");
  ASSERT_EQ(files.size(), 1u);
  const ToolRun again = Tool({"run", "found/" + files[0]});
  EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
}

// As kvcheck run explains one, in the text and in the JSON.
TEST_F(FuzzCommand, FailuresOfAttentionSayWhereWhyAndUnderWhichPlan) {
  const ToolRun run = Tool({"fuzz", "--kind", "attention", "--impl", "fault:causal_ignored",
                            "--cases", "50", "--out", "found", "--json", "report.json", "-v"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  for (const char* part :
       {"\n  where        ", "\n  bound        ", "\n  plan         qk=", "\n  profile      ",
        "\n  hint         looks as if the causal mask is not applied"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  }
  const nlohmann::json report = nlohmann::json::parse(Content("report.json"));
  const nlohmann::json& failure = report.at("cases").at(0);
  EXPECT_FALSE(failure.at("plan").get<std::string>().empty());
  EXPECT_FALSE(failure.at("profile").get<std::string>().empty());
  const nlohmann::json& out = failure.at("outputs").at(0);
  EXPECT_EQ(out.at("cause"), "causal mask ignored");
  EXPECT_FALSE(out.at("hints").empty());
  EXPECT_FALSE(out.at("breakdown").empty());
}

TEST_F(FuzzCommand, AttendOfACacheThatFailsHasTheHintOfAttention) {
  const ToolRun run = Tool({"fuzz", "--impl", "fault:attend_ignores_window", "--out", "found"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const std::string hint =
      "looks as if the key before the first visible one takes part: a window of one key too many";
  EXPECT_NE(run.out.find(hint), std::string::npos) << run.out;
  const std::vector<std::string> files = CaseFiles("found");
  ASSERT_EQ(files.size(), 1U);
  const ToolRun again = Tool({"run", "found/" + files[0]});
  EXPECT_NE(again.out.find(hint), std::string::npos) << again.out;
}

TEST_F(FuzzCommand, AttentionAndCodecsOfKvcheckPass) {
  const ToolRun attention = Tool({"fuzz", "--kind", "attention", "--cases", "40"});
  EXPECT_EQ(attention.exit_code, 0) << attention.out;
  for (const char* impl : {"optimized", "reference"}) {
    const ToolRun codec = Tool({"fuzz", "--kind", "codec", "--impl", impl, "--cases", "2000"});
    EXPECT_EQ(codec.exit_code, 0) << codec.out;
    EXPECT_NE(codec.out.find("2000 cases: "), std::string::npos) << codec.out;
  }
}

TEST_F(FuzzCommand, InterruptGivesAPartialReport) {
  // A failure is written when it is found: then cases have been judged, and more are to come.
  const ToolRun run = Signalled({"fuzz", "--impl", "fault:kept_evicted_on_wrap", "--keep-going",
                                 "--time", "10m", "-j", "2", "--out", "found"},
                                SIGINT, [&](pid_t) { return !CaseFiles("found").empty(); });
  EXPECT_EQ(run.exit_code, 130) << run.out << run.err;
  EXPECT_NE(run.out.find("interrupted, this report is partial"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("seed 1: 0 cases"), std::string::npos) << run.out;
}

TEST_F(FuzzCommand, WhatWasFoundSurvivesAKillAndTheSameCommandGoesOn) {
  const std::vector<std::string> command = {
      "fuzz", "--impl", "fault:merge_swaps_values", "--keep-going", "-j", "2", "--out", "found"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto campaign = [&](const std::string& report) {
    return nlohmann::json::parse(Content(report)).at("summary").at("campaigns").at(0);
  };
  std::string state;
  const ToolRun killed = Signalled(with({"--time", "10m"}), SIGKILL, [&](pid_t) {
    bool has_case = false;
    for (const std::string& name : CaseFiles("found")) {
      if (name.ends_with(".campaign")) state = name;
      has_case = has_case || name.ends_with(".case");
    }
    return has_case && !state.empty();
  });
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
  std::string found;
  for (const std::string& name : CaseFiles("found")) {
    if (name.ends_with(".case")) found = "found/" + name;
  }
  ASSERT_NE(found, "");
  EXPECT_NE(Content(found).find("and not yet shrunk"), std::string::npos) << Content(found);
  EXPECT_EQ(Tool({"run", found}).exit_code, 1);
  // As many as there were: what is left to do is to make the failures small.
  const ToolRun rest = Tool(with({"--cases", "1", "--json", "rest.json"}));
  EXPECT_EQ(rest.exit_code, 1) << rest.err;
  EXPECT_NE(rest.err.find("of an earlier run that did not come to its end"), std::string::npos)
      << rest.err;
  EXPECT_EQ(Content(found).find("and not yet shrunk"), std::string::npos) << Content(found);
  EXPECT_FALSE(std::filesystem::exists(Path("found/" + state)));
  // The same as in one go.
  const std::string after = Content(found);
  const int64_t cases = campaign("rest.json").at("cases");
  std::filesystem::remove_all(Path("found"));
  const ToolRun whole = Tool(with({"--cases", std::to_string(cases), "--json", "whole.json"}));
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_EQ(whole.err.find("of an earlier run"), std::string::npos) << whole.err;
  EXPECT_EQ(campaign("rest.json"), campaign("whole.json"));
  EXPECT_EQ(Content(found), after);
}

// What is left of another build's run, or of a disk that failed, is not gone on from.
TEST_F(FuzzCommand, DoesNotGoOnFromWhatItCannotRead) {
  const std::vector<std::string> command = {
      "fuzz", "--keep-going", "--time", "10m",    "-j",
      "1",    "--out",        "found",  "--impl", "fault:merge_swaps_values"};
  std::string state;
  Signalled(command, SIGINT, [&](pid_t) {
    for (const std::string& name : CaseFiles("found")) {
      if (name.ends_with(".campaign")) state = "found/" + name;
    }
    return !state.empty();
  });
  // An interrupted run leaves it too.
  const std::string whole = Content(state);
  ASSERT_GT(whole.size(), 100u);
  std::vector<std::string> again = command;
  again[2] = "--cases";
  again[3] = "50";
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() - 1), whole.substr(0, 20), "x" + whole}) {
    std::ofstream(Path(state), std::ios::binary) << damaged;
    const ToolRun run = Tool(again);
    EXPECT_NE(run.out.find(": 50 cases: "), std::string::npos) << run.out << run.err;
    EXPECT_EQ(run.err.find("earlier run"), std::string::npos) << run.err;
  }
}

TEST_F(FuzzCommand, WhatCannotBeAskedIsRefused) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"fuzz", "--impl", "simulated"},
        {"fuzz", "--impl", "fault:last_key_dropped"},
        {"fuzz", "--kind", "attention", "--impl", "model"},
        {"fuzz", "--kind", "attention", "--layout", "ring"},
        {"fuzz", "--kind", "codec", "--impl", "simulated"},
        {"fuzz", "--kind", "postfix"},
        {"fuzz", "--kind", "prefix", "--layout", "ring"},
        {"fuzz", "--cases", "0"},
        {"fuzz", "--cases", "1", "--time", "1"},
        {"fuzz", "--time", "soon"},
        {"fuzz", "--limit", "0"},
        {"fuzz", "--seed", "-1"},
        {"run", "nowhere.case"},
        {"run", "--file", "nowhere.cases"},
        {"run", "x.case", "--file", "y.case"}}) {
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 2) << testing::PrintToString(arguments) << run.out;
    EXPECT_TRUE(run.err.starts_with("kvcheck: error: ")) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

}  // namespace
}  // namespace kvcheck
