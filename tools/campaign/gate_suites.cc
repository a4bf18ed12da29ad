#include "tools/campaign/gate_suites.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "reference/spec/error.h"
#include "tools/corridor/installed_data.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesOf(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".cases") files.push_back(entry.path());
  }
  if (error) throw Error(ErrorCode::kUnreadableFile, error.message(), path);
  if (files.empty()) throw Error(ErrorCode::kSelection, "the folder has no *.cases", path);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string DefaultSuiteFolder() {
  const std::vector<std::string> folders = InstalledFolders("suites");
  if (!folders.empty()) return folders.front();
  throw Error(ErrorCode::kUsage,
              "the suites of kvcheck are not beside this program; give files or folders of cases "
              "with --suite (tools/suites of the sources)",
              "gate");
}

std::vector<CaseEntry> ReadSuites(const std::vector<std::string>& paths, const Cancel& cancel) {
  std::vector<CaseEntry> cases;
  std::map<std::string, std::string> suites;
  for (const std::string& path : paths) {
    for (const fs::path& file : FilesOf(path)) {
      const std::string suite = file.stem().string();
      const auto [known, added] = suites.emplace(suite, file.string());
      if (!added) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("two suites of the name '{}': {}", suite, known->second),
                    file.string());
      }
      for (CaseEntry& entry : ReadCases(file.string(), cancel)) {
        entry.name = fmt::format("{}/{}", suite, entry.name);
        cases.push_back(std::move(entry));
      }
    }
  }
  return cases;
}

std::vector<CaseEntry> OfShard(std::vector<CaseEntry> cases, const Shard& shard) {
  std::erase_if(cases, [&](const CaseEntry& entry) { return !shard.Has("/" + entry.name); });
  return cases;
}

}  // namespace kvcheck
