#include "reference/attention/seen_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "reference/attention/evaluate.h"
#include "reference/numerics/convert.h"
#include "reference/numerics/ulp.h"

namespace kvcheck {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kMostSteps = 1024;  // of the sums of one row
constexpr int64_t kPictureBlocks = 64;
constexpr size_t kNamedKeys = 16;
// A rounding of w to nearest has the variance spacing(w)^2 / 12, u^2 w^2 / 3 at the most. Over a
// binade of w, evenly by its logarithm, its mean is this share of the most: (1 - 1/4) / (2 ln 2).
constexpr double kMeanOfBinade = 0.541;
// Weights beyond it belong to keys that would leave nothing of the others.
constexpr double kLargestWeight = 1e100;

int64_t PowerOfTwo(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

// sigma^2 of a right kernel, as large as it is expected to be: causes are told apart by it, so that
// the largest that a plan admits would let too many of them pass.
std::vector<double> Precisions(const RowReference& reference, const Arithmetic& a, DType out) {
  std::vector<double> precision(reference.channels.size(), 0);
  for (size_t c = 0; c < precision.size(); ++c) {
    const ChannelReference& channel = reference.channels[c];
    if (channel.undefined || channel.mass == 0) continue;
    const double spacing = a.u_o > 0 ? SpacingAt(out, std::fabs(channel.value)) : 0;
    double variance = spacing * spacing / 12 + channel.reference_bound * channel.reference_bound;
    if (reference.noise) {
      variance += kMeanOfBinade * reference.noise->of_p[c] + reference.noise->of_sums[c];
    }
    if (!(variance > 0)) variance = channel.bound * channel.bound;
    if (variance > 0 && std::isfinite(1 / variance)) precision[c] = 1 / variance;
  }
  return precision;
}

void FillSums(SeenProblem* problem, SeenRow* row) {
  const size_t columns = problem->Columns();
  const auto steps = static_cast<size_t>((problem->kv_len + problem->step - 1) / problem->step);
  row->visible_sums.assign((steps + 1) * columns, 0);
  row->hidden_sums.assign((steps + 1) * columns, 0);
  for (size_t s = 0; s < steps; ++s) {
    double* visible = &row->visible_sums[(s + 1) * columns];
    double* hidden = &row->hidden_sums[(s + 1) * columns];
    std::copy_n(visible - columns, columns, visible);
    std::copy_n(hidden - columns, columns, hidden);
    const int64_t end = std::min(problem->kv_len, static_cast<int64_t>(s + 1) * problem->step);
    for (int64_t j = static_cast<int64_t>(s) * problem->step; j < end; ++j) {
      const auto at = static_cast<size_t>(j);
      const double weight = row->weight[at];
      if (weight == 0) continue;
      double* sums = row->is_visible[at] != 0 ? visible : hidden;
      const double* v = row->Values(j);
      for (size_t c = 0; c < problem->channels; ++c) sums[c] += weight * v[c];
      sums[problem->channels] += weight;
    }
  }
}

std::optional<SeenRow> MakeRow(const SeenProblem& problem, const Arithmetic& arithmetic,
                               int64_t index) {
  const AskedRows& asked = problem.asked;
  const AttentionCase& c = asked.c;
  SeenRow row;
  row.row = index;
  row.query = {index / c.query_len / c.query_heads, index / c.query_len % c.query_heads,
               index % c.query_len};
  row.kv_head = row.query.query_head / (c.query_heads / c.kv_heads);
  row.position = QueryPosition(c, row.query.query);
  row.head = asked.head(row.query.batch, row.kv_head);
  row.q.resize(static_cast<size_t>(c.k_dim));
  DecodeTo(Get(asked.inputs, "q"), index * c.k_dim, row.q);
  RowContext context;
  context.c = &c;
  context.arithmetic = &arithmetic;
  context.profile = asked.profile;
  context.head = row.head.get();
  context.q = row.q;
  context.has_sink = !asked.sinks.empty();
  if (context.has_sink) context.sink = asked.sinks[static_cast<size_t>(row.query.query_head)];
  context.statistics = true;
  const VisibleSet visible = asked.mask.Visible(row.query);
  OwnedQuestion owned;
  if (MakeQuestion(context, visible, &owned) != RowKind::kEvaluate) return std::nullopt;
  // Scores that stand in place of computed ones know nothing of their keys.
  if (!owned.forced_score.empty()) return std::nullopt;
  const RowReference reference = ComputeRow(context, owned, Precision::kDouble);
  if (!reference.finite || reference.unbounded) return std::nullopt;
  for (const ChannelReference& channel : reference.channels) {
    row.o.push_back(channel.undefined ? 0 : channel.value);
  }
  row.precision = Precisions(reference, arithmetic, c.out);
  row.max = reference.max;
  row.denominator = reference.denominator;
  row.has_sink = context.SeesSink();
  row.sink_weight = reference.sink_p;
  row.first = owned.keys.front();
  row.last = owned.keys.back();

  const auto n = static_cast<size_t>(c.kv_len);
  RowQuestion all = owned.question;
  std::vector<int32_t> keys(n);
  for (size_t j = 0; j < n; ++j) keys[j] = static_cast<int32_t>(j);
  row.bias = asked.mask.BiasOfAll(row.query);
  all.keys = keys;
  all.bias = row.bias;
  const RowAnswer<double> answer = Evaluate<double>(all);
  row.x = answer.x;
  row.weight.resize(n);
  const std::vector<double>& v = row.head->v.hi;
  for (size_t j = 0; j < n; ++j) {
    const double weight = std::exp(answer.s[j] - row.max) / row.denominator;
    row.weight[j] = weight < kLargestWeight ? weight : 0;
    if (row.head->v_not_finite.empty()) continue;
    for (size_t i = j * problem.channels; i < (j + 1) * problem.channels; ++i) {
      if (!std::isfinite(v[i])) row.weight[j] = 0;
    }
  }
  row.is_visible.assign(n, 0);
  for (const int32_t key : owned.keys) row.is_visible[static_cast<size_t>(key)] = 1;
  return row;
}

}  // namespace

void AddKey(const SeenRow& row, int64_t key, double times, Mixture* mixture) {
  const double weight = times * row.weight[static_cast<size_t>(key)];
  if (weight == 0) return;
  const double* v = row.Values(key);
  for (size_t c = 0; c < mixture->sum.size(); ++c) mixture->sum[c] += weight * v[c];
  mixture->share += weight;
}

void AddRange(const SeenProblem& problem, const SeenRow& row, int64_t from, int64_t to, KeySet keys,
              double times, Mixture* mixture) {
  from = std::max<int64_t>(from, 0);
  to = std::min(to, problem.kv_len);
  if (from >= to) return;
  const uint8_t wanted = keys == KeySet::kVisible ? 1 : 0;
  const auto add_keys = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      if (row.is_visible[static_cast<size_t>(j)] == wanted) AddKey(row, j, times, mixture);
    }
  };
  const int64_t first_step = (from + problem.step - 1) / problem.step;
  const int64_t last_step = to / problem.step;
  if (first_step >= last_step) {
    add_keys(from, to);
    return;
  }
  add_keys(from, first_step * problem.step);
  add_keys(last_step * problem.step, to);
  const std::vector<double>& sums = keys == KeySet::kVisible ? row.visible_sums : row.hidden_sums;
  const size_t columns = problem.Columns();
  const double* begin = &sums[static_cast<size_t>(first_step) * columns];
  const double* end = &sums[static_cast<size_t>(last_step) * columns];
  for (size_t c = 0; c < problem.channels; ++c) mixture->sum[c] += times * (end[c] - begin[c]);
  mixture->share += times * (end[problem.channels] - begin[problem.channels]);
}

