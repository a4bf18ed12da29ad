// kvcheck golden: make, verify, show.

#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "golden/reader.h"
#include "golden/writer.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class GoldenCommand : public ToolTest {};

TEST_F(GoldenCommand, MadeFileVerifies) {
  for (const char* text : {kAttentionCase, kCodecCase}) {
    const ToolRun made = Tool({"golden", "make", "--case", text, "--name", "a", "-o", "g.h5"});
    ASSERT_EQ(made.exit_code, 0) << made.out << made.err;
    const ToolRun verified = Tool({"golden", "verify", "g.h5"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out;
    EXPECT_TRUE(verified.out.starts_with("PASS  a/expected  ")) << verified.out;
  }
}

TEST_F(GoldenCommand, VerifySaysHowManyRowsFiftyDigitsReChecked) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  // A tile is the 2 query heads of a key/value head times 2 queries.
  EXPECT_NE(Tool({"golden", "verify", "g.h5", "--sample", "1"}).out.find("4 rows in 50 digits"),
            std::string::npos);
  EXPECT_EQ(Tool({"golden", "verify", "g.h5", "--sample", "0"}).out.find("50 digits"),
            std::string::npos);
}

TEST_F(GoldenCommand, OneUlpOfAStoredValueFails) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  double* values = file.cases[0].expected.at("out").hi.As<double>();
  values[17] = std::bit_cast<double>(std::bit_cast<uint64_t>(values[17]) + 1);
  WriteGoldenFile(Path("wrong.h5"), file);
  const ToolRun run = Tool({"golden", "verify", "wrong.h5"});
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_NE(run.out.find("dv=17]"), std::string::npos) << run.out;
}

TEST_F(GoldenCommand, LowPartMatters) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  Tensor& lo = *file.cases[0].expected.at("out").lo;
  for (int64_t i = 0; i < lo.ElementCount(); ++i) lo.As<double>()[i] *= -1;
  WriteGoldenFile(Path("wrong.h5"), file);
  EXPECT_EQ(Tool({"golden", "verify", "wrong.h5"}).exit_code, 1);
  // Without a low part, the high part is the value to half a unit in its last place.
  file.cases[0].expected.at("out").lo.reset();
  WriteGoldenFile(Path("high.h5"), file);
  const ToolRun run = Tool({"golden", "verify", "high.h5"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

TEST_F(GoldenCommand, WrongCodeFails) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kCodecCase, "-o", "g.h5"}).exit_code, 0);
  GoldenFile file = GoldenReader::Open(Path("g.h5")).ReadAll();
  file.cases[0].expected.at("codes").hi.As<double>()[3] += 1;
  WriteGoldenFile(Path("wrong.h5"), file);
  EXPECT_EQ(Tool({"golden", "verify", "wrong.h5"}).exit_code, 1);
}

TEST_F(GoldenCommand, ObservedOutputsAreHeldToTheirExpectation) {
  const auto verify = [&](const char* plan, const char* expect) {
    WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", plan, expect)}));
    return Tool({"golden", "verify", "g.h5"});
  };
  EXPECT_EQ(verify(kHonestPlan, "PASS").exit_code, 0);
  EXPECT_EQ(verify(kBoastfulPlan, "PASS").exit_code, 1);
  const ToolRun known = verify(kBoastfulPlan, "FAIL");
  EXPECT_EQ(known.exit_code, 0) << known.out;
  EXPECT_TRUE(known.out.starts_with("FAIL, as expected  a/simulated  ")) << known.out;
  const ToolRun gone = verify(kHonestPlan, "FAIL");
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_NE(gone.out.find("expected FAIL (as the test says), got PASS"), std::string::npos);
  EXPECT_EQ(verify(kHonestPlan, "MISTRUSTED").exit_code, 1);
}

TEST_F(GoldenCommand, MakeKeepsWhatWasObserved) {
  WriteGoldenFile(Path("in.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS")}));
  const ToolRun made = Tool({"golden", "make", "in.h5", "-o", "out.h5"});
  ASSERT_EQ(made.exit_code, 0) << made.out << made.err;
  const GoldenFile before = GoldenReader::Open(Path("in.h5")).ReadAll();
  const GoldenFile after = GoldenReader::Open(Path("out.h5")).ReadAll();
  EXPECT_EQ(after.cases[0].observed, before.cases[0].observed);
  EXPECT_EQ(after.cases[0].inputs, before.cases[0].inputs);
  EXPECT_TRUE(after.cases[0].expected.contains("out"));
}

TEST_F(GoldenCommand, MakeDoesNotReplaceAFileOfAnotherProgram) {
  std::filesystem::copy_file(std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_stranger.h5",
                             Path("dump.h5"));
  const ToolRun made =
      Tool({"golden", "make", "dump.h5", "-o", "./dump.h5", "--case", kAttentionCase});
  EXPECT_EQ(made.exit_code, 2);
  EXPECT_NE(made.err.find("-o would replace FILE"), std::string::npos) << made.err;
}

TEST_F(GoldenCommand, ShowListsCasesAndTensors) {
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a.case", kHonestPlan, "PASS")}));
  EXPECT_NE(Tool({"golden", "show", "g.h5"}).out.find("a.case"), std::string::npos);
  const ToolRun one = Tool({"golden", "show", "g.h5", "a.case"});
  EXPECT_NE(one.out.find("base=plain_f32"), std::string::npos) << one.out;
  EXPECT_EQ(Tool({"golden", "show", "g.h5", "b"}).exit_code, 2);
}

TEST_F(GoldenCommand, SelectingNothingExitsWithTwo) {
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS")}));
  EXPECT_EQ(Tool({"golden", "verify", "g.h5", "--only", "b*"}).exit_code, 2);
}

TEST_F(GoldenCommand, CaseWithoutAnythingToVerifyIsMistrusted) {
  GoldenCase empty = ObservedCase("a", kHonestPlan, "PASS");
  empty.observed.clear();
  WriteGoldenFile(Path("g.h5"), FileOf({empty}));
  EXPECT_EQ(Tool({"golden", "verify", "g.h5"}).exit_code, 3);
}

TEST_F(GoldenCommand, CaseThatDoesNotParseDoesNotHideTheOthers) {
  GoldenCase bad = ObservedCase("b", kHonestPlan, "PASS");
  bad.case_text = "nonsense";
  WriteGoldenFile(Path("g.h5"), FileOf({ObservedCase("a", kHonestPlan, "PASS"), bad}));
  const ToolRun run = Tool({"golden", "verify", "g.h5", "--json", "-"});
  EXPECT_EQ(run.exit_code, 2);
  const nlohmann::json report = nlohmann::json::parse(run.out);
  EXPECT_EQ(report.at("summary").at("passed"), 1);
  EXPECT_EQ(report.at("summary").at("illegal"), 1);
}

}  // namespace
}  // namespace kvcheck
