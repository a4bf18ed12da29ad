// A comparison that could not have shown a fault is no pass: values that are all alike, disabled
// sinks, and what the first line and the hints say of them.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

constexpr const char* kConstant =
    "attention hq=2 hkv=1 l=4 t=16 d=32 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
    "data=constant:1";

class ToolProof : public ToolTest {
 protected:
  std::string FirstLine(const ToolRun& run) const { return run.out.substr(0, run.out.find('\n')); }
};

TEST_F(ToolProof, ValuesAllAlikeAreMistrustedWhateverTheKernel) {
  for (const char* implementation :
       {"fault:causal_ignored", "fault:last_key_dropped", "simulated", "optimized"}) {
    std::vector<std::string> arguments = {"run", kConstant, "--impl", implementation};
    if (std::string(implementation) != "optimized") {
      arguments.insert(arguments.end(), {"--plan", "base=plain_f32"});
    }
    const ToolRun run = Tool(arguments);
    EXPECT_EQ(run.exit_code, 3) << implementation << run.out;
    EXPECT_NE(FirstLine(run).find("MISTRUSTED"), std::string::npos) << FirstLine(run);
    EXPECT_NE(FirstLine(run).find("0 % of the inputs"), std::string::npos) << FirstLine(run);
    arguments.push_back("--strict");
    EXPECT_EQ(Tool(arguments).exit_code, 1) << implementation;
  }
}

TEST_F(ToolProof, DisabledSinksPassOnRightKernelsAndFailOnOthers) {
  for (const char* type : {"f32", "bf16", "f16"}) {
    for (const char* rest : {"l=1 t=33", "l=5 t=33 lse=natural", "l=5 t=3"}) {
      for (int seed = 0; seed < 4; ++seed) {
        std::string text =
            "attention hq=5 hkv=1 " + std::string(rest) + " d=32 q=T k=T v=T out=T " +
            "mask=causal_bottom_right sinks=T data=disabled_sinks:" + std::to_string(seed);
        for (size_t at = text.find('T'); at != std::string::npos; at = text.find('T')) {
          text.replace(at, 1, type);
        }
        const ToolRun right = Tool({"run", text, "--impl", "optimized", "--profile",
                                    seed % 2 == 0 ? "masked_row=zero" : "masked_row=mean"});
        EXPECT_EQ(right.exit_code, 0) << text << "\n" << right.out << right.err;
        const ToolRun wrong = Tool(
            {"run", text, "--impl", "fault:disabled_sink_counted", "--plan", "base=plain_f32"});
        EXPECT_EQ(wrong.exit_code, 1) << text << "\n" << wrong.out;
      }
    }
  }
}

TEST_F(ToolProof, AFaultThatTheDataCannotShowIsCaughtByMistrust) {
  const ToolRun run = Tool({"faults", "explain", "causal_ignored_constant_v"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_NE(run.out.find("without the fault: MISTRUSTED"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("check: attention out MISTRUSTED"), std::string::npos) << run.out;
}

TEST_F(ToolProof, AMistakeIsNamedAndNoPlanAdvised) {
  const ToolRun run = Tool({"run",
                            "attention hq=2 hkv=1 l=4 t=16 d=8 q=f32 k=f32 v=f32 out=f32 "
                            "mask=bool:LT data=gauss:2",
                            "--impl", "fault:bool_mask_inverted", "--plan", "base=plain_f32"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("the boolean mask is inverted"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("passes if"), std::string::npos) << run.out;
}

// What nearly all of the errors look like is no rounding that a plan left out.
TEST_F(ToolProof, AFaultWithANameIsNotAdvisedAwayByAPlan) {
  const ToolRun run = Tool({"run",
                            "attention hq=2 hkv=1 l=4 t=64 d=32 q=f32 k=f32 v=f32 out=f32 "
                            "mask=causal_bottom_right data=gauss:2",
                            "--impl", "fault:temperature_1_percent", "--plan", "base=plain_f32"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("looks as if the scores are multiplied by 1.01"), std::string::npos)
      << run.out;
  EXPECT_EQ(run.out.find("passes if"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace kvcheck
