#include "tools/corridor/kvcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "golden/plain_writer.h"
#include "golden/writer.h"
#include "reference/formats/stored_codec_source.h"
#include "reference/judge/judge.h"
#include "reference/judge/ordered_parallel.h"
#include "reference/spec/case_kind.h"
#include "tools/corridor/array_tensors.h"
#include "tools/corridor/attention_call.h"
#include "tools/corridor/codec_rule.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/judge_history.h"
#include "tools/corridor/judge_trace.h"
#include "tools/corridor/registry.h"
#include "tools/corridor/spare_tensors.h"
#include "tools/report/json_report.h"
#include "tools/report/number_text.h"
#include "tools/report/summary.h"
#include "tools/report/text_report.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

JudgeOptions OptionsOf(const Settings& settings) {
  JudgeOptions options;
  options.threads = settings.threads;
  options.strict = settings.strict;
  options.rule = settings.rule;
  options.must_see = MustSee(settings.must_see, settings.strict, settings.rule);
  options.sample_rows = settings.sample_rows;
  options.sample_seed = settings.sample_seed;
  return options;
}

constexpr const char* kSavedCase = "case";
constexpr const char* kSavedAnswer = "observed";
constexpr const char* kSavedTensor = "tensor";
constexpr const char* kReadRows = "y";

void SaveTensors(const std::string& path, const TensorMap& tensors) {
  PlainWriter writer(path);
  for (const auto& [name, tensor] : tensors) {
    writer.Begin("/" + name, tensor.dtype, tensor.shape);
    writer.Append(tensor.bytes);
  }
  writer.Finish();
}

// What is wanted and what was got are two files, as kvcheck compare takes them: one tensor, and the
// same tensor or its planes. Gives the command.
std::string SavePair(const std::string& path, const Tensor& want, const TensorMap& got,
                     const ToleranceRule& rule) {
  std::error_code ignored;  // whoever writes says what is wrong with the folder
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::string got_path = path;
  if (got_path.ends_with(".h5")) got_path.resize(got_path.size() - 3);
  got_path += ".got.h5";
  SaveTensors(path, {{kSavedTensor, want}});
  SaveTensors(got_path, got);
  return fmt::format("kvcheck compare {} {} --tol {}", ShellWord(path), ShellWord(got_path),
                     ShellWord(Print(rule)));
}

// Gives the command that judges what is saved. Errors: kUnreadableFile.
std::string SaveAnswer(const std::string& path, const Question& question, const Arrays& outputs,
                       const Settings& settings) {
  if (const auto* tensor = std::get_if<TensorCase>(&question.c);
      tensor && outputs.contains("got")) {
    return SavePair(path, Get(question.inputs, "expected"),
                    {{kSavedTensor, ToTensor("got", outputs.at("got"))}}, tensor->rule);
  }
  std::error_code ignored;  // whoever writes says what is wrong with the folder
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  GoldenCase saved;
  saved.name = kSavedCase;
  saved.case_text = Print(question.c);
  saved.inputs = question.inputs;
  // Tensors of a case have names for their axes.
  for (const auto& [name, spec] : InputSpecs(question.c)) {
    if (const auto found = saved.inputs.find(name); found != saved.inputs.end()) {
      found->second.shape = spec.shape;
    }
  }
  ObservedRecord answer;
  answer.impl = kSavedAnswer;
  answer.outputs = ToTensors(outputs);
  if (HasPlan(KindOf(question.c))) answer.plan = CommandPlan(question.plan);
  answer.profile = Print(question.profile);
  saved.observed.push_back(std::move(answer));
  GoldenWriter writer(path, ToolVersion(), "");
  writer.AddCase(saved);
  writer.Finish();
  return fmt::format("kvcheck run --data {}{}{}", ShellWord(fmt::format("{}#{}", path, kSavedCase)),
                     JudgeArguments(OptionsOf(settings)), settings.strict ? " --strict" : "");
}

Cancel CancelOf(const Settings& settings) {
  return settings.cancelled ? Cancel(settings.cancelled) : Cancel();
}

