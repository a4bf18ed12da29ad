#include "reference/attention/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/attention/contradictions.h"
#include "reference/formats/codec.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

double Roundoff(const RoundedType& type) {
  return UnitRoundoff(type.dtype) * (type.toward_zero ? 2 : 1);
}

// From this magnitude on rounding to the type may give infinity.
double OverflowThreshold(DType dtype) {
  const double largest = FloatTypeOf(dtype).largest_finite;
  return largest + UnitRoundoff(dtype) * std::ldexp(1.0, std::ilogb(largest));
}

// True where a product of two numbers of these precisions fits the accumulator without rounding.
bool ProductsExact(int bits_a, int bits_b, const RoundedType& accumulator) {
  return bits_a + bits_b <= FloatTypeOf(accumulator.dtype).mantissa_bits + 1;
}

// Whether a kernel rounds what it makes of a code: codes on a grid, and products that f32 does not
// hold.
bool IsDequantized(const KvFormat& format) {
  return GridOf(format).has_value() || Leaves(format, CodecChoice::kDecode);
}

int SignificantBits(DType dtype) { return FloatTypeOf(dtype).mantissa_bits + 1; }

// Significant bits of a stored K or V element as the kernel multiplies it.
int ElementBits(const KvFormat& format, const Profile& profile, const Plan& plan) {
  if (IsPlain(format)) return SignificantBits(RowDType(format));
  // What is no code * scale + bias comes as it is stored.
  if (GridOf(format) && *plan.dequantize == DequantizeKind::kRounded) {
    return SignificantBits(*plan.dequantize_dtype);
  }
  if (profile.decode != DecodeRounding::kExact) return SignificantBits(RowDType(format));
  return 53;
}

// Whether every value of a float type is one of another.
bool HoldsType(DType wide, DType narrow) {
  const FloatType &w = FloatTypeOf(wide), &n = FloatTypeOf(narrow);
  return w.mantissa_bits >= n.mantissa_bits && w.largest_finite >= n.largest_finite &&
         w.smallest_subnormal <= n.smallest_subnormal;
}

DType LowestType(const AttentionCase& c) {
  DType lowest = c.q;
  for (DType type : {RowDType(c.k), RowDType(c.v), c.out}) {
    if (UnitRoundoff(type) > UnitRoundoff(lowest)) lowest = type;
  }
  return lowest;
}

// The loosest accumulation that keeps f32 (or f64) accumulators: tensor cores of the smallest
// published width, truncating.
SumPlan LoosestSum(const AttentionCase& c) {
  SumPlan sum;
  if (c.q == DType::kFloat64) {
    sum.accumulator = {DType::kFloat64, true};
    sum.order = SumOrder::kSequential;
    return sum;
  }
  sum.order = SumOrder::kTensorCore;
  sum.width = 4;
  sum.aligned_bits = 23;
  sum.chained = true;
  return sum;
}

class Filler {
 public:
  explicit Filler(std::vector<std::string>* assumed) : assumed_(assumed) {}

  template <typename T, typename PrintFn>
  void operator()(std::optional<T>* field, const T& value, std::string_view key, PrintFn print) {
    if (field->has_value()) return;
    *field = value;
    assumed_->push_back(fmt::format("{}={}", key, print(value)));
  }
  void Int(std::optional<int>* field, int value, std::string_view key) {
    (*this)(field, value, key, [](int v) { return fmt::format("{}", v); });
  }
  void Real(std::optional<double>* field, double value, std::string_view key) {
    (*this)(field, value, key, [](double v) { return PrintReal(v); });
  }
  void Type(std::optional<DType>* field, DType value, std::string_view key) {
    (*this)(field, value, key, [](DType v) { return ShortName(v); });
  }
  void Note(std::string text) { assumed_->push_back(std::move(text)); }

 private:
  std::vector<std::string>* assumed_;
};

}  // namespace

