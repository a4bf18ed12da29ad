// What a file, a name or the system may not do to whoever runs kvcheck: start programs, steer the
// terminal, forge a line of a report, or end the tool without its report and its exit code.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden/writer.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

// Clears a screen, rings, forges a line, colours by a C1 control, and turns the direction of
// writing.
const std::string kEvil =
    "x\x1b[2J\x07\nPASS  forged\r\xc2\x9b"
    "31m\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f\xe2\x80\xa8\xd8\x9c y";

void ExpectHarmless(const std::string& text, const std::string& where) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    EXPECT_TRUE((byte >= 0x20 && byte != 0x7f) || byte == '\n')
        << where << ": byte " << int{byte} << " at " << i;
    if (byte != '\n') {
      line += text[i];
      continue;
    }
    EXPECT_FALSE(
        line.substr(std::min(line.size(), line.find_first_not_of(' '))).starts_with("PASS  forged"))
        << where;
    line.clear();
  }
  for (const char* unseen :
       {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\x8f", "\xe2\x80\xa8", "\xd8\x9c"}) {
    EXPECT_EQ(text.find(unseen), std::string::npos) << where;
  }
}

class Safety : public ToolTest {
 protected:
  void WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  // a.safetensors and b.safetensors, which are alike.
  void CopyDumps() const {
    for (const char* name : {"a.safetensors", "b.safetensors"}) {
      std::filesystem::copy_file(
          std::string(KVCHECK_SOURCE_DIR) + "/golden/dumps/cache.safetensors", Path(name));
    }
  }
  void ExpectHarmlessRun(const std::vector<std::string>& arguments) const {
    const ToolRun run = Tool(arguments);
    const std::string where = testing::PrintToString(arguments);
    EXPECT_GE(run.exit_code, 0) << where;
    EXPECT_LE(run.exit_code, 3) << where << run.err;
    ExpectHarmless(run.out, where);
    ExpectHarmless(run.err, where);
  }
};

TEST_F(Safety, TextsOfGoldenFilesCannotSteerATerminal) {
  GoldenCase evil = ObservedCase("a", kHonestPlan, "FAIL");
  evil.observed[0].implementation = kEvil;
  evil.observed[0].version = kEvil;
  evil.observed[0].machine = kEvil;
  evil.observed[0].reason = kEvil;
  GoldenCase unparsed = ObservedCase("b", kHonestPlan, "PASS");
  unparsed.case_text = kEvil;
  GoldenCase plan = ObservedCase("c", kHonestPlan, "PASS");
  plan.observed[0].plan = kEvil;
  plan.observed[0].profile = kEvil;
  GoldenCase trace = ObservedCase("d", kHonestPlan, "PASS");
  trace.case_text = "cache k=f32\nappend A 1\n" + kEvil;
  GoldenFile file = FileOf({evil, unparsed, plan, trace});
  file.source = kEvil;
  file.command = kEvil;
  WriteGoldenFile(Path("g.h5"), file);
  GoldenCase failing = ObservedCase("a", kBoastfulPlan, "FAIL");
  failing.observed[0].implementation = kEvil;
  failing.observed[0].reason = kEvil;
  WriteGoldenFile(Path("known.h5"), FileOf({failing}));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"golden", "show", "g.h5"},
        {"golden", "show", "g.h5", "a"},
        {"golden", "show", "g.h5", "c"},
        {"golden", "show", "g.h5", kEvil},
        {"golden", "verify", "g.h5"},
        {"golden", "verify", "g.h5", "--json", "-"},
        {"golden", "verify", "g.h5", "--junit", "-"},
        {"golden", "verify", "known.h5"},
        {"golden", "verify", "known.h5", "-v"},
        {"run", "--data", "g.h5#a", "-v"},
        {"run", "--data", "g.h5#b"},
        {"run", "--data", "g.h5#c"},
        {"golden", "make", "g.h5", "-o", "out.h5"}}) {
    ExpectHarmlessRun(arguments);
  }
}

