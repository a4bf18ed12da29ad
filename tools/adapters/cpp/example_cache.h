// The example's caches: batches of rows (example_row.h), each of which has its own slots, so that
// no row waits for another. Layouts linear, linear:w and ring; K and V are stored as they are
// given.

#ifndef KVCHECK_EXAMPLE_CACHE_H_
#define KVCHECK_EXAMPLE_CACHE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "example_attention.h"
#include "example_record.h"
#include "example_row.h"
#include "kvcheck_adapter.h"

class ExampleCache : public kvcheck_adapter::Cache {
 public:
  using Array = kvcheck_adapter::Array;
  using Refused = kvcheck_adapter::Refused;

  // Errors: Refused, for a layout, rows or a padding that are not legal; Unsupported.
  ExampleCache(const kvcheck_adapter::Setup& setup, const kvcheck_adapter::NewCache& request)
      : setup_(setup), layout_(request.layout.text) {
    const kvcheck_adapter::Layout& layout = request.layout;
    shape_.is_ring = layout.kind == "ring";
    if (layout.kind != "linear" && !shape_.is_ring) {
      throw kvcheck_adapter::Unsupported("layout " + layout.text);
    }
    shape_.window = layout.w.value_or(0);
    shape_.keep = layout.keep.value_or(0);
    if ((layout.w || shape_.is_ring) && shape_.window < 1) throw Refused("a window below 1");
    if (shape_.keep < 0 || (shape_.is_ring && shape_.keep >= shape_.window)) {
      throw Refused("a ring keeps at least 0 tokens, and fewer than its window");
    }
    if (request.rows < 0) throw Refused("a negative number of rows");
    const std::vector<int64_t>& padding = request.left_padding;
    if (!padding.empty() && static_cast<int64_t>(padding.size()) != request.rows) {
      throw Refused("left padding of another number of rows");
    }
    for (const int64_t columns : padding) {
      if (columns < 0) throw Refused("a negative left padding");
    }
    if (request.k_format != setup.x || request.v_format != setup.x) {
      throw kvcheck_adapter::Unsupported("stored in another type than given");
    }
    const int64_t element = kvcheck_adapter::SizeOf(setup.x);
    shape_.k_bytes = setup.kv_heads * setup.k_dim * element;
    shape_.v_bytes = setup.kv_heads * setup.v_dim * element;
    shape_.growth_tokens = setup.growth_tokens;
    rows_.resize(static_cast<size_t>(request.rows));
    for (size_t b = 0; b < rows_.size(); ++b) {
      rows_[b].next = shape_.keep;
      rows_[b].unfed = padding.empty() ? 0 : padding[b];
    }
  }

  void Append(const Array& k, const Array& v) override {
    if (k.type != setup_.x || v.type != setup_.x) throw Refused("columns of another type");
    const int64_t columns = k.extents.size() == 4 ? k.extents[2] : 0;
    const int64_t rows = static_cast<int64_t>(rows_.size());
    if (k.extents != std::vector<int64_t>{rows, setup_.kv_heads, columns, setup_.k_dim} ||
        v.extents != std::vector<int64_t>{rows, setup_.kv_heads, columns, setup_.v_dim}) {
      throw Refused("columns of another shape");
    }
    for (int64_t b = 0; b < rows; ++b) {
      Row& row = rows_[static_cast<size_t>(b)];
      const int64_t padding = std::min(row.unfed, columns);
      const int64_t tokens =
          pending_ ? std::min(columns - padding, row.to_come) : columns - padding;
      row.unfed -= padding;
      row.to_come -= pending_ ? tokens : 0;
      row.first_query = padding;
      row.query_tokens = tokens;
      const std::vector<int64_t> slots = row.Add(shape_, tokens);
      for (size_t i = 0; i < slots.size(); ++i) {
        const int64_t column = padding + static_cast<int64_t>(i);
        Put(k, b, column, shape_.k_bytes / setup_.kv_heads, slots[i], &row.k);
        Put(v, b, column, shape_.v_bytes / setup_.kv_heads, slots[i], &row.v);
      }
    }
    queries_ = columns;
  }

