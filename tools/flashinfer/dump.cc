#include "tools/flashinfer/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "golden/text_file.h"
#include "golden/unique_json.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Far above a record: arguments are listed without the elements of tensors.
constexpr size_t kMostMetadataBytes = size_t{1} << 26;
constexpr size_t kMostSessionBytes = size_t{1} << 30;
// FlashInfer nests containers up to 8 deep.
constexpr int kMostDepth = 16;
constexpr size_t kMostArguments = 1000;

[[noreturn]] void Refuse(const std::string& why) { throw Error(ErrorCode::kMissingData, why); }

const json& Member(const json& object, const char* name) {
  static const json kNothing;
  if (!object.is_object()) Refuse(fmt::format("no object around '{}'", name));
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

std::string TextMember(const json& object, const char* name) {
  const json& member = Member(object, name);
  if (!member.is_string()) Refuse(fmt::format("'{}' is no text", name));
  return member.get<std::string>();
}

std::vector<std::string> TextList(const json& list, const char* name) {
  if (!list.is_array()) Refuse(fmt::format("'{}' is no list", name));
  std::vector<std::string> texts;
  for (const json& entry : list) {
    if (!entry.is_string()) Refuse(fmt::format("'{}' holds what is no text", name));
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

DumpedValue TensorValue(std::string key) {
  DumpedValue value;
  value.kind = DumpedValue::Kind::kTensor;
  value.text = std::move(key);
  return value;
}

// What a value of input_metadata means.
DumpedValue ValueOf(const json& stored, int depth = 0) {
  using Kind = DumpedValue::Kind;
  if (depth > kMostDepth) Refuse("an argument is nested too deep");
  DumpedValue value;
  if (stored.is_boolean()) {
    value.kind = Kind::kBool;
    value.flag = stored.get<bool>();
  } else if (stored.is_number()) {
    value.kind = Kind::kNumber;
    value.number = stored.get<double>();
  } else if (stored.is_string()) {
    value.kind = Kind::kText;
    value.text = stored.get<std::string>();
  } else if (stored.is_object()) {
    const std::string type = TextMember(stored, "type");
    const json& key = Member(stored, "tensor_key");
    const json& items = Member(stored, "items");
    if (key.is_string()) return TensorValue(key.get<std::string>());
    value.kind = Kind::kOther;
    value.text = type;
    if ((type == "tuple" || type == "list") && items.is_array()) {
      value.kind = Kind::kItems;
      for (const json& item : items) value.items.push_back(ValueOf(item, depth + 1));
    }
  } else if (!stored.is_null()) {
    value.kind = Kind::kOther;
    value.text = "list";
  }
  return value;
}

// "arg_3" is the fourth positional argument.
std::optional<size_t> Position(std::string_view key) {
  if (!key.starts_with("arg_")) return std::nullopt;
  key.remove_prefix(4);
  size_t position = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), position);
  if (error != std::errc() || end != key.data() + key.size() || position >= kMostArguments) {
    return std::nullopt;
  }
  return position;
}

// Arguments under the names of the signature.
void TakeArguments(const json& record, DumpedCall* call) {
  std::map<size_t, DumpedValue> positional;
  const auto take = [&](const std::string& key, DumpedValue value) {
    if (key.starts_with("kwarg_")) {
      call->arguments[key.substr(6)] = std::move(value);
    } else if (const auto position = Position(key)) {
      positional[*position] = std::move(value);
    } else {
      Refuse(fmt::format("'{}' is no argument", key));
    }
  };
  const json& metadata = Member(record, "input_metadata");
  if (!metadata.is_object()) Refuse("'input_metadata' is no object");
  for (const auto& [key, stored] : metadata.items()) take(key, ValueOf(stored));
  for (const std::string& key :
       TextList(Member(Member(record, "tensor_info"), "input_tensor_keys"), "input_tensor_keys")) {
    // Tensors inside of a tuple stand in the tuple.
    const size_t nested = key.find("__");
    if (nested != std::string::npos && metadata.contains(key.substr(0, nested))) continue;
    take(key, TensorValue(key));
  }
  std::vector<const Parameter*> named;
  for (const Parameter& parameter : call->signature) {
    if (parameter.is_positional) named.push_back(&parameter);
  }
  size_t expected = 0;
  for (auto& [position, value] : positional) {
    if (position != expected++)
      Refuse(fmt::format("positional argument {} is missing", expected - 1));
    if (position < named.size()) {
      call->arguments[named[position]->name] = std::move(value);
    } else {
      call->unnamed.push_back(std::move(value));
    }
  }
}

// Tensors whose elements did not follow each other.
void TakeStrides(const json& record, DumpedCall* call) {
  const json& details = Member(record, "tensor_details");
  if (!details.is_object()) return;
  for (const auto& [key, detail] : details.items()) {
    if (!detail.is_object()) continue;
    const json& shape = Member(detail, "shape");
    const json& strides = Member(detail, "stride");
    if (!shape.is_array() || !strides.is_array() || shape.size() != strides.size()) continue;
    double expected = 1;
    bool contiguous = true;
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (!shape[axis].is_number() || !strides[axis].is_number()) break;
      const double extent = shape[axis].get<double>();
      if (extent == 0) {
        contiguous = true;
        break;
      }
      if (extent != 1 && strides[axis].get<double>() != expected) contiguous = false;
      expected *= extent;
    }
    if (!contiguous) call->strided.insert(key);
  }
}

