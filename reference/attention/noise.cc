#include "reference/attention/noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "reference/attention/evaluate.h"
#include "reference/attention/evaluate_kernels.h"
#include "reference/attention/score_error.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr double kOfDoubles = 1 + 0x1p-40;  // of these formulas in double, as in bound.cc

// Below so many roundings their worst sum is smaller than lambda times the root of their variances:
// h u against lambda u sqrt(h / 3).
double FewRoundings() { return NoiseFactor() * NoiseFactor() / 3; }

// Widths of cells, in nats: keys whose scores differ by less than half a spacing of P err alike.
// The widest is half a spacing, each other a quarter of the one before, none finer than the score's
// own error, below which a kernel does not tell keys apart.
constexpr size_t kMostWidths = 8;
static_assert(kMostWidths + 1 <= kMostCellLevels);
std::vector<double> CellWidths(double u_p, double score_error) {
  std::vector<double> widths;
  const double finest = std::max(2 * score_error, 0x1p-40);
  double width = u_p / 2;
  do {
    widths.push_back(width);
    width /= 4;
  } while (width > finest && widths.size() < kMostWidths);
  std::reverse(widths.begin(), widths.end());
  return widths;
}

// Keys of a row in the order of their scores, the largest first.
std::vector<uint32_t> ByScore(std::span<const double> s) {
  std::vector<std::pair<double, uint32_t>> keys(s.size());
  for (size_t j = 0; j < s.size(); ++j) keys[j] = {-s[j], static_cast<uint32_t>(j)};
  std::sort(keys.begin(), keys.end());
  std::vector<uint32_t> order(s.size());
  for (size_t j = 0; j < s.size(); ++j) order[j] = keys[j].second;
  return order;
}

// Sums of P.V over runs of consecutive columns, from which those of any range follow.
class RangeSums {
 public:
  static constexpr int32_t kColumns = 16;

  // of_keys: LargestPartition will be asked.
  RangeSums(const NoiseQuestion& question, size_t channels, bool of_keys) : channels_(channels) {
    const auto& keys = question.row.keys;
    const int32_t first = keys.empty() ? 0 : keys.front() / kColumns;
    runs_ = keys.empty() ? 0 : static_cast<size_t>(keys.back() / kColumns - first + 1);
    prefix_.assign((runs_ + 1) * channels, 0);
    share_.assign(runs_ + 1, 0);
    largest_mass_.assign(channels, 0);
    of_keys_.assign(channels, 0);
    std::vector<int32_t> run(keys.size());
    for (size_t j = 0; j < keys.size(); ++j) {
      run[j] = keys[j] / kColumns - first;
      share_[static_cast<size_t>(run[j]) + 1] += question.p[j];
    }
    for (size_t r = 0; r < runs_; ++r) share_[r + 1] += share_[r];
    SumRuns(question.row, run, static_cast<int64_t>(runs_), question.p, prefix_.data(),
            largest_mass_.data(), of_keys ? of_keys_.data() : nullptr);
  }

  // Most that a sum over any range of columns comes to: the spread of the sums from the first
  // column on, and what the runs at its two ends hold.
  std::vector<double> LargestRange() const {
    std::vector<double> low(channels_, 0), high(channels_, 0);
    for (size_t run = 0; run <= runs_; ++run) {
      for (size_t c = 0; c < channels_; ++c) {
        low[c] = std::min(low[c], prefix_[run * channels_ + c]);
        high[c] = std::max(high[c], prefix_[run * channels_ + c]);
      }
    }
    for (size_t c = 0; c < channels_; ++c) high[c] += 2 * largest_mass_[c] - low[c];
    return high;
  }

  size_t Runs() const { return runs_; }
  // sum_j (p_j v_j)^2.
  const std::vector<double>& SquaresOfTerms() const { return of_keys_; }

