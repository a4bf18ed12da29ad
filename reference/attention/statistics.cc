#include "reference/attention/statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>

#include "reference/attention/evaluate.h"
#include "reference/attention/evaluate_kernels.h"
#include "reference/attention/sum_noise.h"
#include "reference/data/generator.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

enum Direction {
  kScaleError,
  kFirstMissing,
  kLastMissing,
  kHeaviestMissing,
  kNextVisible,
  kLastValuesSwapped,
  kOtherHead,
  kPreviousVisible,
  kRowFactor,
  kTruncated,
  kSinkIgnored,
  kNextSink,
  kDirections
};

constexpr std::array<FaultDirection, kDirections> kFaults = {{
    {"scale", "the scores are scaled by 1 + coefficient: a wrong scale, head_dim or temperature"},
    {"first key missing", "the first visible key is left out: window, padding or sink off by one"},
    {"last key missing", "the last visible key is left out: causal mask or length off by one"},
    {"heaviest key missing", "the key with the largest weight is left out"},
    {"next key visible", "the key after the last visible one takes part: future or padding leaks"},
    {"last values swapped", "the V rows of the last two keys are exchanged"},
    {"other key/value head",
     "another key/value head is read: h mod Hkv in place of h / (Hq / Hkv), or the next one"},
    {"one older key visible",
     "the key before the first visible one takes part: a window of one key too many, or padding "
     "leaks"},
    {"row factor",
     "each row is off by a factor of its own: a denominator in a low type, sinks, keys "
     "of zeros"},
    {"output truncated", "the output is cut toward zero, not rounded to nearest"},
    {"sink left out", "the sink is left out"},
    {"sink of the next head", "the sink of the next head is read"},
}};

// An effect of fewer of its channel's size is not told from a difference of equal numbers in
// double.
constexpr double kCancelled = 0x1p-45;
// Least sum of squares of an effect in units of its noise.
constexpr double kLeastSize = 1e-60;

// Below it a weight tells nothing of its row.
constexpr double kNoWeightLeft = 0x1p-60;

// Outputs that differ by less, relative to their size, have one phase to their rounding.
constexpr double kSameOutput = 0x1p-16;

// Products with all directions at once need a fixed number of lanes.
constexpr size_t kLanes = kProjectLanes;
static_assert(kDirections <= kLanes);
static_assert(kScaleDirection == kScaleError && kRowFactorDirection == kRowFactor);

// Score of a key that is not visible, without a bias, for the directions of leaks.
double ScoreOf(const RowContext& context, int64_t key) {
  const HeadData& head = *context.head;
  const double* k = &head.k.hi[static_cast<size_t>(key * head.k.dim)];
  double dot = 0;
  for (size_t i = 0; i < context.q.size(); ++i) dot += context.q[i] * k[i];
  const double x = dot * context.c->scale;
  const double cap = context.c->softcap.value_or(0);
  return cap > 0 ? cap * std::tanh(x / cap) : x;
}

// What makes a row's output the same multiple of itself in every channel, and what cuts it.
void AddFactors(const RowContext& context, const RowReference& row, std::vector<double>* effects) {
  const size_t dv = row.channels.size();
  const Arithmetic& a = *context.arithmetic;
  const auto scaled = [&](Direction direction, double factor) {
    if (!std::isfinite(factor)) return;
    for (size_t c = 0; c < dv; ++c) {
      (*effects)[direction * dv + c] = factor * row.channels[c].value;
    }
  };
  // The deviation of one rounding to bf16, which is uniform.
  scaled(kRowFactor, UnitRoundoff(DType::kBFloat16) / std::sqrt(3.0));
  if (context.SeesSink()) {
    const double share = row.sink_p;
    scaled(kSinkIgnored, share / (1 - share));
    const double other = std::exp(context.next_sink - context.sink) * share;
    if (other != share) scaled(kNextSink, (share - other) / (1 - share + other));
  }
  if (!(a.u_o > 0) || a.plan.op->toward_zero) return;
  for (size_t c = 0; c < dv; ++c) {
    const double o = row.channels[c].value;
    (*effects)[kTruncated * dv + c] =
        std::copysign(0.5 * SpacingAt(context.c->out, std::fabs(o)), -o);
  }
}

