#include "tools/agree/path_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::array<PathFaultRow, 5> kRows = {{
    {PathFault::kLeftPadding, "left_padding_off_by_one",
     "the mask of left padding also hides the first token, in one layer"},
    {PathFault::kKScale, "k_scale_of_one_head",
     "K of one head is stored 1/8 too large, in one layer"},
    {PathFault::kSwappedV, "v_rows_swapped",
     "V of the last two tokens of an append change places, in one layer"},
    {PathFault::kRopeOffset, "rope_offset_after_trim",
     "after a trim RoPE goes on as if nothing had been trimmed"},
    {PathFault::kLastKey, "last_key_dropped", "a query does not see its own key, in one layer"},
}};

// The columns of an append in memory of its own, f32.
class OwnColumns {
 public:
  explicit OwnColumns(const TokenColumns& from) : columns_(from) {
    Take(from.k, from.k_strides, from.k_dim, &k_, &columns_.k_strides);
    Take(from.v, from.v_strides, from.v_dim, &v_, &columns_.v_strides);
    columns_.k = reinterpret_cast<const std::byte*>(k_.data());
    columns_.v = reinterpret_cast<const std::byte*>(v_.data());
  }
  const TokenColumns& columns() const { return columns_; }
  float* K(int64_t row, int64_t head, int64_t column) {
    return At(&k_, columns_.k_dim, row, head, column);
  }
  float* V(int64_t row, int64_t head, int64_t column) {
    return At(&v_, columns_.v_dim, row, head, column);
  }

 private:
  void Take(const std::byte* from, const VectorStrides& strides, int64_t dim,
            std::vector<float>* to, VectorStrides* own) const {
    const auto bytes = static_cast<size_t>(dim) * sizeof(float);
    to->resize(static_cast<size_t>(columns_.rows * columns_.kv_heads * columns_.columns * dim));
    float* next = to->data();
    for (int64_t b = 0; b < columns_.rows; ++b) {
      for (int64_t h = 0; h < columns_.kv_heads; ++h) {
        for (int64_t c = 0; c < columns_.columns; ++c, next += dim) {
          std::memcpy(next, from + b * strides.row + h * strides.head + c * strides.column, bytes);
        }
      }
    }
    const auto vector = static_cast<int64_t>(bytes);
    *own = {columns_.kv_heads * columns_.columns * vector, columns_.columns * vector, vector};
  }
  float* At(std::vector<float>* values, int64_t dim, int64_t row, int64_t head, int64_t column) {
    return values->data() + ((row * columns_.kv_heads + head) * columns_.columns + column) * dim;
  }

  TokenColumns columns_;
  std::vector<float> k_, v_;
};

// A cache that does what another one does.
class ForwardingCache : public Cache {
 public:
  explicit ForwardingCache(std::unique_ptr<Cache> inner) : inner_(std::move(inner)) {}
  OpResult Append(const TokenColumns& columns) override { return inner_->Append(columns); }
  OpResult Prepare(std::span<const int64_t> lengths, int64_t columns) override {
    return inner_->Prepare(lengths, columns);
  }
  OpResult Finalize() override { return inner_->Finalize(); }
  OpResult Trim(int64_t count, int64_t* trimmed) override { return inner_->Trim(count, trimmed); }
  OpResult Filter(std::span<const int64_t> rows) override { return inner_->Filter(rows); }
  OpResult Extend(const Cache& other) override { return inner_->Extend(other); }
  OpResult ToQuantized(const KvFormat& k, const KvFormat& v) override {
    return inner_->ToQuantized(k, v);
  }
  OpResult Extract(int64_t row, std::unique_ptr<Cache>* out) const override {
    return inner_->Extract(row, out);
  }
  OpResult CopyTo(std::unique_ptr<Cache>* out) const override { return inner_->CopyTo(out); }
  OpResult Save(StateStore* store, std::string_view key) const override {
    return inner_->Save(store, key);
  }
  OpResult Attend(const AttendRequest& request, std::byte* out) override {
    return inner_->Attend(request, out);
  }
  void Observe(StepView* view) override { inner_->Observe(view); }
  int64_t RetainedTokens(int64_t row) const override { return inner_->RetainedTokens(row); }

 protected:
  std::unique_ptr<Cache> inner_;
};

// Changes K or V before they are stored.
class ChangedColumns : public ForwardingCache {
 public:
  ChangedColumns(PathFault fault, std::unique_ptr<Cache> inner)
      : ForwardingCache(std::move(inner)), fault_(fault) {}
  OpResult Append(const TokenColumns& given) override {
    OwnColumns columns(given);
    const int64_t head = given.kv_heads - 1;
    for (int64_t b = 0; b < given.rows; ++b) {
      if (fault_ == PathFault::kKScale) {
        for (int64_t c = 0; c < given.columns; ++c) {
          float* k = columns.K(b, head, c);
          for (int64_t i = 0; i < given.k_dim; ++i) k[i] *= 1.125F;
        }
      } else if (given.columns > 1) {
        for (int64_t h = 0; h < given.kv_heads; ++h) {
          float* last = columns.V(b, h, given.columns - 1);
          std::swap_ranges(last, last + given.v_dim, columns.V(b, h, given.columns - 2));
        }
      }
    }
    return inner_->Append(columns.columns());
  }

