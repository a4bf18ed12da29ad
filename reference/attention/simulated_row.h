// One row of a simulated kernel: scores, blocks, splits and their combination as a plan says, with
// every rounding explicit. The meaning of a plan in code.

#ifndef REFERENCE_ATTENTION_SIMULATED_ROW_H_
#define REFERENCE_ATTENTION_SIMULATED_ROW_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "reference/attention/head_data.h"
#include "reference/attention/operand_cut.h"
#include "reference/attention/rules.h"
#include "reference/attention/simulated_arithmetic.h"
#include "reference/attention/simulated_sums.h"
#include "reference/formats/stored_basis.h"
#include "reference/numerics/convert.h"
#include "reference/spec/case.h"
#include "reference/spec/error.h"
#include "reference/spec/plan.h"

namespace kvcheck::simulated {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The plan's operations beside the sums.
class Op {
 public:
  explicit Op(const Plan& plan)
      : dtype_(plan.op->dtype), flush_(*plan.flush_subnormals), plan_(plan) {
    rule_.rounding = plan.op->toward_zero ? Rounding::kTowardZero : Rounding::kNearestEven;
  }
  double Round(double x) const {
    double y = dtype_ == DType::kFloat32 && !plan_.op->toward_zero ? RoundToF32(x)
                                                                   : RoundTo(dtype_, x, rule_);
    return flush_ && std::fabs(y) < FloatTypeOf(dtype_).smallest_normal ? std::copysign(0.0, y) : y;
  }
  double Add(double a, double b) const {
    return Round(plan_.op->toward_zero ? RoundToOdd(TwoSum(a, b)) : a + b);
  }
  double Mul(double a, double b) const {
    return Round(plan_.op->toward_zero ? RoundToOdd(TwoProd(a, b)) : a * b);
  }
  double Div(double a, double b) const { return Round(a / b); }
  // An elementary function: correctly rounded, then displaced within the declared error by a phase
  // that depends on the argument.
  double Displace(double value, double argument, double error) const {
    const double spare = error - UnitRoundoff(dtype_) * (plan_.op->toward_zero ? 2 : 1);
    if (spare > 0) {
      uint64_t z = std::bit_cast<uint64_t>(argument) * 0x9e3779b97f4a7c15u;
      z ^= z >> 29;
      z *= 0xbf58476d1ce4e5b9u;
      const double phase = static_cast<double>(static_cast<int64_t>(z)) * 0x1p-63;
      value *= 1 + spare * phase * (1 - 0x1p-20);
    }
    return Round(value);
  }
  // Within 2 ulp, as rcp.approx and div.full promise.
  double ApproximateDiv(double a, double b) const {
    // In double the quotient itself is rounded, which is one of the four.
    const double units = dtype_ == DType::kFloat64 ? 3 : 4;
    return Displace(a / b, b, units * UnitRoundoff(dtype_) * (plan_.op->toward_zero ? 2 : 1));
  }
  double Exp(double x) const { return Displace(std::exp(x), x, *plan_.exp_error); }
  double Exp2(double x) const { return Displace(std::exp2(x), x, *plan_.exp_error); }
  double Log(double x) const { return Displace(std::log(x), x, *plan_.log_error); }
  double Tanh(double x) const { return Displace(std::tanh(x), x, *plan_.tanh_error); }
  double Fma(double a, double b, double c) const {
    if (dtype_ == DType::kFloat64) return Round(std::fma(a, b, c));
    return Round(RoundToOdd(TwoSum(a * b, c)));
  }
  // A conversion to a storage type, in the direction of the other operations.
  double Convert(DType type, double x) const { return RoundTo(type, x, rule_); }
  // x as it is stored between operations: converted where the type is narrower than op's.
  double Keep(DType type, double x) const {
    return UnitRoundoff(type) > UnitRoundoff(dtype_) ? Convert(type, x) : x;
  }