  // What a sum that is cut toward zero loses over all columns, to the first, where each of its
  // steps loses the same share of the running sum: signed, for columns in ascending and descending
  // order.
  void Drift(double gamma, std::vector<double>* up, std::vector<double>* down) const {
    up->assign(channels_, 0);
    down->assign(channels_, 0);
    const double share = gamma / static_cast<double>(std::max<size_t>(runs_, 1));
    const double* total = &prefix_[runs_ * channels_];
    for (size_t run = 1; run <= runs_; ++run) {
      for (size_t c = 0; c < channels_; ++c) {
        (*up)[c] += share * prefix_[run * channels_ + c];
        (*down)[c] += share * (total[c] - prefix_[(run - 1) * channels_ + c]);
      }
    }
  }

  // sum_k (sum of range k)^2, the largest over equal ranges, up to `most` of them, and over ranges
  // of one key, where partial outputs that lie within a spacing of each other count as rounded
  // alike. u: of the type in which they are stored.
  std::vector<double> LargestPartition(int64_t most, double u) const {
    std::vector<double> largest = of_keys_;
    const auto runs = static_cast<int64_t>(runs_);
    for (int64_t ranges = 1; ranges <= std::min(most, runs); ranges = Next(ranges)) {
      std::vector<double> squares(channels_, 0), size(channels_, 0);
      std::vector<double> low(channels_, kNoLimit), high(channels_, -kNoLimit);
      int64_t used = 0;
      for (int64_t k = 0; k < ranges; ++k) {
        const auto begin = static_cast<size_t>(k * runs / ranges);
        const auto end = static_cast<size_t>((k + 1) * runs / ranges);
        const double share = share_[end] - share_[begin];
        if (!(share > 0)) continue;
        ++used;
        for (size_t c = 0; c < channels_; ++c) {
          const double sum = prefix_[end * channels_ + c] - prefix_[begin * channels_ + c];
          squares[c] += sum * sum;
          const double o = sum / share;
          low[c] = std::min(low[c], o);
          high[c] = std::max(high[c], o);
          size[c] = std::max(size[c], std::fabs(o));
        }
      }
      const auto count = static_cast<double>(used);
      for (size_t c = 0; c < channels_; ++c) {
        const double alike = 1 + count * 2 * u * size[c] / (high[c] - low[c]);
        const double together = alike < count ? alike : count;  // also where all are equal
        largest[c] = std::max(largest[c], together * squares[c]);
      }
    }
    return largest;
  }

 private:
  // 1, 2, 3, 4, 6, 8, 12, ...
  static int64_t Next(int64_t ranges) {
    if (ranges < 3) return ranges + 1;
    return (ranges & (ranges - 1)) == 0 ? ranges / 2 * 3 : ranges / 3 * 4;
  }

  size_t channels_;
  size_t runs_ = 0;
  std::vector<double> prefix_;  // [run][channel]
  std::vector<double> share_;
  std::vector<double> largest_mass_;
  std::vector<double> of_keys_;  // sum_j (p_j v_j)^2
};

// Below so many runs the sums of ranges depend on where they end.
constexpr size_t kFewRuns = 16;

// The mean number of keys that share the finest cell of a key. Every addend rounds the whole
// running sum, however small it is.
double LikeKeys(std::span<const double> s, const std::vector<uint32_t>& order, double width) {
  double sum = 0;
  for (size_t begin = 0; begin < order.size();) {
    const double cell = std::floor(s[order[begin]] / width);
    size_t end = begin;
    while (end < order.size() && std::floor(s[order[end]] / width) == cell) ++end;
    const auto count = static_cast<double>(end - begin);
    sum += count * count;
    begin = end;
  }
  return sum / static_cast<double>(order.size());
}

