#include "reference/judge/special_values.h"

#include <fmt/format.h>

namespace kvcheck {

std::string_view Name(NanPolicy policy) {
  switch (policy) {
    case NanPolicy::kFail:
      return "fail";
    case NanPolicy::kEqual:
      return "equal";
    case NanPolicy::kEqualBits:
      return "equal_bits";
  }
  return "";
}

std::string_view Name(PairKind kind) {
  switch (kind) {
    case PairKind::kOrdinary:
      return "ordinary";
    case PairKind::kBothNan:
      return "NaN in both";
    case PairKind::kObservedNan:
      return "NaN observed, a number expected";
    case PairKind::kExpectedNan:
      return "NaN expected, a number observed";
    case PairKind::kSameInfinity:
      return "the same infinity in both";
    case PairKind::kOppositeInfinities:
      return "infinities of opposite sign";
    case PairKind::kObservedInfinity:
      return "infinity observed, finite expected";
    case PairKind::kExpectedInfinity:
      return "infinity expected, finite observed";
    case PairKind::kZerosOfTwoSigns:
      return "zeros of different sign";
    case PairKind::kFlushed:
      return "0 observed, subnormal expected";
    case PairKind::kNotFlushed:
      return "subnormal observed, 0 expected";
    case PairKind::kSaturated:
      return "largest finite observed, beyond it expected";
    case PairKind::kNoCode:
      return "observed byte is no code of the type";
  }
  return "";
}

PairClassifier::PairClassifier(DType dtype) : is_float_(IsFloat(dtype)) {
  if (!is_float_) return;
  const FloatType& type = FloatTypeOf(dtype);
  largest_ = type.largest_finite;
  smallest_normal_ = type.smallest_normal;
  rounds_to_zero_ = type.has_subnormals ? type.smallest_subnormal / 2 : 0;
}

PairDecision Decide(PairKind kind, Claim claim, const SpecialPolicy& policy, bool bits_equal) {
  switch (kind) {
    case PairKind::kBothNan: {
      const NanPolicy nan = claim == Claim::kAccuracy ? policy.accuracy : policy.conformance;
      if (nan == NanPolicy::kEqual) return PairDecision::kPasses;
      return nan == NanPolicy::kEqualBits && bits_equal ? PairDecision::kPasses
                                                        : PairDecision::kFails;
    }
    case PairKind::kSameInfinity:
      return PairDecision::kPasses;
    case PairKind::kObservedNan:
    case PairKind::kExpectedNan:
    case PairKind::kOppositeInfinities:
    case PairKind::kObservedInfinity:
    case PairKind::kExpectedInfinity:
    case PairKind::kNoCode:
      return PairDecision::kFails;
    case PairKind::kZerosOfTwoSigns:
      return claim == Claim::kAccuracy ? PairDecision::kByDifference : PairDecision::kFails;
    case PairKind::kOrdinary:
    case PairKind::kFlushed:
    case PairKind::kNotFlushed:
    case PairKind::kSaturated:
      return PairDecision::kByDifference;
  }
  return PairDecision::kFails;
}

void SpecialCounts::Merge(const SpecialCounts& other) {
  for (size_t i = 0; i < count.size(); ++i) count[i] += other.count[i];
}

std::vector<std::string> Describe(const SpecialCounts& counts, Claim claim,
                                  const SpecialPolicy& policy) {
  std::vector<std::string> lines;
  for (int i = 1; i < kPairKinds; ++i) {
    const PairKind kind = static_cast<PairKind>(i);
    if (counts.Of(kind) == 0) continue;
    std::string_view rule = "by difference";
    if (kind == PairKind::kBothNan) {
      rule = Name(claim == Claim::kAccuracy ? policy.accuracy : policy.conformance);
    } else if (const PairDecision decision = Decide(kind, claim, policy, false);
               decision != PairDecision::kByDifference) {
      rule = decision == PairDecision::kPasses ? "equal" : "fails unless an alternative";
    }
    lines.push_back(fmt::format("{}: {} ({})", Name(kind), counts.Of(kind), rule));
  }
  return lines;
}

std::optional<std::string> FewFiniteWarning(int64_t judged, const SpecialCounts& counts) {
  const int64_t nan = counts.Of(PairKind::kBothNan);
  const int64_t infinite = counts.Of(PairKind::kSameInfinity);
  if (2 * (nan + infinite) <= judged) return std::nullopt;
  return fmt::format(
      "{} of {} judged values are no finite numbers on both sides: {} NaN, {} infinite",
      nan + infinite, judged, nan, infinite);
}

}  // namespace kvcheck
