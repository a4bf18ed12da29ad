// Golden files, schema 1: what a file says, as values, and the rules it obeys, as a translation
// between these values and an index of objects. The layout in HDF5 is described in
// golden/README.md.

#ifndef GOLDEN_SCHEMA_H_
#define GOLDEN_SCHEMA_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "golden/file_index.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

inline constexpr int64_t kGoldenSchema = 1;
inline constexpr int kMaxTensorRank = 8;
inline constexpr size_t kMaxNameBytes = 200;
inline constexpr size_t kMaxTextBytes = 60000;  // an HDF5 attribute ends at 64 KiB

// An expected output: the value is hi + lo. Both are float64 and of one shape.
struct ExpectedTensor {
  Tensor hi;
  std::optional<Tensor> lo;

  bool operator==(const ExpectedTensor&) const = default;
};

// What one implementation gave for a case, and how it says that it computed.
struct ObservedRecord {
  std::string impl;  // the group's name
  TensorMap outputs;
  std::map<std::string, std::string> kv_formats;  // of packed outputs, by output name
  std::string implementation;
  std::string version;
  std::string machine;
  std::string plan;
  std::string profile;
  std::string expect = "PASS";  // PASS, MISTRUSTED, or FAIL: a finding, with its reason
  std::string reason;

  bool operator==(const ObservedRecord&) const = default;
};

struct GoldenCase {
  std::string name;
  std::string case_text;
  TensorMap inputs;
  std::map<std::string, std::string> kv_formats;   // of packed inputs, by input name
  std::map<std::string, ExpectedTensor> expected;  // by output name: "out", "lse", ...
  std::vector<ObservedRecord> observed;            // ordered by impl

  bool operator==(const GoldenCase&) const = default;
};

struct GoldenFile {
  int64_t schema = kGoldenSchema;
  std::string source;
  std::string command;
  std::string content_hash;       // "sha256:" and 64 hexadecimal digits; computed by the writer
  std::vector<GoldenCase> cases;  // ordered by name

  bool operator==(const GoldenFile&) const = default;
};

// Names of cases, tensors and implementations: 1 to 200 of [A-Za-z0-9_.-], not only dots.
bool IsGoldenName(std::string_view name);
// UTF-8 without NUL, of at most kMaxTextBytes.
bool IsGoldenText(std::string_view text);

// The dataset of an expected output in its case's group: "expected" and "expected_lo" for "out",
// "expected_lse" and "expected_lse_lo" for "lse".
std::string ExpectedDataset(std::string_view output, bool low);

std::string CasePath(std::string_view case_name);
// "B,Hq,L,Dk"; an unnamed axis is empty.
std::string AxesText(const Shape& shape);

// The index that a file with these cases has, its content hash excepted.
// Errors: kUsage when a name, text, shape, type or expectation breaks the schema.
FileIndex IndexOf(const GoldenFile& file);

// The objects of one case alone. Errors: as IndexOf.
FileIndex IndexOfCase(const GoldenCase& golden_case);

// The file that an index describes, with tensors that have their type and shape and no bytes.
// Errors: kUnreadableFile when the index breaks the schema; `path` is the context.
GoldenFile OutlineOf(const FileIndex& index, const std::string& path);

// The tensors of a case by the absolute paths of their datasets. The pointers live as long as the
// case, unchanged.
std::map<std::string, const Tensor*> TensorsOf(const GoldenCase& golden_case);
std::map<std::string, Tensor*> MutableTensorsOf(GoldenCase& golden_case);

// Errors: kUnreadableFile, when a stored byte has no meaning in its type (a bool that is neither
// 0 nor 1).
void CheckStoredValues(const ObjectRecord& record, const std::byte* bytes, size_t size,
                       const std::string& dataset, const std::string& path);

}  // namespace kvcheck

#endif  // GOLDEN_SCHEMA_H_
