// The table of faults: complete, without duplicates, and true about the catalogue of reports.

#include "tools/faults/fault_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "reference/spec/case.h"
#include "tools/campaign/fault_text.h"

namespace kvcheck {
namespace {

std::string Content(const std::string& path) {
  std::ifstream file(KVCHECK_SOURCE_DIR "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Property by id, of the lines of section 2: the last cell but one.
std::map<std::string, std::string> Catalogue() {
  const std::string text = Content("tools/faults/catalogue.md");
  const size_t begin = text.find("## 2. Faults"), end = text.find("## 3. ");
  std::istringstream lines(text.substr(begin, end - begin));
  std::map<std::string, std::string> properties;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string_view> cells = SplitWords(line, " | ");
    if (cells.size() < 7 || cells[0] == "| id") continue;
    const bool added = properties.emplace(cells[0].substr(2), cells[cells.size() - 2]).second;
    EXPECT_TRUE(added) << "twice in the catalogue: " << cells[0];
  }
  return properties;
}

TEST(FaultTable, HasEveryFaultOnceWithAllThatALineNeeds) {
  std::set<std::string_view> ids;
  std::map<FaultKind, int> kinds;
  for (const Fault& fault : AllFaults()) {
    const FaultText& text = *fault.text;
    EXPECT_TRUE(ids.insert(text.id).second) << text.id;
    EXPECT_EQ(FindFault(text.id)->text, fault.text);
    ++kinds[fault.kind];
    for (const std::string_view cell :
         {text.rule, text.description, text.reports, text.property, text.checks, text.smallest}) {
      EXPECT_FALSE(cell.empty()) << text.id;
    }
    EXPECT_EQ(text.description.find('|'), std::string_view::npos) << "breaks the table";
    const Case c = ParseCase(text.smallest);
    EXPECT_EQ(KindName(c), CaseKindOf(fault.kind)) << text.id;
    for (const std::string_view check : SplitWords(text.checks, " | ")) {
      EXPECT_EQ(CheckOf(check), check) << text.id;
      EXPECT_TRUE(NamesCheck(text, check));
    }
  }
  EXPECT_EQ(FindFault("nothing"), nullptr);
  EXPECT_EQ(kinds.size(), 5u);
  EXPECT_GE(AllFaults().size(), 100u);
}

TEST(FaultTable, StandsForReportsOfTheCatalogueAndTheFirstNamesTheProperty) {
  const auto catalogue = Catalogue();
  EXPECT_GE(catalogue.size(), 100u);
  std::set<std::string_view> covered;
  for (const Fault& fault : AllFaults()) {
    const std::vector<std::string_view> reports = SplitWords(fault.text->reports, " ");
    for (const std::string_view report : reports) {
      EXPECT_TRUE(catalogue.contains(std::string(report))) << fault.text->id << ": " << report;
      covered.insert(report);
    }
    EXPECT_EQ(catalogue.at(std::string(reports[0])), fault.text->property) << fault.text->id;
  }
  EXPECT_GE(covered.size(), 60u);
  for (const UncoveredReport& report : UncoveredReports()) {
    EXPECT_FALSE(report.reason.empty());
    EXPECT_TRUE(catalogue.contains(std::string(report.id))) << report.id;
    EXPECT_TRUE(covered.insert(report.id).second) << report.id << " has a fault";
  }
  for (const auto& [id, property] : catalogue) {
    EXPECT_TRUE(covered.contains(id)) << id << " has no fault, and no reason why";
  }
}

TEST(FaultTable, CatalogueSaysWhichFaultStandsForWhichReport) {
  const std::string text = Content("tools/faults/catalogue.md");
  EXPECT_NE(text.find("\n" + CoverageTable()), std::string::npos)
      << "section 3 is what `kvcheck faults list --reports` prints";
}

TEST(FaultTable, ChecksAreSignaturesWithoutHintsAndWidths) {
  EXPECT_EQ(CheckOf("attention out bound: one older key visible"), "attention out bound");
  EXPECT_EQ(CheckOf("codec encode affine:4 codes bytes"), "codec encode affine codes bytes");
  EXPECT_EQ(CheckOf("codec round_trip f8e4m3fn y bound"), "codec round_trip plain y bound");
  EXPECT_EQ(CheckOf("codec encode iq4_nl blocks bytes"), "codec encode ggml blocks bytes");
  EXPECT_EQ(CheckOf("codec encode fp8:e5m2:token codes bytes"), "codec encode fp8 codes bytes");
  EXPECT_EQ(CheckOf("codec decode hadamard:fp8:e5m2 y bound"), "codec decode fp8 y bound");
  EXPECT_EQ(CheckOf("append visible_missing"), "append visible_missing");
  EXPECT_EQ(CheckOf(""), "");
  EXPECT_EQ(SplitWords("a | b", " | "), (std::vector<std::string_view>{"a", "b"}));
}

TEST(FaultTable, MakesAnImplementationOfEveryFaultOfTensors) {
  for (const Fault& fault : AllFaults()) {
    const auto made = MakeFaulty(fault.text->id, ParsePlan("base=plain_f32"), {});
    if (!IsOfTensors(fault.kind)) {
      EXPECT_EQ(made, nullptr) << fault.text->id;
      continue;
    }
    ASSERT_NE(made, nullptr) << fault.text->id;
    EXPECT_EQ(made->GetCapabilities().kinds[0], CaseKindOf(fault.kind));
  }
  EXPECT_EQ(MakeFaulty("nothing", {}, {}), nullptr);
}

}  // namespace
}  // namespace kvcheck
