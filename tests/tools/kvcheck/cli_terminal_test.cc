// What depends on where the output goes: colours and progress on a terminal, silence behind a
// reader that has gone, completion in a shell.

#include <gtest/gtest.h>

#include <string>

#include "tests/tools/kvcheck/tool_process.h"

namespace kvcheck {
namespace {

class Terminal : public ToolTest {
 protected:
  // The tool with a terminal as its standard output and error, both of which come as `out`.
  ToolRun OnTerminal(const std::string& arguments, const std::string& settings = "TERM=xterm") {
    return Shell("export TERM; unset NO_COLOR; export " + settings +
                 "; python3 -c 'import os, pty, sys; "
                 "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \"$KVCHECK\" " +
                 arguments + " </dev/null");
  }
};

const std::string kFailing =
    std::string("run '") + kAttentionCase + "' --impl fault:causal_ignored --plan " + kHonestPlan;
constexpr const char* kRed = "\033[31mFAIL\033[0m";

TEST_F(Terminal, ColoursAreForTerminalsAndCanBeForbidden) {
  const ToolRun shown = OnTerminal(kFailing);
  EXPECT_EQ(shown.exit_code, 1) << shown.err;
  EXPECT_NE(shown.out.find(kRed), std::string::npos) << shown.out;
  for (const char* settings : {"NO_COLOR=1 TERM=xterm", "TERM=dumb"}) {
    const ToolRun plain = OnTerminal(kFailing, settings);
    EXPECT_EQ(plain.exit_code, 1) << plain.err;
    EXPECT_EQ(plain.out.find("\033["), std::string::npos) << settings << plain.out;
    EXPECT_NE(plain.out.find("FAIL as asked; passes with mask=none  attention"), std::string::npos)
        << settings << plain.out;
  }
  EXPECT_NE(OnTerminal(kFailing, "NO_COLOR= TERM=xterm").out.find(kRed), std::string::npos);
  EXPECT_EQ(Shell("exec \"$KVCHECK\" " + kFailing).out.find("\033"), std::string::npos);
  // Nor in what is written beside the text.
  OnTerminal(kFailing + " --junit r.xml --html r.html");
  EXPECT_EQ(ContentOfFile("r.xml").find("[31m"), std::string::npos);
  EXPECT_EQ(ContentOfFile("r.html").find("[31m"), std::string::npos);
}

TEST_F(Terminal, BenchSaysHowFarItIs) {
  const ToolRun formats =
      OnTerminal("bench formats --format q8_0 --format q4_0 --rows 64 --head-dim 64 --rounds 1");
  EXPECT_EQ(formats.exit_code, 0) << formats.out;
  EXPECT_NE(formats.out.find("1 of 4: errors of q8_0"), std::string::npos) << formats.out;
  const ToolRun cache =
      OnTerminal("bench kv-cache --format q8_0 --layers 1 --seq-len 64 --head-dim 64 --rounds 2");
  EXPECT_EQ(cache.exit_code, 0) << cache.out;
  EXPECT_NE(cache.out.find("1 of 2: round 1 of 2, 64 tokens of q8_0"), std::string::npos)
      << cache.out;
  EXPECT_EQ(Shell("exec \"$KVCHECK\" bench kv-cache --format q8_0 --layers 1 --seq-len 64 "
                  "--head-dim 64 --rounds 2")
                .err,
            "");
}

// With SIGPIPE as a shell leaves it and ignored, as some runners of tests leave it. The reader
// closes before it is written to.
TEST_F(Terminal, AReaderThatHasGoneIsNoError) {
  for (const char* trap : {"", "trap '' PIPE; "}) {
    const ToolRun run =
        Shell(std::string(trap) + "mkfifo p; (exec <p) & { exec 3>p; wait; \"$KVCHECK\" " +
              kFailing + " --json r.json >&3; echo $? >code; }; rm p");
    EXPECT_EQ(run.err, "") << trap;
  }
  // Ignored, the verdict is still the exit code, and a report in a file is whole.
  EXPECT_EQ(ContentOfFile("code"), "1\n");
  EXPECT_NE(ContentOfFile("r.json").find("\"exit_code\": 1"), std::string::npos);
}

TEST_F(Terminal, BashCompletesCommandsOptionsAndValues) {
  const auto complete = [&](const std::string& words) {
    return Shell("bash -c 'source <(\"$KVCHECK\" completion bash); COMP_WORDS=(" + words +
                 "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _kvcheck; echo \"${COMPREPLY[*]}\"'");
  };
  EXPECT_EQ(complete("kvcheck fu").out, "fuzz\n");
  EXPECT_EQ(complete("kvcheck bench \"\"").out, "formats kv-cache judge\n");
  EXPECT_EQ(complete("kvcheck bench formats --ty").out, "--type\n");
  EXPECT_EQ(complete("kvcheck bench formats --type \"\"").out, "f32 f16 bf16\n");
  EXPECT_EQ(complete("kvcheck run --rule s").out, "statistics\n");
  Shell("echo >some.case");
  EXPECT_EQ(complete("kvcheck run some").out, "some.case\n");
  EXPECT_EQ(complete("kvcheck run --json some").out, "some.case\n");
  EXPECT_EQ(complete("kvcheck fuzz").err, "");
}

// Where the shells are installed they read it; in any case every command and option stands there.
TEST_F(Terminal, OtherShellsAreGivenTheSame) {
  for (const char* shell : {"zsh", "fish"}) {
    const ToolRun run =
        Shell(std::string("\"$KVCHECK\" completion ") + shell + " >script; if command -v " + shell +
              " >/dev/null; then " + shell + " -n script; fi");
    EXPECT_EQ(run.exit_code, 0) << shell << run.err;
    const std::string script = ContentOfFile("script");
    for (const char* word : {"golden", "kv-cache", "max-print", "completion"}) {
      EXPECT_NE(script.find(word), std::string::npos) << shell << word;
    }
  }
  EXPECT_EQ(Shell("exec \"$KVCHECK\" completion tcsh").exit_code, 2);
}

}  // namespace
}  // namespace kvcheck
