#include "tests/tools/report/sample_verdicts.h"

namespace kvcheck {
namespace {

OutputVerdict Output() {
  OutputVerdict output;
  output.name = "out";
  output.rule = "derived bound";
  output.dtype = DType::kFloat32;
  output.shape = "B=2 Hq=8 L=1 Dv=64";
  output.counts.elements = 1024;
  output.counts.judged = 1024;
  output.rows_at[0] = 16;
  output.median_bound_share = 0.002;
  output.metrics.finite = 1024;
  output.metrics.cosine = 0.5;
  ElementReport worst;
  worst.element = 721;
  worst.coordinates = "[b=1, hq=3, l=0, dv=17]";
  worst.expected = 0.5;
  worst.got = 0.5 + 0x1p-20;
  worst.error = 0x1p-20;
  worst.bound = 0x1p-19;
  worst.ratio = 0.5;
  worst.terms = {{"output rounding", 0.75 * 0x1p-19, 0.75}, {"P rounding", 0.25 * 0x1p-19, 0.25}};
  output.worst = worst;
  return output;
}

}  // namespace

CaseResult PassedResult() {
  CaseResult result;
  result.name = "gqa/mlx";
  result.verdict.outputs.push_back(Output());
  result.verdict.case_text = "attention hq=8 data=gauss:1";
  result.verdict.plan = "base=plain_f32";
  result.verdict.command = "kvcheck run 'attention hq=8 data=gauss:1'";
  return result;
}

CaseResult FailedResult() {
  CaseResult result = PassedResult();
  result.verdict.outcome = Outcome::kFail;
  result.verdict.assumptions = {"exp=exp2_fma", "block=1"};
  OutputVerdict& output = result.verdict.outputs.front();
  output.outcome = Outcome::kFail;
  output.counts.failed = 3;
  output.reasons = {"3 of 1024 judged elements fail: derived bound"};
  output.worst->got = 0.53125;
  output.worst->error = 0x1p-5;
  output.worst->ratio = 0x1p14;
  output.breakdown = {"all failures in hq=3"};
  output.special_lines = {"NaN in both: 3 (equal)"};
  output.plan_changes = {{false, {{"p", "f32", "bf16", "P were rounded to bf16"}}}};
  return result;
}

CaseResult ResultOf(Outcome outcome, Expectation expectation) {
  CaseResult result;
  result.verdict = WithoutJudging(outcome, "because of the test");
  result.expectation = expectation;
  if (expectation != Expectation::kPass) result.finding = "a known fault";
  return result;
}

}  // namespace kvcheck
