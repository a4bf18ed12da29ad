#include "optimized/compare/pass_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargestDouble = std::numeric_limits<double>::max();
constexpr float kLargestFloat = std::numeric_limits<float>::max();

double PowerOfTwo(int exponent) { return std::ldexp(1.0, exponent); }

// The part of the data that a tolerance may have (the judge's kVacuousShare).
constexpr double kLooseShare = 0.1;

CodeKeys KeysOf(const CodeType& type) {
  const uint64_t top = uint64_t{1} << (8 * type.bytes - 1);
  CodeKeys keys;
  keys.mask = type.magnitude;
  keys.sign = type.sign;
  keys.is_absolute = type.is_signed_integer;
  if (keys.is_absolute) {
    keys.largest = static_cast<int64_t>(top - 1);
    return keys;
  }
  keys.flip = (type.magnitude & top) != 0 ? top : 0;
  const int64_t lowest = keys.flip != 0 ? static_cast<int64_t>(top) : 0;
  keys.largest = static_cast<int64_t>(type.largest) - lowest;
  keys.has_infinity = type.infinity != 0;
  if (keys.has_infinity) keys.infinity = static_cast<int64_t>(type.infinity) - lowest;
  return keys;
}

// The expected magnitude from which on no tolerance exceeds kLooseShare of it, as the judge rounds
// both; infinite when there is none.
double FirmFrom(const PassPlan& plan) {
  const PassRule& rule = plan.rule;
  // Covers the roundings of both sides, which are below 2^-50 of them.
  constexpr double kSlack = 1 + 0x1p-30;
  if (rule.kind == PassRule::Kind::kUlp) {
    if (rule.ulps == 0) return 0;
    const double ulps = static_cast<double>(rule.ulps);
    if (!plan.type.is_float) return ulps / kLooseShare * kSlack;
    // In a binade, the worst value is its power of two.
    if (!(ulps * PowerOfTwo(-plan.type.mantissa_bits) <= kLooseShare)) return kInfinity;
    return ulps * SpacingAt(plan, 0) / kLooseShare * kSlack;
  }
  if (rule.kind == PassRule::Kind::kAbsRel) {
    if (rule.absolute == 0 && rule.relative <= kLooseShare) return 0;
    if (rule.relative > kLooseShare * (1 - 0x1p-20)) return kInfinity;
    return std::max(rule.absolute / (kLooseShare - rule.relative) * kSlack, 0x1p-900);
  }
  return 0;
}

// The value of a key. Precondition: not negative as a magnitude, at most largest.
double ValueOfKey(const PassPlan& plan, uint64_t steps) {
  return plan.type.is_float ? ValueOf(plan.dtype, steps) : static_cast<double>(steps);
}

void SetLoose(PassPlan* plan) {
  const double firm_from = FirmFrom(*plan);
  CodeKeys& keys = plan->keys;
  // Magnitudes from 0 to largest, counted in codes.
  const uint64_t last = keys.is_absolute ? static_cast<uint64_t>(keys.largest) : plan->type.largest;
  if (ValueOfKey(*plan, 0) >= firm_from) return;
  uint64_t low = 0;  // loose
  uint64_t high = last;
  while (low < high) {
    const uint64_t middle = high - (high - low) / 2;
    if (ValueOfKey(*plan, middle) < firm_from) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  keys.any_loose = true;
  keys.last_loose = static_cast<int64_t>(low - keys.flip);
}

// The greatest float that is normal and at most x, or 0.
float FloatBelow(double x) {
  if (x >= static_cast<double>(kLargestFloat)) return kLargestFloat;
  if (x < static_cast<double>(std::numeric_limits<float>::min())) return 0;
  const float nearest = static_cast<float>(x);
  return static_cast<double>(nearest) > x ? std::nextafter(nearest, 0.0F) : nearest;
}

// The leading `bits` bits of a positive number.
double Leading(double x, int bits) {
  const uint64_t cut = (uint64_t{1} << (53 - bits)) - 1;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~cut);
}

// The least float above x, for 0 < x < 1 that is a normal float; 0 for 0.
float FloatAbove(double x) {
  const float below = FloatBelow(x);
  return x == 0 ? 0 : std::nextafter(below, 1.0F);
}

// Below one half, the difference of two floats is exact (Sterbenz); at one half it may have been
// rounded to it.
constexpr double kLargestExactRatio = 0.5 - 0x1p-6;
// More than the rounding of a ratio to double.
constexpr double kRaise = 1 + 0x1p-50;

// A repeated record is quiet: the limit lies between the record and the next ratio that two numbers
// of the type can have, or its product with a value is exact (first_pass.md, section 2). Where the
// values leave room for neither, it is lowered by more than the rounding of the product.
double DoubleRatio(const PassPlan& plan, double ratio) {
  if (plan.type.bytes == 8) return ratio * (1 - 0x1p-50);
  const bool is_apart = plan.type.is_float ? ratio < kLargestExactRatio : plan.type.bytes <= 2;
  return is_apart ? ratio * kRaise : Leading(ratio, 53 - 32);
}

