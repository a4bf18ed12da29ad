#include "fuzz/draw_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "fuzz/fit_attention.h"
#include "fuzz/pick_format.h"
#include "reference/data/attention_regime.h"
#include "reference/data/generator.h"
#include "reference/formats/codec.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed * 0xd1342543de82ef95u + 0x632be59bd9b4e019u) {}
  // lowest..highest
  int64_t Int(int64_t lowest, int64_t highest) {
    return lowest +
           static_cast<int64_t>(generator_.Bits() % static_cast<uint64_t>(highest - lowest + 1));
  }
  size_t Below(size_t n) { return static_cast<size_t>(generator_.Bits() % n); }
  bool OneIn(int64_t n) { return Int(1, n) == 1; }
  template <typename T>
  T Of(std::initializer_list<T> values) {
    return values.begin()[Int(0, static_cast<int64_t>(values.size()) - 1)];
  }

 private:
  Generator generator_;
};

int64_t DrawLength(Draw* draw, int64_t longest) {
  switch (draw->Int(0, 3)) {
    case 0:
      return draw->Int(1, std::min<int64_t>(4, longest));
    case 1:
      return draw->Int(1, std::min<int64_t>(17, longest));
    default:
      return draw->Int(1, longest);
  }
}

KvFormat DrawFormat(Draw* draw, DType type, int64_t dim) {
  if (dim % 32 != 0 || type == DType::kFloat64 || !draw->OneIn(6)) return PlainFormat{type};
  // Rows of the type, or of the only type that the format has. Long groups are mostly more of the
  // same.
  std::vector<KvFormat> formats;
  static const std::vector<KvFormat> all = AllKvFormats();
  for (const KvFormat& format : all) {
    const bool fits = BlockOf(format) <= 64 && FitsHeadDim(format, dim) && !GroupsTokens(format);
    if (!IsPlain(format) && fits && WithRowType(format, type) == format) formats.push_back(format);
  }
  return PickFormat(formats, [&](size_t n) { return draw->Below(n); });
}

MaskSpec DrawMask(Draw* draw, const AttentionCase& c) {
  MaskSpec mask;
  mask.causal =
      draw->Of({CausalAlignment::kNone, CausalAlignment::kBottomRight, CausalAlignment::kTopLeft});
  if (draw->OneIn(4)) mask.window = draw->Int(1, c.kv_len + 1);
  if (draw->OneIn(4)) {
    for (int64_t b = 0; b < c.batch; ++b) mask.left_padding.push_back(draw->Int(0, c.kv_len / 2));
  }
  if (draw->OneIn(3)) {
    mask.array = draw->Of({MaskArrayKind::kBoolean, MaskArrayKind::kAdditive});
    mask.axes =
        draw->Of({MaskAxes::kT, MaskAxes::kLT, MaskAxes::kB1LT, MaskAxes::kBHLT, MaskAxes::kB11T});
    if (mask.array == MaskArrayKind::kAdditive) mask.additive_dtype = c.q;
  }
  return mask;
}

SumPlan DrawSum(Draw* draw, DType accumulator, bool over_keys, bool toward_zero) {
  SumPlan sum;
  sum.accumulator = {accumulator, toward_zero};
  sum.order = draw->Of({SumOrder::kSequential, SumOrder::kLanes, SumOrder::kPairwise});
  if (accumulator == DType::kFloat32 && draw->OneIn(4)) {
    sum.order = SumOrder::kTensorCore;
    sum.width = draw->Of({4, 8, 16});
    sum.aligned_bits = 23;
  }
  if (sum.order == SumOrder::kLanes) sum.width = draw->Of({2, 4, 8, 16});
  const bool can_fuse = sum.order == SumOrder::kSequential || sum.order == SumOrder::kLanes;
  sum.fma = can_fuse && draw->OneIn(2);
  sum.chained = over_keys && sum.order != SumOrder::kPairwise && draw->OneIn(2);
  return sum;
}

