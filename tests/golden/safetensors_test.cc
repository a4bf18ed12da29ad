// Safetensors files: what the package that defines the format wrote is read with the right values;
// everything that the format does not allow is refused with its place.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "golden/safetensors_file.h"
#include "golden/safetensors_header.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using golden_samples::FixturePath;
using golden_samples::SafetensorsBytes;
using golden_samples::TemporaryPath;
using golden_samples::WriteBytes;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) : path_(TemporaryPath("a.safetensors")) {
    WriteBytes(path_, bytes);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The message with which a file of these bytes is refused; "" when it is read.
std::string SafetensorsRefusal(const std::string& bytes, const ReadLimits& limits = {}) {
  const TemporaryFile file(bytes);
  try {
    SafetensorsFile(file.path(), limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_EQ(error.context(), file.path());
    return error.message();
  }
  return "";
}

// One f32 tensor "a" of 2 elements, with the fields given instead of its own.
std::string OneTensor(const std::string& fields) {
  return SafetensorsBytes("{\"a\":{" + fields + "}}", std::string(8, '\1'));
}

TEST(SafetensorsFixture, HasEveryTypeOfThePackageWithItsValues) {
  SafetensorsFile file(FixturePath("fixture_torch.safetensors"));
  const double values[] = {1, 2, 4, 8, 16, 32};
  int read = 0;
  for (DType dtype : AllDTypes()) {
    if (dtype == DType::kFloat4E2M1FN) continue;
    const Tensor tensor = ReadTensor(file, "/types." + std::string(Name(dtype)));
    EXPECT_EQ(tensor.dtype, dtype);
    ASSERT_EQ(ToString(tensor.shape), "2x3");
    double got[6];
    DecodeTo(tensor, 0, got);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(got[i], dtype == DType::kBool ? 1 : values[i]) << Name(dtype) << " " << i;
    }
    ++read;
  }
  EXPECT_EQ(read, 16);
  for (const auto& [name, reason] : std::map<std::string, std::string>{
           {"/types.complex64", "its type 'C64' is not one of kvcheck's"},
           {"/types.float8_e4m3fnuz", "its type 'F8_E4M3FNUZ' is not one of kvcheck's"},
           {"/types.float4_e2m1fn_x2", "its type 'F4' is not one of kvcheck's"},
           {"/rank9", "rank 9, at most 8 is read"}}) {
    ASSERT_TRUE(file.index().objects.contains(name)) << name;
    EXPECT_EQ(file.index().objects.at(name).problem, reason);
  }
}

TEST(SafetensorsFixture, HasScalarsEmptyTensorsOddNamesAndMetadata) {
  SafetensorsFile file(FixturePath("fixture_torch.safetensors"));
  EXPECT_FALSE(file.index().is_golden);
  EXPECT_EQ(*ReadTensor(file, "/scalar").As<float>(), 1.5f);
  EXPECT_EQ(ToString(ReadTensor(file, "/empty").shape), "2x0x3");
  EXPECT_EQ(ReadTensor(file, "/a/b c\n\u2208").As<uint32_t>()[1], 0x80000000u);
  const auto& attributes = file.index().objects.at("/").attributes;
  EXPECT_EQ(attributes, (std::map<std::string, AttributeValue>{{"metadata.format", "pt"},
                                                               {"metadata.0.1", "offset \u2208 17"},
                                                               {"metadata.empty", ""}}));
  const SafetensorsFile plain(FixturePath("fixture_numpy.safetensors"));
  EXPECT_EQ(plain.index().objects.size(), 7u);
  EXPECT_TRUE(plain.index().objects.at("/").attributes.empty());
}

TEST(SafetensorsFixture, SaysWhereTheBytesAre) {
  const std::string path = FixturePath("fixture_torch.safetensors");
  SafetensorsFile file(path);
  const std::string bytes = golden_samples::ReadBytes(path);
  int compared = 0;
  for (const auto& [name, record] : file.index().objects) {
    if (!record.is_dataset) continue;
    const Tensor tensor = ReadTensor(file, name);
    ASSERT_TRUE(record.data_offset.has_value()) << name;
    EXPECT_EQ(
        bytes.compare(static_cast<size_t>(*record.data_offset), tensor.bytes.size(),
                      reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()),
        0)
        << name;
    ++compared;
  }
  EXPECT_EQ(compared, 19);
}

TEST(SafetensorsFile, TakesWhatTheFormatAllows) {
  const std::string fields = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(SafetensorsRefusal(OneTensor(fields)), "");
  EXPECT_EQ(SafetensorsRefusal(SafetensorsBytes("{}", "")), "");
  EXPECT_EQ(
      SafetensorsRefusal(SafetensorsBytes("{\"a\":{" + fields + "}}   \n", std::string(8, '\1'))),
      "");
  EXPECT_EQ(SafetensorsRefusal(SafetensorsBytes(R"({"__metadata__":{}})", "")), "");
  EXPECT_EQ(SafetensorsRefusal(SafetensorsBytes(R"({"__metadata__":null})", "")), "");
  // Header and data in different orders, an empty tensor between two others.
  EXPECT_EQ(SafetensorsRefusal(
                SafetensorsBytes(R"({"b":{"data_offsets":[4,6],"shape":[],"dtype":"F16"},)"
                                 R"("z":{"dtype":"F64","shape":[7,0],"data_offsets":[4,4]},)"
                                 R"("a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}})",
                                 "123456")),
            "");
}

