#include "tools/agree/recorder.h"

#include <algorithm>

namespace kvcheck {
namespace {

void AppendRow(const float* from, int64_t token, int64_t width, std::vector<float>* to) {
  const float* row = from + token * width;
  to->insert(to->end(), row, row + width);
}

void Start(const KvFormat& format, int64_t head_dim, int64_t heads, StoredHistory* history) {
  history->format = format;
  history->planes = PlanesOf(format, head_dim);
  for (auto& plane : history->bytes) plane.resize(static_cast<size_t>(heads));
}

void AppendStored(const StoredVectors& vectors, int64_t row, int64_t heads, int64_t column,
                  StoredHistory* history) {
  for (size_t i = 0; i < history->planes.size(); ++i) {
    const auto bytes = static_cast<ptrdiff_t>(history->planes[i].Bytes());
    for (int64_t h = 0; h < heads; ++h) {
      const std::byte* from = vectors.planes[i].At(row, h, column);
      auto& to = history->bytes[i][static_cast<size_t>(h)];
      to.insert(to.end(), from, from + bytes);
    }
  }
}

}  // namespace

Recorder::Recorder(const DecoderConfig& config, int64_t rows, const Plan& otherwise)
    : config_(config), otherwise_(otherwise), rows_(static_cast<size_t>(rows)) {
  for (SequenceRecord& row : rows_) row.layers.resize(static_cast<size_t>(config.layers()));
}

void Recorder::Expect(std::span<const int64_t> positions, int64_t columns) {
  positions_ = positions;
  columns_ = columns;
}

void Recorder::Layer(const optimized::DecoderLayerView& view) {
  StepView state;
  view.cache->Observe(&state);
  const Plan& plan = view.plan == nullptr ? otherwise_ : *view.plan;
  for (size_t b = 0; b < rows_.size(); ++b) {
    SequenceRecord& row = rows_[b];
    LayerRecord& layer = row.layers[static_cast<size_t>(view.layer)];
    if (layer.k_stored.planes.size() == 0) {
      Start(state.k.format, config_.head_dim, config_.kv_heads, &layer.k_stored);
      Start(state.v.format, config_.head_dim, config_.kv_heads, &layer.v_stored);
    }
    if (view.layer == 0 && row.pending > 0 && !(row.plan == plan) && judge_) {
      judge_(static_cast<int64_t>(b));
    }
    if (row.pending == 0) row.plan = plan;
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t token = static_cast<int64_t>(b) * columns_ + c;
      const int64_t position = positions_[static_cast<size_t>(token)];
      if (position == optimized::kPadding) continue;
      AppendRow(view.x, token, config_.hidden, &layer.x);
      AppendRow(view.q, token, config_.query_width(), &layer.q);
      AppendRow(view.k, token, config_.kv_width(), &layer.k);
      AppendRow(view.v, token, config_.kv_width(), &layer.v);
      AppendRow(view.out, token, config_.query_width(), &layer.out);
      AppendRow(view.mid, token, config_.hidden, &layer.mid);
      AppendRow(view.inner, token, config_.intermediate, &layer.inner);
      AppendRow(view.next, token, config_.hidden, &layer.next);
      const int64_t column = position < state.columns ? position : position % state.columns;
      AppendStored(state.k, static_cast<int64_t>(b), config_.kv_heads, column, &layer.k_stored);
      AppendStored(state.v, static_cast<int64_t>(b), config_.kv_heads, column, &layer.v_stored);
    }
    if (view.layer == 0) row.live_bytes = 0;
    row.live_bytes += state.live_bytes;
  }
}

void Recorder::Logits(std::span<const float> logits) {
  for (size_t b = 0; b < rows_.size(); ++b) {
    SequenceRecord& row = rows_[b];
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t token = static_cast<int64_t>(b) * columns_ + c;
      if (positions_[static_cast<size_t>(token)] == optimized::kPadding) continue;
      AppendRow(logits.data(), token, config_.vocabulary, &row.logits);
      ++row.pending;
    }
  }
}

void Recorder::Clear(int64_t index) {
  SequenceRecord& row = rows_[static_cast<size_t>(index)];
  row.first += row.pending;
  row.pending = 0;
  row.logits.clear();
  for (LayerRecord& layer : row.layers) {
    for (auto* values : {&layer.x, &layer.q, &layer.k, &layer.v, &layer.out, &layer.mid,
                         &layer.inner, &layer.next}) {
      values->clear();
    }
  }
}

}  // namespace kvcheck
