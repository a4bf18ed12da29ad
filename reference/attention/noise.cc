#include "reference/attention/noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "reference/attention/score_error.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEvaluation = 1 + 0x1p-40;  // of these formulas in double, as in bound.cc

// Below so many roundings their worst sum is smaller than lambda times the root of their variances:
// h u against lambda u sqrt(h / 3).
double FewRoundings() { return NoiseFactor() * NoiseFactor() / 3; }

// Widths of cells, in nats: keys whose scores differ by less than half a spacing of P err alike.
// The widest is half a spacing, each other a quarter of the one before, none finer than the score's
// own error, below which a kernel does not tell keys apart.
constexpr size_t kMostWidths = 8;
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

// Variances of sum_j a_j eps_j v_jc, and of what rounded weights do to the denominator, with eps_j
// uniform in +-1: keys of a cell share their eps.
class CellSums {
 public:
  CellSums(size_t channels, std::vector<double> widths)
      : channels_(channels), widths_(std::move(widths)), levels_(widths_.size() + 1) {
    for (Level& level : levels_) {
      level.sum.assign(channels, 0);
      level.of_values.assign(channels, 0);
      level.of_both.assign(channels, 0);
    }
  }

  // Keys come by falling scores; position: of the score, in nats, from any origin.
  void Add(double position, double amplitude, const double* v) {
    // A key is a cell of its own on level 0, which closes at once; wider cells hold finer ones.
    for (size_t i = 1; i < levels_.size(); ++i) {
      const double cell = std::floor(position / widths_[i - 1]);
      if (cell == levels_[i].cell) break;
      Close(i);
      levels_[i].cell = cell;
    }
    Level& own = levels_[0];
    for (size_t c = 0; c < channels_; ++c) own.sum[c] = amplitude * v[c];
    own.weight = amplitude;
    own.count = 1;
    Close(0);
  }

  // Sum of the squares of cells, the largest of all widths: with `centred`, of v - o in place of v.
  std::vector<double> Finish(bool centred, std::span<const ChannelSums> sums) {
    for (size_t i = 1; i < levels_.size(); ++i) Close(i);
    std::vector<double> largest(channels_, 0);
    for (const Level& level : levels_) {
      for (size_t c = 0; c < channels_; ++c) {
        const double o = centred ? sums[c].o : 0;
        const double square =
            level.of_values[c] - 2 * o * level.of_both[c] + o * o * level.of_weights;
        largest[c] = std::max(largest[c], square);
      }
    }
    return largest;
  }

 private:
  struct Level {
    double cell = -kInfinity;
    double weight = 0, of_weights = 0;  // of the open cell; sum of squares of closed ones
    int64_t count = 0;
    std::vector<double> sum, of_values, of_both;
  };

  // Adds the open cell of a level to the squares of its level and to the wider cell.
  void Close(size_t i) {
    Level& level = levels_[i];
    if (level.count == 0) return;
    Level* wider = i + 1 < levels_.size() ? &levels_[i + 1] : nullptr;
    for (size_t c = 0; c < channels_; ++c) {
      const double sum = level.sum[c];
      level.of_values[c] += sum * sum;
      level.of_both[c] += sum * level.weight;
      if (wider != nullptr) wider->sum[c] += sum;
      level.sum[c] = 0;
    }
    level.of_weights += level.weight * level.weight;
    if (wider != nullptr) wider->weight += level.weight, wider->count += level.count;
    level.weight = 0;
    level.count = 0;
  }

  size_t channels_;
  std::vector<double> widths_;
  std::vector<Level> levels_;
};

// Sums of P.V over runs of consecutive columns, from which those of any range follow.
class RangeSums {
 public:
  static constexpr int32_t kColumns = 16;