TEST(SafetensorsFile, RefusesWhatTheFormatDoesNotAllow) {
  struct Refused {
    std::string bytes;
    const char* reason;
  };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const auto two = [](const char* a, const char* b) {
    return SafetensorsBytes(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                        R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                                        a, b),
                            std::string(8, '\1'));
  };
  const auto length = [](uint64_t n, const std::string& rest) {
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(n >> (8 * i) & 0xff);
    return bytes + rest;
  };
  for (const Refused& refused : std::vector<Refused>{
           // Lengths.
           {"", "its 0 bytes are too few"},
           {"1234567", "its 7 bytes are too few"},
           {length(0, ""), "does not start with '{'"},
           {length(100'000'001, "{"), "announce a header of 100000001 bytes, more than the 10"},
           {length(~uint64_t{0}, "{}"), "announce a header of 18446744073709551615 bytes"},
           {length(uint64_t{1} << 63, "{}"), "announce a header of 9223372036854775808 bytes"},
           {length(3, "{}"), "announce a header of 3 bytes and 2 follow"},
           // JSON.
           {SafetensorsBytes("[]", ""), "does not start with '{'"},
           {SafetensorsBytes(" {}", ""), "does not start with '{'"},
           {SafetensorsBytes("\xef\xbb\xbf{}", ""), "does not start with '{'"},
           {SafetensorsBytes("{} {}", ""), "no JSON: byte 11 of the file"},
           {SafetensorsBytes("{", ""), "its header is no JSON"},
           {SafetensorsBytes("{}}", ""), "its header is no JSON"},
           {SafetensorsBytes("{\"a\":}", ""), "no JSON: byte 13 of the file"},
           {SafetensorsBytes(std::string("{}\0garbage", 10), ""), "byte 10 of the file is 0"},
           {SafetensorsBytes("{\"\xff\":{}}", ""), "its header is no JSON"},
           {SafetensorsBytes("{//\n}", ""), "its header is no JSON"},
           // Places of values.
           {SafetensorsBytes(R"({"a":1})", ""), "tensor 'a' is a number, not an object"},
           {SafetensorsBytes(R"({"a":[]})", ""), "tensor 'a' is an array, not an object"},
           {SafetensorsBytes(R"({"a":null})", ""), "tensor 'a' is null, not an object"},
           {SafetensorsBytes(R"({"":{}})", ""), "a tensor without a name"},
           {SafetensorsBytes(R"({"__metadata__":{"a":null}})", ""), "__metadata__ holds null"},
           {SafetensorsBytes(R"({"__metadata__":{"a":1}})", ""), "__metadata__ holds a number"},
           {SafetensorsBytes(R"({"__metadata__":{"a":{}}})", ""), "__metadata__ holds an object"},
           {SafetensorsBytes(R"({"__metadata__":{"a":["x"]}})", ""), "holds an array"},
           {OneTensor(R"("dtype":{},"shape":[2],"data_offsets":[0,8])"), "an object in its dtype"},
           {OneTensor(R"("dtype":1,"shape":[2],"data_offsets":[0,8])"), "a number in its dtype"},
           {OneTensor(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"),
            "an array in its dtype"},
           {OneTensor(R"("dtype":"F32","shape":"2","data_offsets":[0,8])"), "a text in its shape"},
           {OneTensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"),
            "an array in its shape"},
           {OneTensor(R"("dtype":"F32","shape":[{}],"data_offsets":[0,8])"),
            "an object in its shape"},
           {OneTensor(R"("dtype":"F32","shape":[true],"data_offsets":[0,8])"),
            "a truth value in its shape"},
           {OneTensor(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"),
            "a text in its shape"},
           {OneTensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
            "the negative number -2 in its shape"},
           {OneTensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
            "the number 2.0, no integer of 64 bits, in its shape"},
           {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551624])"),
            "the number 18446744073709551624, no integer"},
           // Fields.
           {OneTensor(R"("shape":[2],"data_offsets":[0,8])"), "tensor 'a' has no dtype"},
           {OneTensor(R"("dtype":"F32","data_offsets":[0,8])"), "tensor 'a' has no shape"},
           {OneTensor(R"("dtype":"F32","shape":[2])"), "tensor 'a' has no data_offsets"},
           {OneTensor(good + R"(,"scale":2)"), "a field 'scale', which the format does not have"},
           {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "has 1 data_offsets"},
           {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4,8])"),
            "more than 2 data_offsets"},
           {OneTensor("\"dtype\":\"F32\",\"shape\":[" + std::string(25, '1') + "],\"data"),
            "no integer of 64 bits"},
           // Twice.
           {SafetensorsBytes("{\"a\":{" + good + "},\"a\":{" + good + "}}", std::string(8, '\1')),
            "its header names 'a' twice"},
           {SafetensorsBytes("{\"a\":{" + good + "},\"\\u0061\":{" + good + "}}",
                             std::string(8, '\1')),
            "its header names 'a' twice"},
           {SafetensorsBytes(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice"},
           {SafetensorsBytes(R"({"__metadata__":null,"__metadata__":{}})", ""), "twice"},
           {SafetensorsBytes(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "the key 'k' twice"},
           {OneTensor(good + R"(,"dtype":"F32")"), "has two fields 'dtype'"},
           // Sizes.
           {OneTensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
            "3 of F32 are 12 bytes, its data_offsets span 8"},
           {OneTensor(R"("dtype":"F64","shape":[],"data_offsets":[0,4])"),
            "a scalar of F64 are 8 bytes, its data_offsets span 4"},
           {OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
            "before its start at 8"},
           {OneTensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
            "4294967296x4294967296 elements of F32 are no number of bytes"},
           // 2^61 * 2 * 32 bits wrap to 0, an extent of 0 hides nothing.
           {OneTensor(R"("dtype":"F32","shape":[2305843009213693952,2],"data_offsets":[0,0])"),
            "no number of bytes"},
           {OneTensor(R"("dtype":"F32","shape":[2305843009213693952,8,0],"data_offsets":[0,0])"),
            "no number of bytes"},
           {OneTensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,8])"), "no number of bytes"},
           {OneTensor(R"("dtype":"C64","shape":[2],"data_offsets":[0,8])"), "C64 are 16 bytes"},
           // Coverage.
           {two("[0,4]", "[0,4]"), "tensors 'a' and 'b' overlap in the bytes from 0"},
           {two("[0,4]", "[2,6]"), "tensors 'a' and 'b' overlap in the bytes from 2"},
           {two("[0,4]", "[5,9]"), "bytes 4 to 5 of the data, before tensor 'b', belong to no"},
           {two("[1,5]", "[5,9]"), "bytes 0 to 1 of the data, before tensor 'a'"},
           {SafetensorsBytes("{\"a\":{" + good + "}}", std::string(7, '\1')),
            "its tensors need 8 bytes of data and 7 are there"},
           {SafetensorsBytes("{\"a\":{" + good + "}}", std::string(9, '\1')),
            "1 bytes follow its last tensor"},
           {SafetensorsBytes("{}", "x"), "1 bytes follow its last tensor"},
           {OneTensor(R"("dtype":"Q9","shape":[2],"data_offsets":[0,9])"), "need 9 bytes"}}) {
    const std::string message = SafetensorsRefusal(refused.bytes);
    EXPECT_NE(message.find(refused.reason), std::string::npos)
        << "'" << message << "' does not say '" << refused.reason << "'";
  }
}