DumpedCall CallOf(const json& record) {
  DumpedCall call;
  call.function = TextMember(record, "function_name");
  call.signature = ParseSignature(TextMember(record, "function_signature"));
  call.is_safetensors = TextMember(record, "tensor_format") == "safetensors";
  const std::string state = TextMember(record, "execution_status");
  call.state = state == "completed"                     ? DumpedCall::State::kFinished
               : state == "graph_capture_pending_flush" ? DumpedCall::State::kNotReplayed
                                                        : DumpedCall::State::kUnfinished;
  // Python's id of an object may exceed what a double holds: the text tells two apart.
  if (const json& self = Member(record, "self_id"); self.is_number()) {
    call.object = fmt::format("{} {}", Member(record, "process_id").dump(), self.dump());
  }
  const json& versions = Member(record, "versions");
  if (versions.is_object()) {
    const json& version = Member(versions, "flashinfer");
    if (version.is_string()) call.version = version.get<std::string>();
  }
  for (std::string& key : TextList(Member(Member(record, "tensor_info"), "output_tensor_keys"),
                                   "output_tensor_keys")) {
    call.outputs.insert(std::move(key));
  }
  TakeArguments(record, &call);
  TakeStrides(record, &call);
  return call;
}

// The last record of a metadata.jsonl says all that is known. Errors: kUnreadableFile,
// kMissingData, kParse.
DumpedCall ReadCall(const fs::path& folder) {
  const std::string path = (folder / "metadata.jsonl").string();
  const std::string text = ReadWholeText(path, kMostMetadataBytes);
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) Refuse("metadata.jsonl is empty");
  const size_t before = text.rfind('\n', end);
  const size_t first = before == std::string::npos ? 0 : before + 1;
  const json record = ParseUniqueJson(std::string_view(text).substr(first, end + 1 - first), path);
  if (record.is_discarded()) Refuse("the last line of metadata.jsonl is no JSON");
  return CallOf(record);
}

// STAMP_pidP_FUNCTION_callNNNN; "" where the name is none of a call.
std::string FunctionOfFolder(const std::string& name) {
  const size_t pid = name.find("_pid");
  const size_t call = name.rfind("_call");
  if (pid == std::string::npos || call == std::string::npos) return "";
  const size_t first = name.find('_', pid + 4);
  return first == std::string::npos || first >= call ? ""
                                                     : name.substr(first + 1, call - first - 1);
}

std::vector<std::string> FoldersIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored)) names.push_back(at->path().filename().string());
  }
  if (error) throw Error(ErrorCode::kUnreadableFile, error.message(), folder.string());
  std::sort(names.begin(), names.end());
  return names;
}

