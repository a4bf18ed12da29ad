#include "tools/compare/compare_two_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>

#include "reference/attention/two_plans_source.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/error.h"
#include "tools/compare/case_tensors.h"
#include "tools/corridor/case_judges.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/stored_tensors.h"
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

// Every output is one tensor of one file in both, links among them.
bool AreTheSame(const std::map<std::string, TensorOrigin>& gold,
                const std::map<std::string, TensorOrigin>& got) {
  return std::all_of(gold.begin(), gold.end(), [&](const auto& output) {
    const TensorOrigin& other = got.at(output.first);
    std::error_code ignored;
    return output.second.tensor == other.tensor &&
           std::filesystem::equivalent(output.second.file, other.file, ignored);
  });
}

Verdict JudgeBits(const TensorMap& gold, const ObservedSource& got, JudgeOptions judge,
                  const Cancel& cancel) {
  std::map<std::string, RuledTensor> expected;
  for (const auto& [name, tensor] : gold) expected[name] = {tensor, ExactRule{}};
  judge.special = kTensorPolicy;
  return Judge(CancellableSource(RuledTensorSource(std::move(expected)), cancel), got, judge);
}

}  // namespace

void CheckTwoPlans(const TwoPlansQuestion& asked, const Case& c) {
  if (!std::holds_alternative<AttentionCase>(c)) {
    throw Error(ErrorCode::kIllegalCase, "only attention is computed by a plan; drop --gold-plan",
                "compare");
  }
  if (asked.bitwise &&
      (asked.plan.empty() || ParsePlan(asked.plan) != ParsePlan(asked.gold_plan))) {
    throw Error(ErrorCode::kUsage,
                "--bitwise demands the same bytes, which only the same plan can promise; give the "
                "same --plan and --gold-plan",
                "compare");
  }
  // A name and no field claims nothing.
  Plan claimed = ParsePlan(asked.plan.empty() ? kStrangerPlan : asked.plan);
  claimed.name.clear();
  if (asked.bitwise && claimed == Plan()) {
    throw Error(ErrorCode::kUsage,
                "nothing says that two runs of a stranger have the same bits; name the plan",
                "--bitwise");
  }
}

std::string TwoPlansCommand(const TwoPlansQuestion& asked, const Case& c) {
  std::string command =
      fmt::format("kvcheck compare {} {} --case {} --gold-plan {}", ShellWord(asked.gold),
                  ShellWord(asked.got), ShellWord(Print(c)), ShellWord(asked.gold_plan));
  for (const auto& [name, value] :
       {std::pair{"--plan", &asked.plan}, {"--profile", &asked.profile}}) {
    if (!value->empty()) command += fmt::format(" {} {}", name, ShellWord(*value));
  }
  if (asked.bitwise) command += " --bitwise";
  return command + asked.tensor_arguments;
}

Verdict JudgeTwoPlans(const TwoPlansQuestion& asked, const Case& c, const StoredFile& gold_file,
                      const StoredFile& got_file, CaseTensors* tensors) {
  Question question;
  question.c = c;
  question.plan = ParsePlan(asked.gold_plan);
  question.profile = ParseProfile(asked.profile);
  const auto& attention = std::get<AttentionCase>(c);
  const bool reads_inputs = attention.data.IsFile();
  std::string without_inputs;
  try {
    if (reads_inputs) question.inputs = tensors->Inputs(gold_file);
  } catch (const Error& error) {
    // Bytes can be compared without them.
    if (!asked.bitwise || error.code() != ErrorCode::kMissingData) throw;
    without_inputs = error.message();
  }
  const std::unique_ptr<ObservedSource> gold_outputs = tensors->Outputs(gold_file);
  const std::map<std::string, TensorOrigin> gold_origins = tensors->origins();
  const std::unique_ptr<ObservedSource> got_outputs = tensors->Outputs(got_file);
  tensors->CheckUsed();
  if (AreTheSame(gold_origins, tensors->origins())) {
    return WithoutJudging(Outcome::kMistrusted,
                          "compared with itself: GOLD and GOT are one file; kvcheck compare --case "
                          "judges its outputs under one plan");
  }
  const ObservedSource& gold = *gold_outputs;
  const ObservedSource& got = *got_outputs;
  const TensorMap values = ReadOutputs(gold, c, gold_file.path());
  JudgeOptions judge = asked.judge;
  judge.rule = Rule::kBound;
  judge.strict = false;
  judge.must_see.clear();
  if (!without_inputs.empty()) {
    Verdict verdict = JudgeBits(values, got, judge, asked.cancel);
    verdict.warnings.push_back("whether GOLD keeps its own plan was not judged: " + without_inputs);
    return verdict;
  }
  if (!reads_inputs) question.inputs = GenerateCaseInputs(c, question.profile);
  JudgeOptions quiet = judge;
  quiet.explain = false;
  const Verdict own = EvaluateCase(question, gold, quiet, asked.cancel);
  if (own.outcome == Outcome::kFail) {
    return WithoutJudging(Outcome::kMistrusted,
                          "GOLD is not within the bound of its own plan, so that its distance from "
                          "GOT tells nothing; "
                          "judge it with kvcheck compare --case and --plan");
  }
  if (asked.bitwise) {
    Verdict verdict = JudgeBits(values, got, judge, asked.cancel);
    if (own.outcome == Outcome::kMistrusted) {
      verdict.warnings.push_back("equal bits prove no more than GOLD does, under its own plan: " +
                                 ReasonOf(own));
    }
    return verdict;
  }
  const Plan plan = ParsePlan(asked.plan.empty() ? kStrangerPlan : asked.plan);
  const TwoPlansSource source(attention, question.profile, question.plan, plan, question.inputs,
                              values);
  Verdict verdict = Judge(CancellableSource(source, asked.cancel), got, judge);
  verdict.plan = Print(plan);
  verdict.profile = Print(question.profile);
  return verdict;
}

}  // namespace kvcheck