Verdict Judged(Question question, const Arrays& outputs, const Settings& settings) {
  question.plan = ParsePlan(settings.plan);
  question.profile = ParseProfile(settings.profile);
  const ArrayObserved observed(outputs);
  Verdict verdict = EvaluateCase(question, observed, OptionsOf(settings), CancelOf(settings));
  if (!settings.save.empty() && verdict.outcome != Outcome::kPass) {
    verdict.command = SaveAnswer(settings.save, question, outputs, settings);
  }
  return verdict;
}

Verdict Judged(DenseCall call, const Settings& settings, const DeviceSums& device_sums = {}) {
  Question question;
  question.device_sums = device_sums;
  question.inputs = ToTensors(call.inputs);
  CheckInputs(call.c, question.inputs);
  question.c = std::move(call.c);
  return Judged(std::move(question), call.outputs, settings);
}

// The judged elements of a tile, where they stand in the output.
void AddTile(const ExpectedTile& tile, const ExpectedSource& source,
             std::vector<ExpectedValues>* values) {
  const auto at = static_cast<size_t>(tile.output);
  const auto length = static_cast<size_t>(source.Outputs()[at].row_length);
  ExpectedValues& output = (*values)[at];
  const size_t first = static_cast<size_t>(tile.first_row) * length;
  for (size_t i = 0; i < tile.value.size(); ++i) {
    if (!tile.standing.empty() && tile.standing[i / length] != Standing::kJudged) continue;
    if (!tile.undefined.empty() && tile.undefined[i] != 0) continue;
    output.value[first + i] = tile.value[i];
    if (!tile.value_lo.empty()) output.value_low[first + i] = tile.value_lo[i];
    output.bound[first + i] =
        tile.bound[i] + (tile.reference_bound.empty() ? 0 : tile.reference_bound[i]);
  }
}

bool SeesAKey(const Verdict& verdict) {
  return std::any_of(verdict.outputs.begin(), verdict.outputs.end(),
                     [](const OutputVerdict& output) { return output.rows_with_inputs > 0; });
}

// A sequence without a visible key, beside others that have some: its answer was compared, and the
// call is proved by the others.
void PassWithoutKeys(Verdict* verdict) {
  const auto is_that = [](const std::string& reason) {
    return reason.find(kNoQuerySeesAKey) != std::string::npos;
  };
  std::erase_if(verdict->reasons, is_that);
  Outcome outcome = Outcome::kPass;
  for (OutputVerdict& output : verdict->outputs) {
    if (std::erase_if(output.reasons, is_that) > 0 && output.reasons.empty()) {
      output.outcome = Outcome::kPass;
    }
    outcome = Combine(outcome, output.outcome);
  }
  if (verdict->outcome == Outcome::kMistrusted && verdict->reasons.empty()) {
    verdict->outcome = outcome;
  }
}

}  // namespace

Verdict JudgeAttention(const AttentionCall& call, const Settings& settings) {
  DenseCalls dense = DenseCallsOf(call);
  if (dense.calls.size() == 1 && dense.calls.front().name.empty()) {
    return Judged(std::move(dense.calls.front()), settings, call.device_sums);
  }
  std::vector<Verdict> verdicts;
  std::vector<std::string> names;
  Settings left = settings;
  for (DenseCall& one : dense.calls) {
    names.push_back(one.name);
    verdicts.push_back(Judged(std::move(one), left));
    if (verdicts.back().outcome != Outcome::kPass) left.save.clear();
  }
  if (std::any_of(verdicts.begin(), verdicts.end(), SeesAKey)) {
    for (Verdict& verdict : verdicts) PassWithoutKeys(&verdict);
  }
  Verdict all;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    Verdict& verdict = verdicts[i];
    const std::string& name = names[i];
    // The first of the worst is the one that is shown.
    const bool is_worse = Combine(all.outcome, verdict.outcome) != all.outcome;
    if (is_worse || all.case_text.empty()) {
      all.case_text = verdict.case_text;
      all.command = verdict.command;
    }
    all.outcome = Combine(all.outcome, verdict.outcome);
    all.plan = verdict.plan;
    all.profile = verdict.profile;
    all.assumptions = verdict.assumptions;
    for (OutputVerdict& output : verdict.outputs) {
      output.name = name + ": " + output.name;
      all.outputs.push_back(std::move(output));
    }
    for (const std::string& reason : verdict.reasons) all.reasons.push_back(name + ": " + reason);
    for (const std::string& line : verdict.warnings) all.warnings.push_back(name + ": " + line);
  }
  for (const std::string& line : dense.not_judged) {
    all.warnings.push_back(line + ": not judged");
  }
  if (dense.calls.empty()) {
    all.outcome = Outcome::kMistrusted;
    all.reasons.push_back("no sequence has queries: nothing was judged");
  }
  return all;
}

