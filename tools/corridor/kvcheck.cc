#include "tools/corridor/kvcheck.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <variant>

#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/judge_trace.h"
#include "tools/report/json_report.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

// Innermost rows of an array, copied to one after the other.
void CopyRows(const std::byte* from, std::span<const int64_t> extents,
              std::span<const int64_t> strides, size_t element_bytes, std::byte** to) {
  if (extents.empty()) {
    std::memcpy(*to, from, element_bytes);
    *to += element_bytes;
    return;
  }
  if (extents.size() == 1 && strides[0] == static_cast<int64_t>(element_bytes)) {
    const size_t bytes = static_cast<size_t>(extents[0]) * element_bytes;
    std::memcpy(*to, from, bytes);
    *to += bytes;
    return;
  }
  for (int64_t i = 0; i < extents[0]; ++i) {
    CopyRows(from + i * strides[0], extents.subspan(1), strides.subspan(1), element_bytes, to);
  }
}

[[noreturn]] void Refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kMissingData, why, fmt::format("array '{}'", name));
}

Tensor ToTensor(const std::string& name, const Array& array) {
  double elements = 1;
  for (const int64_t extent : array.extents) {
    if (extent < 0) Refuse(name, fmt::format("an extent of {}", extent));
    elements *= static_cast<double>(extent);
  }
  if (!array.strides_bytes.empty() && array.strides_bytes.size() != array.extents.size()) {
    Refuse(name, fmt::format("{} strides for {} axes: give one for each, or none",
                             array.strides_bytes.size(), array.extents.size()));
  }
  CheckFitsMemory(elements * static_cast<double>(SizeInBytes(array.dtype)),
                  fmt::format("array '{}'", name));
  if (elements > 0 && array.data == nullptr) Refuse(name, "its data are a null pointer");
  Tensor tensor(array.dtype, Shape::Unnamed(array.extents));
  if (tensor.bytes.empty()) return tensor;
  std::vector<int64_t> strides = array.strides_bytes;
  if (strides.empty()) {
    strides.resize(array.extents.size());
    int64_t bytes = static_cast<int64_t>(SizeInBytes(array.dtype));
    for (size_t axis = strides.size(); axis-- > 0;) {
      strides[axis] = bytes;
      bytes *= array.extents[axis];
    }
  }
  std::byte* to = tensor.bytes.data();
  CopyRows(static_cast<const std::byte*>(array.data), array.extents, strides,
           SizeInBytes(array.dtype), &to);
  return tensor;
}

TensorMap ToTensors(const Arrays& arrays) {
  TensorMap tensors;
  for (const auto& [name, array] : arrays) tensors[name] = ToTensor(name, array);
  return tensors;
}

JudgeOptions OptionsOf(const Settings& settings, const Case& c) {
  JudgeOptions options;
  options.threads = settings.threads;
  options.strict = settings.strict;
  options.statistics = true;
  options.statistics_tests = CountStatistics(c);
  return options;
}

Cancel CancelOf(const Settings& settings) {
  return settings.cancelled ? Cancel(settings.cancelled) : Cancel();
}

Verdict Judged(Question question, const Arrays& outputs, const Settings& settings) {
  question.plan = ParsePlan(settings.plan);
  question.profile = ParseProfile(settings.profile);
  const MemorySink observed(ToTensors(outputs));
  return EvaluateCase(question, observed, OptionsOf(settings, question.c), CancelOf(settings));
}

// An extent, which another array's must equal.
int64_t Extent(const char* name, const Array& array, size_t axes, size_t axis) {
  if (array.extents.size() != axes) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("{} axes ({}), where attention has {}", array.extents.size(),
                            fmt::join(array.extents, " x "), axes),
                fmt::format("array '{}'", name));
  }
  return array.extents[axis];
}

