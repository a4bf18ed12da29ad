#include "tools/corridor/stored_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "golden/schema.h"
#include "golden/sharded_file.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/spare_tensors.h"
#include "tools/process/untrusted_reader.h"

namespace kvcheck {
namespace {

const TensorSpec* FindSpec(const std::map<std::string, TensorSpec>& specs,
                           const std::string& name) {
  const auto found = specs.find(name);
  return found == specs.end() ? nullptr : &found->second;
}

// Datasets directly inside a group, by their last names.
DatasetNames Members(const FileIndex& index, const std::string& group) {
  DatasetNames members;
  const std::string prefix = group + "/";
  for (auto it = index.objects.lower_bound(prefix); it != index.objects.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    const std::string name = it->first.substr(prefix.size());
    if (it->second.is_dataset && name.find('/') == std::string::npos) members[name] = it->first;
  }
  return members;
}

std::string TextAttribute(const ObjectRecord& record, const std::string& name) {
  const auto found = record.attributes.find(name);
  if (found == record.attributes.end()) return "";
  const auto* text = std::get_if<std::string>(&found->second);
  return text == nullptr ? "" : *text;
}

StoredAnswer AnswerIn(const FileIndex& index, const std::string& group, std::string impl) {
  StoredAnswer answer;
  answer.impl = std::move(impl);
  answer.outputs = Members(index, group);
  const auto found = index.objects.find(group);
  if (found == index.objects.end()) return answer;
  answer.implementation = TextAttribute(found->second, "implementation");
  answer.version = TextAttribute(found->second, "version");
  answer.plan = TextAttribute(found->second, "plan");
  answer.profile = TextAttribute(found->second, "profile");
  answer.expect = TextAttribute(found->second, "expect");
  answer.reason = TextAttribute(found->second, "reason");
  return answer;
}

double Bytes(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.ElementCount()) * static_cast<double>(SizeInBytes(dtype));
}

}  // namespace

DType MeantType(const ObjectRecord& record, const TensorSpec* declared) {
  // Libraries give the codes of a format in fp8 the type fp8, of which the case says the bytes.
  if (declared != nullptr && declared->dtype == DType::kUInt8 && IsFloat(record.dtype) &&
      SizeInBytes(record.dtype) == 1) {
    return declared->dtype;
  }
  // Integers may be numbers or the bits of floats: which, the file or --cast says.
  if (declared == nullptr || record.attributes.contains("kv_dtype") || IsFloat(record.dtype) ||
      IsFloat(declared->dtype) || SizeInBytes(record.dtype) != SizeInBytes(declared->dtype)) {
    return record.dtype;
  }
  return declared->dtype;
}

// data=file:HASH asks for one content alone; other tensors would answer another question.
void CheckContentHash(const StoredFile& file, const Case& c) {
  const DataSource& data = DataOf(c);
  if (!data.IsFile() || data.file_hash.empty()) return;
  if (!file.IsGolden()) {
    throw Error(ErrorCode::kMissingData,
                "the case names its data by content hash, which only golden files have; "
                "write data=file",
                file.path());
  }
  const std::string& hash = file.golden().outline().content_hash;
  if (!hash.starts_with("sha256:" + data.file_hash)) {
    throw Error(ErrorCode::kMissingData,
                fmt::format("the case asks for data with hash {}..., the file has {}",
                            data.file_hash, hash),
                file.path());
  }
}

StoredFile::StoredFile(const std::string& path) : path_(path) {
  auto file = OpenUntrustedTensors(path);
  if (file->index().is_golden) {
    golden_ = std::make_unique<GoldenReader>(std::move(file));
  } else {
    plain_ = std::move(file);
  }
}

namespace {

bool IsInGroup(std::string_view path, std::string_view group) {
  return path.size() > group.size() + 1 && path.substr(1).starts_with(group) &&
         (path[group.size() + 1] == '/' || path[group.size() + 1] == '.');
}

// Some tensors of another source.
class GroupSource : public TensorSource {
 public:
  GroupSource(TensorSource& whole, const std::string& group) : whole_(whole) {
    const auto& objects = whole.index().objects;
    for (auto it = objects.lower_bound("/" + group); it != objects.end(); ++it) {
      if (!it->first.starts_with("/" + group)) break;
      if (IsInGroup(it->first, group)) index_.objects.insert(*it);
    }
    if (index_.objects.empty()) {
      throw Error(ErrorCode::kSelection,
                  fmt::format("there is no group '{}'{}; {}", Shortened(group, 200),
                              DidYouMean(group, GroupsOf(whole.index())), PresentGroups(whole)),
                  whole.path());
    }
    if (const auto root = objects.find("/"); root != objects.end()) index_.objects.insert(*root);
  }

