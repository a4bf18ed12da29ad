#include "optimized/compare/exact_pair.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>

namespace kvcheck {
namespace {

constexpr double kLargestDouble = std::numeric_limits<double>::max();

struct SumAndRest {
  double sum;
  double rest;
};

// sum + rest == a - b exactly, unless the difference overflows (Dekker; from the larger operand, so
// that no step overflows either).
SumAndRest TwoDifference(double a, double b) {
  const double sum = a - b;
  if (std::fabs(a) >= std::fabs(b)) return {sum, (a - sum) - b};
  return {sum, a - (sum + b)};
}

// The sign of an exact sum: a nonoverlapping expansion grown term by term (Shewchuk 1997, theorem
// 10), whose most significant nonzero component decides. No partial sum may overflow.
int SignOfSum(std::initializer_list<double> terms) {
  std::array<double, 8> expansion{};
  size_t size = 0;
  for (const double term : terms) {
    double carried = term;
    for (size_t i = 0; i < size; ++i) {
      const SumAndRest step = TwoDifference(carried, -expansion[i]);
      expansion[i] = step.rest;
      carried = step.sum;
    }
    expansion[size++] = carried;
  }
  while (size-- > 0) {
    if (expansion[size] != 0) return expansion[size] > 0 ? 1 : -1;
  }
  return 0;
}

// |got - want| <= absolute + relative |want|, exactly, where its rounded form cannot say: the sides
// are the same double. All finite.
bool IsWithinSum(SumAndRest difference, double want, double absolute, double relative) {
  const double side = difference.sum < 0 ? -1 : 1;
  // Away from the smallest doubles, where products are rounded, and from the largest, whose sums
  // overflow.
  const double largest = std::max(std::fabs(difference.sum), std::fabs(want));
  const double scale = largest < 0x1p300 ? 0x1p600 : largest > 0x1p1000 ? 0x1p-100 : 1;
  const double size = scale * std::fabs(want);
  const double product = relative * size;
  // Something may be rounded still. The judge decides there.
  for (const double term : {size, product, scale * absolute}) {
    if (term != 0 && term < 0x1p-900) return false;
  }
  const double rest = std::fma(relative, size, -product);
  return SignOfSum({side * scale * difference.sum, side * scale * difference.rest,
                    -scale * absolute, -product, -rest}) <= 0;
}

// An integer as the nearest double and what it leaves out.
SumAndRest InTwo(uint64_t size) {
  const double high = static_cast<double>(size);
  const uint64_t back = high >= 0x1p64 ? 0 : static_cast<uint64_t>(high);
  return {high, static_cast<double>(static_cast<int64_t>(size - back))};
}

// |got - want| <= bound of the rule, exactly. All finite. bound: rounded.
bool IsWithin(const PassPlan& plan, double got, double want, double bound) {
  const SumAndRest difference = TwoDifference(got, want);
  const double size = std::fabs(difference.sum);
  // Rounding is monotone: away from equality, the rounded numbers decide.
  if (size != bound) return size < bound;
  if (plan.rule.kind == PassRule::Kind::kUlp) {
    const SumAndRest count = InTwo(static_cast<uint64_t>(plan.rule.ulps));
    const double spacing = SpacingAt(plan, want);
    const double side = difference.sum < 0 ? -1 : 1;
    return SignOfSum({side * difference.sum, side * difference.rest, -count.sum * spacing,
                      -count.rest * spacing}) <= 0;
  }
  if (plan.rule.kind == PassRule::Kind::kAbsRel && plan.rule.relative != 0) {
    return IsWithinSum(difference, want, plan.rule.absolute, plan.rule.relative);
  }
  return difference.rest == 0 || (difference.rest > 0) != (difference.sum > 0);
}

bool IsWideInteger(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kUInt64; }

// The distance of two integers of 64 bits, which uint64 holds.
uint64_t Distance(DType dtype, uint64_t a, uint64_t b) {
  const bool is_above =
      dtype == DType::kInt64 ? static_cast<int64_t>(a) >= static_cast<int64_t>(b) : a >= b;
  return is_above ? a - b : b - a;
}

// distance <= bound of the rule at an integer of 64 bits, exactly. bound: rounded.
bool IsWithin(const PassPlan& plan, uint64_t distance, uint64_t want_size, double bound) {
  if (plan.rule.kind == PassRule::Kind::kUlp) {
    return distance <= static_cast<uint64_t>(plan.rule.ulps);
  }
  if (plan.rule.kind != PassRule::Kind::kAbsRel || plan.rule.relative == 0) {
    return bound >= 0x1p64 || distance <= static_cast<uint64_t>(bound);
  }
  const SumAndRest have = InTwo(distance);
  const double relative = plan.rule.relative;
  // Both sides are within three roundings of themselves.
  if (std::fabs(have.sum - bound) > 0x1p-48 * (have.sum + bound)) return have.sum < bound;
  const SumAndRest want = InTwo(want_size);
  const double high = relative * want.sum;
  const double low = relative * want.rest;
  return SignOfSum({have.sum, have.rest, -plan.rule.absolute, -high,
                    -std::fma(relative, want.sum, -high), -low,
                    -std::fma(relative, want.rest, -low)}) <= 0;
}

// |got - want| of integers of 64 bits as the judge rounds it: each side in two doubles, three
// roundings (reference/judge/exact_compare.h).
double WideIntegerError(DType dtype, uint64_t want, uint64_t got) {
  // What the nearest double leaves out: at most 2^10 in size, so that it survives modulo 2^64.
  const auto rest = [](uint64_t code, double high) {
    const uint64_t back = high < 0         ? static_cast<uint64_t>(static_cast<int64_t>(high))
                          : high == 0x1p64 ? 0
                                           : static_cast<uint64_t>(high);
    return static_cast<double>(static_cast<int64_t>(code - back));
  };
  const double want_high = ValueOf(dtype, want);
  const double got_high = ValueOf(dtype, got);
  const SumAndRest high = TwoDifference(got_high, want_high);
  return std::fabs(high.sum + ((high.rest + rest(got, got_high)) - rest(want, want_high)));
}

bool IsLaneInteger(DType dtype, uint64_t code) {
  const uint64_t lane = static_cast<uint64_t>(kLargestLaneInteger);
  return (dtype == DType::kInt64 ? code + lane : code) < 2 * lane;
}

double LaneError(const PassPlan& plan, double want, double got, double error) {
  switch (plan.lanes) {
    case Lanes::kBytePairs:
      return -1;
    case Lanes::kFloat: {
      const float size = std::fabs(static_cast<float>(got) - static_cast<float>(want));
      return size <= std::numeric_limits<float>::max() ? static_cast<double>(size) : -1;
    }
    case Lanes::kDouble:
      break;
  }
  if (plan.dtype == DType::kFloat64) {
    const bool is_summed = error == 0 || (error >= kSmallestSummed && error <= kLargestSummed);
    return is_summed ? error : -1;
  }
  return error;
}

// The kind of a pair of which one is not finite.
int64_t PassSummary::* KindOf(double want, double got) {
  if (std::isnan(got))
    return std::isnan(want) ? &PassSummary::both_nan : &PassSummary::observed_nan;
  if (std::isnan(want)) return &PassSummary::expected_nan;
  if (!std::isinf(want)) return &PassSummary::observed_infinity;
  if (!std::isinf(got)) return &PassSummary::expected_infinity;
  return want == got ? &PassSummary::same_infinity : &PassSummary::opposite_infinities;
}

bool NanPasses(PassNan policy, bool same_bits) {
  return policy == PassNan::kEqual || (policy == PassNan::kEqualBits && same_bits);
}

}  // namespace

PairFacts ExaminePair(const PassPlan& plan, uint64_t want_code, uint64_t got_code) {
  PairFacts facts;
  const double want = ValueOf(plan.dtype, want_code);
  const double got = ValueOf(plan.dtype, got_code);
  const bool same_bits = want_code == got_code;
  if (!std::isfinite(want) || !std::isfinite(got)) {
    facts.kind = plan.type.has_nan ? KindOf(want, got) : &PassSummary::no_code;
    facts.passes = facts.kind == &PassSummary::same_infinity ||
                   (facts.kind == &PassSummary::both_nan && NanPasses(plan.rule.nan, same_bits));
    return facts;
  }
  const bool is_wide = IsWideInteger(plan.dtype);
  facts.error = is_wide ? WideIntegerError(plan.dtype, want_code, got_code) : std::fabs(got - want);
  if (facts.error != 0) {
    facts.relative = facts.error / std::fabs(want);
    facts.ulps = facts.error / SpacingAt(plan, want);
  }
  facts.lane_error = LaneError(plan, want, got, facts.error);
  if (is_wide && !(IsLaneInteger(plan.dtype, want_code) && IsLaneInteger(plan.dtype, got_code))) {
    facts.lane_error = -1;
  }
  if (plan.rule.kind == PassRule::Kind::kExact) {
    facts.passes = same_bits;
    return facts;
  }
  const double bound = BoundAt(plan, want);
  if (!std::isfinite(bound)) return facts;
  facts.passes = is_wide ? IsWithin(plan, Distance(plan.dtype, want_code, got_code),
                                    Distance(plan.dtype, want_code, 0), bound)
                         : IsWithin(plan, got, want, bound);
  return facts;
}

void AddPair(const PassPlan& plan, uint64_t want, uint64_t got, uint64_t times, PassSummary* to) {
  const PairFacts facts = ExaminePair(plan, want, got);
  const int64_t count = static_cast<int64_t>(times);
  if (!facts.passes) to->not_certified += count;
  if (plan.rule.kind == PassRule::Kind::kExact && want != got) to->not_certified -= count;
  if (facts.kind != nullptr) {
    to->*facts.kind += count;
    const int64_t key = KeyOf(plan, want);
    if (plan.keys.any_loose && key <= plan.keys.last_loose) to->loose -= count;
    return;
  }
  to->max_abs = std::max(to->max_abs, facts.error);
  to->max_rel = std::max(to->max_rel, facts.relative);
  to->max_ulp = std::max(to->max_ulp, facts.ulps);
  if (facts.lane_error < 0) {
    // Of two opposite extremes the difference itself is beyond double: it counts as the largest.
    to->squared_error.AddSquare(std::min(facts.error, kLargestDouble), times);
  }
}

}  // namespace kvcheck
