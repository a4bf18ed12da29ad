#include "reference/attention/row_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/attention/evaluate.h"
#include "reference/attention/hidden_rows.h"
#include "reference/attention/own_error.h"
#include "reference/attention/score_error.h"
#include "reference/formats/error_bound.h"
#include "reference/numerics/real.h"

namespace kvcheck {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Real>
std::vector<double> ToDoubles(const std::vector<Real>& values) {
  std::vector<double> doubles(values.size());
  for (size_t i = 0; i < values.size(); ++i) doubles[i] = ToDouble(values[i]);
  return doubles;
}

template <typename Real>
RowAnswer<Real> Answer(const RowQuestion& row) {
  if constexpr (std::same_as<Real, double> || std::same_as<Real, DoubleDouble>) {
    return Evaluate<Real>(row);
  } else {
    return Define<Real>(row);
  }
}

// What the bound needs of K beside the scores themselves.
struct KeyFacts {
  std::vector<double> k_abs_sum, codec;
  std::vector<double>
      magnitude;  // S_j over the parts of both codes; empty: as the evaluator has it

  KeyFacts(const RowContext& context, const RowQuestion& row, const OwnedQuestion& owned) {
    const HeadData& head = *context.head;
    const size_t n = row.keys.size();
    k_abs_sum.resize(n);
    for (size_t j = 0; j < n; ++j) k_abs_sum[j] = head.k_abs_sum[static_cast<size_t>(row.keys[j])];
    if (!owned.q_error.empty()) {
      AddIntegerProducts(head, row, owned);
      return;
    }
    if (head.k.codec_error.empty()) return;
    codec.resize(n);
    const auto d = static_cast<size_t>(head.k.dim);
    for (size_t j = 0; j < n; ++j) {
      const double* error = &head.k.codec_error[static_cast<size_t>(row.keys[j]) * d];
      double sum = 0;
      for (size_t i = 0; i < d; ++i) sum += Abs(row.q[i]) * error[i];
      codec[j] = sum * Abs(row.scale);
    }
    if (!owned.q_block_error.empty()) AddRotation(head, row, owned, context.arithmetic->u_q);
  }

 private:
  // What the query loses where it is rounded, times k, and where it is rotated, times y; and the
  // sizes of products in the basis of K.
  void AddRotation(const HeadData& head, const RowQuestion& row, const OwnedQuestion& owned,
                   double u_q) {
    magnitude.resize(row.keys.size());
    const auto d = static_cast<size_t>(head.k.dim);
    const size_t blocks = owned.q_block_error.size();
    for (size_t j = 0; j < row.keys.size(); ++j) {
      const auto key = static_cast<size_t>(row.keys[j]);
      double error = 0, size = 0;
      for (size_t b = 0; b < blocks; ++b) {
        error += owned.q_block_error[b] * head.k.block_norms[key * blocks + b];
      }
      double rounded = 0;
      for (size_t i = 0; i < d; ++i) {
        const size_t at = key * d + i;
        size += owned.q_parts[i] * head.k.in_basis[at];
        const double k = Abs(head.k.hi[at]) + (head.k.lo.empty() ? 0 : Abs(head.k.lo[at]));
        rounded += Abs(row.q[i]) * (k + head.k.codec_error[at]);
      }
      codec[j] += error + u_q * rounded * Abs(row.scale);
      magnitude[j] = size * Abs(row.scale);
    }
  }

