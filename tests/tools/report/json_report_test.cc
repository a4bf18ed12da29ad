#include "tools/report/json_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

nlohmann::json Parsed(const std::vector<CaseResult>& results, bool strict = false) {
  Summary summary;
  for (const CaseResult& result : results) summary.Add(result, strict);
  return nlohmann::json::parse(JsonReport(results, summary, strict, "kvcheck 1.2.3"));
}

TEST(JsonReport, CarriesTheVerdict) {
  const nlohmann::json report = Parsed({PassedResult(), FailedResult()});
  EXPECT_EQ(report.at("schema"), 1);
  EXPECT_EQ(report.at("tool"), "kvcheck 1.2.3");
  EXPECT_EQ(report.at("summary").at("passed"), 1);
  EXPECT_EQ(report.at("summary").at("failed"), 1);
  EXPECT_EQ(report.at("summary").at("exit_code"), 1);
  const nlohmann::json& failed = report.at("cases").at(1);
  EXPECT_EQ(failed.at("name"), "gqa/mlx");
  EXPECT_EQ(failed.at("outcome"), "FAIL");
  EXPECT_EQ(failed.at("counts_as"), "failed");
  EXPECT_EQ(failed.at("assumptions").size(), 2U);
  const nlohmann::json& worst = failed.at("outputs").at(0).at("worst");
  EXPECT_EQ(worst.at("coordinates"), "[b=1, hq=3, l=0, dv=17]");
  EXPECT_EQ(worst.at("error").get<double>(), 0x1p-5);
  EXPECT_EQ(worst.at("bound").get<double>(), 0x1p-19);
  EXPECT_EQ(worst.at("terms").at(0).at("name"), "output rounding");
}

TEST(JsonReport, WritesNumbersThatJsonLacksAsStrings) {
  CaseResult result = FailedResult();
  ElementReport& worst = *result.verdict.outputs.front().worst;
  worst.got = std::nan("");
  worst.error = -std::numeric_limits<double>::infinity();
  result.verdict.outputs.front().metrics.max_rel = std::numeric_limits<double>::infinity();
  const nlohmann::json output = Parsed({result}).at("cases").at(0).at("outputs").at(0);
  EXPECT_EQ(output.at("worst").at("got"), "nan");
  EXPECT_EQ(output.at("worst").at("error"), "-inf");
  EXPECT_EQ(output.at("metrics").at("max_rel"), "inf");
  EXPECT_TRUE(output.at("metrics").at("snr_db").is_null());
}

TEST(JsonReport, SurvivesTextThatIsNotUtf8) {
  CaseResult result = ResultOf(Outcome::kFail);
  result.verdict.reasons = {"bad \xff byte"};
  EXPECT_EQ(Parsed({result}).at("cases").at(0).at("reasons").at(0), "bad \xef\xbf\xbd byte");
}

TEST(JsonReport, StrictDecidesWhatACaseCountsAs) {
  EXPECT_EQ(Parsed({ResultOf(Outcome::kUnsupported)}).at("cases").at(0).at("counts_as"),
            "unsupported");
  EXPECT_EQ(Parsed({ResultOf(Outcome::kUnsupported)}, true).at("cases").at(0).at("counts_as"),
            "failed");
}

}  // namespace
}  // namespace kvcheck
