#include "reference/trace/trace_shadow.h"

#include <algorithm>
#include <utility>

namespace kvcheck {

int64_t LongestRow(const ModelState& state) {
  int64_t longest = 0;
  for (const ModelRow& row : state.rows) longest = std::max(longest, row.offset);
  return longest;
}

int64_t ShortestRow(const ModelState& state) {
  int64_t shortest = state.rows.size() == 0 ? 0 : state.rows[0].offset;
  for (const ModelRow& row : state.rows) shortest = std::min(shortest, row.offset);
  return shortest;
}

void TraceShadow::Start(const CacheSetup& setup) {
  setup_ = setup;
  for (Slot& slot : slots_) {
    slot.used = false;
    // A call on an empty slot may be drawn by what stands there.
    New(setup.layout, setup.k, setup.v, 0, {}, &slot.state);
  }
  for (Slot& slot : saved_) slot.used = slot.damaged = false;
}

bool TraceShadow::Apply(const CacheOp& op) {
  Slot& slot = slots_[Index(op.slot)];
  switch (op.kind) {
    case CacheOpKind::kNew: {
      const CacheLayout& layout = op.layout ? *op.layout : setup_.layout;
      const KvFormat& k = op.k ? *op.k : setup_.k;
      const KvFormat& v = op.v ? *op.v : setup_.v;
      if (!RefuseNew(setup_, layout, k, v, op.count, op.numbers).empty()) return false;
      New(layout, k, v, op.count, op.numbers, &slot.state);
      slot.used = true;
      return true;
    }
    case CacheOpKind::kMerge:
      return ApplyMerge(op);
    case CacheOpKind::kLoad: {
      const Slot& saved = saved_[Index(op.key)];
      if (!saved.used || saved.damaged) return false;
      Slot& target = slots_[Index(op.target)];
      CopyState(saved.state, &target.state);
      target.used = true;
      return true;
    }
    case CacheOpKind::kDamage:
      if (!saved_[Index(op.key)].used) return false;
      saved_[Index(op.key)].damaged = true;
      return true;
    default:
      return slot.used && ApplyToSlot(op, &slot);
  }
}

bool TraceShadow::ApplyToSlot(const CacheOp& op, Slot* slot) {
  ModelState& state = slot->state;
  switch (op.kind) {
    case CacheOpKind::kAppend:
      if (op.wrong != WrongColumns::kNothing) return false;
      for (size_t b = 0; b < state.rows.size(); ++b) {
        const ColumnSplit split = SplitColumns(state, b, op.count);
        StartAppend(&state, b, op.count, split, /*evicts=*/true);
        Appended(&state, b, split);
      }
      state.queries = op.count;
      return true;
    case CacheOpKind::kPrepare:
      if (!RefusePrepare(state, op.numbers).empty()) return false;
      Prepare(op.numbers, &state);
      return true;
    case CacheOpKind::kFinalize:
      if (!RefuseFinalize(state).empty()) return false;
      Finalize(&state);
      return true;
    case CacheOpKind::kTrim:
      if (!RefuseTrim(state, op.count).empty()) return false;
      Trim(TrimReach(state, op.count, {}), &state);
      for (ModelRow& row : state.rows) row.tokens.clear();
      return true;
    case CacheOpKind::kFilter:
      if (!RefuseFilter(state, op.numbers).empty()) return false;
      Filter(op.numbers, &state, &scratch_);
      return true;
    case CacheOpKind::kExtend: {
      const Slot& other = slots_[Index(op.target)];
      if (!other.used || !RefuseExtend(state, other.state).empty()) return false;
      Extend(other.state, &state);
      return true;
    }
    case CacheOpKind::kExtract: {
      if (!RefuseExtract(state, op.count).empty()) return false;
      Extract(state, op.count, &made_);
      Slot& target = slots_[Index(op.target)];
      std::swap(target.state, made_);
      target.used = true;
      return true;
    }
    case CacheOpKind::kCopy: {
      if (state.pending) return false;
      CopyState(state, &made_);
      Slot& target = slots_[Index(op.target)];
      std::swap(target.state, made_);
      target.used = true;
      return true;
    }
    case CacheOpKind::kToQuantized:
      if (!RefuseToQuantized(setup_, state, *op.k, *op.v).empty()) return false;
      state.k = *op.k;
      state.v = *op.v;
      EndStep(&state);
      return true;
    case CacheOpKind::kSave: {
      if (state.pending) return false;
      Slot& saved = saved_[Index(op.key)];
      CopyState(state, &saved.state);
      saved.used = true;
      saved.damaged = false;
      return true;
    }
    case CacheOpKind::kAttend:
      return !state.pending && state.queries > 0 && (!op.window || *op.window >= 1);
    case CacheOpKind::kDrop:
      slot->used = false;
      return true;
    default:
      return false;
  }
}

bool TraceShadow::ApplyMerge(const CacheOp& op) {
  operands_.clear();
  for (int operand : op.operands) {
    if (!Used(operand)) return false;
    operands_.push_back(&State(operand));
  }
  if (!RefuseMerge(operands_).empty()) return false;
  Merge(operands_, &made_);
  Slot& target = slots_[Index(op.target)];
  std::swap(target.state, made_);
  target.used = true;
  return true;
}

}  // namespace kvcheck
