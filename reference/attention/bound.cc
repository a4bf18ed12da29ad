#include "reference/attention/bound.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "reference/attention/score_error.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The derivation's own factor for evaluating these formulas in double.
constexpr double kEvaluation = 1 + 0x1p-40;

double KeysOfABlock(const Arithmetic& a, double n) {
  const bool all = *a.plan.block == 0 || *a.plan.p_normalised;
  return all ? n : std::min<double>(n, *a.plan.block);
}

// sum_j max x_i over the keys i of the block of key j, at most, whichever keys share a block: a
// block holds no more than so many, so that each weight is the heaviest of no more than so many
// keys.
double MassOfBlocks(double block, std::vector<double> x) {
  if (std::any_of(x.begin(), x.end(), [](double mass) { return std::isnan(mass); })) {
    return kInfinity;
  }
  std::sort(x.begin(), x.end(), std::greater<>());
  double mass = 0;
  auto left = static_cast<double>(x.size());
  for (size_t i = 0; left > 0; ++i) {
    const double keys = std::min(block, left);
    mass += keys * x[i];
    left -= keys;
  }
  return mass;
}

// Nats below which no type holds a weight, with the errors of its argument.
constexpr double kNoWeight = 2000;

// A sink that is alone in its row: its error is common to all there is, and enters lse alone.
bool IsItsOwnShift(const RowScores& row) {
  return row.s.empty() && row.has_sink && !row.maximum_over_all;
}

}  // namespace

double LargestScore(const Arithmetic& a, const RowScores& row) {
  const ScoreError error(a, row);
  double largest = -kInfinity;
  for (size_t j = 0; j < row.s.size(); ++j) largest = std::max(largest, row.s[j] + error(j));
  return largest;
}

