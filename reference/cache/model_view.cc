#include "reference/cache/model_view.h"

#include <algorithm>
#include <cstring>

#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

// Of a row that has, or has room for, this many tokens, by StoredBytes or RoomBytes.
int64_t RowBytes(const ModelState& state, const ModelRow& row, const CacheSetup& setup,
                 int64_t tokens, int64_t (*bytes)(const KvFormat&, int64_t, int64_t, int64_t)) {
  const auto part = [&](TokenPart part, const KvFormat& format, int64_t dim) {
    const bool again = state.regroup != RegroupRule::kNever;
    const int64_t coded = again ? CodedTokens(state, row, part) : ClosedTokens(format, tokens);
    return bytes(format, dim, tokens, coded);
  };
  return setup.kv_heads * (part(TokenPart::kKey, state.k, setup.k_dim) +
                           part(TokenPart::kValue, state.v, setup.v_dim));
}

}  // namespace

TokenRange VisibleUnder(const CacheRules& rules, const ModelState& state, size_t row,
                        int64_t position) {
  TokenRange range = Visible(state.layout, position);
  if (rules.visible) rules.visible(state, row, position, &range);
  return range;
}

void ModelView::Fill(const StoredVectors& vectors, bool is_key, size_t columns,
                     std::vector<std::byte>* array) const {
  const size_t heads = static_cast<size_t>(setup_->kv_heads);
  const int64_t dim = is_key ? setup_->k_dim : setup_->v_dim;
  const size_t bytes = TokenPlanesOf(vectors.format, dim).RowBytes();
  array->assign(state_->rows.size() * heads * columns * bytes, std::byte{0xff});
  for (size_t b = 0; b < state_->rows.size(); ++b) {
    const ModelRow& row = state_->rows[b];
    const auto show = [&](StoredToken token, size_t c) {
      const int32_t handle = is_key ? token.k : token.v;
      if (handle < 0) return;  // a faulty rule retains what is gone
      const std::byte* from = table_->Bytes(handle);
      // A rule that forgot to convert leaves vectors of another size, which are shown as they are.
      const size_t size = std::min(bytes, table_->VectorBytes(handle));
      for (size_t h = 0; h < heads; ++h) {
        std::memcpy(array->data() + ((b * heads + h) * columns + c) * bytes, from + h * size, size);
      }
    };
    size_t c = columns - static_cast<size_t>(row.retained.Count());
    for (size_t p = 0; p < row.seen.size(); ++p) show(row.seen[p], c - row.seen.size() + p);
    for (int64_t p = 0; p < row.retained.end; ++p) {
      if (row.retained.Contains(p)) show(row.tokens[static_cast<size_t>(p)], c++);
    }
  }
}

void ModelView::Show(const ModelState& state, const CacheSetup& setup, const VectorTable& table,
                     const CacheRules& rules, StepView* view) {
  state_ = &state;
  setup_ = &setup;
  table_ = &table;
  const size_t rows = state.rows.size();
  int64_t columns = 0;
  int64_t live_bytes = 0;
  for (const ModelRow& row : state.rows) {
    columns = std::max(columns, row.retained.Count() + std::ssize(row.seen));
    live_bytes += RowBytes(state, row, setup, row.retained.Count(), StoredBytes);
  }
  *view = {};
  view->rows = static_cast<int64_t>(rows);
  view->columns = columns;
  view->queries = state.queries;
  for (const bool is_key : {true, false}) {
    StoredVectors& vectors = is_key ? view->k : view->v;
    vectors.format = is_key ? state.k : state.v;
    std::vector<std::byte>& array = is_key ? k_array_ : v_array_;
    Fill(vectors, is_key, static_cast<size_t>(columns), &array);
    const Planes planes = TokenPlanesOf(vectors.format, is_key ? setup_->k_dim : setup_->v_dim);
    const auto bytes = static_cast<int64_t>(planes.RowBytes());
    const VectorStrides strides = {setup_->kv_heads * columns * bytes, columns * bytes, bytes};
    const std::byte* at = array.data();
    for (size_t i = 0; i < planes.size(); ++i) {
      if (planes[i].scope != PlaneScope::kRow) continue;  // those of the case
      vectors.planes[i] = {at, strides};
      at += planes[i].Bytes();
    }
  }
  const auto words = static_cast<size_t>(view->WordsPerRow());
  retained_.assign(rows * words, 0);
  visible_.assign(rows * static_cast<size_t>(state.queries) * words, 0);
  offsets_.resize(rows);
  unfed_.resize(rows);
  for (size_t b = 0; b < rows; ++b) {
    const ModelRow& row = state.rows[b];
    offsets_[b] = row.offset;
    unfed_[b] = row.unfed_padding;
    auto c = static_cast<size_t>(columns - row.retained.Count());
    for (int64_t p = 0; p < row.retained.end; ++p) {
      if (!row.retained.Contains(p)) continue;
      retained_[b * words + c / 64] |= uint64_t{1} << (c % 64);
      // Queries see the columns of `seen`, where there are some.
      const size_t at = c - row.seen.size();
      for (int64_t i = 0; i < row.query_tokens; ++i) {
        const int64_t position = row.retained.end - row.query_tokens + i;
        if (!VisibleUnder(rules, state, b, position).Contains(p)) continue;
        const auto l = static_cast<size_t>(row.first_query + i);
        visible_[(b * static_cast<size_t>(state.queries) + l) * words + at / 64] |= uint64_t{1}
                                                                                    << (at % 64);
      }
      ++c;
    }
  }
  CacheNumbers numbers;
  numbers.offsets = offsets_;
  numbers.size = SizeOf(state);
  numbers.live_bytes = live_bytes;
  // Capacity grows by whole steps, but not behind an extracted row.
  const int64_t step = setup_->growth_tokens;
  const int64_t capacity = state.no_tail ? columns : (columns + step - 1) / step * step;
  for (const ModelRow& row : state.rows) {
    numbers.capacity_bytes += RowBytes(state, row, setup, capacity, RoomBytes);
  }
  numbers.empty = IsEmpty(state);
  numbers.trimmable = IsTrimmable(state);
  if (rules.numbers) rules.numbers(state, &numbers);
  view->retained = KnownBits(retained_);
  view->visible = KnownBits(visible_);
  view->offsets = offsets_.data();
  view->unfed_padding = unfed_.data();
  view->layout = &state.layout;
  view->size = numbers.size;
  view->live_bytes = numbers.live_bytes;
  view->capacity_bytes = numbers.capacity_bytes;
  view->empty = numbers.empty ? Known::kYes : Known::kNo;
  view->trimmable = numbers.trimmable ? Known::kYes : Known::kNo;
  view->pending = state.pending ? Known::kYes : Known::kNo;
}

}  // namespace kvcheck