 private:
  DType dtype_;
  bool flush_;
  const Plan& plan_;
  ConvertRule rule_;
};

// One column as a kernel walks over it.
struct Entry {
  double s = -kInfinity;  // as kept
  int32_t column = 0;
  bool live = true;  // false: masked, but still seen by the maximum and in its place
  const double* v = nullptr;
};

// Running state over the keys of one split.
struct Partial {
  bool any = false;
  double shift = -kInfinity;  // m, in the units of the exponent's argument
  double denominator = 0;
  std::vector<double> sums;
};

class RowKernel {
 public:
  RowKernel(const Plan& plan, const AttentionCase& c, const AttentionRules& rules)
      : plan_(plan), c_(c), rules_(rules), op_(plan), flush_(*plan.flush_subnormals) {
    alpha_ = rules.scale ? rules.scale(c) : c.scale;
    drifts_ = *plan.exp == ExpForm::kExp2FmaDrift;
    fused_ = *plan.exp == ExpForm::kExp2Fma || drifts_;
    log2_ = *plan.exp == ExpForm::kExp2Log2 || fused_;
    log2e_ = op_.Round(std::numbers::log2e);
    natural_alpha_ = op_.Round(alpha_);
    // One constant where nothing stands between the dot product and the exponent.
    folded_ = log2_ && !c.softcap && !c.alibi && c.mask.array != MaskArrayKind::kAdditive &&
              !c.sinks && UnitRoundoff(*plan.scores) <= UnitRoundoff(plan.op->dtype) &&
              *plan.prescale_roundings == 0;
    factor_ = folded_ ? op_.Mul(natural_alpha_, log2e_) : natural_alpha_;
  }

  // q: as EncodeQuery gives it; d: channels. Score as kept: natural units, or (folded) log2 units
  // for kExp2Log2, raw dot for kExp2Fma.
  double Score(std::span<const double> q, const double* k, size_t d, double bias) const {
    double x = 0;
    if (*plan_.prescale_roundings > 0) {
      std::vector<double> scaled(d);
      const DType type = *plan_.prescale_dtype;
      const double alpha = op_.Convert(type, alpha_);
      for (size_t i = 0; i < d; ++i) scaled[i] = op_.Convert(type, q[i] * alpha);
      x = DotWith(scaled, k, d);
    } else {
      x = DotWith(q, k, d);
      if (folded_ && fused_) return x;
      x = op_.Mul(x, factor_);
    }
    const DType stored = *plan_.scores;
    const auto keep = [&](double value) { return op_.Keep(stored, value); };
    x = keep(x);
    if (c_.softcap) {
      const double cap = op_.Round(*c_.softcap);
      x = keep(op_.Mul(op_.Tanh(keep(op_.Div(x, cap))), cap));
    }
    if (c_.alibi || c_.mask.array == MaskArrayKind::kAdditive) {
      x = keep(op_.Add(x, op_.Round(bias)));
    }
    return log2_ && !folded_ && *plan_.exp == ExpForm::kExp2Log2 ? op_.Mul(x, log2e_) : x;
  }

  double SinkScore(double sink) const {
    double s = op_.Keep(*plan_.scores, op_.Round(sink));
    return *plan_.exp == ExpForm::kExp2Log2 ? op_.Mul(s, log2e_) : s;
  }

  // A finite mask value in the units of Score.
  double ForcedScore(double score) const {
    const double s = op_.Keep(*plan_.scores, op_.Round(score));
    if (*plan_.exp == ExpForm::kExp2Log2) return op_.Mul(s, log2e_);
    return folded_ && fused_ ? op_.Div(s, natural_alpha_) : s;
  }

  // exp of a score under a shift of the same units.
  double Weight(double s, double shift) const {
    if (shift == -kInfinity) return 0;
    switch (*plan_.exp) {
      case ExpForm::kExp:
        return op_.Exp(op_.Add(s, -shift));
      case ExpForm::kExp2Scaled:
        return op_.Exp2(op_.Mul(op_.Add(s, -shift), log2e_));
      case ExpForm::kExp2Log2:
        return op_.Exp2(op_.Add(s, -shift));
      case ExpForm::kExp2Fma:
      case ExpForm::kExp2FmaDrift: {
        const double constant = folded_ ? factor_ : log2e_;
        return op_.Exp2(op_.Fma(s, constant, -op_.Mul(shift, constant)));
      }
    }
    return 0;
  }