KeyWeights ComputeKeyWeights(const Arithmetic& a, const RowScores& row) {
  KeyWeights w;
  const size_t n = row.s.size();
  const double visible = row.stands_for > 0 ? row.stands_for : static_cast<double>(n);
  w.n = visible + (row.has_sink ? 1 : 0);
  w.depths = a.Depths(row.keys, static_cast<int64_t>(row.kv_len), row.first_column);
  const bool masked_maximum = row.maximum_over_all && row.shift_all > -kInfinity;
  if ((masked_maximum || a.shift_drifts) && *a.plan.block > 0) {
    // A masked key may raise the maximum: every block rescales.
    w.depths.rescales += std::ceil(row.kv_len / *a.plan.block) - 1;
  }
  w.summed = row.hidden_score != 0 ? row.kv_len + 1 : w.n;
  w.v_largest = row.v_largest;
  const double r = w.depths.rescales;
  const ScoreError score_error(a, row);
  std::vector<double> error(n);
  const double sink_error = IsItsOwnShift(row) ? 0 : score_error.Sink();
  double top = row.has_sink ? row.sink + sink_error : -kInfinity;
  double largest_dot = 0;
  // A split may hold nothing but a key, or the sink.
  double lowest = row.has_sink ? row.sink - sink_error : kInfinity;
  for (size_t j = 0; j < n; ++j) {
    error[j] = score_error(j);
    top = std::max(top, row.s[j] + error[j]);
    lowest = std::min(lowest, row.s[j] - error[j]);
    w.max_error = std::max(w.max_error, error[j]);
    const double before_scaling = row.scale != 0 ? row.magnitude[j] / std::fabs(row.scale) : 0;
    largest_dot = std::max({largest_dot, row.magnitude[j], before_scaling});
  }
  if (masked_maximum) top = std::max(top, row.shift_all);
  w.overhang = top - row.max;
  w.shift = std::max(std::fabs(row.max), std::fabs(top));
  const double stretch = masked_maximum ? std::exp(w.overhang) : 1;
  w.stretch = stretch;
  w.underflow = a.eta_e * stretch;
  w.lambda = a.lambda * stretch;
  w.vanished = (w.n + r) * (w.underflow + w.lambda);
  if (!(std::max(largest_dot * a.cut_qk.size, row.q_abs_sum * a.largest_code) < a.score_largest) ||
      !(w.shift * a.shift_units <= a.score_largest)) {
    w.unbounded = true;
    w.why = "a score may overflow its accumulator";
  }
  // Where a block or split holds hidden keys alone their score is the shift, and an exponent's
  // argument errs by its rounding. What follows is multiplied by zero, unless it is infinite.
  const bool fused = *a.plan.exp == ExpForm::kExp2Fma || *a.plan.exp == ExpForm::kExp2FmaDrift;
  const double shift_roundings = a.shift_drifts ? r + 1 : 1;
  const bool hidden_alone =
      row.hidden_score != 0 && fused && (*a.plan.block > 0 || *a.plan.splits > 1 || row.has_sink);
  if (hidden_alone && shift_roundings * a.u_a * std::fabs(row.hidden_score) * a.shift_units >
                          0.5 * std::log(a.sum_largest)) {
    w.unbounded = true;
    w.why = "the rounded shift of hidden keys may overflow the exponential";
  }
  // Likewise where a range, or the row, holds the sink alone; of ranges each has a key where none
  // is masked. A shift that drifts is used in blocks before the first key too.
  const bool masked = visible < row.kv_len;
  const double units = std::ceil(row.kv_len / std::max(*a.plan.block, 1));
  const double units_each = std::ceil(units / *a.plan.splits);
  const bool leaves_one_empty = units_each * (*a.plan.splits - 1) >= units;
  const bool in_a_split = *a.plan.splits > 1 && (masked || leaves_one_empty);
  const bool sink_alone = row.has_sink && fused && (*a.plan.late_sink || a.shift_drifts) &&
                          (n == 0 || in_a_split || (a.shift_drifts && masked));
  if (sink_alone && shift_roundings * a.u_a * std::fabs(row.sink) * a.shift_units >
                        0.5 * std::log(a.sum_largest)) {
    // A disabled sink is multiplied by zero when its range meets the others: where it is infinite,
    // nothing of the row is a number.
    if (n > 0 && row.max - row.sink > std::max(kNoWeight, 0.5 * std::fabs(row.sink))) {
      w.may_overflow = true;
    } else {
      w.unbounded = true;
      w.why = "the rounded shift of the sink alone may overflow the exponential";
    }
  }
  for (size_t j = 0; a.k_parts.u > 0 && j < n; ++j) {
    if (row.k_abs_sum[j] * (1 + a.k_parts.u) < a.parts_largest) continue;
    w.unbounded = true;
    w.why = "a dequantized key may overflow";
  }
  const auto may_overflow_cut = [&](double size) {
    return a.cut_qk.largest > 0 && !(size * (1 + a.cut_qk.lost) < a.cut_qk.largest);
  };
  if (may_overflow_cut(row.q_abs_sum) ||
      std::any_of(row.k_abs_sum.begin(), row.k_abs_sum.end(), may_overflow_cut)) {
    w.unbounded = true;
    w.why = "an operand of q.k may overflow the type that it is cut to";
  }
  // A query's scale is at most its group's range over one step, or the encoder's smallest step; it
  // is multiplied by that of K before the codes, which may be zero.
  if (a.c_group > 0 && !(std::max(2 * row.q_part_largest, 1.0) * row.k_scale_largest <
                         FloatTypeOf(a.plan.op->dtype).largest_finite)) {
    w.unbounded = true;
    w.why = "a product of scales may overflow";
  }
  if (a.rotates_k && !(row.q_rotation_largest < FloatTypeOf(a.plan.op->dtype).largest_finite)) {
    w.unbounded = true;
    w.why = "the rotated query may overflow";
  }
  if (a.prescale_largest > 0 &&
      !(row.q_abs_sum * std::max(1.0, std::fabs(row.scale)) < a.prescale_largest)) {
    w.unbounded = true;
    w.why = "the pre-scaled query may overflow";
  }

  // Roundings of shifts that stay in a key's weight; where the shift drifts each rescale adds one,
  // and rounds an argument that is one.
  const double c_shift = a.c_shift * (a.shift_drifts ? (1 + r) * (1 + Gamma(a.c_m, a.u_a)) : 1);
  // The least weight that a split may hold alone: below exp's normal range it may
  // be nothing, and what is left must have a reciprocal.
  const double deepest = top - lowest + 2 * a.lambda_lazy;
  const double deepest_error =
      Gamma(a.c_m, a.u_a) * deepest + c_shift * a.u_a * (w.shift + deepest);
  const double least =
      std::exp((1 + r) * std::log1p(-a.u_e) - deepest - deepest_error) - a.eta_e - a.lambda;
  if (masked_maximum && a.merge != MergeKind::kNone &&
      *a.plan.normalise != NormaliseKind::kDivide &&
      !(least * (1 - Gamma(w.depths.l, a.u_l)) * a.sum_largest > 1)) {
    // A split whose weights almost vanish has a denominator whose reciprocal is infinite.
    w.unbounded = true;
    w.why = "the denominator of a split may vanish";
  }

  // |log l| of a split: its shift lies up to Lambda below its maximum, or far above it.
  w.log_l = 1 + std::log(w.n) + a.lambda_lazy + (masked_maximum ? top - lowest : 0);
  const double log_l = w.log_l;
  const bool merges_lse = a.merge == MergeKind::kLse || a.merge == MergeKind::kLseDivisionFree;
  const double exp_error = (1 + r) * std::log1p(a.u_e);
  const double exp_error_down = (1 + r) * std::log1p(-a.u_e);
  const double g_m = Gamma(a.c_m, a.u_a);
  const bool division_free = a.merge == MergeKind::kLseDivisionFree;
  const bool rounds_p = a.u_p > 0;
  const bool varying_y = (rounds_p && a.p_in_numerator) || division_free;
  w.c.resize(n);
  w.x.resize(n);
  if (varying_y) w.y.resize(n);
  if (a.p_in_weights) w.score.resize(n);
  if (rounds_p) w.p_rounding.resize(n);

  double largest_tau = 0;
  // weight: p_j (1 + rho+_j), which stays meaningful where p_j vanishes. score: rho+_j without the
  // rounding of P.
  const auto weigh = [&](double s, double e_error, double e, double p, double* weight,
                         double* rho_up, double* rho_down, double* u_p, double* kappa,
                         double* score) {
    const double gap = top - s + e_error + 2 * a.lambda_lazy;  // W_j
    double tau = e_error + g_m * gap + c_shift * a.u_a * (w.shift + gap);
    double merge = 0;
    if (merges_lse) {
      merge = a.u_log * log_l + Gamma(1 + a.c_shift + a.c_x, a.u_a) * (w.shift + gap + log_l) +
              2 * g_m * log_l;
      tau += merge;
    }
    largest_tau = std::max(largest_tau, s + tau - top);
    *rho_up = std::expm1(tau + exp_error);
    *rho_down = -std::expm1(-tau + exp_error_down);
    *u_p = 0;
    if (rounds_p) {
      const double weight = (a.p_normalised ? p : e);
      const double eta = a.p_normalised ? a.eta_p : a.eta_p * stretch;
      *u_p = std::max(a.u_p, weight > eta ? eta / weight : 1.0);
      if (a.p_cut) {
        *u_p = std::min(*u_p, std::expm1(gap + tau) * (1 + a.u_e) + 2 * a.u_e);
      }
    }
    *score = *rho_up;
    if (a.p_in_weights) {
      *rho_up = Compose(*rho_up, *u_p);
      *rho_down = 1 - (1 - *rho_down) * (1 - *u_p);
    }
    *weight = p > 0 ? p * (1 + *rho_up)
                    : std::exp(s - row.max + tau + exp_error) / row.denominator * (1 + *u_p);
    *kappa = 0;
    if (division_free) {
      *kappa = std::expm1(2 * merge + 2 * g_m * (gap + 2 * log_l) + 2 * std::log1p(a.u_e));
    }
  };

  for (size_t j = 0; j < n; ++j) {
    double up = 0, down = 0, u_p = 0, kappa = 0, score = 0;
    weigh(row.s[j], error[j], row.e[j], row.p[j], &w.x[j], &up, &down, &u_p, &kappa, &score);
    w.c[j] = row.p[j] > 0 ? row.p[j] * up : w.x[j];
    if (a.p_in_weights && row.p[j] > 0) w.score[j] = row.p[j] * score;
    const double rounding = Compose(a.p_in_numerator ? u_p : 0, kappa);
    if (rounds_p) w.p_rounding[j] = u_p;
    if (w.x[j] > 0) w.largest_kappa = std::max(w.largest_kappa, kappa);
    if (varying_y) w.y[j] = w.x[j] == 0 ? 0 : w.x[j] * rounding;
    w.t += row.p[j] * down;
    w.t_plus += w.c[j];
    if (w.x[j] > 0) w.largest_rounding = std::max(w.largest_rounding, rounding);
  }
  if (row.has_sink) {
    double up = 0, down = 0, u_p = 0, kappa = 0, score = 0;
    const double sink_e = row.sink_p * row.denominator;
    double weight = 0;
    weigh(row.sink, sink_error, sink_e, row.sink_p, &weight, &up, &down, &u_p, &kappa, &score);
    w.sink_c = row.sink_p > 0 ? row.sink_p * up : weight;
    w.sink_share = weight;
    w.t += row.sink_p * down;
    w.t_plus += w.sink_c;
  }
  if (a.fixed_p > 0) {
    w.block_keys = KeysOfABlock(a, static_cast<double>(n));
    w.block_mass = MassOfBlocks(w.block_keys, w.x);
  }
  w.t += (w.n + 2) * 0x1p-52;  // of summing T itself, which must not hide that nothing is left
  if (division_free) {
    w.merge_factor = std::expm1(a.u_log * log_l + Gamma(2, a.u_a) * (w.shift + log_l));
  }
  // A weight exceeds 1 by a lazy shift and by the error of its argument.
  if (rounds_p && !(std::exp(a.lambda_lazy + std::max(0.0, largest_tau)) < a.p_largest)) {
    w.unbounded = true;
    w.why = "P times its scale may overflow P's type";
  }
  return w;
}

