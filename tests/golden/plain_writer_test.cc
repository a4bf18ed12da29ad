// What the plain writer wrote is read back the same: every type, any shape, in blocks of any size;
// what HDF5 cannot say is refused, and an unfinished file never appears.

#include "golden/plain_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "golden/hdf5_file.h"
#include "golden/safetensors_file.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using golden_samples::Counting;
using Storage = PlainWriter::Storage;

class PlainWriterTest : public testing::TestWithParam<Storage> {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = golden_samples::TemporaryPath("plain");
  const std::string path_ = folder_ + "/file.h5";
};

INSTANTIATE_TEST_SUITE_P(Storages, PlainWriterTest,
                         testing::Values(Storage::kContiguous, Storage::kChecked));

void Write(PlainWriter& writer, const std::string& path, const Tensor& tensor, size_t block) {
  writer.Begin(path, tensor.dtype, tensor.shape);
  for (size_t at = 0; at < tensor.bytes.size(); at += block) {
    writer.Append({tensor.bytes.data() + at, std::min(block, tensor.bytes.size() - at)});
  }
}

TEST_P(PlainWriterTest, EveryTypeAndAxisComesBack) {
  std::map<std::string, Tensor> tensors;
  for (DType dtype : AllDTypes()) {
    tensors["/types/" + std::string(Name(dtype))] = Counting(dtype, {{"L", 3}, {"", 5}});
  }
  tensors["/scalar"] = Counting(DType::kBFloat16, {});
  tensors["/empty"] = Tensor(DType::kFloat32, Shape::Unnamed({3, 0, 2}));
  tensors["/odd name.\u2208 [0]"] = Counting(DType::kFloat32, {{"time step", 7}});
  {
    PlainWriter writer(path_, GetParam());
    for (const auto& [path, tensor] : tensors) Write(writer, path, tensor, 1 << 20);
    writer.Finish();
  }
  Hdf5File file(path_);
  EXPECT_FALSE(file.index().is_golden);
  EXPECT_EQ(file.index().objects.size(), tensors.size());
  for (const auto& [path, tensor] : tensors) EXPECT_TRUE(ReadTensor(file, path) == tensor) << path;
  // Contiguous data can be mapped, checked ones cannot.
  EXPECT_EQ(file.index().objects.at("/types/bfloat16").data_offset.has_value(),
            GetParam() == Storage::kContiguous);
}

TEST_P(PlainWriterTest, BlocksOfAnySizeComeBack) {
  const Tensor tensor = Counting(DType::kUInt16, Shape::Unnamed({3, 129, 7, 130}));  // 3 chunks
  for (size_t block :
       {size_t{2 * 129}, size_t{2 * 7 * 130}, size_t{1} << 17, tensor.bytes.size()}) {
    PlainWriter writer(path_, GetParam());
    Write(writer, "/x", tensor, block);
    writer.Finish();
    Hdf5File file(path_);
    EXPECT_TRUE(ReadTensor(file, "/x") == tensor) << block;
  }
}

TEST_P(PlainWriterTest, CopiesASafetensorsFile) {
  SafetensorsFile source(golden_samples::FixturePath("fixture_numpy.safetensors"));
  {
    PlainWriter writer(path_, GetParam());
    for (const auto& [path, record] : source.index().objects) {
      if (record.is_dataset) writer.Copy(source, path, path);
    }
    writer.SetAttribute("/", "reason", std::string("the model was re-trained"));
    writer.Finish();
  }
  Hdf5File copy(path_);
  int compared = 0;
  for (const auto& [path, record] : source.index().objects) {
    if (!record.is_dataset) continue;
    EXPECT_TRUE(ReadTensor(copy, path) == ReadTensor(source, path)) << path;
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

TEST_P(PlainWriterTest, RefusesWhatHdf5CannotSay) {
  const auto code_of = [](const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kParse;
  };
  PlainWriter writer(path_, GetParam());
  const Tensor tensor = Counting(DType::kFloat32, Shape::Unnamed({2}));
  Write(writer, "/a/b", tensor, 8);
  for (const std::string& path :
       std::vector<std::string>{"", "/", "x", "//x", "/x/", "/x//y", "/./x", "/x/.",
                                std::string("/x\0y", 4), "/a", "/a/b", "/a/b/c"}) {
    EXPECT_EQ(code_of([&] { writer.Begin(path, DType::kFloat32, tensor.shape); }),
              ErrorCode::kUsage)
        << path;
  }
  EXPECT_EQ(code_of([&] { writer.SetAttribute("/c", "k", std::string("v")); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { writer.SetAttribute("/a", "k", std::string("\xff")); }),
            ErrorCode::kUsage);
  writer.Finish();
  Hdf5File file(path_);
  EXPECT_TRUE(ReadTensor(file, "/a/b") == tensor);
  EXPECT_EQ(file.index().objects.size(), 1u);
}

TEST_P(PlainWriterTest, LeavesTheOldFileAndNothingElseWhenItDoesNotFinish) {
  golden_samples::WriteBytes(path_, "old");
  {
    PlainWriter writer(path_, GetParam());
    Write(writer, "/x", Counting(DType::kFloat32, Shape::Unnamed({100})), 100);
  }
  EXPECT_EQ(golden_samples::ReadBytes(path_), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_THROW(PlainWriter(folder_ + "/none/file.h5"), Error);
}

}  // namespace
}  // namespace kvcheck
