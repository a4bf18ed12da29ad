#include "reference/attention/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "reference/attention/evaluate.h"
#include "reference/attention/evaluate_kernels.h"
#include "reference/attention/sum_noise.h"
#include "reference/data/generator.h"
#include "reference/numerics/convert.h"
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
}};

// Products with all directions at once need a fixed number of lanes.
constexpr size_t kLanes = kProjectLanes;
static_assert(kDirections <= kLanes);
static_assert(kScaleDirection == kScaleError);

// weights, in place, as P stores them.
void RoundP(DType type, double scale, std::span<double> weights) {
  for (double& weight : weights) weight *= scale;
  RoundAll(weights, type);
  for (double& weight : weights) weight /= scale;
}

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

// effect[direction * dv + c]
std::vector<double> Effects(const RowContext& context, const RowQuestion& question,
                            const RowReference& row, const HeadData* other_head) {
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
  if (other_head != nullptr) {
    RowQuestion other = question;
    other.head = other_head;
    const std::vector<double> faulty = Evaluate<double>(other).o;
    const bool finite = std::all_of(faulty.begin(), faulty.end(),
                                    [](double value) { return std::isfinite(value); });
    for (size_t c = 0; finite && c < dv; ++c) effects[kOtherHead * dv + c] = faulty[c] - o(c);
  }
  return effects;
}

// Keys whose weights round to the same P: their errors are equal in phase and add up coherently.
std::vector<size_t> Cells(const std::vector<double>& rounded, std::vector<size_t>* order) {
  order->resize(rounded.size());
  std::iota(order->begin(), order->end(), size_t{0});
  std::sort(order->begin(), order->end(),
            [&](size_t a, size_t b) { return rounded[a] < rounded[b]; });
  std::vector<size_t> begins;
  for (size_t i = 0; i < order->size(); ++i) {
    if (i == 0 || rounded[(*order)[i]] != rounded[(*order)[i - 1]]) begins.push_back(i);
  }
  begins.push_back(order->size());
  return begins;
}

// Errors of scores, exp, denominator and normalisation are not random, nor is what underflows: they
// count at their largest, key by key or channel by channel, along each direction.
void AddSlack(const RowReference& row, const std::vector<double>& projected,
              const std::vector<double>& w, const BasisSlack& basis, const double* sigma_squared,
              size_t r, TileStatistics* statistics) {
  const size_t n = row.p.size();
  const size_t dv = row.channels.size();
  std::array<double, kLanes> center{};
  for (size_t c = 0; c < dv; ++c) {
    for (size_t d = 0; d < kLanes; ++d) center[d] += w[c * kLanes + d] * row.channels[c].value;
  }
  std::array<double, kLanes> slack{};
  double t = row.sink_error;
  for (size_t d = 0; d < kLanes; ++d) slack[d] = row.sink_error * std::fabs(center[d]);
  for (size_t j = 0; j < n; ++j) {
    t += row.weight_error[j];
    for (size_t d = 0; d < kLanes; ++d) {
      slack[d] += row.weight_error[j] * std::fabs(projected[j * kLanes + d] - center[d]);
    }
  }
  const double rest = std::max(1 - t, 0x1p-53);
  for (size_t d = 0; d < kDirections; ++d) {
    statistics->slack[d][r] =
        slack[d] / rest + row.denominator_error * std::fabs(center[d]) + basis.along[d];
    for (size_t c = 0; c < dv; ++c) {
      const double lost = row.channels[c].terms[kUnderflowTerm];
      if (w[c * kLanes + d] != 0) statistics->slack[d][r] += std::fabs(w[c * kLanes + d]) * lost;
    }
  }
  for (size_t c = 0; c < dv; ++c) {
    const ChannelReference& channel = row.channels[c];
    const double error = channel.terms[kScoreTerm] + channel.terms[kDenominatorTerm] +
                         channel.terms[kNormaliseTerm] + channel.terms[kUnderflowTerm] +
                         channel.reference_bound + basis.of_channel[c];
    if (sigma_squared[c] > 0) statistics->slack_squared[r] += error * error / sigma_squared[c];
  }
}

}  // namespace