namespace {

// Most that the partial results of a merge weigh in all, times what storing a weight loses of it
// among subnormal numbers: of accumulators each range weighs as much as its denominator.
double LostWeights(const Arithmetic& a, const KeyWeights& w) {
  if (a.merge == MergeKind::kNone || a.eta_weight == 0) return 0;
  return a.eta_weight * w.stretch * (w.depths.splits + w.summed * std::exp(a.lambda_lazy));
}

// Relative error that storing the weights of partial results adds to the denominator.
double MergedDenominator(const Arithmetic& a, const KeyWeights& w) {
  if (a.merge == MergeKind::kNone) return 0;
  const double of_weights = Compose(Gamma(w.depths.splits, a.u_a), a.u_weight);
  const double rest = 1 - w.t - w.vanished;
  const double lost = LostWeights(a, w);
  return lost > 0 && rest > 0 ? of_weights + lost / rest : of_weights;
}

}  // namespace

double DenominatorError(const Arithmetic& a, const KeyWeights& w) {
  double dl = Compose(Gamma(w.depths.l, a.u_l), Gamma(w.depths.rescales, std::max(a.u_a, a.u_l)));
  dl = Compose(dl, MergedDenominator(a, w));
  return Compose(Compose(dl / (1 - dl), w.merge_factor), Gamma(a.c_d, a.u_a));
}