// Variance of what the rounding of P does to sums over the keys of `rows`, which hold one value per
// key and column, beside the results `centre`: keys of a cell share the number, uniform in +-1, by
// which they are off.
std::vector<double> VarianceOfP(const Arithmetic& a, const LikeKeyCells& cells,
                                double sink_amplitude, const double* rows,
                                std::span<const int32_t> row_of, std::span<const double> centre) {
  const size_t columns = centre.size();
  const CellOrder order = {row_of.data(), static_cast<int64_t>(row_of.size()),
                           cells.amplitude.data(), cells.closes.data(), cells.levels};
  const auto levels = static_cast<size_t>(cells.levels);
  std::vector<double> of_values(levels * columns, 0);
  std::vector<double> of_both(a.p_in_weights ? levels * columns : 0, 0);
  SquareCells(order, rows, static_cast<int64_t>(columns),
              {of_values.data(), a.p_in_weights ? of_both.data() : nullptr});
  std::vector<double> variance(columns, 0), values(columns, 0), both(columns, 0);
  double weights = 0;
  for (size_t level = 0; level < levels; ++level) {
    weights += cells.of_weights[level];
    for (size_t c = 0; c < columns; ++c) {
      values[c] += of_values[level * columns + c];
      if (a.p_in_numerator) variance[c] = std::max(variance[c], values[c] / 3);
      if (!a.p_in_weights) continue;
      both[c] += of_both[level * columns + c];
      const double o = centre[c];
      const double square = values[c] - 2 * o * both[c] + o * o * weights;
      variance[c] = std::max(variance[c], (square + sink_amplitude * sink_amplitude * o * o) / 3);
    }
  }
  return variance;
}

// Whether P is rounded to nearest numbers, with a random phase. Beside a scale that is no number of
// P's type the heaviest key of every block, and of every row, is off by the same.
bool RoundsAtRandom(const Arithmetic& a) {
  const double scale = *a.plan.p_scale;
  return !a.p_toward_zero && (a.p_normalised || RoundTo(*a.plan.p, scale) == scale);
}

// The roundings of the sums of P.V, of their rescales and merges.
struct Additions {
  bool is_tensor_core = false, truncates = false;
  double u = 0;
  double random = 0;   // to nearest, each of the running sum
  double one_way = 0;  // common to many keys, or in one direction
  double outside = 0, common = 0;
  bool is_nearest_outside = false;
  // An accumulator below op's type: its worst case says nothing over a thousand keys, and less is
  // rounded where the running sum is smaller than the sum of all sizes.
  bool follows = false;

  Additions(const Arithmetic& a, const KeyWeights& w, bool rotates) {
    const bool merges_lse = a.merge == MergeKind::kLse || a.merge == MergeKind::kLseDivisionFree;
    const SumPlan& pv = *a.plan.pv;
    is_tensor_core = pv.order == SumOrder::kTensorCore;
    truncates = is_tensor_core || pv.accumulator.toward_zero;
    outside = w.depths.rescales + (a.factored ? 2 : 0);
    if (a.merge != MergeKind::kNone) outside += w.depths.splits;
    // A reciprocal is one number for a whole range of keys.
    common = (a.p_normalised ? a.c_d : 0) + (merges_lse ? a.c_d + 1 : 0);
    // Rescales are rounded as the accumulator is; those of a tensor core's are done outside of it.
    u = std::max(a.u_a, is_tensor_core ? 0 : a.u_pv);
    // A shift that drifts leaves factors of nearly 1, by which all channels are off alike.
    is_nearest_outside =
        !a.plan.op->toward_zero && !a.shift_drifts && (is_tensor_core || !truncates);
    const double additions = truncates ? 0 : w.depths.pv;
    random = additions + (is_nearest_outside ? outside : 0);
    one_way = common + (is_nearest_outside ? 0 : outside);
    follows = additions > 0 && is_nearest_outside && a.u_pv > a.u_a &&
              pv.order == SumOrder::kSequential && !rotates && !a.factored;
  }
};

