// Files without the schema: what kvcheck can read it lists with type, shape and axes, and reads
// with the right values; what it cannot, it lists with a reason.

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "golden/hdf5_file.h"
#include "golden/reader.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

std::string StrangerPath() { return golden_samples::FixturePath("fixture_stranger.h5"); }

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
  for (const Expected& expected :
       std::initializer_list<Expected>{{"/little", "float32", "2x3"},
                                       {"/big", "float32", "2x3"},
                                       {"/layer/0/half", "float16", "2x3"},
                                       {"/layer/0/double_big", "float64", "2x3"},
                                       {"/int_big", "int32", "2x3"},
                                       {"/int16", "int16", "2x3"},
                                       {"/uint64", "uint64", "2x3"},
                                       {"/flags", "bool", "2x3"},
                                       {"/bits", "bfloat16", "2x3"},
                                       {"/labelled", "float32", "L=2 Dk=3"},
                                       {"/labelled_oddly", "float32", "2x3"},
                                       {"/packed", "float32", "2x3"},
                                       {"/z_again", "float32", "2x3"},
                                       {"/scalar", "float32", "scalar"},
                                       {"/empty", "float32", "2x0"},
                                       {"/compact", "float32", "2x3"},
                                       {"/axes_too_many", "float32", "row=2 column=3"}}) {
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
           {"/long_double", "its type is not one of kvcheck's: an unusual float of 128 bits"},
           {"/text", "its type is not one of kvcheck's: texts"},
           {"/texts", "its type is not one of kvcheck's: texts"},
           {"/vlen", "its type is not one of kvcheck's: sequences of variable length"},
           {"/enum", "its type is not one of kvcheck's: an enumeration"},
           {"/array_type", "its type is not one of kvcheck's: arrays"},
           {"/complex", "its type is not one of kvcheck's: a compound"},
           {"/pair", "its type is not one of kvcheck's: a compound"},
           {"/opaque", "its type is not one of kvcheck's: opaque bytes"},
           {"/reference", "its type is not one of kvcheck's: references"},
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
  EXPECT_EQ(listing.size(), 43u);
}

TEST(StrangersFile, TakesAnyShortPrintableLabelForAnAxis) {
  const auto listing = Listing();
  using Names = std::vector<std::string>;
  for (const auto& [path, expected] : std::map<std::string, Names>{
           {"/labelled", {"L", "Dk"}},
           {"/labelled_oddly", {"time", ""}},
           {"/axes_of_a_stranger", {"time step", ""}},
           {"/axes_twice", {"", ""}},  // which of the two would it be?
           {"/axes_odd", {"", ""}},    // an escape sequence; 33 bytes
           {"/axes_of_32", {"", Names::value_type(32, 'y')}},
           {"/axes_too_many", {"row", "column"}}}) {  // labels, where `axes` does not fit
    Names names;
    for (const Axis& axis : listing.at(path).shape.axes) names.push_back(axis.name);
    EXPECT_EQ(names, expected) << path;
  }
}

// The offset is there exactly when the bytes of the file at it are the tensor.
TEST(StrangersFile, SaysWhereContiguousLittleEndianDataLie) {
  Hdf5File file(StrangerPath());
  const std::string bytes = golden_samples::ReadBytes(StrangerPath());
  std::set<std::string> without;
  for (const auto& [path, record] : file.index().objects) {
    if (!record.is_dataset) continue;
    if (!record.data_offset) {
      without.insert(path);
      continue;
    }
    const Tensor tensor = ReadTensor(file, path);
    EXPECT_EQ(
        bytes.compare(static_cast<size_t>(*record.data_offset), tensor.bytes.size(),
                      reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()),
        0)
        << path;
  }
  EXPECT_EQ(without, (std::set<std::string>{"/big", "/compact", "/empty", "/int_big",
                                            "/layer/0/double_big", "/packed"}));
}

TEST(StrangersFile, CountsOffsetsFromTheFirstByteOfAFileWithAUserBlock) {
  const std::string path = golden_samples::TemporaryPath("userblock.h5");
  const float values[] = {1.5f, -2.0f, 3.0f};
  const hsize_t extent = 3;
  const hid_t creation = H5Pcreate(H5P_FILE_CREATE);
  H5Pset_userblock(creation, 1024);
  const hid_t written = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t dataset =
      H5Dcreate2(written, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(dataset, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Fclose(written);
  H5Pclose(creation);
  const Hdf5File file(path);
  const std::string bytes = golden_samples::ReadBytes(path);
  const int64_t offset = file.index().objects.at("/x").data_offset.value_or(0);
  EXPECT_GT(offset, 1024);
  EXPECT_EQ(std::memcmp(bytes.data() + offset, values, sizeof values), 0);
  std::filesystem::remove(path);
}

// Booleans of h5py by their names, but over 7 bits of a byte: HDF5 would convert them when it
// reads.
TEST(StrangersFile, TakesNoBooleansOverUnusualIntegers) {
  const std::string path = golden_samples::TemporaryPath("booleans.h5");
  const hsize_t extent = 3;
  const hid_t written = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t base = H5Tcopy(H5T_STD_I8LE);
  H5Tset_precision(base, 7);
  const hid_t type = H5Tenum_create(base);
  const signed char values[] = {0, 1};
  H5Tenum_insert(type, "FALSE", &values[0]);
  H5Tenum_insert(type, "TRUE", &values[1]);
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t dataset =
      H5Dcreate2(written, "x", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const signed char elements[] = {0, 1, 0};
  H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Tclose(type);
  H5Tclose(base);
  H5Fclose(written);
  EXPECT_EQ(Hdf5File(path).index().objects.at("/x").problem,
            "its type is not one of kvcheck's: an enumeration");
  std::filesystem::remove(path);
}

TEST(StrangersFile, ReadsValuesOfEitherByteOrder) {
  Hdf5File file(StrangerPath());
  for (const char* path : {"/little", "/big", "/labelled", "/packed", "/compact", "/z_again"}) {
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

// Who takes the objects as they are met has no index, and reads the same.
TEST(StrangersFile, ReadsAlikeForAListener) {
  for (const std::string& path :
       {StrangerPath(), golden_samples::FixturePath("fixture_python.h5")}) {
    Hdf5File listed(path);
    FileIndex heard;
    Hdf5File file(path, {}, [&](const std::string& object, const ObjectRecord& record) {
      EXPECT_TRUE(heard.objects.emplace(object, record).second) << object;
    });
    EXPECT_TRUE(file.index().objects.empty());
    EXPECT_EQ(file.index().is_golden, listed.index().is_golden);
    EXPECT_TRUE(heard.objects == listed.index().objects);
    int64_t read = 0;
    for (const auto& [object, record] : heard.objects) {
      if (!record.is_dataset) continue;
      EXPECT_TRUE(file.Describe(object) == record) << object;
      const Tensor tensor = ReadTensor(listed, object);
      std::vector<std::byte> bytes(tensor.bytes.size());
      file.ReadElements(object, 0, tensor.ElementCount(), bytes.data());
      EXPECT_TRUE(bytes == tensor.bytes) << object;
      ++read;
    }
    EXPECT_GT(read, 15);
  }
}

TEST(StrangersFile, AskingForWhatIsNotThereOrNotReadableIsAnError) {
  Hdf5File file(StrangerPath());
  for (const auto& [path, code] :
       std::map<std::string, ErrorCode>{{"/absent", ErrorCode::kMissingData},
                                        {"/layer", ErrorCode::kMissingData},
                                        {"/long_double", ErrorCode::kUnsupported}}) {
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