// effect[direction * dv + c]
std::vector<double> Effects(const RowContext& context, const RowQuestion& question,
                            const RowReference& row, std::span<const double> of_other_head) {
  const HeadData& head = *context.head;
  const auto dv = static_cast<size_t>(head.v.dim);
  const size_t n = question.keys.size();
  std::vector<double> effects(kDirections * dv, 0);
  const auto v_of = [&](int64_t key) { return &head.v.hi[static_cast<size_t>(key) * dv]; };
  const auto o = [&](size_t c) { return row.channels[c].value; };

  std::vector<double> weights(n);
  double total = 0;
  for (size_t j = 0; j < n; ++j) {
    weights[j] = row.p[j] * (row.s[j] - row.max);
    total += weights[j];
  }
  std::vector<double> sums;
  WeightedSum(question, weights, &sums);
  for (size_t c = 0; c < dv; ++c) effects[kScaleError * dv + c] = sums[c] - total * o(c);

  const auto missing = [&](Direction direction, size_t j) {
    const double rest = 1 - row.p[j];
    if (!(rest > 0)) return;
    const double* v = v_of(question.keys[j]);
    for (size_t c = 0; c < dv; ++c) {
      effects[direction * dv + c] = -row.p[j] * (v[c] - o(c)) / rest;
    }
  };
  missing(kFirstMissing, 0);
  missing(kLastMissing, n - 1);
  missing(kHeaviestMissing,
          static_cast<size_t>(std::max_element(row.p.begin(), row.p.end()) - row.p.begin()));
  const auto leaked = [&](Direction direction, int64_t key) {
    const double weight = std::exp(ScoreOf(context, key) - row.max) / row.denominator;
    const double share = std::isfinite(weight) ? weight / (1 + weight) : 1;
    const double* v = v_of(key);
    for (size_t c = 0; c < dv; ++c) {
      const double effect = share * (v[c] - o(c));
      effects[direction * dv + c] = std::isfinite(effect) ? effect : 0;
    }
  };
  if (question.keys.back() + 1 < head.kv_len) leaked(kNextVisible, question.keys.back() + 1);
  if (question.keys.front() > 0) leaked(kPreviousVisible, question.keys.front() - 1);
  if (n > 1) {
    const double* a = v_of(question.keys[n - 2]);
    const double* b = v_of(question.keys[n - 1]);
    const double gap = row.p[n - 2] - row.p[n - 1];
    for (size_t c = 0; c < dv; ++c) effects[kLastValuesSwapped * dv + c] = gap * (b[c] - a[c]);
  }
  const bool is_other_finite = std::all_of(of_other_head.begin(), of_other_head.end(),
                                           [](double value) { return std::isfinite(value); });
  for (size_t c = 0; is_other_finite && c < of_other_head.size(); ++c) {
    effects[kOtherHead * dv + c] = of_other_head[c] - o(c);
  }
  AddFactors(context, row, &effects);
  return effects;
}

