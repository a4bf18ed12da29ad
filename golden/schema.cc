#include "golden/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 3> kExpectations = {"PASS", "MISTRUSTED", "FAIL"};

// The texts of an observed record, by attribute name.
std::vector<std::pair<std::string, std::string ObservedRecord::*>> ObservedTexts() {
  return {{"implementation", &ObservedRecord::implementation},
          {"version", &ObservedRecord::version},
          {"machine", &ObservedRecord::machine},
          {"plan", &ObservedRecord::plan},
          {"profile", &ObservedRecord::profile},
          {"expect", &ObservedRecord::expect},
          {"reason", &ObservedRecord::reason}};
}

bool EndsWithLo(std::string_view name) { return name == "lo" || name.ends_with("_lo"); }

// "expected" or "expected_...": the datasets that are not inputs.
bool IsExpectedName(std::string_view name) {
  return name == "expected" || name.starts_with("expected_");
}

// Builds and checks the records of a file about to be written.
class IndexBuilder {
 public:
  FileIndex Take() { return std::move(index_); }

  void Group(const std::string& path, std::map<std::string, std::string> texts) {
    ObjectRecord record;
    for (auto& [name, text] : texts) {
      if (!IsGoldenText(text)) {
        Refuse(fmt::format("{} must be UTF-8 without NUL, of at most {} bytes", name,
                           kMaxTextBytes),
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
    if (tensor.dtype == DType::kBool &&
        std::any_of(tensor.bytes.begin(), tensor.bytes.end(),
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
  if (std::find(kExpectations.begin(), kExpectations.end(), observed.expect) ==
      kExpectations.end()) {
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
        (expected.lo && (expected.lo->dtype != DType::kFloat64 ||
                         expected.lo->shape != expected.hi.shape))) {
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

std::vector<std::string> Split(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    const size_t end = std::min(path.find('/'), path.size());
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(end);
  }
  return parts;
}

// Turns the records of a file into an outline. Records come in order of their paths, and a group's
// path is a prefix of, hence before, those of its members.
class OutlineReader {
 public:
  OutlineReader(const FileIndex& index, const std::string& path) : index_(index), path_(path) {}

  GoldenFile Read() {
    if (!index_.is_golden) Refuse("not a golden file: its root has no kvcheck_schema");
    if (!index_.objects.contains("/")) Refuse("the root group is missing");
    if (!index_.objects.contains("/cases")) Refuse("the group /cases is missing");
    for (const auto& [object_path, record] : index_.objects) {
      object_path_ = object_path;
      record_ = &record;
      if (!record.problem.empty()) Refuse(record.problem);
      ReadObject();
    }
    return Take();
  }

 private:
  [[noreturn]] void Refuse(std::string_view reason) const {
    throw Error(ErrorCode::kUnreadableFile,
                object_path_.empty() ? std::string(reason)
                                     : fmt::format("{}: {}", object_path_, reason),
                path_);
  }

  void ReadObject() {
    if (object_path_ == "/") return ReadRoot();
    if (object_path_ == "/cases") return Expect({}, {});
    if (!object_path_.starts_with('/')) Refuse("a path that does not begin at the root");
    const std::vector<std::string> parts = Split(object_path_);
    if (parts[0] != "cases" || parts.size() > 5) Refuse("the schema has no such object");
    for (size_t i = 1; i < parts.size(); ++i) {
      if (!IsGoldenName(parts[i])) Refuse("a name is not of [A-Za-z0-9_.-]");
    }
    if (parts.size() == 2) {
      Expect({"case"}, {});
      GoldenCase& added = cases_[parts[1]];
      added.name = parts[1];
      added.case_text = Text("case");
      return;
    }
    const auto found = cases_.find(parts[1]);
    if (found == cases_.end()) Refuse("it lies in no case");
    GoldenCase& golden_case = found->second;
    if (parts.size() == 3) {
      if (parts[2] == "observed") return Expect({}, {});
      return ReadCaseTensor(golden_case, parts[2]);
    }
    if (parts[2] != "observed") Refuse("the schema has no such object");
    if (parts.size() == 4) return ReadObserved(golden_case, parts[3]);
    ReadOutput(golden_case, parts[3], parts[4]);
  }

  // The group has exactly the texts named, and perhaps the integers.
  void Expect(const std::set<std::string>& texts, const std::set<std::string>& integers) const {
    if (record_->is_dataset) Refuse("a dataset where the schema has a group");
    ExpectAttributes(texts, integers, {});
  }

  void ExpectAttributes(const std::set<std::string>& texts, const std::set<std::string>& integers,
                        const std::set<std::string>& optional_texts) const {
    for (const auto& [name, value] : record_->attributes) {
      const bool is_text = std::holds_alternative<std::string>(value);
      if (is_text ? !texts.contains(name) && !optional_texts.contains(name)
                  : !integers.contains(name)) {
        Refuse(fmt::format("attribute '{}' is not of the schema", name));
      }
    }
    for (const auto& names : {texts, integers}) {
      for (const std::string& name : names) {
        if (!record_->attributes.contains(name)) {
          Refuse(fmt::format("attribute '{}' is missing", name));
        }
      }
    }
  }

  std::string Text(const std::string& name) const {
    return std::get<std::string>(record_->attributes.at(name));
  }

  void ReadRoot() {
    const auto schema = record_->attributes.find("kvcheck_schema");
    if (schema == record_->attributes.end() ||
        !std::holds_alternative<int64_t>(schema->second)) {
      Refuse("attribute 'kvcheck_schema' is missing or not an integer");
    }
    file_.schema = std::get<int64_t>(schema->second);
    if (file_.schema != kGoldenSchema) {
      Refuse(fmt::format("schema {}; this kvcheck reads schema {}", file_.schema, kGoldenSchema));
    }
    Expect({"source", "command", "content_hash"}, {"kvcheck_schema"});
    file_.source = Text("source");
    file_.command = Text("command");
    file_.content_hash = Text("content_hash");
  }

  // A tensor of the record's type and shape, without bytes.
  Tensor Outline() const {
    if (!record_->is_dataset) Refuse("a group where the schema has a dataset");
    ExpectAttributes({"kv_dtype", "axes"}, {}, {"kv_format"});
    if (Text("kv_dtype") != Name(record_->dtype)) Refuse("kv_dtype is not the type stored");
    if (Text("axes") != AxesText(record_->shape)) Refuse("axes are not those of the shape");
    Tensor tensor;
    tensor.dtype = record_->dtype;
    tensor.shape = record_->shape;
    return tensor;
  }

  void ReadCaseTensor(GoldenCase& golden_case, const std::string& name) {
    Tensor tensor = Outline();
    const bool has_format = record_->attributes.contains("kv_format");
    if (!IsExpectedName(name)) {
      if (has_format) golden_case.kv_formats[name] = Text("kv_format");
      golden_case.inputs[name] = std::move(tensor);
      return;
    }
    if (tensor.dtype != DType::kFloat64) Refuse("an expected output that is not float64");
    if (has_format) Refuse("an expected output has no kv_format");
    std::string base = name;
    const bool low = base.ends_with("_lo");
    if (low) base.resize(base.size() - 3);
    const std::string output = base == "expected" ? "out" : base.substr(sizeof("expected_") - 1);
    // "expected_out" and "expected_X_lo_lo" would be second names of the same thing.
    if (!IsGoldenName(output) || EndsWithLo(output) || ExpectedDataset(output, low) != name) {
      Refuse("not the name of an expected output");
    }
    if (!low) {
      golden_case.expected[output].hi = std::move(tensor);
      return;
    }
    // "expected_lo" sorts after "expected", and "expected_X_lo" after "expected_X".
    const auto found = golden_case.expected.find(output);
    if (found == golden_case.expected.end()) Refuse("a low part without its high part");
    if (found->second.hi.shape != tensor.shape) Refuse("low and high part differ in shape");
    found->second.lo = std::move(tensor);
  }

  void ReadObserved(GoldenCase& golden_case, const std::string& impl) {
    std::set<std::string> names;
    for (const auto& [name, member] : ObservedTexts()) names.insert(name);
    Expect(names, {});
    ObservedRecord& observed = observed_[golden_case.name][impl];
    observed.impl = impl;
    for (const auto& [name, member] : ObservedTexts()) observed.*member = Text(name);
    if (std::find(kExpectations.begin(), kExpectations.end(), observed.expect) ==
        kExpectations.end()) {
      Refuse(fmt::format("expect is '{}', not PASS, MISTRUSTED or FAIL", observed.expect));
    }
    if (observed.expect == "FAIL" && observed.reason.empty()) {
      Refuse("an expected FAIL without a reason");
    }
  }

  void ReadOutput(GoldenCase& golden_case, const std::string& impl, const std::string& name) {
    Tensor tensor = Outline();
    if (EndsWithLo(name)) Refuse("an output cannot end with _lo");
    auto& records = observed_[golden_case.name];
    const auto found = records.find(impl);
    if (found == records.end()) Refuse("it lies in no observed record");
    if (record_->attributes.contains("kv_format")) {
      found->second.kv_formats[name] = Text("kv_format");
    }
    found->second.outputs[name] = std::move(tensor);
  }

  GoldenFile Take() {
    object_path_.clear();
    for (auto& [name, golden_case] : cases_) {
      for (auto& [impl, record] : observed_[name]) {
        if (record.outputs.empty()) {
          Refuse(fmt::format("observed record '{}' of case '{}' has no outputs", impl, name));
        }
        golden_case.observed.push_back(std::move(record));
      }
      file_.cases.push_back(std::move(golden_case));
    }
    return std::move(file_);
  }

  const FileIndex& index_;
  const std::string& path_;
  std::string object_path_;
  const ObjectRecord* record_ = nullptr;
  GoldenFile file_;
  std::map<std::string, GoldenCase> cases_;
  std::map<std::string, std::map<std::string, ObservedRecord>> observed_;  // by case, by impl
};

}  // namespace

bool IsGoldenName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.' || c == '-';
  };
  return std::all_of(name.begin(), name.end(), allowed) &&
         name.find_first_not_of('.') != std::string_view::npos;
}

bool IsGoldenText(std::string_view text) {
  if (text.size() > kMaxTextBytes) return false;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead == 0) return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i < length) return false;
    uint32_t point = lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3fu);
    }
    const uint32_t least = length == 4 ? 0x10000u : length == 3 ? 0x800u : 0x80u;
    if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    i += length;
  }
  return true;
}