class Model {
 public:
  explicit Model(const NoiseQuestion& question)
      : q_(question),
        a_(question.a),
        w_(question.weights),
        channels_(question.sums.size()),
        rest_(1 - w_.t - w_.vanished),
        is_nearest_(!a_.plan.op->toward_zero) {}

  std::optional<RowNoise> Run() {
    if (!(rest_ > 0)) return std::nullopt;
    order_ = ByScore(q_.s);
    widths_ = CellWidths(a_.u_p > 0 ? a_.u_p : 0x1p-24, w_.max_error);
    n_.of_p.assign(channels_, 0);
    n_.of_sums.assign(channels_, 0);
    n_.slack.assign(channels_, 0);
    n_.truncation.assign(channels_, 0);
    n_.denominator_error = DenominatorError(a_, w_);
    AddScores();
    AddProbabilities();
    AddSums();
    return std::move(n_);
  }

 private:
  const std::vector<double>& V() const { return q_.row.head->v.hi; }
  const double* ValuesOf(size_t j) const {
    return &V()[static_cast<size_t>(q_.row.keys[j]) * channels_];
  }

  // Scores, exp and merges through lse count at their largest. Where the denominator sums rounded
  // weights, ChannelSums::c has their rounding too.
  void AddScores() {
    std::vector<double>& scores = n_.scores;
    scores.assign(channels_, 0);
    if (!a_.p_in_weights) {
      for (size_t c = 0; c < channels_; ++c) scores[c] = q_.sums[c].c / rest_;
    } else {
      for (size_t j = 0; j < q_.p.size(); ++j) {
        const double* v = ValuesOf(j);
        const double error = q_.p[j] > 0 ? w_.score[j] : w_.c[j];
        for (size_t c = 0; c < channels_; ++c) scores[c] += error * std::fabs(v[c] - q_.sums[c].o);
      }
      for (size_t c = 0; c < channels_; ++c) {
        scores[c] = (scores[c] + w_.sink_c * std::fabs(q_.sums[c].o)) / rest_;
      }
    }
    for (size_t c = 0; c < channels_; ++c) {
      if (!(scores[c] < q_.sums[c].spread)) scores[c] = q_.sums[c].spread;
    }
  }

  // Rounding of P: of the weights in the numerator, or in both.
  void AddProbabilities() {
    n_.amplitude.assign(q_.p.size(), 0);
    if (!(a_.u_p > 0)) return;
    n_.biased.assign(q_.p.size(), 0);
    std::vector<double> biased(channels_, 0), biased_both(channels_, 0), centre(channels_);
    for (size_t c = 0; c < channels_; ++c) centre[c] = q_.sums[c].o;
    const bool is_random = RoundsAtRandom(a_);
    for (size_t j = 0; j < q_.p.size(); ++j) {
      const double u = w_.p_rounding[j];
      const double amplitude = w_.x[j] * u / rest_;
      // Among P's subnormal numbers a rounding is no longer small beside its weight, nor of random
      // phase; toward zero it goes one way.
      if (is_random && u <= a_.u_p * (1 + 0x1p-40)) {
        n_.amplitude[j] = amplitude;
        continue;
      }
      n_.biased[j] = amplitude;
      const double* v = ValuesOf(j);
      for (size_t c = 0; c < channels_; ++c) {
        biased[c] += amplitude * std::fabs(v[c]);
        biased_both[c] += amplitude * std::fabs(v[c] - centre[c]);
      }
    }
    if (a_.p_in_weights && q_.row.has_sink) n_.sink_amplitude = a_.u_p * w_.sink_share / rest_;
    n_.largest_cell = LargestCell();
    n_.cells = Cells();
    std::vector<int32_t> rows(n_.cells.keys.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = q_.row.keys[static_cast<size_t>(n_.cells.keys[i])];
    }
    n_.of_p = VarianceOfP(a_, n_.cells, n_.sink_amplitude, V().data(), rows, centre);
    for (size_t c = 0; c < channels_; ++c) {
      if (a_.p_in_numerator) n_.slack[c] = biased[c];
      if (a_.p_in_weights) n_.slack[c] = std::max(n_.slack[c], biased_both[c]);
    }
  }

