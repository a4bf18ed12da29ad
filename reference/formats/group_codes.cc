#include "reference/formats/group_codes.h"

#include <algorithm>

#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

// As in affine_bound.cc: fewer than 2^6 operations in double on non-negative terms.
constexpr double kRoundedSums = 1.0 + 0x1p-40;

double LargestCode(int bits) { return static_cast<double>((1 << bits) - 1); }

double SumOf(const CodeBound& bound) {
  double sum = 0;
  for (const double term : bound.terms) sum += term;
  return sum * kRoundedSums;
}

}  // namespace

MinimumGroup MinimumGroupOf(int bits, DType type, const ValueRange& range) {
  if (!range.is_finite) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return {kNan, kNan, false};
  }
  const double width = RoundTo(type, range.most - range.least);
  const double scale = RoundTo(type, width / LargestCode(bits));
  return {scale, range.least == 0 ? 0.0 : range.least, std::isfinite(scale)};
}

uint8_t MinimumCode(int bits, DType type, const MinimumGroup& group, double x) {
  if (!group.is_defined || group.scale == 0) return 0;
  const double position = RoundTo(type, RoundTo(type, x - group.zero) / group.scale);
  // Under the default rounding direction nearbyint rounds half to even.
  return static_cast<uint8_t>(std::clamp(std::nearbyint(position), 0.0, LargestCode(bits)));
}

MinimumGroup EncodeFromMinimum(int bits, DType type, std::span<const double> x,
                               std::span<uint8_t> codes) {
  ValueRange range;
  for (const double value : x) range.Add(value);
  const MinimumGroup group = MinimumGroupOf(bits, type, range);
  for (size_t i = 0; i < x.size(); ++i) codes[i] = MinimumCode(bits, type, group, x[i]);
  return group;
}

double MinimumPositionError(DType type, double t) {
  const double u = UnitRoundoff(type);
  return (2 * u + u * u) * t + HalfSmallestSubnormal(type);
}

CodeBound BoundOfCode(const RoundTripQuestion& question, const CodePlace& place, double x,
                      double given) {
  const double u = UnitRoundoff(place.type);
  const double eta = HalfSmallestSubnormal(place.type);
  const double n = LargestCode(place.bits);
  const double s = place.scale;
  const double t = place.t;
  CodeBound bound;
  auto& terms = bound.terms;
  terms[kCodeTerm] = s == 0 ? place.above : s * std::max({0.5, t - n, -t});
  if (s != 0) terms[kEncoderTerm] = s * place.position_error;
  const double c = s == 0 ? 0 : std::clamp(t + 0.5 + terms[kEncoderTerm] / s, 0.0, n);
  if (question.decode == DecodeRounding::kTwoRoundings && s != 0) {
    // The product of code and scale, or the difference of code and zero.
    const double first =
        place.has_offset ? c * s : std::fabs(x) + terms[kCodeTerm] + terms[kEncoderTerm];
    terms[kProductTerm] = first * u + (place.has_offset ? eta : eta * s);
    bound.overflows = (first + terms[kProductTerm]) * kRoundedSums >= OverflowThreshold(place.type);
  }
  if (question.decode != DecodeRounding::kExact && s != 0) {
    const double before = std::fabs(x) + SumOf(bound);
    bound.overflows = bound.overflows || before * kRoundedSums >= OverflowThreshold(place.type);
    terms[kSumTerm] = u * ((before + eta) / (1 - u)) + eta;
  }
  terms[kRowTerm] = std::fabs(given - x);
  // Another code stands a step further, its product and sum are rounded likewise.
  double others = SumOf(bound) - terms[kCodeTerm] - terms[kEncoderTerm] + 4 * s * u + 2 * eta;
  const DType written = question.read.value_or(place.type);
  if (question.read.has_value() &&
      (question.decode == DecodeRounding::kExact || !Holds(written, place.type))) {
    const double largest = std::fabs(given) + SumOf(bound);
    bound.overflows = bound.overflows || largest >= OverflowThreshold(written);
    if (!bound.overflows) {
      terms[kRowTerm] += HalfSpacing(written, largest);
      others += HalfSpacing(written, largest + 2 * s);
    }
  }
  if (bound.overflows) {
    bound.terms = {};
    bound.total = std::numeric_limits<double>::infinity();
    return bound;
  }
  bound.total = SumOf(bound);
  for (double& term : terms) term *= kRoundedSums;
  // Of a group without a step there is no other code.
  if (s == 0) return bound;
  const double fraction = t - std::floor(t);
  const double next = t >= n ? t - n + 1 : t <= 0 ? 1 - t : std::max(fraction, 1 - fraction);
  bound.wrong_code = std::max(0.0, s * next - others * kRoundedSums);
  return bound;
}

}  // namespace kvcheck