Verdict JudgeCase(const std::string& case_text, const Arrays& inputs, const Arrays& outputs,
                  const Settings& settings) {
  Question question;
  question.c = ParseCase(case_text);
  question.inputs = DataOf(question.c).IsFile()
                        ? ToTensors(inputs)
                        : GenerateCaseInputs(question.c, ParseProfile(settings.profile));
  // What the case does not name it may have left out.
  const std::map<std::string, TensorSpec> specs = InputSpecs(question.c);
  TensorMap others;
  for (auto& [name, tensor] : question.inputs) {
    if (!specs.contains(name)) others[name] = std::move(tensor);
  }
  for (auto& [name, tensor] : others) {
    question.inputs.erase(name);
    AddSpare(question.c, name, std::move(tensor), &question.inputs);
  }
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

Verdict JudgeStoredRows(const Array& x, const Arrays& stored, const std::string& format,
                        const Settings& settings) {
  Tensor rows = ToTensor("x", x);
  if (rows.shape.axes.size() != 2) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("{} axes, where rows have two: (rows, d)", rows.shape.axes.size()),
                "array 'x'");
  }
  CodecCase c;
  c.direction = CodecDirection::kRoundTrip;
  c.format = ParseKvFormat(WholeLine(format));
  c.x = rows.dtype;
  c.rows = rows.shape.axes[0].extent;
  c.head_dim = rows.shape.axes[1].extent;
  c.data.regime = "file";
  Validate(c);
  rows.shape = InputSpecs(c).at("x").shape;
  const CodecRule rule = RuleOf(c.format, settings.profile);
  const bool is_read = stored.contains(kReadRows);  // values, and no planes
  const TripletNames names = {kReadRows, PlaneNames(c.format)};
  const ArrayObserved observed(stored);
  const MemorySink original(TensorMap{{"x", rows}});
  std::optional<std::string> mismatch;
  TripletComparison both;
  if (!is_read) {
    mismatch = TripletMismatch(c.format, rows.shape, observed, names);
    if (!mismatch) both = MakeTripletComparison(rule, original, "x", observed, names);
  } else {
    const TensorSpec& spec = OutputSpecs(c).at(kReadRows);
    const OutputInfo& got = *observed.Find(kReadRows);
    if (got.dtype != spec.dtype) {
      mismatch =
          fmt::format("{}: has type {}, {} expected", kReadRows, Name(got.dtype), Name(spec.dtype));
    } else {
      both.expected = MakeDequantisedSource(rule, original, "x", kReadRows, got.dtype);
    }
  }
  const Cancel cancel = CancelOf(settings);
  Verdict verdict = mismatch ? WithoutJudging(Outcome::kFail, *mismatch)
                             : Judge(CancellableSource(*both.expected, cancel),
                                     both.observed ? *both.observed
                                                   : static_cast<const ObservedSource&>(observed),
                                     OptionsOf(settings));
  verdict.case_text = Print(c);
  verdict.profile = Print(rule.profile);
  if (!settings.save.empty() && verdict.outcome != Outcome::kPass) {
    TensorMap got;
    for (const auto& [name, array] : stored) {
      got[is_read ? kSavedTensor : fmt::format("{}_{}", kSavedTensor, name)] =
          ToTensor(name, array);
    }
    verdict.command = SavePair(settings.save, rows, got, rule);
  }
  return verdict;
}