std::span<const FaultDirection> FaultDirections() { return kFaults; }

bool StatisticsApply(const Arithmetic& a, const AttentionCase& c) {
  const Plan& plan = a.plan;
  const bool truncates = plan.op->toward_zero || plan.qk->accumulator.toward_zero ||
                         plan.pv->accumulator.toward_zero || plan.l->accumulator.toward_zero;
  return a.u_q == 0 && a.u_s == 0 && a.u_part == 0 && !truncates && !a.Detail().parts &&
         !c.against_original;
}

std::optional<int64_t> OtherKvHead(const AttentionCase& c, int64_t query_head) {
  if (c.kv_heads == 1) return std::nullopt;
  const int64_t own = query_head / (c.query_heads / c.kv_heads);
  const int64_t tiled = query_head % c.kv_heads;
  return tiled != own ? tiled : (own + 1) % c.kv_heads;
}

TileStatistics EmptyStatistics(size_t rows, size_t channels) {
  TileStatistics statistics;
  statistics.sigma_squared.assign(rows * channels, 0);
  statistics.effect.assign(kDirections, std::vector<double>(rows * channels, 0));
  statistics.variance.assign(kDirections, std::vector<double>(rows, 0));
  statistics.replicate_z.assign(kDirections, std::vector<double>(rows * kReplicates, 0));
  statistics.slack.assign(kDirections, std::vector<double>(rows, 0));
  statistics.slack_squared.assign(rows, 0);
  statistics.gram_norm.assign(rows, static_cast<double>(channels));
  return statistics;
}

