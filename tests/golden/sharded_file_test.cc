#include "golden/sharded_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "golden/numpy_array.h"
#include "golden/tensor_file.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using golden_samples::SafetensorsBytes;
using golden_samples::TemporaryPath;
using golden_samples::WriteBytes;

// A tensor of one u8.
std::string Shard(const std::string& tensor, char value) {
  return SafetensorsBytes("{\"__metadata__\":{\"format\":\"pt\"},\"" + tensor +
                              "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                          std::string(1, value));
}

class ShardFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = TemporaryPath("shards");
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& bytes) {
    WriteBytes(folder_ + "/" + name, bytes);
  }
  void WriteIndex(const std::string& weight_map) {
    Write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + weight_map + "}");
  }
  int ValueOf(ShardedFile& file, const std::string& tensor) {
    std::byte value{};
    file.ReadElements("/" + tensor, 0, 1, &value);
    return static_cast<int>(value);
  }
  // The message with which the folder is refused, where it names `context`.
  std::string RefusalOf(const std::string& context = "") {
    try {
      ShardedFile(folder_, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      EXPECT_NE(error.context().find(context), std::string::npos) << error.context();
      return error.message();
    }
    return "";
  }

  std::string folder_;
};

TEST_F(ShardFolder, IsOneSourceWithoutAnIndex) {
  Write("a.safetensors", Shard("x", 1));
  Write("b.safetensors", Shard("y", 2));
  Write("readme.txt", "not a shard");
  ShardedFile file(folder_);
  EXPECT_EQ(file.path(), folder_);
  EXPECT_EQ(file.index().objects.size(), 3u);
  EXPECT_EQ(ValueOf(file, "x"), 1);
  EXPECT_EQ(ValueOf(file, "y"), 2);
  EXPECT_EQ(std::get<std::string>(
                file.index().objects.at("/").attributes.at("b.safetensors.metadata.format")),
            "pt");
  // A place in a file would be taken for one in a file of the folder's name.
  EXPECT_FALSE(file.index().objects.at("/x").data_offset);
}

TEST_F(ShardFolder, TheIndexSaysWhichShardHasATensor) {
  Write("a.safetensors", Shard("x", 1));
  Write("b.safetensors", Shard("x", 2));
  Write("c.safetensors", Shard("z", 3));
  Write("d.safetensors", Shard("unnamed file", 4));
  WriteIndex(R"({"x":"b.safetensors","z":"c.safetensors"})");
  ShardedFile file(folder_);
  EXPECT_EQ(file.index().objects.size(), 3u);
  EXPECT_EQ(ValueOf(file, "x"), 2);
  EXPECT_EQ(ValueOf(file, "z"), 3);
  EXPECT_EQ(std::get<std::string>(file.index().objects.at("/").attributes.at(kNotNamedByIndex)),
            "a.safetensors, d.safetensors");
}

TEST_F(ShardFolder, SaysWhatLiesElsewhereThanItsIndexSays) {
  Write("a.safetensors", Shard("x", 1));
  Write("b.safetensors", SafetensorsBytes(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                          R"("y":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                          "\1\2"));
  WriteIndex(R"({"x":"a.safetensors","y":"b.safetensors"})");
  ShardedFile file(folder_);
  EXPECT_EQ(ValueOf(file, "x"), 1);
  EXPECT_EQ(std::get<std::string>(file.index().objects.at("/").attributes.at(kNotNamedByIndex)),
            "'x' of b.safetensors");
  EXPECT_EQ(file.OriginOf("/x"), (TensorOrigin{folder_ + "/a.safetensors", "/x"}));
}

TEST_F(ShardFolder, IsOneSourceOfNumpysFiles) {
  std::filesystem::copy_file(golden_samples::FixturePath("fixture_fortran.npy"),
                             folder_ + "/k.npy");
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
  Write("q.npy",
        std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + '\7');
  ShardedFile file(folder_);
  EXPECT_EQ(ValueOf(file, "q"), 7);
  EXPECT_EQ(ReadTensor(file, "/k").ElementCount(), 24);
  EXPECT_FALSE(file.index().objects.at("/").attributes.contains(kNamedByFile));
}

TEST_F(ShardFolder, ATensorThatTheIndexDoesNotNameIsListedWithAProblem) {
  Write("a.safetensors",
        SafetensorsBytes(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         "\1\2"));
  WriteIndex(R"({"x":"a.safetensors"})");
  const ShardedFile file(folder_);
  EXPECT_EQ(file.index().objects.at("/x").problem, "");
  EXPECT_NE(file.index().objects.at("/extra").problem.find("the index does not name it"),
            std::string::npos);
}

TEST_F(ShardFolder, OpensAsATensorFile) {
  Write("a.safetensors", Shard("x", 1));
  const auto source = OpenTensorFile(folder_, [](const std::string&) {
    ADD_FAILURE() << "no HDF5 here";
    return std::unique_ptr<TensorSource>();
  });
  EXPECT_TRUE(source->index().objects.contains("/x"));
}

TEST_F(ShardFolder, WhatDoesNotFitIsRefused) {
  EXPECT_NE(RefusalOf().find("a folder without safetensors files"), std::string::npos);
  Write("a.safetensors", Shard("x", 1));
  Write("b.safetensors", Shard("x", 2));
  EXPECT_EQ(RefusalOf("b.safetensors"), "two shards have the tensor 'x'");
  const std::string index = "model.safetensors.index.json";
  WriteIndex(R"({"x":"a.safetensors","x":"b.safetensors"})");
  EXPECT_NE(RefusalOf(index).find("has the key 'x' twice"), std::string::npos);
  for (const char* text : {"", "[]", "{\"weight_map\":[]}", "{\"weight_map\":{\"x\":"}) {
    Write(index, text);
    EXPECT_NE(RefusalOf(index).find("no index of shards"), std::string::npos) << text;
  }
  WriteIndex(R"({"x":1})");
  EXPECT_EQ(RefusalOf(index), "'x' has no file name");
  for (const char* name : {"", "../a.safetensors", "/etc/passwd", "a\\u0000b"}) {
    WriteIndex(std::string(R"({"x":")") + name + "\"}");
    EXPECT_NE(RefusalOf(index).find("no name of a file of this folder"), std::string::npos) << name;
  }
  WriteIndex(R"({"x":"a.safetensors","y":"a.safetensors"})");
  EXPECT_EQ(RefusalOf(index), "'a.safetensors' has no tensor 'y'");
  WriteIndex(R"({"x":"c.safetensors"})");
  EXPECT_NE(RefusalOf("c.safetensors"), "");
  Write("other.safetensors.index.json", "{}");
  EXPECT_NE(RefusalOf().find("are indices of shards"), std::string::npos);
}

}  // namespace
}  // namespace kvcheck
