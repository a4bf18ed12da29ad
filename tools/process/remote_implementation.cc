#include "tools/process/remote_implementation.h"

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "reference/spec/case_kind.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

class FieldWriter {
 public:
  explicit FieldWriter(WireWriter& writer) : writer_(writer) {}
  void Number(std::string_view key, int64_t value) {
    writer_.Key(key);
    writer_.Integer(value);
  }
  void Text(std::string_view key, std::string_view value) {
    writer_.Key(key);
    writer_.Text(value);
  }
  void Real(std::string_view key, std::optional<double> value) {
    writer_.Key(key);
    value ? writer_.Float(*value) : writer_.Nil();
  }
  void Flag(std::string_view key, bool value) {
    writer_.Key(key);
    writer_.Bool(value);
  }

 private:
  WireWriter& writer_;
};

void PutMask(const MaskSpec& mask, WireWriter& writer) {
  FieldWriter fields(writer);
  fields.Text("mask", Print(mask));
  fields.Text("causal", mask.causal == CausalAlignment::kNone          ? "none"
                        : mask.causal == CausalAlignment::kBottomRight ? "bottom_right"
                                                                       : "top_left");
  writer.Key("window");
  mask.window ? writer.Integer(*mask.window) : writer.Nil();
  writer.Key("left_padding");
  writer.Integers(mask.left_padding);
  fields.Text("mask_array", mask.array == MaskArrayKind::kNone      ? "none"
                            : mask.array == MaskArrayKind::kBoolean ? "bool"
                                                                    : "additive");
}

void PutFields(const AttentionCase& c, WireWriter& writer) {
  FieldWriter fields(writer);
  fields.Number("batch", c.batch);
  fields.Number("query_heads", c.query_heads);
  fields.Number("kv_heads", c.kv_heads);
  fields.Number("query_len", c.query_len);
  fields.Number("kv_len", c.kv_len);
  fields.Number("k_dim", c.k_dim);
  fields.Number("v_dim", c.v_dim);
  fields.Text("q", ShortName(c.q));
  fields.Text("k", Print(c.k));
  fields.Text("v", Print(c.v));
  fields.Text("out", ShortName(c.out));
  PutMask(c.mask, writer);
  fields.Real("scale", c.scale);
  fields.Real("softcap", c.softcap);
  writer.Key("sinks");
  c.sinks ? writer.Text(ShortName(*c.sinks)) : writer.Nil();
  fields.Flag("alibi", c.alibi);
  fields.Text("lse", c.lse == LseKind::kNone      ? "none"
                     : c.lse == LseKind::kNatural ? "natural"
                                                  : "base2");
  // Only where it is another than adapters know: f32, or f64 beside an output in f64.
  if (c.lse != LseKind::kNone && c.lse_type) fields.Text("lse_type", ShortName(*c.lse_type));
  fields.Flag("against_original", c.against_original);
}

void PutFields(const CodecCase& c, WireWriter& writer) {
  FieldWriter fields(writer);
  fields.Text("operation", Name(c.direction));
  fields.Text("format", Print(c.format));
  fields.Text("x", ShortName(c.x));
  fields.Number("rows", c.rows);
  fields.Number("head_dim", c.head_dim);
}

template <typename T, typename F>
std::optional<T> Said(const WireValue& answer, std::string_view key, F parse) {
  const std::optional<WireValue> value = answer.Find(key);
  if (!value) return std::nullopt;
  const std::string_view text = value->AsText(fmt::format("'{}'", key));
  try {
    return parse(text);
  } catch (const Error& error) {
    throw WireError(
        fmt::format("'{}' is '{}': {}", key, CleanText(text, 100), CleanText(error.message())));
  }
}

}  // namespace

Capabilities RemoteImplementation::GetCapabilities() const {
  const Greeting& greeting = process_->greeting();
  Capabilities capabilities;
  capabilities.name = greeting.name;
  capabilities.version = greeting.version;
  for (const std::string& kind : greeting.kinds) {
    if (HasTensors(*FindCaseKind(kind))) capabilities.kinds.push_back(kind);
  }
  capabilities.plan = greeting.plan;
  capabilities.profile = greeting.profile;
  capabilities.attention_spaces = greeting.attention_spaces;
  capabilities.codec_spaces = greeting.codec_spaces;
  capabilities.states_plan = true;
  capabilities.conventions = Conventions::kOwn;
  capabilities.foreign = true;
  capabilities.warnings = greeting.warnings;
  return capabilities;
}

RunOutcome RemoteImplementation::Run(const Case& c, const TensorMap& inputs, Sink& sink) {
  answer_plan_.reset();
  answer_profile_.reset();
  reason_.clear();
  const bool is_attention = std::holds_alternative<AttentionCase>(c);
  if (!is_attention && !std::holds_alternative<CodecCase>(c)) return RunOutcome::kUnsupported;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : inputs) bytes += static_cast<int64_t>(tensor.bytes.size());
  if (bytes > kMaxFrameBytes) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the inputs have {} bytes, and a frame of the process protocol has {} "
                            "at most: make the case smaller",
                            bytes, kMaxFrameBytes));
  }
  WireWriter& writer = process_->Begin("case");
  writer.Key("case");
  writer.Text(Print(c));
  writer.Key("fields");
  writer.StartMap();
  writer.Key("kind");
  writer.Text(KindName(c));
  if (is_attention) {
    PutFields(std::get<AttentionCase>(c), writer);
  } else {
    PutFields(std::get<CodecCase>(c), writer);
  }
  writer.EndMap();
  writer.Key("inputs");
  writer.StartMap();
  const std::map<std::string, TensorSpec> wanted = InputSpecs(c);
  for (const auto& [name, tensor] : inputs) {
    if (!wanted.contains(name)) continue;  // lies beside the inputs, and is none
    std::vector<int64_t> extents;
    for (const Axis& axis : tensor.shape.axes) extents.push_back(axis.extent);
    writer.Key(name);
    const std::span<std::byte> to = writer.Array(tensor.dtype, extents);
    if (!to.empty()) std::memcpy(to.data(), tensor.bytes.data(), to.size());
  }
  writer.EndMap();
  writer.Key("plan");
  writer.Text(Print(plan_));
  writer.Key("profile");
  writer.Text(Print(profile_));
  const WireValue answer = process_->Call();
  const std::map<std::string, TensorSpec> specs = OutputSpecs(c);
  return process_->Interpret([&] {
    if (const std::optional<WireValue> unsupported = answer.Find("unsupported")) {
      reason_ = CleanText(unsupported->AsText("'unsupported'"));
      return RunOutcome::kUnsupported;
    }
    if (const std::optional<WireValue> refused = answer.Find("refused")) {
      reason_ = CleanText(refused->AsText("'refused'"));
      return RunOutcome::kRefused;
    }
    answer_plan_ = Said<Plan>(answer, "plan", ParsePlan);
    answer_profile_ = Said<Profile>(answer, "profile", ParseProfile);
    answer.Get("outputs").ForEach("'outputs'", [&](std::string_view name, const WireValue& value) {
      const auto spec = specs.find(std::string(name));
      if (spec == specs.end()) return;
      const WireArray array = value.AsArray(fmt::format("the output '{}'", spec->first));
      Shape shape = Shape::Unnamed({array.extents, array.extents + array.rank});
      // Of another shape it is judged as that.
      if (shape.SameExtents(spec->second.shape)) shape = spec->second.shape;
      sink.Declare(spec->first, array.dtype, shape);
      sink.Write(spec->first, 0, array.bytes);
    });
    return RunOutcome::kAnswered;
  });
}

}  // namespace kvcheck
