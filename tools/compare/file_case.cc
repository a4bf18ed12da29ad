#include "tools/compare/file_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
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
  for (const std::string& glob : asked.groups) text += " --group " + ShellWord(glob);
  for (const std::string& entry : asked.map) text += " --map " + ShellWord(entry);
  for (const std::string& entry : asked.axes) text += " --axes " + ShellWord(entry);
  return text;
}

FileCase::FileCase(CompareQuestion asked)
    : asked_(std::move(asked)),
      c_(ParseCase(asked_.case_text)),
      choices_(ParseTensorChoices(asked_.map, asked_.axes, asked_.cast)) {
  const CaseTensors checked(c_, choices_);
  const bool has_two = asked_.files.size() > 1;
  if (!asked_.gold_plan.empty()) {
    if (!has_two) throw Error(ErrorCode::kUsage, "--gold-plan takes GOLD and GOT", "compare");
    CheckTwoPlans(TwoPlans(), c_);
    return;
  }
  if (has_two && !DataOf(c_).IsFile()) {
    throw Error(ErrorCode::kUsage,
                "the case generates its inputs: give the file of the outputs alone, or data=file",
                "compare");
  }
}

TwoPlansQuestion FileCase::TwoPlans() const {
  std::string arguments = TensorArguments(asked_);
  if (!asked_.cast.empty()) arguments += " --cast " + ShellWord(asked_.cast);
  return {asked_.judge,     asked_.cancel, asked_.files.front(), asked_.files.back(),
          asked_.gold_plan, asked_.plan,   asked_.profile,       asked_.bitwise,
          asked_.map,       asked_.axes,   asked_.cast,          arguments};
}

CaseResult FileCase::Shown() const {
  CaseResult result;
  result.verdict.case_text = Print(c_);
  result.verdict.implementation = asked_.files.back();
  if (!asked_.gold_plan.empty()) {
    result.verdict.command = TwoPlansCommand(TwoPlans(), c_);
    return result;
  }
  result.verdict.command = fmt::format("kvcheck compare --case {}", ShellWord(Print(c_)));
  for (const std::string& file : asked_.files) result.verdict.command += " " + ShellWord(file);
  result.verdict.command += PlanArguments(asked_) + TensorArguments(asked_);
  return result;
}

void FileCase::CheckFiles(const StoredFile& first, const StoredFile* second) const {
  RefusePackedSequences(first, c_);
  if (second != nullptr) RefusePackedSequences(*second, c_);
}

Verdict FileCase::Judged(const StoredFile& first, const StoredFile* second, int threads,
                         CaseTensors* tensors) const {
  if (!asked_.gold_plan.empty()) {
    TwoPlansQuestion two = TwoPlans();
    two.judge.threads = threads;
    return JudgeTwoPlans(two, c_, first, *second, tensors);
  }
  JudgeOptions judge = asked_.judge;
  judge.threads = threads;
  const StoredFile& answers = second != nullptr ? *second : first;
  const bool reads_inputs = DataOf(c_).IsFile();
  Question question;
  question.c = c_;
  question.plan = PlanOf(asked_, "");
  question.profile = ProfileOf(asked_, "");
  question.inputs =
      reads_inputs ? tensors->Inputs(first) : GenerateCaseInputs(c_, question.profile);
  const std::unique_ptr<ObservedSource> observed = tensors->Outputs(answers);
  tensors->CheckUsed();
  const DatasetNames spares =
      reads_inputs ? tensors->AddSpares(first, &question.inputs) : DatasetNames();
  Verdict verdict = EvaluateCase(question, *observed, judge, asked_.cancel);
  for (OutputVerdict& output : verdict.outputs) NameDatasets(spares, &output.passes_with);
  if (second != nullptr) {
    for (std::string& warning : OtherInputs(answers, c_, question.inputs)) {
      verdict.warnings.push_back(std::move(warning));
    }
  }
  for (std::string& warning : tensors->TakeUnjudgedAnswers(answers)) {
    verdict.warnings.push_back(std::move(warning));
  }
  return verdict;
}

Verdict FileCase::Judge(const StoredFile& first, const StoredFile* second, int threads,
                        std::vector<std::string>* notes) const {
  CaseTensors tensors(c_, choices_);
  try {
    Verdict verdict = Judged(first, second, threads, &tensors);
    *notes = tensors.Notes();
    return verdict;
  } catch (...) {
    *notes = tensors.Notes();
    throw;
  }
}

}  // namespace kvcheck
