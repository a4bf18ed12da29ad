#include "reference/attention/evaluate.h"

#include <algorithm>
#include <atomic>

#include "reference/attention/evaluate_kernels.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

static_assert(kKeyTile == 16, "the kernels' tile");

std::vector<const EvaluateKernels*> Attainable() {
  std::vector<const EvaluateKernels*> tables;
#ifdef __x86_64__
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512cd");
  if (v4) tables.push_back(&kEvaluateV4);
  if (v3) tables.push_back(&kEvaluateV3);
#endif
  tables.push_back(&kEvaluateBaseline);
  return tables;
}

std::atomic<const EvaluateKernels*> forced_table{nullptr};

const EvaluateKernels& Kernels() {
  const EvaluateKernels* forced = forced_table.load(std::memory_order_relaxed);
  static const EvaluateKernels* best = Attainable().front();
  return forced != nullptr ? *forced : *best;
}

// Scores of the tiles which hold the question's keys, in double or double-double.
struct TileScores {
  int64_t first_key = 0;
  std::vector<double> hi, lo, magnitude;
};

template <typename Real>
TileScores ScoreTiles(const RowQuestion& row) {
  const HeadData& head = *row.head;
  const int64_t d = head.k.dim;
  const int64_t first_tile = row.keys.front() / kKeyTile;
  const int64_t tiles = row.keys.back() / kKeyTile - first_tile + 1;
  TileScores scores;
  scores.first_key = first_tile * kKeyTile;
  const auto size = static_cast<size_t>(tiles * kKeyTile);
  scores.hi.resize(size), scores.magnitude.resize(size);
  const int64_t offset = first_tile * kKeyTile * d;
  const double* magnitude =
      head.k_magnitude_tiles.empty() ? nullptr : head.k_magnitude_tiles.data() + offset;
  if constexpr (std::same_as<Real, double>) {
    Kernels().scores(row.q.data(), head.k_tiles.data() + offset, magnitude, d, tiles,
                     scores.hi.data(), scores.magnitude.data());
  } else {
    scores.lo.resize(size);
    const double* lo = head.k_lo_tiles.empty() ? nullptr : head.k_lo_tiles.data() + offset;
    Kernels().scores_dd(row.q.data(), head.k_tiles.data() + offset, lo, magnitude, d, tiles,
                        scores.hi.data(), scores.lo.data(), scores.magnitude.data());
  }
  return scores;
}

void SplitPairs(const std::vector<DoubleDouble>& pairs, std::vector<double>* hi,
                std::vector<double>* lo) {
  hi->resize(pairs.size()), lo->resize(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) (*hi)[i] = pairs[i].hi, (*lo)[i] = pairs[i].lo;
}

void Weights(const std::vector<double>& s, double max, const RowQuestion& row,
             RowAnswer<double>* a) {
  std::vector<double> argument(s.size());
  for (size_t j = 0; j < s.size(); ++j) argument[j] = s[j] - max;
  a->e.resize(s.size());
  ExpAll(argument, a->e.data());
  a->denominator = Denominator<double>(row, a->e, max);
  a->p.resize(s.size());
  for (size_t j = 0; j < s.size(); ++j) a->p[j] = a->e[j] / a->denominator;
}

void Weights(const std::vector<DoubleDouble>& s, DoubleDouble max, const RowQuestion& row,
             RowAnswer<DoubleDouble>* a) {
  const size_t n = s.size();
  std::vector<double> x_hi(n), x_lo(n), e_hi(n), e_lo(n), p_hi(n), p_lo(n);
  for (size_t j = 0; j < n; ++j) {
    const DoubleDouble x = s[j] - max;
    x_hi[j] = x.hi, x_lo[j] = x.lo;
  }
  const auto count = static_cast<int64_t>(n);
  Kernels().exp_dd(x_hi.data(), x_lo.data(), count, e_hi.data(), e_lo.data());
  a->e.resize(n);
  for (size_t j = 0; j < n; ++j) a->e[j] = {e_hi[j], e_lo[j]};
  a->denominator = Denominator<DoubleDouble>(row, a->e, max);
  Kernels().divide_dd(e_hi.data(), e_lo.data(), count, a->denominator.hi, a->denominator.lo,
                      p_hi.data(), p_lo.data());
  a->p.resize(n);
  for (size_t j = 0; j < n; ++j) a->p[j] = {p_hi[j], p_lo[j]};
}

}  // namespace