 private:
  PathFault fault_;
};

// Attention reads a cache of its own, whose columns are shifted against those that are shown.
class ShadowedCache : public ForwardingCache {
 public:
  // delayed: that cache is given every column one call later than the one that is shown.
  ShadowedCache(bool delayed, std::unique_ptr<Cache> inner, std::unique_ptr<Cache> shadow)
      : ForwardingCache(std::move(inner)), delayed_(delayed), shadow_(std::move(shadow)) {}
  OpResult Append(const TokenColumns& given) override {
    const OpResult result = inner_->Append(given);
    if (!result.ok()) return result;
    if (!delayed_) return shadow_->Append(given);
    OwnColumns delayed(given);
    OwnColumns own(given);
    before_ = last_;
    size_t next = 0;
    std::vector<float> last;
    for (int64_t b = 0; b < given.rows; ++b) {
      for (int64_t h = 0; h < given.kv_heads; ++h) {
        for (const bool is_key : {true, false}) {
          const int64_t dim = is_key ? given.k_dim : given.v_dim;
          const auto at = [&](OwnColumns& columns, int64_t c) {
            return is_key ? columns.K(b, h, c) : columns.V(b, h, c);
          };
          for (int64_t c = 1; c < given.columns; ++c) {
            std::copy_n(at(own, c - 1), dim, at(delayed, c));
          }
          // At first there is nothing to be late with: a column of padding.
          if (before_.empty()) {
            std::fill_n(at(delayed, 0), dim, std::numeric_limits<float>::quiet_NaN());
          } else {
            std::copy_n(before_.begin() + static_cast<ptrdiff_t>(next), dim, at(delayed, 0));
          }
          next += static_cast<size_t>(dim);
          const float* newest = at(own, given.columns - 1);
          last.insert(last.end(), newest, newest + dim);
        }
      }
    }
    last_ = std::move(last);
    return shadow_->Append(delayed.columns());
  }
  // Of the columns of the last append, all of them.
  OpResult Trim(int64_t count, int64_t* trimmed) override {
    const OpResult result = inner_->Trim(count, trimmed);
    if (!result.ok()) return result;
    last_ = before_;
    int64_t ignored = 0;
    return shadow_->Trim(*trimmed, &ignored);
  }
  OpResult Attend(const AttendRequest& request, std::byte* out) override {
    return shadow_->Attend(request, out);
  }

 private:
  bool delayed_;
  std::unique_ptr<Cache> shadow_;
  std::vector<float> last_, before_;  // the newest column, and that of the append before
};

}  // namespace

std::span<const PathFaultRow> PathFaults() { return kRows; }

PathFault ParsePath(const std::string& text) {
  if (text == "optimized") return PathFault::kNone;
  std::vector<std::string> names;
  for (const PathFaultRow& row : kRows) {
    names.push_back("fault:" + std::string(row.name));
    if (names.back() == text) return row.fault;
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format("no path is called '{}': optimized, {} are", text, fmt::join(names, ", ")),
      "--impl");
}

std::string PrintPath(PathFault fault) {
  for (const PathFaultRow& row : kRows) {
    if (row.fault == fault) return "fault:" + std::string(row.name);
  }
  return "optimized";
}

int64_t FaultyLayer(int64_t layers) { return std::min<int64_t>(2, layers - 1); }

OpResult NewFaultyCache(PathFault fault, CacheFactory* factory, const CacheLayout& layout,
                        const KvFormat& k, const KvFormat& v,
                        const std::vector<int64_t>& left_padding, std::unique_ptr<Cache>* out) {
  const auto rows = static_cast<int64_t>(left_padding.size());
  std::unique_ptr<Cache> inner;
  const OpResult made = factory->New(layout, k, v, rows, left_padding, &inner);
  if (!made.ok()) return made;
  if (fault == PathFault::kKScale || fault == PathFault::kSwappedV) {
    *out = std::make_unique<ChangedColumns>(fault, std::move(inner));
    return {};
  }
  const bool delayed = fault == PathFault::kLastKey;
  std::vector<int64_t> padding = left_padding;
  for (int64_t& columns : padding) columns += delayed || columns > 0 ? 1 : 0;
  std::unique_ptr<Cache> shadow;
  const OpResult shadowed = factory->New(layout, k, v, rows, padding, &shadow);
  if (!shadowed.ok()) return shadowed;
  *out = std::make_unique<ShadowedCache>(delayed, std::move(inner), std::move(shadow));
  return {};
}

}  // namespace kvcheck