TEST(SafetensorsFile, EndsDeepNestingAtOnce) {
  const std::string deep(50'000'000,
                         '[');  // NOLINT(bugprone-string-constructor): meant to be large
  EXPECT_NE(SafetensorsRefusal(SafetensorsBytes("{\"a\":" + deep, "")).find("is an array"),
            std::string::npos);
  const std::string objects = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "{\"a\":";
    return text;
  }();
  EXPECT_NE(SafetensorsRefusal(SafetensorsBytes(objects, "")).find("a field 'a'"),
            std::string::npos);
}

TEST(SafetensorsFile, HoldsToItsLimits) {
  const std::string bytes = golden_samples::ReadBytes(FixturePath("fixture_numpy.safetensors"));
  ReadLimits few_objects, small_file, small_tensors;
  few_objects.max_objects = 5;
  small_file.max_total_bytes = 71;
  small_tensors.max_tensor_bytes = 11;
  EXPECT_NE(SafetensorsRefusal(bytes, few_objects).find("more than 5 tensors"), std::string::npos);
  EXPECT_NE(SafetensorsRefusal(bytes, small_file).find("data of 72 bytes exceed"),
            std::string::npos);
  const SafetensorsFile file(FixturePath("fixture_numpy.safetensors"), small_tensors);
  EXPECT_EQ(file.index().objects.at("/layers.0.keys").problem,
            "1x2x3 of float16 exceed the limit of 11 bytes");
}