float FloatRatio(const PassPlan& plan, double ratio) {
  const double capped = std::min(ratio, kLargestExactRatio);
  switch (plan.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return ratio < kLargestExactRatio ? FloatAbove(ratio * kRaise) : FloatBelow(capped);
    case DType::kInt16:
    case DType::kUInt16:
      return FloatBelow(Leading(capped, 24 - 16));
    default:
      return FloatBelow(capped * (1 - 0x1p-23));
  }
}

}  // namespace

PassPlan MakePassPlan(DType dtype, const PassRule& rule) {
  KVCHECK_CHECK(rule.ulps >= 0 && rule.absolute >= 0 && rule.relative >= 0,
                "a tolerance below zero");
  PassPlan plan;
  plan.dtype = dtype;
  plan.rule = rule;
  plan.type = CodeTypeOf(dtype);
  plan.keys = KeysOf(plan.type);
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt32:
    case DType::kUInt64:
      plan.lanes = Lanes::kDouble;
      break;
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      plan.lanes = Lanes::kFloat;
      break;
    default:
      plan.lanes = Lanes::kBytePairs;
      break;
  }
  // e8m0 has no subnormals: its code 0 is a power of two like the others.
  const bool has_subnormals = plan.type.sign != 0;
  plan.smallest_normal = PowerOfTwo((has_subnormals ? 1 : 0) - plan.type.bias);
  const double largest =
      plan.type.is_float ? ValueOf(dtype, plan.type.largest) : PowerOfTwo(8 * plan.type.bytes);
  plan.is_unbounded = !std::isfinite(BoundAt(plan, largest));
  SetLoose(&plan);
  return plan;
}

int64_t KeyOf(const PassPlan& plan, uint64_t code) {
  const CodeKeys& keys = plan.keys;
  const int unused = 64 - 8 * plan.type.bytes;
  const uint64_t bits = keys.is_absolute ? code : (code & keys.mask) ^ keys.flip;
  const int64_t value = static_cast<int64_t>(bits << unused) >> unused;
  if (!keys.is_absolute || value >= 0) return value;
  const uint64_t negated = ~static_cast<uint64_t>(value) + 1;
  return static_cast<int64_t>(negated << unused) >> unused;
}

double SpacingAt(const PassPlan& plan, double want) {
  if (!plan.type.is_float) return 1;
  const double size = std::max(std::fabs(want), plan.smallest_normal);
  return PowerOfTwo(std::ilogb(size) - plan.type.mantissa_bits);
}

double BoundAt(const PassPlan& plan, double want) {
  switch (plan.rule.kind) {
    case PassRule::Kind::kExact:
      return 0;
    case PassRule::Kind::kUlp:
      return static_cast<double>(plan.rule.ulps) * SpacingAt(plan, want);
    case PassRule::Kind::kAbsRel:
      return std::fma(plan.rule.relative, std::fabs(want), plan.rule.absolute);
  }
  return 0;
}

LaneLimits LimitsOf(const PassPlan& plan, const PassSummary& records) {
  const PassRule& rule = plan.rule;
  const bool is_float = plan.type.is_float;
  LaneLimits limits;
  // A larger error is not squared in its lane.
  const double most_summed = plan.dtype == DType::kFloat64 ? kLargestSummed
                             : plan.lanes == Lanes::kFloat ? static_cast<double>(kLargestFloat)
                                                           : kLargestDouble;
  limits.max_abs = std::min(records.max_abs, most_summed);
  if (rule.kind == PassRule::Kind::kUlp && !is_float) {
    limits.max_abs = std::min(limits.max_abs, static_cast<double>(rule.ulps));
  }
  if (records.max_rel == kInfinity) {
    limits.ratio_add = kInfinity;
  } else {
    limits.ratio = DoubleRatio(plan, records.max_rel);
  }
  if (is_float) {
    double steps = std::min(records.max_ulp, kLargestDouble);
    if (rule.kind == PassRule::Kind::kUlp) {
      // From half of the value on, a difference may have been rounded onto the tolerance.
      const double exact = PowerOfTwo(plan.type.mantissa_bits - 1) - 1;
      steps = std::min({steps, exact, static_cast<double>(rule.ulps)});
    }
    limits.steps = steps * PowerOfTwo(-plan.type.mantissa_bits);
  }
  // Below the tolerance by more than the roundings of it and of the difference.
  limits.relative = rule.relative * (1 - 0x1p-48);
  limits.absolute = rule.absolute * (1 - 0x1p-48);
  limits.max_abs32 = FloatBelow(limits.max_abs);
  limits.ratio32 = FloatRatio(plan, records.max_rel);
  limits.steps32 = FloatBelow(limits.steps);
  limits.relative32 = FloatBelow(rule.relative * (1 - 0x1p-20));
  limits.absolute32 = FloatBelow(rule.absolute * (1 - 0x1p-20));
  return limits;
}

}  // namespace kvcheck
