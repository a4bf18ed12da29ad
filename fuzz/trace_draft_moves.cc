// Moves of several operations, each towards states that are rare by chance.

#include <algorithm>
#include <utility>

#include "fuzz/trace_draft.h"

namespace kvcheck {

// A ring, a window or a chunk is filled until something is forgotten; then one token alone, or
// several, or a trim back over that point.
void TraceDrawer::Draft::MoveWrap() {
  const int slot = SlotWhere([](const ModelState& state) {
    return !state.pending && state.layout.window + state.layout.chunk > 0 && state.rows.size() > 0;
  });
  if (slot < 0) return;
  const ModelState& state = State(slot);
  const int64_t size = state.layout.window + state.layout.chunk;
  const int64_t left = size - ShortestRow(state);
  if (left >= 0) AddAppend(slot, left + Int(1, 3));
  switch (Below(4)) {
    case 0:
      AddAppend(slot, size + Int(0, 2));  // and once more
      break;
    case 1:
      AddTrim(slot, Int(1, size + 1));
      break;
    case 2:
      AddAppend(slot, Int(2, 4));
      break;
    default:
      AddAppend(slot, 1);
  }
  if (OneIn(3)) AddAppend(slot, 1);
}

// A prepared prefill, in one piece or several, now and then with a call in between that must be
// refused, or left unfinished.
void TraceDrawer::Draft::MovePrefill() {
  const int slot =
      SlotWhere([&](const ModelState& state) { return state.rows.size() > 0 && !Grown(state); });
  if (slot < 0) return;
  CacheOp op = Op(CacheOpKind::kPrepare, slot);
  int64_t longest = 0;
  int64_t padding = 0;
  for (const ModelRow& row : State(slot).rows) {
    op.numbers.push_back(OneIn(5) ? 0 : Int(1, 5));
    longest = std::max(longest, op.numbers.back());
    padding = std::max(padding, row.unfed_padding);
  }
  Add(std::move(op));
  for (int64_t left = longest + padding; left > 0;) {
    const int64_t columns = OneIn(2) ? left : Int(1, left);
    AddAppend(slot, columns);
    left -= columns;
    if (left == 0 && OneIn(6)) AddAppend(slot, Int(1, 2));  // right padding alone
    if (OneIn(4)) {
      switch (Below(8)) {
        case 0:
          AddTrim(slot, 1);
          break;
        case 1:
          AddFilter(slot, {0});
          break;
        case 2:
          AddExtract(slot, 0, TargetSlot());
          break;
        case 3: {
          CacheOp copy = Op(OneIn(2) ? CacheOpKind::kCopy : CacheOpKind::kSave, slot);
          if (copy.kind == CacheOpKind::kCopy) copy.target = TargetSlot();
          Add(std::move(copy));
          break;
        }
        case 4:
          Add(Op(CacheOpKind::kAttend, slot));
          break;
        case 5:
          AddMerge({slot}, TargetSlot());
          break;
        default:
          Add(Op(CacheOpKind::kFinalize, slot));  // too early, where something is left
      }
    }
    if (OneIn(16)) return;
  }
  Add(Op(CacheOpKind::kFinalize, slot));
  if (OneIn(3)) AddAppend(slot, Int(1, 2));
}

// Saved, changed, loaded, and continued.
void TraceDrawer::Draft::MoveRestore() {
  const int slot = SlotWhere([](const ModelState& state) { return !state.pending; });
  if (slot < 0) return;
  CacheOp save = Op(CacheOpKind::kSave, slot);
  save.key = Key();
  const int key = save.key;
  Add(std::move(save));
  if (OneIn(2)) AddAppend(slot, Int(1, 3));
  CacheOp load;
  load.kind = CacheOpKind::kLoad;
  load.key = key;
  load.target = TargetSlot();
  const int target = load.target;
  Add(std::move(load));
  if (!OneIn(4)) AddAppend(target, Int(1, 3));
}

// What was damaged must be refused, and be loaded again once it has been saved again.
void TraceDrawer::Draft::MoveDamage() {
  const int slot = SlotWhere([](const ModelState& state) { return !state.pending; });
  if (slot < 0) return;
  CacheOp save = Op(CacheOpKind::kSave, slot);
  save.key = Key();
  CacheOp damage;
  damage.kind = CacheOpKind::kDamage;
  damage.key = save.key;
  damage.damage = DrawDamage();
  if (damage.damage == Damage::kFlip || OneIn(2)) damage.at = Int(0, OneIn(2) ? 40 : 2000);
  CacheOp load;
  load.kind = CacheOpKind::kLoad;
  load.key = save.key;
  load.target = TargetSlot();
  Add(save);
  Add(std::move(damage));
  Add(load);
  if (!OneIn(3)) return;
  Add(std::move(save));
  Add(std::move(load));
}

// Rows of unequal fill, one of them empty now and then, become a batch.
void TraceDrawer::Draft::MoveMergeHistories() {
  const int slot = SlotWhere([](const ModelState& state) {
    return !state.pending && state.rows.size() > 0 && LongestRow(state) > 0;
  });
  if (slot < 0) return;
  const int one = Rows(slot) == 1 ? slot : FreeSlot();
  if (one != slot) AddExtract(slot, Int(0, Rows(slot) - 1), one);
  int other = FreeSlot();
  if (other == one) other = (one + 1) % kSlots;
  AddNew(other, 1);
  if (!OneIn(4)) AddAppend(other, DrawColumns(State(other)));
  const int target = TargetSlot();
  if (drawn_.single) {
    AddMerge({OneIn(2) ? one : other}, target);
  } else if (OneIn(3)) {
    CacheOp op = Op(CacheOpKind::kExtend, OneIn(2) ? one : other);
    op.target = op.slot == one ? other : one;
    Add(std::move(op));
    return;
  } else if (OneIn(2)) {
    AddMerge({one, other}, target);
  } else {
    AddMerge({other, one, one}, target);
  }
  AddAppend(target, Int(1, 3));
}

// Codes of what a ring has wrapped, or of K alone.
void TraceDrawer::Draft::MoveQuantizeRing() {
  const int slot = SlotWhere([](const ModelState& state) {
    return !state.pending && IsPlain(state.k) && LongestRow(state) > 0;
  });
  if (slot < 0 || drawn_.formats.empty()) return MoveWrap();
  const ModelState& state = State(slot);
  const int64_t left = state.layout.window - ShortestRow(state);
  if (state.layout.window > 0 && left >= 0) AddAppend(slot, left + 1);
  CacheOp op = Op(CacheOpKind::kToQuantized, slot);
  op.k = drawn_.formats[Below(drawn_.formats.size())];
  op.v = OneIn(2) ? state.v : *op.k;
  op.v = ValueBeside(*space_, *op.k, random_).value_or(*op.v);
  Add(std::move(op));
  AddAppend(slot, Int(1, 2));
}

// A batch of 0 rows goes on being used.
void TraceDrawer::Draft::MoveEmptyBatch() {
  if (!space_->empty_batch) return;
  const int slot = SlotWhere([](const ModelState& state) { return !state.pending; });
  if (slot < 0) return;
  AddFilter(slot, {});
  if (OneIn(2)) AddAppend(slot, Int(1, 2));
  if (OneIn(3)) AddTrim(slot, 1);
  const int other = SlotWhere([&](const ModelState& state) {
    return !state.pending && (!drawn_.single || state.rows.size() < 2);
  });
  if (other < 0) return;
  CacheOp op = Op(CacheOpKind::kExtend, slot);
  op.target = other;
  Add(std::move(op));
  if (OneIn(2)) AddAppend(slot, 1);
}

}  // namespace kvcheck