  void Prepare(const std::vector<int64_t>& lengths, int64_t /*columns*/) override {
    RefusePending();
    if (lengths.size() != rows_.size()) throw Refused("lengths of another number of rows");
    for (const int64_t length : lengths) {
      if (length < 0) throw Refused("a negative length");
    }
    for (size_t b = 0; b < rows_.size(); ++b) rows_[b].to_come = lengths[b];
    pending_ = true;
    EndStep();
  }

  void Finalize() override {
    if (!pending_) return;
    for (const Row& row : rows_) {
      if (row.to_come > 0) throw Refused("tokens of the prefill have not arrived");
    }
    pending_ = false;
    EndStep();
  }

  int64_t Trim(int64_t count) override {
    RefusePending();
    if (count < 0) throw Refused("a negative number of tokens");
    const int64_t reach = TrimReach(count);
    for (Row& row : rows_) row.ReturnTo(shape_, row.offset - reach);
    EndStep();
    return reach;
  }

  void Filter(const std::vector<int64_t>& rows) override {
    RefusePending();
    std::vector<Row> chosen;
    for (const int64_t row : rows) chosen.push_back(RowAt(row));
    rows_ = std::move(chosen);
    EndStep();
  }

  void Extend(const kvcheck_adapter::Cache& other) override {
    const ExampleCache& more = Compatible(other);
    const std::vector<Row> rows = more.rows_;  // it may be this very cache
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    EndStep();
  }

  std::unique_ptr<kvcheck_adapter::Cache> Extract(int64_t row) const override {
    RefusePending();
    auto single = std::make_unique<ExampleCache>(*this);
    single->rows_ = {RowAt(row)};
    single->rows_[0].unfed = 0;
    single->rows_[0].Shrink(shape_);
    single->EndStep();
    return single;
  }

  std::unique_ptr<kvcheck_adapter::Cache> Copy() const override {
    RefusePending();
    auto copy = std::make_unique<ExampleCache>(*this);
    copy->EndStep();
    return copy;
  }

  // is_broken: takes the slots of a ring as if they were in the order of its tokens, which they are
  // until it has gone round once.
  static std::unique_ptr<ExampleCache> Merge(
      const std::vector<const kvcheck_adapter::Cache*>& caches, bool is_broken) {
    if (caches.empty()) throw Refused("nothing to merge");
    auto batch = std::make_unique<ExampleCache>(static_cast<const ExampleCache&>(*caches[0]));
    batch->rows_.clear();
    for (const kvcheck_adapter::Cache* cache : caches) {
      const ExampleCache& single = static_cast<const ExampleCache&>(*caches[0]).Compatible(*cache);
      if (single.rows_.size() != 1) throw Refused("merge takes caches of one row");
      batch->rows_.push_back(single.rows_[0]);
      if (is_broken) batch->rows_.back().next = batch->shape_.keep;
    }
    batch->EndStep();
    return batch;
  }

  std::vector<std::byte> Save() const override {
    RefusePending();
    RecordWriter record;
    for (const std::string& text : {layout_, setup_.x}) record.Text(text);
    for (const int64_t number : {setup_.kv_heads, setup_.k_dim, setup_.v_dim}) {
      record.Integer(number);
    }
    record.Integer(static_cast<int64_t>(rows_.size()));
    for (const Row& row : rows_) {
      for (const int64_t n : {row.capacity, row.slots, row.next, row.offset, row.unfed}) {
        record.Integer(n);
      }
      record.Bytes(row.k);
      record.Bytes(row.v);
    }
    return record.Finish();
  }

  // Errors: Refused, for what Save did not write, or for caches of another setup.
  static std::unique_ptr<ExampleCache> Load(const kvcheck_adapter::Setup& setup,
                                            const std::vector<std::byte>& bytes) {
    RecordReader record(bytes);
    const std::string layout = record.Text(), x = record.Text();
    const int64_t kv_heads = record.Integer(), k_dim = record.Integer(), v_dim = record.Integer();
    if (x != setup.x || kv_heads != setup.kv_heads || k_dim != setup.k_dim ||
        v_dim != setup.v_dim) {
      throw Refused("what was saved has other heads, dimensions or another type");
    }
    auto cache = std::make_unique<ExampleCache>(
        setup, kvcheck_adapter::NewCache{kvcheck_adapter::Layout::Parse(layout), x, x, 0, {}});
    for (int64_t rows = record.Integer(); rows > 0; --rows) {
      Row row;
      for (int64_t* n : {&row.capacity, &row.slots, &row.next, &row.offset, &row.unfed}) {
        *n = record.Integer();
      }
      row.k = record.Bytes();
      row.v = record.Bytes();
      cache->rows_.push_back(std::move(row));
    }
    return cache;
  }

