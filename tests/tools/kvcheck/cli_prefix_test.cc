// kvcheck run, fuzz and gate on histories of requests, in this process and in another one.

#include <gtest/gtest.h>

#include <string>

#include "tests/tools/kvcheck/tool_process.h"
#include "tools/faults/prefix_faults.h"

namespace kvcheck {
namespace {

class PrefixCommand : public ToolTest {};

constexpr const char* kHistory =
    "prefix block=2 tokens=16 dk=16 data=tokens:1; open A 0,1,1,0; write A; close A keep; open B "
    "0,1,1,0,1 salt=a; write B; close B keep; open A 0,1,1,0,1; read A";

TEST_F(PrefixCommand, KvchecksOwnPass) {
  for (const char* implementation : {"model", "optimized"}) {
    const ToolRun run = Tool({"run", kHistory, "--impl", implementation, "-v"});
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(run.out.starts_with("PASS  prefix")) << run.out;
    EXPECT_NE(run.out.find("1 hits of 4 tokens"), std::string::npos) << run.out;
  }
}

TEST_F(PrefixCommand, EveryFaultFailsWithItsClauseAndSignature) {
  for (const PrefixFault& fault : PrefixFaults()) {
    const ToolRun run =
        Tool({"run", std::string(fault.smallest), "--impl", "fault:" + std::string(fault.id)});
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    EXPECT_NE(run.out.find("breaks C"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("--impl fault:" + std::string(fault.id)), std::string::npos) << run.out;
  }
}

TEST_F(PrefixCommand, AnotherProcessIsJudgedAlike) {
  const std::string child = std::string(KVCHECK_TOOL) + " serve --impl ";
  const ToolRun passed = Tool({"run", kHistory, "--impl", child + "model"});
  EXPECT_EQ(passed.exit_code, 0) << passed.out << passed.err;
  const ToolRun failed = Tool({"run", kHistory, "--impl", child + "fault:salt_not_in_key"});
  EXPECT_EQ(failed.exit_code, 1) << failed.out << failed.err;
  EXPECT_NE(failed.out.find("open other_tenant"), std::string::npos) << failed.out;
}

TEST_F(PrefixCommand, FuzzFindsAFaultAndShrinksIt) {
  const ToolRun run = Tool({"fuzz", "--kind", "prefix", "--impl", "fault:adapter_not_in_key",
                            "--cases", "200", "--seed", "1"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_NE(run.out.find("open other_tenant"), std::string::npos) << run.out;
  const ToolRun clean = Tool({"fuzz", "--kind", "prefix", "--cases", "200", "--seed", "1"});
  EXPECT_EQ(clean.exit_code, 0) << clean.out << clean.err;
}

TEST_F(PrefixCommand, BadTextsAndOptionsAreRefused) {
  const ToolRun text = Tool({"run", "prefix data=tokens:1; open A 0 salt=%zz"});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_NE(text.err.find("two hexadecimal digits"), std::string::npos) << text.err;
  EXPECT_EQ(Tool({"run", kHistory, "--plan", "base=plain_f32"}).exit_code, 2);
  EXPECT_EQ(Tool({"run", kHistory, "--store", "hdf5"}).exit_code, 2);
  EXPECT_EQ(Tool({"run", kHistory, "--impl", "simulated"}).exit_code, 2);
}

}  // namespace
}  // namespace kvcheck
