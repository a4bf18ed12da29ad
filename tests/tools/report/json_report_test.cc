#include "tools/report/json_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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

TEST(JsonReport, HasWhichKeysWereSeen) {
  CaseResult result = FailedResult();
  SeenKeys seen;
  seen.kv_len = 60;
  seen.cause = "keys missing";
  seen.explained = 0.999;
  seen.tried = {{"keys missing", "keys 3 to 4 are left out", 0.999, 12}};
  seen.keys = {{3, 1, -1, 0.25}};
  seen.block = 16;
  seen.heads.push_back({0, 3, {5}, {-1}, {std::numeric_limits<double>::infinity()}});
  result.verdict.outputs.front().seen = seen;
  const nlohmann::json report = Parsed({PassedResult(), result});
  EXPECT_TRUE(report.at("cases").at(0).at("outputs").at(0).at("seen").is_null());
  const nlohmann::json got = report.at("cases").at(1).at("outputs").at(0).at("seen");
  EXPECT_EQ(got.at("cause"), "keys missing");
  EXPECT_EQ(got.at("tried").at(0).at("text"), "keys 3 to 4 are left out");
  EXPECT_EQ(got.at("keys").at(0).at("z"), -4);
  EXPECT_EQ(got.at("heads").at(0).at("queries"), nlohmann::json({5}));
  EXPECT_EQ(got.at("heads").at(0).at("error").at(0), "inf");
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

// On a terminal, too: all of it is ASCII, and reads back as it was.
TEST(JsonReport, IsAscii) {
  CaseResult result = ResultOf(Outcome::kFail);
  result.verdict.reasons = {
      "\xc2\x9b"
      "31m \xe2\x80\xae \x1b \xc3\xa9"};
  Summary summary;
  summary.Add(result, false);
  const std::vector<CaseResult> results = {result};
  const std::string text = JsonReport(results, summary, false, "kvcheck 1");
  for (const char c : text) EXPECT_TRUE((c >= ' ' && c <= '~') || c == '\n');
  EXPECT_EQ(nlohmann::json::parse(text).at("cases").at(0).at("reasons").at(0),
            result.verdict.reasons[0]);
}

// What is written case by case is what is written at once, also beyond what is kept in memory.
TEST(JsonReport, IsTheSameCaseByCase) {
  std::string folder = (std::filesystem::path(testing::TempDir()) / "kvcheck_json_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/report.json";
  for (const size_t count : {0u, 1u, 2u, 700u}) {
    const std::vector<CaseResult> results(count, FailedResult());
    Summary summary;
    JsonReportWriter writer(path, false, "kvcheck 1");
    for (const CaseResult& result : results) {
      summary.Add(result, false);
      writer.Add(result);
    }
    writer.Finish(summary);
    std::ifstream in(path, std::ios::binary);
    const std::string written{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(written, JsonReport(results, summary, false, "kvcheck 1")) << count;
    EXPECT_EQ(nlohmann::json::parse(written).at("cases").size(), count);
    if (count == 700) {
      EXPECT_GT(written.size(), kSpoolBytes);
    }
    // Nothing else is left in the folder.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  }
  std::filesystem::remove_all(folder);
}

TEST(JsonReport, StrictDecidesWhatACaseCountsAs) {
  EXPECT_EQ(Parsed({ResultOf(Outcome::kUnsupported)}).at("cases").at(0).at("counts_as"),
            "unsupported");
  EXPECT_EQ(Parsed({ResultOf(Outcome::kUnsupported)}, true).at("cases").at(0).at("counts_as"),
            "failed");
}

}  // namespace
}  // namespace kvcheck