double OutputRounding(DType out, double u_o, double y) {
  return OutputError::StepTo(out, u_o).Of(y);
}

OutputError::Step OutputError::StepTo(DType type, double u) {
  return {u, TypeSpacing(type), 0.5 * (u / UnitRoundoff(type))};
}

OutputError::OutputError(const Arithmetic& a, DType out)
    : a_(a), through_(StepTo(a.through, a.u_through)), out_(StepTo(out, a.u_o)) {}

double OutputRoundings(const Arithmetic& a, DType out, double y) {
  return OutputError(a, out).At(y);
}

double RoundingsBack(const Arithmetic& a, const StoredBasis& basis) {
  return RotationRoundings(basis.BlockSize()) + (a.final_division ? a.c_d : 0);
}

namespace {

// Bounds of the channels of one row, before the output is rounded and before it is rotated back:
// bound.md, section 2, with what all channels share evaluated once.
class SumBounds {
 public:
  SumBounds(const Arithmetic& a, const KeyWeights& w, const StoredBasis& basis)
      : a_(a), w_(w), rotates_(basis.Rotates()) {
    const double r = w.depths.rescales;
    const double k = w.depths.splits;
    // A rescale multiplies the accumulator in its own type.
    g_ = Compose(a.cut_pv.lost + Gamma(w.depths.pv, a.u_pv) * a.cut_pv.size,
                 Gamma(r + (a.factored ? 2 : 0), std::max(a.u_a, a.u_pv)));
    dl_ = Compose(Gamma(w.depths.l, a.u_l), Gamma(r, std::max(a.u_a, a.u_l)));
    if (a.p_normalised) g_ = Compose(g_, Gamma(a.c_d, a.u_a));
    if (rotates_) g_ = Compose(g_, Gamma(a.v_parts.c, a.u_a));
    g_ = Compose(g_, Gamma(a.c_p, a.u_a));
    if (a.p_in_weights) dl_ = Compose(dl_, Gamma(a.c_p, a.u_a));
    if (a.merge == MergeKind::kAccumulators) {
      g_ = Compose(g_, Compose(a.u_part, Gamma(k, a.u_a)));
    } else if (a.merge != MergeKind::kNone) {
      g_ = Compose(g_, Compose(a.u_part, Gamma(a.c_d + 1 + k, a.u_a)));
    }
    if (a.merge != MergeKind::kNone) g_ = Compose(g_, a.u_weight);
    dl_ = Compose(dl_, MergedDenominator(a, w));
    rest_ = 1 - w.t - w.vanished;
    heaviest_ = w.summed * std::exp(a.lambda_lazy);
    // Rounded weights stand in the numerator, whatever the denominator sums.
    rounded_ = 1 + w.largest_rounding;
    // Sums on the way back too, which the largest V covers.
    back_ = rotates_ ? Gamma(RoundingsBack(a, basis), a.u_a) : 0;
    parts_ = a.parts && !rotates_ ? Compose(Gamma(a.v_parts.c, a.u_a), a.v_parts.u) : 0;
    divided_ = a.final_division && !rotates_ ? Gamma(a.c_d, a.u_a) : 0;
    // An error in every coordinate of a block comes back multiplied by sqrt N at most.
    spread_ = rotates_ ? std::sqrt(static_cast<double>(basis.BlockSize())) : 1;
    lost_weights_ = LostWeights(a, w);
  }

