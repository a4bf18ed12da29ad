#include "reference/attention/row_block.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/attention/evaluate.h"
#include "reference/attention/own_error.h"
#include "reference/attention/row_sums.h"
#include "reference/attention/score_error.h"
#include "reference/numerics/real.h"

namespace kvcheck {
namespace {

constexpr double kU = 0x1p-53;
// Sums in double, of so many keys as a case may have, are off by less; rows whose weights are off
// by more are not known.
constexpr double kOfSums = 0x1p-28;
// Squares of smaller numbers may be subnormal.
constexpr double kOfSquares = 0x1p-500;
// Doubles that the scores of a block take, at most.
constexpr int64_t kMostScores = int64_t{1} << 20;

}  // namespace

bool HasEnclosures(const HeadData& head, const Arithmetic& a) {
  return head.k.lo.empty() && head.v.lo.empty() && head.k.codec_error.empty() &&
         head.v.codec_error.empty() && head.k.magnitude.empty() && head.v.magnitude.empty() &&
         head.v_not_finite.empty() && !a.parts && !a.factored && !a.rotates_k && !a.rotates_v &&
         a.c_group == 0 && a.fixed_q == 0 && a.fixed_p == 0;
}

namespace {

bool IsPlain(const OwnedQuestion& owned) {
  return owned.forced_score.empty() && owned.masked_keys.empty() && owned.q_error.empty() &&
         owned.q_parts.empty() && !owned.hidden_by_number && owned.hidden_score == 0 &&
         owned.keys.size() > 1;
}

// Of the scores and weights of one row.
struct RowFacts {
  double max = 0, lowest = 0;
  double x_largest = 0, size_largest = 0, bias_largest = 0;  // of |x|, |s|, |bias|
  double denominator = 0, sink_e = 0;
  // Of the weights e / denominator that are rounded by u_p: their squares; and all of the others.
  double weight_squares = 0, other_weights = 0;
  size_t heaviest = 0;  // index into the row's keys
};

class Block {
 public:
  explicit Block(std::span<const BlockRow> rows)
      : rows_(rows),
        head_(*rows[0].context->head),
        rounded_(RoundedWeightsOf(*rows[0].context->arithmetic)),
        dv_(static_cast<size_t>(head_.v.dim)) {
    first_ = std::numeric_limits<int64_t>::max();
    for (const BlockRow& row : rows) {
      first_ = std::min<int64_t>(first_, row.owned->keys.front());
      end_ = std::max<int64_t>(end_, row.owned->keys.back() + 1);
    }
    Weigh();
    const size_t sums = rows_.size() * dv_;
    o_.assign(sums, 0), mass_.assign(sums, 0), squares_.assign(z_.empty() ? 0 : sums, 0);
    SumBlock(head_, first_, end_ - first_, std::ssize(rows_), w_.data(),
             z_.empty() ? nullptr : z_.data(), o_.data(), mass_.data(),
             z_.empty() ? nullptr : squares_.data());
    const auto of_row = [&](const std::vector<double>& all, size_t r) {
      return all.empty() ? std::span<const double>() : std::span(all).subspan(r * dv_, dv_);
    };
    for (size_t r = 0; r < rows_.size(); ++r) {
      sums_[r].o = of_row(o_, r), sums_[r].mass = of_row(mass_, r);
      sums_[r].squares = of_row(squares_, r);
    }
  }

  const RowSums& Of(size_t row) const { return sums_[row]; }

 private:
  size_t Keys() const { return static_cast<size_t>(end_ - first_); }