  kvcheck_adapter::Attended Attend(const kvcheck_adapter::Query& query) override {
    RefusePending();
    if (queries_ == 0) throw Refused("no append has queries");
    const Array& q = query.q;
    if (q.type != setup_.x ||
        q.extents != std::vector<int64_t>{static_cast<int64_t>(rows_.size()), setup_.query_heads,
                                          queries_, setup_.k_dim}) {
      throw Refused("queries of another type or shape than the last append");
    }
    if (query.window && *query.window < 1) throw Refused("a window below 1");
    const Number number = NumberOf(setup_.x);
    const int64_t element = kvcheck_adapter::SizeOf(setup_.x);
    Array out(setup_.x, {q.extents[0], setup_.query_heads, queries_, setup_.v_dim});
    for (int64_t i = 0; i < q.extents[0] * setup_.query_heads * queries_; ++i) {
      const int64_t column = i % queries_, h = i / queries_ % setup_.query_heads;
      const Row& row = rows_[static_cast<size_t>(i / queries_ / setup_.query_heads)];
      const int64_t position = QueryPosition(row, column);
      if (position < 0) continue;
      keys_.clear();
      const std::vector<int64_t> order = row.Order(shape_);
      for (size_t t = 0; t < order.size(); ++t) {
        if (Sees(position, row.PositionOf(shape_, t), query.window)) keys_.push_back({order[t], 0});
      }
      const int64_t head = h / (setup_.query_heads / setup_.kv_heads) * element;
      const Vectors k{number, row.k.data() + head * setup_.k_dim, shape_.k_bytes, setup_.k_dim};
      const Vectors v{number, row.v.data() + head * setup_.v_dim, shape_.v_bytes, setup_.v_dim};
      const float* sink = query.sinks.empty() ? nullptr : &query.sinks[static_cast<size_t>(h)];
      attention_.Attend(number, q.bytes.data() + i * setup_.k_dim * element, k, v, keys_,
                        query.scale, sink, number, out.bytes.data() + i * setup_.v_dim * element);
    }
    return {std::move(out), "", ""};
  }

  kvcheck_adapter::State Observe() const override {
    const int64_t rows = static_cast<int64_t>(rows_.size());
    int64_t columns = 0;
    for (const Row& row : rows_) columns = std::max(columns, row.slots);
    kvcheck_adapter::State state;
    state.rows = rows;
    state.queries = queries_;
    state.layout = layout_;
    state.k_format = state.v_format = setup_.x;
    Array k(setup_.x, {rows, setup_.kv_heads, columns, setup_.k_dim});
    Array v(setup_.x, {rows, setup_.kv_heads, columns, setup_.v_dim});
    Array retained("b8", {rows, columns}), visible("b8", {rows, queries_, columns});
    std::vector<int64_t> offsets, unfed;
    int64_t size = 0, live = 0, capacity = 0;
    bool is_empty = true;
    for (int64_t b = 0; b < rows; ++b) {
      const Row& row = rows_[static_cast<size_t>(b)];
      for (int64_t slot = 0; slot < row.slots; ++slot) {
        Take(row.k, slot, b, shape_.k_bytes / setup_.kv_heads, &k);
        Take(row.v, slot, b, shape_.v_bytes / setup_.kv_heads, &v);
      }
      const std::vector<int64_t> order = row.Order(shape_);
      int64_t seen = 0;
      for (size_t t = 0; t < order.size(); ++t) {
        const int64_t position = row.PositionOf(shape_, t);
        retained.bytes[static_cast<size_t>(b * columns + order[t])] = std::byte{1};
        seen += Sees(row.offset - 1, position, {}) ? 1 : 0;
        for (int64_t n = 0; n < queries_; ++n) {
          if (!Sees(QueryPosition(row, n), position, {})) continue;
          const int64_t at = (b * queries_ + n) * columns + order[t];
          visible.bytes[static_cast<size_t>(at)] = std::byte{1};
        }
      }
      size = std::max(size, seen);
      live += row.slots * (shape_.k_bytes + shape_.v_bytes);
      capacity += row.capacity * (shape_.k_bytes + shape_.v_bytes);
      is_empty = is_empty && row.offset == 0;
      offsets.push_back(row.offset);
      unfed.push_back(row.unfed);
    }
    state.k = {std::move(k)};
    state.v = {std::move(v)};
    state.retained = std::move(retained);
    state.visible = std::move(visible);
    state.offsets = std::move(offsets);
    state.unfed = std::move(unfed);
    state.size = size;
    state.live_bytes = live;
    state.capacity_bytes = capacity;
    state.empty = is_empty;
    state.trimmable = is_empty || TrimReach(1) == 1;
    state.pending = pending_;
    return state;
  }

