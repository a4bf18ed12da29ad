#include "tools/report/output_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

class OutputFile : public testing::Test {
 protected:
  void SetUp() override {
    // Another build may run the same test at the same time.
    std::string folder =
        (std::filesystem::path(testing::TempDir()) / "kvcheck_output_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr) << folder << ": " << std::strerror(errno);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string Content(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int64_t Entries() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  std::filesystem::path folder_;
};

TEST_F(OutputFile, ReplacesAnOlderOneAndLeavesNothingElse) {
  const std::filesystem::path path = folder_ / "report.json";
  WriteOutput(path, "first, and longer");
  WriteOutput(path, "second");
  EXPECT_EQ(Content(path), "second");
  EXPECT_EQ(Entries(), 1);
}

TEST_F(OutputFile, InAFolderThatDoesNotExistIsAnError) {
  const std::filesystem::path path = folder_ / "nowhere" / "report.json";
  try {
    WriteOutput(path, "text");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_EQ(error.context(), path);
  }
  EXPECT_EQ(Entries(), 0);
}

TEST_F(OutputFile, DevicesAreWrittenDirectly) { WriteOutput("/dev/null", "text"); }

}  // namespace
}  // namespace kvcheck