double NormalDensity(double z) { return std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi); }
double NormalDistribution(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

struct Moments {
  double mean = 0;
  double variance = 0;
  double passed = 1;  // share of what o is off by that the rounded result is off by
};

// Of what the output's rounding adds to a result o that is off by a random number of this
// deviation. A deviation of a spacing leaves a uniform error. Below, the rounding of o is hardly
// random: it is the same where o comes again, and takes back what o is off by. So the error is
// `passed` times that number, the regression on it, and a rest that does not correlate with it.
Moments OfOutputRounding(DType out, double o, double deviation) {
  const double spacing = SpacingAt(out, std::fabs(o));
  if (!(deviation < spacing)) return {0, spacing * spacing / 12, 1};
  const double nearest = std::nearbyint(o / spacing) * spacing;
  if (deviation == 0) return {nearest - o, 0, 0};
  const auto reach = static_cast<int>(std::ceil(8 * deviation / spacing)) + 1;
  double mean = 0, square = 0, below = 0, of_nearest = 0, passed = 0;
  for (int k = -reach; k <= reach; ++k) {
    const double value = nearest + k * spacing;
    const double to_tie = (value + spacing / 2 - o) / deviation;
    const double up_to = k == reach ? 1 : NormalDistribution(to_tie);
    passed += spacing / deviation * NormalDensity(to_tie);
    const double error = value - o;
    mean += (up_to - below) * error;
    square += (up_to - below) * error * error;
    if (k == 0) of_nearest = up_to - below;
    below = up_to;
  }
  // What happens seldom is no sub-Gaussian number of its variance: that of a Bernoulli variable has
  // this proxy (Kearns and Saul 1998).
  const double rare = 1 - of_nearest;
  double proxy = square - mean * mean;
  if (rare > kNoiseFalseAlarm && rare < 0.5) {
    proxy = std::max(proxy, spacing * spacing * (1 - 2 * rare) / (2 * std::log(1 / rare - 1)));
  }
  const double through = passed * deviation;
  return {mean, std::max(0.0, proxy - through * through), passed};
}

// Rows with the same weights round P alike, whatever their V; equal denominators tell them. Rows in
// which most weights round alike may do so with the phase of any other such row: weights that are
// nearly 1 all become 1.
uint64_t IdentityOf(const RowReference& row) {
  if (row.noise->largest_cell > 0.5) return 0;
  return SplitMixBits(std::bit_cast<uint32_t>(static_cast<float>(row.denominator)) + row.p.size());
}

// Weights within half a spacing of P of each other round nearly alike. Of a row's weights these few
// tell: those of rows that have nothing in common are not alike in all of them.
RowLikeness LikenessOf(const RowReference& row) {
  RowLikeness likeness;
  const size_t n = row.p.size();
  likeness[0] = static_cast<double>(n);
  for (size_t i = 1; i < likeness.size(); ++i) {
    const double p = row.p[(n - 1) * (i - 1) / (likeness.size() - 2)];
    likeness[i] = std::log(std::max(p, kNoWeightLeft));
  }
  return likeness;
}

// Everything about one row that its directions share.
class RowStatistics {
 public:
  RowStatistics(const RowContext& context, const OwnedQuestion& owned, const RowReference& row)
      : a_(*context.arithmetic),
        out_(context.c->out),
        coarse_(a_.u_through > 0 ? a_.through : out_),
        rounds_(a_.u_through > 0 || a_.u_o > 0),
        question_(owned.question),
        row_(row),
        noise_(*row.noise),
        sums_(context, owned.question, row),
        basis_(context, owned.question, row),
        rotates_(context.head->v.basis.Rotates()),
        sums_alike_(ChannelsAreAlike(owned.question, row, context.arithmetic->u_pv)) {}

  void Fill(const std::vector<double>& effects, size_t r, TileStatistics* statistics) {
    const size_t dv = row_.channels.size();
    SetFixed();
    SetVariances();
    SetRounding();
    if (LeaveOutOverflows() == dv) return;
    std::vector<double> w(dv * kLanes, 0);
    for (size_t d = 0; d < kDirections; ++d) {
      double size = 0;
      for (size_t c = 0; c < dv; ++c) {
        if (!(sigma_squared_[c] > 0)) continue;
        w[c * kLanes + d] = effects[d * dv + c] / sigma_squared_[c];
        size += w[c * kLanes + d] * effects[d * dv + c];
      }
      // Beside such noise the fault is nothing, or the noise is; a double holds no square of that.
      if (size > kLeastSize && size < 1 / kLeastSize) continue;
      for (size_t c = 0; c < dv; ++c) {
        w[c * kLanes + d] = 0;
        statistics->effect[d][r * dv + c] = 0;
      }
    }
    for (size_t c = 0; c < dv; ++c) {
      // A row that is off by anything has no statistics, nor has one whose errors are no double in
      // units of its noise.
      if (left_out_[c] != 0) continue;
      if (!std::isfinite(sigma_squared_[c]) ||
          !(fixed_[c] * fixed_[c] * kLeastSize < sigma_squared_[c] || fixed_[c] == 0)) {
        return;
      }
    }
    std::copy(sigma_squared_.begin(), sigma_squared_.end(),
              statistics->sigma_squared.begin() + static_cast<std::ptrdiff_t>(r * dv));
    for (size_t c = 0; c < dv; ++c) {
      if (sigma_squared_[c] > 0) {
        statistics->slack_squared[r] += fixed_[c] * fixed_[c] / sigma_squared_[c];
      }
    }
    passed_ = w;
    for (size_t c = 0; c < dv; ++c) {
      for (size_t d = 0; d < kLanes; ++d) passed_[c * kLanes + d] *= rounding_[c].passed;
    }
    Project(question_, passed_, &projected_);
    AddDirections(w, r, statistics);
    statistics->taken[r] = 1;
    statistics->identity[r] = IdentityOf(row_);
    statistics->likeness[r] = LikenessOf(row_);
    statistics->like_within = a_.u_p;
  }

 private:
  static bool ChannelsAreAlike(const RowQuestion& question, const RowReference& row, double u) {
    std::vector<double> masses;
    for (const ChannelReference& channel : row.channels) masses.push_back(channel.mass);
    return AreAlike(masses, question.keys.size(), u);
  }

  // Of each channel, before and after its output is rounded.
  void SetVariances() {
    const size_t dv = row_.channels.size();
    const std::vector<double> of_coordinates =
        rotates_ ? sums_.OfChannels() : std::vector<double>();
    own_.resize(dv);
    sigma_squared_.resize(dv);
    for (size_t c = 0; c < dv; ++c) {
      own_[c] = noise_.of_sums[c] + (rotates_ ? of_coordinates[c] : 0);
      const double half = 0.5 * SpacingOfOutput(c);
      sigma_squared_[c] = noise_.of_p[c] + own_[c] + half * half / 3;
    }
  }

  // Largest spacing in which the output may be rounded: errors may take it to another binade.
  double SpacingOfOutput(size_t c) const {
    if (!rounds_) return 0;
    const double reach = fixed_[c] + NoiseFactor() * std::sqrt(noise_.of_p[c] + own_[c]);
    return SpacingAt(coarse_, std::fabs(row_.channels[c].value) + reach);
  }

  // Channels whose output may leave the type that it passes through: those have no noise, and
  // nothing is asked of them. How many there are.
  size_t LeaveOutOverflows() {
    const size_t dv = row_.channels.size();
    left_out_.assign(dv, 0);
    if (a_.u_through == 0) return 0;
    size_t count = 0;
    for (size_t c = 0; c < dv; ++c) {
      const double most = std::fabs(row_.channels[c].value) + fixed_[c];
      if (most < FloatTypeOf(coarse_).largest_finite) continue;
      left_out_[c] = 1;
      sigma_squared_[c] = 0;
      rounding_[c] = {};
      ++count;
    }
    return count;
  }

  // What is not random of each channel before its output is rounded.
  void SetFixed() {
    const size_t dv = row_.channels.size();
    fixed_.resize(dv);
    for (size_t c = 0; c < dv; ++c) {
      const ChannelReference& channel = row_.channels[c];
      double spread = noise_.scores[c] + noise_.slack[c] + noise_.truncation[c];
      spread += rotates_ ? basis_.OfChannels()[c] : channel.terms[kCodecTerm];
      spread *= 1 + noise_.second_order;
      fixed_[c] = spread + noise_.denominator_error * (std::fabs(channel.value) + spread) +
                  channel.terms[kUnderflowTerm] + channel.reference_bound;
    }
  }

  // The rounding of the output. Where nothing is random, what is not is the measure of an error.
  void SetRounding() {
    const size_t dv = row_.channels.size();
    rounding_.resize(dv);
    shifted_.assign(dv, 0);
    for (size_t c = 0; c < dv; ++c) {
      const ChannelReference& channel = row_.channels[c];
      if (sigma_squared_[c] == 0) sigma_squared_[c] = fixed_[c] * fixed_[c];
      if (!rounds_) continue;
      if (a_.plan.op->toward_zero) {
        // Goes one way.
        fixed_[c] += OutputRoundings(a_, out_, std::fabs(channel.value) + fixed_[c]);
        one_way_ = true;
        continue;
      }
      fixed_[c] += SecondRounding(c);
      const double deviation = std::sqrt(noise_.of_p[c] + own_[c]);
      const double spacing = SpacingOfOutput(c);
      if (!(deviation < spacing)) {
        rounding_[c] = {0, spacing * spacing / 12, 1};
        continue;
      }
      if (!(fixed_[c] < spacing)) {
        // What is not random takes the output from one number to others, whatever the phases are.
        rounding_[c] = {0, spacing * spacing / 12, 1};
        shifted_[c] = MostOfRounding(channel.value, deviation, spacing, fixed_[c]) * spacing;
        fixed_[c] += shifted_[c];
        continue;
      }
      rounding_[c] = OfOutputRounding(coarse_, channel.value, deviation);
      shifted_[c] = ShiftOfRounding(channel.value, deviation, spacing, fixed_[c]);
      fixed_[c] += shifted_[c];
    }
  }

  // To the type of the output, of a value that was rounded to another one before.
  double SecondRounding(size_t c) const {
    if (a_.u_through == 0) return 0;
    const double size = std::fabs(row_.channels[c].value) + fixed_[c];
    return OutputRounding(out_, a_.u_o, size * (1 + a_.u_through) + a_.eta_through) + a_.eta_o;
  }

  // Most that the mean of the output's rounding moves by, if o is off by as much as `fixed` before:
  // near a tie what is not random decides for the one or the other neighbour.
  double ShiftOfRounding(double o, double deviation, double spacing, double fixed) const {
    const double reach = fixed + NoiseFactor() * deviation;
    if (reach < WayToTie(o, spacing) &&
        reach < WayToTie(o, SpacingAt(coarse_, std::max(0.0, std::fabs(o) - reach)))) {
      return 0;
    }
    // The density of a normal variable is below 0.4 / deviation.
    double slope = std::max(1.0, 0.4 * spacing / deviation);
    const double most = 2 * MostOfRounding(o, deviation, spacing, fixed);
    if (most < 1) slope = std::min(slope, std::numbers::pi * most);
    return std::min(most * spacing, fixed * slope);
  }

  // Most of |E RN(x + xi) - x|, in spacings, for a normal xi: the sizes of the terms of its Fourier
  // series. 2 pi times as much is no less than the sizes of its derivative's, unless it is 0.5, the
  // most of any xi. Across the end of a binade there is no one spacing.
  double MostOfRounding(double o, double deviation, double spacing, double fixed) const {
    const double reach = fixed + NoiseFactor() * deviation;
    if (SpacingAt(coarse_, std::max(0.0, std::fabs(o) - reach)) != spacing) return 0.5;
    const double share = deviation / spacing;
    const double first = std::exp(-2 * std::numbers::pi * std::numbers::pi * share * share);
    // Terms k fall faster than first^k.
    return first < 0.5 ? std::min(0.5, first / (1 - first) / std::numbers::pi) : 0.5;
  }

  static double WayToTie(double o, double spacing) {
    return spacing / 2 - std::fabs(std::nearbyint(o / spacing) * spacing - o);
  }

  // Rests of the output's roundings are independent from channel to channel if each is another
  // function of what the channels are off by: not where one key or two make that number, or where
  // outputs repeat.
  bool RoundingsAreAlike() const {
    double largest = 0, total = 0;
    for (const double amplitude : noise_.amplitude) {
      largest = std::max(largest, amplitude * amplitude);
      total += amplitude * amplitude;
    }
    if (4 * largest > total) return true;
    std::vector<double> sizes;
    for (const ChannelReference& channel : row_.channels) {
      sizes.push_back(std::fabs(channel.value));
    }
    std::sort(sizes.begin(), sizes.end());
    const auto distinct = std::unique(sizes.begin(), sizes.end(),
                                      [](double a, double b) { return b - a <= b * kSameOutput; });
    return 4 * (distinct - sizes.begin()) < std::ssize(sizes);
  }

  void AddDirections(const std::vector<double>& w, size_t r, TileStatistics* statistics) {
    const size_t n = row_.p.size();
    const size_t dv = row_.channels.size();
    std::vector<double> centre(kLanes, 0);
    for (size_t c = 0; c < dv; ++c) {
      for (size_t d = 0; d < kLanes; ++d) {
        centre[d] += passed_[c * kLanes + d] * row_.channels[c].value;
      }
    }
    const std::vector<double> of_p =
        a_.u_p > 0 ? NoiseAlong(a_, noise_, projected_, centre) : std::vector<double>(kLanes, 0);
    // Scores and what is biased of P, key by key.
    std::array<double, kLanes> slack{};
    double lost = row_.sink_error;
    for (size_t d = 0; d < kLanes; ++d) slack[d] = row_.sink_error * std::fabs(centre[d]);
    for (size_t j = 0; j < n; ++j) {
      lost += row_.weight_error[j];
      for (size_t d = 0; d < kLanes; ++d) {
        slack[d] += row_.weight_error[j] * std::fabs(projected_[j * kLanes + d] - centre[d]);
      }
    }
    const double rest = std::max(1 - lost, 0x1p-53);
    const bool roundings_are_alike = RoundingsAreAlike();
    std::vector<double> rounding_variance;
    for (const Moments& moments : rounding_) rounding_variance.push_back(moments.variance);
    for (size_t d = 0; d < kDirections; ++d) {
      double variance = of_p[d];
      double fixed = slack[d] / rest + noise_.denominator_error * std::fabs(centre[d]);
      const std::vector<double> of = DirectionOf(passed_, d);
      variance += VarianceAlong(of, noise_.of_sums, sums_alike_);
      variance +=
          VarianceAlong(DirectionOf(w, d), rounding_variance, sums_alike_ || roundings_are_alike);
      double mean = 0, up = 0, down = 0;
      for (size_t c = 0; c < dv; ++c) {
        const double weight = w[c * kLanes + d];
        if (weight == 0) continue;
        mean += weight * rounding_[c].mean;
        const ChannelReference& channel = row_.channels[c];
        // The final division rounds channel by channel, the denominator's error is common to all.
        double own = noise_.slack[c] + shifted_[c] + channel.terms[kUnderflowTerm] +
                     channel.reference_bound +
                     Gamma(a_.c_d, a_.u_a) * (std::fabs(channel.value) + fixed_[c]);
        if (!rotates_) own += channel.terms[kCodecTerm];
        own += one_way_ ? OutputRoundings(a_, out_, std::fabs(channel.value) + fixed_[c])
                        : SecondRounding(c);
        if (noise_.drift_up.empty()) {
          own += noise_.truncation[c];
        } else {
          // Its mean has a sign; the rest is as random as a rounding to nearest of that size.
          up += of[c] * noise_.drift_up[c];
          down += of[c] * noise_.drift_down[c];
          const double rest_of = of[c] * noise_.truncation[c];
          variance += rest_of * rest_of / (3 * noise_.truncations);
        }
        fixed += std::fabs(weight) * own;
      }
      fixed += std::max(std::fabs(up), std::fabs(down));
      if (rotates_) {
        variance += sums_.Along(of);
        fixed += basis_.Along(of);
      }
      statistics->variance[d][r] = variance;
      statistics->mean[d][r] = mean;
      statistics->slack[d][r] = fixed;
    }
  }

  const Arithmetic& a_;
  const DType out_;
  const DType coarse_;  // to which outputs are rounded first
  const bool rounds_;
  const RowQuestion& question_;
  const RowReference& row_;
  const RowNoise& noise_;
  const SumNoise sums_;
  const BasisSlack basis_;
  const bool rotates_;
  const bool sums_alike_;
  bool one_way_ = false;  // the output is cut toward zero
  std::vector<double> own_, sigma_squared_, fixed_, shifted_, projected_;
  std::vector<double> passed_;  // weights, times what the output's rounding lets pass
  std::vector<Moments> rounding_;
  std::vector<uint8_t> left_out_;  // per channel
};

}  // namespace