  RangeSums(const NoiseQuestion& question, size_t channels) : channels_(channels) {
    const auto& keys = question.row.keys;
    const std::vector<double>& v = question.row.head->v.hi;
    const int32_t first = keys.empty() ? 0 : keys.front() / kColumns;
    runs_ = keys.empty() ? 0 : static_cast<size_t>(keys.back() / kColumns - first + 1);
    prefix_.assign((runs_ + 1) * channels, 0);
    share_.assign(runs_ + 1, 0);
    largest_mass_.assign(channels, 0);
    of_keys_.assign(channels, 0);
    std::vector<double> mass(channels, 0);
    size_t open = 0;
    const auto close = [&] {
      for (size_t c = 0; c < channels; ++c) {
        largest_mass_[c] = std::max(largest_mass_[c], mass[c]);
        mass[c] = 0;
      }
    };
    for (size_t j = 0; j < keys.size(); ++j) {
      const auto run = static_cast<size_t>(keys[j] / kColumns - first);
      if (run != open) close(), open = run;
      double* sum = &prefix_[(run + 1) * channels];
      const double* value = &v[static_cast<size_t>(keys[j]) * channels];
      share_[run + 1] += question.p[j];
      for (size_t c = 0; c < channels; ++c) {
        const double term = question.p[j] * value[c];
        sum[c] += term;
        mass[c] += std::fabs(term);
        of_keys_[c] += term * term;
      }
    }
    close();
    for (size_t run = 0; run < runs_; ++run) {
      share_[run + 1] += share_[run];
      for (size_t c = 0; c < channels; ++c) {
        prefix_[(run + 1) * channels + c] += prefix_[run * channels + c];
      }
    }
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

  // sum_k (sum of range k)^2, the largest over equal ranges, up to `most` of them, and over ranges
  // of one key, where partial outputs that lie within a spacing of each other count as rounded
  // alike. u: of the type in which they are stored.
  std::vector<double> LargestPartition(int64_t most, double u) const {
    std::vector<double> largest = of_keys_;
    const auto runs = static_cast<int64_t>(runs_);
    for (int64_t ranges = 1; ranges <= std::min(most, runs); ranges = Next(ranges)) {
      std::vector<double> squares(channels_, 0), size(channels_, 0);
      std::vector<double> low(channels_, kInfinity), high(channels_, -kInfinity);
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

// The mean number of keys, by weight, that share the finest cell of a key.
double LikeKeys(std::span<const double> p, std::span<const double> s,
                const std::vector<uint32_t>& order, double width) {
  double sum = 0, total = 0;
  for (size_t begin = 0; begin < order.size();) {
    const double cell = std::floor(s[order[begin]] / width);
    double mass = 0;
    size_t end = begin;
    for (; end < order.size() && std::floor(s[order[end]] / width) == cell; ++end) {
      mass += p[order[end]];
    }
    sum += mass * static_cast<double>(end - begin);
    total += mass;
    begin = end;
  }
  return total > 0 ? sum / total : 1;
}

class Model {
 public:
  explicit Model(const NoiseQuestion& question)
      : q_(question),
        a_(question.a),
        w_(question.weights),
        channels_(question.sums.size()),
        rest_(1 - w_.t - w_.vanished),
        is_nearest_(!a_.plan.op->toward_zero) {}

  void Apply(std::vector<ChannelBound>* bounds) {
    if (!(rest_ > 0)) return;
    order_ = ByScore(q_.s);
    const std::vector<double> widths = CellWidths(a_.u_p > 0 ? a_.u_p : 0x1p-24, w_.max_error);
    variance_.assign(channels_, 0);
    slack_.assign(channels_, 0);
    AddScores();
    AddProbabilities(widths);
    AddSums(widths.front());
    for (size_t c = 0; c < channels_; ++c) Bound(c, &(*bounds)[c]);
  }

 private:
  const std::vector<double>& V() const { return q_.row.head->v.hi; }
  const double* ValuesOf(size_t j) const {
    return &V()[static_cast<size_t>(q_.row.keys[j]) * channels_];
  }

  // Scores, exp and merges through lse count at their largest. Where the denominator sums rounded
  // weights, ChannelSums::c has their rounding too.
  void AddScores() {
    scores_.assign(channels_, 0);
    if (!a_.p_in_weights) {
      for (size_t c = 0; c < channels_; ++c) scores_[c] = q_.sums[c].c / rest_;
    } else {
      for (size_t j = 0; j < q_.p.size(); ++j) {
        const double* v = ValuesOf(j);
        const double error = q_.p[j] > 0 ? w_.score[j] : w_.c[j];
        for (size_t c = 0; c < channels_; ++c) scores_[c] += error * std::fabs(v[c] - q_.sums[c].o);
      }
      for (size_t c = 0; c < channels_; ++c) {
        scores_[c] = (scores_[c] + w_.sink_c * std::fabs(q_.sums[c].o)) / rest_;
      }
    }
    for (size_t c = 0; c < channels_; ++c) scores_[c] = std::min(scores_[c], q_.sums[c].spread);
  }

  // Rounding of P: of the weights in the numerator, or in both.
  void AddProbabilities(const std::vector<double>& widths) {
    if (!(a_.u_p > 0)) return;
    CellSums cells(channels_, widths);
    std::vector<double> biased(channels_, 0), biased_both(channels_, 0);
    const double top = order_.empty() ? 0 : q_.s[order_.front()];
    for (const uint32_t j : order_) {
      const double u = w_.p_rounding[j];
      const double amplitude = w_.x[j] * u;
      // Among P's subnormal numbers a rounding is no longer small beside its weight, nor of random
      // phase; toward zero it goes one way.
      if (!is_nearest_ || u > a_.u_p * (1 + 0x1p-40)) {
        const double* v = ValuesOf(j);
        for (size_t c = 0; c < channels_; ++c) {
          biased[c] += amplitude * std::fabs(v[c]);
          biased_both[c] += amplitude * std::fabs(v[c] - q_.sums[c].o);
        }
        continue;
      }
      cells.Add(top - q_.s[j], amplitude, ValuesOf(j));
    }
    std::vector<double> of_p(channels_, 0);
    const auto take = [&](bool centred, const std::vector<double>& slack) {
      const std::vector<double> squares = cells.Finish(centred, q_.sums);
      for (size_t c = 0; c < channels_; ++c) {
        of_p[c] = std::max(of_p[c], squares[c] / 3);
        slack_[c] = std::max(slack_[c], slack[c] / rest_);
      }
    };
    if (a_.p_in_numerator) take(false, biased);
    if (a_.p_in_weights) {
      take(true, biased_both);
      if (q_.row.has_sink) {
        for (size_t c = 0; c < channels_; ++c) {
          const double of_sink = a_.u_p * w_.sink_share * std::fabs(q_.sums[c].o);
          of_p[c] += of_sink * of_sink / 3;
        }
      }
    }
    for (size_t c = 0; c < channels_; ++c) variance_[c] += of_p[c] / (rest_ * rest_);
  }

  // The sums of P.V, their rescales and merges.
  void AddSums(double finest) {
    const StoredBasis& basis = q_.row.head->v.basis;
    const bool merges_lse = a_.merge == MergeKind::kLse || a_.merge == MergeKind::kLseDivisionFree;
    const SumPlan& pv = *a_.plan.pv;
    const bool is_tensor_core = pv.order == SumOrder::kTensorCore;
    const bool truncates = is_tensor_core || pv.accumulator.toward_zero;
    double outside = w_.depths.rescales + (a_.factored ? 2 : 0);
    if (a_.merge != MergeKind::kNone) outside += w_.depths.splits;
    // A reciprocal is one number for a whole range of keys.
    const double common = (a_.p_normalised ? a_.c_d : 0) + (merges_lse ? a_.c_d + 1 : 0);
    const double u = std::max(a_.u_a, truncates ? 0 : a_.u_pv);
    double random = (truncates ? 0 : w_.depths.pv) + (is_nearest_ ? outside : 0);
    double one_way = common + (is_nearest_ ? 0 : outside);
    // Equal addends round alike.
    const double alike = random > 0 ? LikeKeys(q_.p, q_.s, order_, finest) : 1;
    if (random < FewRoundings() * alike) {
      one_way += random;
      random = 0;
    }
    const double g_worst =
        Compose(Gamma(w_.depths.pv, a_.u_pv), Gamma(outside + common, std::max(a_.u_a, a_.u_pv)));
    g_ = g_worst;
    const bool needs_ranges = !basis.Rotates() && ((is_tensor_core && truncates) || a_.u_part > 0);
    const RangeSums* ranges = nullptr;
    std::optional<RangeSums> storage;
    if (needs_ranges) ranges = &storage.emplace(q_, channels_);
    std::vector<double> path(channels_);
    if (is_tensor_core && ranges != nullptr) path = ranges->LargestRange();
    std::vector<double> partition;
    const bool partials_random = merges_lse && a_.u_part > 0 && is_nearest_ && ranges != nullptr &&
                                 ranges->Runs() >= kFewRuns;
    if (partials_random) {
      partition = ranges->LargestPartition(static_cast<int64_t>(w_.depths.splits), a_.u_part);
    }
    for (size_t c = 0; c < channels_; ++c) {
      const ChannelSums& sums = q_.sums[c];
      double fixed = Gamma(one_way, u) * sums.x;
      if (truncates) {
        const double reach = is_tensor_core && ranges != nullptr
                                 ? std::min(path[c] * (1 + w_.t_plus), sums.x)
                                 : sums.x;
        fixed += Gamma(w_.depths.pv, a_.u_pv) * reach;
      }
      fixed += Gamma(a_.c_p, a_.u_a) * sums.x + w_.largest_kappa * sums.x;
      if (merges_lse && a_.u_part > 0 && !partials_random) fixed += a_.u_part * sums.x;
      slack_[c] += fixed / rest_;
      const double size = u * sums.x / rest_;
      variance_[c] += random * alike * size * size / 3;
      if (partials_random) {
        const double factor = a_.u_part / rest_;
        variance_[c] += factor * factor * partition[c] / 3;
      }
    }
  }

  void Bound(size_t c, ChannelBound* bound) const {
    if (!(bound->bound < kInfinity)) return;
    const ChannelSums& sums = q_.sums[c];
    const bool rotates = q_.row.head->v.basis.Rotates();
    std::array<double, kBoundTerms> terms{};
    terms[kScoreTerm] = scores_[c];
    terms[kNoiseTerm] = NoiseFactor() * std::sqrt(variance_[c]) * (1 + g_);
    terms[kCodecTerm] = bound->terms[kCodecTerm];
    terms[kUnderflowTerm] = bound->terms[kUnderflowTerm];
    // Of sums in the basis of V, and back out of it, nothing is taken for random.
    terms[kSumTerm] = rotates ? bound->terms[kSumTerm] + slack_[c] : slack_[c] * (1 + g_);
    if (rotates) terms[kNormaliseTerm] = bound->terms[kNormaliseTerm];
    double f = terms[kScoreTerm] + terms[kNoiseTerm] + terms[kCodecTerm] + terms[kSumTerm];
    terms[kDenominatorTerm] = DenominatorError(a_, w_) * (std::fabs(sums.o) + f);
    f += terms[kDenominatorTerm] + terms[kUnderflowTerm] + terms[kNormaliseTerm];
    terms[kOutputTerm] = OutputRounding(q_.out, a_.u_o, std::fabs(sums.o) + f) + a_.eta_o;
    const double limit = (f + terms[kOutputTerm]) * kEvaluation;
    if (!(limit < bound->bound)) return;
    bound->bound = limit;
    bound->before_output = f;
    bound->terms = terms;
  }

  const NoiseQuestion& q_;
  const Arithmetic& a_;
  const KeyWeights& w_;
  const size_t channels_;
  const double rest_;
  const bool is_nearest_;  // of every rounding outside the sums
  double g_ = 0;           // roundings of P.V at their worst, for terms of second order
  std::vector<uint32_t> order_;
  std::vector<double> variance_, slack_, scores_;
};

}  // namespace

double NoiseFactor() {
  static const double factor = std::sqrt(2 * std::log(2 / kNoiseFalseAlarm));
  return factor;
}

void BoundByNoise(const NoiseQuestion& question, std::vector<ChannelBound>* bounds) {
  if (question.p.empty()) return;
  Model(question).Apply(bounds);
}

}  // namespace kvcheck
