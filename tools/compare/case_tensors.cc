#include "tools/compare/case_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/implementation.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/compare/cast_source.h"
#include "tools/compare/tensor_role.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/spare_tensors.h"

namespace kvcheck {
namespace {

// a=x,b=y is a=x and b=y.
std::vector<std::pair<std::string, std::string>> NamedValues(
    const std::vector<std::string>& entries, const char* option, const char* form) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) {
      throw Error(ErrorCode::kUsage, fmt::format("{} takes {}", option, form),
                  Shortened(entry, 200));
    }
    values.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return values;
}

std::vector<std::string> NamesOf(const Case& c) {
  std::vector<std::string> names;
  for (const auto& specs : {InputSpecs(c), OutputSpecs(c)}) {
    for (const auto& [name, spec] : specs) names.push_back(name);
  }
  return names;
}

// The key of the case that says the extent of an axis.
std::string_view KeyOf(std::string_view axis) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kKeys = {{
      {"B", "b"},
      {"Hq", "hq"},
      {"Hkv", "hkv"},
      {"L", "l"},
      {"T", "t"},
      {"Dk", "d"},
      {"Dv", "dv"},
  }};
  for (const auto& [name, key] : kKeys) {
    if (name == axis) return key;
  }
  return "";
}

// What the case would have to say for a tensor of these extents, where one key would do: "hkv=4".
std::string CaseThatFits(const Shape& stored, const Shape& wanted) {
  if (stored.axes.size() != wanted.axes.size()) return "";
  std::string fitting;
  for (size_t a = 0; a < wanted.axes.size(); ++a) {
    if (stored.axes[a].extent == wanted.axes[a].extent) continue;
    const std::string_view key = KeyOf(wanted.axes[a].name);
    if (!fitting.empty() || key.empty()) return "";
    fitting = fmt::format(" ({}={} would fit)", key, stored.axes[a].extent);
  }
  return fitting;
}

// " (q=f32)", of tensors whose type the case names so.
std::string CaseOfType(const std::string& name, DType dtype) {
  constexpr std::array<std::string_view, 5> kNamed = {"q", "k", "v", "out", "sinks"};
  const bool is_named = std::find(kNamed.begin(), kNamed.end(), name) != kNamed.end();
  return is_named ? fmt::format(" ({}={})", name, ShortName(dtype)) : "";
}

std::string ExtentsText(const Shape& shape) {
  std::vector<std::string> extents;
  for (const Axis& axis : shape.axes) extents.push_back(fmt::format("{}", axis.extent));
  return extents.empty() ? "of no axes" : fmt::format("{}", fmt::join(extents, "x"));
}

// What stands before the last part of a path.
std::string GroupOf(const std::string& path) {
  return path.substr(0, path.size() - LastPart(path).size());
}

// Bytes of codes in words of 32 bits, the lowest byte first, as MLX's quantize returns them.
constexpr int64_t kBytesOfWord = 4;
bool AreWords(const ObjectRecord& record, const TensorSpec& spec) {
  return record.dtype == DType::kUInt32 && spec.dtype == DType::kUInt8 &&
         !record.shape.axes.empty() &&
         record.shape.ElementCount() * kBytesOfWord == spec.shape.ElementCount();
}

// Who says that a tensor is of a type. Of a codec case `x` is the type of the original rows only.
std::string WhoSaysType(const Case& c, const std::string& name, DType dtype) {
  const auto* codec = std::get_if<CodecCase>(&c);
  if (codec == nullptr || name == "x" || IsPlain(codec->format)) {
    return fmt::format("the case says {}", Name(dtype));
  }
  return fmt::format("'{}' of the format {} is {} (x={} is the type of the original rows)", name,
                     Print(codec->format), Name(dtype), ShortName(codec->x));
}

// True where the stored extents, those of 1 aside, are the wanted ones in another order, or with
// some of them joined.
bool CanBeReordered(const Shape& stored, const Shape& wanted) {
  std::vector<int64_t> have, want;
  for (const Axis& axis : stored.axes) {
    if (axis.extent != 1) have.push_back(axis.extent);
  }
  for (const Axis& axis : wanted.axes) {
    if (axis.extent != 1) want.push_back(axis.extent);
  }
  std::sort(have.begin(), have.end());
  std::sort(want.begin(), want.end());
  return have == want ||
         (have.size() < want.size() && stored.ElementCount() == wanted.ElementCount());
}