std::span<const FaultDirection> FaultDirections() { return kFaults; }

std::optional<int64_t> OtherKvHead(const AttentionCase& c, int64_t query_head) {
  if (c.kv_heads == 1) return std::nullopt;
  const int64_t own = query_head / (c.query_heads / c.kv_heads);
  const int64_t tiled = query_head % c.kv_heads;
  return tiled != own ? tiled : (own + 1) % c.kv_heads;
}

std::vector<double> OutputOverHead(const AttentionCase& c, const Profile& profile,
                                   const TensorMap& inputs, int64_t batch, int64_t kv_head,
                                   const RowQuestion& row) {
  constexpr int64_t kKeys = 256;
  RowQuestion part = row;
  part.has_sink = false;
  double max = row.has_sink ? row.sink : -std::numeric_limits<double>::infinity();
  double denominator = row.has_sink ? 1 : 0;
  std::vector<double> sum(static_cast<size_t>(c.v_dim), 0);
  std::vector<int32_t> keys;
  for (size_t begin = 0, end = 0; begin < row.keys.size(); begin = end) {
    const int64_t first = row.keys[begin] / kKeys * kKeys;
    keys.clear();
    for (; end < row.keys.size() && row.keys[end] < first + kKeys; ++end) {
      keys.push_back(row.keys[end] - static_cast<int32_t>(first));
    }
    const HeadData head =
        LoadKeys(c, profile, inputs, batch, kv_head, first, std::min(kKeys, c.kv_len - first));
    part.head = &head;
    part.keys = keys;
    if (!row.bias.empty()) part.bias = row.bias.subspan(begin, end - begin);
    if (!row.forced_score.empty()) part.forced_score = row.forced_score.subspan(begin, end - begin);
    const RowAnswer<double> answer = Evaluate<double>(part);
    if (answer.max == -std::numeric_limits<double>::infinity()) continue;
    const double highest = std::max(max, answer.max);
    const double of_sum = denominator > 0 ? std::exp(max - highest) : 0;
    const double of_part = std::exp(answer.max - highest) * answer.denominator;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] * of_sum + answer.o[i] * of_part;
    denominator = denominator * of_sum + of_part;
    max = highest;
  }
  for (double& value : sum) value /= denominator;
  return sum;
}