  // (q + dq)(k + dk) - q k for the codecs of both sides.
  void AddIntegerProducts(const HeadData& head, const RowQuestion& row,
                          const OwnedQuestion& owned) {
    const size_t n = row.keys.size();
    const auto d = static_cast<size_t>(head.k.dim);
    codec.resize(n), magnitude.resize(n);
    for (size_t j = 0; j < n; ++j) {
      const size_t offset = static_cast<size_t>(row.keys[j]) * d;
      double error = 0, parts = 0;
      for (size_t i = 0; i < d; ++i) {
        const double dk = head.k.codec_error.empty() ? 0 : head.k.codec_error[offset + i];
        const double k =
            Abs(head.k.hi[offset + i]) + (head.k.lo.empty() ? 0 : Abs(head.k.lo[offset + i]));
        error += k * owned.q_error[i] + (Abs(row.q[i]) + owned.q_error[i]) * dk;
        parts += owned.q_parts[i] * head.k.magnitude[offset + i];
      }
      codec[j] = error * Abs(row.scale);
      magnitude[j] = parts * Abs(row.scale);
    }
  }
};

// Of a query as integers times a step for each group of K's codes.
void DescribeFixedQuery(const RowContext& context, OwnedQuestion* out) {
  const auto group = static_cast<size_t>(GridOf(context.c->k)->group);
  for (size_t first = 0; first < context.q.size(); first += group) {
    double largest = 0;
    for (const double q : context.q.subspan(first, group)) largest = Max(largest, Abs(q));
    const double error = context.arithmetic->fixed_q * largest;
    out->q_error.insert(out->q_error.end(), group, error);
    for (const double q : context.q.subspan(first, group)) out->q_parts.push_back(Abs(q) + error);
  }
}

// Of a query that is rotated into the basis of K. Butterflies are sqrt 2 times orthogonal, so that
// errors of the levels add up in the 2-norm.
void DescribeRotatedQuery(const RowContext& context, OwnedQuestion* out) {
  const Arithmetic& a = *context.arithmetic;
  const StoredBasis& basis = context.head->k.basis;
  const double n = static_cast<double>(basis.BlockSize());
  const double roundings = RotationRoundings(basis.BlockSize());
  const double of_rotation = std::expm1(roundings * std::log1p(a.u_a));
  // Of pre-scaled elements; and what a level flushes comes back sqrt 2 times larger a level, beside
  // what is flushed of q.
  const double absolute =
      (1 + Abs(context.c->scale)) * std::sqrt(n) * ((1 + of_rotation) * a.eta_q + 5 * a.lambda);
  std::vector<double> rotated(context.q.begin(), context.q.end());
  basis.Rotate(rotated);
  out->q_parts.resize(rotated.size());
  for (const RotatedBlock& block : basis.blocks) {
    double sum = 0, square = 0;
    for (const size_t i : block.channels) {
      sum += Abs(context.q[i]);
      square += context.q[i] * context.q[i];
    }
    // 2^-47: the rotation in double, whose 2-norm errs by sqrt N of that of an element
    // (stored_basis.h).
    const double norm = std::sqrt(square);
    const double error = (1 + a.u_q) * of_rotation * norm + 0x1p-47 * sum;
    out->q_block_error.push_back(error * Abs(context.c->scale) + absolute);
    for (const size_t i : block.channels) {
      out->q_parts[i] = Abs(rotated[i]) + error + a.u_q * norm;
    }
    out->q_rotation_largest = Max(out->q_rotation_largest, sum * (1 + of_rotation));
  }
}

// Bounds of what the query's own codec, or its rotation, does to it.
void DescribeQueryCodes(const RowContext& context, OwnedQuestion* out) {
  const Arithmetic& a = *context.arithmetic;
  if (a.rotates_k) return DescribeRotatedQuery(context, out);
  if (a.fixed_q > 0) return DescribeFixedQuery(context, out);
  if (!a.plan.integer_qk) return;
  const DType dtype = context.c->q;
  out->q_error =
      RoundTripBound(*a.plan.integer_qk, context.profile, DecodeRounding::kExact, dtype, context.q)
          .total;
  out->q_parts = PartsBound(*a.plan.integer_qk, context.profile, dtype, context.q);
}

// What the bound reads of the question beside its keys.
void DescribeQuestion(const HeadData& head, const RowQuestion& row, const OwnedQuestion& owned,
                      RowScores* scores) {
  scores->keys = row.keys;
  scores->bias = row.bias;
  scores->q_abs_sum = std::accumulate(row.q.begin(), row.q.end(), 0.0,
                                      [](double sum, double q) { return sum + Abs(q); });
  if (!owned.q_parts.empty()) {
    scores->q_abs_sum = std::accumulate(owned.q_parts.begin(), owned.q_parts.end(), 0.0);
    scores->q_rotation_largest = owned.q_rotation_largest;
    scores->q_part_largest = *std::max_element(owned.q_parts.begin(), owned.q_parts.end());
    scores->k_scale_largest = head.k.scale_largest;
  }
  scores->k_dim = static_cast<double>(head.k.dim);
  scores->kv_len = static_cast<double>(head.kv_len);
  scores->first_column = row.first_column;
  scores->scale = row.scale;
  scores->softcap = row.softcap;
}

// Largest score, with its error, of the masked keys, for kernels whose maximum ignores the mask.
double ShiftOverMaskedKeys(const RowContext& context, const OwnedQuestion& owned) {
  if (owned.masked_keys.empty()) return -std::numeric_limits<double>::infinity();
  RowQuestion row = owned.question;
  row.keys = owned.masked_keys;
  row.bias = owned.masked_bias;
  row.forced_score = {};
  const RowAnswer<double> answer = Evaluate<double>(row);
  const KeyFacts facts(context, row, owned);
  RowScores scores;
  DescribeQuestion(*context.head, row, owned, &scores);
  scores.x = answer.x, scores.s = answer.s;
  scores.magnitude = facts.magnitude.empty() ? answer.magnitude : facts.magnitude;
  scores.k_abs_sum = facts.k_abs_sum, scores.codec = facts.codec;
  return LargestScore(*context.arithmetic, scores);
}

// What integers in place of weights times scales are off by, times the largest code.
void AddFixedWeights(const RowContext& context, const RowQuestion& row,
                     std::vector<ChannelSums>* sums) {
  const Arithmetic& a = *context.arithmetic;
  const OperandRows& v = context.head->v;
  const auto group = static_cast<size_t>(GridOf(context.c->v)->group);
  const size_t groups = sums->size() / group;
  for (size_t g = 0; g < groups; ++g) {
    double scale = 0;
    for (const int32_t key : row.keys) {
      scale = Max(scale, v.scales[static_cast<size_t>(key) * groups + g]);
    }
    const double error = a.fixed_p * (1 + a.u_a) * scale * a.v_largest_code;
    for (size_t i = g * group; i < (g + 1) * group; ++i) (*sums)[i].fixed = error;
  }
}

// Largest sum |y| over a block of V, of the row's keys or of all.
double LargestBlock(const HeadData& head, const RowQuestion& row, bool of_all) {
  const auto dv = static_cast<size_t>(head.v.dim);
  const double root = std::sqrt(static_cast<double>(head.v.basis.BlockSize()));
  double largest = 0;
  const auto take = [&](size_t key) {
    for (size_t c = key * dv; c < (key + 1) * dv; ++c) {
      const double sum = head.v.magnitude[c] * root;
      if (std::isfinite(sum)) largest = Max(largest, sum);
    }
  };
  for (size_t key = 0; of_all && key < static_cast<size_t>(head.kv_len); ++key) take(key);
  for (const int32_t key : row.keys) take(static_cast<size_t>(key));
  return largest * (1 + 0x1p-40);
}

template <typename Real>
RowReference Compute(const RowContext& context, const OwnedQuestion& owned) {
  const RowQuestion& row = owned.question;
  const Arithmetic& a = *context.arithmetic;
  const HeadData& head = *context.head;
  RowReference result;
  const RowAnswer<Real> answer = Answer<Real>(row);
  const std::vector<double> x = ToDoubles(answer.x);
  result.s = ToDoubles(answer.s);
  result.e = ToDoubles(answer.e);
  result.p = ToDoubles(answer.p);
  result.max = ToDouble(answer.max);
  result.denominator = ToDouble(answer.denominator);
  const std::vector<double> o = ToDoubles(answer.o);
  result.finite = std::isfinite(result.max) && std::isfinite(result.denominator) &&
                  std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
  if (!result.finite) return result;

  KeyFacts facts(context, row, owned);
  std::vector<double> magnitude = facts.magnitude.empty() ? answer.magnitude : facts.magnitude;
  for (size_t j = 0; j < owned.forced_score.size(); ++j) {
    if (owned.forced_score[j] == owned.forced_score[j]) {
      magnitude[j] = 0;
      facts.k_abs_sum[j] = 0;
      if (!facts.codec.empty()) facts.codec[j] = 0;
    }
  }
  RowScores scores;
  DescribeQuestion(head, row, owned, &scores);
  scores.x = x, scores.s = result.s, scores.magnitude = magnitude;
  scores.k_abs_sum = facts.k_abs_sum, scores.codec = facts.codec;
  scores.e = result.e, scores.p = result.p;
  scores.has_sink = row.has_sink, scores.sink = row.sink, scores.sink_p = ToDouble(answer.sink_p);
  scores.max = result.max, scores.denominator = result.denominator;
  scores.forced = owned.forced_score;
  scores.hidden_score = owned.hidden_score;
  if (owned.hidden_score != 0) scores.v_largest = head.v_largest;
  if (a.rotates_v) scores.v_largest = LargestBlock(head, row, owned.hidden_score != 0);
  if (a.factored && !head.v.magnitude.empty()) {
    const auto dv = static_cast<size_t>(head.v.dim);
    for (const int32_t key : row.keys) {
      const double* parts = &head.v.magnitude[static_cast<size_t>(key) * dv];
      for (size_t c = 0; c < dv; ++c) {
        if (std::isfinite(parts[c])) scores.v_largest = std::max(scores.v_largest, parts[c]);
      }
    }
  }
  scores.all_forced = owned.all_forced && !row.has_sink;
  if (context.profile.maximum_over_all) {
    scores.maximum_over_all = true;
    scores.shift_all = ShiftOverMaskedKeys(context, owned);
  }
  KeyWeights weights = ComputeKeyWeights(a, scores);
  std::vector<ChannelSums> sums;
  SumChannels(a, row, result.p, weights, o, &sums);
  if (a.fixed_p > 0) AddFixedWeights(context, row, &sums);
  result.denominator_error = DenominatorError(a, weights);
  const OwnError<Real> own(row, scores, answer.magnitude);
  result.why = weights.why;
  result.may_overflow = weights.may_overflow;
  const std::vector<ChannelBound> proven =
      ComputeChannelBounds(a, weights, sums, head.v.basis, context.c->out);
  std::vector<ChannelBound> bounds = proven;
  if (context.noise || context.statistics) {
    const NoiseQuestion question = {a, row, result.p, result.s, weights, sums, context.c->out};
    result.noise = NoiseOf(question);
    if (context.noise && result.noise) BoundByNoise(question, *result.noise, &bounds);
  }
  result.channels.resize(o.size());
  size_t defined = 0, bounded = 0;
  for (size_t c = 0; c < o.size(); ++c) {
    ChannelReference& channel = result.channels[c];
    // A hidden key that a finite mask value leaves in the sum is multiplied by zero.
    channel.undefined =
        !std::isfinite(o[c]) ||
        (owned.hidden_score != 0 && !head.v_not_finite.empty() && head.v_not_finite[c] != 0);
    if (channel.undefined) continue;
    ++defined;
    const DoubleDouble value = ToPair(answer.o[c]);
    const ChannelBound& bound = bounds[c];
    bounded += bound.bound < kInfinity ? 1 : 0;
    channel = {value.hi,
               value.lo,
               bound.bound,
               proven[c].bound,
               proven[c].bound < kInfinity ? proven[c].before_output : bound.before_output,
               own.Channel(sums[c]),
               sums[c].mass,
               sums[c].spread,
               bound.terms};
  }
  result.unbounded = weights.unbounded || (defined > 0 && bounded == 0);
  if (result.unbounded && result.why.empty()) {
    result.why = "the plan's sums are too deep, or may overflow";
  }
  result.weight_error = std::move(weights.score.empty() ? weights.c : weights.score);
  result.sink_error = weights.sink_c;
  result.sink_p = scores.sink_p;
  if (context.c->lse != LseKind::kNone) {
    const bool base2 = context.c->lse == LseKind::kBase2;
    Real lse = answer.max + Log(answer.denominator);
    const double nats = ToDouble(lse);
    result.lse_reference_bound = own.Lse(nats, result.max);
    if (base2) {
      lse = lse / Log(FromDouble<Real>(2));
      result.lse_reference_bound *= 2;  // 1 / ln 2, and the roundings of the division
    }
    const DoubleDouble pair = ToPair(lse);
    result.lse = pair.hi, result.lse_lo = pair.lo;
    result.lse_bound = ComputeLseBound(a, weights, scores, pair.hi, base2);
  }
  return result;
}

// Most that a score is off by before it is summed; 0 where it is summed over q and K themselves.
double LargestCodec(const RowContext& context, const VisibleSet& set, const OwnedQuestion& owned) {
  RowQuestion row;
  row.q = context.q;
  row.keys = set.keys;
  row.scale = context.c->scale;
  const KeyFacts facts(context, row, owned);
  return facts.codec.empty() ? 0 : *std::max_element(facts.codec.begin(), facts.codec.end());
}

// Keys whose score is -inf weigh nothing in any kernel: ranges without keys, as a merge of partial
// results lists them. Where V is not finite, or no other key is there, such a weight is no number.
void LeaveOutWeightless(const RowContext& context, OwnedQuestion* out) {
  const HeadData& head = *context.head;
  if (context.c->softcap || !head.v_not_finite.empty()) return;
  const auto d = static_cast<size_t>(head.k.dim);
  const auto weighs = [&](int32_t key) {
    if (head.k_abs_sum[static_cast<size_t>(key)] < kInfinity) return true;
    const double* k = &head.k.hi[static_cast<size_t>(key) * d];
    double dot = 0;
    for (size_t i = 0; i < d; ++i) dot += context.q[i] * k[i];
    return dot * context.c->scale != -kInfinity;
  };
  std::vector<size_t> kept;
  for (size_t j = 0; j < out->keys.size(); ++j) {
    if (weighs(out->keys[j])) kept.push_back(j);
  }
  if (kept.empty() || kept.size() == out->keys.size()) return;
  for (size_t i = 0; i < kept.size(); ++i) {
    out->keys[i] = out->keys[kept[i]];
    if (!out->bias.empty()) out->bias[i] = out->bias[kept[i]];
  }
  out->keys.resize(kept.size());
  if (!out->bias.empty()) out->bias.resize(kept.size());
}

}  // namespace

