#include "reference/attention/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

double Roundoff(const RoundedType& type) {
  return UnitRoundoff(type.dtype) * (type.toward_zero ? 2 : 1);
}

double CeilDiv(double a, double b) { return std::ceil(a / b); }
double CeilLog2(double n) { return n <= 1 ? 0 : std::ceil(std::log2(n)); }

// Depth within one run of n terms, without the rounding of products.
double RunDepth(const SumPlan& sum, double n) {
  switch (sum.order) {
    case SumOrder::kSequential: return std::max(0.0, n - 1);
    case SumOrder::kLanes: {
      const double lanes = std::min<double>(sum.width, n);
      return CeilDiv(n, lanes) - 1 + CeilLog2(lanes);
    }
    case SumOrder::kPairwise: return CeilLog2(n);
    case SumOrder::kTensorCore: return (sum.width + 2.0) * CeilDiv(n, sum.width);
    case SumOrder::kDepth: return sum.width;
  }
  return n;
}

// True where a product of two numbers of these precisions fits the accumulator without rounding.
bool ProductsExact(int bits_a, int bits_b, const RoundedType& accumulator) {
  return bits_a + bits_b <= FloatTypeOf(accumulator.dtype).mantissa_bits + 1;
}

int SignificantBits(DType dtype) { return FloatTypeOf(dtype).mantissa_bits + 1; }