Verdict JudgeCache(const std::string& case_text, CacheFactory* caches, const Settings& settings) {
  const Case c = ParseCase(case_text);
  const auto* trace = std::get_if<CacheCase>(&c);
  if (trace == nullptr) {
    throw Error(ErrorCode::kIllegalCase,
                "it is no trace of operations on caches: judge a history by JudgePrefix, other "
                "cases by JudgeCase",
                case_text);
  }
  TraceOptions options;
  options.on_operation = [cancel = CancelOf(settings)](int64_t) { cancel.ThrowIfRequested(); };
  return EvaluateCacheCase(*trace, caches, nullptr, std::move(options));
}

Verdict JudgePrefix(const std::string& case_text, PrefixImplementation* cache,
                    const Settings& settings) {
  const Case c = ParseCase(case_text);
  const auto* history = std::get_if<PrefixCase>(&c);
  if (history == nullptr) {
    throw Error(
        ErrorCode::kIllegalCase,
        "it is no history of requests on a prefix cache: judge a trace by JudgeCache, other "
        "cases by JudgeCase",
        case_text);
  }
  HistoryOptions options;
  options.on_operation = [cancel = CancelOf(settings)](int64_t) { cancel.ThrowIfRequested(); };
  return EvaluatePrefixCase(*history, cache, std::move(options));
}

std::map<std::string, ExpectedValues> ReferenceAttention(const AttentionCall& call,
                                                         const Settings& settings) {
  AttentionCall asked = call;
  const auto shaped = [&](Array* array, const std::string& layout) {
    array->extents.clear();
    array->strides_bytes.clear();
    for (const char axis : layout) {
      // Of the values only V has another number of channels than Q.
      const Array& like = axis == 'd' ? call.v : call.q;
      const size_t at = call.layout.find(axis);
      if (at >= like.extents.size()) {
        throw Error(ErrorCode::kIllegalCase,
                    fmt::format("{} axes, where layout '{}' has {}", like.extents.size(),
                                call.layout, call.layout.size()),
                    axis == 'd' ? "array 'v'" : "array 'q'");
      }
      array->extents.push_back(like.extents[at]);
    }
    array->strides_bytes.assign(array->extents.size(), 0);
    // Never read: the case needs the type.
    static constexpr double kNothing = 0;
    array->data = &kNothing;
  };
  shaped(&asked.out, call.layout);
  if (asked.lse) {
    asked.lse_layout = call.layout.find('b') == std::string::npos ? "hs" : "bhs";
    shaped(&*asked.lse, asked.lse_layout);
    asked.lse->dtype = call.out.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  DenseCalls dense = DenseCallsOf(asked);
  if (dense.calls.size() != 1 || !dense.calls.front().name.empty()) {
    throw Error(ErrorCode::kUnsupported, "sequences are asked one by one", "ReferenceAttention");
  }
  Question question;
  question.inputs = ToTensors(dense.calls.front().inputs);
  question.c = dense.calls.front().c;
  question.plan = ParsePlan(settings.plan);
  question.profile = ParseProfile(settings.profile);
  const std::unique_ptr<ExpectedSource> expected = MakeExpected(question);
  const Cancel cancel = CancelOf(settings);
  const CancellableSource source(*expected, cancel);
  std::vector<ExpectedValues> values;
  for (const OutputInfo& info : source.Outputs()) {
    ExpectedValues& output = values.emplace_back();
    for (const Axis& axis : info.shape.axes) output.extents.push_back(axis.extent);
    const auto elements = static_cast<size_t>(info.shape.ElementCount());
    output.value.assign(elements, std::nan(""));
    output.value_low.assign(elements, 0);
    output.bound.assign(elements, std::nan(""));
  }
  TileRequest request;
  request.precision = Precision::kDoubleDouble;
  OrderedParallelFor(
      source.TileCount(), settings.threads,
      [&](int64_t index) { return source.Tiles(index, request); },
      [&](int64_t, const std::vector<ExpectedTile>& tiles) {
        for (const ExpectedTile& tile : tiles) AddTile(tile, source, &values);
      });
  std::map<std::string, ExpectedValues> named;
  for (size_t i = 0; i < values.size(); ++i) {
    named[source.Outputs()[i].name] = std::move(values[i]);
  }
  return named;
}

std::string TextOf(const Verdict& verdict, bool verbose) {
  CaseResult result;
  result.verdict = verdict;
  TextOptions options;
  options.verbose = verbose;
  return CaseText(result, options);
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