// What to do about a tensor whose shape is in no order that of the case.
std::string WhatWouldHelp(const FileIndex& index, const std::string& name, const Shape& stored,
                          const Shape& wanted) {
  if (name == "mask") {
    return "correct the case, or store the mask with an entry for every key that the case has, "
           "those before the new tokens among them; axes that are 1 may be left out";
  }
  if (CanBeReordered(stored, wanted)) {
    return fmt::format("correct the case, or say in which order the axes are with --axes {}={}",
                       name, wanted.axes.size() == 4 ? "B,T,H,D" : "LABELS");
  }
  for (const auto& [path, record] : index.objects) {
    const std::string last = LowerCase(LastPart(path));
    if (!record.is_dataset || (name != "k" && name != "v")) continue;
    if (last.find("block_table") == std::string::npos && last.find("page_table") == last.npos &&
        last.find("page_indices") == last.npos && last.find("kv_indices") == last.npos) {
      continue;
    }
    return fmt::format(
        "no order of the axes makes one of the other; {} says that K and V lie in "
        "pages, which the Python package judges: kvcheck.judge_attention(..., "
        "block_table=..., kv_lens=...)",
        path);
  }
  return "no order of the axes makes one of the other: correct the case";
}

std::string OrdersText(const std::vector<AxisOrder>& orders, const Shape& wanted,
                       const std::string& prefix) {
  std::vector<std::string> texts;
  for (const AxisOrder& order : orders) texts.push_back(prefix + AxesText(order, wanted));
  return fmt::format("{}", fmt::join(texts, " or "));
}

bool IsText(const AttributeValue& value) { return std::holds_alternative<std::string>(value); }

// What a safetensors file says in its metadata of the axes of all tensors, or of one.
std::string AxesOfMetadata(const FileIndex& index, const std::string& path) {
  const auto root = index.objects.find("/");
  if (root == index.objects.end()) return "";
  for (const std::string& key : {"metadata.axes." + path.substr(1), std::string("metadata.axes")}) {
    const auto said = root->second.attributes.find(key);
    if (said != root->second.attributes.end() && IsText(said->second)) {
      return std::get<std::string>(said->second);
    }
  }
  return "";
}

double BytesOfTensor(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.ElementCount()) * static_cast<double>(SizeInBytes(dtype));
}

}  // namespace

TensorChoices ParseTensorChoices(const std::vector<std::string>& map,
                                 const std::vector<std::string>& axes, const std::string& cast) {
  TensorChoices choices;
  std::vector<std::string> entries;
  for (const std::string& entry : map) {
    for (const Piece& part : Split(WholeLine(entry), ',')) entries.emplace_back(part.text);
  }
  for (auto& [name, path] : NamedValues(entries, "--map", "NAME=/path/to/dataset")) {
    if (path.front() != '/') path.insert(path.begin(), '/');
    if (!choices.map.emplace(name, path).second) {
      throw Error(ErrorCode::kUsage, "--map names a tensor twice", name);
    }
  }
  for (const std::string& entry : axes) {
    const bool of_one = entry.find('=') != std::string::npos;
    const auto [name, labels] =
        of_one ? NamedValues({entry}, "--axes", "LABELS or NAME=LABELS, as B,T,H,D")[0]
               : std::pair<std::string, std::string>("", entry);
    if (!choices.axes.emplace(name, SplitAxisLabels(labels)).second) {
      throw Error(ErrorCode::kUsage, "--axes says the axes of one tensor twice", entry);
    }
  }
  if (!cast.empty()) {
    choices.cast = ParseDType(cast);
    if (!choices.cast) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("'{}' is not a type{}", Shortened(cast, 200), DidYouMean(cast, TypeNames())),
          "--cast");
    }
  }
  return choices;
}

CaseTensors::CaseTensors(Case c, TensorChoices choices)
    : c_(std::move(c)), choices_(std::move(choices)) {
  const std::vector<std::string> known = NamesOf(c_);
  const auto check = [&](const std::string& name, const char* option) {
    if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
    throw Error(ErrorCode::kSelection,
                fmt::format("the case has no tensor '{}'{}; it has {}", name,
                            DidYouMean(name, known), fmt::join(known, ", ")),
                option);
  };
  for (const auto& [name, path] : choices_.map) check(name, "--map");
  for (const auto& [name, labels] : choices_.axes) check(name, "--axes");
}

