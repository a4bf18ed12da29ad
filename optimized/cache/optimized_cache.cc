// Operations on the rows of one cache. What a call refuses it refuses before it changes anything.

#include "optimized/cache/optimized_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvcheck::optimized {
namespace {

constexpr std::string_view kPending = "a prepared prefill is pending: append or finalize first";

// Memory that is kept for the next move: small caches then never allocate, and large ones do not
// take twice their size.
constexpr int64_t kSpareBytes = int64_t{1} << 20;

// Bytes of the tokens that an append writes at a time: a part of L1.
constexpr int64_t kTileBytes = int64_t{1} << 14;

const OptimizedCache& Ours(const Cache& cache) { return static_cast<const OptimizedCache&>(cache); }

}  // namespace

OptimizedCache* OptimizedCache::Fresh(const std::shared_ptr<const CacheSetup>& setup,
                                      std::unique_ptr<Cache>* out) {
  if (*out == nullptr) *out = std::make_unique<OptimizedCache>(setup);
  return static_cast<OptimizedCache*>(out->get());
}

void OptimizedCache::Become(const CacheLayout& layout, const KvFormat& k, const KvFormat& v) {
  layout_ = layout;
  StartPart(true, k);
  StartPart(false, v);
  pending_ = false;
  queries_ = 0;
}

void OptimizedCache::StartPart(bool is_key, const KvFormat& format) {
  const int64_t dim = is_key ? setup_->k_dim : setup_->v_dim;
  (is_key ? k_format_ : v_format_) = format;
  TokenGroups& groups = is_key ? k_groups_ : v_groups_;
  groups.Start(format, setup_->x, dim, setup_->kv_heads, is_key);
  if (!groups.IsUsed()) (is_key ? k_ : v_).Start(format, setup_->x, dim);
}

void OptimizedCache::Reset(const CacheLayout& layout, const KvFormat& k, const KvFormat& v,
                           int64_t rows, std::span<const int64_t> left_padding) {
  Become(layout, k, v);
  rows_.assign(static_cast<size_t>(rows), {});
  for (size_t b = 0; b < left_padding.size(); ++b) rows_[b].unfed_padding = left_padding[b];
  store_.Shape(rows, 0, ShapeFor(k, v));
}

int64_t OptimizedCache::MostSlotsNeeded() const {
  int64_t slots = 0;
  for (const CacheRow& row : rows_) slots = std::max(slots, SlotsOf(row));
  return slots;
}

int64_t OptimizedCache::UpToStep(int64_t slots) const {
  const int64_t step = setup_->growth_tokens;
  return (slots + step - 1) / step * step;
}

void OptimizedCache::EndStep() {
  queries_ = 0;
  for (CacheRow& row : rows_) row.first_query = row.query_tokens = 0;
}

void OptimizedCache::TakeSpare() {
  std::swap(store_, spare_);
  spare_.ReleaseAbove(kSpareBytes);
}

void OptimizedCache::Move(int64_t slots) {
  spare_.Shape(row_count(), slots, store_.shape());
  const SlotMap to = {layout_.keep, slots};
  for (int64_t b = 0; b < row_count(); ++b) {
    spare_.CopyRow(store_, Map(), b, Retained(rows_[static_cast<size_t>(b)]), to, b);
  }
  TakeSpare();
}

void OptimizedCache::FitSlots(int64_t needed, int64_t columns) {
  const int64_t slots = store_.slots();
  const int64_t most = std::max(needed, MostSlots(layout_, columns));
  if (needed > slots) return Move(std::min(most, UpToStep(std::max(needed, slots + slots / 4))));
  // More than twice what an append like this one can need, and a step: left from a longer one.
  if ((slots - setup_->growth_tokens) / 2 > most) {
    Move(std::min(most, UpToStep(needed + needed / 4)));
  }
}

std::string_view OptimizedCache::WhyNotAppend(const TokenColumns& columns) const {
  if (columns.dtype != setup_->x) return "columns of another type";
  if (columns.rows != row_count()) return "columns of another number of rows";
  if (columns.kv_heads != setup_->kv_heads) return "columns of another number of heads";
  if (columns.k_dim != setup_->k_dim || columns.v_dim != setup_->v_dim) {
    return "columns of another head_dim";
  }
  if (columns.ValueColumns() != columns.columns) return "K and V of different numbers of columns";
  return columns.columns < 0 ? "a negative number of columns" : "";
}

