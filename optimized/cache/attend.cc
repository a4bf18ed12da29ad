#include "optimized/cache/attend.h"

#include "optimized/attention/attention_plan.h"

namespace kvcheck::optimized {

const Plan& StatedPlan::Of(const AttentionShape& shape, int64_t positions) {
  const int splits = PlannedSplits(positions);
  if (splits != splits_ || !(shape == shape_)) {
    plan_ = PlanOf(shape, {.kv_len = positions});
    shape_ = shape;
    splits_ = splits;
  }
  return plan_;
}

void AttendedOperand::Take(const ColumnStore& store, const SlotMap& map, int64_t row, bool is_key,
                           const RowCodec& codec, const TokenGroups& groups, int64_t dim,
                           int64_t heads, const TokenRange& range) {
  const int first = is_key ? kKCodes : kVCodes;
  if (!groups.IsUsed() && CanAttend(codec.format())) {
    const StoredRowsView rows = store.Vectors(first, row, 0);
    const RowBytes bytes = codec.bytes();
    heads_ = {rows.codes,  rows.scales,       rows.biases, rows.code_stride,
              bytes.codes, rows.scale_stride, bytes.scales};
    return;
  }
  values_.resize(static_cast<size_t>(store.slots() * heads * dim));
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  heads_ = {reinterpret_cast<const std::byte*>(values_.data()),
            nullptr,
            nullptr,
            heads * dim * kFloat,
            dim * kFloat,
            0,
            0};
  if (groups.IsUsed()) {
    // Slots are positions.
    groups.Decode(store, row, range.end, values_.data());
    return;
  }
  map.ForEachRun(range, [&](int64_t, int64_t slot, int64_t count) {
    for (int64_t token = slot; token < slot + count; ++token) {
      StoredRowsView of_token = store.Vectors(first, row, token);
      of_token.code_stride = codec.bytes().codes;  // head after head
      codec.Decode(of_token, heads, values_.data() + token * heads * dim);
    }
  });
}

}  // namespace kvcheck::optimized
