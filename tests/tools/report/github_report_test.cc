#include "tools/report/github_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

using testing::HasSubstr;
using testing::Not;

int64_t Count(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(GithubReport, AnnotatesWhatFailedAndWhatProvedNothing) {
  GithubReport report("kvcheck gate", {});
  for (const CaseResult& result : {PassedResult(), FailedResult(), ResultOf(Outcome::kMistrusted),
                                   ResultOf(Outcome::kIllegalCase), ResultOf(Outcome::kUnsupported),
                                   ResultOf(Outcome::kFail, Expectation::kFinding)}) {
    report.Add(result);
  }
  const std::string lines = report.Annotations();
  EXPECT_EQ(Count(lines, "::error title="), 2) << lines;
  EXPECT_EQ(Count(lines, "::warning title="), 1) << lines;
  EXPECT_EQ(Count(lines, "\n"), 3) << lines;
}

TEST(GithubReport, StrictMakesAnErrorOfWhatProvedNothing) {
  TextOptions options;
  options.strict = true;
  GithubReport report("kvcheck gate", options);
  report.Add(ResultOf(Outcome::kMistrusted));
  EXPECT_THAT(report.Annotations(), HasSubstr("::error title="));
}

TEST(GithubReport, NoTextOfACaseBeginsACommandOfItsOwn) {
  EXPECT_EQ(WorkflowText("50% of\r\nA::error::B", false), "50%25 of%0D%0AA::error::B");
  EXPECT_EQ(WorkflowText("a:b,c%", true), "a%3Ab%2Cc%25");
  CaseResult result = FailedResult();
  result.name = "x\n::error::forged, y";
  GithubReport report("kvcheck gate", {});
  report.Add(result);
  EXPECT_EQ(Count(report.Annotations(), "\n"), 1) << report.Annotations();
}

TEST(GithubReport, TheSummaryHasCountsATableAndTheTextOfEachFailure) {
  GithubReport report("kvcheck compare", {});
  Summary summary;
  for (const CaseResult& result : {PassedResult(), FailedResult()}) {
    report.Add(result);
    summary.Add(result, false);
  }
  summary.notes.push_back("a note");
  const std::string text = report.Markdown(summary);
  EXPECT_THAT(text, HasSubstr("### kvcheck compare\n"));
  EXPECT_THAT(text, HasSubstr("2 cases: 1 passed, 1 failed"));
  EXPECT_THAT(text, HasSubstr("* a note\n"));
  EXPECT_EQ(Count(text, "\n| FAIL | "), 1) << text;
  EXPECT_EQ(Count(text, "<details>"), 1) << text;
  TextOptions whole;
  whole.verbose = true;
  EXPECT_THAT(text, HasSubstr(CaseText(FailedResult(), whole)));
  const std::string row = text.substr(text.find("\n| FAIL | ") + 1);
  EXPECT_THAT(row.substr(0, row.find('\n')),
              HasSubstr("<br>hint: passes if P were rounded to bf16 (p=bf16"));
  EXPECT_THAT(report.Annotations(), HasSubstr("%0Apasses if P were rounded to bf16"));
}

TEST(GithubReport, NothingInANameLeavesItsCellOrItsFence) {
  CaseResult result = FailedResult();
  result.name = "a|b<img src=x>`c`\n# d";
  result.verdict.command = "echo ````";
  GithubReport report("kvcheck gate", {});
  report.Add(result);
  const std::string text = report.Markdown(Summary());
  // Inside of the fence nothing acts.
  const std::string outside = text.substr(0, text.find("`````text"));
  EXPECT_THAT(outside, Not(HasSubstr("<img")));
  EXPECT_THAT(outside, HasSubstr("a\\|b"));
  EXPECT_THAT(text, Not(HasSubstr("\n# d")));
  EXPECT_THAT(text, HasSubstr("echo ````"));
  EXPECT_THAT(text, HasSubstr("`````text\n"));
}

TEST(GithubReport, ManyFailuresAreCountedNotListed) {
  GithubReport report("kvcheck fuzz", {});
  const int64_t many = kSummaryRows + 7;
  for (int64_t i = 0; i < many; ++i) report.Add(FailedResult());
  EXPECT_EQ(Count(report.Annotations(), "::error "), kAnnotations);
  EXPECT_THAT(report.Annotations(), HasSubstr("97 more; the summary"));
  const std::string text = report.Markdown(Summary());
  EXPECT_EQ(Count(text, "\n| FAIL | "), kSummaryRows);
  EXPECT_THAT(text, HasSubstr("7 more are not listed."));
  EXPECT_LT(text.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace kvcheck
