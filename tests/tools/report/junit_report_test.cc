#include "tools/report/junit_report.h"

#include <gtest/gtest.h>

#include <pugixml.hpp>
#include <vector>

#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

class JunitDocument {
 public:
  explicit JunitDocument(const std::vector<CaseResult>& results, bool strict = false,
                         bool interrupted = false) {
    Summary summary;
    for (const CaseResult& result : results) summary.Add(result, strict);
    summary.interrupted = interrupted;
    TextOptions options;
    options.strict = strict;
    const std::string text = JunitReport(results, summary, "compare", options);
    const pugi::xml_parse_result parsed = document_.load_string(text.c_str());
    EXPECT_TRUE(parsed) << parsed.description() << "\n" << text;
  }
  pugi::xml_node suite() const { return document_.child("testsuites").child("testsuite"); }
  // The element inside the n-th test case: "failure", "skipped", "error" or "".
  std::string Ending(int n) const {
    pugi::xml_node test = suite().child("testcase");
    for (int i = 0; i < n; ++i) test = test.next_sibling("testcase");
    return test.first_child().name();
  }

 private:
  pugi::xml_document document_;
};

TEST(JunitReport, MapsEveryOutcome) {
  const std::vector<CaseResult> results = {
      PassedResult(),
      FailedResult(),
      ResultOf(Outcome::kMistrusted),
      ResultOf(Outcome::kUnsupported),
      ResultOf(Outcome::kIllegalCase),
      ResultOf(Outcome::kCrashed),
      ResultOf(Outcome::kFail, Expectation::kFinding),
      ResultOf(Outcome::kMistrusted, Expectation::kMistrusted),
  };
  const JunitDocument report(results);
  const std::vector<std::string> endings = {"",      "failure", "error", "skipped",
                                            "error", "failure", "",      "skipped"};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(report.Ending(i), endings[static_cast<size_t>(i)]) << i;
  EXPECT_EQ(report.suite().attribute("tests").as_int(), 8);
  EXPECT_EQ(report.suite().attribute("failures").as_int(), 2);
  EXPECT_EQ(report.suite().attribute("errors").as_int(), 2);
  EXPECT_EQ(report.suite().attribute("skipped").as_int(), 2);
}

TEST(JunitReport, StrictTurnsSkipsIntoFailures) {
  const JunitDocument report({ResultOf(Outcome::kMistrusted), ResultOf(Outcome::kUnsupported)},
                             true);
  EXPECT_EQ(report.Ending(0), "failure");
  EXPECT_EQ(report.Ending(1), "failure");
  EXPECT_EQ(report.suite().attribute("failures").as_int(), 2);
}

TEST(JunitReport, StaysWellFormedWhateverTheTextsHold) {
  CaseResult result = FailedResult();
  result.name = "a<b>&\"c\" \x01 \xff";
  result.verdict.outputs.front().breakdown = {"]]> \x02 & <x>", "\xed\xa0\x80"};
  const JunitDocument report({result});
  EXPECT_EQ(report.suite().child("testcase").attribute("name").as_string(),
            std::string("a<b>&\"c\" \xef\xbf\xbd \xef\xbf\xbd"));
}

TEST(JunitReport, AnEmptyOrInterruptedRunIsAnError) {
  EXPECT_EQ(JunitDocument({}).Ending(0), "error");
  const JunitDocument interrupted({PassedResult()}, false, true);
  EXPECT_EQ(interrupted.Ending(1), "error");
  EXPECT_EQ(interrupted.suite().attribute("errors").as_int(), 1);
}

// A file without a failure and an error is that of exit code 0.
TEST(JunitReport, WhatProvedNothingIsNotGreen) {
  using Results = std::vector<CaseResult>;
  const CaseResult mistrusted = ResultOf(Outcome::kMistrusted);
  const CaseResult expected = ResultOf(Outcome::kMistrusted, Expectation::kMistrusted);
  const CaseResult unsupported = ResultOf(Outcome::kUnsupported);
  for (const Results& results :
       {Results{PassedResult()}, Results{PassedResult(), mistrusted}, Results{mistrusted},
        Results{unsupported}, Results{expected}, Results{expected, unsupported},
        Results{PassedResult(), expected}, Results{PassedResult(), unsupported}}) {
    Summary summary;
    for (const CaseResult& result : results) summary.Add(result, false);
    const JunitDocument report(results);
    int failing = 0;
    for (const pugi::xml_node test : report.suite().children("testcase")) {
      failing += test.child("failure") || test.child("error") ? 1 : 0;
    }
    EXPECT_EQ(failing > 0, summary.ExitCode() != 0) << Print(summary);
    EXPECT_EQ(report.suite().attribute("errors").as_int(), failing) << Print(summary);
  }
}

TEST(JunitReport, NamesAreUnique) {
  const JunitDocument report({PassedResult(), PassedResult()});
  const pugi::xml_node first = report.suite().child("testcase");
  EXPECT_STRNE(first.attribute("name").as_string(),
               first.next_sibling("testcase").attribute("name").as_string());
}

}  // namespace
}  // namespace kvcheck
