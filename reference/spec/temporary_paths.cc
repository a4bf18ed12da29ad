#include "reference/spec/temporary_paths.h"

#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>

namespace kvcheck {
namespace {

struct Remembered {
  std::mutex mutex;
  std::set<std::string> paths;
};

// Never destroyed: a maker may outlive static objects.
Remembered& All() {
  static auto* const kAll = new Remembered;
  return *kAll;
}

bool Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return !error;
}

}  // namespace

void RememberTemporary(const std::string& path) {
  Remembered& all = All();
  const std::lock_guard lock(all.mutex);
  all.paths.insert(path);
}

void RemoveTemporary(const std::string& path) {
  Remove(path);
  Remembered& all = All();
  const std::lock_guard lock(all.mutex);
  all.paths.erase(path);
}

void RemoveTemporaries() {
  // A file that a thread makes meanwhile keeps its folder.
  constexpr int kTries = 8;
  Remembered& all = All();
  const std::lock_guard lock(all.mutex);
  for (const std::string& path : all.paths) {
    for (int i = 0; i < kTries && !Remove(path); ++i) {
    }
  }
  all.paths.clear();
}

}  // namespace kvcheck