std::string ExpectedDataset(std::string_view output, bool low) {
  return fmt::format("expected{}{}{}", output == "out" ? "" : "_",
                     output == "out" ? std::string_view() : output, low ? "_lo" : "");
}

std::string CasePath(std::string_view case_name) { return fmt::format("/cases/{}", case_name); }

std::string AxesText(const Shape& shape) {
  std::string text;
  for (size_t i = 0; i < shape.axes.size(); ++i) {
    text += (i == 0 ? "" : ",") + shape.axes[i].name;
  }
  return text;
}

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

GoldenFile OutlineOf(const FileIndex& index, const std::string& path) {
  return OutlineReader(index, path).Read();
}

FileIndex IndexOfCase(const GoldenCase& golden_case) {
  IndexBuilder builder;
  AddCase(golden_case, builder);
  return builder.Take();
}

std::map<std::string, Tensor*> MutableTensorsOf(GoldenCase& golden_case) {
  std::map<std::string, Tensor*> tensors;
  const std::string path = CasePath(golden_case.name) + "/";
  for (auto& [name, tensor] : golden_case.inputs) tensors[path + name] = &tensor;
  for (auto& [name, expected] : golden_case.expected) {
    tensors[path + ExpectedDataset(name, false)] = &expected.hi;
    if (expected.lo) tensors[path + ExpectedDataset(name, true)] = &*expected.lo;
  }
  for (ObservedRecord& observed : golden_case.observed) {
    for (auto& [name, tensor] : observed.outputs) {
      tensors[path + "observed/" + observed.impl + "/" + name] = &tensor;
    }
  }
  return tensors;
}

std::map<std::string, const Tensor*> TensorsOf(const GoldenCase& golden_case) {
  // Nothing is changed: the other function only collects addresses.
  const auto tensors = MutableTensorsOf(const_cast<GoldenCase&>(golden_case));
  return {tensors.begin(), tensors.end()};
}

void CheckStoredValues(const ObjectRecord& record, const std::byte* bytes, size_t size,
                       const std::string& dataset, const std::string& path) {
  if (record.dtype != DType::kBool) return;
  if (std::any_of(bytes, bytes + size, [](std::byte b) { return b > std::byte{1}; })) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("{}: a bool is neither 0 nor 1", dataset), path);
  }
}

}  // namespace kvcheck
