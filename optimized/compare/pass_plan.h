// What the first pass knows about a type and a rule before it sees an element: keys, by which codes
// are classified without decoding them, and the limits below which a lane of a vector is certified
// and sets no record.

#ifndef OPTIMIZED_COMPARE_PASS_PLAN_H_
#define OPTIMIZED_COMPARE_PASS_PLAN_H_

#include <cstdint>

#include "optimized/compare/code_type.h"
#include "optimized/compare/first_pass.h"

namespace kvcheck {

// Values are compared by vectors of this type. Pairs of bytes are counted instead (byte_pairs.h).
enum class Lanes : uint8_t { kBytePairs, kFloat, kDouble };

// The key of a code is a signed integer of its width that grows with the magnitude:
// (code & mask) ^ flip, or |code| of signed integers (the least one stays negative).
struct CodeKeys {
  uint64_t mask = 0;
  uint64_t flip = 0;  // the top bit, where magnitudes use it
  bool is_absolute = false;
  uint64_t sign = 0;     // codes of a zero or'ed: two signs
  int64_t largest = 0;   // greatest key of a finite number
  int64_t infinity = 0;  // key of infinity, where has_infinity
  bool has_infinity = false;
  // Keys up to last_loose may have a tolerance above a tenth of their value.
  bool any_loose = false;
  int64_t last_loose = 0;
};

struct PassPlan {
  DType dtype = DType::kFloat32;
  PassRule rule;
  CodeType type;
  CodeKeys keys;
  Lanes lanes = Lanes::kFloat;
  double smallest_normal = 0;
  // The tolerance of some finite value is infinite: every element is decided alone.
  bool is_unbounded = false;
};

// Precondition: the rule's numbers are not negative and not NaN.
PassPlan MakePassPlan(DType dtype, const PassRule& rule);

// The key of a code, as the vectors compute it.
int64_t KeyOf(const PassPlan& plan, uint64_t code);

// The tolerance at a finite expected value, as the judge rounds it.
double BoundAt(const PassPlan& plan, double want);
// The spacing of the type there; 1 for integers.
double SpacingAt(const PassPlan& plan, double want);

// A lane is quiet, it passes and sets no record, when
//   |got - want| <= min(max_abs, ratio |want| + ratio_add, steps 2^floor(log2 |want|),
//                       relative |want| + absolute),
// each product and sum rounded to the lane's type. Why this suffices: first_pass.md, section 2.
struct LaneLimits {
  double max_abs = 0;
  double ratio = 0;
  double ratio_add = 0;
  double steps = 0;
  double relative = 0;
  double absolute = 0;
  float max_abs32 = 0;
  float ratio32 = 0;
  float steps32 = 0;
  float relative32 = 0;
  float absolute32 = 0;
};

// The limits under the records so far.
LaneLimits LimitsOf(const PassPlan& plan, const PassSummary& records);

// Squares of float64 errors outside of these are summed apart: 0x1p900 terms of 2^40 do not
// overflow, and no digit is lost below.
inline constexpr double kSmallestSummed = 0x1p-450;
inline constexpr double kLargestSummed = 0x1p450;
// int64 values in lanes are below this in size, uint64 values below twice it, and so exact doubles.
inline constexpr int64_t kLargestLaneInteger = int64_t{1} << 51;
// float32 and bfloat16 values below this are compared in double lanes.
inline constexpr float kSmallestFloatLane = 0x1p-100F;

}  // namespace kvcheck

#endif  // OPTIMIZED_COMPARE_PASS_PLAN_H_