double MisfitOf(const SeenRow& row, std::span<const double> predicted) {
  double misfit = 0;
  for (size_t c = 0; c < predicted.size(); ++c) {
    if (row.precision[c] == 0) continue;
    const double off = row.got[c] - predicted[c];
    misfit += off * row.precision[c] * off;
  }
  return misfit;
}

double MisfitOf(const SeenRow& row, const Mixture& mixture) {
  double misfit = 0;
  for (size_t c = 0; c < mixture.sum.size(); ++c) {
    if (row.precision[c] == 0) continue;
    const double off = row.got[c] - mixture.sum[c] / mixture.share;
    misfit += off * row.precision[c] * off;
  }
  return misfit;
}

SeenProblem MakeProblem(const AskedRows& asked, const Arithmetic& arithmetic,
                        std::span<const int64_t> wanted, std::span<const int64_t> controls,
                        const std::function<void(int64_t row, std::span<double> got)>& read) {
  SeenProblem problem = {asked};
  problem.kv_len = asked.c.kv_len;
  problem.channels = static_cast<size_t>(asked.c.v_dim);
  problem.step = std::max<int64_t>(16, PowerOfTwo((problem.kv_len + kMostSteps - 1) / kMostSteps));
  const int64_t steps = problem.kv_len / problem.step + 2;
  const int64_t bytes = 25 * problem.kv_len + 16 * steps * (asked.c.v_dim + 1);
  const int64_t most = std::clamp<int64_t>(kSeenBytes / bytes, 1, kMostSeenRows);
  const auto count = static_cast<int64_t>(wanted.size());
  const auto add = [&](int64_t index) {
    auto row = MakeRow(problem, arithmetic, index);
    if (!row) return;
    row->got.resize(problem.channels);
    read(row->row, row->got);
    row->error.resize(problem.channels);
    bool takes_part = false;
    for (size_t c = 0; c < problem.channels; ++c) {
      row->error[c] = row->got[c] - row->o[c];
      if (!std::isfinite(row->error[c])) row->got[c] = row->error[c] = row->precision[c] = 0;
      takes_part = takes_part || row->precision[c] > 0;
    }
    if (!takes_part) return;
    FillSums(&problem, &*row);
    problem.rows.push_back(std::move(*row));
  };
  // One row of each of as many equal parts of the wanted ones. The place within a part moves by the
  // golden ratio, so that a period of heads or queries does not leave out any.
  double place = 0.5;
  for (int64_t i = 0; i < std::min(most, count); ++i) {
    const int64_t begin = i * count / std::min(most, count);
    const int64_t end = (i + 1) * count / std::min(most, count);
    const auto at = begin + static_cast<int64_t>(place * static_cast<double>(end - begin));
    place += 0.6180339887498949;
    place -= std::floor(place);
    add(wanted[static_cast<size_t>(at)]);
  }
  problem.counted = problem.rows.size();
  for (const SeenRow& row : problem.rows) {
    for (const double precision : row.precision) problem.elements += precision > 0 ? 1 : 0;
    problem.misfit += MisfitOf(row, row.o);
  }
  for (const int64_t control : controls) add(control);
  const size_t rows = problem.counted;
  const size_t screened = std::min<size_t>(rows, 12);
  for (size_t i = 0; i < screened; ++i) problem.screen.push_back(i * rows / screened);
  return problem;
}