  LikeKeyCells Cells() const {
    LikeKeyCells cells;
    cells.levels = static_cast<int32_t>(widths_.size() + 1);
    cells.of_weights.assign(widths_.size() + 1, 0);
    const double top = order_.empty() ? 0 : q_.s[order_.front()];
    std::vector<double> cell(widths_.size(), -1), open(widths_.size() + 1, 0);
    const auto close = [&](size_t level) {
      if (level + 1 < open.size()) {
        cells.of_weights[level + 1] += 2 * open[level + 1] * open[level];
        open[level + 1] += open[level];
      }
      open[level] = 0;
    };
    for (const uint32_t j : order_) {
      const double amplitude = n_.amplitude[j];
      if (!(amplitude > 0)) continue;
      uint8_t closes = 0;
      for (size_t i = 0; i < widths_.size(); ++i) {
        const double here = std::floor((top - q_.s[j]) / widths_[i]);
        if (here == cell[i]) break;
        cell[i] = here;
        closes = static_cast<uint8_t>(i + 1);
        close(i + 1);
      }
      cells.of_weights[0] += amplitude * amplitude;
      open[0] = amplitude;
      close(0);
      cells.keys.push_back(static_cast<int32_t>(j));
      cells.amplitude.push_back(amplitude);
      cells.closes.push_back(closes);
    }
    for (size_t level = 1; level < open.size(); ++level) close(level);
    return cells;
  }

  double LargestCell() const {
    double total = 0, open = 0, largest = 0, cell = -1;
    for (const uint32_t j : order_) {
      const double here = std::floor((q_.s[order_.front()] - q_.s[j]) / widths_.back());
      if (here != cell) open = 0, cell = here;
      open += n_.amplitude[j];
      total += n_.amplitude[j];
      largest = std::max(largest, open);
    }
    return total > 0 ? largest / total : 0;
  }

  // Per channel, the mean number of keys whose addends round the running sum alike: keys of equal
  // scores; where V differs between keys by less than a spacing of the sum, also those whose
  // weights do. The larger the sum beside its addends, the more these are.
  std::vector<double> LikeAddends(double u, const std::vector<double>& sizes) const {
    const double reach = 2 * u * static_cast<double>(q_.p.size());
    const double fine = LikeKeys(q_.s, order_, widths_.front());
    double wide = 0, weights = 0;
    for (const double c : w_.c) weights += c;
    std::vector<double> alike(channels_, fine);
    for (size_t c = 0; c < channels_; ++c) {
      const double difference = weights > 0 ? q_.sums[c].c / weights : q_.sums[c].spread;
      if (!(difference <= reach * sizes[c])) continue;
      if (wide == 0) wide = LikeKeys(q_.s, order_, std::max(widths_.front(), reach));
      alike[c] = wide;
    }
    return alike;
  }

  // Per channel, the addends below a spacing of the sum, which it may lose whole.
  std::vector<double> LostAddends(double u) const {
    std::vector<double> lost(channels_, 0), spacing(channels_);
    for (size_t c = 0; c < channels_; ++c) spacing[c] = 2 * u * q_.sums[c].x;
    for (size_t j = 0; j < q_.p.size(); ++j) {
      const double* v = ValuesOf(j);
      const double weight = w_.x[j];
      for (size_t c = 0; c < channels_; ++c) {
        const double addend = weight * std::fabs(v[c]);
        lost[c] += addend < spacing[c] ? addend : 0;
      }
    }
    for (double& sum : lost) sum /= rest_;
    return lost;
  }

