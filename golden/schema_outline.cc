// From the index of objects of a file, which nobody has checked, to the outline of its cases.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "golden/schema_rules.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

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
    throw Error(
        ErrorCode::kUnreadableFile,
        object_path_.empty() ? std::string(reason) : fmt::format("{}: {}", object_path_, reason),
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
    if (schema == record_->attributes.end() || !std::holds_alternative<int64_t>(schema->second)) {
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
    if (!IsExpectation(observed.expect)) {
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

GoldenFile OutlineOf(const FileIndex& index, const std::string& path) {
  return OutlineReader(index, path).Read();
}

}  // namespace kvcheck