OpResult OptimizedCache::Append(const TokenColumns& columns) {
  if (const auto why = WhyNotAppend(columns); !why.empty()) return OpResult::Refuse(why);
  int64_t needed = 0;
  for (CacheRow& row : rows_) {
    row.from = std::max(row.from, EvictTo(layout_, row.offset));
    needed = std::max(
        needed, SlotsNeeded(layout_.keep, row.from, row.offset + TokensOf(row, columns.columns)));
  }
  FitSlots(needed, columns.columns);
  for (int64_t b = 0; b < row_count(); ++b) {
    CacheRow& row = rows_[static_cast<size_t>(b)];
    const int64_t padding = PaddingOf(row, columns.columns);
    const int64_t tokens = TokensOf(row, columns.columns);
    WriteRow(b, row.offset, padding, tokens, columns);
    row.unfed_padding -= padding;
    if (pending_) row.to_come -= tokens;
    row.offset += tokens;
    row.first_query = padding;
    row.query_tokens = tokens;
  }
  queries_ = columns.columns;
  return {};
}

void OptimizedCache::WriteRow(int64_t b, int64_t position, int64_t column, int64_t count,
                              const TokenColumns& columns) {
  for (const bool is_key : {true, false}) {
    TokenGroups& groups = is_key ? k_groups_ : v_groups_;
    if (!groups.IsUsed()) continue;
    const VectorStrides& strides = is_key ? columns.k_strides : columns.v_strides;
    groups.Append(&store_, b, position, count,
                  (is_key ? columns.k : columns.v) + b * strides.row + column * strides.column,
                  strides.head, strides.column);
  }
  const SlotMap map = Map();
  int64_t token_bytes = 1;
  for (const PlaneShape& plane : store_.shape()) token_bytes += plane.bytes / plane.group;
  // Token-major: a few tokens at a time, which stay in L1 until all heads have written their parts.
  const int64_t tile = std::max<int64_t>(1, kTileBytes / token_bytes);
  while (count > 0) {
    const int64_t slot = map.Slot(position);
    const int64_t piece = std::min({count, map.capacity - slot, tile});
    for (const bool is_key : {true, false}) {
      if ((is_key ? k_groups_ : v_groups_).IsUsed()) continue;
      RowCodec& codec = is_key ? k_ : v_;
      const VectorStrides& strides = is_key ? columns.k_strides : columns.v_strides;
      const std::byte* x =
          (is_key ? columns.k : columns.v) + b * strides.row + column * strides.column;
      StoredRows rows = store_.Vectors(FirstPlane(is_key), b, slot);
      for (int64_t h = 0; h < columns.kv_heads; ++h) {
        codec.SetHead(h);
        codec.Encode(x + h * strides.head, strides.column, piece, rows);
        rows.NextHead(codec.bytes());
      }
    }
    position += piece;
    column += piece;
    count -= piece;
  }
}

OpResult OptimizedCache::Prepare(std::span<const int64_t> lengths, int64_t) {
  if (pending_) return OpResult::Refuse(kPending);
  if (lengths.size() != rows_.size()) {
    return OpResult::Refuse("lengths name another number of rows");
  }
  for (const int64_t length : lengths) {
    if (length < 0) return OpResult::Refuse("a length is negative");
  }
  for (size_t b = 0; b < lengths.size(); ++b) rows_[b].to_come = lengths[b];
  pending_ = true;
  EndStep();
  return {};
}

OpResult OptimizedCache::Finalize() {
  if (!pending_) return {};
  for (const CacheRow& row : rows_) {
    if (row.to_come > 0) return OpResult::Refuse("prepared tokens have not all arrived");
  }
  pending_ = false;
  EndStep();
  return {};
}

int64_t OptimizedCache::Reach(int64_t count) const {
  if (rows_.empty()) return 0;
  int64_t reach = count;
  for (const CacheRow& row : rows_) reach = std::min(reach, row.offset);
  // Each row may shorten it, which asks the others again.
  for (bool again = true; again;) {
    again = false;
    for (const CacheRow& row : rows_) {
      int64_t left = NearestReachable(layout_, row.from, row.offset, row.offset - reach);
      left = NearestOfGroups(k_format_, row.offset, left);
      left = NearestOfGroups(v_format_, row.offset, left);
      if (left == row.offset - reach) continue;
      reach = row.offset - left;
      again = true;
    }
  }
  return reach;
}

