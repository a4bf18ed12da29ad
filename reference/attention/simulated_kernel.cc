#include "reference/attention/simulated_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "reference/attention/simulated_arithmetic.h"
#include "reference/attention/simulated_sums.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
  double Add(double a, double b) const { return Round(a + b); }
  double Mul(double a, double b) const { return Round(a * b); }
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
  double Exp(double x) const { return Displace(std::exp(x), x, *plan_.exp_error); }
  double Exp2(double x) const { return Displace(std::exp2(x), x, *plan_.exp_error); }
  double Log(double x) const { return Displace(std::log(x), x, *plan_.log_error); }
  double Tanh(double x) const { return Displace(std::tanh(x), x, *plan_.tanh_error); }
  double Fma(double a, double b, double c) const {
    return Round(simulated::RoundToOdd(TwoSum(a * b, c)));
  }

 private:
  DType dtype_;
  bool flush_;
  const Plan& plan_;
  ConvertRule rule_;
};

double RoundStored(DType type, DType op, double x) {
  return UnitRoundoff(type) > UnitRoundoff(op) ? RoundTo(type, x) : x;
}

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
    log2_ = *plan.exp == ExpForm::kExp2Log2 || *plan.exp == ExpForm::kExp2Fma;
    log2e_ = op_.Round(std::numbers::log2e);
    natural_alpha_ = op_.Round(alpha_);
    // One constant where nothing stands between the dot product and the exponent.
    folded_ = log2_ && !c.softcap && !c.alibi && c.mask.array != MaskArrayKind::kAdditive &&
              !c.sinks && UnitRoundoff(*plan.scores) <= UnitRoundoff(plan.op->dtype) &&
              *plan.prescale_roundings == 0;
    factor_ = folded_ ? op_.Mul(natural_alpha_, log2e_) : natural_alpha_;
  }

  // Score as kept: natural units, or (folded) log2 units for kExp2Log2, raw dot for kExp2Fma.
  double Score(std::span<const double> q, const double* k, size_t d, double bias) const {
    double x = 0;
    if (*plan_.prescale_roundings > 0) {
      std::vector<double> scaled(d);
      const DType type = *plan_.prescale_dtype;
      const double alpha = RoundTo(type, alpha_);
      for (size_t i = 0; i < d; ++i) scaled[i] = RoundTo(type, q[i] * alpha);
      x = simulated::Dot(*plan_.qk, flush_, scaled, {k, d});
    } else {
      x = simulated::Dot(*plan_.qk, flush_, q, {k, d});
      if (folded_ && *plan_.exp == ExpForm::kExp2Fma) return x;
      x = op_.Mul(x, factor_);
    }
    const DType stored = *plan_.scores;
    const auto keep = [&](double value) { return RoundStored(stored, plan_.op->dtype, value); };
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
    double s = RoundStored(*plan_.scores, plan_.op->dtype, op_.Round(sink));
    return *plan_.exp == ExpForm::kExp2Log2 ? op_.Mul(s, log2e_) : s;
  }

  // exp of a score under a shift of the same units.
  double Weight(double s, double shift) const {
    if (shift == -kInfinity) return 0;
    switch (*plan_.exp) {
      case ExpForm::kExp: return op_.Exp(op_.Add(s, -shift));
      case ExpForm::kExp2Scaled: return op_.Exp2(op_.Mul(op_.Add(s, -shift), log2e_));
      case ExpForm::kExp2Log2: return op_.Exp2(op_.Add(s, -shift));
      case ExpForm::kExp2Fma: {
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
      p = RoundTo(*plan_.p, weight * *plan_.p_scale) / *plan_.p_scale;
    }
    return rules_.p_step ? rules_.p_step(p) : p;
  }

  // One range of keys, block by block. rows: V vectors.
  Partial RunSplit(std::span<const double> s, std::span<const int32_t> columns,
                   std::span<const double* const> rows, bool with_sink, double sink) const {
    Partial partial;
    partial.any = !s.empty() || with_sink;
    auto sums = simulated::MakeAccumulator(*plan_.pv, flush_, static_cast<size_t>(c_.v_dim));
    auto denominator = simulated::MakeAccumulator(*plan_.l, flush_, 1);
    const bool early_sink = with_sink && !*plan_.late_sink;
    if (early_sink) {
      partial.shift = SinkScore(sink);
      denominator->AddConstant(1);
    }
    static const double kOne = 1;
    size_t begin = 0;
    while (begin < s.size()) {
      size_t end = s.size();
      if (*plan_.block > 0) {
        end = begin;
        while (end < s.size() && columns[end] / *plan_.block == columns[begin] / *plan_.block) ++end;
      }
      const double block_max = *std::max_element(s.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 s.begin() + static_cast<std::ptrdiff_t>(end));
      MoveShift(block_max, &partial.shift, sums.get(), denominator.get());
      std::vector<double> weights(end - begin), p(end - begin);
      for (size_t j = begin; j < end; ++j) {
        weights[j - begin] = Weight(s[j], partial.shift);
        p[j - begin] = RoundP(weights[j - begin]);
      }
      const std::vector<const double*> ones(end - begin, &kOne);
      denominator->AddBlock(*plan_.l_from_rounded_p ? p : weights, ones);
      if (!*plan_.p_normalised) sums->AddBlock(p, rows.subspan(begin, end - begin));
      begin = end;
    }
    if (with_sink && !early_sink) {
      const double score = SinkScore(sink);
      MoveShift(score, &partial.shift, sums.get(), denominator.get());
      denominator->AddConstant(Weight(score, partial.shift));
    }
    partial.denominator = denominator->Finish()[0];
    if (*plan_.p_normalised) {
      std::vector<double> p(s.size());
      for (size_t j = 0; j < s.size(); ++j) {
        const double weight = Weight(s[j], partial.shift);
        p[j] = RoundP(*plan_.reciprocal ? op_.Mul(weight, op_.Div(1, partial.denominator))
                                        : op_.Div(weight, partial.denominator));
      }
      if (!s.empty()) sums->AddBlock(p, rows);
    }
    partial.sums = sums->Finish();
    return partial;
  }

  // (out, lse) of a row from its partials. out: (Dv) before the output type's rounding.
  void Combine(std::vector<Partial> partials, std::vector<double>* out, double* lse) const {
    std::erase_if(partials, [](const Partial& p) { return !p.any; });
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
      for (const Partial& p : partials) {
        const double weight = Correction(p.shift, top);
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
      for (double& value : p.sums) value = RoundStored(*plan_.partial, plan_.op->dtype, value);
      lses.push_back(Lse(p.shift, p.denominator));
      top = std::max(top, lses.back());
    }
    double total = 0;
    std::vector<double> weights;
    for (double value : lses) {
      weights.push_back(op_.Exp(op_.Add(value, -top)));
      total = op_.Add(total, weights.back());
    }
    *lse = op_.Add(top, op_.Log(total));
    if (*plan_.merge == MergeKind::kLseDivisionFree) {
      for (size_t i = 0; i < lses.size(); ++i) weights[i] = op_.Exp(op_.Add(lses[i], -*lse));
    }
    std::vector<double> sums(dv, 0.0);
    for (size_t i = 0; i < partials.size(); ++i) {
      for (size_t c = 0; c < dv; ++c) {
        sums[c] = op_.Add(sums[c], op_.Mul(partials[i].sums[c], weights[i]));
      }
    }
    *out = *plan_.merge == MergeKind::kLse ? Normalise(sums, total) : sums;
  }

  double alpha() const { return alpha_; }

 private:
  void MoveShift(double candidate, double* shift, simulated::RowAccumulator* sums,
                 simulated::RowAccumulator* denominator) const {
    double nats = *plan_.lazy_rescale;
    if (*plan_.exp == ExpForm::kExp2Log2) nats *= std::numbers::log2e;
    if (*plan_.exp == ExpForm::kExp2Fma && folded_) nats /= std::fabs(alpha_);
    if (*shift != -kInfinity && !(candidate > *shift + nats)) return;
    const double correction = Correction(*shift, candidate);
    if (*shift != -kInfinity) {
      sums->Rescale(correction);
      denominator->Rescale(rules_.denominator_rescale ? rules_.denominator_rescale(correction)
                                                      : correction);
    }
    *shift = candidate;
  }

  std::vector<double> Normalise(const std::vector<double>& sums, double denominator) const {
    std::vector<double> out(sums.size());
    const double reciprocal = *plan_.reciprocal ? op_.Div(1, denominator) : 0;
    for (size_t c = 0; c < sums.size(); ++c) {
      out[c] = *plan_.reciprocal ? op_.Mul(sums[c], reciprocal) : op_.Div(sums[c], denominator);
    }
    return out;
  }

  // Natural log-sum-exp.
  double Lse(double shift, double denominator) const {
    const double log = op_.Log(denominator);
    if (*plan_.exp == ExpForm::kExp2Log2) return op_.Add(op_.Mul(shift, op_.Round(std::numbers::ln2)), log);
    if (*plan_.exp == ExpForm::kExp2Fma && folded_) return op_.Add(op_.Mul(shift, natural_alpha_), log);
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
  bool folded_ = false;
};

void Store(const std::vector<double>& values, DType dtype, const Plan& plan,
           std::vector<std::byte>* bytes) {
  ConvertRule rule;
  if (*plan.saturate_output) rule.overflow = Overflow::kSaturate;
  bytes->resize(values.size() * SizeInBytes(dtype));
  EncodeFrom(values, dtype, bytes->data(), rule);
}

}  // namespace