KeySums SumsOf(const SeenRow& row) {
  const size_t dv = row.o.size();
  const size_t n = row.weight.size();
  KeySums sums;
  sums.a.assign(n, 0), sums.d.assign(n, 0);
  std::vector<double> along(dv);
  double centre = 0;
  for (size_t c = 0; c < dv; ++c) {
    along[c] = row.error[c] * row.precision[c];
    centre += along[c] * row.o[c];
  }
  for (size_t j = 0; j < n; ++j) {
    const double weight = row.weight[j];
    if (weight == 0) continue;
    const double* v = row.Values(static_cast<int64_t>(j));
    double product = 0, square = 0;
    for (size_t c = 0; c < dv; ++c) {
      const double off = v[c] - row.o[c];
      product += along[c] * v[c];
      square += row.precision[c] * off * off;
    }
    sums.a[j] = weight * (product - centre);
    sums.d[j] = weight * weight * square;
  }
  return sums;
}

void DescribeWeights(const SeenProblem& problem, SeenKeys* seen) {
  seen->kv_len = problem.kv_len;
  seen->rows = static_cast<int64_t>(problem.counted);
  seen->elements = static_cast<int64_t>(problem.elements);
  seen->misfit = problem.misfit;
  const auto n = static_cast<size_t>(problem.kv_len);
  seen->block = PowerOfTwo((problem.kv_len + kPictureBlocks - 1) / kPictureBlocks);
  const int64_t blocks = (problem.kv_len + seen->block - 1) / seen->block;
  std::vector<double> a(n, 0), d(n, 0);
  std::map<std::pair<int64_t, int64_t>, HeadEstimates> heads;
  for (const SeenRow& row : std::span(problem.rows).first(problem.counted)) {
    const KeySums sums = SumsOf(row);
    for (size_t j = 0; j < n; ++j) a[j] += sums.a[j], d[j] += sums.d[j];
    HeadEstimates& head = heads[{row.query.batch, row.query.query_head}];
    head.batch = row.query.batch;
    head.head = row.query.query_head;
    head.queries.push_back(row.query.query);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t from = b * seen->block;
      // A block that holds visible keys and hidden ones speaks of its visible ones.
      Mixture of = {std::vector<double>(problem.channels, 0), 0};
      AddRange(problem, row, from, from + seen->block, KeySet::kVisible, 1, &of);
      if (of.share == 0) {
        AddRange(problem, row, from, from + seen->block, KeySet::kHidden, 1, &of);
      }
      double product = 0, square = 0;
      for (size_t c = 0; c < problem.channels; ++c) {
        const double g = of.sum[c] - of.share * row.o[c];
        product += g * row.precision[c] * row.error[c];
        square += g * row.precision[c] * g;
      }
      const bool is_told = square > 0 && std::isfinite(square);
      head.change.push_back(is_told ? product / square : 0);
      head.error.push_back(is_told ? 1 / std::sqrt(square) : kInfinite);
    }
  }
  for (auto& [index, head] : heads) seen->heads.push_back(std::move(head));
  std::vector<WeightEstimate> keys;
  for (size_t j = 0; j < n; ++j) {
    if (!(d[j] > 0) || !std::isfinite(d[j])) continue;
    keys.push_back({static_cast<int64_t>(j), 1, a[j] / d[j], 1 / std::sqrt(d[j])});
  }
  std::stable_sort(keys.begin(), keys.end(), [](const WeightEstimate& x, const WeightEstimate& y) {
    return std::fabs(x.Z()) > std::fabs(y.Z());
  });
  // Beyond what the largest of so many estimates comes to without a cause once in a thousand times.
  const double limit = std::sqrt(2 * std::log(2e3 * static_cast<double>(n)));
  for (const WeightEstimate& key : keys) {
    if (seen->keys.size() == kNamedKeys || !(std::fabs(key.Z()) > limit)) break;
    seen->keys.push_back(key);
  }
}

}  // namespace kvcheck
