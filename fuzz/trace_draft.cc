// Moves of one operation.

#include "fuzz/trace_draft.h"

#include <algorithm>
#include <utility>

namespace kvcheck {
namespace {

constexpr int64_t kMostRows = 6;
constexpr int64_t kMostTokens = 40;

bool OneRow(const ModelState& state) { return state.rows.size() == 1; }

}  // namespace

int TraceDrawer::Draft::FreeSlot() {
  for (int s = 0; s < kSlots; ++s) {
    if (!shadow_.Used(s)) return s;
  }
  return AnySlot();
}

int TraceDrawer::Draft::UsedSlot() {
  return SlotWhere([](const ModelState&) { return true; });
}

bool TraceDrawer::Draft::Grown(const ModelState& state) const {
  return LongestRow(state) > (drawn_.large ? 6 * kMostTokens : kMostTokens);
}

int64_t TraceDrawer::Draft::DrawRows() {
  if (drawn_.single) return 1;
  const uint64_t draw = Below(16);
  if (draw == 0) return space_->empty_batch ? 0 : 2;
  if (draw < 5 && space_->rows != SpaceRows::kBatch) return 1;
  return draw < 13 ? 2 : 3;
}

// Small numbers, and those that end just before, at or after what the layout cares about.
int64_t TraceDrawer::Draft::DrawColumns(const ModelState& state) {
  if (drawn_.large && OneIn(4)) return Int(50, 135);
  const uint64_t draw = Below(16);
  if (draw < 6) return 1;
  if (draw < 12) return Int(2, 4);
  const int64_t offset = LongestRow(state);
  const CacheLayout& layout = state.layout;
  if (layout.window > 0 && draw < 14) {
    const int64_t left = layout.window - offset + Int(-1, 1);
    return std::max<int64_t>(1, left > 0 ? left : layout.window + Int(-1, 2));
  }
  if (layout.chunk > 0 && draw < 14) {
    return std::max<int64_t>(1, layout.chunk - offset % layout.chunk + Int(-1, 1));
  }
  return Int(3, 9);
}

void TraceDrawer::Draft::AddAppend(int slot, int64_t columns) {
  CacheOp op = Op(CacheOpKind::kAppend, slot);
  op.count = columns;
  Add(std::move(op));
}

void TraceDrawer::Draft::AddNew(int slot, int64_t rows) {
  CacheOp op = Op(CacheOpKind::kNew, slot);
  op.count = rows;
  if (space_->padding && OneIn(drawn_.single ? 4 : 2)) {
    for (int64_t b = 0; b < rows; ++b) op.numbers.push_back(OneIn(3) ? 0 : Int(0, 4));
  }
  Add(std::move(op));
}

void TraceDrawer::Draft::AddExtract(int slot, int64_t row, int target) {
  CacheOp op = Op(CacheOpKind::kExtract, slot);
  op.count = row;
  op.target = target;
  Add(std::move(op));
}

void TraceDrawer::Draft::AddMerge(std::initializer_list<int> operands, int target) {
  CacheOp op = Op(CacheOpKind::kMerge, 0);
  op.operands = operands;
  op.target = target;
  Add(std::move(op));
}

void TraceDrawer::Draft::AddTrim(int slot, int64_t count) {
  CacheOp op = Op(CacheOpKind::kTrim, slot);
  op.count = count;
  Add(std::move(op));
}

void TraceDrawer::Draft::AddFilter(int slot, std::vector<int64_t> rows) {
  if (rows.empty() && !space_->empty_batch) return;
  CacheOp op = Op(CacheOpKind::kFilter, slot);
  op.numbers = std::move(rows);
  Add(std::move(op));
}

void TraceDrawer::Draft::AddAttend(int slot) {
  CacheOp op = Op(CacheOpKind::kAttend, slot);
  if (OneIn(2) && space_->window)
    op.window = Int(1, 1 + std::max<int64_t>(1, std::min<int64_t>(8, LongestRow(State(slot)))));
  if (OneIn(4)) {
    // From a quarter to two and a half times 1/sqrt(k_dim): much larger scores leave nothing of a
    // key beside a sink, and of the output nothing but its rounding.
    double scale = 0.25;
    for (int64_t dim = 4; dim < drawn_.setup.k_dim; dim *= 4) scale /= 2;
    op.scale = scale * static_cast<double>(Int(1, 5));
  }
  op.sinks = OneIn(4) && space_->sinks;
  Add(std::move(op));
}

void TraceDrawer::Draft::AddToQuantized(int slot) {
  CacheOp op = Op(CacheOpKind::kToQuantized, slot);
  const ModelState& state = State(slot);
  const auto draw = [&](const KvFormat& now) -> KvFormat {
    if (drawn_.formats.empty() || (!IsPlain(now) && !OneIn(8)) || OneIn(8)) return now;
    return drawn_.formats[Below(drawn_.formats.size())];
  };
  op.k = draw(state.k);
  op.v = OneIn(2) && IsPlain(state.v) ? *op.k : draw(state.v);
  op.v = ValueBeside(*space_, *op.k, random_).value_or(*op.v);
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveNew() {
  const int slot = TargetSlot();
  if (!OneIn(10)) return AddNew(slot, DrawRows());
  // Another layout or format than the setup's, which merge and extend must refuse to mix.
  CacheOp op = Op(CacheOpKind::kNew, slot);
  op.count = DrawRows();
  if (OneIn(2)) {
    op.layout = DrawLayout(space_->layouts[Below(space_->layouts.size())], random_);
  } else if (!drawn_.formats.empty()) {
    op.k = drawn_.formats[Below(drawn_.formats.size())];
    if (OneIn(2)) op.v = drawn_.formats[Below(drawn_.formats.size())];
    if (const auto beside = ValueBeside(*space_, *op.k, random_)) op.v = beside;
  }
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveAppend() {
  const int slot = UsedSlot();
  if (slot < 0) return MoveNew();
  const ModelState& state = State(slot);
  if (Grown(state)) return AddTrim(slot, Int(1, LongestRow(state)));
  AddAppend(slot, DrawColumns(state));
}

void TraceDrawer::Draft::MoveAttend() {
  int slot = SlotWhere([](const ModelState& state) {
    return !state.pending && state.queries > 0 && state.queries <= 9 && LongestRow(state) > 0;
  });
  if (slot < 0) {
    slot = SlotWhere([&](const ModelState& state) { return !state.pending && !Grown(state); });
    if (slot < 0) return;
    AddAppend(slot, Int(1, 3));
  }
  AddAttend(slot);
}

void TraceDrawer::Draft::MoveTrim() {
  const int slot = SlotWhere([](const ModelState& state) { return LongestRow(state) > 0; });
  if (slot < 0) return;
  const ModelState& state = State(slot);
  const int64_t longest = LongestRow(state);
  const int64_t shortest = ShortestRow(state);
  const uint64_t draw = Below(12);
  // Few tokens; back over the point where a ring wrapped; all; more than there are.
  if (draw < 6) return AddTrim(slot, Int(1, 3));
  if (draw < 8)
    return AddTrim(slot, std::max<int64_t>(0, longest - state.layout.window + Int(-1, 2)));
  if (draw < 10) return AddTrim(slot, shortest + Int(-1, 1) < 0 ? 0 : shortest + Int(-1, 1));
  AddTrim(slot, draw == 10 ? longest + Int(0, 3) : Int(0, longest));
}

void TraceDrawer::Draft::MoveFilter() {
  const int slot = OneIn(3) ? UsedSlot() : SlotWhere([](const ModelState& state) {
    return state.rows.size() > 0 && !state.pending;
  });
  if (slot < 0) return;
  const int64_t rows = Rows(slot);
  const uint64_t draw = Below(10);
  std::vector<int64_t> taken;
  if (rows == 0 || draw == 0) return AddFilter(slot, {});
  if (drawn_.single) return AddFilter(slot, {0});
  if (draw < 5) {  // a permutation, the whole or a part of it
    for (int64_t b = 0; b < rows; ++b) taken.push_back(b);
    for (size_t b = taken.size(); b > 1; --b) std::swap(taken[b - 1], taken[Below(b)]);
    if (OneIn(2)) taken.resize(static_cast<size_t>(Int(1, rows)));
  } else {
    for (int64_t n = Int(1, std::min<int64_t>(4, rows + 1)); n > 0; --n)
      taken.push_back(Int(0, rows - 1));
  }
  AddFilter(slot, std::move(taken));
}

void TraceDrawer::Draft::MoveExtend() {
  CacheOp op = Op(CacheOpKind::kExtend, UsedSlot());
  if (op.slot < 0) return;
  op.target = OneIn(4) ? op.slot : UsedSlot();
  const int64_t rows = Rows(op.slot) + Rows(op.target);
  // Rows are thrown out before a batch grows too large.
  if (rows > (drawn_.single ? 1 : kMostRows)) {
    return drawn_.single ? MoveFilter()
                         : AddFilter(op.slot, {Int(0, std::max<int64_t>(0, Rows(op.slot) - 1))});
  }
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveMerge() {
  CacheOp op = Op(CacheOpKind::kMerge, 0);
  op.target = TargetSlot();
  const int64_t count = drawn_.single ? 1 : Int(1, 4);
  for (int64_t i = 0; i < count; ++i) {
    int slot = SlotWhere([](const ModelState& state) { return OneRow(state) && !state.pending; });
    if (slot < 0 || OneIn(30)) slot = UsedSlot();
    if (slot < 0) return;
    op.operands.push_back(slot);
  }
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveExtract() {
  const int slot = SlotWhere([](const ModelState& state) { return state.rows.size() > 0; });
  if (slot < 0) return;
  const int target = TargetSlot();
  AddExtract(slot, Int(0, Rows(slot) - 1), target);
}

void TraceDrawer::Draft::MoveToQuantized() {
  const int slot = UsedSlot();
  if (slot >= 0) AddToQuantized(slot);
}

void TraceDrawer::Draft::MoveCopy() {
  CacheOp op = Op(CacheOpKind::kCopy, UsedSlot());
  if (op.slot < 0) return;
  op.target = TargetSlot();
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveSave() {
  CacheOp op = Op(CacheOpKind::kSave, UsedSlot());
  if (op.slot < 0) return;
  op.key = Key();
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveLoad() {
  CacheOp op;
  op.kind = CacheOpKind::kLoad;
  op.key = Key();
  if (!shadow_.Saved(op.key) && !OneIn(4)) return;
  op.target = TargetSlot();
  Add(std::move(op));
}

void TraceDrawer::Draft::MoveDrop() {
  const int slot = UsedSlot();
  if (slot >= 0) Add(Op(CacheOpKind::kDrop, slot));
}

// A call that must be refused and change nothing.
void TraceDrawer::Draft::MoveIllegal() {
  const int slot = UsedSlot();
  if (slot < 0) return;
  const int64_t rows = Rows(slot);
  CacheOp op = Op(CacheOpKind::kAppend, slot);
  switch (Below(10)) {
    case 0:
    case 1:
      op.count = Int(1, 2);
      op.wrong = static_cast<WrongColumns>(Int(1, kWrongColumns));
      break;
    case 2:
      return AddTrim(slot, Int(-3, -1));
    case 3:
    case 4: {
      std::vector<int64_t> taken = {OneIn(3) ? -1 : rows + Int(0, 1)};
      if (rows > 0 && !OneIn(3)) taken.insert(taken.begin(), Int(0, rows - 1));
      return AddFilter(slot, std::move(taken));
    }
    case 5: {
      const int target = TargetSlot();
      return AddExtract(slot, OneIn(3) ? -1 : rows, target);
    }
    case 6:
      op.kind = CacheOpKind::kPrepare;
      for (int64_t b = 0; b < rows; ++b) op.numbers.push_back(Int(0, 2));
      if (OneIn(2) || rows == 0) {
        op.numbers.push_back(1);
      } else {
        op.numbers[Below(op.numbers.size())] = -1;
      }
      break;
    case 7:
      if (!space_->padding) return;
      op.kind = CacheOpKind::kNew;
      op.count = DrawRows();
      op.numbers.assign(static_cast<size_t>(op.count) + (OneIn(2) ? 1 : 0), 0);
      if (!op.numbers.empty()) op.numbers[Below(op.numbers.size())] = OneIn(2) ? -1 : 1;
      if (OneIn(3)) {
        const bool rings =
            std::find(space_->layouts.begin(), space_->layouts.end(), 3) != space_->layouts.end();
        op.layout = rings ? CacheLayout{LayoutKind::kRing, 2, 2, 0} : op.layout;
      }
      break;
    case 8:
      if (!space_->window) return;
      op.kind = CacheOpKind::kAttend;
      op.window = Int(-1, 0);
      break;
    default:
      op.kind = CacheOpKind::kLoad;
      op.slot = 0;
      op.key = static_cast<int>(Int(2, kStateKeys - 1));
      op.target = TargetSlot();
  }
  Add(std::move(op));
}

// Any operation on any slots with small numbers, legal or not.
void TraceDrawer::Draft::MoveAnything() {
  CacheOp op;
  op.kind = static_cast<CacheOpKind>(Below(kCacheOpKinds));
  if (drawn_.single && op.kind == CacheOpKind::kExtend) op.kind = CacheOpKind::kFinalize;
  const int slot = static_cast<int>(Below(kSlots));
  const int target = static_cast<int>(Below(kSlots));
  const int64_t most = drawn_.single ? 0 : 2;
  // Only what the operation has is set, so that its text says everything.
  switch (op.kind) {
    case CacheOpKind::kNew:
      return AddNew(slot, DrawRows());
    case CacheOpKind::kAppend:
      return AddAppend(slot, Int(1, 5));
    case CacheOpKind::kPrepare:
    case CacheOpKind::kFilter:
      for (int64_t n = Int(0, drawn_.single ? 1 : 3); n > 0; --n)
        op.numbers.push_back(Int(0, most));
      if (op.kind == CacheOpKind::kFilter && op.numbers.empty() && !space_->empty_batch) return;
      break;
    case CacheOpKind::kTrim:
      return AddTrim(slot, Int(-1, 5));
    case CacheOpKind::kExtend:
    case CacheOpKind::kCopy:
      op.target = target;
      break;
    case CacheOpKind::kMerge:
      return AddMerge({slot}, target);
    case CacheOpKind::kExtract:
      return AddExtract(slot, Int(-1, 2), target);
    case CacheOpKind::kToQuantized:
      return AddToQuantized(slot);
    case CacheOpKind::kSave:
      op.key = Key();
      break;
    case CacheOpKind::kLoad:
      op.key = Key();
      op.target = target;
      return Add(std::move(op));
    case CacheOpKind::kDamage:
      op.key = Key();
      if (space_->damages.empty()) return;
      op.damage = DrawDamage();
      op.at = Int(0, 300);
      return Add(std::move(op));
    case CacheOpKind::kAttend:
      op.sinks = OneIn(2) && space_->sinks;
      break;
    default:
      break;
  }
  op.slot = slot;
  Add(std::move(op));
}

}  // namespace kvcheck