  const std::string& path() const override { return whole_.path(); }
  const FileIndex& index() const override { return index_; }
  TensorOrigin OriginOf(const std::string& dataset) const override {
    return whole_.OriginOf(dataset);
  }
  void ReadElements(const std::string& dataset, int64_t first, int64_t count,
                    std::byte* out) override {
    whole_.ReadElements(dataset, first, count, out);
  }

 private:
  static std::string PresentGroups(const TensorSource& whole) {
    constexpr size_t kMost = 6;
    std::vector<std::string> groups = GroupsOf(whole.index());
    if (groups.empty()) return "the file has no groups";
    const size_t more = groups.size() - std::min(groups.size(), kMost);
    groups.resize(groups.size() - more);
    return fmt::format("it has {}{}", fmt::join(groups, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }

  TensorSource& whole_;
  FileIndex index_;
};

}  // namespace

StoredFile::StoredFile(const StoredFile& whole, const std::string& group)
    : path_(whole.path()), plain_(std::make_unique<GroupSource>(whole.source(), group)) {}

std::vector<std::string> GroupsOf(const FileIndex& index) {
  std::set<std::string> all;
  for (const auto& [path, record] : index.objects) {
    const size_t last = path.find_last_of("/.");
    if (record.is_dataset && last != std::string::npos && last > 0) {
      all.insert(path.substr(1, last - 1));
    }
  }
  std::vector<std::string> groups;
  for (const std::string& group : all) {
    bool is_inside = false;
    for (size_t at = group.find_first_of("/."); at != std::string::npos && !is_inside;
         at = group.find_first_of("/.", at + 1)) {
      is_inside = all.contains(group.substr(0, at));
    }
    if (!is_inside) groups.push_back(group);
  }
  return groups;
}

TensorSource& StoredFile::source() const {
  return golden_ != nullptr ? golden_->source() : *plain_;
}

const GoldenReader& StoredFile::golden() const {
  if (golden_ == nullptr) {
    throw Error(ErrorCode::kUnreadableFile,
                "it is not a golden file: its root has no attribute kvcheck_schema", path_);
  }
  return *golden_;
}

std::vector<StoredAnswer> FindAnswers(const FileIndex& index, const std::string& case_name,
                                      const Case& c) {
  std::vector<StoredAnswer> answers;
  const std::string observed = CasePath(case_name) + "/observed/";
  std::set<std::string> seen;
  for (auto it = index.objects.lower_bound(observed); it != index.objects.end(); ++it) {
    if (!it->first.starts_with(observed)) break;
    // The group itself is listed only where the file has the schema.
    const std::string rest = it->first.substr(observed.size());
    if (it->second.is_dataset && rest.find('/') == std::string::npos) continue;
    const std::string impl = rest.substr(0, rest.find('/'));
    if (!seen.insert(impl).second) continue;
    StoredAnswer answer = AnswerIn(index, observed + impl, impl);
    if (!answer.outputs.empty()) answers.push_back(std::move(answer));
  }
  const std::map<std::string, TensorSpec> specs = OutputSpecs(c);
  const std::string place = "/" + case_name;
  // Also without a group of that name: safetensors has none.
  StoredAnswer group = AnswerIn(index, place, "");
  const bool has_output =
      std::any_of(group.outputs.begin(), group.outputs.end(),
                  [&](const auto& output) { return specs.contains(output.first); });
  // Beside other answers, a group of that name answers the case only where it has its outputs.
  if (has_output || (answers.empty() && !group.outputs.empty())) {
    answers.push_back(std::move(group));
  }
  const auto found = index.objects.find(place);
  if (found != index.objects.end() && found->second.is_dataset && !specs.empty()) {
    StoredAnswer answer;
    answer.outputs[specs.contains("out") ? "out" : specs.begin()->first] = found->first;
    answers.push_back(std::move(answer));
  }
  return answers;
}

std::string NotLookedAt(const std::string& file, const std::set<std::string>& paths) {
  constexpr size_t kMost = 6;
  std::vector<std::string> shown(paths.begin(), paths.end());
  if (shown.size() > kMost) {
    const size_t more = shown.size() - kMost;
    shown.resize(kMost);
    shown.push_back(fmt::format("{} more", more));
  }
  return fmt::format("not looked at in {}: {}", file, fmt::join(shown, ", "));
}

std::optional<std::string> NotNamedByIndex(const StoredFile& file) {
  // Files without groups have no root either.
  const auto& objects = file.source().index().objects;
  const auto root = objects.find("/");
  const std::string unnamed =
      root == objects.end() ? "" : TextAttribute(root->second, kNotNamedByIndex);
  if (unnamed.empty()) return std::nullopt;
  return fmt::format("not looked at in {}, whose index does not name it: {}", file.path(), unnamed);
}

std::string ImplementationText(const StoredAnswer& answer) {
  if (answer.implementation.empty()) return answer.impl;
  return answer.version.empty() ? answer.implementation
                                : answer.implementation + " " + answer.version;
}

namespace {

// "Absent" would be wrong, and a dataset of the same name elsewhere may be another tensor.
[[noreturn]] void RefuseUnreadable(const std::string& name,
                                   const std::pair<const std::string, ObjectRecord>& object) {
  throw Error(
      ErrorCode::kSelection,
      fmt::format("'{}' is at {}, which cannot be read: {}; store it anew, or under another "
                  "path and choose that with --map {}=PATH",
                  name, object.first, object.second.problem, name));
}

}  // namespace

DatasetNames FindByName(const FileIndex& index, const std::map<std::string, TensorSpec>& specs,
                        const DatasetNames& map) {
  DatasetNames names;
  for (const auto& [name, spec] : specs) {
    if (const auto mapped = map.find(name); mapped != map.end()) {
      names[name] = mapped->second;
      continue;
    }
    if (const auto root = index.objects.find("/" + name); root != index.objects.end()) {
      if (!root->second.problem.empty()) RefuseUnreadable(name, *root);
      if (root->second.is_dataset) {
        names[name] = root->first;
        continue;
      }
    }
    std::vector<std::string> candidates;
    const std::pair<const std::string, ObjectRecord>* unreadable = nullptr;
    for (const auto& object : index.objects) {
      if (!object.first.ends_with("/" + name)) continue;
      if (!object.second.problem.empty()) unreadable = &object;
      if (object.second.is_dataset) candidates.push_back(object.first);
    }
    if (candidates.empty() && unreadable != nullptr) RefuseUnreadable(name, *unreadable);
    if (candidates.size() > 1) {
      throw Error(ErrorCode::kSelection, fmt::format("'{}' could be {}; choose with --map {}=PATH",
                                                     name, fmt::join(candidates, " or "), name));
    }
    if (candidates.size() == 1) names[name] = candidates.front();
  }
  return names;
}

FileObserved::FileObserved(const StoredFile& file, const DatasetNames& outputs, const Case& c)
    : source_(file.source()), datasets_(outputs) {
  const std::map<std::string, TensorSpec> specs = OutputSpecs(c);
  for (const auto& [name, dataset] : outputs) {
    const ObjectRecord& record = DatasetRecord(source_, dataset);
    OutputInfo info;
    info.name = name;
    info.dtype = MeantType(record, FindSpec(specs, name));
    info.shape = record.shape;
    info.row_length = record.shape.RowLength();
    infos_[name] = std::move(info);
  }
}

const OutputInfo* FileObserved::Find(const std::string& name) const {
  const auto found = infos_.find(name);
  return found == infos_.end() ? nullptr : &found->second;
}

std::vector<std::string> FileObserved::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, info] : infos_) names.push_back(name);
  return names;
}