Plan DrawPlan(Draw* draw, const AttentionCase& c, std::string* structure) {
  Plan plan;
  const bool f64 = c.q == DType::kFloat64;
  const DType wide = f64 ? DType::kFloat64 : DType::kFloat32;
  const bool toward_zero = !f64 && draw->OneIn(8);
  const auto accumulator = [&] {
    return (c.q == DType::kBFloat16 || c.q == DType::kFloat16) && draw->OneIn(8) ? c.q : wide;
  };
  plan.qk = DrawSum(draw, accumulator(), false, toward_zero);
  plan.pv = DrawSum(draw, accumulator(), true, toward_zero);
  plan.l = DrawSum(draw, wide, true, toward_zero);
  if ((c.q == DType::kBFloat16 || c.q == DType::kFloat16) && draw->OneIn(12)) {
    plan.l = DrawSum(draw, c.q, true, toward_zero);
  }
  // The denominator is a sum without products: no tensor core, nothing to fuse.
  if (plan.l->order == SumOrder::kTensorCore) {
    plan.l->order = SumOrder::kSequential;
    plan.l->width = plan.l->aligned_bits = 0;
  }
  plan.l->fma = false;
  plan.op = RoundedType{wide, toward_zero};
  plan.exp = draw->Of({ExpForm::kExp, ExpForm::kExp2Scaled, ExpForm::kExp2Log2, ExpForm::kExp2Fma,
                       ExpForm::kExp2FmaDrift});
  // Constants: alpha, log2e and their product, each rounded once; then the scaling itself.
  const bool fused = *plan.exp == ExpForm::kExp2Fma || *plan.exp == ExpForm::kExp2FmaDrift;
  plan.scale_roundings = *plan.exp == ExpForm::kExp2Log2 ? 4 : fused ? 3 : 2;
  plan.prescale_roundings = 0;
  plan.scores = wide;
  plan.bias_roundings = 1;
  plan.tanh_error = f64 ? 0x1p-51 : 0x1p-22;
  plan.exp_error = f64 ? 0x1p-51 : draw->Of({0x1p-23, 0x1p-22, 0x1p-21});
  plan.log_error = f64 ? 0x1p-51 : 0x1p-22;
  plan.exp_floor = f64 ? 0x1p-1022 : 0x1p-126;
  plan.lazy_rescale = draw->OneIn(8) ? 5.545177444479562 : 0;  // 8 octaves
  plan.block = draw->OneIn(3) ? 0 : draw->Of({1, 2, 7, 16, 64});
  plan.late_sink = draw->OneIn(2);
  plan.p = wide;
  plan.p_scale = 1;
  plan.p_normalised = *plan.block == 0 && draw->OneIn(3);
  plan.l_from_rounded_p = false;
  if (!f64 && (c.q != DType::kFloat32 || draw->OneIn(4))) {
    plan.p = c.q == DType::kFloat32 ? draw->Of({DType::kBFloat16, DType::kFloat16}) : c.q;
    if (draw->OneIn(8)) {
      plan.p = DType::kFloat8E4M3FN;
      // A lazy shift lets P reach 2^8, and e4m3 ends at 448.
      plan.p_scale = *plan.lazy_rescale > 0 ? 1.0 : draw->Of({1.0, 256.0, 440.0});
    }
    plan.l_from_rounded_p = !*plan.p_normalised && draw->OneIn(3);
  }
  if (c.q != wide && draw->OneIn(4)) plan.scores = c.q;
  if (c.q != wide && *plan.exp == ExpForm::kExp && draw->OneIn(4)) {
    plan.prescale_dtype = c.q;
    plan.prescale_roundings = 2;
  }
  plan.merge =
      draw->OneIn(3)
          ? draw->Of({MergeKind::kAccumulators, MergeKind::kLse, MergeKind::kLseDivisionFree})
          : MergeKind::kNone;
  // Normalised weights cannot be merged as accumulators.
  if (*plan.merge == MergeKind::kAccumulators) plan.p_normalised = false;
  plan.splits = *plan.merge == MergeKind::kNone ? 1 : static_cast<int>(draw->Int(2, 5));
  plan.partial = c.q != wide && draw->OneIn(3) ? c.q : wide;
  plan.normalise =
      draw->Of({NormaliseKind::kReciprocal, NormaliseKind::kDivide, NormaliseKind::kApproximate});
  plan.flush_subnormals = draw->OneIn(3);
  plan.saturate_output = draw->OneIn(8);
  if (!IsPlain(c.k) || !IsPlain(c.v)) {
    plan.dequantize = draw->Of({DequantizeKind::kStored, DequantizeKind::kInside,
                                DequantizeKind::kFactored, DequantizeKind::kRounded});
    if (plan.dequantize == DequantizeKind::kInside) {
      plan.dequantize_roundings = static_cast<int>(draw->Int(1, 2));
    }
    if (plan.dequantize == DequantizeKind::kRounded) {
      plan.dequantize_dtype = draw->Of({DType::kBFloat16, DType::kFloat16, c.q});
    }
  }
  *structure =
      fmt::format("{} {} p={}{}{} merge={}{}{}", *plan.block == 0 ? "two-pass" : "online",
                  Name(*plan.exp), ShortName(*plan.p), *plan.p_normalised ? " normalised" : "",
                  *plan.l_from_rounded_p ? " both" : "", Name(*plan.merge),
                  toward_zero ? " truncating" : "", *plan.flush_subnormals ? " FTZ" : "");
  return plan;
}

