// The text that people read, held to the letter for verdicts written by hand.

#include "tools/report/text_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

TEST(TextReport, FailureOpensWithTheWorstElement) {
  EXPECT_EQ(Headline(FailedResult(), {}),
            "FAIL  gqa/mlx  out[b=1, hq=3, l=0, dv=17]: got 0.53125, expected 0.5, error 3.1e-2 is "
            "1.64e4 x the bound 1.9e-6");
}

TEST(TextReport, FailureThatAnotherCaseWouldPassSaysSoFirst) {
  CaseResult result = FailedResult();
  result.verdict.outputs[0].passes_with = "sinks=f32 (/sinks of the file is not in the case)";
  const std::string line = Headline(result, {});
  EXPECT_TRUE(
      line.starts_with("FAIL as asked; passes with sinks=f32 (/sinks of the file is not in the "
                       "case)  gqa/mlx  out["))
      << line;
  TextOptions options;
  options.colour = true;
  EXPECT_TRUE(ShownHeadline(result, options).starts_with("\033[31mFAIL\033[0m as asked; "));
}

TEST(TextReport, ColourIsOfTheFirstWordOnRequest) {
  TextOptions options;
  EXPECT_EQ(ShownHeadline(FailedResult(), options), Headline(FailedResult(), options));
  options.colour = true;
  const std::string plain = Headline(FailedResult(), options);
  ASSERT_TRUE(plain.starts_with("FAIL "));
  EXPECT_EQ(ShownHeadline(FailedResult(), options), "\033[31mFAIL\033[0m" + plain.substr(4));
  std::ostringstream out;
  TextReport(options, out).Add(FailedResult());
  EXPECT_TRUE(out.str().starts_with("\033[31mFAIL\033[0m  ")) << out.str();
}

constexpr const char* kFirstLines =
    "FAIL  gqa/mlx  out[b=1, hq=3, l=0, dv=17]: got 0.53125, expected 0.5, error 3.1e-2 is "
    "1.64e4 x the bound 1.9e-6\n"
    "  hint         passes if P were rounded to bf16 (p=bf16 instead of p=f32): declare it only if "
    "your kernel does that\n"
    "  where        all failures in hq=3\n"
    "  bound        1.9e-6 = output rounding 75 % + P rounding 25 %; derived bound under plan "
    "plain_f32, of which 2 fields are assumed; 0.2 % of the data (median)\n"
    "  reproduce    kvcheck run 'attention hq=8 data=gauss:1'\n";

TEST(TextReport, FailureIsFiveLinesVerdictHintWhereBoundReproduce) {
  EXPECT_EQ(CaseText(FailedResult(), {}), kFirstLines);
}

TEST(TextReport, SaysThatADeclarationWasAskedInSomeRows) {
  CaseResult result = FailedResult();
  result.verdict.outputs.front().changes_rows = 256;
  result.verdict.outputs.front().changes_of_rows = 4096;
  EXPECT_NE(CaseText(result, {}).find("passes in 256 of 4096 rows if P were rounded to bf16"),
            std::string::npos);
}

