#include "tools/flashinfer/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <utility>

#include "golden/mapped_file.h"
#include "golden/safetensors_file.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using Kind = DumpedValue::Kind;

const char* KindText(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kNumber:
      return "a number";
    case Kind::kText:
      return "a text";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kItems:
      return "a tuple";
    case Kind::kOther:
      break;
  }
  return "an object";
}

[[noreturn]] void RefuseKind(const std::string& name, Kind kind, const char* wanted) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("is {}, where {} is understood", KindText(kind), wanted),
              fmt::format("argument '{}'", name));
}

// As Python prints a default.
DumpedValue DefaultOf(const std::string& text) {
  DumpedValue value;
  if (text.empty() || text == "None") return value;
  if (text == "True" || text == "False") {
    value.kind = Kind::kBool;
    value.flag = text == "True";
    return value;
  }
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"')) {
    value.kind = Kind::kText;
    value.text = text.substr(1, text.size() - 2);
    return value;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.number);
  if (error == std::errc() && end == text.data() + text.size()) {
    value.kind = Kind::kNumber;
    return value;
  }
  value.kind = Kind::kOther;
  value.text = text;
  return value;
}

}  // namespace

struct MappedTensors::State {
  SafetensorsFile file;
  MappedFile bytes;
  std::deque<MappedFile::Window> windows;

  explicit State(const std::string& path) : file(path), bytes(path) {}
};

MappedTensors::MappedTensors(const std::string& path) {
  try {
    state_ = std::make_unique<State>(path);
  } catch (const Error& error) {
    // One call of many: the others are judged.
    if (error.code() != ErrorCode::kUnreadableFile) throw;
    throw Error(ErrorCode::kMissingData, error.message(), error.context());
  }
}

MappedTensors::~MappedTensors() = default;

Array MappedTensors::Get(const std::string& name) {
  const auto& objects = state_->file.index().objects;
  const auto found = objects.find("/" + name);
  if (found == objects.end() || !found->second.is_dataset) {
    throw Error(ErrorCode::kMissingData, fmt::format("has no tensor '{}'", name),
                state_->file.path());
  }
  const ObjectRecord& record = found->second;
  if (!record.problem.empty() || !record.data_offset) {
    throw Error(ErrorCode::kMissingData, fmt::format("tensor '{}': {}", name, record.problem),
                state_->file.path());
  }
  Array array;
  array.dtype = record.dtype;
  for (const Axis& axis : record.shape.axes) array.extents.push_back(axis.extent);
  const int64_t elements = record.shape.ElementCount();
  if (elements > 0) {
    state_->windows.push_back(state_->bytes.Map(
        *record.data_offset, elements * static_cast<int64_t>(SizeInBytes(record.dtype))));
    array.data = state_->windows.back().data();
  }
  return array;
}

void MappedTensors::ThrowIfDamaged() const { state_->bytes.ThrowIfDamaged(); }

Arguments::Arguments(const DumpedCall& call, const std::vector<std::string>& positional)
    : call_(call), values_(call.arguments) {
  for (const Parameter& parameter : call.signature) {
    defaults_[parameter.name] = DefaultOf(parameter.default_text);
  }
  has_unnamed_ = call.unnamed.size() > positional.size();
  for (size_t i = 0; !has_unnamed_ && i < call.unnamed.size(); ++i) {
    values_[positional[i]] = call.unnamed[i];
  }
}

const DumpedValue& Arguments::Value(const std::string& name) const {
  static const DumpedValue kNone;
  if (const auto passed = values_.find(name); passed != values_.end()) return passed->second;
  const auto left_out = defaults_.find(name);
  return left_out == defaults_.end() ? kNone : left_out->second;
}

bool Arguments::IsNone(const std::string& name) const { return Value(name).kind == Kind::kNone; }

bool Arguments::Flag(const std::string& name) const {
  const DumpedValue& value = Value(name);
  if (value.kind == Kind::kNone) return false;
  // Callers also pass 0 and 1.
  if (value.kind == Kind::kNumber) return value.number != 0;
  if (value.kind != Kind::kBool) RefuseKind(name, value.kind, "a bool");
  return value.flag;
}

std::optional<double> Arguments::Number(const std::string& name) const {
  const DumpedValue& value = Value(name);
  if (value.kind == Kind::kNone) return std::nullopt;
  if (value.kind != Kind::kNumber) RefuseKind(name, value.kind, "a number");
  return value.number;
}

std::string Arguments::Text(const std::string& name) const {
  const DumpedValue& value = Value(name);
  if (value.kind == Kind::kNone) return "";
  if (value.kind != Kind::kText) RefuseKind(name, value.kind, "a text");
  return value.text;
}

std::optional<Array> Arguments::Tensor(const std::string& name) {
  const DumpedValue& value = Value(name);
  if (value.kind == Kind::kNone) return std::nullopt;
  return TensorOf(name, value);
}

Array Arguments::TensorOf(const std::string& name, const DumpedValue& value) {
  if (value.kind != Kind::kTensor) RefuseKind(name, value.kind, "a tensor");
  if (!inputs_) inputs_ = std::make_unique<MappedTensors>(call_.path + "/inputs.safetensors");
  return inputs_->Get(value.text);
}

void Arguments::RefuseUnknown(const std::vector<std::string>& known) const {
  if (has_unnamed_) {
    throw Error(ErrorCode::kUnsupported,
                "passes arguments that its signature does not name: they belong to a kernel of the "
                "caller's own");
  }
  for (const auto& [name, value] : values_) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto left_out = defaults_.find(name);
    if (value == (left_out == defaults_.end() ? DumpedValue() : left_out->second)) continue;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("argument '{}' is not understood: it may change what is computed", name));
  }
}

void Arguments::ThrowIfDamaged() const {
  if (inputs_) inputs_->ThrowIfDamaged();
}

}  // namespace kvcheck
