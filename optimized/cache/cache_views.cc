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

StoredVectors OptimizedCache::ViewOf(bool is_key) const {
  const RowCodec& codec = is_key ? k_ : v_;
  const int first = FirstPlane(is_key);
  StoredVectors vectors;
  vectors.format = codec.format();
  const auto strides = [&](int plane, int64_t vector_bytes) {
    const int64_t token = store_.token_bytes()[static_cast<size_t>(plane)];
    return VectorStrides{store_.slots() * token, vector_bytes, token};
  };
  vectors.codes = store_.At(first, 0, 0);
  vectors.strides = strides(first, codec.bytes().codes);
  if (codec.bytes().scales > 0) {
    vectors.scales = store_.At(first + 1, 0, 0);
    vectors.biases = store_.At(first + 2, 0, 0);
    vectors.scale_strides = strides(first + 1, codec.bytes().scales);
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
  int64_t retained = 0;
  offsets_.resize(rows_.size());
  unfed_.resize(rows_.size());
  for (size_t b = 0; b < rows_.size(); ++b) {
    const CacheRow& row = rows_[b];
    columns = std::max(columns, std::min(row.offset, store_.slots()));
    retained += Retained(row).Count();
    offsets_[b] = row.offset;
    unfed_[b] = row.unfed_padding;
  }
  FillMasks(columns);
  int64_t token_bytes = 0;
  for (const int64_t bytes : store_.token_bytes()) token_bytes += bytes;
  const bool empty = IsEmpty();
  *view = {};
  view->rows = row_count();
  view->columns = columns;
  view->queries = queries_;
  view->k = ViewOf(true);
  view->v = ViewOf(false);
  view->retained = KnownBits(retained_bits_);
  view->visible = KnownBits(visible_bits_);
  view->offsets = offsets_.data();
  view->unfed_padding = unfed_.data();
  view->layout = &layout_;
  view->size = Size();
  view->live_bytes = retained * token_bytes;
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
        const int64_t bytes = (used[i].first - free) * store_.token_bytes()[static_cast<size_t>(p)];
        if (bytes > 0) std::memset(store_.At(p, b, free), 0xff, static_cast<size_t>(bytes));
      }
      free = used[i].first + used[i].second;
    }
  }
}

void OptimizedCache::DecodeTokens(int64_t b, int64_t head) {
  const TokenRange range = Retained(rows_[static_cast<size_t>(b)]);
  for (const bool is_key : {true, false}) {
    const RowCodec& codec = is_key ? k_ : v_;
    const int64_t dim = is_key ? setup_->k_dim : setup_->v_dim;
    std::vector<float>& values = is_key ? attend_.k : attend_.v;
    values.resize(static_cast<size_t>(range.Count() * dim));
    float* to = values.data();
    Map().ForEachRun(range, [&](int64_t, int64_t slot, int64_t count) {
      StoredRowsView rows = std::as_const(store_).Vectors(FirstPlane(is_key), b, slot);
      for (int64_t h = 0; h < head; ++h) rows.NextHead(codec.bytes());
      codec.Decode(rows, count, to);
      to += count * dim;
    });
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

OpResult OptimizedCache::Attend(const AttendRequest& request, std::byte* out) {
  if (const auto why = WhyNotAttend(request); !why.empty()) return OpResult::Refuse(why);
  const int64_t dk = setup_->k_dim;
  const int64_t dv = setup_->v_dim;
  const auto element = static_cast<int64_t>(SizeInBytes(request.dtype));
  const int64_t group = setup_->query_heads / setup_->kv_heads;
  attend_.q_codec.Start(PlainFormat{request.dtype}, request.dtype, dk);
  attend_.out_codec.Start(PlainFormat{request.dtype}, DType::kFloat32, dv);
  attend_.q.resize(static_cast<size_t>(queries_ * dk));
  attend_.out.resize(static_cast<size_t>(queries_ * dv));
  for (int64_t b = 0; b < row_count(); ++b) {
    const CacheRow& row = rows_[static_cast<size_t>(b)];
    const TokenRange range = Retained(row);
    attend_.scores.resize(static_cast<size_t>(range.Count()));
    for (int64_t h = 0; h < setup_->query_heads; ++h) {
      if (h % group == 0 && row.query_tokens > 0) DecodeTokens(b, h / group);
      const RowTokens tokens = {attend_.k.data(), attend_.v.data(), dk, dv, range};
      const int64_t first = (b * setup_->query_heads + h) * queries_;
      StoredRowsView q;
      q.codes = request.q + first * dk * element;
      q.code_stride = dk * element;
      attend_.q_codec.Decode(q, queries_, attend_.q.data());
      for (int64_t l = 0; l < queries_; ++l) {
        float* to = attend_.out.data() + l * dv;
        const int64_t index = l - row.first_query;
        if (index < 0 || index >= row.query_tokens) {
          std::fill(to, to + dv, 0.0f);
          continue;
        }
        const int64_t position = row.offset - row.query_tokens + index;
        TokenRange visible = {layout_.keep, FirstVisible(layout_, position), position + 1};
        if (request.window) visible.from = std::max(visible.from, position + 1 - *request.window);
        AttendRow(attend_.q.data() + l * dk, tokens, visible, static_cast<float>(request.scale),
                  request.sinks == nullptr ? nullptr : request.sinks + h, attend_.scores.data(),
                  to);
      }
      StoredRows to;
      to.codes = out + first * dv * element;
      to.code_stride = dv * element;
      attend_.out_codec.Encode(reinterpret_cast<const std::byte*>(attend_.out.data()), dv * 4,
                               queries_, to);
    }
  }
  return {};
}

}  // namespace kvcheck::optimized