void FileObserved::Read(const std::string& name, int64_t first_element,
                        std::span<std::byte> out) const {
  const size_t size = SizeInBytes(infos_.at(name).dtype);
  const std::lock_guard<std::mutex> lock(mutex_);
  source_.ReadElements(datasets_.at(name), first_element, static_cast<int64_t>(out.size() / size),
                       out.data());
}

TensorMap LoadInputs(const StoredFile& file, const Case& c, const DatasetNames& datasets) {
  CheckContentHash(file, c);
  const std::map<std::string, TensorSpec> specs = InputSpecs(c);
  double bytes = 0;
  for (const auto& [name, dataset] : datasets) {
    if (!specs.contains(name)) continue;
    const ObjectRecord& record = DatasetRecord(file.source(), dataset);
    bytes += Bytes(record.shape, record.dtype);
  }
  CheckFitsMemory(bytes, file.path());
  TensorMap inputs;
  for (const auto& [name, dataset] : datasets) {
    const TensorSpec* spec = FindSpec(specs, name);
    if (spec == nullptr) {
      const ObjectRecord& record = DatasetRecord(file.source(), dataset);
      if (!SpareName(c, dataset, record.dtype, record.shape)) continue;
      AddSpare(c, dataset, ReadTensor(file.source(), dataset), &inputs);
      continue;
    }
    Tensor tensor = ReadTensor(file.source(), dataset);
    tensor.dtype = MeantType(DatasetRecord(file.source(), dataset), spec);
    if (tensor.shape.SameExtents(spec->shape)) tensor.shape = spec->shape;
    inputs[name] = std::move(tensor);
  }
  CheckInputs(c, inputs);
  return inputs;
}

bool HasInputs(const GoldenCase& outline, const Case& c) {
  const DataSource& data = DataOf(c);
  return !outline.inputs.empty() || !data.IsFile();
}

TensorMap GoldenInputs(const StoredFile& file, const GoldenCase& outline, const Case& c,
                       const Profile& profile) {
  if (outline.inputs.empty()) return GenerateCaseInputs(c, profile);
  DatasetNames datasets;
  for (const auto& [name, tensor] : outline.inputs) {
    datasets[name] = CasePath(outline.name) + "/" + name;
  }
  return LoadInputs(file, c, datasets);
}

}  // namespace kvcheck