TEST_F(Safety, NamesOfTensorsAndFilesCannotSteerATerminal) {
  const auto tensors = [&](const std::string& name, char value) {
    nlohmann::json header;
    header[name] = {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}};
    return golden_samples::SafetensorsBytes(header.dump(), std::string(4, value));
  };
  WriteFile("gold.safetensors", tensors(kEvil, 1));
  WriteFile("got.safetensors", tensors(kEvil, 2));
  WriteFile("other.safetensors", tensors("plain", 2));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"compare", "gold.safetensors", "got.safetensors"},
        {"compare", "gold.safetensors", "other.safetensors"},
        {"compare", "gold.safetensors", "got.safetensors", "--json", "-"},
        {"compare", "gold.safetensors", "got.safetensors", "--junit", "-"},
        {"compare", "gold.safetensors", "got.safetensors", "--bless", "new.h5", "--reason", kEvil},
        {"compare", kEvil, "got.safetensors"},
        {"compare", "gold.safetensors", "got.safetensors", "--tol", kEvil},
        {"run", kEvil},
        {"run", "cache k=f32 dk=8 data=tokens:1; new A", "--impl", kEvil},
        {"gate", "--suite", kEvil},
        {kEvil}}) {
    ExpectHarmlessRun(arguments);
  }
}

// What a child says of itself, and what it prints before it dies.
TEST_F(Safety, TextsOfChildrenCannotSteerATerminal) {
  WriteFile("child", "#!/bin/sh\nprintf '" + std::string("x\\033[2J\\nPASS  forged\\302\\233") +
                         "31m\\342\\200\\256\\n' >&2\nexit 3\n");
  chmod(Path("child").c_str(), 0755);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--json", "-"}, {"--junit", "-"}}) {
    std::vector<std::string> arguments = {"run", "cache k=f32 dk=8 data=tokens:1; new A", "--impl",
                                          "./child"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectHarmlessRun(arguments);
  }
}

constexpr const char* kCacheCase = "cache k=f32 dk=8 data=tokens:1; new A; append A 1\n";