  ChannelBound Of(const ChannelSums& sums) const {
    ChannelBound result;
    const double largest_v = std::max(sums.largest, w_.v_largest);
    // Integers may add as much again: of all weights, and of those of a split over its own.
    const double fixed = rounded_ * sums.fixed;
    if (w_.unbounded || !(dl_ < 1) || !(g_ < kInfinity) || !(rest_ > 0) ||
        MayOverflow(sums, largest_v, fixed)) {
      result.bound = result.before_output = kInfinity;
      result.terms.fill(kInfinity);
      return result;
    }
    auto& terms = result.terms;
    const double magnitude = std::fabs(sums.o);
    terms[kScoreTerm] = std::min(sums.c / rest_, sums.spread);
    const double y = w_.y.empty() ? w_.y_factor * sums.x : sums.y;
    if (rotates_) {
      // A weight is rounded once for all channels; what follows, coordinate by coordinate.
      terms[kProbabilityTerm] = y / rest_;
      terms[kSumTerm] = g_ * rounded_ * sums.parts / rest_;
    } else {
      terms[kProbabilityTerm] = (1 + g_) * y / rest_;
      terms[kSumTerm] = g_ * sums.x / rest_;
    }
    if (a_.parts && !rotates_) {
      terms[kCodecTerm] +=
          (1 + g_) * rounded_ * (parts_ * sums.parts + a_.v_parts.eta * (1 + w_.t_plus)) / rest_;
    }
    terms[kCodecTerm] += (1 + g_) * (rounded_ * sums.codec + fixed * w_.block_mass) / rest_;
    const double c_n =
        terms[kScoreTerm] + terms[kProbabilityTerm] + terms[kSumTerm] + terms[kCodecTerm];
    terms[kDenominatorTerm] = dl_ / (1 - dl_) * (magnitude + c_n);
    double f = c_n + terms[kDenominatorTerm];
    if (a_.merge == MergeKind::kLseDivisionFree) {
      terms[kDenominatorTerm] += w_.merge_factor * (magnitude + f);
      f = c_n + terms[kDenominatorTerm];
    }
    if (a_.final_division && !rotates_) {
      terms[kNormaliseTerm] = divided_ * (magnitude + f);
      f += terms[kNormaliseTerm];
    }
    terms[kUnderflowTerm] =
        Underflow(sums, terms[kProbabilityTerm] + terms[kSumTerm] + terms[kCodecTerm]);
    f += terms[kUnderflowTerm];
    result.before_output = f;
    return result;
  }

