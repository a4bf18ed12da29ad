// Files without the schema: what kvcheck can read it lists with type, shape and axes, and reads with
// the right values; what it cannot, it lists with a reason.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "golden/hdf5_file.h"
#include "golden/reader.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

std::string StrangerPath() {
  return std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_stranger.h5";
}

std::map<std::string, ListedTensor> Listing() {
  std::map<std::string, ListedTensor> listing;
  for (ListedTensor& tensor : ListTensors(Hdf5File(StrangerPath()).index())) {
    listing[tensor.path] = std::move(tensor);
  }
  return listing;
}

TEST(StrangersFile, ListsTypesShapesAndAxes) {
  const auto listing = Listing();
  struct Expected {
    const char *path, *dtype, *shape;
  };
  for (const Expected& expected : std::initializer_list<Expected>{
           {"/little", "float32", "2x3"},
           {"/big", "float32", "2x3"},
           {"/layer/0/half", "float16", "2x3"},
           {"/layer/0/double_big", "float64", "2x3"},
           {"/int_big", "int32", "2x3"},
           {"/flags", "bool", "2x3"},
           {"/bits", "bfloat16", "2x3"},
           {"/labelled", "float32", "L=2 Dk=3"},
           {"/labelled_oddly", "float32", "2x3"},
           {"/packed", "float32", "2x3"},
           {"/z_again", "float32", "2x3"},
           {"/scalar", "float32", "scalar"}}) {
    ASSERT_TRUE(listing.contains(expected.path)) << expected.path;
    const ListedTensor& tensor = listing.at(expected.path);
    EXPECT_EQ(tensor.problem, "") << expected.path;
    EXPECT_EQ(Name(tensor.dtype), expected.dtype) << expected.path;
    EXPECT_EQ(ToString(tensor.shape), expected.shape) << expected.path;
  }
}

TEST(StrangersFile, ListsWhatItCannotReadWithAReason) {
  const auto listing = Listing();
  for (const auto& [path, reason] : std::map<std::string, std::string>{
           {"/int16", "its type is not one of kvcheck's"},
           {"/text", "its type is not one of kvcheck's"},
           {"/pair", "its type is not one of kvcheck's"},
           {"/wrong_type", "the stored type cannot hold kv_dtype bfloat16"},
           {"/no_extents", "it has no extents"},
           {"/lzf", "filter 32000: only Fletcher32, deflate and shuffle are read"},
           {"/never_written", "0 bytes are stored where 24 are needed"},
           {"/chunks_missing", "1 of 4 chunks are there"},
           {"/elsewhere", "its data lie in another file"},
           {"/virtual", "its storage is virtual or unknown"},
           {"/rank9", "rank 9, at most 8 is read"},
           {"/soft", "a soft, external or unknown link; links are not followed"},
           {"/external", "a soft, external or unknown link; links are not followed"},
           {"/cycle/root", "a second name of another object, or a cycle"},
           {"/named_type", "neither a group nor a dataset"}}) {
    ASSERT_TRUE(listing.contains(path)) << path;
    EXPECT_EQ(listing.at(path).problem, reason) << path;
  }
  EXPECT_EQ(listing.size(), 27u);
}

TEST(StrangersFile, ReadsValuesOfEitherByteOrder) {
  Hdf5File file(StrangerPath());
  for (const char* path : {"/little", "/big", "/labelled", "/packed", "/z_again"}) {
    const Tensor tensor = ReadTensor(file, path);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(tensor.As<float>()[i], static_cast<float>(i)) << path;
  }
  const Tensor wide = ReadTensor(file, "/layer/0/double_big");
  const Tensor integers = ReadTensor(file, "/int_big");
  const Tensor half = ReadTensor(file, "/layer/0/half");
  const Tensor bits = ReadTensor(file, "/bits");
  const Tensor flags = ReadTensor(file, "/flags");
  const uint16_t half_bits[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(wide.As<double>()[i], i);
    EXPECT_EQ(integers.As<int32_t>()[i], i);
    EXPECT_EQ(half.As<uint16_t>()[i], half_bits[i]);
    EXPECT_EQ(bits.As<uint16_t>()[i], 0x3f80 + i);
    EXPECT_EQ(flags.As<uint8_t>()[i], i % 2);
  }
}

TEST(StrangersFile, AskingForWhatIsNotThereOrNotReadableIsAnError) {
  Hdf5File file(StrangerPath());
  for (const auto& [path, code] : std::map<std::string, ErrorCode>{
           {"/absent", ErrorCode::kMissingData},
           {"/layer", ErrorCode::kMissingData},
           {"/int16", ErrorCode::kUnsupported}}) {
    try {
      ReadTensor(file, path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << path;
    }
  }
  EXPECT_THROW(GoldenReader::Open(StrangerPath()), Error);
}

}  // namespace
}  // namespace kvcheck