std::vector<std::string> CaseTensors::MeantByOthers(const FileIndex& index,
                                                    const std::string& name) const {
  std::vector<std::string> paths;
  for (const std::string& other : NamesOf(c_)) {
    if (other == name) continue;
    for (const auto& [path, record] : index.objects) {
      const auto mapped = choices_.map.find(other);
      if (mapped == choices_.map.end() ? IsOtherName(path, other) : path == mapped->second) {
        paths.push_back(path);
      }
    }
  }
  return paths;
}

std::string CaseTensors::PathOf(const StoredFile& file, const std::string& name,
                                const TensorSpec& spec,
                                const std::vector<std::string>& taken) const {
  const FileIndex& index = file.source().index();
  if (const auto mapped = choices_.map.find(name); mapped != choices_.map.end()) {
    const auto dataset = index.objects.find(mapped->second);
    if (dataset == index.objects.end()) {
      throw Error(ErrorCode::kMissingData,
                  fmt::format("there is no dataset '{}'; {}", mapped->second,
                              PresentText(index, name, spec.shape.ElementCount(),
                                          MeantByOthers(index, name))),
                  file.path());
    }
    return mapped->second;
  }
  const DatasetNames by_name = FindByName(index, {{name, spec}}, {});
  if (!by_name.empty()) return by_name.begin()->second;
  std::vector<std::string> meant = DatasetsMeantBy(index, name, spec.shape.ElementCount());
  std::erase_if(meant, [&](const std::string& path) {
    return std::find(taken.begin(), taken.end(), path) != taken.end();
  });
  if (meant.size() == 1) return meant.front();
  if (meant.size() > 1) {
    throw Error(ErrorCode::kSelection,
                fmt::format("'{}' could be {}; choose with --map {}=PATH", name,
                            fmt::join(meant, " or "), name),
                file.path());
  }
  throw Error(
      ErrorCode::kMissingData,
      fmt::format("'{}' of the case is not there; {}", name,
                  PresentText(index, name, spec.shape.ElementCount(), MeantByOthers(index, name))),
      file.path());
}

std::optional<AxisOrder> CaseTensors::SaidOrder(const StoredFile& file, const std::string& name,
                                                const std::string& path, const Shape& stored,
                                                const Shape& wanted) {
  for (const std::string& who : {name, std::string()}) {
    const auto said = choices_.axes.find(who);
    if (said == choices_.axes.end()) continue;
    // What is said of all means those that have such axes.
    if (who.empty() &&
        (said->second.size() != stored.axes.size() || !NameAxesOf(said->second, wanted))) {
      continue;
    }
    used_axes_.insert(who);
    if (const auto order = OrderOfLabels(said->second, stored, wanted)) return order;
    throw Error(ErrorCode::kUsage,
                fmt::format("{} of shape {} cannot have the axes {}; the case says {} of '{}'{}",
                            path, ExtentsText(stored), fmt::join(said->second, ","),
                            ToString(wanted), name, CaseThatFits(stored, wanted)),
                "--axes");
  }
  std::vector<std::string> labels;
  for (const Axis& axis : stored.axes) labels.push_back(axis.name);
  if (const auto order = OrderOfLabels(labels, stored, wanted)) return order;
  const std::string metadata = AxesOfMetadata(file.source().index(), path);
  if (metadata.empty()) return std::nullopt;
  return OrderOfLabels(SplitAxisLabels(metadata), stored, wanted);
}

std::vector<AxisOrder> CaseTensors::PossibleOrders(const Shape& stored, const Shape& wanted) const {
  const AxisOrder own = OwnOrder(wanted);
  // Two tensors of one shape say nothing of axes.
  if (std::holds_alternative<TensorCase>(c_)) {
    return std::vector<AxisOrder>(stored.SameExtents(wanted) ? 1 : 0, own);
  }
  // Rows of a codec, whatever they are rows of: (B,H,T,D), or one after the other.
  if (std::holds_alternative<CodecCase>(c_) && stored.ElementCount() == wanted.ElementCount() &&
      (stored.axes.size() == 1 || stored.RowLength() == wanted.RowLength())) {
    return {own};
  }
  return OrdersThatFit(stored, wanted);
}