Arithmetic Resolve(const Plan& declared, const Profile& profile, const AttentionCase& c) {
  RefuseContradictions(declared, profile, c);
  Arithmetic a;
  a.declared = a.plan = declared;
  Plan& plan = a.plan;
  Filler fill(&a.assumed);
  const bool is_f64 = c.q == DType::kFloat64;
  const auto print_sum = [](const SumPlan& sum) { return Print(sum); };
  const auto print_bool = [](bool value) { return value ? "yes" : "no"; };

  fill(&plan.qk, LoosestSum(c), "qk", print_sum);
  fill(&plan.pv, LoosestSum(c), "pv", print_sum);
  fill(&plan.l, LoosestSum(c), "l", print_sum);
  fill(&plan.op, RoundedType{is_f64 ? DType::kFloat64 : DType::kFloat32, false}, "op",
       [](const RoundedType& type) { return Print(type); });
  a.u_a = Roundoff(*plan.op);
  fill.Int(&plan.scale_roundings, 3, "scale_roundings");
  fill.Int(&plan.prescale_roundings, 0, "prescale_roundings");
  if (!plan.prescale_dtype) plan.prescale_dtype = plan.op->dtype;
  fill.Type(&plan.scores, plan.op->dtype, "scores");
  if (c.alibi || c.mask.array == MaskArrayKind::kAdditive || c.sinks) {
    fill.Int(&plan.bias_roundings, 3, "bias_roundings");
  }
  if (!plan.bias_roundings) plan.bias_roundings = 0;
  if (c.softcap) fill.Real(&plan.tanh_error, is_f64 ? 0x1p-50 : 0x1p-21, "tanh_error");
  if (!plan.tanh_error) plan.tanh_error = 0;
  if (!plan.exp) fill.Note("exp=exp2_scaled with the rounded shift of exp2_fma");
  const bool unknown_exp = !plan.exp;
  if (!plan.exp) plan.exp = ExpForm::kExp2Scaled;
  fill.Real(&plan.exp_error, is_f64 ? 0x1p-50 : 0x1p-21, "exp_error");
  fill.Real(&plan.exp_floor, is_f64 ? 0x1p-1022 : 0x1p-126, "exp_floor");
  fill.Real(&plan.lazy_rescale, 0, "lazy_rescale");
  fill(&plan.block, 16, "block", [](int v) { return fmt::format("{}", v); });
  if (c.sinks)
    fill(&plan.late_sink, true, "sink", [](bool late) { return late ? "last" : "first"; });
  if (!plan.late_sink) plan.late_sink = false;
  fill.Type(&plan.p, IsFloat(c.out) ? LowestType(c) : DType::kFloat32, "p");
  fill.Real(&plan.p_scale, 1, "p_scale");
  RefuseScaleOfExactWeights(plan);
  const bool unsaid_normalised = !plan.p_normalised;
  const bool p_is_low = UnitRoundoff(*plan.p) > a.u_a;
  fill(&plan.p_normalised, true, "p_normalised", print_bool);
  if (!unsaid_normalised && *plan.p_normalised) {
    if (!plan.l_from_rounded_p) plan.l_from_rounded_p = false;
  }
  const bool unsaid_both = !plan.l_from_rounded_p;
  if (p_is_low) {
    fill(&plan.l_from_rounded_p, true, "l_from",
         [](bool rounded) { return rounded ? "rounded" : "unrounded"; });
  }
  if (!plan.l_from_rounded_p) plan.l_from_rounded_p = false;
  const bool unsaid_merge = !plan.merge;
  fill(&plan.merge, MergeKind::kLseDivisionFree, "merge",
       [](MergeKind kind) { return Name(kind); });
  if (*plan.merge == MergeKind::kNone) {
    plan.splits = 1;
  } else {
    fill.Int(&plan.splits, 128, "splits");
    fill.Type(&plan.partial, LowestType(c), "partial");
  }
  if (!plan.partial) plan.partial = plan.op->dtype;
  if (c.lse != LseKind::kNone || *plan.merge == MergeKind::kLse ||
      *plan.merge == MergeKind::kLseDivisionFree) {
    fill.Real(&plan.log_error, is_f64 ? 0x1p-50 : 0x1p-21, "log_error");
  }
  if (!plan.log_error) plan.log_error = 0;
  fill(&plan.normalise, NormaliseKind::kApproximate, "normalise",
       [](NormaliseKind kind) { return Name(kind); });
  fill(&plan.flush_subnormals, true, "flush", print_bool);
  fill(&plan.saturate_output, false, "saturate", print_bool);
  // Codes that are dequantized: those of K are not where q.k runs over them.
  const bool k_decoded = IsDequantized(c.k) && !plan.integer_qk;
  const bool has_codes = k_decoded || IsDequantized(c.v);
  const bool in_basis = plan.dequantize == DequantizeKind::kRotated;
  a.rotates_k = in_basis && BasisOf(c.k, c.k_dim).Rotates();
  a.rotates_v = in_basis && BasisOf(c.v, c.v_dim).Rotates();
  if (has_codes && profile.decode == DecodeRounding::kExact && !plan.dequantize) {
    fill(&plan.dequantize, DequantizeKind::kRounded, "dequantize",
         [](DequantizeKind kind) { return Name(kind); });
    fill.Type(&plan.dequantize_dtype, LowestType(c), "dequantize type");
  }
  if (!plan.dequantize) plan.dequantize = DequantizeKind::kStored;
  if ((in_basis || plan.dequantize == DequantizeKind::kInside) && !plan.dequantize_roundings) {
    plan.dequantize_roundings = 2;
  }
  if (plan.dequantize == DequantizeKind::kRounded && !plan.dequantize_dtype) {
    plan.dequantize_dtype = plan.op->dtype;
  }

  // Sums. A tensor core aligns to 2^-f of the largest addend and truncates to its accumulator.
  const auto sum_roundoff = [](const SumPlan& sum) {
    return sum.order == SumOrder::kTensorCore ? std::max(std::ldexp(1.0, -sum.aligned_bits),
                                                         2 * UnitRoundoff(sum.accumulator.dtype))
                                              : Roundoff(sum.accumulator);
  };
  // Every rounding outside the sums goes the way of `op`, conversions included.
  const double direction = plan.op->toward_zero ? 2 : 1;
  a.u_qk = sum_roundoff(*plan.qk);
  a.u_pv = sum_roundoff(*plan.pv);
  a.u_l = sum_roundoff(*plan.l);
  const int q_bits =
      *plan.prescale_roundings > 0 ? SignificantBits(*plan.prescale_dtype) : SignificantBits(c.q);
  a.fixed_q = plan.fixed_q.value_or(0);
  a.fixed_p = plan.fixed_p.value_or(0);
  const int k_bits = ElementBits(c.k, profile, plan);
  const auto cut_bits = [](const std::optional<OperandCut>& cut, int bits) {
    return cut ? std::min(bits, SignificantBits(cut->type)) : bits;
  };
  const bool qk_exact = !plan.fixed_q && !a.rotates_k &&
                        ProductsExact(cut_bits(plan.qk_operands, q_bits),
                                      cut_bits(plan.qk_operands, k_bits), plan.qk->accumulator);
  if (plan.qk_operands) {
    a.cut_qk = CutProducts(plan.qk_operands, q_bits, k_bits,
                           UnderflowOf(*plan.qk_operands, *plan.flush_subnormals));
  }
  a.h_qk = PassDepth(*plan.qk, SumDepth(*plan.qk, static_cast<double>(c.k_dim), qk_exact),
                     a.cut_qk.passes);
  if (plan.integer_qk) {
    // Codes are summed exactly over channels that share the scales of both sides. Per group: two
    // products for each of s s', s z', z s', z z' times its sum, three additions of the four.
    const auto groups = static_cast<double>(IntegerGroups(*plan.integer_qk, c));
    const bool joins_exactly = FloatTypeOf(plan.qk->accumulator.dtype).mantissa_bits >=
                               FloatTypeOf(plan.op->dtype).mantissa_bits;
    a.h_qk = SumDepth(*plan.qk, groups, joins_exactly);
    a.c_group = 5;
    a.q_codes = GridOf(*plan.integer_qk)->Largest() + 1;
    a.k_codes = GridOf(c.k)->Largest() + 1;
  }
  a.c_s = *plan.scale_roundings;
  if (*plan.prescale_roundings > 0) {
    const double u = direction * UnitRoundoff(*plan.prescale_dtype);
    a.u_q = std::expm1(*plan.prescale_roundings * std::log1p(u));
    a.eta_q = direction * *plan.prescale_roundings * HalfSmallestSubnormal(*plan.prescale_dtype);
    a.prescale_largest = FloatTypeOf(*plan.prescale_dtype).largest_finite;
  }
  if (UnitRoundoff(*plan.scores) > UnitRoundoff(plan.op->dtype)) {
    a.u_store = direction * UnitRoundoff(*plan.scores);
    a.eta_s = direction * HalfSmallestSubnormal(*plan.scores);
    // An accumulator of the same type is stored as it is, when no scaling follows.
    const bool stored_exactly =
        plan.qk->accumulator.dtype == *plan.scores && *plan.scale_roundings == 0;
    if (!stored_exactly) a.u_s = a.u_store;
  }
  a.c_b = *plan.bias_roundings;
  a.u_tanh = *plan.tanh_error;
  switch (*plan.exp) {
    case ExpForm::kExp:
      a.c_m = 1;
      break;
    case ExpForm::kExp2Scaled:
      a.c_m = 3;
      break;
    case ExpForm::kExp2Log2:
      a.c_m = 1;
      break;
    case ExpForm::kExp2Fma:
      a.c_m = 2, a.c_shift = 1;
      break;
    case ExpForm::kExp2FmaDrift:
      a.c_m = 2, a.c_shift = 1, a.shift_drifts = true;
      break;
  }
  if (unknown_exp)
    a.c_shift = 1, a.shift_drifts = UnitRoundoff(c.q) > UnitRoundoff(DType::kFloat32);
  const bool log2_units = *plan.exp != ExpForm::kExp && *plan.exp != ExpForm::kExp2Scaled;
  if (log2_units) a.c_b += 2;
  // Out of log2 units: a constant and a product; into base 2: the same again.
  a.c_x = log2_units || *plan.exp == ExpForm::kExp2Scaled ? 2 : 0;
  a.lse_roundings = 1 + (c.lse == LseKind::kBase2 ? 2 : 0);
  const double wide = UnitRoundoff(plan.op->dtype);
  const DType lse_type = LseType(c);
  if (UnitRoundoff(lse_type) > wide) {
    a.u_lse = direction * UnitRoundoff(lse_type);
    a.eta_lse = direction * HalfSmallestSubnormal(lse_type);
  }
  a.cap_roundings = log2_units || unknown_exp ? 4 : 2;
  if (log2_units || unknown_exp) a.shift_units = 1.5 * std::max(1.0, 1 / std::fabs(c.scale));
  a.lambda_lazy = *plan.lazy_rescale;
  a.u_e = *plan.exp_error;
  a.eta_e = *plan.exp_floor;

  int exponent = 0;
  const bool exact_scale = std::frexp(*plan.p_scale, &exponent) == 0.5;
  if (p_is_low) {
    a.u_p = direction * UnitRoundoff(*plan.p);
    a.eta_p = direction * HalfSmallestSubnormal(*plan.p) / *plan.p_scale;
    if (!exact_scale) a.c_p = 3;
  }
  a.p_normalised = *plan.p_normalised;
  a.final_division = (!a.p_normalised || unsaid_normalised || *plan.merge == MergeKind::kLse) &&
                     (*plan.merge != MergeKind::kLseDivisionFree || unsaid_merge);
  a.p_in_weights = p_is_low && *plan.l_from_rounded_p;
  a.p_in_numerator = p_is_low && (!*plan.l_from_rounded_p || unsaid_both);
  a.p_cut = p_is_low && !a.p_normalised && a.lambda_lazy == 0 && !plan.op->toward_zero &&
            exact_scale && *plan.p_scale <= FloatTypeOf(*plan.p).largest_finite;
  a.p_largest = OverflowThreshold(*plan.p) / *plan.p_scale;
  const int p_bits = SignificantBits(*plan.p);
  const int v_bits = ElementBits(c.v, profile, plan);
  if (plan.pv_operands) {
    const OperandCut& cut = *plan.pv_operands;
    const double flushed = UnderflowOf(cut, *plan.flush_subnormals);
    // One part of P is P in another type, which its numerator only has.
    const bool rounds_p = !p_is_low && cut.passes == 1 && p_bits > SignificantBits(cut.type);
    a.cut_pv = CutProducts(cut, rounds_p ? 0 : p_bits, v_bits, flushed);
    if (rounds_p) {
      a.u_p = UnitRoundoff(cut);
      a.eta_p = flushed;
      a.p_in_numerator = true;
      a.p_toward_zero = cut.toward_zero;
      a.p_cut = !a.p_normalised && a.lambda_lazy == 0 && !cut.toward_zero;
      a.p_largest = a.cut_pv.largest;
    }
  }

  a.p_toward_zero = a.p_toward_zero || (p_is_low && plan.op->toward_zero);

  a.merge = *plan.merge;
  a.stores_sums = a.merge == MergeKind::kAccumulators || unsaid_merge;
  a.u_log = *plan.log_error;
  if (UnitRoundoff(*plan.partial) > UnitRoundoff(plan.op->dtype)) {
    a.u_part = direction * UnitRoundoff(*plan.partial);
    a.eta_part = direction * HalfSmallestSubnormal(*plan.partial);
  }
  if (plan.merge_weights && UnitRoundoff(*plan.merge_weights) > UnitRoundoff(plan.op->dtype)) {
    a.u_weight = direction * UnitRoundoff(*plan.merge_weights);
    a.eta_weight = direction * HalfSmallestSubnormal(*plan.merge_weights);
  }
  const bool pv_exact = (p_is_low || plan.pv_operands) && !plan.fixed_p && !a.rotates_v &&
                        ProductsExact(cut_bits(plan.pv_operands, p_bits),
                                      cut_bits(plan.pv_operands, v_bits), plan.pv->accumulator);
  a.pv_exact = pv_exact && exact_scale;
  // Weights come in op's type, or in that of P.
  a.l_exact = FloatTypeOf(plan.l->accumulator.dtype).mantissa_bits >=
              FloatTypeOf(plan.op->dtype).mantissa_bits;
  a.has_sinks = c.sinks.has_value();
  switch (*plan.normalise) {
    case NormaliseKind::kDivide:
      a.c_d = 1;
      break;
    case NormaliseKind::kReciprocal:
      a.c_d = 2;
      break;
    case NormaliseKind::kApproximate:
      a.c_d = 5;
      break;
  }
  // The result leaves the final division in op's type, or a sum in its accumulator's.
  const DType result = a.p_normalised && *plan.merge == MergeKind::kNone &&
                               FloatTypeOf(plan.pv->accumulator.dtype).mantissa_bits >
                                   FloatTypeOf(plan.op->dtype).mantissa_bits
                           ? plan.pv->accumulator.dtype
                           : plan.op->dtype;
  if (c.out != result && UnitRoundoff(c.out) >= UnitRoundoff(result)) {
    a.u_o = direction * UnitRoundoff(c.out);
    a.eta_o = direction * HalfSmallestSubnormal(c.out);
    // What the operations flush, the conversion flushes; it need not flush what they represent.
    if (*plan.flush_subnormals) {
      a.eta_o = std::max(a.eta_o, FloatTypeOf(plan.op->dtype).smallest_normal);
    }
  }
  // Normalised P summed in the output's own type leaves nothing to round.
  if (a.p_normalised && !a.final_division && a.merge == MergeKind::kNone &&
      plan.pv->accumulator.dtype == c.out) {
    a.u_o = a.eta_o = 0;
  }
  // Values from the largest finite one plus half a spacing on round to infinity.
  a.overflow = OverflowThreshold(c.out);
  if (plan.through && UnitRoundoff(*plan.through) > UnitRoundoff(result)) {
    a.through = *plan.through;
    a.u_through = direction * UnitRoundoff(a.through);
    a.eta_through = direction * HalfSmallestSubnormal(a.through);
    if (*plan.flush_subnormals) {
      a.eta_through = std::max(a.eta_through, FloatTypeOf(plan.op->dtype).smallest_normal);
    }
    a.overflow = std::min(a.overflow, OverflowThreshold(a.through));
    // What passed through a type that `out` holds is stored as it is.
    if (HoldsType(c.out, a.through)) a.u_o = a.eta_o = 0;
  }
  a.saturates = *plan.saturate_output;
  const FloatType& op = FloatTypeOf(plan.op->dtype);
  for (const DType type : {plan.op->dtype, plan.qk->accumulator.dtype, plan.pv->accumulator.dtype,
                           plan.l->accumulator.dtype}) {
    const FloatType& facts = FloatTypeOf(type);
    a.lambda = std::max(a.lambda,
                        *plan.flush_subnormals ? facts.smallest_normal : facts.smallest_subnormal);
  }
  a.lambda_op = *plan.flush_subnormals ? op.smallest_normal : op.smallest_subnormal;
  a.score_largest = std::min({FloatTypeOf(plan.qk->accumulator.dtype).largest_finite,
                              FloatTypeOf(*plan.scores).largest_finite, op.largest_finite});
  a.sum_largest =
      std::min(FloatTypeOf(plan.pv->accumulator.dtype).largest_finite, op.largest_finite);
  a.lse_largest = std::min(op.largest_finite, FloatTypeOf(lse_type).largest_finite);
  a.l_largest = std::min(FloatTypeOf(plan.l->accumulator.dtype).largest_finite, op.largest_finite);
  a.part_largest = FloatTypeOf(*plan.partial).largest_finite;

  const bool k_parts = k_decoded && !a.rotates_k;
  const bool v_parts = IsDequantized(c.v) && !a.rotates_v;
  if (a.rotates_k) a.k_parts.c = *plan.dequantize_roundings;
  if (a.rotates_v) a.v_parts.c = *plan.dequantize_roundings;
  if ((k_parts || v_parts) && profile.decode == DecodeRounding::kExact &&
      *plan.dequantize != DequantizeKind::kStored) {
    a.parts = true;
    a.factored = *plan.dequantize == DequantizeKind::kFactored;
    Arithmetic::Parts parts;
    const bool says_roundings = in_basis || *plan.dequantize == DequantizeKind::kInside;
    parts.c = says_roundings ? *plan.dequantize_roundings : 2;
    if (*plan.dequantize == DequantizeKind::kRounded) {
      a.parts_largest = FloatTypeOf(*plan.dequantize_dtype).largest_finite;
      parts.u = direction * UnitRoundoff(*plan.dequantize_dtype);
      parts.eta = direction * HalfSmallestSubnormal(*plan.dequantize_dtype);
    }
    if (k_parts) a.k_parts = parts;
    // A scale of the whole vector stays out of P.V as one more factor of the weights; factored sums
    // over groups round scales and biases otherwise.
    if (a.factored ? !GridOf(c.v) && v_parts : v_parts) a.v_parts = parts;
    if (a.factored && GridOf(c.v)) {
      a.v_largest_code = GridOf(c.v)->Largest();
    }
    if (a.factored && k_parts && GridOf(c.k)) {
      // Sums over groups of channels; then, per group, two products and two additions.
      const auto group = static_cast<double>(GridOf(c.k)->group);
      a.h_qk = SumDepth(*plan.qk, group, qk_exact);
      a.largest_code = GridOf(c.k)->Largest();
      a.k_parts.c = 2 * static_cast<double>(c.k_dim) / group;
    }
  }
  return a;
}

}  // namespace kvcheck
