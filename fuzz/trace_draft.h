// A trace while it is drawn: operations so far, the states that they lead to, and the moves, each
// of which adds one operation or a few that lead into a state which chance seldom reaches.

#ifndef FUZZ_TRACE_DRAFT_H_
#define FUZZ_TRACE_DRAFT_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "fuzz/draw_trace.h"
#include "fuzz/draw_trace_setup.h"
#include "reference/data/generator.h"
#include "reference/trace/trace_shadow.h"

namespace kvcheck {

class TraceDrawer::Draft {
 public:
  explicit Draft(std::vector<TraceSpace> spaces) : spaces_(std::move(spaces)) {}
  CacheCase Draw(uint64_t seed, uint64_t index);

 private:
  using Move = void (Draft::*)();
  struct Weighted {
    int weight;
    Move move;
    uint32_t needs;  // bit per CacheOpKind
  };
  static const std::initializer_list<Weighted>& Moves();
  void DrawMove();

  // trace_draft.cc: one operation
  void MoveNew();
  void MoveAppend();
  void MoveAttend();
  void MoveTrim();
  void MoveFilter();
  void MoveExtend();
  void MoveMerge();
  void MoveExtract();
  void MoveToQuantized();
  void MoveCopy();
  void MoveSave();
  void MoveLoad();
  void MoveDrop();
  void MoveIllegal();
  void MoveAnything();
  // trace_draft_moves.cc: several operations
  void MoveWrap();
  void MovePrefill();
  void MoveRestore();
  void MoveDamage();
  void MoveMergeHistories();
  void MoveQuantizeRing();
  void MoveEmptyBatch();

  // Drawing. Ranges include both ends.
  uint64_t Below(uint64_t count) { return random_->Below(count); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  int64_t Int(int64_t low, int64_t high) { return random_->Between(low, high); }
  int AnySlot() { return static_cast<int>(Below(OneIn(8) ? kSlots : 3)); }
  int FreeSlot();  // or any, where none is free
  int TargetSlot() { return OneIn(2) ? FreeSlot() : AnySlot(); }
  int UsedSlot();  // one that holds a cache; -1: none
  // One that holds a cache for which `where` is true; -1: none.
  template <typename Where>
  int SlotWhere(Where where) {
    int found[kSlots];
    uint64_t count = 0;
    for (int s = 0; s < kSlots; ++s) {
      if (shadow_.Used(s) && where(shadow_.State(s))) found[count++] = s;
    }
    return count == 0 ? -1 : found[Below(count)];
  }
  int Key() { return static_cast<int>(Below(OneIn(20) ? kStateKeys : 2)); }

  // Which the space has.
  Damage DrawDamage() { return space_->damages[Below(space_->damages.size())]; }
  // Adds the operation, as long as there is room, and if the space has it.
  void Add(CacheOp op);
  CacheOp Op(CacheOpKind kind, int slot) const {
    CacheOp op;
    op.kind = kind;
    op.slot = slot;
    return op;
  }
  void AddAppend(int slot, int64_t columns);
  void AddNew(int slot, int64_t rows);
  void AddExtract(int slot, int64_t row, int target);
  void AddMerge(std::initializer_list<int> operands, int target);
  void AddTrim(int slot, int64_t count);
  void AddFilter(int slot, std::vector<int64_t> rows);
  void AddAttend(int slot);
  void AddToQuantized(int slot);
  int64_t DrawColumns(const ModelState& state);
  int64_t DrawRows();
  // Tokens that a row of the slot may still gain: traces stay short, in tokens too.
  bool Grown(const ModelState& state) const;
  const ModelState& State(int slot) const { return shadow_.State(slot); }
  int64_t Rows(int slot) const { return static_cast<int64_t>(State(slot).rows.size()); }

  std::vector<TraceSpace> spaces_;
  const TraceSpace* space_ = nullptr;  // of the trace that is drawn
  DrawnSetup drawn_;
  TraceShadow shadow_;
  Generator* random_ = nullptr;
  CacheCase case_;
  size_t length_ = 0;
};

}  // namespace kvcheck

#endif  // FUZZ_TRACE_DRAFT_H_