void CaseTensors::OrderAxes(const StoredFile& file, const Specs& specs,
                            std::map<std::string, Found>* found) {
  std::vector<std::string> open;
  for (auto& [name, tensor] : *found) {
    const Shape& wanted = specs.at(name).shape;
    const Shape& stored = tensor.shape;
    std::vector<AxisOrder> orders = PossibleOrders(stored, wanted);
    if (auto said = SaidOrder(file, name, tensor.path, stored, wanted)) orders = {std::move(*said)};
    if (orders.empty()) {
      throw Error(
          ErrorCode::kMissingData,
          fmt::format("'{}' is {} of shape {}, and the case says {}{}: {}", name, tensor.path,
                      ExtentsText(stored), ToString(wanted), CaseThatFits(stored, wanted),
                      WhatWouldHelp(file.source().index(), name, stored, wanted)),
          file.path());
    }
    tensor.order = orders.front();
    if (orders.size() > 1) {
      open.push_back(name);
    } else if (tensor.order != OwnOrder(wanted)) {
      reordered_ = name;
    }
  }
  // Extents that can be two orders: the case's own, unless something speaks against it.
  for (const std::string& name : open) {
    Found& tensor = found->at(name);
    const Shape& wanted = specs.at(name).shape;
    const Shape& stored = tensor.shape;
    const std::vector<AxisOrder> orders = PossibleOrders(stored, wanted);
    if (stored.SameExtents(wanted) && reordered_.empty()) {
      std::vector<AxisOrder> others(orders.begin() + 1, orders.end());
      tensor.remark = fmt::format("axes {} as the case has them; its extents can be {} too",
                                  AxesText(tensor.order, wanted),
                                  OrdersText(others, wanted, fmt::format("--axes {}=", name)));
      continue;
    }
    throw Error(
        ErrorCode::kSelection,
        fmt::format("'{}' is {} of shape {}, whose axes can be in more than one order{}; say "
                    "which: {}",
                    name, tensor.path, ExtentsText(stored),
                    reordered_.empty()
                        ? ""
                        : fmt::format(", and '{}' does not have the case's", reordered_),
                    OrdersText(orders, wanted, fmt::format("--axes {}=", name))),
        file.path());
  }
}

DType CaseTensors::StoredType(const StoredFile& file, const std::string& name,
                              const TensorSpec& spec, const ObjectRecord& record) const {
  if (AreWords(record, spec)) {
    if (choices_.cast == spec.dtype) return spec.dtype;
    throw Error(
        ErrorCode::kMissingData,
        fmt::format("'{}' is stored as uint32 of shape {}: {} are bytes, {} a row; these are "
                    "MLX's words of four bytes: read them so with --cast u8, or store "
                    "words.view(mx.uint8)",
                    name, ExtentsText(record.shape), name, spec.shape.RowLength()),
        file.path());
  }
  DType stored = MeantType(record, &spec);
  const bool is_code = !IsFloat(stored) && IsFloat(spec.dtype) &&
                       !record.attributes.contains("kv_dtype") && choices_.cast &&
                       IsFloat(*choices_.cast) &&
                       SizeInBytes(*choices_.cast) == SizeInBytes(stored);
  // HDF5 and numpy have no bfloat16: its codes are kept as integers.
  if (is_code) stored = *choices_.cast;
  if (stored == spec.dtype) return stored;
  if (IsFloat(stored) && IsFloat(spec.dtype)) {
    if (HoldsEveryValue(stored, spec.dtype)) return stored;
    if (choices_.cast) {
      for (const DType held : {stored, spec.dtype}) {
        if (HoldsEveryValue(*choices_.cast, held)) continue;
        throw Error(ErrorCode::kUsage,
                    fmt::format("{} does not hold every value of {}: name a type that does",
                                Name(*choices_.cast), Name(held)),
                    fmt::format("--cast of {}", name));
      }
      return stored;
    }
    throw Error(
        ErrorCode::kMissingData,
        fmt::format("'{}' is stored as {}, and {}; correct the case, or compare in a type that "
                    "holds both with --cast TYPE",
                    name, Name(stored), WhoSaysType(c_, name, spec.dtype)),
        file.path());
  }
  if (!IsFloat(stored) && !IsFloat(spec.dtype)) return stored;
  const bool is_mask = spec.dtype == DType::kBool;
  const bool holds_mask = stored == DType::kBool;
  throw Error(ErrorCode::kMissingData,
              fmt::format("'{}' is stored as {}, and {}{}", name, Name(stored),
                          WhoSaysType(c_, name, spec.dtype),
                          is_mask ? ": numbers that are added to the scores are mask=additive, "
                                    "a mask of true and false is stored as bool"
                          : holds_mask ? ": a mask of true and false is mask=bool"
                          : IsFloat(spec.dtype)
                              ? "; where the integers are its codes, say so with --cast " +
                                    std::string(ShortName(spec.dtype))
                              : ""),
              file.path());
}

