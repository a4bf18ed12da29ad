// The table of exit codes: which outcome leads to which code, and which code beats which.

#include "tools/report/summary.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

int ExitCodeOf(const std::vector<CaseResult>& results, bool strict = false) {
  Summary summary;
  for (const CaseResult& result : results) summary.Add(result, strict);
  return summary.ExitCode();
}

int ExitCodeOf(Outcome outcome, bool strict = false) {
  return ExitCodeOf(std::vector<CaseResult>{ResultOf(outcome)}, strict);
}

TEST(ExitCode, OfOneOutcome) {
  EXPECT_EQ(ExitCodeOf(Outcome::kPass), 0);
  EXPECT_EQ(ExitCodeOf(Outcome::kFail), 1);
  EXPECT_EQ(ExitCodeOf(Outcome::kCrashed), 1);
  EXPECT_EQ(ExitCodeOf(Outcome::kTimedOut), 1);
  EXPECT_EQ(ExitCodeOf(Outcome::kIllegalCase), 2);
  EXPECT_EQ(ExitCodeOf(Outcome::kMistrusted), 3);
  EXPECT_EQ(ExitCodeOf(Outcome::kUnsupported), 3);
}

TEST(ExitCode, OfNothingSelectedIsNeverZero) { EXPECT_EQ(Summary().ExitCode(), 2); }

TEST(ExitCode, HighestOfTwoOutcomesWins) {
  const auto both = [](Outcome a, Outcome b) {
    const int code = ExitCodeOf({ResultOf(a), ResultOf(b)});
    EXPECT_EQ(code, ExitCodeOf({ResultOf(b), ResultOf(a)}));
    return code;
  };
  EXPECT_EQ(both(Outcome::kPass, Outcome::kFail), 1);
  EXPECT_EQ(both(Outcome::kFail, Outcome::kMistrusted), 1);
  EXPECT_EQ(both(Outcome::kFail, Outcome::kUnsupported), 1);
  EXPECT_EQ(both(Outcome::kFail, Outcome::kIllegalCase), 2);
  EXPECT_EQ(both(Outcome::kMistrusted, Outcome::kIllegalCase), 2);
  EXPECT_EQ(both(Outcome::kPass, Outcome::kIllegalCase), 2);
  EXPECT_EQ(both(Outcome::kPass, Outcome::kMistrusted), 3);
  EXPECT_EQ(both(Outcome::kPass, Outcome::kUnsupported), 0);
  EXPECT_EQ(both(Outcome::kMistrusted, Outcome::kUnsupported), 3);
}

TEST(ExitCode, ExpectationsDecide) {
  const auto one = [](Outcome outcome, Expectation expectation) {
    return ExitCodeOf({ResultOf(Outcome::kPass), ResultOf(outcome, expectation)});
  };
  EXPECT_EQ(one(Outcome::kFail, Expectation::kFinding), 0);
  EXPECT_EQ(one(Outcome::kPass, Expectation::kFinding), 1);
  EXPECT_EQ(one(Outcome::kMistrusted, Expectation::kFinding), 1);
  EXPECT_EQ(one(Outcome::kMistrusted, Expectation::kMistrusted), 0);
  EXPECT_EQ(one(Outcome::kPass, Expectation::kMistrusted), 1);
  EXPECT_EQ(one(Outcome::kFail, Expectation::kMistrusted), 1);
  EXPECT_EQ(one(Outcome::kCrashed, Expectation::kFinding), 1);
}

TEST(ExitCode, OnlyExpectedMistrustProvesNothing) {
  EXPECT_EQ(ExitCodeOf({ResultOf(Outcome::kMistrusted, Expectation::kMistrusted)}), 3);
  EXPECT_EQ(ExitCodeOf({ResultOf(Outcome::kFail, Expectation::kFinding)}), 0);
}

TEST(ExitCode, StrictFailsWhatIsNotAPlainPass) {
  EXPECT_EQ(ExitCodeOf(Outcome::kPass, true), 0);
  EXPECT_EQ(ExitCodeOf(Outcome::kMistrusted, true), 1);
  EXPECT_EQ(ExitCodeOf(Outcome::kUnsupported, true), 1);
  EXPECT_EQ(ExitCodeOf(Outcome::kIllegalCase, true), 2);
  CaseResult warned = PassedResult();
  warned.verdict.outputs.front().warnings.push_back("something looks odd");
  EXPECT_EQ(ExitCodeOf({warned}), 0);
  EXPECT_EQ(ExitCodeOf({warned}, true), 1);
  EXPECT_EQ(ExitCodeOf({ResultOf(Outcome::kPass),
                        ResultOf(Outcome::kMistrusted, Expectation::kMistrusted)},
                       true),
            0);
}

