#include "tests/optimized/compare/judged_pair.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "reference/judge/judge.h"
#include "reference/judge/tensor_source.h"
#include "reference/spec/implementation.h"

namespace kvcheck {
namespace {

ToleranceRule RuleOf(const PassRule& rule) {
  switch (rule.kind) {
    case PassRule::Kind::kExact:
      return ExactRule{};
    case PassRule::Kind::kUlp:
      return UlpRule{rule.ulps};
    case PassRule::Kind::kAbsRel:
      return AbsRelRule{rule.absolute, rule.relative};
  }
  return ExactRule{};
}

NanPolicy PolicyOf(PassNan nan) {
  switch (nan) {
    case PassNan::kFail:
      return NanPolicy::kFail;
    case PassNan::kEqual:
      return NanPolicy::kEqual;
    case PassNan::kEqualBits:
      return NanPolicy::kEqualBits;
  }
  return NanPolicy::kFail;
}

Tensor TensorOf(DType dtype, std::span<const std::byte> bytes) {
  const int64_t elements = static_cast<int64_t>(bytes.size() / SizeInBytes(dtype));
  Tensor tensor(dtype, Shape::Unnamed({elements}));
  tensor.bytes.assign(bytes.begin(), bytes.end());
  return tensor;
}

}  // namespace

OutputVerdict JudgeCodes(DType dtype, std::span<const std::byte> expected,
                         std::span<const std::byte> got, const PassRule& rule) {
  const RuledTensorSource source({{"tensor", {TensorOf(dtype, expected), RuleOf(rule)}}});
  const TensorMap observed = {{"tensor", TensorOf(dtype, got)}};
  JudgeOptions options;
  options.explain = false;
  options.special = {PolicyOf(rule.nan), PolicyOf(rule.nan)};
  return Judge(source, MemorySink(observed), options).outputs.front();
}

std::string Disagreement(const PassSummary& pass, const OutputVerdict& verdict) {
  std::string text;
  const auto compare = [&text](const char* name, auto of_pass, auto of_judge) {
    if (of_pass == of_judge) return;
    text += fmt::format("{}: {} in the pass, {} in the judge\n", name, of_pass, of_judge);
  };
  const SpecialCounts& special = verdict.special;
  const Metrics& metrics = verdict.metrics;
  compare("elements", pass.elements, verdict.counts.elements);
  compare("not certified", pass.not_certified, verdict.counts.failed + verdict.counts.unbounded);
  if (verdict.counts.unbounded == 0) {
    compare("NaN in both", pass.both_nan, special.Of(PairKind::kBothNan));
    compare("NaN expected", pass.expected_nan, special.Of(PairKind::kExpectedNan));
    compare("NaN observed", pass.observed_nan, special.Of(PairKind::kObservedNan));
    compare("same infinity", pass.same_infinity, special.Of(PairKind::kSameInfinity));
    compare("opposite infinities", pass.opposite_infinities,
            special.Of(PairKind::kOppositeInfinities));
    compare("infinity expected", pass.expected_infinity, special.Of(PairKind::kExpectedInfinity));
    compare("infinity observed", pass.observed_infinity, special.Of(PairKind::kObservedInfinity));
    compare("no code", pass.no_code, special.Of(PairKind::kNoCode));
    compare("zeros of two signs", pass.zeros_of_two_signs, special.Of(PairKind::kZerosOfTwoSigns));
    compare("finite pairs", pass.FinitePairs(), metrics.finite);
    compare("max abs", pass.max_abs, metrics.max_abs);
    compare("max rel", pass.max_rel, metrics.max_rel);
    compare("max ulp", pass.max_ulp, metrics.max_ulp);
    // Half of: float lanes may round an error by 2^-24, squared twice that; sums of doubles of up
    // to 2^16 terms, 2^-37 each; bins, 2^-36.
    const double slack = (0x1p-23 + 0x1p-35) * metrics.rms_abs;
    if (!(std::fabs(pass.RmsAbs() - metrics.rms_abs) <= slack)) {
      text += fmt::format("RMS: {} in the pass, {} in the judge\n", pass.RmsAbs(), metrics.rms_abs);
    }
  }
  if (pass.ProvesPass() && verdict.outcome != Outcome::kPass) {
    text += fmt::format("proved to pass, but {}\n", Name(verdict.outcome));
  }
  return text;
}

}  // namespace kvcheck