// The place of each call in session.jsonl, by its folder. Its paths are those of the machine that
// wrote it, so that only their ends are looked at.
std::map<std::string, size_t> SessionOrder(const fs::path& folder) {
  std::map<std::string, size_t> order;
  const fs::path path = folder / "session.jsonl";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return order;
  const std::string text = ReadWholeText(path.string(), kMostSessionBytes);
  size_t line = 0;
  for (size_t first = 0; first < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', first), text.size());
    const json record = ParseUniqueJson(std::string_view(text).substr(first, end - first),
                                        fmt::format("{}:{}", path.string(), line + 1));
    first = end + 1;
    // The last line may have been cut short by a crash.
    if (!record.is_object()) continue;
    const json& stored = Member(record, "dump_dir");
    if (!stored.is_string()) continue;
    const fs::path dump(stored.get<std::string>());
    const std::string name = dump.filename().string();
    const bool is_flush = dump.parent_path().filename() == "graph_flushes";
    const std::string whole =
        is_flush ? fmt::format("{}/graph_flushes/{}",
                               dump.parent_path().parent_path().filename().string(), name)
                 : name;
    order.emplace(whole, line);
  }
  return order;
}

void AddCall(const fs::path& root, const std::string& name, const std::string& function,
             bool is_replay, Dump* dump) {
  try {
    DumpedCall call = ReadCall(root / name);
    call.folder = name;
    call.path = (root / name).string();
    call.is_replay = is_replay;
    dump->calls.push_back(std::move(call));
  } catch (const Error& error) {
    const std::string where = error.context().empty() ? "" : error.context() + ": ";
    dump->unread.push_back({name, function, where + error.message()});
  }
}

}  // namespace

Dump ReadDump(const std::string& folder) {
  const fs::path root(folder);
  std::error_code ignored;
  if (!fs::is_directory(root, ignored)) {
    throw Error(ErrorCode::kUnreadableFile,
                fs::exists(root, ignored)
                    ? "is no folder: give the one that FLASHINFER_DUMP_DIR names"
                    : "there is no such folder",
                folder);
  }
  if (fs::exists(root / "metadata.jsonl", ignored)) {
    throw Error(
        ErrorCode::kUsage,
        "is the folder of one call: give the one above it, which has the plans of a run too, "
        "and --include with the name of this one",
        folder);
  }
  Dump dump;
  for (const std::string& name : FoldersIn(root)) {
    const std::string function = FunctionOfFolder(name);
    if (function.empty()) continue;
    if (!fs::exists(root / name / "metadata.jsonl", ignored)) {
      dump.unread.push_back(
          {name, function,
           "has no metadata.jsonl: FlashInfer could not write the inputs (safetensors refuses "
           "tensors that share memory; its log says why)",
           true});
      continue;
    }
    // Replays of a graph are calls of their own; what lies above them is the last one again.
    const fs::path flushes = fs::path(name) / "graph_flushes";
    if (fs::is_directory(root / flushes, ignored)) {
      for (const std::string& flush : FoldersIn(root / flushes)) {
        AddCall(root, (flushes / flush).string(), function, true, &dump);
      }
    } else {
      AddCall(root, name, function, false, &dump);
    }
  }
  if (dump.calls.empty() && dump.unread.empty()) {
    throw Error(ErrorCode::kSelection,
                "no folder in it is a call that FlashInfer dumped (STAMP_pidP_FUNCTION_callNNNN): "
                "set FLASHINFER_LOGLEVEL=10 and FLASHINFER_DUMP_SAFETENSORS=1",
                folder);
  }
  const std::map<std::string, size_t> order = SessionOrder(root);
  dump.is_ordered = std::all_of(dump.calls.begin(), dump.calls.end(), [&](const DumpedCall& call) {
    return order.contains(call.folder);
  });
  const auto place = [&](const DumpedCall& call) {
    // Names begin with the time stamp; of one millisecond a wrapper is made, planned, then run.
    const size_t rank = call.function.ends_with("__init__") ? 0
                        : call.function.ends_with(".plan")  ? 1
                                                            : 2;
    const std::string stamp = call.folder.substr(0, call.folder.find("_pid"));
    return dump.is_ordered
               ? std::tuple(order.at(call.folder), std::string(), size_t{0}, call.folder)
               : std::tuple(size_t{0}, stamp, rank, call.folder);
  };
  std::sort(dump.calls.begin(), dump.calls.end(),
            [&](const DumpedCall& a, const DumpedCall& b) { return place(a) < place(b); });
  return dump;
}

}  // namespace kvcheck