SimulatedKernel::SimulatedKernel(Plan plan, Profile profile, AttentionRules rules)
    : plan_(std::move(plan)), profile_(profile), rules_(std::move(rules)) {}

Capabilities SimulatedKernel::GetCapabilities() const {
  return {"simulated", "1", {"attention"}, plan_, profile_};
}

RunOutcome SimulatedKernel::Run(const Case& any_case, const TensorMap& inputs, Sink& sink) {
  const auto* c = std::get_if<AttentionCase>(&any_case);
  if (c == nullptr) return RunOutcome::kUnsupported;
  const Plan plan = Resolve(plan_, profile_, *c).plan;
  const MaskReader mask(*c, profile_, inputs);
  const auto specs = OutputSpecs(*c);
  for (const auto& [name, spec] : specs) sink.Declare(name, spec.dtype, spec.shape);
  std::vector<double> sinks;
  if (c->sinks) {
    const Tensor& tensor = Get(inputs, "sinks");
    sinks.resize(static_cast<size_t>(tensor.ElementCount()));
    DecodeTo(tensor, 0, sinks);
  }
  const RowKernel kernel(plan, *c, rules_);
  const int64_t ratio = c->query_heads / c->kv_heads;
  const auto d = static_cast<size_t>(c->k_dim);
  const auto dv = static_cast<size_t>(c->v_dim);
  std::vector<double> q(d);
  std::vector<std::byte> bytes;
  for (int64_t b = 0; b < c->batch; ++b) {
    std::vector<HeadData> heads;
    for (int64_t h = 0; h < c->kv_heads; ++h) {
      heads.push_back(LoadHead(*c, profile_, inputs, b, h, false));
    }
    for (int64_t h = 0; h < c->query_heads; ++h) {
      int64_t kv_head = h / ratio;
      if (rules_.head_map) {
        const int64_t mapped = rules_.head_map(*c, h);
        if (mapped != kv_head) rules_.hits->fetch_add(1);
        kv_head = mapped;
      }
      const HeadData& head = heads[static_cast<size_t>(kv_head)];
      for (int64_t l = 0; l < c->query_len; ++l) {
        const QueryIndex index = {b, h, l};
        const int64_t row = (b * c->query_heads + h) * c->query_len + l;
        DecodeTo(Get(inputs, "q"), row * c->k_dim, q);
        VisibleSet set = mask.Visible(rules_.mask_query ? rules_.mask_query(*c, index) : index);
        if (rules_.visible) rules_.visible(*c, index, &set);
        std::vector<double> out(dv, 0.0);
        double lse = -kInfinity;
        const bool has_sink = !sinks.empty();
        const double sink_value = has_sink ? sinks[static_cast<size_t>(h)] : 0;
        const size_t n = set.keys.size();
        if (n > 0 || has_sink) {
          std::vector<double> s(n);
          std::vector<const double*> rows(n);
          for (size_t j = 0; j < n; ++j) {
            const int32_t k_row = rules_.k_row ? rules_.k_row(set.keys, j) : set.keys[j];
            const int32_t v_row = rules_.v_row ? rules_.v_row(set.keys, j) : set.keys[j];
            const double bias = set.bias.empty() ? 0 : set.bias[j];
            s[j] = kernel.Score(q, &head.k.hi[static_cast<size_t>(k_row) * d], d, bias);
            rows[j] = &head.v.hi[static_cast<size_t>(v_row) * dv];
          }
          const int splits = *plan.splits;
          const int64_t range = (c->kv_len + splits - 1) / splits;
          std::vector<Partial> partials;
          size_t begin = 0;
          for (int split = 0; split < splits; ++split) {
            size_t end = begin;
            while (end < n && set.keys[end] < (split + 1) * range) ++end;
            partials.push_back(kernel.RunSplit(
                std::span(s).subspan(begin, end - begin),
                std::span<const int32_t>(set.keys).subspan(begin, end - begin),
                std::span<const double* const>(rows).subspan(begin, end - begin),
                has_sink && split == splits - 1, sink_value));
            begin = end;
          }
          kernel.Combine(std::move(partials), &out, &lse);
        } else if (profile_.masked_row == MaskedRow::kNan) {
          std::fill(out.begin(), out.end(), std::numeric_limits<double>::quiet_NaN());
        } else if (profile_.masked_row == MaskedRow::kMean) {
          std::vector<double> ones(static_cast<size_t>(c->kv_len), 1.0);
          std::vector<const double*> rows;
          for (int64_t j = 0; j < c->kv_len; ++j) rows.push_back(&head.v.hi[static_cast<size_t>(j) * dv]);
          std::vector<int32_t> columns(ones.size());
          std::iota(columns.begin(), columns.end(), 0);
          const std::vector<double> zero(ones.size(), 0.0);
          std::vector<Partial> partials;
          partials.push_back(kernel.RunSplit(zero, columns, rows, false, 0));
          Plan single = plan;
          single.merge = MergeKind::kNone;
          RowKernel(single, *c, rules_).Combine(std::move(partials), &out, &lse);
        }
        if (*plan.flush_subnormals) {
          for (double& value : out) {
            if (std::fabs(value) < FloatTypeOf(c->out).smallest_normal) value = std::copysign(0.0, value);
          }
        }
        if (rules_.output) rules_.output(*c, index, out);
        Store(out, c->out, plan, &bytes);
        sink.Write("out", row * c->v_dim, bytes);
        if (specs.count("lse") != 0) {
          const double value = c->lse == LseKind::kBase2 ? RoundTo(specs.at("lse").dtype, lse * RoundTo(specs.at("lse").dtype, std::numbers::log2e)) : lse;
          Store({value}, specs.at("lse").dtype, plan, &bytes);
          sink.Write("lse", row, bytes);
        }
      }
    }
  }
  return RunOutcome::kAnswered;
}

}  // namespace kvcheck