// Turns a kernel over codes of K into one that encodes its query and multiplies codes.
void DrawIntegerProducts(Draw* draw, DrawnAttention* drawn) {
  const AttentionCase& c = drawn->c;
  Plan& plan = drawn->plan;
  if (!GridOf(c.k) || draw->OneIn(2)) return;
  std::vector<KvFormat> formats;
  for (const KvFormat& format : AllKvFormats()) {
    const bool fits = BlockOf(format) <= 64 && FitsHeadDim(format, c.k_dim);
    if (GridOf(format) && fits) formats.push_back(format);
  }
  plan.integer_qk = PickFormat(formats, [&](size_t n) { return draw->Below(n); });
  plan.prescale_roundings = 0;
  plan.prescale_dtype.reset();
  drawn->profile.decode = DecodeRounding::kExact;
  if (plan.dequantize == DequantizeKind::kStored && GridOf(c.v)) {
    plan.dequantize = DequantizeKind::kInside;
    plan.dequantize_roundings = 2;
  }
  drawn->structure += " integer";
}

// Turns a kernel over rows that are stored rotated into one that stays in their basis.
void DrawRotated(Draw* draw, DrawnAttention* drawn) {
  const AttentionCase& c = drawn->c;
  Plan& plan = drawn->plan;
  const bool rotates_k = BasisOf(c.k, c.k_dim).Rotates();
  const bool rotates_v = BasisOf(c.v, c.v_dim).Rotates();
  if ((!rotates_k && !rotates_v) || draw->OneIn(3)) return;
  plan.dequantize = DequantizeKind::kRotated;
  plan.dequantize_roundings = static_cast<int>(draw->Int(1, 2));
  plan.dequantize_dtype.reset();
  drawn->profile.decode = DecodeRounding::kExact;
  drawn->structure += fmt::format(" rotated{}{}", rotates_k ? " k" : "", rotates_v ? " v" : "");
}

// Turns sums over codes into sums of products of integers.
void DrawFixed(Draw* draw, DrawnAttention* drawn) {
  const AttentionCase& c = drawn->c;
  Plan& plan = drawn->plan;
  if (plan.dequantize != DequantizeKind::kFactored) return;
  const auto error = [&] { return draw->Of({0x1.02p-23, 0x1p-12, 0x1p-8, 0x1p-3}); };
  if (GridOf(c.k) && !plan.integer_qk && *plan.prescale_roundings == 0 && draw->OneIn(2)) {
    plan.fixed_q = error();
    drawn->structure += " fixed q";
  }
  if (GridOf(c.v) && draw->OneIn(2)) {
    plan.fixed_p = error();
    drawn->structure += " fixed p";
  }
}

// Operands that are cut, weights of a merge and outputs that pass through a low type: on top of
// what was drawn before, so that the rest of a seed stays as it is.
void DrawCuts(Draw* draw, DrawnAttention* drawn) {
  const AttentionCase& c = drawn->c;
  Plan& plan = drawn->plan;
  if (plan.op->dtype != DType::kFloat32) return;
  const bool has_values = !plan.integer_qk && !plan.fixed_q && !plan.fixed_p &&
                          plan.dequantize != DequantizeKind::kFactored &&
                          plan.dequantize != DequantizeKind::kRotated;
  const auto cut = [&] {
    return OperandCut{draw->Of({OperandType::kTf32, OperandType::kBf16, OperandType::kF16}),
                      draw->Of({1, 1, 3, 6, 9}), draw->OneIn(2)};
  };
  if (has_values && draw->OneIn(c.q == DType::kFloat32 ? 2 : 8)) {
    if (!draw->OneIn(4)) plan.qk_operands = cut();
    if (!draw->OneIn(4)) plan.pv_operands = cut();
    drawn->structure += " operands cut";
  }
  if (plan.merge != MergeKind::kNone && draw->OneIn(3)) {
    plan.merge_weights = draw->Of({DType::kBFloat16, DType::kFloat16});
    drawn->structure += " merge weights low";
  }
  if (c.out != DType::kFloat64 && !*plan.saturate_output && draw->OneIn(8)) {
    plan.through = draw->Of({DType::kBFloat16, DType::kFloat16});
    drawn->structure += " through";
  }
}

}  // namespace