AttentionCase CaseOf(const AttentionCall& call) {
  AttentionCase c;
  c.batch = Extent("q", call.q, 4, 0);
  c.query_heads = Extent("q", call.q, 4, 1);
  c.query_len = Extent("q", call.q, 4, 2);
  c.k_dim = Extent("q", call.q, 4, 3);
  c.kv_heads = Extent("k", call.k, 4, 1);
  c.kv_len = Extent("k", call.k, 4, 2);
  c.v_dim = Extent("v", call.v, 4, 3);
  c.q = call.q.dtype;
  c.k = PlainFormat{call.k.dtype};
  c.v = PlainFormat{call.v.dtype};
  c.out = call.out.dtype;
  c.mask = ParseMask(WholeLine(call.mask));
  c.scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(c.k_dim)));
  c.softcap = call.softcap;
  if (call.sinks) c.sinks = call.sinks->dtype;
  c.alibi = call.alibi_slopes.has_value();
  c.lse = call.lse ? call.lse_kind : LseKind::kNone;
  c.data.regime = "file";
  return c;
}

}  // namespace

Verdict JudgeAttention(const AttentionCall& call, const Settings& settings) {
  Question question;
  question.c = CaseOf(call);
  Validate(question.c);
  Arrays inputs = {{"q", call.q}, {"k", call.k}, {"v", call.v}};
  if (call.mask_array) inputs["mask"] = *call.mask_array;
  if (call.sinks) inputs["sinks"] = *call.sinks;
  if (call.alibi_slopes) inputs["alibi_slopes"] = *call.alibi_slopes;
  Arrays outputs = {{"out", call.out}};
  if (call.lse) outputs["lse"] = *call.lse;
  question.inputs = ToTensors(inputs);
  CheckInputs(question.c, question.inputs);
  return Judged(std::move(question), outputs, settings);
}

Verdict JudgeCase(const std::string& case_text, const Arrays& inputs, const Arrays& outputs,
                  const Settings& settings) {
  Question question;
  question.c = ParseCase(case_text);
  question.inputs = DataOf(question.c).IsFile()
                        ? ToTensors(inputs)
                        : GenerateCaseInputs(question.c, ParseProfile(settings.profile));
  return Judged(std::move(question), outputs, settings);
}

Verdict JudgeArrays(const Array& want, const Array& got, const std::string& rule,
                    const Settings& settings) {
  Question question;
  const Tensor expected = ToTensor("want", want);
  question.c = TensorCase{.dtype = want.dtype,
                          .shape = expected.shape,
                          .rule = ParseToleranceRule(WholeLine(rule)),
                          .data = {"file", 0, ""}};
  Validate(question.c);
  question.inputs["expected"] = expected;
  return Judged(std::move(question), {{"got", got}}, settings);
}

Verdict JudgeCache(const std::string& case_text, CacheFactory* caches, const Settings& settings) {
  const Case c = ParseCase(case_text);
  const auto* trace = std::get_if<CacheCase>(&c);
  if (trace == nullptr) {
    throw Error(ErrorCode::kIllegalCase,
                "it is no trace of operations on caches: judge it by "
                "JudgeCase",
                case_text);
  }
  TraceOptions options;
  options.on_operation = [cancel = CancelOf(settings)](int64_t) { cancel.ThrowIfRequested(); };
  return EvaluateCacheCase(*trace, caches, nullptr, std::move(options));
}

std::string TextOf(const Verdict& verdict) {
  CaseResult result;
  result.verdict = verdict;
  return CaseText(result, TextOptions{});
}

std::string JsonOf(const Verdict& verdict) {
  CaseResult result;
  result.verdict = verdict;
  Summary summary;
  summary.Add(result, false);
  return JsonReport({&result, 1}, summary, false, ToolVersion());
}

int ExitCodeOf(const Verdict& verdict) {
  CaseResult result;
  result.verdict = verdict;
  Summary summary;
  summary.Add(result, false);
  return summary.ExitCode();
}

}  // namespace kvcheck