  // The sums of P.V, their rescales and merges.
  void AddSums() {
    const StoredBasis& basis = q_.row.head->v.basis;
    const SumPlan& pv = *a_.plan.pv;
    const Additions sums(a_, w_, basis.Rotates());
    const bool is_tensor_core = sums.is_tensor_core, truncates = sums.truncates;
    const bool follows = sums.follows;
    const double u = sums.u, random = sums.random, one_way = sums.one_way;
    const double outside = sums.outside, common = sums.common;
    const double additions = truncates ? 0 : w_.depths.pv;
    std::optional<RangeSums> ranges;
    if (!basis.Rotates() && (is_tensor_core || follows || a_.u_part > 0)) {
      ranges.emplace(q_, channels_, follows || a_.u_part > 0);
    }
    std::vector<double> path;
    if (follows || (is_tensor_core && ranges)) path = ranges->LargestRange();
    // Largest sizes of the running sum.
    std::vector<double> sizes(channels_);
    for (size_t c = 0; c < channels_; ++c) {
      sizes[c] = follows ? std::min(path[c] * (1 + w_.t_plus), q_.sums[c].x) : q_.sums[c].x;
    }
    const std::vector<double> alike = LikeAddends(u, sizes);
    const std::vector<double> lost = additions > 0 ? LostAddends(u) : std::vector<double>();
    // Cut operands err alike wherever their values come again, and the weights of a merge are
    // common to a range of keys.
    const ProductCut& cut = a_.cut_pv;
    const double counted =
        cut.lost + (a_.merge == MergeKind::kNone ? 0 : a_.u_weight) + w_.largest_kappa;
    n_.second_order =
        Compose(cut.lost + Gamma(w_.depths.pv, a_.u_pv) * cut.size,
                Compose(Gamma(outside + common, std::max(a_.u_a, a_.u_pv)), a_.u_weight));
    const double most_alike = *std::max_element(alike.begin(), alike.end());
    const double wander = NoiseFactor() * u * cut.size * std::sqrt(random * most_alike / 3);
    const bool is_low = follows && wander < 0.5;
    if (is_low) {
      n_.second_order = Compose(cut.lost, Compose(Gamma(common, a_.u_a), a_.u_weight));
    }
    n_.truncations = std::max(1.0, w_.depths.pv);
    if (is_tensor_core && ranges) {
      ranges->Drift(Gamma(w_.depths.pv, a_.u_pv), &n_.drift_up, &n_.drift_down);
    }
    std::vector<double> partition;
    const bool stores = a_.merge != MergeKind::kNone && a_.u_part > 0;
    if (stores && is_nearest_ && ranges && ranges->Runs() >= kFewRuns) {
      partition = ranges->LargestPartition(static_cast<int64_t>(w_.depths.splits), a_.u_part);
    }
    for (size_t c = 0; c < channels_; ++c) {
      const double x = q_.sums[c].x / rest_;
      if (basis.Rotates()) {
        // Partial outputs are stored in the basis.
        n_.slack[c] += counted * x;
        if (stores) n_.slack[c] += a_.u_part * q_.sums[c].parts / rest_;
        continue;
      }
      const bool is_random = random > 0 && !(random < FewRoundings() * alike[c]);
      double fixed = (Gamma(one_way + (is_random ? 0 : random), u) * cut.size +
                      Gamma(a_.c_p, a_.u_a) + counted) *
                     x;
      if (is_random && !lost.empty()) fixed += lost[c];
      if (truncates) {
        // Beside the running sum of the products themselves: what stands for them, and its parts.
        const double parts = (cut.lost + cut.size - 1) * x;
        const double reach =
            parts +
            (path.empty() || !is_tensor_core ? x : std::min(path[c] * (1 + w_.t_plus) / rest_, x));
        n_.truncation[c] = Gamma(w_.depths.pv, a_.u_pv) * reach;
      }
      double largest = x * cut.size;
      if (is_low && is_random) {
        // What a running sum is off by, it is larger by: 1 / (1 - wander).
        const double reach =
            std::min(path[c] * (1 + w_.t_plus) / rest_, x) + (cut.lost + cut.size - 1) * x;
        fixed = (Gamma(one_way, a_.u_a) + Gamma(a_.c_p, a_.u_a) + counted) * x +
                LostBelow(c, u * reach / (1 - wander));
        largest = std::min(largest, (reach + fixed) / (1 - wander));
      }
      if (stores && partition.empty()) fixed += a_.u_part * x;
      n_.slack[c] += fixed;
      const double step = u * largest;
      if (is_random) n_.of_sums[c] = random * alike[c] * step * step / 3;
      if (is_low && is_random && !a_.pv_exact && !pv.fma) {
        n_.of_sums[c] += alike[c] * u * u * ranges->SquaresOfTerms()[c] / 3 / (rest_ * rest_);
      }
      if (!partition.empty()) {
        const double factor = a_.u_part / rest_;
        n_.of_sums[c] += factor * factor * partition[c] / 3;
      }
    }
  }