 private:
  bool MayOverflow(const ChannelSums& sums, double largest_v, double fixed) const {
    const double in_sum = rounded_ * (a_.p_normalised ? largest_v + fixed * w_.block_mass
                                                      : heaviest_ * (largest_v + fixed));
    return !(in_sum * std::max(1 + g_, a_.cut_pv.size) * (1 + back_) < a_.sum_largest) ||
           !(heaviest_ * (1 + dl_) < a_.l_largest) ||
           (a_.cut_pv.largest > 0 && !(largest_v * (1 + a_.cut_pv.lost) < a_.cut_pv.largest)) ||
           (a_.merge == MergeKind::kAccumulators && a_.u_part > 0 &&
            !(in_sum * (1 + g_) * (1 + back_) < a_.part_largest)) ||
           (a_.v_parts.u > 0 && !(largest_v * (1 + a_.v_parts.u) < a_.parts_largest)) ||
           (a_.u_part > 0 && !(((rotates_ ? largest_v : sums.largest) + fixed * w_.block_keys) *
                                   rounded_ * (1 + g_) / (1 - dl_) <
                               a_.part_largest));
  }

  // n_total: the sums' own errors.
  double Underflow(const ChannelSums& sums, double n_total) const {
    const double kept = rest_ * (1 - dl_);
    // What a weight times a scale loses is multiplied by the code.
    double lost = 3 * (w_.n + w_.depths.rescales + 2) *
                  (w_.underflow * (sums.largest + n_total) +
                   w_.lambda * (spread_ + a_.v_largest_code + sums.largest + n_total)) /
                  kept;
    if (a_.eta_part > 0) {
      // Unnormalised sums of every range, over a denominator of at least 1.
      const double stored =
          a_.stores_sums ? std::max(1.0, w_.depths.splits * w_.stretch / kept) : 1;
      lost += 2 * spread_ * a_.eta_part * (1 + w_.merge_factor) * stored;
    }
    lost += lost_weights_ * (sums.largest + n_total) / kept;
    if (a_.cut_pv.eta > 0) {
      const double cut = a_.cut_pv.eta * w_.stretch;
      lost += cut * (1 + g_) * (w_.n * (sums.largest + cut) + 1 + w_.t_plus) / kept;
    }
    return lost;
  }

