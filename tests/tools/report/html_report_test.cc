#include "tools/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The body as XML: HTML of this report is written so that it is both, but for void elements.
void ExpectWellFormed(const std::string& html) {
  const size_t begin = html.find("<body>");
  const size_t end = html.find("<script>");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  std::string body = html.substr(begin, end - begin) + "</body>";
  const std::string input = "autocomplete=\"off\">";
  for (size_t at = 0; (at = body.find(input, at)) != std::string::npos;) {
    body.insert(at + input.size() - 1, "/");
    at += input.size();
  }
  const std::string open = "<details open>";
  for (size_t at = 0; (at = body.find(open, at)) != std::string::npos;) {
    body.replace(at, open.size(), "<details>");
  }
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_string(body.c_str());
  EXPECT_TRUE(parsed) << parsed.description() << " at "
                      << body.substr(
                             static_cast<size_t>(std::max<std::ptrdiff_t>(parsed.offset - 80, 0)),
                             160);
}

TEST(HtmlReport, ShowsSummaryRowsDetailsAndTables) {
  HtmlReport report("kvcheck compare");
  report.Add(PassedResult());
  report.Add(FailedResult());
  report.AddTable("Audit", "What passes.", {"test", "zeros"},
                  {{"test_a", "!passes"}, {"b", "=caught"}});
  const std::string html = report.Text();
  ExpectWellFormed(html);
  EXPECT_THAT(html, HasSubstr("2 cases: 1 passed, 1 failed"));
  EXPECT_THAT(html, HasSubstr("<a href=\"#r2\">gqa/mlx</a>"));
  EXPECT_THAT(html, HasSubstr("<article id=\"r2\""));
  EXPECT_THAT(html, HasSubstr("output rounding"));
  EXPECT_THAT(html, HasSubstr("data-copy=\"c2\""));
  EXPECT_THAT(html, HasSubstr("<td class=\"bad\">passes</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"good\">caught</td>"));
}

TEST(HtmlReport, HintStandsInTheTableAndAboveEverythingThatIsKnown) {
  HtmlReport report("kvcheck compare");
  CaseResult result = FailedResult();
  result.verdict.outputs.front().hints = {"looks as if <keys> leak"};
  report.Add(result);
  const std::string html = report.Text();
  ExpectWellFormed(html);
  const std::string hint = "<b>Hint:</b> looks as if &lt;keys&gt; leak";
  const size_t in_table = html.find(hint);
  const size_t in_details = html.find(hint, in_table + 1);
  ASSERT_NE(in_details, std::string::npos) << html;
  EXPECT_LT(in_table, html.find("</table>"));
  EXPECT_GT(in_details, html.find("<article"));
  for (const char* later : {"<figure", "<caption>The bound of", "Everything that is known"}) {
    EXPECT_LT(in_details, html.find(later)) << later;
  }
}

// Two queries of head 3 over four blocks of 16 keys: the second query lost the third block.
TEST(HtmlReport, ShowsWhichKeysWereSeen) {
  CaseResult result = FailedResult();
  SeenKeys seen;
  seen.kv_len = 60;
  seen.block = 16;
  seen.heads.push_back({1, 3, {0, 5}, {0, 0.01, 0, 0, 0, 0, -0.98, 0.3}, std::vector(8, 0.02)});
  result.verdict.outputs.front().seen = seen;
  HtmlReport report("kvcheck compare");
  report.Add(result);
  const std::string html = report.Text();
  ExpectWellFormed(html);
  EXPECT_THAT(html,
              HasSubstr("keys that the queries saw, 2 rows down (head, query), blocks of 16"));
  EXPECT_THAT(html,
              HasSubstr("<rect class=\"w1\" x=\"20\" y=\"10\" width=\"10\" height=\"10\"><title>"
                        "b=1 hq=3 l=5, keys 32 to 47: weight changed by -0.98"));
  EXPECT_THAT(html,
              HasSubstr("<rect class=\"w3\" x=\"30\" y=\"10\" width=\"10\" height=\"10\"><title>"
                        "b=1 hq=3 l=5, keys 48 to 59: weight changed by +0.3"));
  // What its error does not tell from nothing is not drawn.
  EXPECT_THAT(html, Not(HasSubstr("l=0, keys")));
}