  // Addends below a spacing of the running sum, half_spacing at most, are rounded by what they are
  // themselves, and not by a phase: most of them are lost.
  double LostBelow(size_t c, double half_spacing) const {
    double lost = 0;
    for (size_t j = 0; j < q_.p.size(); ++j) {
      const double term = w_.x[j] / rest_ * std::fabs(ValuesOf(j)[c]);
      if (term < 2 * half_spacing) lost += std::min(term, half_spacing);
    }
    return lost;
  }

  const NoiseQuestion& q_;
  const Arithmetic& a_;
  const KeyWeights& w_;
  const size_t channels_;
  const double rest_;
  const bool is_nearest_;        // of every rounding outside the sums
  std::vector<uint32_t> order_;  // keys by falling scores
  std::vector<double> widths_;   // of the cells of like keys, in nats, rising
  RowNoise n_;
};

}  // namespace

double NoiseFactor() {
  static const double factor = std::sqrt(2 * std::log(2 / kNoiseFalseAlarm));
  return factor;
}

std::optional<RowNoise> NoiseOf(const NoiseQuestion& question) {
  if (question.p.empty()) return std::nullopt;
  return Model(question).Run();
}

RowNoise LeastNoise(const NoiseQuestion& question, const RoundedKeys& keys) {
  const Arithmetic& a = question.a;
  const KeyWeights& w = question.weights;
  const size_t channels = question.sums.size();
  const Additions additions(a, w, false);
  RowNoise noise;
  noise.of_p.assign(channels, 0);
  noise.of_sums.assign(channels, 0);
  noise.scores.assign(channels, 0);
  noise.slack.assign(channels, 0);
  noise.truncation.assign(channels, 0);
  noise.denominator_error = DenominatorError(a, w);
  const double one_way = additions.follows ? Gamma(additions.one_way, a.u_a)
                                           : Gamma(additions.one_way, additions.u) * a.cut_pv.size;
  const double fixed = one_way + Gamma(a.c_p, a.u_a) + a.cut_pv.lost +
                       (a.merge == MergeKind::kNone ? 0 : a.u_weight);
  const bool rounds_p = a.u_p > 0, is_random = rounds_p && RoundsAtRandom(a);
  const double worst_of_sums = Gamma(additions.random, additions.u);
  const double truncated = additions.truncates ? Gamma(w.depths.pv, a.u_pv) : 0;
  const double root_of_weights = std::sqrt(keys.weight_squares);
  for (size_t c = 0; c < channels; ++c) {
    const ChannelSums& sums = question.sums[c];
    const double o = std::fabs(sums.o);
    if (is_random) {
      // The norm of p (v - o) is no less than the difference of those of p v and p o.
      const double gap = std::sqrt(keys.squares[c]) - o * root_of_weights;
      const double square = a.p_in_numerator ? keys.squares[c] : gap > 0 ? gap * gap : 0;
      noise.of_p[c] = a.u_p * a.u_p * square / 3;
    } else if (rounds_p) {
      const double gap = std::max(0.0, keys.mass[c] - o);
      noise.slack[c] = a.u_p * (a.p_in_numerator ? keys.mass[c] : gap);
    }
    noise.slack[c] += fixed * sums.x;
    // Roundings at random, or all of them at their worst: whichever is less.
    const double summed = additions.follows ? std::min(o, sums.x) : sums.x;
    const double step = additions.u * summed;
    const double at_worst = worst_of_sums * summed / NoiseFactor();
    const double of_sums = std::min(additions.random * step * step / 3, at_worst * at_worst);
    noise.of_sums[c] = of_sums < kNoLimit ? of_sums : 0;  // squares that overflow say nothing
    noise.truncation[c] = truncated * std::min(o, sums.x);
  }
  return noise;
}

