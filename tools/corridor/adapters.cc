#include "tools/corridor/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "reference/spec/error.h"
#include "tools/corridor/installed_data.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapterProgram = "run";

struct OwnedProcess {
  std::shared_ptr<RemoteProcess> process;
  pid_t owner = 0;

  bool IsIdle() const { return owner == getpid() && process.use_count() == 1; }
};

struct KnownAdapter {
  Greeting greeting;
  // Kept, so that case after case asks the same ones.
  std::vector<OwnedProcess> processes;
};

std::map<std::string, KnownAdapter>& KnownAdapters() {
  static std::map<std::string, KnownAdapter> known;
  return known;
}

std::vector<fs::path> AdapterFolders() {
  std::vector<fs::path> folders;
  if (const char* named = std::getenv(kAdaptersVariable); named != nullptr && *named != '\0') {
    folders.emplace_back(named);
  }
  for (const std::string& folder : InstalledFolders("adapters")) folders.emplace_back(folder);
  return folders;
}

bool IsAdapterName(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), fits);
}

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

bool IsPythonFile(std::string_view word) { return word.ends_with(".py") && word.size() > 3; }

// A text that begins as scripts of the system do, and may be run: it speaks the protocol itself.
bool IsScript(const fs::path& path) {
  std::array<char, 2> first{};
  std::ifstream file(path, std::ios::binary);
  return IsProgram(path) && file.read(first.data(), first.size()) && first[0] == '#' &&
         first[1] == '!';
}

// KVCHECK_OWN_PYTHON is set by the command of the Python package.
std::string PythonOfAdapters() {
  for (const char* variable : {"KVCHECK_PYTHON", "KVCHECK_OWN_PYTHON"}) {
    const char* named = std::getenv(variable);
    if (named != nullptr && *named != '\0') return named;
  }
  return "python3";
}

// words[0] is a Python file that defines an adapter: what serves it.
std::vector<std::string> ServedByPython(std::vector<std::string> words) {
  std::error_code error;
  const fs::path file = words[0];
  if (!fs::is_regular_file(file, error)) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("there is no file {}; kvcheck new-adapter NAME writes one to begin with",
                    Shortened(words[0], kMostNameShown)),
        "--impl");
  }
  if (IsScript(file)) {
    words[0] = fs::absolute(file).string();
    return words;
  }
  std::vector<std::string> command = {PythonOfAdapters(), AdapterPackageFile("serve.py")};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::shared_ptr<RemoteProcess> NewProcess(const std::string& impl, const RemoteLimits& limits,
                                          std::optional<Greeting> greeting) {
  return std::make_shared<RemoteProcess>(*AdapterCommand(impl), limits, std::move(greeting));
}

}  // namespace

std::vector<std::string> SplitCommandLine(const std::string& text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  const auto put = [&](char c) {
    if (!in_word) words.emplace_back();
    in_word = true;
    words.back() += c;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      if (!in_word) words.emplace_back();
      in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      in_word = false;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size() &&
               (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\')) {
      put(text[++i]);
    } else {
      put(c);
    }
  }
  if (quote != 0) {
    throw Error(ErrorCode::kUsage, fmt::format("a quote {} of the command does not end", quote),
                "--impl");
  }
  if (words.empty() || words[0].empty()) {
    throw Error(ErrorCode::kUsage, "a command begins with the name of a program", "--impl");
  }
  return words;
}

bool IsCommandLine(const std::string& impl) {
  // Texts of this program may have blanks.
  if (IsOfThisProgram(impl)) return false;
  return impl.find_first_of(" /") != std::string::npos || IsPythonFile(impl);
}

std::string AdapterPackageFile(const std::string& name) {
  std::error_code error;
  for (const fs::path& folder : AdapterFolders()) {
    const fs::path file = folder / "kvcheck_adapter" / name;
    if (fs::is_regular_file(file, error)) return file.string();
  }
  throw Error(
      ErrorCode::kUsage,
      "the Python package kvcheck_adapter is not beside this program; KVCHECK_ADAPTERS names "
      "the folder tools/adapters of the sources, which has it",
      name);
}

std::optional<std::vector<std::string>> AdapterCommand(const std::string& impl) {
  if (IsOfThisProgram(impl)) return std::nullopt;
  if (IsCommandLine(impl)) {
    std::vector<std::string> words = SplitCommandLine(impl);
    return IsPythonFile(words[0]) ? ServedByPython(std::move(words)) : words;
  }
  if (!IsAdapterName(impl)) return std::nullopt;
  for (const fs::path& folder : AdapterFolders()) {
    const fs::path program = folder / impl / kAdapterProgram;
    if (IsProgram(program)) return std::vector<std::string>{program.string()};
  }
  return std::nullopt;
}

std::vector<std::string> AdapterNames() {
  std::set<std::string> names;
  for (const fs::path& folder : AdapterFolders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (IsAdapterName(name) && IsProgram(entry.path() / kAdapterProgram)) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::string AdaptersText() {
  const std::vector<std::string> names = AdapterNames();
  const std::string listed =
      names.empty() ? "none beside this program (those of libraries are in the sources: "
                      "KVCHECK_ADAPTERS=SOURCES/tools/adapters)"
                    : fmt::format("{}", fmt::join(names, ", "));
  return fmt::format(
      "adapters: {}; a Python file with an adapter (kvcheck new-adapter writes one); a command "
      "line "
      "(with a blank or a slash)",
      listed);
}

const Greeting& GreetingOf(const std::string& impl, const RemoteLimits& limits) {
  const auto found = KnownAdapters().find(impl);
  if (found != KnownAdapters().end()) return found->second.greeting;
  KnownAdapter adapter;
  adapter.processes.push_back({NewProcess(impl, limits, {}), getpid()});
  try {
    adapter.greeting = adapter.processes[0].process->greeting();
  } catch (const RemoteLoss& loss) {
    throw Error(ErrorCode::kUnsupported, loss.reason(), impl);
  }
  return KnownAdapters().emplace(impl, std::move(adapter)).first->second.greeting;
}

std::shared_ptr<RemoteProcess> AdapterProcess(const std::string& impl, const RemoteLimits& limits) {
  const Greeting& greeting = GreetingOf(impl, limits);
  std::vector<OwnedProcess>& processes = KnownAdapters().at(impl).processes;
  for (const OwnedProcess& known : processes) {
    if (!known.IsIdle()) continue;
    known.process->SetLimits(limits);
    return known.process;
  }
  processes.push_back({NewProcess(impl, limits, greeting), getpid()});
  return processes.back().process;
}

void EndIdleAdapters() {
  for (auto& [impl, known] : KnownAdapters()) {
    std::erase_if(known.processes, [](const OwnedProcess& process) { return process.IsIdle(); });
  }
}

}  // namespace kvcheck
