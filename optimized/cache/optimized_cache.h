// Caches with contiguous storage: linear, with a window, rings and chunks, single and batched, with
// K and V in any format each.
//
// A row stores its tokens alone, at slots that follow from their positions (slot_map.h): padding on
// either side is never stored, only counted, so that batches whose rows have different histories
// are no special case anywhere, finalize moves nothing, and a mask follows from row state by
// arithmetic. Memory grows by steps (and by a quarter, so that long appends cost a constant per
// token); a ring that was widened for a prefill gives the width back when it is no longer used.

#ifndef OPTIMIZED_CACHE_OPTIMIZED_CACHE_H_
#define OPTIMIZED_CACHE_OPTIMIZED_CACHE_H_

#include <memory>
#include <vector>

#include "optimized/cache/attend.h"
#include "optimized/cache/column_store.h"
#include "optimized/cache/layout_rules.h"
#include "optimized/cache/slot_map.h"
#include "optimized/cache/token_groups.h"
#include "optimized/formats/row_codec.h"
#include "reference/spec/cache_implementation.h"

namespace kvcheck::optimized {

struct CacheRow {
  int64_t offset = 0;         // tokens seen
  int64_t from = 0;           // retained: the first `keep` of them and [from, offset)
  int64_t unfed_padding = 0;  // columns
  int64_t to_come = 0;        // tokens of a prepared prefill
  int64_t first_query = 0;    // of the last append: its first column that is a token,
  int64_t query_tokens = 0;   // and how many there are
};

class OptimizedCache : public Cache {
 public:
  explicit OptimizedCache(std::shared_ptr<const CacheSetup> setup) : setup_(std::move(setup)) {}

  OpResult Append(const TokenColumns& columns) override;
  OpResult Prepare(std::span<const int64_t> lengths, int64_t columns) override;
  OpResult Finalize() override;
  OpResult Trim(int64_t count, int64_t* trimmed) override;
  OpResult Filter(std::span<const int64_t> rows) override;
  OpResult Extend(const Cache& other) override;
  OpResult ToQuantized(const KvFormat& k, const KvFormat& v) override;
  OpResult Extract(int64_t row, std::unique_ptr<Cache>* out) const override;
  OpResult CopyTo(std::unique_ptr<Cache>* out) const override;
  OpResult Save(StateStore* store, std::string_view key) const override;
  OpResult Attend(const AttendRequest& request, std::byte* out) override;
  void Observe(StepView* view) override;
  int64_t RetainedTokens(int64_t row) const override;
  void PoisonUnused() override;

  // For the factory. The caller has checked that what they are given is legal.
  void Reset(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
             std::span<const int64_t> left_padding);
  void MergeFrom(std::span<const Cache* const> caches);
  // Takes a record whose attributes have been checked; "" or why it does not fit together.
  std::string_view ReadVersion1(const StateRecord& record, const CacheLayout& layout,
                                const KvFormat& k, const KvFormat& v);
  const CacheLayout& layout() const { return layout_; }
  const KvFormat& k_format() const { return k_format_; }
  const KvFormat& v_format() const { return v_format_; }
  bool pending() const { return pending_; }
  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }

  // A cache in *out, the old one where there is one.
  static OptimizedCache* Fresh(const std::shared_ptr<const CacheSetup>& setup,
                               std::unique_ptr<Cache>* out);

 private:
  // Takes layout, formats and rows that are empty so far; slots are shaped by whoever fills them.
  void Become(const CacheLayout& layout, const KvFormat& k, const KvFormat& v);
  void StartPart(bool is_key, const KvFormat& format);
  StoreShape ShapeFor(const KvFormat& k, const KvFormat& v) const {
    return StoreShapeOf(k, setup_->k_dim, v, setup_->v_dim, setup_->kv_heads);
  }
  static int FirstPlane(bool is_key) { return is_key ? kKCodes : kVCodes; }
  SlotMap Map() const { return {layout_.keep, store_.slots()}; }
  TokenRange Retained(const CacheRow& row) const { return {layout_.keep, row.from, row.offset}; }
  int64_t SlotsOf(const CacheRow& row) const {
    return SlotsNeeded(layout_.keep, row.from, row.offset);
  }
  // Of the row that needs most.
  int64_t MostSlotsNeeded() const;
  int64_t UpToStep(int64_t slots) const;
  // Makes room for what an append needs, or gives up what it no longer does.
  void FitSlots(int64_t needed, int64_t columns);
  // Moves every row into `slots` slots.
  void Move(int64_t slots);
  // What Move, Filter, Extend and ToQuantized have written becomes the cache's storage.
  void TakeSpare();
  void WriteRow(int64_t b, int64_t position, int64_t column, int64_t count,
                const TokenColumns& columns);
  void ConvertPart(bool is_key, const KvFormat& to);
  // visit(row, entry, count): what rows retain of a plane, in order, as runs of entries.
  template <typename Visit>
  void ForEachEntry(int plane, Visit visit) const {
    const PlaneShape& shape = store_.shape(plane);
    if (shape.bytes == 0) return;
    for (int64_t b = 0; b < row_count(); ++b) {
      const CacheRow& row = rows_[static_cast<size_t>(b)];
      if (shape.IsGrouped()) {
        const int64_t entries = shape.Entries(row.offset);
        if (entries > 0) visit(b, int64_t{0}, entries);
        continue;
      }
      Map().ForEachRun(Retained(row),
                       [&](int64_t, int64_t slot, int64_t count) { visit(b, slot, count); });
    }
  }
  // How the columns of an append fall to a row.
  int64_t PaddingOf(const CacheRow& row, int64_t columns) const {
    return std::min(row.unfed_padding, columns);
  }
  int64_t TokensOf(const CacheRow& row, int64_t columns) const {
    const int64_t rest = columns - PaddingOf(row, columns);
    return pending_ ? std::min(rest, row.to_come) : rest;
  }
  int64_t Reach(int64_t count) const;
  bool IsEmpty() const;
  void EndStep();
  std::string_view WhyNotAppend(const TokenColumns& columns) const;
  std::string_view WhyNotAttend(const AttendRequest& request) const;
  // What row b asks of attention.
  void TakeQueries(int64_t b, const AttendRequest& request);
  void FillMasks(int64_t columns);
  StoredVectors ViewOf(bool is_key, int64_t columns);
  // Tokens that the newest query sees, of the longest row.
  int64_t Size() const;

  std::shared_ptr<const CacheSetup> setup_;
  CacheLayout layout_;
  RowCodec k_, v_;                   // from appended vectors; of formats without a residual
  TokenGroups k_groups_, v_groups_;  // of those with a residual
  KvFormat k_format_ = PlainFormat{};
  KvFormat v_format_ = PlainFormat{};
  ColumnStore store_;
  ColumnStore spare_;  // memory of the last move
  std::vector<CacheRow> rows_, spare_rows_;
  bool pending_ = false;
  int64_t queries_ = 0;  // columns of the last append; 0: no step
  AttendBuffers attend_;
  // What Observe shows.
  std::vector<uint64_t> retained_bits_, visible_bits_;
  std::vector<int64_t> offsets_, unfed_;
  std::vector<int64_t> extents_;  // of Filter
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_OPTIMIZED_CACHE_H_