TEST(ExitCode, OfAnInterruptedRunIs130WhateverItFound) {
  Summary summary;
  summary.interrupted = true;
  EXPECT_EQ(summary.ExitCode(), 130);
  summary.Add(ResultOf(Outcome::kPass), false);
  EXPECT_EQ(summary.ExitCode(), 130);
  summary.Add(ResultOf(Outcome::kFail), false);
  EXPECT_EQ(summary.ExitCode(), 130);
}

TEST(Summary, CountsAddUpToCases) {
  Summary summary;
  for (const Outcome outcome :
       {Outcome::kPass, Outcome::kFail, Outcome::kMistrusted, Outcome::kUnsupported,
        Outcome::kIllegalCase, Outcome::kCrashed, Outcome::kTimedOut}) {
    for (const Expectation expectation :
         {Expectation::kPass, Expectation::kMistrusted, Expectation::kFinding}) {
      for (const bool strict : {false, true}) summary.Add(ResultOf(outcome, expectation), strict);
    }
  }
  EXPECT_EQ(summary.cases, 7 * 3 * 2);
  EXPECT_EQ(summary.passed + summary.failed + summary.mistrusted + summary.expected_mistrusted +
                summary.known_findings + summary.unsupported + summary.illegal,
            summary.cases);
}

// Attention of a trace stands beside no output.
TEST(Summary, ElementsOfTracesAreJudgedOnes) {
  Summary summary;
  CaseResult trace = ResultOf(Outcome::kPass);
  trace.verdict.outputs.clear();
  trace.verdict.elements = 24;
  summary.Add(trace, false);
  EXPECT_EQ(summary.judged, 24);
}

TEST(Summary, PrintsEveryCountThatIsNotZero) {
  Summary summary;
  summary.Add(PassedResult(), false);
  summary.Add(FailedResult(), false);
  summary.Add(ResultOf(Outcome::kCrashed), false);
  summary.Add(ResultOf(Outcome::kPass, Expectation::kFinding), false);
  EXPECT_EQ(Print(summary),
            "4 cases: 1 passed, 3 failed (1 crashed, 1 unmet expectations); 2048 elements judged");
  EXPECT_EQ(Print(Summary()), "0 cases: nothing was selected; 0 elements judged");
}

TEST(Summary, CountsCasesOfSuitesAndDrawnOnesTogether) {
  Summary summary;
  summary.Add(PassedResult(), false);
  for (const char* text : {"codec op=encode", "attention hq=1", "codec op=decode"}) {
    CaseResult outside = ResultOf(Outcome::kUnsupported);
    outside.verdict.case_text = text;
    outside.outside = true;
    summary.Add(outside, false);
  }
  CaseResult drawn = FailedResult();
  drawn.drawn = true;
  summary.Add(drawn, false);
  CampaignCounts campaign;
  campaign.cases = 500;
  campaign.passed = 470;
  campaign.mistrusted = 10;
  campaign.by_data = 8;
  campaign.failed = 20;
  campaign.known = 5;
  campaign.states = 7;
  summary.Add(campaign);
  EXPECT_EQ(Print(summary),
            "501 cases (1 of suites, 500 drawn): 471 passed, 15 failed, 2 mistrusted, 8 mistrusted "
            "by their own data, 5 known findings found; 7 states and 2048 elements judged, 2 of "
            "492 drawn cases proved nothing; 3 cases of suites not asked, outside of what is "
            "stated");
  EXPECT_EQ(OutsideText(summary),
            "3 of 4 cases of suites lie outside of the kinds and spaces that the implementation "
            "states, and were not asked: codec 2, attention 1");
  EXPECT_EQ(summary.unsupported, 3);
  EXPECT_EQ(OutsideText(Summary()), "");
  // A campaign that is no pass as a whole says so, although none of its cases failed.
  Summary whole;
  whole.Add(PassedResult(), false);
  CaseResult overall = ResultOf(Outcome::kMistrusted);
  overall.drawn = true;
  whole.Add(overall, false);
  campaign = CampaignCounts();
  campaign.cases = campaign.passed = 9;
  whole.Add(campaign);
  EXPECT_EQ(Print(whole),
            "10 cases (1 of suites, 9 drawn): 10 passed; of the campaigns as a whole 1 mistrusted; "
            "1024 elements judged");
}

}  // namespace
}  // namespace kvcheck