// All that is missing, in one message: each would be a run of its own.
void CaseTensors::RefuseMissing(const StoredFile& file, const Specs& specs,
                                std::vector<std::string> taken) const {
  std::vector<std::string> missing;
  std::string first;
  for (const auto& [name, spec] : specs) {
    try {
      taken.push_back(PathOf(file, name, spec, taken));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kMissingData || choices_.map.contains(name)) continue;
      if (missing.empty()) first = error.message();
      missing.push_back(fmt::format("'{}'", name));
    }
  }
  if (missing.size() < 2) return;
  // "'codes' of the case is not there; present: ..., ...; say which it is with --map": what is
  // present is the same for each.
  const size_t present = first.find("; ");
  throw Error(ErrorCode::kMissingData,
              fmt::format("{} of the case are not there{}", fmt::join(missing, ", "),
                          present == std::string::npos ? "" : first.substr(present)),
              file.path());
}

std::map<std::string, CaseTensors::Found> CaseTensors::Find(const StoredFile& file,
                                                            const Specs& specs) {
  std::map<std::string, Found> found;
  std::vector<std::string> taken;
  // Own names first, so that a tensor of the case is not taken for another one.
  for (const auto& [name, spec] : specs) {
    if (choices_.map.contains(name)) continue;
    for (const auto& [own, path] : FindByName(file.source().index(), {{name, spec}}, {})) {
      taken.push_back(path);
    }
  }
  double bytes = 0;
  RefuseMissing(file, specs, taken);
  for (const auto& [name, spec] : specs) {
    Found tensor;
    tensor.path = PathOf(file, name, spec, taken);
    taken.push_back(tensor.path);
    const ObjectRecord& record = DatasetRecord(file.source(), tensor.path);
    tensor.dtype = StoredType(file, name, spec, record);
    tensor.shape = record.shape;
    if (AreWords(record, spec) && tensor.dtype == spec.dtype) {
      tensor.shape.axes.back().extent *= kBytesOfWord;
    }
    bytes += BytesOfTensor(record.shape, record.dtype) + BytesOfTensor(spec.shape, spec.dtype);
    found[name] = std::move(tensor);
  }
  OrderAxes(file, specs, &found);
  CheckFitsMemory(bytes, file.path());
  const bool is_first = !others_.contains(file.path()) && !file.IsGolden();
  for (const auto& [path, record] : file.source().index().objects) {
    if (is_first && record.is_dataset) others_[file.path()].insert(path);
  }
  for (const auto& [name, tensor] : found) {
    if (!file.IsGolden()) others_[file.path()].erase(tensor.path);
  }
  return found;
}

void CaseTensors::Note(const std::string& name, const TensorSpec& spec, const Found& found) {
  std::vector<std::string> parts;
  const bool is_renamed = LastPart(found.path) != name && !choices_.map.contains(name);
  if (is_renamed) parts.push_back("found under this name");
  if (found.dtype != spec.dtype) {
    parts.push_back(
        fmt::format("{}, every value of which is one of {}", Name(found.dtype), Name(spec.dtype)));
  }
  if (!found.remark.empty()) {
    parts.push_back(found.remark);
  } else if (found.order != OwnOrder(spec.shape)) {
    parts.push_back(fmt::format("axes {}", AxesText(found.order, spec.shape)));
  }
  if (parts.empty()) return;
  notes_.push_back(fmt::format("{} is {}: {}", name, found.path, fmt::join(parts, "; ")));
}

Tensor CaseTensors::Read(const StoredFile& file, const std::string& name, const TensorSpec& spec,
                         const Found& found) const {
  Tensor tensor = ReadTensor(file.source(), found.path);
  tensor.shape = found.shape;
  const Shape& stored = found.shape;
  tensor.dtype = found.dtype;
  if (found.dtype != spec.dtype) {
    int64_t first = 0;
    int64_t count = 0;
    std::optional<Tensor> exact = ExactlyAs(tensor, spec.dtype, &first, &count);
    if (!exact) {
      std::vector<double> value(1);
      DecodeTo(tensor, first, value);
      throw Error(ErrorCode::kMissingData,
                  fmt::format("'{}' is stored as {}, and {}, but {} of its {} values are none of "
                              "{}, the first at {}: {}; correct the case{}, or store what was "
                              "computed with",
                              name, Name(found.dtype), WhoSaysType(c_, name, spec.dtype), count,
                              tensor.ElementCount(), Name(spec.dtype), ElementName(stored, first),
                              value[0], CaseOfType(name, found.dtype)),
                  file.path());
    }
    tensor = std::move(*exact);
  }
  return InOwnOrder(std::move(tensor), found.order, spec.shape);
}

