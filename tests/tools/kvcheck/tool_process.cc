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

#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/registry.h"

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

pid_t ToolTest::Start(const std::vector<std::string>& words) const {
  const std::string out = Path("stdout.txt");
  const std::string err = Path("stderr.txt");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  if (chdir(folder_.c_str()) != 0) _exit(99);
  // Whoever runs the tests in the background may have these ignored.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
  setenv("KVCHECK", program_.c_str(), 1);
  for (const auto& [path, stream] : {std::pair{&out, STDOUT_FILENO}, {&err, STDERR_FILENO}}) {
    const int file = open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, stream) < 0) _exit(99);
  }
  execv(argv[0], argv.data());
  _exit(99);
}

ToolRun ToolTest::End(pid_t process) const {
  int status = 0;
  waitpid(process, &status, 0);
  ToolRun run;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.out = Content(Path("stdout.txt"));
  run.err = Content(Path("stderr.txt"));
  return run;
}

ToolRun ToolTest::Tool(const std::vector<std::string>& arguments) const {
  std::vector<std::string> words = {program_};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return End(Start(words));
}

ToolRun ToolTest::Signalled(const std::vector<std::string>& arguments, int signal,
                            const std::function<bool(pid_t)>& sign) const {
  std::vector<std::string> words = {program_};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const pid_t process = Start(words);
  bool ended = false;
  WaitUntil([&] {
    ended = StateOf(process) == 'Z';
    return ended || sign(process);
  });
  EXPECT_FALSE(ended) << "the tool ended before the sign came";
  kill(process, signal);
  return End(process);
}

ToolRun ToolTest::Shell(const std::string& script) const {
  return End(Start({"/bin/sh", "-c", script}));
}

std::string ToolTest::ContentOfFile(const std::string& name) const { return Content(Path(name)); }

void WaitUntil(const std::function<bool()>& sign) {
  while (!sign()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

int64_t ProcessorSeconds(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string word;
  // Behind the name, which may hold blanks: state, and the eleventh field from there on.
  std::string name;
  std::getline(file, name, ')');
  for (int i = 0; i < 12 && file >> word; ++i) {
  }
  return std::atoll(word.c_str()) / sysconf(_SC_CLK_TCK);
}

bool Catches(pid_t process, int signal) {
  std::ifstream in("/proc/" + std::to_string(process) + "/status");
  const std::string key = "SigCgt:";
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const unsigned long long caught = std::strtoull(line.c_str() + key.size(), nullptr, 16);
    return (caught >> (signal - 1) & 1) != 0;
  }
  return false;
}

char StateOf(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(in, line);
  // The name before it may have any characters.
  const size_t at = line.rfind(") ");
  return at == std::string::npos || at + 2 >= line.size() ? '\0' : line[at + 2];
}

std::vector<pid_t> TreeOf(pid_t process) {
  std::vector<pid_t> tree = {process};
  for (size_t i = 0; i < tree.size(); ++i) {
    const std::string name = std::to_string(tree[i]);
    std::ifstream in("/proc/" + name + "/task/" + name + "/children");
    for (pid_t child = 0; in >> child;) tree.push_back(child);
  }
  return tree;
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
  record.outputs =
      Answer(*MakeImplementation(CaseKind::kAttention, "simulated", question.plan, {}), question)
          ->tensors();
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
