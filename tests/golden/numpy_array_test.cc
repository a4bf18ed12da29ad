// Files of numpy, as numpy wrote them and as nobody should: what is read is what numpy holds, what
// is not read is named, and nothing in a file runs, hangs or asks for memory that it does not fill.

#include "golden/numpy_array.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "golden/raw_file.h"
#include "golden/tensor_file.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using golden_samples::ReadBytes;
using golden_samples::TemporaryPath;
using golden_samples::WriteBytes;

std::vector<double> ValuesOf(TensorSource& file, const std::string& name) {
  const Tensor tensor = ReadTensor(file, name);
  std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, values);
  return values;
}

std::vector<double> Counted(int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(i);
  return values;
}

std::string Npy(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = std::string(kNumpySignature) + version + '\0';
  const size_t width = version == 1 ? 2 : 4;
  for (size_t i = 0; i < width; ++i) bytes += static_cast<char>(header.size() >> 8 * i & 0xff);
  return bytes + header + data;
}

std::string Number(uint64_t number, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> 8 * i & 0xff);
  return bytes;
}

// A ZIP archive with what a member's records say about it free to be wrong.
struct Member {
  std::string name;
  std::string data;
  uint64_t method = 0;
  uint64_t flags = 0;
  std::string stored{};  // data where it is empty
  std::string local_name{};
  uint32_t crc_is_off_by = 0;
  uint64_t bytes = 0;  // data's where it is 0
};

std::string Zip(const std::vector<Member>& members) {
  std::string file;
  std::string directory;
  for (const Member& m : members) {
    const std::string& stored = m.stored.empty() ? m.data : m.stored;
    const std::string& local = m.local_name.empty() ? m.name : m.local_name;
    const uint64_t bytes = m.bytes == 0 ? m.data.size() : m.bytes;
    const uint32_t crc =
        m.crc_is_off_by + static_cast<uint32_t>(crc32_z(
                              0, reinterpret_cast<const Bytef*>(m.data.data()), m.data.size()));
    const auto sizes = Number(crc, 4) + Number(stored.size(), 4) + Number(bytes, 4);
    const std::string head = Number(m.flags, 2) + Number(m.method, 2) + Number(0, 4) + sizes;
    directory += "PK\1\2" + Number(20, 2) + Number(20, 2) + head + Number(m.name.size(), 2) +
                 Number(0, 2) + Number(0, 2) + Number(0, 4) + Number(0, 4) +
                 Number(file.size(), 4) + m.name;
    file +=
        "PK\3\4" + Number(20, 2) + head + Number(local.size(), 2) + Number(0, 2) + local + stored;
  }
  const std::string end = "PK\5\6" + Number(0, 4) + Number(members.size(), 2) +
                          Number(members.size(), 2) + Number(directory.size(), 4) +
                          Number(file.size(), 4) + Number(0, 2);
  return file + directory + end;
}