 private:
  void RefusePending() const {
    if (pending_) throw Refused("a prepared prefill is pending");
  }
  const ExampleCache& Compatible(const kvcheck_adapter::Cache& cache) const {
    const auto& other = static_cast<const ExampleCache&>(cache);
    RefusePending();
    other.RefusePending();
    if (other.layout_ != layout_) throw Refused("layouts differ");
    return other;
  }
  const Row& RowAt(int64_t row) const {
    if (row < 0 || row >= static_cast<int64_t>(rows_.size())) throw Refused("a row out of range");
    return rows_[static_cast<size_t>(row)];
  }
  void EndStep() {
    queries_ = 0;
    for (Row& row : rows_) row.first_query = row.query_tokens = 0;
  }
  int64_t TrimReach(int64_t count) const {
    int64_t reach = rows_.empty() ? 0 : count;
    for (const Row& row : rows_) reach = std::min(reach, row.offset);
    const auto can = [&](const Row& row) { return row.CanReturnTo(shape_, row.offset - reach); };
    while (reach > 0 && !std::all_of(rows_.begin(), rows_.end(), can)) --reach;
    return reach;
  }

  // -1: padding.
  static int64_t QueryPosition(const Row& row, int64_t column) {
    const int64_t token = column - row.first_query;
    return token < 0 || token >= row.query_tokens ? -1 : row.offset - row.query_tokens + token;
  }
  bool Sees(int64_t query, int64_t key, const std::optional<int64_t>& window) const {
    if (key > query) return false;
    const bool is_kept = shape_.is_ring && key < shape_.keep;
    if (shape_.window > 0 && !is_kept && key <= query - (shape_.window - shape_.keep)) return false;
    return is_kept || !window || key > query - *window;
  }

  // Between an array (B, heads, columns, channels) and a slot; bytes: of one head.
  void Put(const Array& from, int64_t b, int64_t column, int64_t bytes, int64_t slot,
           std::vector<std::byte>* to) const {
    for (int64_t h = 0; h < setup_.kv_heads; ++h) {
      std::memcpy(
          to->data() + (slot * setup_.kv_heads + h) * bytes,
          from.bytes.data() + ((b * setup_.kv_heads + h) * from.extents[2] + column) * bytes,
          static_cast<size_t>(bytes));
    }
  }
  void Take(const std::vector<std::byte>& from, int64_t slot, int64_t b, int64_t bytes,
            Array* to) const {
    for (int64_t h = 0; h < setup_.kv_heads; ++h) {
      std::memcpy(to->bytes.data() + ((b * setup_.kv_heads + h) * to->extents[2] + slot) * bytes,
                  from.data() + (slot * setup_.kv_heads + h) * bytes, static_cast<size_t>(bytes));
    }
  }

  kvcheck_adapter::Setup setup_;
  std::string layout_;
  RowShape shape_;
  std::vector<Row> rows_;
  bool pending_ = false;
  int64_t queries_ = 0;  // columns of the last append, while they can be asked about
  PlainAttention attention_;
  std::vector<VisibleKey> keys_;
};

#endif  // KVCHECK_EXAMPLE_CACHE_H_
