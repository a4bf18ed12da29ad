#include "tools/kvcheck/compare_two_plans.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "reference/attention/two_plans_source.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "tools/kvcheck/case_judges.h"
#include "tools/kvcheck/case_tensors.h"
#include "tools/kvcheck/evaluate_case.h"
#include "tools/kvcheck/run_report.h"
#include "tools/kvcheck/stored_tensors.h"
#include "tools/report/number_text.h"

namespace kvcheck {
namespace {

TensorMap ReadOutputs(const ObservedSource& observed, const Case& c, const std::string& path) {
  TensorMap tensors;
  for (const auto& [name, spec] : OutputSpecs(c)) {
    const OutputInfo* info = observed.Find(name);
    if (info == nullptr) {
      throw Error(ErrorCode::kMissingData, fmt::format("GOLD has no '{}'", name), path);
    }
    Tensor tensor(info->dtype, info->shape);
    observed.Read(name, 0, tensor.bytes);
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

Verdict JudgeBits(const TensorMap& gold, const ObservedSource& got, JudgeOptions judge) {
  std::map<std::string, RuledTensor> expected;
  for (const auto& [name, tensor] : gold) expected[name] = {tensor, ExactRule{}};
  judge.special = kTensorPolicy;
  return Judge(InterruptibleSource(RuledTensorSource(std::move(expected))), got, judge);
}

Verdict JudgeTwo(const TwoPlansOptions& options, const Case& c, const StoredFile& gold_file,
                 const StoredFile& got_file, CaseTensors* tensors) {
  Question question;
  question.c = c;
  question.plan = ParsePlan(options.gold_plan);
  question.profile = ParseProfile(options.profile);
  const auto& attention = std::get<AttentionCase>(c);
  const bool reads_inputs = attention.data.IsFile();
  std::string without_inputs;
  try {
    if (reads_inputs) question.inputs = tensors->Inputs(gold_file);
  } catch (const Error& error) {
    // Bytes can be compared without them.
    if (!options.bitwise || error.code() != ErrorCode::kMissingData) throw;
    without_inputs = error.message();
  }
  const std::unique_ptr<ObservedSource> gold_outputs = tensors->Outputs(gold_file);
  const std::unique_ptr<ObservedSource> got_outputs = tensors->Outputs(got_file);
  tensors->CheckUsed();
  std::error_code ignored;
  if (std::filesystem::equivalent(gold_file.path(), got_file.path(), ignored)) {
    return WithoutJudging(Outcome::kMistrusted,
                          "compared with itself: GOLD and GOT are one file; kvcheck compare --case "
                          "judges its outputs under one plan");
  }
  const ObservedSource& gold = *gold_outputs;
  const ObservedSource& got = *got_outputs;
  const TensorMap values = ReadOutputs(gold, c, gold_file.path());
  JudgeOptions judge = options.common.Judge(0);
  judge.statistics = judge.strict = false;
  if (!without_inputs.empty()) {
    Verdict verdict = JudgeBits(values, got, judge);
    verdict.warnings.push_back("whether GOLD keeps its own plan was not judged: " + without_inputs);
    return verdict;
  }
  if (!reads_inputs) question.inputs = GenerateCaseInputs(c, question.profile);
  JudgeOptions quiet = judge;
  quiet.explain = false;
  const Verdict own = EvaluateCase(question, gold, quiet);
  if (own.outcome == Outcome::kFail) {
    return WithoutJudging(Outcome::kMistrusted,
                          "GOLD is not within the bound of its own plan, so that its distance from "
                          "GOT tells nothing; "
                          "judge it with kvcheck compare --case and --plan");
  }
  if (options.bitwise) {
    Verdict verdict = JudgeBits(values, got, judge);
    if (own.outcome == Outcome::kMistrusted) {
      verdict.warnings.push_back("equal bits prove no more than GOLD does, under its own plan: " +
                                 ReasonOf(own));
    }
    return verdict;
  }
  const Plan plan = ParsePlan(options.plan.empty() ? kStrangerPlan : options.plan);
  const TwoPlansSource source(attention, question.profile, question.plan, plan, question.inputs,
                              values);
  Verdict verdict = Judge(InterruptibleSource(source), got, judge);
  verdict.plan = Print(plan);
  verdict.profile = Print(question.profile);
  return verdict;
}

}  // namespace

int CompareTwoPlans(const TwoPlansOptions& options) {
  const Case c = ParseCase(options.case_text);
  if (!std::holds_alternative<AttentionCase>(c)) {
    throw Error(ErrorCode::kIllegalCase, "only attention is computed by a plan; drop --gold-plan",
                "compare");
  }
  if (options.bitwise &&
      (options.plan.empty() || ParsePlan(options.plan) != ParsePlan(options.gold_plan))) {
    throw Error(ErrorCode::kUsage,
                "--bitwise demands the same bytes, which only the same plan can promise; give the "
                "same --plan and --gold-plan",
                "compare");
  }
  if (options.bitwise && ParsePlan(options.plan) == ParsePlan(kStrangerPlan)) {
    throw Error(ErrorCode::kUsage,
                "nothing says that two runs of a stranger have the same bits; name the plan",
                "--bitwise");
  }
  const StoredFile gold(options.gold);
  const StoredFile got(options.got);
  CaseResult result;
  result.verdict.case_text = Print(c);
  result.verdict.implementation = got.path();
  result.verdict.command =
      fmt::format("kvcheck compare {} {} --case {} --gold-plan {}", ShellWord(gold.path()),
                  ShellWord(got.path()), ShellWord(Print(c)), ShellWord(options.gold_plan));
  for (const auto& [name, value] :
       {std::pair{"--plan", &options.plan}, {"--profile", &options.profile}}) {
    if (!value->empty()) result.verdict.command += fmt::format(" {} {}", name, ShellWord(*value));
  }
  if (options.bitwise) result.verdict.command += " --bitwise";
  result.verdict.command += options.tensor_arguments;
  CaseTensors tensors(c, ParseTensorChoices(options.map, options.axes, options.cast));
  RunReport report("compare", options.common, 1);
  report.Judge(std::move(result), [&] { return JudgeTwo(options, c, gold, got, &tensors); });
  for (std::string& note : tensors.Notes()) report.AddNote(std::move(note));
  return report.Finish();
}

}  // namespace kvcheck
