// A file is what its bytes say, whatever its name; what is neither format is refused by name, at
// once.

#include "golden/tensor_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>

#include "golden/hdf5_file.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

std::string FormatRefusal(const std::string& path) {
  try {
    FormatOfFile(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_EQ(error.context(), path);
    return error.message();
  }
  ADD_FAILURE() << path << " was taken";
  return "";
}

TEST(TensorFile, OpensEachFormatByItsBytesAndNotByItsName) {
  const std::string path = golden_samples::TemporaryPath("misnamed.h5");
  int hdf5_opened = 0;
  const LibraryOpener opener = [&](const std::string& name) {
    ++hdf5_opened;
    return std::make_unique<Hdf5File>(name);
  };
  std::filesystem::copy_file(golden_samples::FixturePath("fixture_numpy.safetensors"), path,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(OpenTensorFile(path, opener)->index().objects.contains("/layers.0.keys"));
  EXPECT_EQ(hdf5_opened, 0);
  EXPECT_TRUE(OpenTensorFile(golden_samples::FixturePath("fixture_stranger.h5"), opener)
                  ->index()
                  .objects.contains("/little"));
  EXPECT_EQ(hdf5_opened, 1);
  // HDF5 behind a block of the user's, of the least size and of a larger one.
  const std::string bytes =
      golden_samples::ReadBytes(golden_samples::FixturePath("fixture_stranger.h5"));
  for (size_t block : {size_t{512}, size_t{4096}}) {
    golden_samples::WriteBytes(path, std::string(block, 'u') + bytes);
    EXPECT_EQ(FormatOfFile(path), TensorFileFormat::kHdf5) << block;
  }
  std::filesystem::remove(path);
}

TEST(TensorFile, NamesTheFormatsAndWhatTheFileIsInstead) {
  const std::string path = golden_samples::TemporaryPath("other");
  for (const auto& [bytes, reason] : std::map<std::string, std::string>{
           {"", "it is empty"},
           {"{",
            "it starts with '{'. Formats that are read: HDF5, safetensors, numpy's .npy and .npz; "
            "raw elements with their type and shape behind the name: "},
           {"GGUF\x03 and more", "it is a GGUF model"},
           {"\x80\x02\x8a\x0a and more", "runs no code of it: kvcheck convert "},
           {"\x80\x04\x95 and more", "it is a pickle, as torch.save writes it"},
           {"\x1b[31m red text", "it starts with '\\x1b[31m re'"},
           {std::string(5000, '\0'), "it starts with '\\x00"}}) {
    golden_samples::WriteBytes(path, bytes);
    EXPECT_NE(FormatRefusal(path).find(reason), std::string::npos) << FormatRefusal(path);
  }
  std::filesystem::remove(path);
}

TEST(TensorFile, RefusesPipesDevicesAndFoldersWithoutWaiting) {
  const std::string pipe = golden_samples::TemporaryPath("tensor_pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(FormatRefusal(pipe).find("it is a pipe"), std::string::npos);
  EXPECT_NE(FormatRefusal("/dev/zero").find("it is a device"), std::string::npos);
  EXPECT_NE(FormatRefusal("/tmp").find("it is a folder"), std::string::npos);
  EXPECT_NE(FormatRefusal("/nonexistent").find("No such file"), std::string::npos);
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace kvcheck