  // Scores and weights of every row; a key that a row does not see weighs 0.
  void Weigh() {
    std::vector<double> q;
    for (const BlockRow& row : rows_)
      q.insert(q.end(), row.context->q.begin(), row.context->q.end());
    const int64_t first_tile = first_ / kKeyTile;
    const int64_t tiles = (end_ - 1) / kKeyTile - first_tile + 1;
    const auto stride = static_cast<size_t>(tiles * kKeyTile);
    std::vector<double> dots(rows_.size() * stride);
    ScoreBlock(head_, q, first_tile, tiles, dots.data());
    w_.assign(rows_.size() * Keys(), 0);
    if (rounded_.any) z_.assign(w_.size(), 0);
    sums_.resize(rows_.size());
    std::vector<double> s, e;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const RowQuestion& row = rows_[r].owned->question;
      const double* dot = &dots[r * stride] + (row.keys.front() - first_tile * kKeyTile);
      RowSums& sums = sums_[r];
      s.resize(row.keys.size());
      Score(row, dot, s, &sums);
      for (double& score : s) score -= sums.max;
      double* w = &w_[r * Keys()] + (row.keys.front() - first_);
      double* z = z_.empty() ? nullptr : &z_[r * Keys()] + (row.keys.front() - first_);
      if (IsRange(row)) {
        ExpAll(s, w);
        AddWeights(row, std::span(w, s.size()), z, &sums);
        continue;
      }
      e.resize(s.size());
      ExpAll(s, e.data());
      std::vector<double> squares(z == nullptr ? 0 : e.size());
      AddWeights(row, e, z == nullptr ? nullptr : squares.data(), &sums);
      for (size_t j = 0; j < e.size(); ++j) {
        const int64_t at = row.keys[j] - row.keys.front();
        w[at] = e[j];
        if (z != nullptr) z[at] = squares[j];
      }
    }
  }

  static bool IsRange(const RowQuestion& row) {
    return row.keys.back() - row.keys.front() + 1 == std::ssize(row.keys);
  }

  // dot: of the columns from the row's first key on.
  static void Score(const RowQuestion& row, const double* dot, std::span<double> s, RowSums* sums) {
    sums->max = row.has_sink ? row.sink : -std::numeric_limits<double>::infinity();
    if (IsRange(row) && row.softcap == 0 && row.bias.empty()) {
      for (size_t j = 0; j < s.size(); ++j) s[j] = dot[j] * row.scale;
      // In the order of x > y ? x : y, where NaN is lost: the sums have it too.
      const auto largest = [&](double sign) {
        return InLanes(
            s.size(), -std::numeric_limits<double>::infinity(),
            [&](double x, size_t j) { return Max(x, sign * s[j]); },
            [](double x, double y) { return Max(x, y); });
      };
      const double highest = largest(1);
      sums->lowest = -largest(-1);
      sums->x_largest = Max(Abs(highest), Abs(sums->lowest));
      sums->max = Max(sums->max, highest);
      return;
    }
    sums->lowest = std::numeric_limits<double>::infinity();
    for (size_t j = 0; j < s.size(); ++j) {
      double x = 0;
      FinishScore(row, j, dot[row.keys[j] - row.keys.front()], &x, &s[j]);
      sums->x_largest = Max(sums->x_largest, Abs(x));
      sums->max = Max(sums->max, s[j]);
      sums->lowest = std::min(sums->lowest, s[j]);
    }
    for (const double bias : row.bias) sums->bias_largest = Max(sums->bias_largest, Abs(bias));
  }

  // z: (keys), where weights are rounded; else nullptr.
  void AddWeights(const RowQuestion& row, std::span<const double> e, double* z,
                  RowSums* sums) const {
    const auto add = [](double x, double y) { return x + y; };
    const auto sum_of = [&](const auto& of) {
      return InLanes(e.size(), 0.0, [&](double x, size_t j) { return x + of(j); }, add);
    };
    const size_t heaviest = static_cast<size_t>(std::max_element(e.begin(), e.end()) - e.begin());
    sums->heaviest = row.keys[heaviest];
    sums->heaviest_e = e[heaviest];
    if (row.has_sink) sums->sink_e = Exp(row.sink - sums->max);
    sums->denominator = sum_of([&](size_t j) { return e[j]; }) + sums->sink_e;
    if (z == nullptr) return;
    const double least = rounded_.least * (rounded_.normalised ? sums->denominator : 1);
    const auto is_rounded = [&](size_t j) { return e[j] >= least && e[j] <= rounded_.most; };
    for (size_t j = 0; j < e.size(); ++j) z[j] = is_rounded(j) ? e[j] * e[j] : 0;
    sums->weight_squares = sum_of([&](size_t j) { return z[j]; });
    sums->other_weights = sum_of([&](size_t j) { return is_rounded(j) ? 0 : e[j]; });
  }

  // take(x, j) over j in some independent chains, which `join` brings together.
  template <typename Take, typename Join>
  static double InLanes(size_t n, double start, Take take, Join join) {
    constexpr size_t kLanes = 8;
    double lane[kLanes];
    std::fill_n(lane, kLanes, start);
    size_t j = 0;
    for (; j + kLanes <= n; j += kLanes) {
      for (size_t i = 0; i < kLanes; ++i) lane[i] = take(lane[i], j + i);
    }
    for (size_t i = 0; j < n; ++j, ++i) lane[i] = take(lane[i], j);
    for (size_t i = 1; i < kLanes; ++i) lane[0] = join(lane[0], lane[i]);
    return lane[0];
  }