DrawnAttention DrawAttention(uint64_t seed, const DrawLimits& limits, const AttentionSpace& space) {
  Draw draw(seed);
  // What does not fit is drawn again from another sequence, so that the rest stays as it is.
  Draw again(~seed);
  const auto pick = [&](size_t count) {
    return static_cast<size_t>(again.Int(0, static_cast<int64_t>(count) - 1));
  };
  DrawnAttention drawn;
  AttentionCase& c = drawn.c;
  c.batch = draw.Int(1, 2);
  c.kv_heads = draw.Int(1, 2);
  c.query_heads = c.kv_heads * draw.Of<int64_t>({1, 2, 3, 4});
  c.query_len = draw.Int(1, limits.query_len);
  c.kv_len = DrawLength(&draw, limits.kv_len);
  c.k_dim = DrawLength(&draw, limits.head_dim);
  if (draw.OneIn(3)) c.k_dim = limits.head_dim;
  c.v_dim = draw.OneIn(3) ? DrawLength(&draw, limits.head_dim) : c.k_dim;
  c.q = draw.Of({DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kBFloat16,
                 DType::kFloat16, DType::kFloat16, DType::kFloat64});
  c.k = DrawFormat(&draw, c.q, c.k_dim);
  c.v = DrawFormat(&draw, c.q, c.v_dim);
  if (c.q == DType::kFloat32) {
    c.out = draw.Of({DType::kFloat32, DType::kBFloat16, DType::kFloat16});
  } else {
    c.out = c.q == DType::kFloat64 || !draw.OneIn(3) ? c.q : DType::kFloat32;
  }
  FitTypes(space, pick, &c);
  c.mask = DrawMask(&draw, c);
  FitMask(space, [&] { return DrawMask(&again, c); }, &c);
  c.scale = 1.0 / draw.Of({1.0, 4.0, 8.0, 5.656854249492381, 11.313708498984761});
  if (draw.OneIn(6)) c.softcap = draw.Of({5.0, 30.0, 50.0, 20.1});
  if (draw.OneIn(5)) c.sinks = c.q;
  c.alibi = draw.OneIn(8);
  if (draw.OneIn(3)) c.lse = draw.Of({LseKind::kNatural, LseKind::kBase2});
  FitExtras(space, &c);
  const auto regimes = AttentionRegimes().first(kGeneralRegimes);
  c.data.regime = std::string(
      regimes[static_cast<size_t>(draw.Int(0, static_cast<int64_t>(regimes.size()) - 1))]);
  c.data.seed = static_cast<uint64_t>(draw.Int(0, 999999));
  if (c.sinks && c.data.seed % 3 == 0) c.data.regime = "disabled_sinks";
  drawn.profile.masked_row = draw.Of({MaskedRow::kZero, MaskedRow::kNan, MaskedRow::kMean});
  drawn.plan = DrawPlan(&draw, c, &drawn.structure);
  if ((!IsPlain(c.k) || !IsPlain(c.v)) && drawn.plan.dequantize == DequantizeKind::kStored) {
    drawn.profile.decode = draw.Of({DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding});
  }
  if ((!IsPlain(c.k) || !IsPlain(c.v)) && draw.OneIn(4)) {
    c.against_original = space.against_original;
  }
  drawn.profile.maximum_over_all = draw.OneIn(6);
  if (draw.OneIn(5)) {
    drawn.profile.mask_value = draw.Of({MaskValueKind::kLowest, MaskValueKind::kNumber});
    if (drawn.profile.mask_value == MaskValueKind::kNumber) {
      drawn.profile.mask_number = draw.Of({-3.0, -12.5, -100.0, -10000.0, -1e9});
    }
    drawn.profile.masked_row = MaskedRow::kMean;
  }
  DrawIntegerProducts(&draw, &drawn);
  DrawRotated(&draw, &drawn);
  DrawFixed(&draw, &drawn);
  DrawCuts(&draw, &drawn);
  return drawn;
}

}  // namespace kvcheck
