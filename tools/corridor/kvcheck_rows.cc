// Of the library: rows in a format, drawn tensors, and what an implementation answers.

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "reference/spec/case_kind.h"
#include "tools/corridor/array_tensors.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/kvcheck.h"
#include "tools/corridor/registry.h"

namespace kvcheck {
namespace {

TensorMap Answered(Question question, const std::string& implementation, const Settings& settings) {
  const CaseKind kind = KindOf(question.c);
  const std::string name = implementation.empty() ? DefaultImplementation(kind) : implementation;
  if (FindImplementation(name) == nullptr || !IsOfThisProgram(name)) {
    RefuseImplementation(kind, name);
  }
  question.plan = ParsePlan(settings.plan);
  question.profile = ParseProfile(settings.profile);
  CheckInputs(question.c, question.inputs);
  const std::unique_ptr<Implementation> answerer =
      MakeImplementation(kind, name, question.plan, question.profile);
  answerer->SetThreads(settings.threads);
  const Cancel cancel = settings.cancelled ? Cancel(settings.cancelled) : Cancel();
  std::optional<MemorySink> answer = Answer(*answerer, question, cancel);
  if (!answer) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("implementation '{}' declines this case: {}", name, answerer->Reason()),
                Print(question.c));
  }
  return std::move(answer->tensors());
}

CodecCase RowsCase(CodecDirection direction, const std::string& format, DType rows, int64_t count,
                   int64_t d) {
  CodecCase c;
  c.direction = direction;
  c.format = ParseKvFormat(WholeLine(format));
  c.x = rows;
  c.rows = count;
  c.head_dim = d;
  c.data.regime = "file";
  Validate(c);
  return c;
}

// Channels of a row whose first plane has `elements`: planes grow by the same number from block to
// block. Errors: kIllegalCase where no number of blocks has as many.
int64_t ChannelsOf(const KvFormat& format, int64_t elements) {
  const int64_t block = BlockOf(format);
  const int64_t one = PlanesOf(format, block)[0].elements;
  const int64_t step = PlanesOf(format, 2 * block)[0].elements - one;
  const int64_t more = elements - one;
  if (step < 1 || more < 0 || more % step != 0) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("{} elements are no whole blocks of {} channels", elements, block),
                fmt::format("plane '{}' of {}", PlanesOf(format, block)[0].name, Print(format)));
  }
  return (1 + more / step) * block;
}

}  // namespace

TensorMap EncodeRows(const Array& x, const std::string& format, const Settings& settings) {
  if (x.extents.size() != 2) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("{} axes, where rows have two: (rows, d)", x.extents.size()),
                "array 'x'");
  }
  Question question;
  question.c = RowsCase(CodecDirection::kEncode, format, x.dtype, x.extents[0], x.extents[1]);
  question.inputs["x"] = ToTensor("x", x);
  return Answered(std::move(question), "reference", settings);
}

Tensor DecodeRows(const Arrays& planes, const std::string& format, DType rows, int64_t d,
                  const Settings& settings) {
  if (planes.empty() || planes.begin()->second.extents.size() != 2) {
    throw Error(ErrorCode::kMissingData, "stored rows are planes of two axes (rows, elements)",
                "planes of " + format);
  }
  if (d < 1) {
    const KvFormat stored = ParseKvFormat(WholeLine(format));
    const std::string first(PlanesOf(stored, BlockOf(stored))[0].name);
    const auto plane = planes.find(first);
    if (plane == planes.end() || plane->second.extents.size() != 2) {
      throw Error(ErrorCode::kMissingData, "is needed, with the axes (rows, elements)",
                  fmt::format("plane '{}' of {}", first, format));
    }
    d = ChannelsOf(stored, plane->second.extents[1]);
  }
  Question question;
  question.c =
      RowsCase(CodecDirection::kDecode, format, rows, planes.begin()->second.extents[0], d);
  question.inputs = ToTensors(planes);
  return std::move(Answered(std::move(question), "reference", settings).at("y"));
}

TensorMap DrawInputs(const std::string& case_text, const Settings& settings) {
  return GenerateCaseInputs(ParseCase(case_text), ParseProfile(settings.profile));
}

TensorMap AnswerCase(const std::string& case_text, const Arrays& inputs,
                     const std::string& implementation, const Settings& settings) {
  Question question;
  question.c = ParseCase(case_text);
  if (OutputSpecs(question.c).empty()) {
    throw Error(ErrorCode::kUnsupported, "a trace of operations has no tensors to answer with",
                case_text);
  }
  question.inputs = DataOf(question.c).IsFile()
                        ? ToTensors(inputs)
                        : GenerateCaseInputs(question.c, ParseProfile(settings.profile));
  return Answered(std::move(question), implementation, settings);
}

}  // namespace kvcheck
