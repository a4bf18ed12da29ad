#include "reference/attention/hidden_rows.h"

#include <algorithm>
#include <cmath>

#include "reference/attention/score_error.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

// What no bias has made of it: the largest |score| that the row could have, before rounding.
struct LargestScores {
  double size = 0;
  double k_abs_sum = 0;
  double q_abs_sum = 0;
};

LargestScores LargestOf(const RowContext& context, const VisibleSet& set,
                        std::span<const double> rotated) {
  LargestScores largest;
  for (const int32_t key : set.keys) {
    largest.k_abs_sum =
        std::max(largest.k_abs_sum, context.head->k_abs_sum[static_cast<size_t>(key)]);
  }
  double q_largest = 0;
  for (const double q : rotated.empty() ? context.q : rotated) {
    q_largest = std::max(q_largest, std::fabs(q));
    largest.q_abs_sum += std::fabs(q);
  }
  largest.size = largest.k_abs_sum * q_largest * std::fabs(context.c->scale);
  return largest;
}

// Half of what lies between a number and the next one toward zero.
double HalfGapBelow(DType dtype, double x) {
  return 0.5 * SpacingAt(dtype, std::fabs(x) * (1 - 0x1p-40));
}

}  // namespace

bool IsHiddenByNumber(const RowContext& context, const VisibleSet& set,
                      std::span<const double> rotated) {
  if (context.c->mask.array != MaskArrayKind::kAdditive || set.keys.empty() || context.SeesSink() ||
      !set.hidden_keys.empty() || set.kind != QueryKind::kOrdinary) {
    return false;
  }
  const double size = LargestOf(context, set, rotated).size;
  const double cap = context.c->softcap.value_or(size);
  return set.mask_largest < -kVanishes - 2 * std::min(size, cap);
}

bool AbsorbsScores(const RowContext& context, const VisibleSet& set,
                   std::span<const double> rotated, double codec) {
  const Arithmetic& a = *context.arithmetic;
  // Only what the kernel says of itself can tell; one that rounds less would keep the scores apart.
  if (!a.declared.op || !a.declared.scores || a.declared.op->toward_zero) return false;
  const bool of_originals = context.c->against_original && !IsPlain(context.c->k);
  if (set.mask_lowest != set.mask_largest || context.c->alibi || of_originals) return false;
  const double number = set.mask_largest;
  const LargestScores largest = LargestOf(context, set, rotated);
  RowScores one;
  one.x = one.s = one.magnitude = std::span(&largest.size, 1);
  one.k_abs_sum = std::span(&largest.k_abs_sum, 1);
  one.q_abs_sum = largest.q_abs_sum;
  one.codec = std::span(&codec, 1);
  one.k_dim = static_cast<double>(context.head->k.dim);
  one.scale = context.c->scale;
  one.softcap = context.c->softcap.value_or(0);
  const double score =
      std::min(largest.size, context.c->softcap.value_or(largest.size)) + ScoreError(a, one)(0);
  // A change of units multiplies scores and number alike, and halves the gap at most; the rounding
  // of the number itself is the same for every key.
  const auto absorbs = [&](DType dtype) { return 4 * score < HalfGapBelow(dtype, number); };
  const DType op = a.plan.op->dtype;
  const DType stored = *a.plan.scores;
  if (std::fabs(number) > FloatTypeOf(op).largest_finite) return false;
  return absorbs(op) || (UnitRoundoff(stored) > UnitRoundoff(op) &&
                         RoundTo(stored, number) == number && absorbs(stored));
}

}  // namespace kvcheck
