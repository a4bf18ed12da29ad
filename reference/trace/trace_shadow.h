// The states that a trace leads to, as counts without tokens, by the rules of the model
// (reference/cache/model_state.h): what the drawing of a trace looks at to choose what comes next.
// Evicts as early as the contract allows; an implementation may retain more, and trim further.

#ifndef REFERENCE_TRACE_TRACE_SHADOW_H_
#define REFERENCE_TRACE_TRACE_SHADOW_H_

#include <array>
#include <cstdint>
#include <vector>

#include "reference/cache/model_state.h"
#include "reference/spec/trace.h"

namespace kvcheck {

class TraceShadow {
 public:
  // Every slot empty, nothing saved.
  void Start(const CacheSetup& setup);
  // False where the operation names an empty slot or is illegal: then nothing has changed.
  bool Apply(const CacheOp& op);

  bool Used(int slot) const { return slots_[Index(slot)].used; }
  const ModelState& State(int slot) const { return slots_[Index(slot)].state; }
  bool Saved(int key) const { return saved_[Index(key)].used; }
  bool Damaged(int key) const { return saved_[Index(key)].damaged; }

 private:
  struct Slot {
    bool used = false;
    bool damaged = false;
    ModelState state;
  };
  static size_t Index(int i) { return static_cast<size_t>(i); }
  bool ApplyToSlot(const CacheOp& op, Slot* slot);
  bool ApplyMerge(const CacheOp& op);

  CacheSetup setup_;
  std::array<Slot, kSlots> slots_;
  std::array<Slot, kStateKeys> saved_;
  ModelState made_;
  ModelRows scratch_;
  std::vector<const ModelState*> operands_;
};

// Tokens of the longest and of the shortest row; 0 of no rows.
int64_t LongestRow(const ModelState& state);
int64_t ShortestRow(const ModelState& state);

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_TRACE_SHADOW_H_
