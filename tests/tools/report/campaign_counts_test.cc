#include "tools/report/campaign_counts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/report/json_report.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"

namespace kvcheck {
namespace {

CampaignCounts Sample() {
  CampaignCounts counts;
  counts.kind = "cache";
  counts.implementation = "mine";
  counts.version = "2.1";
  counts.seed = 7;
  counts.cases = 100;
  counts.passed = 90;
  counts.failed = 6;
  counts.crashed = 2;
  counts.mistrusted = 3;
  counts.unsupported = 1;
  counts.operations = 1000;
  counts.states = 900;
  counts.elements = 50;
  counts.probes = {{"ring_wrapped", 12}, {"trim_to_empty", 0}, {"a", 1}, {"b", 2}};
  counts.failures = {{"append visible_missing", Outcome::kFail, "gone", 4, 17},
                     {"trim CRASHED", Outcome::kCrashed, "signal 6", 2, 30}};
  counts.unproved = {{"MISTRUSTED", Outcome::kMistrusted, "equal bytes", 3, 5},
                     {"UNSUPPORTED", Outcome::kUnsupported, "no chunks", 1, 9}};
  return counts;
}

constexpr const char* kLine =
    "fuzz cache on mine 2.1, seed 7: 100 cases: 90 passed, 6 failed in 2 ways, 3 mistrusted, 1 "
    "unsupported (2 crashed); 1000 operations, 900 states and 50 elements judged";

TEST(CampaignCounts, OneLineSaysWhatTheyComeTo) {
  EXPECT_EQ(Print(Sample()), kLine);
  CampaignCounts none;
  none.kind = "codec";
  none.implementation = "x";
  none.version = "1";
  EXPECT_EQ(Print(none), "fuzz codec on x 1, seed 0: 0 cases: none was judged; 0 elements judged");
}

TEST(CampaignCounts, CasesThatNobodyCouldProveStandApart) {
  CampaignCounts counts = Sample();
  counts.by_data = 2;
  EXPECT_NE(Print(counts).find("3 mistrusted, 1 unsupported (2 crashed, 2 mistrusted by their own "
                               "data);"),
            std::string::npos)
      << Print(counts);
  EXPECT_EQ(counts.Unproved(), 2);
  EXPECT_EQ(counts.Provable(), 98);
  Summary summary;
  summary.Add(counts);
  EXPECT_NE(Print(summary).find("2 of 98 drawn cases proved nothing"), std::string::npos);
  const auto json = nlohmann::json::parse(JsonReport({}, summary, false, "kvcheck 1"));
  EXPECT_EQ(json.at("summary").at("campaigns").at(0).at("mistrusted_by_data"), 2);
}

TEST(CampaignCounts, DeclinedOperationsAreListedByKind) {
  EXPECT_EQ(DeclinedText(Sample()), "");
  CampaignCounts counts = Sample();
  counts.declined = {{"new", 3}, {"save", 120}};
  EXPECT_EQ(DeclinedText(counts), "operations declined by the implementation: new 3, save 120\n");
  Summary summary;
  summary.Add(counts);
  std::ostringstream out;
  TextReport(TextOptions{}, out).Finish(summary);
  EXPECT_NE(out.str().find("judged\noperations declined by the implementation: new 3, save 120\n"),
            std::string::npos)
      << out.str();
}

TEST(CampaignCounts, WhatProfileAndSpacesTakeOutIsOneLine) {
  EXPECT_EQ(LeftOpenText(Sample()), "");
  CampaignCounts counts = Sample();
  counts.not_asked = {"fork", "disk"};
  EXPECT_EQ(LeftOpenText(counts), "not asked, by its spaces: fork, disk\n");
  counts.left_open = {"size (size=any)", "bytes (bytes=any)"};
  const std::string line =
      "not judged, by its profile: size (size=any); bytes (bytes=any). not asked, by its spaces: "
      "fork, disk\n";
  EXPECT_EQ(LeftOpenText(counts), line);
  Summary summary;
  summary.Add(counts);
  std::ostringstream out;
  TextReport(TextOptions{}, out).Finish(summary);
  EXPECT_NE(out.str().find("judged\n" + line), std::string::npos) << out.str();
  const auto json = nlohmann::json::parse(JsonReport({}, summary, false, "kvcheck 1"));
  EXPECT_EQ(json.at("summary").at("campaigns").at(0).at("left_open").at(1), "bytes (bytes=any)");
  EXPECT_EQ(json.at("summary").at("campaigns").at(0).at("not_asked").at(0), "fork");
}

TEST(CampaignCounts, ProbesStandInColumnsWithTheirZeros) {
  EXPECT_EQ(ProbeTable(Sample()),
            "probes, and how often they were reached\n"
            "  ring_wrapped  12  trim_to_empty  0  a              1\n"
            "  b              2\n");
  EXPECT_EQ(ProbeTable({}), "");
}

TEST(CampaignCounts, WhatProvedNothingIsListedUpToALimit) {
  EXPECT_EQ(UnprovedText(Sample(), 10),
            "  MISTRUSTED: 3 cases, case 5 the first: equal bytes\n"
            "  UNSUPPORTED: 1 case (1.0 %), case 9 the first: no chunks\n");
  EXPECT_EQ(UnprovedText(Sample(), 1),
            "  MISTRUSTED: 3 cases, case 5 the first: equal bytes\n"
            "  ... and 1 more ways (--max-print)\n");
}

TEST(CampaignCounts, ReportsCarryThem) {
  Summary summary;
  summary.Add(Sample());
  summary.notes = {"one thing"};
  std::ostringstream text;
  TextReport(TextOptions{}, text).Finish(summary);
  EXPECT_NE(text.str().find(kLine), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("note: one thing\n"), std::string::npos) << text.str();
  const auto json = nlohmann::json::parse(JsonReport({}, summary, false, "kvcheck 1"));
  const auto& campaign = json.at("summary").at("campaigns").at(0);
  EXPECT_EQ(campaign.at("kind"), "cache");
  EXPECT_EQ(campaign.at("seed"), 7);
  EXPECT_EQ(campaign.at("probes").at("trim_to_empty"), 0);
  EXPECT_TRUE(campaign.at("declined").empty());
  EXPECT_EQ(campaign.at("failures").at(1).at("outcome"), "CRASHED");
  EXPECT_EQ(campaign.at("unproved").at(0).at("reason"), "equal bytes");
  EXPECT_EQ(json.at("summary").at("judged_elements"), 50);
  EXPECT_EQ(json.at("summary").at("notes").at(0), "one thing");
}

// A known crash is a finding only where it is recognised as the one that is known.
TEST(CampaignCounts, KnownCrashIsAFinding) {
  CaseResult result;
  result.verdict.outcome = Outcome::kCrashed;
  result.expectation = Expectation::kFinding;
  EXPECT_EQ(StandpointOf(result, false), Standpoint::kFailed);
  result.same_finding = true;
  EXPECT_EQ(StandpointOf(result, false), Standpoint::kKnownFinding);
  result.verdict.outcome = Outcome::kTimedOut;
  EXPECT_EQ(StandpointOf(result, true), Standpoint::kKnownFinding);
}

}  // namespace
}  // namespace kvcheck