TileStatistics EmptyStatistics(size_t rows, size_t channels) {
  TileStatistics statistics;
  statistics.sigma_squared.assign(rows * channels, 0);
  statistics.effect.assign(kDirections, std::vector<double>(rows * channels, 0));
  statistics.variance.assign(kDirections, std::vector<double>(rows, 0));
  statistics.mean.assign(kDirections, std::vector<double>(rows, 0));
  statistics.taken.assign(rows, 0);
  statistics.identity.assign(rows, 0);
  statistics.likeness.assign(rows, {});
  statistics.slack.assign(kDirections, std::vector<double>(rows, 0));
  statistics.slack_squared.assign(rows, 0);
  statistics.gram_norm.assign(rows, static_cast<double>(channels));
  return statistics;
}

void AddRowStatistics(const RowContext& context, const OwnedQuestion& owned,
                      const RowReference& row, std::span<const double> of_other_head, size_t r,
                      TileStatistics* statistics) {
  const auto dv = static_cast<size_t>(context.head->v.dim);
  std::vector<double> effects = Effects(context, owned.question, row, of_other_head);
  bool undefined = false;
  for (size_t c = 0; c < dv; ++c) {
    if (!row.channels[c].undefined) continue;
    undefined = true;
    for (size_t d = 0; d < kDirections; ++d) effects[d * dv + c] = 0;
  }
  for (size_t d = 0; d < kDirections; ++d) {
    double* effect = &effects[d * dv];
    // A difference that cancels leaves what double rounds, and a fault beyond all scales no number.
    bool is_there = false;
    for (size_t c = 0; c < dv; ++c) {
      is_there = is_there || std::fabs(effect[c]) > kCancelled * row.channels[c].mass;
    }
    if (!is_there) std::fill_n(effect, dv, 0);
    std::copy_n(effect, dv, statistics->effect[d].begin() + static_cast<std::ptrdiff_t>(r * dv));
  }
  // The row does not take part; its effects still serve as hints.
  if (undefined || !row.noise) return;
  RowStatistics(context, owned, row).Fill(effects, r, statistics);
}

}  // namespace kvcheck
