// compare --case: the inputs and the outputs of a case, in one file or in two, and no golden file.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "tools/compare/case_tensors.h"
#include "tools/compare/compare_question.h"
#include "tools/compare/tensor_role.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/report/number_text.h"

namespace kvcheck {

namespace {

// Inputs that the file of the outputs holds too, under their own names, with other values: its
// answer may be to another question. A sentence each.
std::vector<std::string> OtherInputs(const StoredFile& answers, const Case& c,
                                     const TensorMap& inputs) {
  std::vector<std::string> warnings;
  for (const auto& [name, spec] : InputSpecs(c)) {
    for (const auto& [own, path] : FindByName(answers.source().index(), {{name, spec}}, {})) {
      const Tensor there = ReadTensor(answers.source(), path);
      const Tensor& here = inputs.at(name);
      // In another order of axes the same values stand elsewhere.
      if (!there.shape.SameExtents(here.shape)) continue;
      std::vector<double> a(static_cast<size_t>(here.ElementCount()));
      std::vector<double> b(a.size());
      DecodeTo(here, 0, a);
      DecodeTo(there, 0, b);
      const bool same = std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) {
        return x == y || (std::isnan(x) && std::isnan(y));
      });
      if (same) continue;
      warnings.push_back(
          fmt::format("{} holds another '{}' than the inputs: its answer may be to "
                      "other inputs",
                      answers.path(), name));
    }
  }
  return warnings;
}

// "input 'sinks'" as "/s_aux of the file", where that was it.
void NameDatasets(const DatasetNames& spares, std::string* text) {
  for (const auto& [name, path] : spares) {
    for (const std::string& words : {fmt::format("input '{}'", name), fmt::format("'{}'", name)}) {
      const size_t at = text->find(words);
      if (at == std::string::npos) continue;
      text->replace(at, words.size(), path + " of the file");
      break;
    }
  }
}

// Datasets of starts of sequences, as FlashAttention, TransformerEngine and FlashInfer name them.
bool NamesStarts(std::string_view path) {
  const std::string last = LowerCase(LastPart(path));
  return last.find("cu_seqlens") != std::string::npos || last.find("cu_seq_len") != last.npos ||
         last == "qo_indptr" || last == "kv_indptr";
}

}  // namespace

void RefusePackedSequences(const StoredFile& file, const Case& c) {
  const auto* attention = std::get_if<AttentionCase>(&c);
  if (attention == nullptr || file.IsGolden()) return;
  std::vector<std::string> names;
  std::string padded;
  int64_t sequences = 0;
  for (const auto& [path, record] : file.source().index().objects) {
    if (!record.is_dataset || IsFloat(record.dtype) || record.shape.axes.size() != 1 ||
        record.shape.ElementCount() < 2 || !NamesStarts(path)) {
      continue;
    }
    // One sequence from the first token to the last is what a case asks.
    std::vector<double> starts(static_cast<size_t>(record.shape.ElementCount()));
    DecodeTo(ReadTensor(file.source(), path), 0, starts);
    const double last = starts.back();
    const bool is_whole = starts.size() == 2 && starts.front() == 0 &&
                          (last == static_cast<double>(attention->query_len) ||
                           last == static_cast<double>(attention->kv_len));
    if (is_whole) continue;
    sequences = std::max<int64_t>(sequences, record.shape.ElementCount() - 1);
    if (LowerCase(LastPart(path)).find("padded") != std::string::npos) padded = path;
    names.push_back(path);
  }
  if (names.empty()) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("{} says that its tokens are {}, packed one behind the other{}: each attends to "
                  "itself only, and a case is one sequence. The Python package judges them: "
                  "kvcheck.judge_attention(out, q, k, v, layout=\"shd\", cu_seqlens_q=..., "
                  "cu_seqlens_k=...{}); or store each sequence in a file of its own",
                  fmt::join(names, ", "), Plural(sequences, "sequence"),
                  padded.empty() ? "" : ", with padding between them",
                  padded.empty() ? "" : ", cu_seqlens_q_padded=..., cu_seqlens_k_padded=..."),
      file.path());
}

std::string TensorArguments(const CompareQuestion& asked) {
  std::string text;
  for (const std::string& entry : asked.map) text += " --map " + ShellWord(entry);
  for (const std::string& entry : asked.axes) text += " --axes " + ShellWord(entry);
  return text;
}

void CompareCase(const CompareQuestion& asked, ResultSink* results) {
  const Case c = ParseCase(asked.case_text);
  CaseTensors tensors(c, ParseTensorChoices(asked.map, asked.axes, asked.cast));
  const StoredFile file(asked.files.front());
  // Of the outputs, where they are in a file of their own.
  std::optional<StoredFile> second;
  if (asked.files.size() > 1) second.emplace(asked.files.back());
  const StoredFile& answers = second ? *second : file;
  const bool reads_inputs = DataOf(c).IsFile();
  if (second && !reads_inputs) {
    throw Error(ErrorCode::kUsage,
                "the case generates its inputs: give the file of the outputs alone, or data=file",
                "compare");
  }
  RefusePackedSequences(file, c);
  if (second) RefusePackedSequences(*second, c);
  CaseResult result;
  result.verdict.case_text = Print(c);
  result.verdict.implementation = answers.path();
  result.verdict.command = fmt::format(
      "kvcheck compare --case {} {}{}{}{}", ShellWord(Print(c)), ShellWord(file.path()),
      second ? " " + ShellWord(second->path()) : "", PlanArguments(asked), TensorArguments(asked));
  results->Begin(1);
  results->Judge(std::move(result), [&] {
    Question question;
    question.c = c;
    question.plan = PlanOf(asked, "");
    question.profile = ProfileOf(asked, "");
    question.inputs = reads_inputs ? tensors.Inputs(file) : GenerateCaseInputs(c, question.profile);
    const std::unique_ptr<ObservedSource> observed = tensors.Outputs(answers);
    tensors.CheckUsed();
    const DatasetNames spares =
        reads_inputs ? tensors.AddSpares(file, &question.inputs) : DatasetNames();
    Verdict verdict = EvaluateCase(question, *observed, asked.judge, asked.cancel);
    for (OutputVerdict& output : verdict.outputs) NameDatasets(spares, &output.passes_with);
    if (second) {
      for (std::string& warning : OtherInputs(answers, c, question.inputs)) {
        verdict.warnings.push_back(std::move(warning));
      }
    }
    for (std::string& warning : tensors.TakeUnjudgedAnswers(answers)) {
      verdict.warnings.push_back(std::move(warning));
    }
    return verdict;
  });
  for (std::string& note : tensors.Notes()) results->AddNote(std::move(note));
  std::vector<const StoredFile*> read = {&file};
  if (second) read.push_back(&*second);
  for (const StoredFile* one : read) {
    if (auto note = NotNamedByIndex(*one)) results->AddNote(std::move(*note));
  }
}

}  // namespace kvcheck