void AddRowStatistics(const RowContext& context, const OwnedQuestion& owned,
                      const RowReference& row, const HeadData* other_head, int64_t row_index,
                      size_t r, TileStatistics* statistics) {
  const Arithmetic& a = *context.arithmetic;
  const RowQuestion& question = owned.question;
  const HeadData& head = *context.head;
  const auto dv = static_cast<size_t>(head.v.dim);
  const size_t n = question.keys.size();
  std::vector<double> effects = Effects(context, question, row, other_head);
  bool undefined = false;
  for (size_t c = 0; c < dv; ++c) {
    if (!row.channels[c].undefined) continue;
    undefined = true;
    for (size_t d = 0; d < kDirections; ++d) effects[d * dv + c] = 0;
  }
  for (size_t d = 0; d < kDirections; ++d) {
    std::copy_n(effects.begin() + static_cast<std::ptrdiff_t>(d * dv), dv,
                statistics->effect[d].begin() + static_cast<std::ptrdiff_t>(r * dv));
  }
  // sigma^2 stays 0, which keeps the row out of the statistics; the effects still serve as hints.
  if (undefined || !StatisticsApply(a, *context.c)) return;

  // Noise level: P's rounding, the output's rounding, the sums.
  std::vector<double> squares(n);
  for (size_t j = 0; j < n; ++j) squares[j] = row.p[j] * row.p[j];
  std::vector<double> p_noise(dv, 0);
  if (a.u_p > 0) {
    for (size_t j = 0; j < n; ++j) {
      const double* v = &head.v.hi[static_cast<size_t>(question.keys[j]) * dv];
      for (size_t c = 0; c < dv; ++c) p_noise[c] += squares[j] * v[c] * v[c];
    }
  }
  const SumNoise sums(context, question, row);
  const std::vector<double> of_sums = sums.OfChannels();
  std::vector<double> of_output(dv);
  double* sigma = &statistics->sigma_squared[r * dv];
  for (size_t c = 0; c < dv; ++c) {
    const double half =
        a.u_o > 0 ? 0.5 * SpacingAt(context.c->out, std::fabs(row.channels[c].value)) : 0;
    of_output[c] = half * half / 3;
    sigma[c] = a.u_p * a.u_p / 3 * p_noise[c] + of_output[c] + of_sums[c];
  }

  // w[c][direction]
  std::vector<double> w(dv * kLanes, 0);
  for (size_t d = 0; d < kDirections; ++d) {
    for (size_t c = 0; c < dv; ++c) {
      if (sigma[c] > 0) w[c * kLanes + d] = effects[d * dv + c] / sigma[c];
    }
  }
  for (size_t d = 0; d < kDirections; ++d) {
    double variance = sums.Along(DirectionOf(w, d));
    for (size_t c = 0; c < dv; ++c) {
      const double weight = w[c * kLanes + d];
      variance += weight * weight * of_output[c];
    }
    statistics->variance[d][r] = variance;
  }

  // projected[j][direction] = sum_c w_c v_jc
  std::vector<double> projected;
  Project(question, w, &projected);
  AddSlack(row, projected, w, SlackOfBasis(context, question, row, w), sigma, r, statistics);
  if (a.u_p == 0 && a.u_o == 0) return;

  const DType p_type = *a.plan.p;
  const double p_scale = *a.plan.p_scale;
  const std::vector<double>& weight_of = a.p_normalised ? row.p : row.e;
  if (a.u_p > 0) {
    // Coherent sums over cells.
    std::vector<double> rounded = weight_of;
    RoundP(p_type, p_scale, rounded);
    std::vector<size_t> order;
    const std::vector<size_t> cells = Cells(rounded, &order);
    for (size_t d = 0; d < kDirections; ++d) {
      double variance = 0;
      for (size_t cell = 0; cell + 1 < cells.size(); ++cell) {
        double sum = 0;
        for (size_t i = cells[cell]; i < cells[cell + 1]; ++i) {
          const size_t j = order[i];
          sum += row.p[j] * a.u_p * std::fabs(projected[j * kLanes + d]);
        }
        variance += sum * sum / 3;
      }
      statistics->variance[d][r] += variance;
    }
  }

  // Replicates: the same rounding at shifted phases.
  // The replicates need only phases that are independent and the same everywhere.
  Generator phases(static_cast<uint64_t>(row_index) * 0x9e3779b97f4a7c15u + 1);
  std::vector<double> p(n);
  std::vector<double> o(dv);
  // Without a rounding of P the phases change nothing.
  const int distinct = a.u_p > 0 ? kReplicates : 1;
  for (int replicate = 0; replicate < distinct; ++replicate) {
    double denominator = row.sink_p * row.denominator;
    for (size_t j = 0; j < n;) {
      const uint64_t size = 16 + phases.Bits() % 497;
      const double phase = std::exp2(phases.Uniform());
      const size_t end = std::min<size_t>(n, j + size);
      if (a.u_p > 0) {
        for (size_t i = j; i < end; ++i) p[i] = weight_of[i] * phase;
        RoundP(p_type, p_scale, std::span(p).subspan(j, end - j));
        for (size_t i = j; i < end; ++i) p[i] /= phase;
      } else {
        std::copy(weight_of.begin() + static_cast<std::ptrdiff_t>(j),
                  weight_of.begin() + static_cast<std::ptrdiff_t>(end),
                  p.begin() + static_cast<std::ptrdiff_t>(j));
      }
      j = end;
    }
    for (double weight : p) denominator += weight;
    if (a.p_normalised) denominator = 1;
    if (!a.p_normalised && !a.p_in_weights) denominator = row.denominator;
    WeightedSum(question, p, &o);
    std::array<double, kLanes> z{};
    for (double& value : o) value /= denominator;
    if (a.u_o > 0) RoundAll(o, context.c->out);
    for (size_t c = 0; c < dv; ++c) {
      const double error = o[c] - row.channels[c].value;
      for (size_t d = 0; d < kLanes; ++d) z[d] += w[c * kLanes + d] * error;
    }
    for (size_t d = 0; d < kDirections; ++d) {
      double* z_of = &statistics->replicate_z[d][r * kReplicates];
      if (distinct == 1) {
        std::fill_n(z_of, kReplicates, z[d]);
      } else {
        z_of[replicate] = z[d];
      }
    }
  }
}

}  // namespace kvcheck
