// What a cache shows of itself: views into its storage, masks, numbers, attention; and what it does
// to memory that nobody may read.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "optimized/cache/optimized_cache.h"

namespace kvcheck::optimized {
namespace {

// Sets bits [begin, begin + count) of a bit row.
void SetBits(uint64_t* bits, int64_t begin, int64_t count) {
  while (count > 0) {
    const int64_t low = begin % 64;
    const int64_t piece = std::min(count, 64 - low);
    const uint64_t ones = ~uint64_t{0} >> (64 - piece);
    bits[begin / 64] |= ones << low;
    begin += piece;
    count -= piece;
  }
}

}  // namespace

StoredVectors OptimizedCache::ViewOf(bool is_key, int64_t columns) {
  TokenGroups& groups = is_key ? k_groups_ : v_groups_;
  if (groups.IsUsed()) return groups.Show(store_, offsets_, columns);
  const RowCodec& codec = is_key ? k_ : v_;
  const int first = FirstPlane(is_key);
  StoredVectors vectors;
  vectors.format = codec.format();
  const auto strides = [&](int plane, int64_t vector_bytes) {
    const int64_t token = store_.shape(plane).bytes;
    return VectorStrides{store_.slots() * token, vector_bytes, token};
  };
  const Planes planes = PlanesOf(codec.format(), is_key ? setup_->k_dim : setup_->v_dim);
  for (size_t i = 0; i < planes.size(); ++i) {
    const int plane = first + static_cast<int>(i);
    vectors.planes[i] = {store_.At(plane, 0, 0),
                         strides(plane, static_cast<int64_t>(planes[i].Bytes()))};
  }
  return vectors;
}

void OptimizedCache::FillMasks(int64_t columns) {
  const auto words = static_cast<size_t>((columns + 63) / 64);
  const auto queries = static_cast<size_t>(queries_);
  retained_bits_.assign(rows_.size() * words, 0);
  visible_bits_.assign(rows_.size() * queries * words, 0);
  const SlotMap map = Map();
  for (size_t b = 0; b < rows_.size(); ++b) {
    const CacheRow& row = rows_[b];
    uint64_t* bits = retained_bits_.data() + b * words;
    const auto set = [&](int64_t, int64_t slot, int64_t count) { SetBits(bits, slot, count); };
    map.ForEachRun(Retained(row), set);
    bits = visible_bits_.data() + (b * queries + static_cast<size_t>(row.first_query)) * words;
    for (int64_t p = row.offset - row.query_tokens; p < row.offset; ++p, bits += words) {
      map.ForEachRun({layout_.keep, FirstVisible(layout_, p), p + 1}, set);
    }
  }
}

int64_t OptimizedCache::Size() const {
  int64_t size = 0;
  for (const CacheRow& row : rows_) {
    if (row.offset == 0) continue;
    const int64_t from = std::max(row.from, FirstVisible(layout_, row.offset - 1));
    size = std::max(size, TokenRange{layout_.keep, from, row.offset}.Count());
  }
  return size;
}

void OptimizedCache::Observe(StepView* view) {
  int64_t columns = 0;
  int64_t live_bytes = 0;
  offsets_.resize(rows_.size());
  unfed_.resize(rows_.size());
  for (size_t b = 0; b < rows_.size(); ++b) {
    const CacheRow& row = rows_[b];
    columns = std::max(columns, std::min(row.offset, store_.slots()));
    for (const PlaneShape& plane : store_.shape()) {
      live_bytes += plane.Entries(Retained(row).Count()) * plane.bytes;
    }
    offsets_[b] = row.offset;
    unfed_[b] = row.unfed_padding;
  }
  FillMasks(columns);
  const bool empty = IsEmpty();
  *view = {};
  view->rows = row_count();
  view->columns = columns;
  view->queries = queries_;
  view->k = ViewOf(true, columns);
  view->v = ViewOf(false, columns);
  view->retained = KnownBits(retained_bits_);
  view->visible = KnownBits(visible_bits_);
  view->offsets = offsets_.data();
  view->unfed_padding = unfed_.data();
  view->layout = &layout_;
  view->size = Size();
  view->live_bytes = live_bytes;
  view->capacity_bytes = store_.Bytes();
  view->empty = empty ? Known::kYes : Known::kNo;
  view->trimmable = empty || Reach(1) == 1 ? Known::kYes : Known::kNo;
  view->pending = pending_ ? Known::kYes : Known::kNo;
}

void OptimizedCache::PoisonUnused() {
  const SlotMap map = Map();
  for (int64_t b = 0; b < row_count(); ++b) {
    // The kept tokens and at most two pieces of the ring, by slot.
    std::array<std::pair<int64_t, int64_t>, 4> used;
    size_t count = 0;
    map.ForEachRun(Retained(rows_[static_cast<size_t>(b)]),
                   [&](int64_t, int64_t slot, int64_t slots) {
                     size_t i = count++;
                     for (; i > 0 && used[i - 1].first > slot; --i) used[i] = used[i - 1];
                     used[i] = {slot, slots};
                   });
    used[count++] = {map.capacity, 0};
    int64_t free = 0;
    for (size_t i = 0; i < count; ++i) {
      for (int p = 0; p < kPlanes; ++p) {
        if (store_.shape(p).IsGrouped()) continue;
        const int64_t bytes = (used[i].first - free) * store_.shape(p).bytes;
        if (bytes > 0) std::memset(store_.At(p, b, free), 0xff, static_cast<size_t>(bytes));
      }
      free = used[i].first + used[i].second;
    }
    for (int p = 0; p < kPlanes; ++p) {
      const PlaneShape& plane = store_.shape(p);
      const int64_t entries = plane.Entries(rows_[static_cast<size_t>(b)].offset);
      const int64_t bytes = (store_.Room(p) - entries) * plane.bytes;
      if (plane.IsGrouped() && bytes > 0) {
        std::memset(store_.At(p, b, entries), 0xff, static_cast<size_t>(bytes));
      }
    }
  }
}

std::string_view OptimizedCache::WhyNotAttend(const AttendRequest& request) const {
  if (pending_) return "a prepared prefill is pending: append or finalize first";
  if (queries_ == 0) return "there is no append whose queries could attend";
  if (request.dtype != setup_->x || request.query_heads != setup_->query_heads ||
      request.rows != row_count() || request.queries != queries_) {
    return "queries of another type or shape than the last append's";
  }
  return request.window && *request.window < 1 ? "a window holds at least 1 token" : "";
}

void OptimizedCache::TakeQueries(int64_t b, const AttendRequest& request) {
  const auto row_index = static_cast<size_t>(b);
  const CacheRow& row = rows_[row_index];
  const TokenRange range = Retained(row);
  const SlotMap map = Map();
  AttendedOperand& k = attend_.k[row_index];
  AttendedOperand& v = attend_.v[row_index];
  k.Take(store_, map, b, true, k_, k_groups_, setup_->k_dim, setup_->kv_heads, range);
  v.Take(store_, map, b, false, v_, v_groups_, setup_->v_dim, setup_->kv_heads, range);
  std::vector<ColumnRun>& columns = attend_.columns[row_index];
  columns.clear();
  map.ForEachRun(range, [&](int64_t position, int64_t slot, int64_t count) {
    columns.push_back({position, slot, count});
  });
  // Queries of padding see nothing.
  std::vector<VisibleKeys>& visible = attend_.visible[row_index];
  visible.assign(static_cast<size_t>(queries_), {});
  for (int64_t index = 0; index < row.query_tokens; ++index) {
    const int64_t position = row.offset - row.query_tokens + index;
    VisibleKeys& keys = visible[static_cast<size_t>(row.first_query + index)];
    keys = {layout_.keep, FirstVisible(layout_, position), position + 1, nullptr, false};
    if (request.window && *request.window <= position) {
      keys.from = std::max(keys.from, position + 1 - *request.window);
    }
  }
  const int64_t queries = setup_->query_heads * queries_;
  SequenceQueries& to = attend_.batch[row_index];
  to = {};
  to.k = k.heads();
  to.v = v.heads();
  to.columns = columns;
  to.queries = queries_;
  to.q = attend_.q.data() + b * queries * setup_->k_dim;
  to.q_stride = setup_->k_dim;
  to.q_head_stride = queries_ * setup_->k_dim;
  to.visible = visible.data();
  to.sinks = request.sinks;
  to.out = attend_.out.data() + b * queries * setup_->v_dim;
  to.out_stride = setup_->v_dim;
  to.out_head_stride = queries_ * setup_->v_dim;
}

OpResult OptimizedCache::Attend(const AttendRequest& request, std::byte* out) {
  if (const auto why = WhyNotAttend(request); !why.empty()) return OpResult::Refuse(why);
  const int64_t dk = setup_->k_dim;
  const int64_t dv = setup_->v_dim;
  const auto element = static_cast<int64_t>(SizeInBytes(request.dtype));
  const int64_t queries = row_count() * setup_->query_heads * queries_;
  attend_.q_codec.Start(PlainFormat{request.dtype}, request.dtype, dk);
  attend_.out_codec.Start(PlainFormat{request.dtype}, DType::kFloat32, dv);
  attend_.q.resize(static_cast<size_t>(queries * dk));
  attend_.out.resize(static_cast<size_t>(queries * dv));
  StoredRowsView q;
  q.codes = request.q;
  q.code_stride = dk * element;
  attend_.q_codec.Decode(q, queries, attend_.q.data());
  const auto rows = static_cast<size_t>(row_count());
  if (attend_.k.size() < rows) {
    attend_.k.resize(rows);
    attend_.v.resize(rows);
    attend_.columns.resize(rows);
    attend_.visible.resize(rows);
  }
  attend_.batch.resize(rows);
  for (int64_t b = 0; b < row_count(); ++b) TakeQueries(b, request);
  AttentionShape shape;
  shape.query_heads = setup_->query_heads;
  shape.kv_heads = setup_->kv_heads;
  shape.k_dim = dk;
  shape.v_dim = dv;
  shape.k = AttendedOperand::FormatOf(k_format_);
  shape.v = AttendedOperand::FormatOf(v_format_);
  shape.scale = request.scale;
  // What the plan says of one side's formats it says of both.
  shape.factors = !HasResidual(k_format_) && !HasResidual(v_format_);
  attend_.attention.Run(shape, attend_.batch);
  StoredRows to;
  to.codes = out;
  to.code_stride = dv * element;
  attend_.out_codec.Encode(reinterpret_cast<const std::byte*>(attend_.out.data()), dv * 4, queries,
                           to);
  int64_t positions = 1;
  for (const CacheRow& row : rows_) positions = std::max(positions, row.offset);
  OpResult result;
  // Attention was over f32 decoded from the formats of single tokens.
  if (HasResidual(k_format_)) shape.k = TokenFormatOf(k_format_);
  if (HasResidual(v_format_)) shape.v = TokenFormatOf(v_format_);
  result.plan = &attend_.plan.Of(shape, positions);
  return result;
}

}  // namespace kvcheck::optimized