  const Arithmetic& a_;
  const KeyWeights& w_;
  const bool rotates_;
  double g_ = 0;   // relative error of the sum of P.V
  double dl_ = 0;  // relative error of the denominator
  double rest_ = 1, heaviest_ = 0, rounded_ = 1, back_ = 0, parts_ = 0, divided_ = 0;
  double spread_ = 1, lost_weights_ = 0;
};

// What is lost where the outputs o of a block are rotated back, with errors F: every element of R^T
// o is a sum of N terms of at most |R o| / sqrt N.
void BoundRotationBack(const Arithmetic& a, std::span<const ChannelSums> sums,
                       const StoredBasis& basis, std::span<ChannelBound> bounds) {
  std::vector<double> o;
  for (const ChannelSums& channel : sums) o.push_back(channel.o);
  basis.Rotate(o);
  const double root = std::sqrt(static_cast<double>(basis.BlockSize()));
  const double back = Gamma(RoundingsBack(a, basis), a.u_a);
  for (const RotatedBlock& block : basis.blocks) {
    double sum = 0, square = 0;
    for (const size_t c : block.channels) {
      sum += std::fabs(o[c]);
      square += bounds[c].before_output * bounds[c].before_output;
    }
    // 2^-38: what N coordinates are off by in double (stored_basis.h), beside their sum.
    const double lost = back * (sum / root * (1 + 0x1p-38) + std::sqrt(square));
    for (const size_t c : block.channels) {
      bounds[c].terms[kNormaliseTerm] += lost;
      bounds[c].before_output += lost;
    }
  }
}

}  // namespace

std::vector<ChannelBound> ComputeChannelBounds(const Arithmetic& a, const KeyWeights& w,
                                               std::span<const ChannelSums> sums,
                                               const StoredBasis& basis, DType out) {
  std::vector<ChannelBound> bounds;
  bounds.reserve(sums.size());
  const SumBounds before_output(a, w, basis);
  const OutputError output(a, out);
  for (const ChannelSums& channel : sums) bounds.push_back(before_output.Of(channel));
  if (basis.Rotates()) BoundRotationBack(a, sums, basis, bounds);
  for (size_t c = 0; c < bounds.size(); ++c) {
    ChannelBound& of = bounds[c];
    if (!(of.before_output < kInfinity)) {
      of.bound = of.before_output = kInfinity;
      of.terms.fill(kInfinity);
      continue;
    }
    of.terms[kOutputTerm] = output.At(std::fabs(sums[c].o) + of.before_output);
    of.bound = (of.before_output + of.terms[kOutputTerm]) * kEvaluation;
  }
  return bounds;
}

double ComputeLseBound(const Arithmetic& a, const KeyWeights& w, const RowScores& row, double lse,
                       bool base2) {
  double dl = Compose(Gamma(w.depths.l, a.u_l), Gamma(w.depths.rescales, std::max(a.u_a, a.u_l)));
  dl = Compose(dl, MergedDenominator(a, w));
  if (w.unbounded || !(dl < 1) || !(w.t + w.vanished < 1)) return kInfinity;
  if (a.p_in_weights) dl = Compose(dl, Gamma(a.c_p, a.u_a));
  double y = std::max(std::log1p(w.t_plus) + std::log1p(dl),
                      -std::log1p(-w.t - w.vanished) - std::log1p(-dl)) +
             a.c_shift * a.u_a * w.shift;
  const double log_l = std::fabs(std::log(row.denominator));
  // lse = shift + log l, where the two may cancel.
  y += a.u_log * (log_l + y + w.overhang + a.lambda_lazy + 3 * a.u_a * w.shift);
  y += Gamma(a.c_x, a.u_a) * (w.shift + a.lambda_lazy);
  if (a.merge == MergeKind::kLse || a.merge == MergeKind::kLseDivisionFree) {
    // The log of the merged weights, and the sum with the largest partial lse.
    y += a.u_log * w.log_l + Gamma(2, a.u_a) * (w.shift + w.log_l);
  }
  const double nats = base2 ? lse * std::log(2.0) : lse;
  double error = y + Gamma(a.lse_roundings, a.u_a) * (std::fabs(nats) + y) +
                 (w.n + 2) * (w.underflow + w.lambda);
  if (row.all_forced) error += ScoreError(a, row).Forced(row.max);
  if (IsItsOwnShift(row)) error += ScoreError(a, row).Sink();
  if (base2) error /= std::log(2.0);
  error += a.u_lse * (std::fabs(lse) + error) + a.eta_lse;
  if (!((std::fabs(lse) + error) * a.shift_units < a.lse_largest)) return kInfinity;
  return error * kEvaluation;
}

}  // namespace kvcheck