std::vector<double> NoiseAlong(const Arithmetic& a, const RowNoise& noise,
                               std::span<const double> projected, std::span<const double> centre) {
  return VarianceOfP(a, noise.cells, noise.sink_amplitude, projected.data(), noise.cells.keys,
                     centre);
}

void BoundByNoise(const NoiseQuestion& question, const RowNoise& noise,
                  std::vector<ChannelBound>* bounds) {
  const Arithmetic& a = question.a;
  const bool rotates = question.row.head->v.basis.Rotates();
  // Where the worst case of the sums of P.V is all that has no bound, what else there is.
  std::vector<ChannelBound> of_others;
  const double depth = question.weights.depths.pv + question.weights.depths.rescales;
  if (!question.weights.unbounded && !(Gamma(depth, a.u_pv) < kNoLimit) &&
      noise.second_order < kNoLimit) {
    Arithmetic exact = a;
    exact.u_pv = 0;
    of_others = ComputeChannelBounds(exact, question.weights, question.sums,
                                     question.row.head->v.basis, question.out);
  }
  const OutputError output(a, question.out);
  for (size_t c = 0; c < bounds->size(); ++c) {
    ChannelBound& bound = (*bounds)[c];
    if (!(bound.bound < kNoLimit) && (of_others.empty() || !(of_others[c].bound < kNoLimit))) {
      continue;
    }
    const ChannelBound& worst = bound.bound < kNoLimit ? bound : of_others[c];
    const double magnitude = std::fabs(question.sums[c].o);
    const double fixed = (noise.slack[c] + noise.truncation[c]) * (1 + noise.second_order);
    std::array<double, kBoundTerms> terms{};
    terms[kScoreTerm] = noise.scores[c];
    terms[kNoiseTerm] =
        NoiseFactor() * std::sqrt(noise.of_p[c] + noise.of_sums[c]) * (1 + noise.second_order);
    terms[kCodecTerm] = worst.terms[kCodecTerm];
    terms[kUnderflowTerm] = worst.terms[kUnderflowTerm];
    // Of sums in the basis of V, and back out of it, nothing is taken for random.
    terms[kSumTerm] = rotates ? worst.terms[kSumTerm] + fixed : fixed;
    if (rotates) terms[kNormaliseTerm] = worst.terms[kNormaliseTerm];
    double f = terms[kScoreTerm] + terms[kNoiseTerm] + terms[kCodecTerm] + terms[kSumTerm];
    terms[kDenominatorTerm] = noise.denominator_error * (magnitude + f);
    f += terms[kDenominatorTerm] + terms[kUnderflowTerm] + terms[kNormaliseTerm];
    terms[kOutputTerm] = output.At(magnitude + f);
    const double limit = (f + terms[kOutputTerm]) * kOfDoubles;
    if (!(limit < bound.bound)) continue;
    bound.bound = limit;
    bound.before_output = f;
    bound.terms = terms;
  }
}

}  // namespace kvcheck