  // Correction of earlier weights when the shift rises.
  double Correction(double from, double to) const {
    if (from == -kInfinity) return 0;
    if (*plan_.exp == ExpForm::kExp2Fma) {
      return op_.Exp2(op_.Mul(op_.Add(from, -to), folded_ ? factor_ : log2e_));
    }
    return Weight(from, to);
  }

  double RoundP(double weight) const {
    double p = weight;
    if (UnitRoundoff(*plan_.p) > UnitRoundoff(plan_.op->dtype)) {
      p = op_.Convert(*plan_.p, op_.Mul(weight, *plan_.p_scale)) / *plan_.p_scale;
    }
    return rules_.p_step ? rules_.p_step(p) : p;
  }

  // One range of keys, block by block.
  Partial RunSplit(std::span<const Entry> entries, bool joins, double sink) const {
    Partial partial;
    // A logit of -inf, or one that is -inf in the type of the scores, has no weight.
    const bool with_sink = joins && SinkScore(sink) != -kInfinity;
    partial.any = with_sink || std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
                    return entry.live && entry.s > -kInfinity;
                  });
    auto sums = v_group_ > 0 ? MakeFactoredAccumulator(*plan_.pv, *plan_.op, flush_,
                                                       plan_.fixed_p.value_or(0),
                                                       static_cast<size_t>(c_.v_dim), v_group_)
                             : MakeAccumulator(*plan_.pv, flush_, static_cast<size_t>(c_.v_dim));
    auto denominator = MakeAccumulator(*plan_.l, flush_, 1);
    const bool early_sink = with_sink && !*plan_.late_sink;
    if (early_sink) {
      partial.shift = SinkScore(sink);
      denominator->AddConstant(1);
    }
    static const double kOne = 1;
    size_t begin = 0;
    while (begin < entries.size()) {
      size_t end = entries.size();
      if (*plan_.block > 0) {
        const int32_t block = entries[begin].column / *plan_.block;
        end = begin;
        while (end < entries.size() && entries[end].column / *plan_.block == block) ++end;
      }
      const std::span<const Entry> part = entries.subspan(begin, end - begin);
      double block_max = -kInfinity;
      for (const Entry& entry : part) block_max = std::max(block_max, entry.s);
      MoveShift(block_max, &partial.shift, sums.get(), denominator.get());
      std::vector<double> weights(part.size()), p(part.size());
      for (size_t j = 0; j < part.size(); ++j) {
        weights[j] = part[j].live ? Weight(part[j].s, partial.shift) : 0;
        p[j] = RoundP(weights[j]);
      }
      const std::vector<const double*> ones(part.size(), &kOne);
      denominator->AddBlock(*plan_.l_from_rounded_p ? p : weights, ones);
      if (!*plan_.p_normalised) AddProducts(p, Rows(part), sums.get());
      begin = end;
    }
    if (with_sink && !early_sink) {
      const double score = SinkScore(sink);
      MoveShift(score, &partial.shift, sums.get(), denominator.get());
      denominator->AddConstant(Weight(score, partial.shift));
    }
    partial.denominator = denominator->Finish()[0];
    if (*plan_.p_normalised && !entries.empty()) {
      std::vector<double> p(entries.size());
      for (size_t j = 0; j < entries.size(); ++j) {
        const double weight = entries[j].live ? Weight(entries[j].s, partial.shift) : 0;
        p[j] = RoundP(Divided(weight, partial.denominator));
      }
      AddProducts(p, Rows(entries), sums.get());
    }
    partial.sums = sums->Finish();
    return partial;
  }

  // (out, lse) of a row from its partials. out: (Dv) before the output type's rounding.
  void Combine(std::vector<Partial> partials, std::vector<double>* out, double* lse) const {
    // Ranges without a key, and ranges whose weights all vanished, have no weight in the merge;
    // where no other is left, 0 / 0 remains.
    const auto drop = [&](const auto& empty) {
      if (!std::all_of(partials.begin(), partials.end(), empty)) std::erase_if(partials, empty);
    };
    drop([](const Partial& p) { return !p.any; });
    drop([](const Partial& p) { return p.denominator == 0; });
    if (*plan_.merge == MergeKind::kNone) {
      *lse = Lse(partials[0].shift, partials[0].denominator);
      *out = *plan_.p_normalised ? partials[0].sums
                                 : Normalise(partials[0].sums, partials[0].denominator);
      return;
    }
    const size_t dv = partials[0].sums.size();
    if (*plan_.merge == MergeKind::kAccumulators) {
      double top = -kInfinity;
      for (const Partial& p : partials) top = std::max(top, p.shift);
      std::vector<double> sums(dv, 0.0);
      double denominator = 0;
      for (size_t i = 0; i < partials.size(); ++i) {
        Partial& p = partials[i];
        for (double& value : p.sums) value = op_.Keep(*plan_.partial, value);
        const double weight = MergeWeight(i, partials.size(), Correction(p.shift, top));
        denominator = op_.Add(denominator, op_.Mul(p.denominator, weight));
        for (size_t c = 0; c < dv; ++c) sums[c] = op_.Add(sums[c], op_.Mul(p.sums[c], weight));
      }
      *lse = Lse(top, denominator);
      *out = Normalise(sums, denominator);
      return;
    }
    std::vector<double> lses;
    double top = -kInfinity;
    for (Partial& p : partials) {
      p.sums = *plan_.p_normalised ? p.sums : Normalise(p.sums, p.denominator);
      for (double& value : p.sums) value = op_.Keep(*plan_.partial, value);
      lses.push_back(Lse(p.shift, p.denominator));
      top = std::max(top, lses.back());
    }
    double total = 0;
    std::vector<double> weights;
    for (double value : lses) {
      weights.push_back(MergeWeight(weights.size(), lses.size(), op_.Exp(op_.Add(value, -top))));
      total = op_.Add(total, weights.back());
    }
    *lse = op_.Add(top, op_.Log(total));
    if (*plan_.merge == MergeKind::kLseDivisionFree) {
      for (size_t i = 0; i < lses.size(); ++i) {
        weights[i] = MergeWeight(i, lses.size(), op_.Exp(op_.Add(lses[i], -*lse)));
      }
    }
    std::vector<double> sums(dv, 0.0);
    for (size_t i = 0; i < partials.size(); ++i) {
      for (size_t c = 0; c < dv; ++c) {
        sums[c] = op_.Add(sums[c], op_.Mul(partials[i].sums[c], weights[i]));
      }
    }
    *out = *plan_.merge == MergeKind::kLse ? Normalise(sums, total) : sums;
  }

  double ToBase2(double lse) const { return op_.Mul(lse, log2e_); }

  // Rows of K, rows of V: codes, scales and biases where the plan factors them out.
  void FactorCodes(size_t k_group, size_t v_group) { k_group_ = k_group, v_group_ = v_group; }

  // q as rows of K are where q.k is computed in integers: its codes, scales and biases. Otherwise
  // q, or what integers times steps stand for.
  std::vector<double> EncodeQuery(std::span<const double> q, const Profile& profile) const {
    if (!plan_.integer_qk) {
      std::vector<double> steps(q.begin(), q.end());
      for (size_t first = 0; plan_.fixed_q && first < steps.size(); first += k_group_) {
        RoundToSteps(*plan_.fixed_q, std::span(steps).subspan(first, k_group_));
      }
      return steps;
    }
    Tensor row(DType::kFloat64, Shape::Unnamed({1, static_cast<int64_t>(q.size())}));
    EncodeFrom(q, row.dtype, row.bytes.data());
    const KvFormat& format = *plan_.integer_qk;
    const TensorMap codes = EncodeRows(format, profile, row);
    return CodesAsNumbers(format, CodecRows(format, codes), 0, 1);
  }

  // R row and R^T row, each butterfly and each product rounded.
  void Rotate(const StoredBasis& basis, std::span<double> row) const {
    for (const RotatedBlock& block : basis.blocks) {
      ApplySigns(block, row);
      Transform(block, row);
    }
  }
  void RotateBack(const StoredBasis& basis, std::span<double> row) const {
    for (const RotatedBlock& block : basis.blocks) {
      Transform(block, row);
      ApplySigns(block, row);
    }
  }

 private:
  static void ApplySigns(const RotatedBlock& block, std::span<double> row) {
    for (size_t i = 0; i < block.channels.size(); ++i) {
      row[block.channels[i]] *= static_cast<double>(block.signs[i]);
    }
  }
  void Transform(const RotatedBlock& block, std::span<double> row) const {
    const std::vector<size_t>& at = block.channels;
    for (size_t stride = 1; stride < at.size(); stride *= 2) {
      for (size_t i = 0; i < at.size(); ++i) {
        if ((i & stride) != 0) continue;
        const double low = row[at[i]], high = row[at[i + stride]];
        row[at[i]] = op_.Add(low, high);
        row[at[i + stride]] = op_.Add(low, -high);
      }
    }
    const double scale = op_.Round(1 / std::sqrt(static_cast<double>(at.size())));
    for (const size_t channel : at) row[channel] = op_.Mul(row[channel], scale);
  }

  double DotWith(std::span<const double> q, const double* k, size_t d) const {
    if (plan_.integer_qk) {
      const int64_t group = GridOf(*plan_.integer_qk)->group;
      return IntegerDot(*plan_.qk, *plan_.op, flush_, d, static_cast<size_t>(group), q.data(),
                        k_group_, k);
    }
    if (k_group_ == 0 && plan_.qk_operands) return CutDot(q, k, d);
    if (k_group_ == 0) return Dot(*plan_.qk, flush_, q, {k, d});
    return FactoredDot(*plan_.qk, *plan_.op, flush_, static_cast<int64_t>(k_group_), q, k);
  }

  // Of operands that are cut: the products of their parts, one pass after another.
  double CutDot(std::span<const double> q, const double* k, size_t d) const {
    const OperandCut& cut = *plan_.qk_operands;
    std::vector<std::vector<double>> q_parts, k_parts;
    for (size_t i = 0; i < d; ++i) {
      q_parts.push_back(PartsOf(cut, flush_, q[i]));
      k_parts.push_back(PartsOf(cut, flush_, k[i]));
    }
    std::vector<double> a, b;
    for (const auto& [of_q, of_k] : ProductsOf(cut)) {
      for (size_t i = 0; i < d; ++i) a.push_back(q_parts[i][of_q]), b.push_back(k_parts[i][of_k]);
    }
    return Dot(*plan_.qk, flush_, a, b);
  }

  void AddProducts(std::span<const double> p, const std::vector<const double*>& rows,
                   RowAccumulator* sums) const {
    if (!plan_.pv_operands || v_group_ > 0) return sums->AddBlock(p, rows);
    const OperandCut& cut = *plan_.pv_operands;
    const auto dv = static_cast<size_t>(c_.v_dim);
    const auto products = ProductsOf(cut);
    std::vector<double> p_parts, v_parts;  // [key][part], [key][part][channel]
    for (size_t j = 0; j < p.size(); ++j) {
      // A low type is cut as its codes are, before the scale is taken back.
      const bool is_low = UnitRoundoff(*plan_.p) > UnitRoundoff(plan_.op->dtype);
      const double scale = is_low ? *plan_.p_scale : 1;
      // The code, which p is but for the double's division.
      const double code = is_low ? RoundTo(*plan_.p, p[j] * scale) : op_.Keep(*plan_.p, p[j]);
      std::vector<double> of_p = PartsOf(cut, flush_, code);
      for (double& part : of_p) part /= scale;
      p_parts.insert(p_parts.end(), of_p.begin(), of_p.end());
      const size_t at = v_parts.size();
      v_parts.resize(at + of_p.size() * dv);
      for (size_t c = 0; c < dv; ++c) {
        const std::vector<double> of_v = PartsOf(cut, flush_, rows[j][c]);
        for (size_t i = 0; i < of_v.size(); ++i) v_parts[at + i * dv + c] = of_v[i];
      }
    }
    const size_t count = p.empty() ? 1 : p_parts.size() / p.size();
    std::vector<double> weights;
    std::vector<const double*> values;
    for (const auto& [of_p, of_v] : products) {
      for (size_t j = 0; j < p.size(); ++j) {
        weights.push_back(p_parts[j * count + of_p]);
        values.push_back(&v_parts[(j * count + of_v) * dv]);
      }
    }
    sums->AddBlock(weights, values);
  }

  double MergeWeight(size_t index, size_t count, double weight) const {
    if (plan_.merge_weights) weight = op_.Keep(*plan_.merge_weights, weight);
    return rules_.merge_weight ? rules_.merge_weight(index, count, weight) : weight;
  }

  static std::vector<const double*> Rows(std::span<const Entry> entries) {
    std::vector<const double*> rows;
    for (const Entry& entry : entries) rows.push_back(entry.v);
    return rows;
  }

  void MoveShift(double candidate, double* shift, RowAccumulator* sums,
                 RowAccumulator* denominator) const {
    double nats = *plan_.lazy_rescale;
    if (*plan_.exp == ExpForm::kExp2Log2) nats *= std::numbers::log2e;
    if (fused_ && folded_) nats /= std::fabs(alpha_);
    if (*shift != -kInfinity && !(candidate > *shift + nats)) {
      // Normalised weights are made anew from the last shift.
      if (!drifts_ || *plan_.p_normalised) return;
      candidate = *shift;
    }
    const double correction = Correction(*shift, candidate);
    if (*shift != -kInfinity) {
      sums->Rescale(rules_.sums_rescale ? rules_.sums_rescale(correction) : correction);
      denominator->Rescale(rules_.denominator_rescale ? rules_.denominator_rescale(correction)
                                                      : correction);
    }
    *shift = candidate;
  }

  std::vector<double> Normalise(const std::vector<double>& sums, double denominator) const {
    std::vector<double> out(sums.size());
    for (size_t c = 0; c < sums.size(); ++c) out[c] = Divided(sums[c], denominator);
    return out;
  }

  double Divided(double x, double denominator) const {
    switch (*plan_.normalise) {
      case NormaliseKind::kDivide:
        return op_.Div(x, denominator);
      case NormaliseKind::kReciprocal:
        return op_.Mul(x, op_.Div(1, denominator));
      case NormaliseKind::kApproximate:
        return op_.Mul(x, op_.ApproximateDiv(1, denominator));
    }
    KVCHECK_CHECK(false, "no way to divide");
  }

  // Natural log-sum-exp.
  double Lse(double shift, double denominator) const {
    const double log = op_.Log(denominator);
    if (*plan_.exp == ExpForm::kExp2Log2)
      return op_.Add(op_.Mul(shift, op_.Round(std::numbers::ln2)), log);
    if (fused_ && folded_) return op_.Add(op_.Mul(shift, natural_alpha_), log);
    return op_.Add(shift, log);
  }

  const Plan& plan_;
  const AttentionCase& c_;
  const AttentionRules& rules_;
  Op op_;
  bool flush_;
  double alpha_ = 1;
  double natural_alpha_ = 1;
  double log2e_ = 1;
  double factor_ = 1;
  bool log2_ = false;
  bool fused_ = false;   // exp2 of a fused multiply-add with a rounded shift
  bool drifts_ = false;  // earlier weights move by that rounding in every block
  bool folded_ = false;
  size_t k_group_ = 0;  // 0: rows of values
  size_t v_group_ = 0;
};

}  // namespace kvcheck::simulated

#endif  // REFERENCE_ATTENTION_SIMULATED_ROW_H_