// Significant bits of a stored K or V element as the kernel multiplies it.
int ElementBits(const KvFormat& format, const Profile& profile, const Plan& plan) {
  if (IsPlain(format)) return SignificantBits(RowDType(format));
  if (*plan.dequantize == DequantizeKind::kRounded) return SignificantBits(*plan.dequantize_dtype);
  if (profile.decode != DecodeRounding::kExact) return SignificantBits(RowDType(format));
  return 53;
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

double Gamma(double k, double u) {
  const double product = k * u;
  return product >= 1 ? std::numeric_limits<double>::infinity() : product / (1 - product);
}

double SumDepth(const SumPlan& sum, double terms, double run, double blocks, bool products_exact) {
  double depth = 0;
  if (sum.order == SumOrder::kDepth) return sum.width;
  if (blocks <= 1) {
    depth = RunDepth(sum, terms);
  } else if (sum.chained && sum.order == SumOrder::kSequential) {
    depth = terms - 1;
  } else if (sum.chained && sum.order == SumOrder::kLanes) {
    const double lanes = std::min<double>(sum.width, run);
    depth = CeilDiv(run, lanes) * blocks - 1 + CeilLog2(lanes);
  } else if (sum.chained && sum.order == SumOrder::kTensorCore) {
    depth = RunDepth(sum, run) * blocks;
  } else {
    depth = RunDepth(sum, run) + blocks - 1;
  }
  // A product is rounded in the accumulator's type: on its own, or (fused) where it meets zero.
  if (!products_exact && sum.order != SumOrder::kTensorCore) depth += 1;
  return depth;
}

int64_t Arithmetic::TouchedBlocks(std::span<const int32_t> keys) const {
  const int block = *plan.block;
  if (block == 0 || keys.empty()) return 1;
  int64_t touched = 1;
  for (size_t i = 1; i < keys.size(); ++i) touched += keys[i] / block != keys[i - 1] / block;
  if (keys.front() > 0) touched += 1;
  return std::min<int64_t>(touched, static_cast<int64_t>(keys.size()));
}

KeyDepths Arithmetic::Depths(int64_t visible_keys, int64_t touched_blocks, int64_t kv_len) const {
  KeyDepths depths;
  double n = static_cast<double>(std::max<int64_t>(visible_keys, 1));
  double blocks = static_cast<double>(touched_blocks);
  const double block = *plan.block;
  if (merge != MergeKind::kNone) {
    depths.splits = std::min<double>(*plan.splits, n);
    const double range = CeilDiv(static_cast<double>(kv_len), *plan.splits);
    n = std::min(n, range);
    if (block > 0) blocks = std::min(blocks, CeilDiv(range, block) + 1);
  }
  if (block == 0) blocks = 1;
  const double run = block > 0 ? std::min(block, n) : n;
  depths.pv = SumDepth(*plan.pv, n, run, blocks, pv_exact);
  depths.l = SumDepth(*plan.l, n, run, blocks, true) + (has_sinks ? 1 : 0);
  depths.rescales = blocks - 1 + (merge == MergeKind::kNone ? 0 : 1);
  if (has_sinks && *plan.late_sink) depths.rescales += 1;
  return depths;
}

Arithmetic Resolve(const Plan& declared, const Profile& profile, const AttentionCase& c) {
  Arithmetic a;
  a.plan = declared;
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
  if (c.sinks) fill(&plan.late_sink, true, "sink", [](bool late) { return late ? "last" : "first"; });
  if (!plan.late_sink) plan.late_sink = false;
  fill.Type(&plan.p, IsFloat(c.out) ? LowestType(c) : DType::kFloat32, "p");
  fill.Real(&plan.p_scale, 1, "p_scale");
  const bool unsaid_normalised = !plan.p_normalised;
  const bool p_is_low = UnitRoundoff(*plan.p) > a.u_a;
  fill(&plan.p_normalised, true, "p_normalised", print_bool);
  const bool unsaid_both = !plan.l_from_rounded_p;
  if (p_is_low) {
    fill(&plan.l_from_rounded_p, true, "l_from",
         [](bool rounded) { return rounded ? "rounded" : "unrounded"; });
  }
  if (!plan.l_from_rounded_p) plan.l_from_rounded_p = false;
  fill(&plan.merge, MergeKind::kLseDivisionFree, "merge", [](MergeKind kind) { return Name(kind); });
  if (*plan.merge == MergeKind::kAccumulators && *plan.p_normalised && !unsaid_normalised) {
    throw Error(ErrorCode::kIllegalCase,
                "p_normalised=yes contradicts merge=accumulators: weights that are divided by the "
                "denominator of their own range cannot be added up; say merge=lse",
                "plan");
  }
  if (*plan.merge == MergeKind::kNone) {
    plan.splits = 1;
  } else {
    fill.Int(&plan.splits, 128, "splits");
    fill.Type(&plan.partial, plan.op->dtype, "partial");
  }
  if (!plan.partial) plan.partial = plan.op->dtype;
  if (c.lse != LseKind::kNone || *plan.merge == MergeKind::kLse ||
      *plan.merge == MergeKind::kLseDivisionFree) {
    fill.Real(&plan.log_error, is_f64 ? 0x1p-50 : 0x1p-21, "log_error");
  }
  if (!plan.log_error) plan.log_error = 0;
  fill(&plan.reciprocal, true, "normalise",
       [](bool reciprocal) { return reciprocal ? "reciprocal" : "divide"; });
  fill(&plan.flush_subnormals, true, "flush", print_bool);
  fill(&plan.saturate_output, false, "saturate", print_bool);
  const bool has_codes = !IsPlain(c.k) || !IsPlain(c.v);
  if (has_codes && profile.decode == DecodeRounding::kExact && !plan.dequantize) {
    fill(&plan.dequantize, DequantizeKind::kRounded, "dequantize",
         [](DequantizeKind kind) { return Name(kind); });
    fill.Type(&plan.dequantize_dtype, LowestType(c), "dequantize type");
  }
  if (!plan.dequantize) plan.dequantize = DequantizeKind::kStored;
  if (!plan.dequantize_roundings) plan.dequantize_roundings = 2;
  if (!plan.dequantize_dtype) plan.dequantize_dtype = plan.op->dtype;

  // Sums. A tensor core aligns to 2^-f of the largest addend.
  const auto sum_roundoff = [](const SumPlan& sum) {
    return sum.order == SumOrder::kTensorCore ? std::ldexp(1.0, -sum.aligned_bits)
                                              : Roundoff(sum.accumulator);
  };
  a.u_qk = sum_roundoff(*plan.qk);
  a.u_pv = sum_roundoff(*plan.pv);
  a.u_l = sum_roundoff(*plan.l);
  const int q_bits = *plan.prescale_roundings > 0 ? SignificantBits(*plan.prescale_dtype)
                                                  : SignificantBits(c.q);
  const bool qk_exact = ProductsExact(q_bits, ElementBits(c.k, profile, plan), plan.qk->accumulator);
  a.h_qk = SumDepth(*plan.qk, static_cast<double>(c.k_dim), static_cast<double>(c.k_dim), 1,
                    qk_exact);
  a.c_s = *plan.scale_roundings;
  if (*plan.prescale_roundings > 0) {
    const double u = UnitRoundoff(*plan.prescale_dtype);
    a.u_q = std::expm1(*plan.prescale_roundings * std::log1p(u));
    a.eta_q = *plan.prescale_roundings * HalfSmallestSubnormal(*plan.prescale_dtype);
  }
  // Bias, softcap and mask act on scores in the type in which they are kept.
  a.u_b = std::max(a.u_a, UnitRoundoff(*plan.scores));
  if (UnitRoundoff(*plan.scores) > a.u_a) {
    a.eta_s = HalfSmallestSubnormal(*plan.scores);
    // An accumulator of the same type is stored as it is, when no scaling follows.
    const bool stored_exactly =
        plan.qk->accumulator.dtype == *plan.scores && *plan.scale_roundings == 0;
    if (!stored_exactly) a.u_s = UnitRoundoff(*plan.scores);
  }
  a.c_b = *plan.bias_roundings;
  a.u_tanh = *plan.tanh_error;
  switch (*plan.exp) {
    case ExpForm::kExp: a.c_m = 1; break;
    case ExpForm::kExp2Scaled: a.c_m = 3; break;
    case ExpForm::kExp2Log2: a.c_m = 1; break;
    case ExpForm::kExp2Fma: a.c_m = 2, a.c_shift = 1; break;
  }
  if (unknown_exp) a.c_shift = 1;
  const bool log2_units = *plan.exp == ExpForm::kExp2Log2 || *plan.exp == ExpForm::kExp2Fma;
  if (log2_units) a.c_b += 2;
  a.lse_roundings = log2_units || unknown_exp || c.lse == LseKind::kBase2 ? 3 : 1;
  a.lambda_lazy = *plan.lazy_rescale;
  a.u_e = *plan.exp_error;
  a.eta_e = *plan.exp_floor;

  if (p_is_low) {
    a.u_p = UnitRoundoff(*plan.p) * (plan.op->toward_zero ? 2 : 1);
    a.eta_p = HalfSmallestSubnormal(*plan.p) / *plan.p_scale * (plan.op->toward_zero ? 2 : 1);
  }
  a.p_normalised = *plan.p_normalised;
  a.final_division = !a.p_normalised || unsaid_normalised;
  a.p_in_weights = p_is_low && *plan.l_from_rounded_p;
  a.p_in_numerator = p_is_low && (!*plan.l_from_rounded_p || unsaid_both);
  int exponent = 0;
  a.p_cut = p_is_low && !a.p_normalised && a.lambda_lazy == 0 && !plan.op->toward_zero &&
            std::frexp(*plan.p_scale, &exponent) == 0.5 &&
            *plan.p_scale <= FloatTypeOf(*plan.p).largest_finite;
  a.p_largest = FloatTypeOf(*plan.p).largest_finite / *plan.p_scale;

  a.merge = *plan.merge;
  a.u_log = *plan.log_error;
  if (UnitRoundoff(*plan.partial) > a.u_a) {
    a.u_part = UnitRoundoff(*plan.partial);
    a.eta_part = HalfSmallestSubnormal(*plan.partial);
  }
  const int p_bits = SignificantBits(*plan.p);
  const bool pv_exact =
      p_is_low && ProductsExact(p_bits, ElementBits(c.v, profile, plan), plan.pv->accumulator);
  a.pv_exact = pv_exact;
  a.has_sinks = c.sinks.has_value();
  a.c_d = *plan.reciprocal ? 2 : 1;
  if (UnitRoundoff(c.out) > a.u_a || plan.op->dtype != c.out) {
    if (UnitRoundoff(c.out) >= UnitRoundoff(plan.op->dtype) && plan.op->dtype != c.out) {
      a.u_o = UnitRoundoff(c.out);
      a.eta_o = HalfSmallestSubnormal(c.out);
    }
  }
  // Normalised P summed in the output's own type leaves nothing to round.
  if (a.p_normalised && !a.final_division && a.merge == MergeKind::kNone &&
      plan.pv->accumulator.dtype == c.out) {
    a.u_o = a.eta_o = 0;
  }
  const FloatType& out = FloatTypeOf(c.out);
  if (*plan.flush_subnormals && a.u_o > 0) a.eta_o = out.smallest_normal;
  // Values from the largest finite one plus half a spacing on round to infinity.
  a.overflow = out.largest_finite +
               UnitRoundoff(c.out) * std::ldexp(1.0, std::ilogb(out.largest_finite));
  a.saturates = *plan.saturate_output;
  const FloatType& op = FloatTypeOf(plan.op->dtype);
  for (const DType type : {plan.op->dtype, plan.qk->accumulator.dtype, plan.pv->accumulator.dtype,
                           plan.l->accumulator.dtype}) {
    const FloatType& facts = FloatTypeOf(type);
    a.lambda = std::max(a.lambda, *plan.flush_subnormals ? facts.smallest_normal
                                                         : facts.smallest_subnormal);
  }
  a.score_largest = std::min({FloatTypeOf(plan.qk->accumulator.dtype).largest_finite,
                              FloatTypeOf(*plan.scores).largest_finite, op.largest_finite});
  a.sum_largest = std::min(FloatTypeOf(plan.pv->accumulator.dtype).largest_finite,
                           op.largest_finite);

  if (has_codes && profile.decode == DecodeRounding::kExact) {
    switch (*plan.dequantize) {
      case DequantizeKind::kStored: break;
      case DequantizeKind::kInside:
        a.parts = true;
        a.c_parts = *plan.dequantize_roundings;
        break;
      case DequantizeKind::kFactored:
        a.parts = a.factored = true;
        a.c_parts = 2;
        break;
      case DequantizeKind::kRounded:
        a.parts = true;
        a.c_parts = 2;
        a.u_parts = UnitRoundoff(*plan.dequantize_dtype);
        a.eta_parts = HalfSmallestSubnormal(*plan.dequantize_dtype);
        break;
    }
  }
  return a;
}

}  // namespace kvcheck