// Nine declarations would do, rows fail in several ways, and another output fails too.
TEST(TextReport, FailureStaysWithinFiveLinesBesideItsCommand) {
  CaseResult result = FailedResult();
  OutputVerdict& out = result.verdict.outputs.front();
  out.plan_changes = {{false, {{"p", "f32", "bf16", "P were rounded to bf16"}}},
                      {false, {{"partial", "f32", "bf16", "partial results were stored in bf16"}}}};
  for (const char* field : {"op", "scores", "q", "l", "m", "o", "rescale"}) {
    out.plan_changes.push_back({false, {{field, "f32", "bf16", "it were"}}});
  }
  out.breakdown = {"3 of 1024 elements fail", "all failures in hq=3", "garbage in whole rows"};
  OutputVerdict lse = out;
  lse.name = "lse";
  lse.hints = {"looks as if the sink were left out"};
  result.verdict.outputs.push_back(lse);
  result.verdict.reasons = {"out: 3 of 1024 judged elements fail: derived bound",
                            "lse: 32 of 32 judged elements fail: derived bound"};
  const std::string text = CaseText(result, {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5 + 1) << text;
  EXPECT_NE(text.find("\n  reproduce "), std::string::npos) << text;
  EXPECT_NE(text.find("passes if P were rounded to bf16 (p=bf16), or if partial results"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  where        3 of 1024 elements fail; all failures in hq=3; garbage in "
                      "whole rows\n"),
            std::string::npos)
      << text;
  // Each on a line of its own.
  TextOptions options;
  options.verbose = true;
  EXPECT_NE(CaseText(result, options).find("\n               all failures in hq=3\n"),
            std::string::npos);
}

TEST(TextReport, VerboseFailureShowsEverythingBehindTheFiveLines) {
  TextOptions options;
  options.verbose = true;
  EXPECT_EQ(
      CaseText(FailedResult(), options),
      std::string(kFirstLines) +
          "  case         attention hq=8 data=gauss:1\n"
          "  output       out  FAIL  float32 B=2 Hq=8 L=1 Dv=64\n"
          "  counts       3 of 1024 judged elements fail\n"
          "  rule         derived bound; decided 16 rows in double; the bound is 0.2 % of the data "
          "(median)\n"
          "  special      NaN in both: 3 (equal)\n"
          "  metrics      error max 0, mean 0, RMS 0; relative max 0, RMS 0; 0 ulp\n"
          "               cosine 0.5, RMS 0 expected, 0 got\n"
          "               error / tolerance: median 0, 90 % 0, 99 % 0, largest 0\n"
          "  plan         base=plain_f32\n"
          "  profile      defaults\n"
          "  assumed      because the plan does not say: exp=exp2_fma block=1\n");
}

TEST(TextReport, FailureWithoutACommandShowsItsCase) {
  CaseResult result = FailedResult();
  result.verdict.command.clear();
  EXPECT_NE(CaseText(result, {}).find("\n  case         attention hq=8 data=gauss:1\n"),
            std::string::npos);
}

TEST(TextReport, BoundNamesAChangedPlanAsOne) {
  CaseResult result = FailedResult();
  result.verdict.assumptions.clear();
  const auto said = [&](const std::string& plan) {
    result.verdict.plan = plan;
    const std::string text = CaseText(result, {});
    const size_t at = text.find("derived bound under ") + 20;
    return text.substr(at, text.find(';', at) - at);
  };
  EXPECT_EQ(said("base=plain_f32"), "plan plain_f32");
  EXPECT_EQ(said("base=plain_f32 p=bf16"), "plan plain_f32 with changes");
  EXPECT_EQ(said("name=mine p=bf16"), "plan mine");
  EXPECT_EQ(said("p=bf16"), "the declared plan");
}

// A second output that fails has its hint too, named; one that passes is left to -v.
TEST(TextReport, OtherOutputsAreNamedNotShownInFull) {
  CaseResult result = FailedResult();
  OutputVerdict lse = result.verdict.outputs.front();
  lse.name = "lse";
  lse.plan_changes.clear();
  lse.hints = {"looks as if the sink were left out"};
  lse.reasons = {"32 of 32 judged elements fail: derived bound"};
  result.verdict.outputs.push_back(lse);
  result.verdict.reasons = {"out: 3 of 1024 judged elements fail: derived bound",
                            "lse: 32 of 32 judged elements fail: derived bound"};
  const std::string text = CaseText(result, {});
  EXPECT_NE(text.find("  because      lse: 32 of 32 judged elements fail: derived bound\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("; lse: looks as if the sink were left out\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("out: 3 of 1024"), std::string::npos) << text;
  EXPECT_EQ(text.find("  where"), text.rfind("  where")) << text;
}

TEST(TextReport, NoReasonRepeatsTheFirstLine) {
  CaseResult result = ResultOf(Outcome::kFail);
  result.name = "cache merge retained_missing";
  result.drawn = true;
  result.verdict.case_text = "cache layout=full\nnew A\nappend A 3";
  result.verdict.command = "kvcheck run 'cache layout=full; new A; append A 3'";
  result.verdict.reasons = {"operation 2: token 9 is gone", "hint: it looks as if", "signature x"};
  EXPECT_EQ(CaseText(result, {}),
            "FAIL  cache merge retained_missing  operation 2: token 9 is gone\n"
            "  hint         it looks as if\n"
            "  case         cache layout=full\n"
            "               new A\n"
            "               append A 3\n"
            "  reproduce    kvcheck run 'cache layout=full; new A; append A 3'\n"
            "  found        signature x\n");
}

// A verdict that fails for its statistics has nothing else to show for it.
TEST(TextReport, WarningsOfStatisticsAreShownWhereNoElementFails) {
  CaseResult result = FailedResult();
  OutputVerdict& output = result.verdict.outputs.front();
  output.statistics.emplace();
  output.statistics->over = {"last key missing at b=0 hq=1"};
  output.warnings = {"every judged value is 0"};
  EXPECT_EQ(CaseText(result, {}).find("last key missing"), std::string::npos);
  EXPECT_NE(CaseText(result, {}).find("every judged value"), std::string::npos);
  output.counts.failed = 0;
  output.reasons = {"by statistics: last key missing at b=0 hq=1"};
  result.verdict.reasons = {"out: " + output.reasons[0]};
  const std::string text = CaseText(result, {});
  EXPECT_NE(text.substr(0, text.find('\n')).find("last key missing"), std::string::npos) << text;
}

TEST(TextReport, ProbesAreShownWhereTheyAreAskedFor) {
  CampaignCounts campaign;
  campaign.kind = "cache";
  campaign.probes = {{"wrapped", 7}};
  Summary summary;
  summary.campaigns.push_back(campaign);
  for (const bool verbose : {false, true}) {
    std::ostringstream out;
    TextOptions options;
    options.verbose = verbose;
    TextReport(options, out).Finish(summary);
    EXPECT_EQ(out.str().find("probes, and how often") != std::string::npos, verbose) << out.str();
    EXPECT_NE(out.str().find("fuzz cache"), std::string::npos) << out.str();
  }
}

TEST(TextReport, PassIsOneLine) {
  EXPECT_EQ(CaseText(PassedResult(), {}),
            "PASS  gqa/mlx  out: 1024 elements, worst 0.5 x the bound\n");
}

TEST(TextReport, PassSaysInItsFirstLineWhereItWasBlind) {
  CaseResult result = PassedResult();
  result.verdict.outputs.front().rows_with_inputs = 16;
  result.verdict.outputs.front().blind_rows = 4;
  result.verdict.outputs.front().blind_where = "b=0 hq=1";
  EXPECT_EQ(
      CaseText(result, {}),
      "PASS  gqa/mlx  out: 1024 elements, worst 0.5 x the bound, blind to lost inputs in 4 of "
      "16 rows (b=0 hq=1)\n");
}

TEST(TextReport, PassNeverHidesAWarning) {
  CaseResult result = PassedResult();
  result.verdict.outputs.front().warnings = {"every judged value is 0, expected and observed"};
  const std::string text = CaseText(result, {});
  EXPECT_NE(text.find("1 warning\n"), std::string::npos);
  EXPECT_NE(text.find("every judged value is 0"), std::string::npos);
  // Nor does a report of what is not as it should be.
  std::ostringstream out;
  TextOptions quiet;
  quiet.quiet = true;
  TextReport(quiet, out).Add(result);
  EXPECT_NE(out.str().find("every judged value is 0"), std::string::npos) << out.str();
}

TEST(TextReport, VerbosePassShowsWhatTheStatisticsWouldHaveSeen) {
  CaseResult result = PassedResult();
  StatisticsReport statistics;
  statistics.false_alarm = kFalseAlarm;
  const double none = std::numeric_limits<double>::infinity();
  statistics.directions = {{"b=0 hq=0", "scale", "", 0, 6, 0, 0.5, false},
                           {"b=0 hq=1", "scale", "", 0, 6, 0, 0.25, false},
                           {"b=0 hq=0", "sink", "", 0, 6, 0, none, false}};
  result.verdict.outputs.front().statistics = statistics;
  result.verdict.outputs.front().detectable_share = 0.75;
  TextOptions options;
  options.verbose = true;
  const std::string text = CaseText(result, options);
  EXPECT_NE(text.find("scale: 0.25 x the fault would be seen in one group"), std::string::npos);
  EXPECT_NE(text.find("sink: has no effect here"), std::string::npos);
  EXPECT_NE(text.find("losing one input would show for 75 % of the inputs"), std::string::npos);
}

TEST(TextReport, ErrorsThatAreNotFiniteHaveNoRatio) {
  CaseResult result = FailedResult();
  ElementReport& worst = *result.verdict.outputs.front().worst;
  worst.got = std::nan("");
  worst.error = std::nan("");
  EXPECT_EQ(Headline(result, {}),
            "FAIL  gqa/mlx  out[b=1, hq=3, l=0, dv=17]: got nan, expected 0.5");
}

TEST(TextReport, UnmetExpectationSaysWhatWasExpected) {
  EXPECT_EQ(Headline(ResultOf(Outcome::kMistrusted, Expectation::kFinding), {}),
            "FAIL  case  expected FAIL (a known fault), got MISTRUSTED: because of the test");
  EXPECT_EQ(Headline(ResultOf(Outcome::kMistrusted, Expectation::kMistrusted), {}),
            "MISTRUSTED, as expected  case  because of the test (a known fault)");
}

TEST(TextReport, ListsAreCutAtMaxPrintAndSayBy) {
  CaseResult result = FailedResult();
  result.verdict.outputs.front().breakdown = {"one", "two", "three", "four"};
  TextOptions options;
  options.max_print = 2;
  EXPECT_NE(
      CaseText(result, options).find("  where        one; two; ... and 2 more (--max-print)\n"),
      std::string::npos);
  options.verbose = true;
  EXPECT_NE(CaseText(result, options)
                .find("  where        one\n               two\n               ... and 2 more "
                      "(--max-print)\n"),
            std::string::npos);
}

TEST(TextReport, CasesBeyondMaxPrintKeepTheirHeadline) {
  std::ostringstream out;
  TextOptions options;
  options.max_print = 1;
  TextReport report(options, out);
  Summary summary;
  for (int i = 0; i < 3; ++i) {
    report.Add(FailedResult());
    summary.Add(FailedResult(), false);
  }
  report.Finish(summary);
  const std::string text = out.str();
  EXPECT_EQ(text.find("  where"), text.rfind("  where"));
  EXPECT_NE(text.find("2 cases shown without details (--max-print 1)\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("3 cases: 3 failed; 3072 elements judged\n"));
}

TEST(TextReport, FailuresComeFirstAndOtherOutcomesTakeNoDetailsFromThem) {
  std::ostringstream out;
  TextOptions options;
  options.max_print = 1;
  options.failures_first = true;
  TextReport report(options, out);
  Summary summary;
  std::vector<CaseResult> results(3, ResultOf(Outcome::kUnsupported));
  results.push_back(PassedResult());
  results.push_back(FailedResult());
  for (const CaseResult& result : results) {
    report.Add(result);
    summary.Add(result, false);
  }
  EXPECT_TRUE(out.str().starts_with("FAIL")) << out.str();
  EXPECT_NE(out.str().find("  bound"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("UNSUPPORTED"), std::string::npos) << out.str();
  report.Finish(summary);
  EXPECT_LT(out.str().find("UNSUPPORTED"), out.str().find("\nPASS")) << out.str();
  EXPECT_NE(out.str().find("2 cases shown without details (--max-print 1)\n"), std::string::npos);
}

TEST(TextReport, QuietLeavesOutWhatIsAsItShouldBe) {
  std::ostringstream out;
  TextOptions options;
  options.quiet = true;
  TextReport report(options, out);
  report.Add(PassedResult());
  report.Add(ResultOf(Outcome::kFail, Expectation::kFinding));
  EXPECT_EQ(out.str(), "");
  report.Add(ResultOf(Outcome::kUnsupported));
  EXPECT_EQ(out.str(), "UNSUPPORTED  case  because of the test\n");
}

}  // namespace
}  // namespace kvcheck
