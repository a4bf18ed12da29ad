// A folder of a test, and of nobody else.

#ifndef TESTS_TOOLS_PREFIX_DISK_TEMPORARY_FOLDER_H_
#define TESTS_TOOLS_PREFIX_DISK_TEMPORARY_FOLDER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace kvcheck {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (std::filesystem::temp_directory_path() / "kvcheck-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // In place of what it holds, the files of another folder.
  void CopyFrom(const std::string& other) const {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(other, path_, std::filesystem::copy_options::recursive);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace kvcheck

#endif  // TESTS_TOOLS_PREFIX_DISK_TEMPORARY_FOLDER_H_