TensorMap CaseTensors::Inputs(const StoredFile& file) {
  CheckContentHash(file, c_);
  const Specs specs = InputSpecs(c_);
  TensorMap inputs;
  for (const auto& [name, found] : Find(file, specs)) {
    inputs[name] = Read(file, name, specs.at(name), found);
    Note(name, specs.at(name), found);
  }
  CheckInputs(c_, inputs);
  return inputs;
}

std::unique_ptr<ObservedSource> CaseTensors::Outputs(const StoredFile& file) {
  const Specs specs = OutputSpecs(c_);
  const std::map<std::string, Found> all = Find(file, specs);
  DatasetNames paths;
  bool as_they_are = true;
  origins_.clear();
  for (const auto& [name, found] : all) {
    paths[name] = found.path;
    origins_[name] = file.source().OriginOf(found.path);
    const ObjectRecord& record = DatasetRecord(file.source(), found.path);
    as_they_are = as_they_are && found.dtype == specs.at(name).dtype &&
                  MeantType(record, &specs.at(name)) == found.dtype &&
                  record.shape.SameExtents(specs.at(name).shape) &&
                  found.order == OwnOrder(specs.at(name).shape);
  }
  // Read as they are judged: an output may be larger than the memory.
  TensorMap outputs;
  for (const auto& [name, found] : all) {
    if (!as_they_are) outputs[name] = Read(file, name, specs.at(name), found);
    Note(name, specs.at(name), found);
  }
  if (as_they_are) return std::make_unique<FileObserved>(file, paths, c_);
  return std::make_unique<MemorySink>(std::move(outputs));
}

DatasetNames CaseTensors::AddSpares(const StoredFile& file, TensorMap* inputs) const {
  DatasetNames added;
  const auto others = others_.find(file.path());
  if (others == others_.end()) return added;
  for (const std::string& path : others->second) {
    const ObjectRecord& record = DatasetRecord(file.source(), path);
    if (!SpareName(c_, path, record.dtype, record.shape)) continue;
    if (const auto name = AddSpare(c_, path, ReadTensor(file.source(), path), inputs)) {
      added[*name] = path;
    }
  }
  return added;
}

std::vector<std::string> CaseTensors::Notes() const {
  std::vector<std::string> notes = notes_;
  for (const auto& [file, others] : others_) {
    if (!others.empty()) notes.push_back(NotLookedAt(file, others));
  }
  return notes;
}

std::optional<std::string> CaseTensors::AnswerOf(const std::string& path) const {
  std::vector<std::string> answers;
  if (std::holds_alternative<AttentionCase>(c_)) answers = {"out", "lse"};
  if (std::holds_alternative<CodecCase>(c_)) {
    answers = AllPlaneNames();
    answers.emplace_back("y");
  }
  const Specs inputs = InputSpecs(c_);
  for (const std::string& name : answers) {
    if (inputs.contains(name) || choices_.map.contains(name)) continue;
    if (LastPart(path) == name || IsOtherName(path, name)) return name;
  }
  return std::nullopt;
}

std::vector<std::string> CaseTensors::TakeUnjudgedAnswers(const StoredFile& file) {
  std::vector<std::string> warnings;
  const Specs specs = OutputSpecs(c_);
  // Where --map says which tensors are meant, what lies in other groups is another question's.
  std::set<std::string> groups;
  for (const auto& [name, path] : choices_.map) groups.insert(GroupOf(path));
  std::set<std::string>& others = others_[file.path()];
  for (auto path = others.begin(); path != others.end();) {
    const std::optional<std::string> name = AnswerOf(*path);
    if (!name || (!groups.empty() && !groups.contains(GroupOf(*path)))) {
      ++path;
      continue;
    }
    warnings.push_back(
        specs.contains(*name)
            ? fmt::format("{} was not judged: '{}' is another tensor; --map {}=PATH chooses", *path,
                          *name, *name)
            : fmt::format("{} was not judged: the case asks for no '{}'", *path, *name));
    path = others.erase(path);
  }
  return warnings;
}

void CaseTensors::CheckUsed() const {
  for (const auto& [name, labels] : choices_.axes) {
    if (used_axes_.contains(name)) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("no tensor that was read has the axes {}{}", fmt::join(labels, ","),
                            name.empty() ? "" : fmt::format("; '{}' was not read", name)),
                "--axes");
  }
}

}  // namespace kvcheck