TEST(HtmlReport, HasWhatTheTextLeavesOut) {
  HtmlReport report("kvcheck compare");
  report.Add(FailedResult());
  const std::string html = report.Text();
  for (const char* label : {"metrics      error max", "special      NaN",
                            "plan         base=", "counts       3 of 1024"}) {
    EXPECT_THAT(html, HasSubstr(label));
    EXPECT_THAT(HtmlFragment(FailedResult().verdict), HasSubstr(label));
  }
}

TEST(HtmlReport, LoadsNothing) {
  HtmlReport report("kvcheck compare");
  report.Add(FailedResult());
  const std::string html = report.Text();
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* text : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(text)));
  }
}

TEST(HtmlReport, TextsOfOthersStayTexts) {
  CaseResult result = FailedResult();
  result.name = "<script>alert(1)</script>\" onclick='x' \xe2\x80\xae&\x1b[31m";
  result.verdict.command = "kvcheck run '</code><img onerror=x>'";
  result.verdict.outputs.front().name = "<b>out</b>";
  result.verdict.outputs.front().breakdown = {"</pre><script>alert(2)</script>"};
  HtmlReport report("<i>title</i>");
  report.Add(result);
  report.AddTable("<u>t</u>", "<u>n</u>", {"<u>c</u>"}, {{"<u>x</u>"}});
  const std::string html = report.Text();
  ExpectWellFormed(html);
  for (const char* text : {"<script>alert", "<img", "<b>out", "<i>title", "<u>", "onclick='",
                           "\x1b", "\xe2\x80\xae"}) {
    EXPECT_THAT(html, Not(HasSubstr(text))) << text;
  }
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(HtmlFragment(result.verdict), Not(HasSubstr("<script>")));
}

TEST(HtmlReport, StaysSmallAndCountsWhatItLeavesOut) {
  HtmlReport report("kvcheck compare");
  for (int i = 0; i < 10000; ++i) {
    CaseResult result = i % 2 == 0 ? PassedResult() : FailedResult();
    result.name += std::to_string(i);
    report.Add(result);
  }
  const std::string html = report.Text();
  EXPECT_LT(html.size(), 2'000'000U);
  EXPECT_THAT(html, HasSubstr("10000 cases: 5000 passed, 5000 failed"));
  EXPECT_THAT(html, HasSubstr("3000 more results, as they should be, are not listed"));
  EXPECT_THAT(html, HasSubstr("3000 more results, failed or unproved, are not listed"));
}

TEST(HtmlReport, MapsTellTheirCells) {
  CaseResult result = FailedResult();
  const Shape shape = {{"B", 1}, {"Hq", 2}, {"L", 3}, {"Dv", 4}};
  HeatMaps heat(shape, 4);
  const std::vector<double> ratios = {0, 0, 0, 0, 0.2, 0, 0, 0, 5, 0, 0, 0,
                                      0, 0, 0, 0, 0,   0, 0, 0, 0, 0, 0, 0};
  heat.AddRows(shape, 0, 6, ratios.data(), 4);
  result.verdict.outputs.front().heat = heat;
  HtmlReport report("kvcheck run");
  report.Add(result);
  const std::string html = report.Text();
  ExpectWellFormed(html);
  EXPECT_THAT(html, HasSubstr("hq=0, l=2: 5 x the tolerance</title>"));
  EXPECT_THAT(html, HasSubstr("class=\"s5\" x=\"20\""));
  EXPECT_THAT(html, HasSubstr("</svg>to 0.1</span>"));
  EXPECT_THAT(html, HasSubstr("</svg>more</span>"));
}

}  // namespace
}  // namespace kvcheck
