// Golden files come back as they were written, by either writer; what the schema has no place for
// is refused before anything appears on disk.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>

#include "golden/hdf5_file.h"
#include "golden/reader.h"
#include "golden/writer.h"
#include "reference/spec/error.h"
#include "tests/golden/fixture_path.h"
#include "tests/golden/golden_samples.h"

namespace kvcheck {
namespace {

using golden_samples::Counting;
using golden_samples::FixtureContent;
using golden_samples::SmallContent;
using golden_samples::TemporaryPath;

std::string PythonFixture() { return golden_samples::FixturePath("fixture_python.h5"); }

// Removes a file when the test ends.
class Temporary {
 public:
  explicit Temporary(const std::string& name) : path_(TemporaryPath(name)) {}
  ~Temporary() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

ErrorCode CodeOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kParse;
}

TEST(GoldenFileRoundTrip, GivesBackEveryTypeRankAndText) {
  const Temporary file("round.h5");
  GoldenFile written = FixtureContent();
  written.content_hash = WriteGoldenFile(file.path(), written);
  EXPECT_TRUE(GoldenReader::Open(file.path()).ReadAll() == written);
}

TEST(GoldenFileRoundTrip, CoversEveryDType) {
  const GoldenFile content = FixtureContent();
  for (DType dtype : AllDTypes()) {
    EXPECT_TRUE(content.cases[2].inputs.contains("t_" + std::string(Name(dtype)))) << Name(dtype);
  }
}

TEST(GoldenFileRoundTrip, ReadsWhatThePythonWriterWrote) {
  GoldenFile read = GoldenReader::Open(PythonFixture()).ReadAll();
  read.content_hash.clear();
  EXPECT_TRUE(read == FixtureContent());
}

TEST(GoldenFileRoundTrip, HashEqualsThatOfThePythonWriter) {
  const Temporary file("hash.h5");
  EXPECT_EQ(WriteGoldenFile(file.path(), FixtureContent()),
            GoldenReader::Open(PythonFixture()).outline().content_hash);
}

TEST(GoldenFileRoundTrip, WritesTheSameBytesTwice) {
  const Temporary first("first.h5"), second("second.h5");
  WriteGoldenFile(first.path(), FixtureContent());
  WriteGoldenFile(second.path(), FixtureContent());
  EXPECT_TRUE(golden_samples::ReadBytes(first.path()) == golden_samples::ReadBytes(second.path()));
}

TEST(GoldenReader, ListsCasesWithoutReadingThem) {
  const GoldenReader reader = GoldenReader::Open(PythonFixture(), {}, VerifyHash::kNo);
  EXPECT_EQ(reader.CaseNames(), (std::vector<std::string>{"attention-1.f32", "ranks", "types"}));
  const Tensor& q = reader.Outline("attention-1.f32").inputs.at("q");
  EXPECT_TRUE(q.bytes.empty());
  EXPECT_EQ(ToString(q.shape), "B=1 Hq=2 L=3 Dk=4");
  EXPECT_EQ(CodeOf([&] { reader.Outline("types2"); }), ErrorCode::kSelection);
}

// Every range of rows of tensors of rank 1 to 3, contiguous and chunked, against the whole tensor.
TEST(GoldenReader, GivesAnyRangeOfRows) {
  GoldenReader reader = GoldenReader::Open(PythonFixture());
  for (const char* dataset :
       {"/cases/attention-1.f32/q", "/cases/ranks/rank3", "/cases/ranks/vector",
        "/cases/ranks/scalar", "/cases/attention-1.f32/mask"}) {
    const Tensor whole = ReadTensor(reader.source(), dataset);
    const int64_t rows = whole.shape.RowCount();
    const size_t row_bytes = whole.bytes.size() / static_cast<size_t>(rows);
    for (int64_t first = 0; first <= rows; ++first) {
      for (int64_t count = 0; first + count <= rows; ++count) {
        const Tensor part = ReadRows(reader.source(), dataset, first, count);
        const auto from = whole.bytes.begin() + first * static_cast<int64_t>(row_bytes);
        ASSERT_TRUE(std::equal(part.bytes.begin(), part.bytes.end(), from) &&
                    part.bytes.size() == static_cast<size_t>(count) * row_bytes)
            << dataset << " rows " << first << " + " << count;
      }
    }
  }
  const std::string big = "/cases/attention-1.f32/big";
  const Tensor whole = ReadTensor(reader.source(), big);
  for (int64_t first : {0, 1, 129, 130, 131, 260, 389}) {
    for (int64_t count : {0, 1, 2, 129, 130, 131, 259, 390}) {
      if (first + count > 390) continue;
      const Tensor part = ReadRows(reader.source(), big, first, count);
      EXPECT_TRUE(
          std::equal(part.bytes.begin(), part.bytes.end(), whole.bytes.begin() + first * 70 * 4));
    }
  }
  EXPECT_EQ(CodeOf([&] { ReadRows(reader.source(), big, 389, 2); }), ErrorCode::kMissingData);
}

TEST(GoldenReader, HoldsToItsLimits) {
  ReadLimits few_bytes, few_objects, small_file;
  few_bytes.max_tensor_bytes = 100;
  few_objects.max_objects = 5;
  small_file.max_total_bytes = 10'000;
  for (const ReadLimits& limits : {few_bytes, few_objects, small_file}) {
    EXPECT_EQ(CodeOf([&] { GoldenReader::Open(PythonFixture(), limits); }),
              ErrorCode::kUnreadableFile);
  }
}

TEST(GoldenReader, RefusesWhatIsNotAGoldenFile) {
  const Temporary text("text.h5");
  golden_samples::WriteBytes(text.path(), "not HDF5");
  EXPECT_EQ(CodeOf([&] { GoldenReader::Open(text.path()); }), ErrorCode::kUnreadableFile);
  EXPECT_EQ(CodeOf([&] { GoldenReader::Open("/nonexistent/file.h5"); }),
            ErrorCode::kUnreadableFile);
}

// Replaces the first occurrence: HDF5 1.10 keeps names and texts as they are.
void Replace(const std::string& path, const std::string& from, const std::string& to) {
  std::string bytes = golden_samples::ReadBytes(path);
  const size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, from.size(), to);
  golden_samples::WriteBytes(path, bytes);
}

TEST(GoldenReader, RefusesAFileOfAnotherSchemaWordForWord) {
  struct Change {
    const char *from, *to, *reason;
  };
  for (const Change& change :
       std::vector<Change>{// still held to the schema by content_hash
                           {"kvcheck_schema", "kvcheck_schemb", "'kvcheck_schema' is missing"},
                           {"content_hash", "content_hasi", "'content_hasi' is not of the schema"},
                           {"bfloat16", "float8_e", "kv_dtype 'float8_e' is not a type"},
                           {"attn shape", "attn shap\xff", "attribute 'case' cannot be read"},
                           {"attn shape", "attn shap\x01", "is not what content_hash says"},
                           {"lib.f", "lib.g", "is not what content_hash says"},
                           {"B,Hq,L,Dk", "B,Hq,L,Dq", "do not name its 4 axes"},
                           {"B,Hq,L,Dk", "B,L,Hq,Dk", "is not what content_hash says"}}) {
    const Temporary file("schema.h5");
    WriteGoldenFile(file.path(), FixtureContent());
    Replace(file.path(), change.from, change.to);
    try {
      GoldenReader::Open(file.path());
      ADD_FAILURE() << change.from << " -> " << change.to;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      EXPECT_NE(error.message().find(change.reason), std::string::npos) << error.message();
    }
  }
}

TEST(GoldenWriter, RefusesWhatTheSchemaHasNoPlaceFor) {
  using Change = std::function<void(GoldenCase&)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"slash in a name", [](GoldenCase& c) { c.name = "a/b"; }},
      {"empty name", [](GoldenCase& c) { c.name = ""; }},
      {"dots", [](GoldenCase& c) { c.name = ".."; }},
      {"long name", [](GoldenCase& c) { c.name.assign(201, 'a'); }},
      {"NUL in a text", [](GoldenCase& c) { c.case_text = std::string("a\0b", 3); }},
      {"long text", [](GoldenCase& c) { c.case_text.assign(60001, 'a'); }},
      {"not UTF-8", [](GoldenCase& c) { c.case_text = "\xc0\x80"; }},
      {"reserved input", [](GoldenCase& c) { c.inputs["observed"] = c.inputs["q"]; }},
      {"reserved prefix", [](GoldenCase& c) { c.inputs["expected_x"] = c.inputs["q"]; }},
      {"low output", [](GoldenCase& c) { c.expected["x_lo"] = c.expected["out"]; }},
      {"expected of f32", [](GoldenCase& c) { c.expected["out"].hi.dtype = DType::kInt64; }},
      {"expectation", [](GoldenCase& c) { c.observed[0].expect = "MAYBE"; }},
      {"finding without reason", [](GoldenCase& c) { c.observed[0].expect = "FAIL"; }},
      {"no outputs", [](GoldenCase& c) { c.observed[0].outputs.clear(); }},
      {"impl twice", [](GoldenCase& c) { c.observed.push_back(c.observed[0]); }},
      {"unknown axis", [](GoldenCase& c) { c.inputs["q"].shape.axes[0].name = "X"; }},
      {"axis twice", [](GoldenCase& c) { c.inputs["q"].shape.axes[0].name = "Dk"; }},
      {"bytes missing", [](GoldenCase& c) { c.inputs["q"].bytes.pop_back(); }},
      {"bool of 2", [](GoldenCase& c) { c.inputs["mask"].bytes[0] = std::byte{2}; }},
  };
  for (const auto& [what, change] : changes) {
    const Temporary file("refused.h5");
    GoldenFile content = SmallContent();
    change(content.cases[0]);
    EXPECT_EQ(CodeOf([&] { WriteGoldenFile(file.path(), content); }), ErrorCode::kUsage) << what;
    EXPECT_FALSE(std::filesystem::exists(file.path())) << what;
  }
}

TEST(GoldenWriter, LeavesTheOldFileAndNothingElseWhenItDoesNotFinish) {
  const std::string folder = TemporaryPath("folder");
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/file.h5";
  golden_samples::WriteBytes(path, "old");
  {
    GoldenWriter writer(path, "s", "c");
    writer.AddCase(SmallContent().cases[0]);
  }
  EXPECT_EQ(golden_samples::ReadBytes(path), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

TEST(GoldenWriter, TakesCasesInAnyOrder) {
  const Temporary file("order.h5");
  const GoldenFile content = FixtureContent();
  GoldenWriter writer(file.path(), content.source, content.command);
  for (auto it = content.cases.rbegin(); it != content.cases.rend(); ++it) writer.AddCase(*it);
  EXPECT_EQ(writer.Finish(), GoldenReader::Open(PythonFixture()).outline().content_hash);
  EXPECT_EQ(GoldenReader::Open(file.path()).CaseNames().size(), content.cases.size());
}

}  // namespace
}  // namespace kvcheck