TEST_F(Safety, FilesOfCasesStartNoProgram) {
  const std::string command = "/usr/bin/touch " + Path("started");
  WriteFile("x.case", "case a\nreason r\nimpl " + command + "\n" + kCacheCase);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", "x.case"}, {"run", "--file", "x.case"}}) {
    const ToolRun refused = Tool(arguments);
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_EQ(refused.out, "");
    EXPECT_NE(refused.err.find("x.case:1"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("--allow-commands"), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find(command), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(Path("started")));
  }
  // What the command line names is what was meant, whatever the file says.
  EXPECT_EQ(Tool({"run", "x.case", "--impl", "optimized"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(Path("started")));
  const ToolRun allowed = Tool({"run", "x.case", "--allow-commands"});
  EXPECT_TRUE(std::filesystem::exists(Path("started"))) << allowed.err;
  EXPECT_NE(allowed.err.find("runs " + command), std::string::npos) << allowed.err;
}

TEST_F(Safety, SuitesAndKnownFailuresStartNoProgram) {
  const std::string command = "/usr/bin/touch " + Path("started");
  WriteFile("x.cases", "case a\nreason r\nimpl " + command + "\n" + kCacheCase);
  WriteFile("known.txt", "signature=\"s\" impl=\"" + command +
                             "\" version=* reason=r expires=2999-12-31 case=x/a\n");
  const ToolRun run =
      Tool({"gate", "--suite", "x.cases", "--known", "known.txt", "--fuzz-cases", "0"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_FALSE(std::filesystem::exists(Path("started")));
}

// An adapter's name is one of those that were installed with kvcheck, or that the environment
// names.
TEST_F(Safety, FilesOfCasesMayNameAdapters) {
  std::filesystem::create_directories(Path("adapters/mine"));
  WriteFile("adapters/mine/run", "#!/bin/sh\nexec \"$KVCHECK\" serve --impl optimized\n");
  chmod(Path("adapters/mine/run").c_str(), 0755);
  WriteFile("x.case", std::string("case a\nreason r\nimpl mine\n") + kCacheCase);
  const ToolRun run = Shell("KVCHECK_ADAPTERS=adapters exec \"$KVCHECK\" run x.case");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

TEST_F(Safety, AFullDiskIsAnErrorAndNoCrash) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  std::filesystem::copy_file(Path("g.h5"), Path("h.h5"));
  ASSERT_GT(std::filesystem::file_size(Path("g.h5")), 4096u);
  for (const char* prepare : {"ulimit -f 4; ", "trap '' XFSZ; ulimit -f 4; "}) {
    for (const char* command :
         {"golden make g.h5 -o new.h5", "compare g.h5 h.h5 --bless new.h5 --reason r",
          "golden verify g.h5 --json new.h5 -v", "golden verify g.h5 --junit new.h5 --strict"}) {
      const ToolRun run = Shell(std::string(prepare) + "exec \"$KVCHECK\" " + command);
      const bool fits = run.exit_code < 2;  // a short report
      EXPECT_TRUE(run.exit_code == 2 ||
                  (fits && std::string(command).find("verify") != std::string::npos))
          << command << " " << run.exit_code << run.err;
      EXPECT_EQ(std::filesystem::exists(Path("new.h5")), fits) << command;
      if (!fits) {
        EXPECT_NE(run.err.find("kvcheck: error: "), std::string::npos) << command;
      }
      std::filesystem::remove(Path("new.h5"));
    }
  }
}

// A report that is longer than what is left of the disk loses no verdict.
TEST_F(Safety, ADiskThatFillsUpDuringTheRunChangesNoVerdict) {
  const auto tensors = [&](char value) {
    nlohmann::json header;
    std::string data;
    for (int i = 0; i < 1500; ++i) {
      const auto begin = data.size();
      data.append(4, value);
      header["t" + std::to_string(i)] = {
          {"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {begin, data.size()}}};
    }
    return golden_samples::SafetensorsBytes(header.dump(), data);
  };
  WriteFile("gold.safetensors", tensors(1));
  WriteFile("got.safetensors", tensors(2));
  for (const char* where : {"--json r.json", "--json -", "--junit r.xml"}) {
    const ToolRun run = Shell(
        std::string("trap '' XFSZ; ulimit -f 64; export TMPDIR=.; exec \"$KVCHECK\" compare ") +
        "gold.safetensors got.safetensors --max-print 0 " + where + " >/dev/null");
    EXPECT_EQ(run.exit_code, 1) << where << run.err;
    EXPECT_NE(run.err.find("the report cannot be written"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("1500 tensors: 1500 failed"), std::string::npos) << run.err;
    EXPECT_FALSE(std::filesystem::exists(Path("r.json")));
  }
}

TEST_F(Safety, StandardErrorThatCannotBeWrittenChangesNoExitCode) {
  WriteFile("x.case", std::string("case a\nreason r\n") + kCacheCase);
  for (const auto& [command, exit_code] :
       {std::pair("run nonsense", 2),
        {"run x.case", 0},
        {"nonsense", 2},
        {"compare nowhere.h5 nowhere.h5", 2},
        {"golden show nowhere.h5", 2},
        {"fuzz --cases 20 --out found", 0},
        {"fuzz --impl fault:merge_swaps_values --cases 400 --out found --shrink-time 0s", 1},
        {"gate --suite nowhere.cases", 2},
        {"faults run window_too_wide", 0},
        {"faults explain nobody", 2},
        {"list --caches nobody", 2}}) {
    for (const char* to : {" 2>&-", " 2>/dev/full"}) {
      const ToolRun run = Shell(std::string("exec \"$KVCHECK\" ") + command + to);
      EXPECT_EQ(run.exit_code, exit_code) << command << to << run.out;
    }
  }
#ifndef __SANITIZE_THREAD__  // whose runtime writes a file before main()
  // Nor a folder that can no longer be written.
  const ToolRun run = Shell(
      "mkdir ro; ulimit -f 0; exec \"$KVCHECK\" fuzz --impl fault:merge_swaps_values --cases 400 "
      "--keep-going --out ro --shrink-time 0s >/dev/full 2>&-");
  EXPECT_EQ(run.exit_code, 1);
#endif
}

TEST_F(Safety, ClosedStandardDescriptorsAreNotTakenForFiles) {
  ASSERT_EQ(Tool({"golden", "make", "--case", kAttentionCase, "-o", "g.h5"}).exit_code, 0);
  CopyDumps();
  WriteFile("x.case", std::string("case a\nreason r\n") + kCacheCase);
  for (const char* command : {"golden show g.h5", "golden verify g.h5", "run x.case", "faults list",
                              "compare a.safetensors b.safetensors", "run x.case --json -"}) {
    const std::string start = std::string("exec \"$KVCHECK\" ") + command;
    const ToolRun closed = Shell(start + " >&-");
    EXPECT_EQ(closed.exit_code, 2) << command << closed.err;
    EXPECT_NE(closed.err.find("cannot be written"), std::string::npos) << command << closed.err;
    EXPECT_EQ(Shell(start + " <&- >&- 2>&-").exit_code, 2) << command;
    // Without standard input all is as it was.
    EXPECT_EQ(Shell(start + " <&-").out, Shell(start).out) << command;
    EXPECT_EQ(Shell(start + " <&- 2>&-").exit_code, 0) << command;
  }
}

TEST_F(Safety, NohupKeepsTheToolGoing) {
  // The sign: it has taken SIGINT over, and would have taken SIGHUP.
  const ToolRun run = Shell(
      "trap '' HUP; \"$KVCHECK\" fuzz --cases 3000 -j 1 & p=$!\n"
      "until grep -q -e 'SigCgt:.*[2367abef]$' -e 'State:.Z' /proc/$p/status; do :; done\n"
      "kill -HUP $p; wait $p");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

TEST_F(Safety, APipeWithoutAWriterIsRefused) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(symlink("pipe", Path("pipe.case").c_str()), 0);
  CopyDumps();
  // At once, since each of them waits a while for a writer.
  const std::vector<std::string> commands = {"run --file pipe",
                                             "run pipe.case",
                                             "compare a.safetensors b.safetensors --rules pipe",
                                             "gate --suite pipe",
                                             "gate --known pipe",
                                             "compare a.safetensors b.safetensors --map-file pipe",
                                             "compare a.safetensors pipe",
                                             "golden verify pipe"};
  std::string script;
  for (size_t i = 0; i < commands.size(); ++i) {
    script += "(\"$KVCHECK\" " + commands[i] + " >out" + std::to_string(i) +
              " 2>&1; echo \"exit $?\" >>out" + std::to_string(i) + ") &\n";
  }
  Shell(script + "wait");
  for (size_t i = 0; i < commands.size(); ++i) {
    const std::string out = ContentOfFile("out" + std::to_string(i));
    EXPECT_NE(out.find("exit 2"), std::string::npos) << commands[i] << out;
    EXPECT_NE(out.find("is a pipe"), std::string::npos) << commands[i] << out;
  }
}

TEST_F(Safety, APipeWithAWriterIsRead) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  WriteFile("x.cases", std::string("case a\nreason r\n") + kCacheCase);
  const ToolRun named = Shell("cat x.cases >pipe & exec \"$KVCHECK\" run --file pipe");
  EXPECT_EQ(named.exit_code, 0) << named.err;
  const ToolRun gone = Shell("cat x.cases | \"$KVCHECK\" run --file /dev/stdin");
  EXPECT_EQ(gone.exit_code, 0) << gone.err;
}

TEST_F(Safety, AReportGoesIntoAPipeThatSomebodyReads) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  WriteFile("x.case", std::string("case a\nreason r\n") + kCacheCase);
  const ToolRun read =
      Shell("cat pipe >report & \"$KVCHECK\" run x.case --json pipe && wait && cat report");
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_NE(read.out.find("\"exit_code\": 0"), std::string::npos) << read.out;
  const ToolRun unread = Tool({"run", "x.case", "--junit", "pipe"});
  EXPECT_EQ(unread.exit_code, 2) << unread.out;
  EXPECT_NE(unread.err.find("a pipe that nobody reads"), std::string::npos) << unread.err;
}

// A golden file is put in place by a rename, which would take a device's or a pipe's name away.
TEST_F(Safety, GoldenFilesReplaceNoPipe) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const ToolRun made = Tool({"golden", "make", "--case", kCodecCase, "-o", "pipe"});
  EXPECT_EQ(made.exit_code, 2) << made.out;
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

TEST_F(Safety, AFolderForTemporaryFilesThatIsNoneIsNamed) {
  for (const char* folder : {"/nonexistent", "/dev/null"}) {
    const ToolRun run = Shell(std::string("TMPDIR=") + folder +
                              " exec \"$KVCHECK\" run 'cache k=f32 dk=8 data=tokens:1; new A' "
                              "--store hdf5");
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_NE(run.err.find("TMPDIR"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(folder), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace kvcheck