OpResult OptimizedCache::Trim(int64_t count, int64_t* trimmed) {
  if (pending_) return OpResult::Refuse(kPending);
  if (count < 0) return OpResult::Refuse("a negative number of tokens");
  const int64_t reach = Reach(count);
  for (CacheRow& row : rows_) {
    row.offset -= reach;
    row.from = std::min(row.from, row.offset);
  }
  *trimmed = reach;
  EndStep();
  return {};
}

OpResult OptimizedCache::Filter(std::span<const int64_t> rows) {
  if (pending_) return OpResult::Refuse(kPending);
  bool increasing = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= row_count()) return OpResult::Refuse("a row out of range");
    increasing = increasing && (i == 0 || rows[i] > rows[i - 1]);
  }
  spare_rows_.clear();
  for (const int64_t row : rows) spare_rows_.push_back(rows_[static_cast<size_t>(row)]);
  std::swap(rows_, spare_rows_);
  const SlotMap from = Map();
  const int64_t needed = MostSlotsNeeded();
  // Where the longest rows went, their slots go too.
  const bool wide = from.capacity - setup_->growth_tokens > 2 * needed;
  if (increasing && !wide) {
    // Rows move towards the front, over rows that are gone.
    for (int64_t b = 0; b < row_count(); ++b) {
      const int64_t row = rows[static_cast<size_t>(b)];
      if (row == b) continue;
      store_.CopyRow(store_, from, row, Retained(rows_[static_cast<size_t>(b)]), from, b);
    }
    store_.SetRows(row_count());
  } else if (!wide && store_.HasRoom(row_count())) {
    extents_.clear();
    for (const CacheRow& row : rows_) extents_.push_back(std::min(row.offset, from.capacity));
    store_.GatherRows(rows, extents_);
  } else {
    const SlotMap to = {layout_.keep, wide ? UpToStep(needed) : from.capacity};
    spare_.Shape(row_count(), to.capacity, store_.shape());
    for (int64_t b = 0; b < row_count(); ++b) {
      spare_.CopyRow(store_, from, rows[static_cast<size_t>(b)],
                     Retained(rows_[static_cast<size_t>(b)]), to, b);
    }
    TakeSpare();
  }
  EndStep();
  return {};
}

OpResult OptimizedCache::Extend(const Cache& other_cache) {
  const OptimizedCache& other = Ours(other_cache);
  if (pending_ || other.pending_) return OpResult::Refuse(kPending);
  if (!(layout_ == other.layout_)) return OpResult::Refuse("layouts differ");
  if (!(k_format() == other.k_format()) || !(v_format() == other.v_format())) {
    return OpResult::Refuse("formats differ");
  }
  const int64_t before = row_count();
  const int64_t more = other.row_count();  // other may be this cache
  const SlotMap from = Map();
  const SlotMap other_from = other.Map();
  const int64_t needed = std::max(MostSlotsNeeded(), other.MostSlotsNeeded());
  if (needed <= from.capacity && store_.HasRoom(before + more)) {
    store_.SetRows(before + more);
    for (int64_t b = 0; b < more; ++b) {
      store_.CopyRow(other.store_, other_from, b, Retained(other.rows_[static_cast<size_t>(b)]),
                     from, before + b);
    }
  } else {
    const SlotMap to = {layout_.keep, std::max(from.capacity, UpToStep(needed))};
    spare_.Shape(before + more, to.capacity, store_.shape());
    for (int64_t b = 0; b < before + more; ++b) {
      const bool own = b < before;
      const OptimizedCache& source = own ? *this : other;
      const int64_t row = own ? b : b - before;
      spare_.CopyRow(source.store_, own ? from : other_from, row,
                     Retained(source.rows_[static_cast<size_t>(row)]), to, b);
    }
    TakeSpare();
  }
  for (int64_t b = 0; b < more; ++b) rows_.push_back(CacheRow(other.rows_[static_cast<size_t>(b)]));
  EndStep();
  return {};
}

void OptimizedCache::MergeFrom(std::span<const Cache* const> caches) {
  const OptimizedCache& first = Ours(*caches[0]);
  Become(first.layout_, first.k_format(), first.v_format());
  rows_.clear();
  for (const Cache* cache : caches) rows_.push_back(Ours(*cache).rows_[0]);
  const SlotMap to = {layout_.keep, UpToStep(MostSlotsNeeded())};
  store_.Shape(row_count(), to.capacity, first.store_.shape());
  for (int64_t b = 0; b < row_count(); ++b) {
    const OptimizedCache& source = Ours(*caches[static_cast<size_t>(b)]);
    store_.CopyRow(source.store_, source.Map(), 0, Retained(rows_[static_cast<size_t>(b)]), to, b);
  }
  EndStep();
}

