#include "tests/optimized/attention/plan_adversary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "optimized/attention/attention_implementation.h"
#include "reference/attention/attention_source.h"
#include "reference/judge/judge.h"
#include "reference/numerics/fast_round.h"
#include "tools/corridor/evaluate_case.h"

namespace kvcheck {

PlanAdversary::PlanAdversary(const std::string& text, bool portable)
    : c_(std::get<AttentionCase>(ParseCase(text))), portable_(portable) {
  inputs_ = GenerateCaseInputs(c_, {});
}

void PlanAdversary::SetF16(const std::string& name, int64_t index, float value) {
  const uint16_t code = F16FromF32(value);
  ASSERT_EQ(F32FromF16(code), value) << "no f16";
  inputs_.at(name).As<uint16_t>()[index] = code;
}

void PlanAdversary::Zero(const std::string& name) {
  std::vector<std::byte>& bytes = inputs_.at(name).bytes;
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
}

void PlanAdversary::Ask() {
  OptimizedAttention attention({}, portable_);
  answer_ = MemorySink();
  ASSERT_EQ(attention.Run(c_, inputs_, answer_), RunOutcome::kAnswered) << Describe();
  stated_ = *attention.AnswerPlan();
}

float PlanAdversary::Got(const std::string& name) const {
  float value = 0;
  std::memcpy(&value, answer_.tensors().at(name).bytes.data(), sizeof(value));
  return value;
}

double PlanAdversary::Ratio(const Plan& plan) const {
  const AttentionSource source(c_, {}, plan, inputs_);
  JudgeOptions options;
  options.explain = false;
  const Verdict verdict = Judge(source, answer_, options);
  double worst = 0;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.worst) worst = std::max(worst, output.worst->ratio);
  }
  return worst;
}

Plan PlanAdversary::Isolated() const {
  Plan plan = stated_;
  if (isolate_) isolate_(&plan);
  return plan;
}

void PlanAdversary::ExpectHolds(double share) {
  Ask();
  EXPECT_LE(Ratio(stated_), 1) << Describe();
  const double ratio = Ratio(Isolated());
  EXPECT_LE(ratio, 1) << Describe();
  EXPECT_GE(ratio, share) << Describe();
}

void PlanAdversary::ExpectBreaks(std::string_view what,
                                 const std::function<void(Plan*)>& tighten) const {
  Plan plan = Isolated();
  tighten(&plan);
  const double ratio = Ratio(plan);
  EXPECT_GT(ratio, 1) << what << ": the bound holds without it; " << Describe();
}

void PlanAdversary::ExpectNoEffect(std::string_view what,
                                   const std::function<void(Plan*)>& change) const {
  Plan plan = stated_;
  change(&plan);
  EXPECT_EQ(Ratio(plan), Ratio(stated_)) << what << "; " << Describe();
}

std::string PlanAdversary::Describe() const {
  return fmt::format("{} {}", Print(Case(c_)), portable_ ? "portable" : "native");
}

}  // namespace kvcheck
