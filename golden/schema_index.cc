// From the values of a golden file to the index of objects that holds them, for a file about to be
// written: every name, text, shape and type is checked on the way.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "golden/schema_rules.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// Builds and checks the records of a file about to be written.
class IndexBuilder {
 public:
  FileIndex Take() { return std::move(index_); }

  void Group(const std::string& path, std::map<std::string, std::string> texts) {
    ObjectRecord record;
    for (auto& [name, text] : texts) {
      if (!IsGoldenText(text)) {
        Refuse(
            fmt::format("{} must be UTF-8 without NUL, of at most {} bytes", name, kMaxTextBytes),
            path);
      }
      record.attributes[name] = std::move(text);
    }
    Add(path, std::move(record));
  }

  void Dataset(const std::string& path, const Tensor& tensor, const std::string* kv_format) {
    CheckTensor(path, tensor);
    ObjectRecord record;
    record.is_dataset = true;
    record.dtype = tensor.dtype;
    record.shape = tensor.shape;
    record.attributes["kv_dtype"] = std::string(Name(tensor.dtype));
    record.attributes["axes"] = AxesText(tensor.shape);
    if (kv_format != nullptr) {
      if (!IsGoldenText(*kv_format)) Refuse("kv_format must be UTF-8 without NUL", path);
      record.attributes["kv_format"] = *kv_format;
    }
    Add(path, std::move(record));
  }

  static std::string Checked(const std::string& name, std::string_view what) {
    if (!IsGoldenName(name)) {
      Refuse(fmt::format("'{}' cannot name {}: use up to {} of [A-Za-z0-9_.-]", name, what,
                         kMaxNameBytes),
             "");
    }
    return name;
  }

  [[noreturn]] static void Refuse(const std::string& message, const std::string& context) {
    throw Error(ErrorCode::kUsage, message, context);
  }

 private:
  void Add(const std::string& path, ObjectRecord record) {
    if (!index_.objects.emplace(path, std::move(record)).second) {
      Refuse("this name is there already", path);
    }
  }

  static void CheckTensor(const std::string& path, const Tensor& tensor) {
    if (tensor.shape.axes.size() > kMaxTensorRank) {
      Refuse(fmt::format("at most {} axes are allowed", kMaxTensorRank), path);
    }
    std::set<std::string> named;
    for (const Axis& axis : tensor.shape.axes) {
      if (axis.extent < 0) Refuse("an extent is negative", path);
      if (axis.name.empty()) continue;
      if (!IsAxisName(axis.name) || !named.insert(axis.name).second) {
        Refuse(fmt::format("'{}' is not an axis name, or names two axes", axis.name), path);
      }
    }
    const size_t needed =
        static_cast<size_t>(tensor.shape.ElementCount()) * SizeInBytes(tensor.dtype);
    if (tensor.bytes.size() != needed) {
      Refuse(fmt::format("{} bytes for {} {} elements", tensor.bytes.size(),
                         tensor.shape.ElementCount(), Name(tensor.dtype)),
             path);
    }
    if (tensor.dtype == DType::kBool && std::any_of(tensor.bytes.begin(), tensor.bytes.end(),
                                                    [](std::byte b) { return b > std::byte{1}; })) {
      Refuse("a bool is neither 0 nor 1", path);
    }
  }

  FileIndex index_;
};

const std::string* FormatOf(const std::map<std::string, std::string>& formats,
                            const std::string& name) {
  const auto found = formats.find(name);
  return found == formats.end() ? nullptr : &found->second;
}

void AddObserved(const std::string& case_path, const ObservedRecord& observed,
                 IndexBuilder& builder) {
  const std::string path =
      case_path + "/observed/" + IndexBuilder::Checked(observed.impl, "an implementation");
  if (!IsExpectation(observed.expect)) {
    IndexBuilder::Refuse("expect is PASS, MISTRUSTED or FAIL", path);
  }
  if (observed.expect == "FAIL" && observed.reason.empty()) {
    IndexBuilder::Refuse("an expected FAIL is a finding: say its reason", path);
  }
  if (observed.outputs.empty()) IndexBuilder::Refuse("an observed record needs outputs", path);
  std::map<std::string, std::string> texts;
  for (const auto& [name, member] : ObservedTexts()) texts[name] = observed.*member;
  builder.Group(path, std::move(texts));
  for (const auto& [name, tensor] : observed.outputs) {
    IndexBuilder::Checked(name, "an output");
    if (EndsWithLo(name)) IndexBuilder::Refuse("an output cannot end with _lo", path);
    builder.Dataset(path + "/" + name, tensor, FormatOf(observed.kv_formats, name));
  }
}

void AddCase(const GoldenCase& golden_case, IndexBuilder& builder) {
  IndexBuilder::Checked(golden_case.name, "a case");
  const std::string path = CasePath(golden_case.name);
  builder.Group(path, {{"case", golden_case.case_text}});
  for (const auto& [name, tensor] : golden_case.inputs) {
    IndexBuilder::Checked(name, "an input");
    if (name == "observed" || IsExpectedName(name)) {
      IndexBuilder::Refuse(fmt::format("the schema uses '{}' otherwise: rename the input", name),
                           path);
    }
    builder.Dataset(path + "/" + name, tensor, FormatOf(golden_case.kv_formats, name));
  }
  for (const auto& [name, expected] : golden_case.expected) {
    IndexBuilder::Checked(name, "an output");
    if (EndsWithLo(name)) IndexBuilder::Refuse("an output cannot end with _lo", path);
    if (expected.hi.dtype != DType::kFloat64 ||
        (expected.lo &&
         (expected.lo->dtype != DType::kFloat64 || expected.lo->shape != expected.hi.shape))) {
      IndexBuilder::Refuse(
          fmt::format("expected '{}' must be float64, its low part of the same shape", name), path);
    }
    builder.Dataset(path + "/" + ExpectedDataset(name, false), expected.hi, nullptr);
    if (expected.lo) {
      builder.Dataset(path + "/" + ExpectedDataset(name, true), *expected.lo, nullptr);
    }
  }
  if (!golden_case.observed.empty()) builder.Group(path + "/observed", {});
  for (const ObservedRecord& observed : golden_case.observed) {
    AddObserved(path, observed, builder);
  }
}

}  // namespace

FileIndex IndexOf(const GoldenFile& file) {
  IndexBuilder builder;
  builder.Group("/", {{"source", file.source}, {"command", file.command}});
  builder.Group("/cases", {});
  for (const GoldenCase& golden_case : file.cases) AddCase(golden_case, builder);
  FileIndex index = builder.Take();
  index.is_golden = true;
  index.objects["/"].attributes["kvcheck_schema"] = kGoldenSchema;
  return index;
}

FileIndex IndexOfCase(const GoldenCase& golden_case) {
  IndexBuilder builder;
  AddCase(golden_case, builder);
  return builder.Take();
}

}  // namespace kvcheck
