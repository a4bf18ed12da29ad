#include "tools/report/output_file.h"

#include <gtest/gtest.h>

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
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(testing::TempDir()) / ("kvcheck_output_" + std::string(info->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
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