OpResult OptimizedCache::Extract(int64_t row, std::unique_ptr<Cache>* out) const {
  if (pending_) return OpResult::Refuse(kPending);
  if (row < 0 || row >= row_count()) return OpResult::Refuse("a row out of range");
  OptimizedCache* made = Fresh(setup_, out);
  made->Become(layout_, k_format(), v_format());
  made->rows_.assign(1, rows_[static_cast<size_t>(row)]);
  made->rows_[0].unfed_padding = 0;
  made->EndStep();
  const SlotMap to = {layout_.keep, SlotsOf(made->rows_[0])};
  made->store_.Shape(1, to.capacity, store_.shape());
  made->store_.CopyRow(store_, Map(), row, Retained(made->rows_[0]), to, 0);
  return {};
}

OpResult OptimizedCache::CopyTo(std::unique_ptr<Cache>* out) const {
  if (pending_) return OpResult::Refuse(kPending);
  OptimizedCache* made = Fresh(setup_, out);
  made->Become(layout_, k_format(), v_format());
  made->rows_ = rows_;
  made->EndStep();
  made->store_.Shape(row_count(), store_.slots(), store_.shape());
  for (int64_t b = 0; b < row_count(); ++b) {
    made->store_.CopyRow(store_, Map(), b, Retained(rows_[static_cast<size_t>(b)]), Map(), b);
  }
  return {};
}

OpResult OptimizedCache::ToQuantized(const KvFormat& k, const KvFormat& v) {
  if (pending_) return OpResult::Refuse(kPending);
  if ((!IsPlain(k_format()) && !(k_format() == k)) ||
      (!IsPlain(v_format()) && !(v_format() == v))) {
    return OpResult::Refuse("it is quantized already, in another format");
  }
  if (const auto why = WhyNotFormats(*setup_, layout_, k, v); !why.empty()) {
    return OpResult::Refuse(why);
  }
  if (!(k_format() == k) || !(v_format() == v)) {
    spare_.Shape(row_count(), store_.slots(), ShapeFor(k, v));
    ConvertPart(true, k);
    ConvertPart(false, v);
    TakeSpare();
    StartPart(true, k);
    StartPart(false, v);
  }
  EndStep();
  return {};
}

void OptimizedCache::ConvertPart(bool is_key, const KvFormat& to) {
  const int first = FirstPlane(is_key);
  if ((is_key ? k_format_ : v_format_) == to) {
    for (const int p : {first, first + 1, first + 2, PlanesOfPart(is_key).residual}) {
      ForEachEntry(p, [&](int64_t b, int64_t entry, int64_t count) {
        std::memcpy(spare_.At(p, b, entry), store_.At(p, b, entry),
                    static_cast<size_t>(count * store_.shape(p).bytes));
      });
    }
    return;
  }
  // What is converted is plain.
  const RowCodec& old = is_key ? k_ : v_;
  const DType from_type = RowDType(old.format());
  const int64_t dim = is_key ? setup_->k_dim : setup_->v_dim;
  TokenGroups groups;
  groups.Start(to, from_type, dim, setup_->kv_heads, is_key);
  RowCodec codec;
  if (!groups.IsUsed()) codec.Start(to, from_type, dim);
  const SlotMap map = Map();
  for (int64_t b = 0; b < row_count(); ++b) {
    map.ForEachRun(Retained(rows_[static_cast<size_t>(b)]), [&](int64_t position, int64_t slot,
                                                                int64_t count) {
      const StoredRowsView from = std::as_const(store_).Vectors(first, b, slot);
      if (groups.IsUsed()) {
        groups.Append(&spare_, b, position, count, from.codes, old.bytes().codes, from.code_stride);
        return;
      }
      StoredRows rows = spare_.Vectors(first, b, slot);
      for (int64_t h = 0; h < setup_->kv_heads; ++h) {
        codec.SetHead(h);
        codec.Encode(from.codes + h * old.bytes().codes, from.code_stride, count, rows);
        rows.NextHead(codec.bytes());
      }
    });
  }
}

bool OptimizedCache::IsEmpty() const {
  return std::all_of(rows_.begin(), rows_.end(),
                     [](const CacheRow& row) { return row.offset == 0; });
}

int64_t OptimizedCache::RetainedTokens(int64_t row) const {
  return Retained(rows_[static_cast<size_t>(row)]).Count();
}

}  // namespace kvcheck::optimized