RowKind MakeQuestion(const RowContext& context, const VisibleSet& set, OwnedQuestion* out) {
  *out = {};
  const AttentionCase& c = *context.c;
  if (set.kind == QueryKind::kPadding) return RowKind::kUnconstrained;
  DescribeQueryCodes(context, out);
  out->keys = set.keys;
  out->bias = set.bias;
  out->masked_keys = set.masked_keys;
  out->masked_bias = set.masked_bias;
  if (!set.hidden_keys.empty()) out->hidden_score = set.hidden_score;
  if (set.kind == QueryKind::kOrdinary && set.hidden_keys.empty()) LeaveOutWeightless(context, out);
  if (set.kind == QueryKind::kFullyMasked) {
    if (context.SeesSink() && set.hidden_keys.empty()) {
      return std::isfinite(context.sink) ? RowKind::kZero : RowKind::kUndefined;
    }
    switch (context.profile.masked_row) {
      case MaskedRow::kZero:
        return RowKind::kZero;
      case MaskedRow::kNan:
        return RowKind::kNan;
      case MaskedRow::kAny:
        return RowKind::kUnconstrained;
      case MaskedRow::kMean:
        break;
    }
    out->keys = set.hidden_keys;
    if (out->keys.empty()) {
      out->keys.resize(static_cast<size_t>(c.kv_len));
      std::iota(out->keys.begin(), out->keys.end(), 0);
    }
    out->masked_keys.clear();
    out->masked_bias.clear();
    const double score = set.hidden_keys.empty() ? 0.0 : set.hidden_score;
    out->forced_score.assign(out->keys.size(), score);
    out->all_forced = true;
    out->bias.clear();
  } else if (!set.hidden_keys.empty()) {
    // The hidden keys take part only where their weight is not nothing: |score| <= |q||k||scale|.
    double largest = 0;
    for (int32_t key : set.keys) {
      largest = Max(largest, context.head->k_abs_sum[static_cast<size_t>(key)]);
    }
    double q_largest = 0;
    for (double q : context.q) q_largest = Max(q_largest, Abs(q));
    for (double part : out->q_parts) q_largest = Max(q_largest, part);
    double bias_lowest = 0;
    for (double bias : set.bias) bias_lowest = std::min(bias_lowest, bias);
    const double lowest = -largest * q_largest * Abs(c.scale) + bias_lowest;
    if (!(set.hidden_score < lowest - kVanishes)) {
      for (int32_t key : set.hidden_keys) out->keys.push_back(key);
      std::sort(out->keys.begin(), out->keys.end());
      std::vector<double> bias;
      size_t visible = 0;
      for (int32_t key : out->keys) {
        const bool hidden = std::binary_search(set.hidden_keys.begin(), set.hidden_keys.end(), key);
        out->forced_score.push_back(hidden ? set.hidden_score : kNan);
        if (!set.bias.empty()) bias.push_back(hidden ? 0.0 : set.bias[visible]);
        visible += hidden ? 0 : 1;
      }
      out->bias = std::move(bias);
    }
  }
  const bool rotates = !out->q_block_error.empty();
  const std::span<const double> rotated = rotates ? std::span(out->q_parts) : std::span<double>();
  if (IsHiddenByNumber(context, set, rotated)) {
    if (context.profile.masked_row == MaskedRow::kAny) return RowKind::kUnconstrained;
    out->hidden_by_number = true;
    if ((out->q_parts.empty() || rotates) &&
        AbsorbsScores(context, set, rotated, LargestCodec(context, set, *out))) {
      out->forced_score.assign(out->keys.size(), set.mask_largest);
      out->all_forced = true;
      out->bias.clear();
    }
  }
  RowQuestion& question = out->question;
  question.head = context.head;
  question.q = context.q;
  question.keys = out->keys;
  question.first_column = set.first_column;
  question.bias = out->bias;
  question.forced_score = out->forced_score;
  question.scale = c.scale;
  question.softcap = c.softcap.value_or(0);
  question.has_sink = context.SeesSink();
  question.sink = context.sink;
  return RowKind::kEvaluate;
}

SinkLse ComputeSinkLse(const RowContext& context) {
  RowScores scores;
  scores.kv_len = static_cast<double>(context.head->kv_len);
  scores.scale = context.c->scale;
  scores.has_sink = true;
  scores.sink = scores.max = context.sink;
  scores.sink_p = 1;
  const bool base2 = context.c->lse == LseKind::kBase2;
  SinkLse lse;
  lse.value = base2 ? context.sink / std::log(2.0) : context.sink;
  const KeyWeights weights = ComputeKeyWeights(*context.arithmetic, scores);
  lse.unbounded = weights.unbounded;
  lse.bound = ComputeLseBound(*context.arithmetic, weights, scores, lse.value, base2);
  return lse;
}

RowReference ComputeRow(const RowContext& context, const OwnedQuestion& owned,
                        Precision precision) {
  switch (precision) {
    case Precision::kDouble:
      return Compute<double>(context, owned);
    case Precision::kDoubleDouble:
      return Compute<DoubleDouble>(context, owned);
    case Precision::kOracle50:
      return Compute<Oracle50>(context, owned);
    case Precision::kOracle100:
      return Compute<Oracle100>(context, owned);
  }
  return {};
}

}  // namespace kvcheck