// Extents whose products overflow must not reach Shape: its functions multiply unchecked.
TEST(SafetensorsFile, ListsHugeExtentsBesideAnExtentOf0AsUnreadable) {
  const TemporaryFile file(
      OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"U8","shape":[1099511627776,1024,0],"data_offsets":[8,8])"));
  const SafetensorsFile opened(file.path());
  EXPECT_EQ(opened.index().objects.at("/b").problem,
            "1099511627776x1024x0 of uint8 exceed the limit of 1099511627776 bytes");
}

TEST(SafetensorsFile, SaysThatTheFileChangedAfterItWasOpened) {
  const std::string bytes = OneTensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
  const TemporaryFile file(bytes);
  SafetensorsFile opened(file.path());
  std::filesystem::resize_file(file.path(), bytes.size() - 3);
  try {
    ReadTensor(opened, "/a");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_NE(error.message().find("changed while it was read"), std::string::npos);
  }
}

TEST(InputFile, RefusesWhatIsNoRegularFileWithoutWaiting) {
  const std::string pipe = TemporaryPath("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, reason] :
       std::map<std::string, std::string>{{pipe, "it is a pipe"},
                                          {"/dev/null", "it is a device"},
                                          {"/tmp", "it is a folder"},
                                          {"/nonexistent/file", "No such file"}}) {
    try {
      SafetensorsFile file(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      EXPECT_NE(error.message().find(reason), std::string::npos) << error.message();
    }
  }
  std::filesystem::remove(pipe);
}

TEST(QuotedName, IsPrintableAndShort) {
  EXPECT_EQ(QuotedName("a\x1b[31m\n\xe2"), "'a\\x1b[31m\\x0a\\xe2'");
  EXPECT_LT(QuotedName(std::string(100'000, '\n')).size(), size_t{500});
}

}  // namespace
}  // namespace kvcheck
