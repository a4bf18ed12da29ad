// A copy of a stored dump of FlashInfer, of which a test changes something.

#ifndef TESTS_TOOLS_FLASHINFER_DUMP_COPY_H_
#define TESTS_TOOLS_FLASHINFER_DUMP_COPY_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/golden/golden_samples.h"

namespace kvcheck {

class DumpCopy : public testing::Test {
 protected:
  void SetUp() override {
    root_ = golden_samples::TemporaryPath("flashinfer_dump");
    std::filesystem::remove_all(root_);
    std::filesystem::copy(std::string(KVCHECK_DUMPS) + "/flashinfer", root_,
                          std::filesystem::copy_options::recursive);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  const std::string& root() const { return root_; }
  // The folder of a call, by the end of its name.
  std::string Folder(const std::string& end) const {
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      if (entry.path().string().ends_with(end)) return entry.path().string();
    }
    ADD_FAILURE() << "no folder ends with " << end;
    return "";
  }
  // Every occurrence in a file of a call.
  void Replace(const std::string& call, const std::string& file, const std::string& from,
               const std::string& to) const {
    const std::string path = Folder(call) + "/" + file;
    std::string bytes = golden_samples::ReadBytes(path);
    size_t count = 0;
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size()) {
      bytes.replace(at, from.size(), to);
      ++count;
    }
    EXPECT_GT(count, 0U) << from << " is not in " << path;
    golden_samples::WriteBytes(path, bytes);
  }

 private:
  std::string root_;
};

}  // namespace kvcheck

#endif  // TESTS_TOOLS_FLASHINFER_DUMP_COPY_H_
