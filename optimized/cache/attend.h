// Attention of the queries of the last append over what a cache stores, by optimized/attention:
// read in place, in its format. Rows are batch-invariant, at any slots and after any padding.

#ifndef OPTIMIZED_CACHE_ATTEND_H_
#define OPTIMIZED_CACHE_ATTEND_H_

#include <cstdint>
#include <vector>

#include "optimized/attention/attention.h"
#include "optimized/cache/column_store.h"
#include "optimized/cache/token_groups.h"
#include "optimized/formats/row_codec.h"
#include "reference/spec/plan.h"

namespace kvcheck::optimized {

// How an answer was computed. Made again only where something that it depends on has changed, so
// that a workload that has been seen allocates nothing.
class StatedPlan {
 public:
  // positions: from 0 to the last one that a query may see.
  const Plan& Of(const AttentionShape& shape, int64_t positions);

 private:
  AttentionShape shape_;
  int splits_ = 0;  // 0: nothing is stated yet
  Plan plan_;
};

// One operand of one row of a cache as attention reads it. What it does not read is given as f32 at
// the same slots, in memory of its own: f64, exact for what is stored from a type of at most 32
// bits, and what has a residual.
class AttendedOperand {
 public:
  // range: positions that are there.
  void Take(const ColumnStore& store, const SlotMap& map, int64_t row, bool is_key,
            const RowCodec& codec, const TokenGroups& groups, int64_t dim, int64_t heads,
            const TokenRange& range);
  const StoredHeads& heads() const { return heads_; }
  // The format in which heads() are stored.
  static KvFormat FormatOf(const KvFormat& stored) {
    return CanAttend(stored) ? stored : KvFormat(PlainFormat{DType::kFloat32});
  }

 private:
  StoredHeads heads_;
  std::vector<float> values_;
};

struct AttendBuffers {
  Attention attention;
  RowCodec q_codec;    // the type of the queries
  RowCodec out_codec;  // f32 to the type of the output
  StatedPlan plan;
  std::vector<float> q, out;
  // By row.
  std::vector<AttendedOperand> k, v;
  std::vector<std::vector<ColumnRun>> columns;
  std::vector<std::vector<VisibleKeys>> visible;
  std::vector<SequenceQueries> batch;
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_CACHE_ATTEND_H_