  std::span<const BlockRow> rows_;
  const HeadData& head_;
  const RoundedWeights rounded_;
  const size_t dv_;
  int64_t first_ = 0, end_ = 0;             // columns that some row sees
  std::vector<double> w_, z_;               // [row][column]; z_ empty: P is not rounded
  std::vector<double> o_, mass_, squares_;  // [row][channel]
  std::vector<RowSums> sums_;
};

// Whatever evaluated its sums: two numbers between which the tolerance of each element lies.
class Encloser {
 public:
  Encloser(const BlockRow& row, const RowSums& sums)
      : context_(*row.context),
        owned_(*row.owned),
        sums_(sums),
        head_(*context_.head),
        a_(*context_.arithmetic),
        dv_(static_cast<size_t>(head_.v.dim)),
        size_largest_(Max(Abs(sums.max), Abs(sums.lowest))),
        weight_squares_(sums.weight_squares / (sums.denominator * sums.denominator)),
        other_weights_(sums.other_weights / sums.denominator) {}

  RowEnclosure Enclose() const {
    const RowEnclosure unknown;
    const RowContext& context = context_;
    const RowQuestion& row = owned_.question;
    const RowSums& sums = sums_;
    const auto n = static_cast<double>(row.keys.size());
    if (!std::isfinite(sums.x_largest) || !std::isfinite(size_largest_) ||
        !std::isfinite(sums.denominator) || sums.heaviest < 0 || sums.heaviest >= head_.kv_len) {
      return unknown;
    }

    // |q k| <= |q| |k|. The error of computing in double, as OwnError has it.
    double q_square = 0;
    for (const double q : row.q) q_square += q * q;
    const double lost = std::sqrt(static_cast<double>(row.q.size())) * kOfSquares;
    const double magnitude = Abs(row.scale) * (std::sqrt(q_square) + lost) *
                             (head_.k_norm_largest + lost) * (1 + kOfSums);
    double score = (DotError<double>(static_cast<double>(row.q.size())) + 2 * kU) * magnitude +
                   2 * kU * (sums.x_largest + size_largest_ + sums.bias_largest) + 0x1p-1000;
    if (row.softcap > 0) {
      score += (kTanhError<double> + 4 * kU + kTanhFloor<double>)*row.softcap;
    }
    // Below that distance a weight is 0.
    const double last = sums.sink_e > 0 ? std::min(sums.lowest, row.sink) : sums.lowest;
    const double distance = std::min(sums.max - last, 1000.0);
    const double rho = std::expm1(2 * (2 * score + kU * distance)) + 2 * kExpError<double>;
    const double gamma = Gamma(n + 8, kU);
    if (!(4 * (rho + gamma) < kOfSums)) return unknown;
    const double floor = (n + 1) * (kExpFloor<double> + 0x1p-1070);

    // No less than the row's.
    const Extremes extremes(*this, magnitude);
    KeyWeights most = ComputeKeyWeights(a_, extremes.scores);
    if (most.unbounded || most.may_overflow) return unknown;
    const double rho_up = most.c[1], factor = most.x[1];
    const double rounding = most.y.empty() ? 0 : most.y[1] / most.x[1];
    // Subnormal weights are rounded by half a spacing, or lost.
    const double vanishing = n * (factor * 4 * a_.eta_p + 0x1p-1000);
    most.t += vanishing;
    // All keys and the sink; not the first of the extremes, which has no weight.
    most.t_plus = rho_up + most.sink_c + vanishing;
    if (a_.u_p > 0)
      most.largest_rounding = std::max(most.largest_rounding, 1 + 2 * most.largest_kappa);

    KeyWeights least;
    least.n = most.n, least.summed = most.summed, least.depths = most.depths;
    const bool rounds_numerator = a_.u_p > 0 && a_.p_in_numerator;

    RowEnclosure row_of;
    row_of.value.resize(dv_), row_of.own.resize(dv_), row_of.least.resize(dv_);
    row_of.proven.resize(dv_), row_of.mass.resize(dv_);
    std::vector<ChannelSums> above(dv_), below(dv_);
    std::vector<double> rounded_mass(dv_), squares(dv_);
    for (size_t c = 0; c < dv_; ++c) {
      const double o = sums.o[c] / sums.denominator, mass = sums.mass[c] / sums.denominator;
      const double v = head_.v_largest_of[c];
      const double size = Abs(o), spread = v + size;
      const double own = (rho * spread + gamma * (mass + size)) * (1 + 0x1p-20) + floor * (1 + v);
      row_of.value[c] = o, row_of.own[c] = own, row_of.mass[c] = mass;
      ChannelSums& high = above[c];
      const double mass_most = mass * (1 + kOfSums) + floor * (1 + v);
      high.o = size + own, high.mass = mass_most;
      high.c = rho_up * (mass_most + high.o) + vanishing * spread + most.sink_c * high.o;
      high.x = factor * mass_most + vanishing * v;
      high.y = rounding * high.x + vanishing * v * (1 + rounding);
      high.largest = v, high.spread = spread + own;
      ChannelSums& low = below[c];
      low.o = Max(0.0, size - own);
      low.mass = low.x = Max(0.0, mass * (1 - kOfSums) - floor * (1 + v));
      rounded_mass[c] = Max(0.0, low.mass - other_weights_ * (1 + kOfSums) * v);
      low.y = rounds_numerator ? a_.u_p * rounded_mass[c] : 0;
      if (!sums_.squares.empty()) {
        const double sum = sums_.squares[c] / (sums.denominator * sums.denominator);
        // Squares that overflow say nothing.
        squares[c] = std::isfinite(sum) ? sum * (1 - 2 * kOfSums) : 0;
      }
    }
    least.y.assign(1, 0);  // the sums have what is rounded
    const std::vector<ChannelBound> highest =
        ComputeChannelBounds(a_, most, above, head_.v.basis, context.c->out);
    std::vector<ChannelBound> lowest =
        ComputeChannelBounds(a_, least, below, head_.v.basis, context.c->out);
    if (context.noise) {
      const NoiseQuestion question = {a_, row, {}, {}, least, below, context.c->out};
      const RoundedKeys rounded = {rounded_mass, squares, weight_squares_ * (1 - 2 * kOfSums)};
      BoundByNoise(question, LeastNoise(question, rounded), &lowest);
    }
    double largest = FloatTypeOf(context.c->out).largest_finite;
    if (a_.u_through > 0) largest = std::min(largest, FloatTypeOf(a_.through).largest_finite);
    for (size_t c = 0; c < dv_; ++c) {
      row_of.proven[c] = highest[c].bound * (1 + kOfSums);
      row_of.least[c] = lowest[c].bound * (1 - kOfSums);
      const double end = Abs(row_of.value[c]) + highest[c].bound + row_of.own[c];
      if (!(end < largest) || !(row_of.own[c] <= 0x1p-10 * row_of.least[c]) ||
          !(row_of.proven[c] <= kVacuousShare * row_of.mass[c])) {
        return unknown;
      }
    }
    if (!Shows(row_of, rho + gamma)) return unknown;
    if (context.c->lse != LseKind::kNone &&
        !EncloseLse(extremes.scores, least, most, rho + gamma, floor, &row_of)) {
      return unknown;
    }
    row_of.is_known = true;
    return row_of;
  }