std::string Deflated(const std::string& data) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, data.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Floats(const std::vector<float>& values) {
  std::string bytes(4 * values.size(), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string TwoFloats() {
  return Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", Floats({1, 2}));
}

// Opens and reads all of it in this process.
std::string ArchiveRefusal(const std::string& bytes) {
  const std::string path = TemporaryPath("refused");
  WriteBytes(path, bytes);
  std::string message;
  try {
    const auto file = OpenTensorFile(
        path, [](const std::string& place) { return std::make_unique<NumpyArchive>(place); });
    for (const auto& [name, record] : file->index().objects) {
      if (record.is_dataset) ReadTensor(*file, name);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile) << error.message();
    EXPECT_TRUE(error.context().starts_with(path)) << error.context();
    message = error.message();
  }
  std::filesystem::remove(path);
  return message;
}

TEST(NumpyArchive, ReadsWhatNumpyWrote) {
  NumpyArchive file(golden_samples::FixturePath("fixture_numpy.npz"));
  const std::vector<double> powers = {1, 2, 4, 8, 16, 32};
  for (const char* code : {"f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}) {
    for (const char* order : {"/little_", "/big_"}) {
      const std::string name = std::string(order) + code;
      EXPECT_EQ(ValuesOf(file, name), powers) << name;
      EXPECT_EQ(file.index().objects.at(name).shape.axes.size(), 2u);
    }
  }
  EXPECT_EQ(file.index().objects.at("/little_f2").dtype, DType::kFloat16);
  EXPECT_EQ(file.index().objects.at("/b1").dtype, DType::kBool);
  EXPECT_EQ(ValuesOf(file, "/b1"), (std::vector<double>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(ValuesOf(file, "/fortran"), Counted(24));
  EXPECT_EQ(ValuesOf(file, "/fortran_big"), Counted(24));
  EXPECT_EQ(ValuesOf(file, "/scalar"), std::vector<double>{1.5});
  EXPECT_EQ(ValuesOf(file, "/vector"), Counted(3));
  EXPECT_TRUE(ValuesOf(file, "/empty").empty());
}

TEST(NumpyArchive, ReadsAPartOfATensorInFortranOrder) {
  NumpyArchive file(golden_samples::FixturePath("fixture_numpy.npz"));
  std::vector<int16_t> part(5);
  file.ReadElements("/fortran_big", 7, 5, reinterpret_cast<std::byte*>(part.data()));
  EXPECT_EQ(part, (std::vector<int16_t>{7, 8, 9, 10, 11}));
}

TEST(NumpyArchive, ListsWhatItDoesNotReadAndRunsNothing) {
  const NumpyArchive file(golden_samples::FixturePath("fixture_numpy.npz"));
  for (const auto& [name, reason] : std::vector<std::pair<std::string, std::string>>{
           {"/objects", "Python objects, which numpy pickles: reading it would run code"},
           {"/records", "an array of records"},
           {"/complex", "its type '<c8' is not one of kvcheck's"},
           {"/texts", "its type '<U2' is not one of kvcheck's"},
           {"/rank9", "rank 9, at most 8 is read"},
           {"/bf16", "as in FILE:bf16, or save the codes (array.view(numpy.uint16))"},
           {"/f8e4m3fn", "as in FILE:f8e4m3fn, or save the codes"},
           {"/f8e5m2", "numpy has no name for its type"}}) {
    const ObjectRecord& record = file.index().objects.at(name);
    EXPECT_FALSE(record.is_dataset) << name;
    EXPECT_NE(record.problem.find(reason), std::string::npos) << name << ": " << record.problem;
  }
}

TEST(NumpyArchive, TakesTheTypeThatIsSaidForWhatNumpyHasNoNameFor) {
  const std::vector<double> powers = {1, 2, 4, 8, 16, 32};
  NumpyArchive halves(golden_samples::FixturePath("fixture_numpy.npz"), DType::kBFloat16);
  EXPECT_EQ(ValuesOf(halves, "/bf16"), powers);
  EXPECT_FALSE(halves.index().objects.at("/f8e5m2").problem.empty());
  NumpyArchive bytes(golden_samples::FixturePath("fixture_numpy.npz"), DType::kFloat8E5M2);
  EXPECT_EQ(ValuesOf(bytes, "/f8e5m2"), powers);
  NumpyArchive other(golden_samples::FixturePath("fixture_numpy.npz"), DType::kFloat8E4M3FN);
  EXPECT_EQ(ValuesOf(other, "/f8e4m3fn"), powers);
}

TEST(NumpyArchive, ReadsCompressedMembersInAnyOrder) {
  NumpyArchive file(golden_samples::FixturePath("fixture_compressed.npz"));
  std::vector<double> many;
  for (int i = 0; i < 300'000; ++i) many.push_back(i % 251);
  EXPECT_EQ(ValuesOf(file, "/many"), many);
  std::vector<int32_t> part(2);
  file.ReadElements("/many", 299'998, 2, reinterpret_cast<std::byte*>(part.data()));
  EXPECT_EQ(part, (std::vector<int32_t>{299'998 % 251, 299'999 % 251}));
  EXPECT_EQ(ValuesOf(file, "/turned"), many);
  file.ReadElements("/many", 0, 2, reinterpret_cast<std::byte*>(part.data()));
  EXPECT_EQ(part, (std::vector<int32_t>{0, 1}));
}

TEST(NumpyFile, HasOneTensorOfTheFilesName) {
  NumpyFile file(golden_samples::FixturePath("fixture_fortran.npy"));
  EXPECT_EQ(ValuesOf(file, "/fixture_fortran"), Counted(24));
  EXPECT_TRUE(file.index().objects.at("/").attributes.contains(kNamedByFile));
  EXPECT_FALSE(file.index().objects.at("/fixture_fortran").data_offset);
  const std::string path = TemporaryPath("q.npy");
  WriteBytes(path, TwoFloats());
  NumpyFile plain(path);
  EXPECT_EQ(ValuesOf(plain, "/" + TensorNameOfFile(path)), (std::vector<double>{1, 2}));
  // Bytes that lie as they are read can be mapped.
  EXPECT_EQ(plain.index().objects.at("/" + TensorNameOfFile(path)).data_offset,
            static_cast<int64_t>(TwoFloats().size()) - 8);
  std::filesystem::remove(path);
}

TEST(NumpyFile, TakesWhatTheFormatAllows) {
  for (const char version : {'\1', '\2', '\3'}) {
    EXPECT_EQ(ArchiveRefusal(Npy("{'shape': (2,), 'fortran_order': True, 'descr': \"<f4\"}",
                                 Floats({1, 2}), version)),
              "");
  }
  EXPECT_EQ(
      ArchiveRefusal(Npy("{ 'descr' :'|u1','fortran_order':False,'shape':( 1 , 2 )}   \n", "ab")),
      "");
  EXPECT_EQ(
      ArchiveRefusal(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", Floats({1}))),
      "");
}

TEST(NumpyFile, RefusesWhatTheFormatDoesNotAllow) {
  const std::string two = Floats({1, 2});
  for (const auto& [header, reason] : std::vector<std::pair<std::string, std::string>>{
           {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "would run code"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "it is cut off"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "4 bytes follow its array"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "no tuple"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "no tuple of numbers"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2 2)}", "no tuple of numbers"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "beyond any memory"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}",
            "beyond any memory"},
           {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "neither True nor False"},
           {"{'descr': '<f4', 'descr': '<i4', 'fortran_order': False, 'shape': (2,)}",
            "names 'descr' twice"},
           {"{'descr': '<f4', 'fortran_order': False}", "has no shape"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + 1", "goes on behind"},
           {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "a field 'x'"},
           {"{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (2,)}",
            "names no type"},
           {"{'descr': [('a', '<f4'", "without an end"},
           {"{'descr': '<f4", "a text without an end"},
           {"", "has no '{'"},
           {std::string(100'000, '['), "has no '{'"}}) {
    EXPECT_NE(ArchiveRefusal(Npy(header, two, header.size() > 60'000 ? '\2' : '\1')).find(reason),
              std::string::npos)
        << header.substr(0, 100) << ": "
        << ArchiveRefusal(Npy(header, two, header.size() > 60'000 ? '\2' : '\1'));
  }
  const std::string file = TwoFloats();
  for (size_t size = 9; size < file.size(); ++size) {
    EXPECT_NE(ArchiveRefusal(file.substr(0, size)), "") << size;
  }
  EXPECT_NE(ArchiveRefusal(Npy("{}", "", '\4')).find("version 4"), std::string::npos);
}

TEST(NumpyArchive, RefusesDamagedArchives) {
  const Member good = {"a.npy", TwoFloats()};
  EXPECT_EQ(ArchiveRefusal(Zip({good})), "");
  Member other = good;
  other.name = "b.npy";
  Member deflated = good;
  deflated.method = 8;
  deflated.stored = Deflated(deflated.data);
  EXPECT_EQ(ArchiveRefusal(Zip({deflated, other})), "");
  const auto refusal = [&](auto change, const Member& from) {
    Member member = from;
    change(&member);
    return ArchiveRefusal(Zip({other, member}));
  };
  const auto expect = [](const std::string& message, const std::string& reason) {
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  expect(refusal([](Member* m) { m->crc_is_off_by = 1; }, good), "has the CRC");
  expect(refusal([](Member* m) { m->crc_is_off_by = 1; }, deflated), "has the CRC");
  expect(refusal([](Member* m) { m->flags = 1; }, good), "'a.npy' is encrypted");
  expect(refusal([](Member* m) { m->method = 12; }, good), "compressed by method 12");
  expect(refusal([](Member* m) { m->name = "b.npy"; }, good), "it has 'b.npy' twice");
  expect(refusal([](Member* m) { m->name = "b"; }, good), "two members for the array 'b'");
  expect(refusal([](Member* m) { m->local_name = "c.npy"; }, good), "not what its directory says");
  expect(refusal([](Member* m) { m->bytes = 1 << 30; }, good), "cannot be");
  expect(refusal([](Member* m) { m->bytes = 0xfffffffe; }, deflated), "cannot be");
  expect(refusal([](Member* m) { m->bytes = m->data.size() + 1; }, deflated), "bytes follow");
  expect(refusal([](Member* m) { m->stored.pop_back(); }, deflated), "cannot be inflated");
  expect(refusal([](Member* m) { m->stored += 'x'; }, deflated), "cannot be inflated");
  expect(refusal([](Member* m) { m->stored[0] = '\x07'; }, deflated), "cannot be inflated");
  // More than is said, by a header that says it too.
  expect(refusal(
             [](Member* m) {
               m->data = TwoFloats();
               m->stored = Deflated(m->data + "tail");
             },
             deflated),
         "inflates to more than");
  expect(ArchiveRefusal(Zip({})), "a ZIP archive without arrays");
  expect(ArchiveRefusal(Zip({{"archive/data.pkl", "\x80\2."}, {"archive/data/0", "x"}})),
         "kvcheck convert");
  const std::string whole = Zip({good, deflated.name == "a.npy" ? other : deflated});
  for (size_t size = 4; size < whole.size(); ++size) {
    EXPECT_NE(ArchiveRefusal(whole.substr(0, size)), "") << size;
  }
  expect(ArchiveRefusal("PK\3\4" + whole), "or not only an archive");
}

// Every byte of a small archive, each bit: it is refused, or what is read is what was written, but
// for bits that say nothing about an array's values.
TEST(NumpyArchive, SurvivesEveryFlippedBit) {
  Member deflated = {"b.npy", TwoFloats(), 8};
  deflated.stored = Deflated(deflated.data);
  const std::string whole = Zip({{"a.npy", TwoFloats()}, deflated});
  const std::string path = TemporaryPath("flipped.npz");
  int refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    WriteBytes(path, damaged);
    try {
      NumpyArchive file(path);
      for (const auto& [name, record] : file.index().objects) {
        if (!record.is_dataset) continue;
        EXPECT_EQ(ValuesOf(file, name), (std::vector<double>{1, 2})) << bit;
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  std::filesystem::remove(path);
  EXPECT_GT(refused, static_cast<int>(4 * whole.size()));
}

TEST(TensorPlace, SaysTypeAndShapeOfRawElements) {
  const std::string path = TemporaryPath("raw");
  WriteBytes(path, Floats({1, 2, 3, 4, 5, 6}));
  const std::string name = "/" + TensorNameOfFile(path);
  for (const char* behind : {":f32:2x3", ":float32:2,3"}) {
    const auto file = OpenTensorFile(path + behind, nullptr);
    EXPECT_EQ(file->path(), path);
    EXPECT_EQ(ValuesOf(*file, name), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    EXPECT_TRUE(file->index().objects.at(name).shape.SameExtents(Shape::Unnamed({2, 3})));
    EXPECT_EQ(file->OriginOf(name), (TensorOrigin{path, ""}));
  }
  const auto refusal = [&](const std::string& behind) -> std::string {
    try {
      OpenTensorFile(path + behind, nullptr);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_NE(refusal("").find(":bf16:2x8x128x64"), std::string::npos) << refusal("");
  EXPECT_NE(refusal(":f32:2x4").find("it has 24 bytes"), std::string::npos);
  EXPECT_NE(refusal(":f32:2x4").find("6 elements of that type"), std::string::npos);
  EXPECT_NE(refusal(":f33:2x3").find("'f33' is not a type (did you mean"), std::string::npos);
  EXPECT_NE(refusal(":f32:2xx3").find("is not a shape"), std::string::npos);
  EXPECT_NE(refusal(":f32:999999999999999999x999999999999999999").find("more than is read"),
            std::string::npos);
  // A file whose name looks so is that file.
  const std::string odd = path + ":f32:2x3";
  WriteBytes(odd, TwoFloats());
  EXPECT_EQ(ParseTensorPlace(odd).path, odd);
  EXPECT_EQ(ParseTensorPlace("/nonexistent:f32:1").path, "/nonexistent:f32:1");
  std::filesystem::remove(odd);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kvcheck
