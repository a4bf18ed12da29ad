// Known plans at the command line: the list, one whole, a bare name, auto, and what a plan
// excludes; a merge of partial results as a case of attention.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/spec/known_plans.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class PlansCommand : public ToolTest {
 protected:
  // The outcomes and warnings that a run reports.
  json Report(std::vector<std::string> arguments, int exit_code) const {
    arguments.insert(arguments.end(), {"--json", "-"});
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, exit_code) << run.out << run.err;
    return json::parse(run.out).at("cases").at(0);
  }
};

TEST_F(PlansCommand, ListsEveryPlanInALineOfItsOwn) {
  const ToolRun run = Tool({"plans"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const KnownPlan& plan : KnownPlans()) {
    EXPECT_THAT("\n" + run.out, HasSubstr("\n" + std::string(plan.name) + " ")) << plan.name;
  }
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110U) << line;
}

TEST_F(PlansCommand, ShowsOnePlanWithTheSourceOfEachNumber) {
  const ToolRun run = Tool({"plans", "vllm_triton", "--json", "plan.json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("exp_error=2^-21"));
  EXPECT_THAT(run.out, HasSubstr("no softcap: "));
  const json plans = json::parse(ContentOfFile("plan.json")).at("plans");
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].at("name"), "vllm_triton");
  for (const json& field : plans[0].at("fields")) EXPECT_NE(field.at("source"), "") << field;
  EXPECT_THAT(plans[0].at("unsaid").dump(), HasSubstr("\"merge\""));
  const ToolRun all = Tool({"plans", "--json", "-"});
  EXPECT_EQ(json::parse(all.out).at("plans").size(), KnownPlans().size());
}

TEST_F(PlansCommand, RefusesANameThatIsNoneWithTheNearestOne) {
  const ToolRun run = Tool({"plans", "flash_attention2"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("flash_attention_2"));
}

TEST_F(PlansCommand, TakesABareNameWhereverAPlanIsTaken) {
  const json bare =
      Report({"run", kAttentionCase, "--plan", "plain_f32", "--impl", "simulated:plain_f32"}, 0);
  const json full = Report(
      {"run", kAttentionCase, "--plan", "base=plain_f32", "--impl", "simulated:base=plain_f32"}, 0);
  EXPECT_EQ(bare.at("plan"), full.at("plan"));
  const ToolRun wrong = Tool({"run", kAttentionCase, "--plan", "plane_f32"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'plain_f32'"));
}

TEST_F(PlansCommand, DefaultIsStranger) {
  const json result = Report({"run", kAttentionCase, "--impl", "fault:causal_ignored"}, 1);
  EXPECT_THAT(result.at("plan").get<std::string>(), Not(HasSubstr("flash_attention")));
}

TEST_F(PlansCommand, AutoSaysWhatFitsAndIsRepeatedByItsCommand) {
  const json result =
      Report({"run", kAttentionCase, "--impl", "simulated:plain_f32", "--plan", "auto"}, 0);
  EXPECT_EQ(result.at("outcome"), "PASS");
  EXPECT_THAT(result.at("warnings").dump(), HasSubstr("plan=auto: "));
  EXPECT_THAT(result.at("command").get<std::string>(), HasSubstr("--plan base=auto"));
  const ToolRun strict =
      Tool({"run", kAttentionCase, "--impl", "simulated:plain_f32", "--plan", "auto", "--strict"});
  EXPECT_NE(strict.exit_code, 0);
  EXPECT_THAT(strict.out + strict.err, HasSubstr("proves nothing"));
}

TEST_F(PlansCommand, ACallThatThePlanExcludesHasAWarning) {
  const std::string text =
      "attention hq=2 hkv=1 l=1 t=33 d=32 q=bf16 k=bf16 v=bf16 out=bf16 softcap=30 data=gauss:1";
  const json result =
      Report({"run", text, "--impl", "simulated:vllm_triton", "--plan", "vllm_triton"}, 0);
  EXPECT_THAT(result.at("warnings").dump(), HasSubstr("does not hold for softcap"));
}

// One query q = 1 over log-sum-exps as keys of one channel, partial outputs as values.
TEST_F(PlansCommand, AMergeOfPartialResultsIsAttentionOverThem) {
  const std::string folder = std::string(KVCHECK_SOURCE_DIR) + "/golden/dumps/";
  const std::string text =
      "attention b=6 hq=1 hkv=1 l=1 t=4 d=1 dv=32 q=f32 k=f32 v=f32 out=f32 mask=bool:B11T scale=1";
  const json right = Report({"compare", folder + "merge.safetensors", "--plan", "plain_f32",
                             "--case", text + " lse=natural data=file"},
                            0);
  ASSERT_EQ(right.at("outputs").size(), 2U);
  for (const json& output : right.at("outputs")) {
    EXPECT_EQ(output.at("outcome"), "PASS");
    // Rows with ranges that are empty, whose log-sum-exp is -inf, are judged too.
    EXPECT_EQ(output.at("counts").at("judged"), output.at("counts").at("elements")) << output;
  }
  const json wrong = Report({"compare", folder + "merge_wrong_base.safetensors", "--plan",
                             "plain_f32", "--case", text + " data=file"},
                            1);
  EXPECT_EQ(wrong.at("outcome"), "FAIL");
  EXPECT_GT(wrong.at("outputs").at(0).at("worst").at("ratio").get<double>(), 1000);
  // The same numbers are right where the log-sum-exps were of base 2.
  const std::string base2 =
      "attention b=6 hq=1 hkv=1 l=1 t=4 d=1 dv=32 q=f32 k=f32 v=f32 out=f32 "
      "mask=bool:B11T scale=0.6931471805599453 data=file";
  Report(
      {"compare", folder + "merge_wrong_base.safetensors", "--plan", "plain_f32", "--case", base2},
      0);
}

}  // namespace
}  // namespace kvcheck