 private:
  // The row by a few keys that stand for all: one of the largest score, and one of the smallest,
  // both with the largest error that any key's score may have.
  struct Extremes {
    std::vector<double> x, s, bias, magnitude, k_abs_sum, e, p;
    RowScores scores;

    Extremes(const Encloser& of, double magnitude_largest) {
      const RowQuestion& row = of.owned_.question;
      const RowSums& sums = of.sums_;
      x.assign(2, sums.x_largest);
      s = {sums.max, sums.lowest};
      if (!row.bias.empty()) bias.assign(2, sums.bias_largest);
      magnitude.assign(2, magnitude_largest);
      k_abs_sum.assign(2, of.head_.k_abs_largest);
      e.assign(2, 1), p = {0, 1};
      scores.keys = row.keys;
      scores.x = x, scores.s = s, scores.bias = bias, scores.magnitude = magnitude;
      scores.k_abs_sum = k_abs_sum, scores.e = e, scores.p = p;
      for (const double q : row.q) scores.q_abs_sum += Abs(q);
      scores.k_dim = static_cast<double>(of.head_.k.dim);
      scores.kv_len = static_cast<double>(of.head_.kv_len);
      scores.first_column = row.first_column;
      scores.scale = row.scale, scores.softcap = row.softcap;
      scores.has_sink = row.has_sink, scores.sink = row.sink;
      scores.sink_p = sums.sink_e / sums.denominator;
      scores.max = sums.max, scores.denominator = sums.denominator;
      scores.stands_for = static_cast<double>(row.keys.size());
      scores.size_largest = of.size_largest_;
    }
  };

