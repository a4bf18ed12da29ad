#include "tests/tools/kvcheck/tool_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/implementations.h"

namespace kvcheck {
namespace {

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

void ToolTest::SetUp() {
  // Another build may run the same test at the same time.
  std::string folder = (std::filesystem::path(testing::TempDir()) / "kvcheck_tool_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr) << folder << ": " << std::strerror(errno);
  folder_ = folder;
}

void ToolTest::TearDown() { std::filesystem::remove_all(folder_); }

ToolRun ToolTest::Tool(const std::vector<std::string>& arguments, int signal,
                       int after_milliseconds) const {
  const std::string out = Path("stdout.txt");
  const std::string err = Path("stderr.txt");
  std::vector<std::string> words = {program_};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder_.c_str()) != 0) _exit(99);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(99);
  }
  if (signal != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(after_milliseconds));
    kill(child, signal);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ToolRun run;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.out = Content(out);
  run.err = Content(err);
  return run;
}

GoldenCase ObservedCase(const std::string& name, const std::string& declared_plan,
                        const std::string& expect) {
  Question question;
  question.c = ParseCase(kAttentionCase);
  question.plan = ParsePlan(kHonestPlan);
  question.inputs = GenerateCaseInputs(question.c, {});
  GoldenCase golden;
  golden.name = name;
  golden.case_text = Print(question.c);
  golden.inputs = question.inputs;
  ObservedRecord record;
  record.impl = "simulated";
  record.implementation = "simulated kernel";
  record.version = "1";
  record.machine = "any";
  record.plan = declared_plan;
  record.expect = expect;
  record.reason = expect == "PASS" ? "" : "as the test says";
  record.outputs = Answer(*MakeImplementation("simulated", question.plan, {}), question)->tensors();
  golden.observed.push_back(std::move(record));
  return golden;
}

GoldenFile FileOf(std::vector<GoldenCase> cases) {
  GoldenFile file;
  file.source = "test";
  file.command = "test";
  file.cases = std::move(cases);
  return file;
}

}  // namespace kvcheck
