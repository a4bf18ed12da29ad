#include "reference/model/forward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

#include "reference/attention/evaluate.h"
#include "reference/spec/error.h"

namespace kvcheck {

GrowingHead::GrowingHead(int64_t head_dim) { data_.k.dim = data_.v.dim = head_dim; }

void GrowingHead::Append(const double* k, const double* v) {
  const auto dim = static_cast<size_t>(data_.k.dim);
  const auto column = static_cast<size_t>(data_.kv_len % kKeyTile);
  if (column == 0) data_.k_tiles.resize(data_.k_tiles.size() + dim * kKeyTile);
  double* tile = data_.k_tiles.data() + data_.k_tiles.size() - dim * kKeyTile;
  double sum = 0;
  for (size_t i = 0; i < dim; ++i) {
    tile[i * kKeyTile + column] = k[i];
    sum += std::fabs(k[i]);
    if (std::isfinite(v[i])) data_.v_largest = std::max(data_.v_largest, std::fabs(v[i]));
  }
  data_.k.hi.insert(data_.k.hi.end(), k, k + dim);
  data_.v.hi.insert(data_.v.hi.end(), v, v + dim);
  data_.k_abs_sum.push_back(sum);
  ++data_.kv_len;
}

DecoderSequence::DecoderSequence(const DecoderWeights& weights, int threads)
    : weights_(weights), threads_(threads) {
  const DecoderConfig& c = weights.config;
  heads_.assign(static_cast<size_t>(c.layers() * c.kv_heads), GrowingHead(c.head_dim));
}

int64_t DecoderSequence::FirstKey(int64_t layer, int64_t position) const {
  const int64_t window = weights_.config.windows[static_cast<size_t>(layer)];
  return window == 0 ? 0 : std::max<int64_t>(0, position + 1 - window);
}

void DecoderSequence::Attend(int64_t layer, const Matrix& q, Matrix* out) const {
  const DecoderConfig& c = weights_.config;
  std::vector<int32_t> keys(static_cast<size_t>(length_ + q.rows));
  std::iota(keys.begin(), keys.end(), 0);
  const auto attend = [&](int64_t item) {
    const int64_t row = item / c.query_heads;
    const int64_t head = item % c.query_heads;
    const int64_t position = length_ + row;
    const int64_t first = FirstKey(layer, position);
    RowQuestion question;
    question.head = &Head(layer, head / (c.query_heads / c.kv_heads)).data();
    question.q = {q.Row(row) + head * c.head_dim, static_cast<size_t>(c.head_dim)};
    question.keys = std::span(keys).subspan(static_cast<size_t>(first),
                                            static_cast<size_t>(position + 1 - first));
    question.scale = c.scale();
    const RowAnswer<double> answer = Evaluate<double>(question);
    std::copy(answer.o.begin(), answer.o.end(), out->Row(row) + head * c.head_dim);
  };
  const int64_t items = q.rows * c.query_heads;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t item = next++; item < items; item = next++) attend(item);
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads_ && i < items; ++i) others.emplace_back(work);
  work();
}

Matrix DecoderSequence::Forward(std::span<const int64_t> tokens,
                                std::span<const LayerRows> stored) {
  const DecoderConfig& c = weights_.config;
  KVCHECK_CHECK(stored.empty() || static_cast<int64_t>(stored.size()) == c.layers(),
                "K and V of every layer, or of none");
  std::vector<int64_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), length_);
  trace_.assign(static_cast<size_t>(c.layers()), {});
  computed_.assign(static_cast<size_t>(c.layers()), {});
  Matrix x = weights_.Embed(tokens);
  for (int64_t layer = 0; layer < c.layers(); ++layer) {
    const auto l = static_cast<size_t>(layer);
    LayerTrace& trace = trace_[l];
    ProjectedValues projected = Project(weights_, layer, x, positions, nullptr);
    computed_[l] = {std::move(projected.k.value), std::move(projected.v.value)};
    const LayerRows& rows = stored.empty() ? computed_[l] : stored[l];
    KVCHECK_CHECK(rows.k.rows == x.rows && rows.v.rows == x.rows, "K and V of other tokens");
    for (int64_t h = 0; h < c.kv_heads; ++h) {
      GrowingHead& head = heads_[static_cast<size_t>(layer * c.kv_heads + h)];
      for (int64_t t = 0; t < x.rows; ++t) {
        head.Append(rows.k.Row(t) + h * c.head_dim, rows.v.Row(t) + h * c.head_dim);
      }
    }
    trace.q = std::move(projected.q.value);
    trace.out = Matrix(x.rows, c.query_width());
    Attend(layer, trace.q, &trace.out);
    trace.x = std::move(x);
    trace.mid = AddAttention(weights_, layer, trace.x, trace.out, nullptr).value;
    trace.inner = Inner(weights_, layer, trace.mid, nullptr).value;
    x = AddInner(weights_, layer, trace.mid, trace.inner, nullptr).value;
  }
  length_ += static_cast<int64_t>(tokens.size());
  final_x_ = std::move(x);
  return Logits(weights_, final_x_, nullptr).value;
}

}  // namespace kvcheck