  // Whether losing the heaviest key would show: two right answers differ by twice the bound.
  // weights: relative error of a weight, which may be most of what is left beside it.
  bool Shows(const RowEnclosure& enclosure, double weights) const {
    const auto key = static_cast<size_t>(sums_.heaviest);
    const double p = sums_.heaviest_e / sums_.denominator;
    if (!(p < 1)) return false;
    const double rest = 1 - p + 4 * weights;
    for (size_t c = 0; c < dv_; ++c) {
      const double gap = Abs(head_.v.hi[key * dv_ + c] - enclosure.value[c]) - enclosure.own[c];
      if (p / rest * (1 - kOfSums) * gap > 2 * enclosure.proven[c]) return true;
    }
    return false;
  }

  // False where the bound may be infinite, or proves nothing.
  bool EncloseLse(const RowScores& scores, const KeyWeights& least, const KeyWeights& most,
                  double weights, double floor, RowEnclosure* enclosure) const {
    const bool base2 = context_.c->lse == LseKind::kBase2;
    const double nats = sums_.max + std::log(sums_.denominator);
    enclosure->lse = base2 ? nats / std::log(2.0) : nats;
    enclosure->lse_own = (weights + kLogError<double> * Abs(nats - sums_.max) +
                          4 * kU * (Abs(nats) + Abs(sums_.max))) *
                             (1 + 0x1p-20) * (base2 ? 2 : 1) +
                         2 * floor;
    enclosure->lse_least =
        ComputeLseBound(a_, least, scores, enclosure->lse, base2) * (1 - kOfSums);
    const double proven = ComputeLseBound(a_, most, scores, enclosure->lse, base2) * (1 + kOfSums);
    return enclosure->lse_own <= 0x1p-10 * enclosure->lse_least &&
           proven <= kVacuousShare * (1 + Abs(enclosure->lse));
  }

  const RowContext& context_;
  const OwnedQuestion& owned_;
  const RowSums& sums_;
  const HeadData& head_;
  const Arithmetic& a_;
  const size_t dv_;
  const double size_largest_;                    // of |s|
  const double weight_squares_, other_weights_;  // of RowSums, of weights that sum to 1
};

}  // namespace

RoundedWeights RoundedWeightsOf(const Arithmetic& a) {
  RoundedWeights rounded;
  rounded.any = a.u_p > 0;
  if (!rounded.any) return rounded;
  rounded.normalised = a.p_normalised;
  rounded.least = a.eta_p / a.u_p * (1 + kOfSums);
  if (a.p_cut) rounded.most = 1 - a.u_p * (1 + kOfSums);
  return rounded;
}

std::vector<RowEnclosure> EncloseRows(std::span<const BlockRow> rows,
                                      std::span<const std::optional<RowSums>> given) {
  std::vector<RowEnclosure> enclosures(rows.size());
  if (rows.empty() || !HasEnclosures(*rows[0].context->head, *rows[0].context->arithmetic)) {
    return enclosures;
  }
  std::vector<BlockRow> plain;
  std::vector<size_t> index;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (!IsPlain(*rows[r].owned)) continue;
    if (!given.empty() && given[r]) {
      enclosures[r] = Encloser(rows[r], *given[r]).Enclose();
      continue;
    }
    plain.push_back(rows[r]);
    index.push_back(r);
  }
  const auto most = static_cast<size_t>(
      std::max<int64_t>(1, kMostScores / std::max<int64_t>(1, rows[0].context->head->kv_len)));
  for (size_t first = 0; first < plain.size(); first += most) {
    const size_t count = std::min(most, plain.size() - first);
    const Block block{std::span(plain).subspan(first, count)};
    for (size_t i = 0; i < count; ++i) {
      enclosures[index[first + i]] = Encloser(plain[first + i], block.Of(i)).Enclose();
    }
  }
  return enclosures;
}

}  // namespace kvcheck