template <typename Real>
RowAnswer<Real> Evaluate(const RowQuestion& row) {
  const HeadData& head = *row.head;
  const size_t n = row.keys.size();
  KVCHECK_CHECK(n > 0, "a row without keys has no softmax");
  RowAnswer<Real> a;
  a.x.resize(n), a.s.resize(n), a.magnitude.resize(n);
  const TileScores scores = ScoreTiles<Real>(row);
  for (size_t j = 0; j < n; ++j) {
    const auto column = static_cast<size_t>(row.keys[j] - scores.first_key);
    Real dot;
    if constexpr (std::same_as<Real, double>) {
      dot = scores.hi[column];
    } else {
      dot = {scores.hi[column], scores.lo[column]};
    }
    FinishScore(row, j, dot, &a.x[j], &a.s[j]);
    a.magnitude[j] = scores.magnitude[column] * Abs(row.scale);
  }
  a.max = MaxScore<Real>(row, a.s);
  Weights(a.s, a.max, row, &a);
  a.sink_p =
      row.has_sink ? Exp(FromDouble<Real>(row.sink) - a.max) / a.denominator : FromDouble<Real>(0);
  const int64_t dv = head.v.dim;
  const auto channels = static_cast<size_t>(dv);
  a.o.resize(channels);
  if constexpr (std::same_as<Real, double>) {
    Kernels().weighted_sum(row.keys.data(), static_cast<int64_t>(n), a.p.data(), head.v.hi.data(),
                           dv, a.o.data());
  } else {
    std::vector<double> p_hi, p_lo, o_hi(channels), o_lo(channels);
    SplitPairs(a.p, &p_hi, &p_lo);
    Kernels().weighted_sum_dd(row.keys.data(), static_cast<int64_t>(n), p_hi.data(), p_lo.data(),
                              head.v.hi.data(), head.v.lo.empty() ? nullptr : head.v.lo.data(), dv,
                              o_hi.data(), o_lo.data());
    for (size_t c = 0; c < channels; ++c) a.o[c] = {o_hi[c], o_lo[c]};
  }
  return a;
}

template RowAnswer<double> Evaluate<double>(const RowQuestion& row);
template RowAnswer<DoubleDouble> Evaluate<DoubleDouble>(const RowQuestion& row);

namespace {

// What a missing row (the sink's zero) and the plan's constants add to the sums of one channel.
void FinishSums(const RowQuestion& row, const KeyWeights& w, double o, ChannelSums* sums) {
  sums->o = o;
  if (row.has_sink) {
    sums->c += w.sink_c * Abs(o);
    sums->spread = Max(sums->spread, Abs(o));
  }
}

}  // namespace

void SumChannels(const Arithmetic& a, const RowQuestion& row, std::span<const double> p,
                 const KeyWeights& w, std::span<const double> o, std::vector<ChannelSums>* out) {
  const HeadData& head = *row.head;
  const auto dv = static_cast<size_t>(head.v.dim);
  std::vector<double> storage(8 * dv);
  const auto array = [&](size_t i) { return storage.data() + i * dv; };
  const ChannelSumArrays arrays = {array(0), array(1), array(2), array(3),
                                   array(4), array(5), array(6), array(7)};
  const double* magnitude =
      (a.parts || a.rotates_v) && !head.v.magnitude.empty() ? head.v.magnitude.data() : nullptr;
  const double* codec = head.v.codec_error.empty() ? nullptr : head.v.codec_error.data();
  Kernels().channel_sums(row.keys.data(), static_cast<int64_t>(row.keys.size()), p.data(),
                         w.c.data(), w.x.data(), w.y.empty() ? nullptr : w.y.data(),
                         head.v.hi.data(), magnitude, a.factored, codec, head.v.dim, o.data(),
                         arrays);
  out->resize(dv);
  for (size_t c = 0; c < dv; ++c) {
    ChannelSums& sums = (*out)[c];
    sums = {};
    sums.mass = arrays.mass[c], sums.c = arrays.c[c], sums.x = arrays.x[c], sums.y = arrays.y[c];
    sums.parts = arrays.parts[c], sums.codec = arrays.codec[c];
    sums.largest = arrays.largest[c], sums.spread = arrays.spread[c];
    FinishSums(row, w, o[c], &sums);
  }
}

