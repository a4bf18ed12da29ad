// kvcheck run, fuzz and gate on histories of requests, in this process and in another one.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

// A kept prompt may be lost where a write fails: a full disk is no fault of the cache.
constexpr const char* kKeptOnDisk =
    "prefix block=2 tokens=64 dk=64 disk=yes data=tokens:3; open A r1:40; write A; close A keep; "
    "settle; restart; open A r1:40 all; read A";

TEST_F(PrefixCommand, AFileThatFindsNoRoomIsNoFaultOfTheCache) {
  // Blocks have files of 64 KiB, the index has less. Files of at most so many blocks of 512 bytes.
  const char* history =
      "prefix block=16 tokens=64 layers=2 dk=256 disk=yes data=tokens:3; open A r1:40; write A; "
      "close A keep; settle; restart; open A r1:40 all; read A";
  const auto run = [&](int blocks) {
    return Shell(
        fmt::format("mkdir -p room && export TMPDIR=$PWD/room && ulimit -f {} && exec "
                    "\"$KVCHECK\" run '{}'",
                    blocks, history));
  };
  const ToolRun without_index = run(16);
  EXPECT_TRUE(without_index.exit_code == 2 || without_index.exit_code == 3) << without_index.out;
  EXPECT_TRUE(std::filesystem::is_empty(Path("room")));
  for (const int blocks : {60, 100}) {
    const ToolRun limited = run(blocks);
    EXPECT_EQ(limited.exit_code, 3) << limited.out << limited.err;
    EXPECT_TRUE(limited.out.starts_with("MISTRUSTED  prefix")) << limited.out;
    EXPECT_NE(limited.out.find("no room in TMPDIR ("), std::string::npos) << limited.out;
    EXPECT_NE(limited.out.find("block-00000001.safetensors cannot be written: File too large"),
              std::string::npos)
        << limited.out;
    EXPECT_TRUE(std::filesystem::is_empty(Path("room"))) << blocks;
  }
  EXPECT_EQ(run(400).exit_code, 0);
}

TEST_F(PrefixCommand, AFullDiskIsNoFaultOfTheCache) {
  // A small file system of its own, where this may be made.
  const auto run = [&](int kilobytes, const std::string& command) {
    return Shell(fmt::format(
        "mkdir -p room && unshare -rm sh -c 'mount -t tmpfs -o size={}k tmpfs room || exit 77; "
        "export TMPDIR=$PWD/room; \"$KVCHECK\" {}; code=$?; [ -z \"$(ls -A room)\" ] || exit 99; "
        "exit $code'",
        kilobytes, command));
  };
  if (run(100, "--version").exit_code != 0) GTEST_SKIP() << "no file system may be mounted here";
  const std::string file = Path("kept.case");
  std::ofstream(file) << "case full\nreason a disk without room\n" << kKeptOnDisk << "\n";
  bool was_full = false;
  for (const int kilobytes : {16, 24, 40, 60, 120}) {
    for (const char* adapter : {"", " --impl \"$KVCHECK serve --impl optimized\""}) {
      const ToolRun limited = run(kilobytes, "run " + file + adapter);
      EXPECT_TRUE(limited.exit_code == 0 || limited.exit_code == 2 || limited.exit_code == 3)
          << kilobytes << adapter << limited.out << limited.err;
      was_full = was_full || limited.out.find("no room in TMPDIR") != std::string::npos;
    }
  }
  EXPECT_TRUE(was_full);
  const ToolRun fuzz = run(40, "fuzz --kind prefix --cases 200 --keep-going --out \"\"");
  EXPECT_NE(fuzz.exit_code, 1) << fuzz.out << fuzz.err;
  EXPECT_NE(fuzz.exit_code, 99) << fuzz.out << fuzz.err;
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
