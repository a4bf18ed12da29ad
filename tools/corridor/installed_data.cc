#include "tools/corridor/installed_data.h"

#include <filesystem>

namespace kvcheck {

std::vector<std::string> InstalledFolders(const std::string& name) {
  namespace fs = std::filesystem;
  std::vector<std::string> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return folders;
  // PREFIX/bin/kvcheck, and BUILD/tools/kvcheck/kvcheck.
  for (const char* up : {"..", "../.."}) {
    const fs::path folder = program.parent_path() / up / "share/kvcheck" / name;
    if (fs::is_directory(folder, error)) folders.push_back(folder.lexically_normal().string());
  }
  return folders;
}

}  // namespace kvcheck