void SumChannelsPlainly(const Arithmetic& a, const RowQuestion& row, std::span<const double> p,
                        const KeyWeights& w, std::span<const double> o,
                        std::vector<ChannelSums>* out) {
  const HeadData& head = *row.head;
  const auto dv = static_cast<size_t>(head.v.dim);
  const bool parts = (a.parts || a.rotates_v) && !head.v.magnitude.empty();
  out->assign(dv, {});
  for (size_t c = 0; c < dv; ++c) {
    ChannelSums& sums = (*out)[c];
    double parts_y = 0;
    for (size_t j = 0; j < row.keys.size(); ++j) {
      const size_t at = static_cast<size_t>(row.keys[j]) * dv + c;
      const double size = Abs(head.v.hi[at]);
      const double gap = Abs(head.v.hi[at] - o[c]);
      sums.mass += p[j] * size;
      sums.c += w.c[j] * gap;
      sums.x += w.x[j] * size;
      if (!w.y.empty()) sums.y += w.y[j] * size;
      if (parts) sums.parts += w.x[j] * head.v.magnitude[at];
      if (parts && !w.y.empty()) parts_y += w.y[j] * head.v.magnitude[at];
      if (!head.v.codec_error.empty()) sums.codec += w.x[j] * head.v.codec_error[at];
      sums.largest = Max(sums.largest, size);
      sums.spread = Max(sums.spread, gap);
    }
    if (a.factored && parts) sums.x = sums.parts, sums.y = parts_y;
    FinishSums(row, w, o[c], &sums);
  }
}

void WeightedSum(const RowQuestion& row, std::span<const double> weights,
                 std::vector<double>* out) {
  const HeadData& head = *row.head;
  out->resize(static_cast<size_t>(head.v.dim));
  Kernels().weighted_sum(row.keys.data(), static_cast<int64_t>(row.keys.size()), weights.data(),
                         head.v.hi.data(), head.v.dim, out->data());
}

void Project(const RowQuestion& row, std::span<const double> w, std::vector<double>* out) {
  const HeadData& head = *row.head;
  out->resize(row.keys.size() * kProjectLanes);
  Kernels().project(row.keys.data(), static_cast<int64_t>(row.keys.size()), w.data(),
                    head.v.hi.data(), head.v.dim, out->data());
}

void SquareCells(const CellOrder& order, const double* v, int64_t columns, const CellSquares& out) {
  Kernels().cell_squares(order, v, columns, out);
}

void SumRuns(const RowQuestion& row, std::span<const int32_t> run, int64_t runs,
             std::span<const double> p, double* prefix, double* largest_mass, double* squares) {
  const HeadData& head = *row.head;
  Kernels().run_sums(row.keys.data(), run.data(), static_cast<int64_t>(row.keys.size()), runs,
                     p.data(), head.v.hi.data(), head.v.dim, prefix, largest_mass, squares);
}

void ScoreBlock(const HeadData& head, std::span<const double> q, int64_t first_tile, int64_t tiles,
                double* dot) {
  const int64_t d = head.k.dim;
  Kernels().block_scores(q.data(), std::ssize(q) / d,
                         head.k_tiles.data() + first_tile * kKeyTile * d, d, tiles, dot);
}

void SumBlock(const HeadData& head, int64_t first_key, int64_t keys, int64_t rows, const double* w,
              const double* z, double* o, double* mass, double* squares) {
  const int64_t dv = head.v.dim;
  Kernels().block_sums(w, z, rows, keys, head.v.hi.data() + first_key * dv, dv, o, mass, squares);
}

void ExpAll(std::span<const double> x, double* out) { Kernels().exp(x.data(), std::ssize(x), out); }

std::vector<std::string_view> EvaluatorTargets() {
  std::vector<std::string_view> names;
  for (const EvaluateKernels* table : Attainable()) names.push_back(table->name);
  return names;
}

std::string_view EvaluatorTargetInUse() { return Kernels().name; }

void SetEvaluatorTarget(std::string_view name) {
  const EvaluateKernels* chosen = nullptr;
  for (const EvaluateKernels* table : Attainable()) {
    if (name == table->name) chosen = table;
  }
  KVCHECK_CHECK(name.empty() || chosen != nullptr, "no such evaluator target");
  forced_table.store(chosen, std::memory_order_relaxed);
}

}  // namespace kvcheck
