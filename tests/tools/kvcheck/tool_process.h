// Runs the built tool as a user would.

#ifndef TESTS_TOOLS_KVCHECK_TOOL_PROCESS_H_
#define TESTS_TOOLS_KVCHECK_TOOL_PROCESS_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "golden/schema.h"

namespace kvcheck {

struct ToolRun {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

// Waits for a sign, however long a loaded machine takes: ctest ends what waits for ever.
void WaitUntil(const std::function<bool()>& sign);
// Whether the process has a handler for the signal: the tool has begun, and will report.
bool Catches(pid_t process, int signal);
// 'S', 'T' (stopped), 'Z'; 0 of a process that is gone.
char StateOf(pid_t process);
// Of a processor, which the process itself has used, in whole seconds.
int64_t ProcessorSeconds(pid_t process);
// The process and all that it has started, from the top.
std::vector<pid_t> TreeOf(pid_t process);

// A test with a folder of its own, in which the tool runs.
class ToolTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // Waits for the end.
  ToolRun Tool(const std::vector<std::string>& arguments) const;
  // Sends the signal when the sign is there: `sign` is called with the tool's number until it is
  // true. Fails where the tool ends before.
  ToolRun Signalled(const std::vector<std::string>& arguments, int signal,
                    const std::function<bool(pid_t)>& sign) const;
  // A script of sh, in which "$KVCHECK" is the tool.
  ToolRun Shell(const std::string& script) const;
  std::string ContentOfFile(const std::string& name) const;
  // The program instead of kvcheck.
  void UseProgram(const std::string& path) { program_ = path; }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // For what is done to the tool while it runs. Words: the program first; program(): kvcheck.
  pid_t Start(const std::vector<std::string>& words) const;
  ToolRun End(pid_t process) const;
  const std::string& program() const { return program_; }

 private:
  std::filesystem::path folder_;
  std::string program_ = KVCHECK_TOOL;
};

// Small cases. The simulated kernel of plain_f32 passes the first.
inline constexpr const char* kAttentionCase =
    "attention hq=4 hkv=2 l=2 t=33 d=32 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
    "data=gauss:1";
inline constexpr const char* kCodecCase =
    "codec op=encode format=affine:4:g32:bf16 x=f32 rows=3 d=64 data=gauss:1";

inline constexpr const char* kHonestPlan = "base=plain_f32";
// Says that plain_f32 rounds nothing.
inline constexpr const char* kBoastfulPlan =
    "base=plain_f32 op=f64 qk=f64:pairwise pv=f64:pairwise l=f64:pairwise scores=f64 p=f64 "
    "exp_error=2^-52";

// A golden case of kAttentionCase with inputs and one observed output, of plain_f32, with the given
// declared plan and expectation.
GoldenCase ObservedCase(const std::string& name, const std::string& declared_plan,
                        const std::string& expect);
GoldenFile FileOf(std::vector<GoldenCase> cases);

}  // namespace kvcheck

#endif  // TESTS_TOOLS_KVCHECK_TOOL_PROCESS_H_
