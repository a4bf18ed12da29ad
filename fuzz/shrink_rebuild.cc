// The step of shrinking that replaces what led to a state by the two operations that make such a
// state directly.

#include <algorithm>
#include <utility>
#include <vector>

#include "fuzz/shrink_steps.h"
#include "reference/trace/trace_result.h"
#include "reference/trace/trace_shadow.h"

namespace kvcheck {
namespace {

// `new` with padding so that one append of as many columns as the longest row has tokens fills all
// rows; a row without tokens keeps the padding that it has to come.
void AddState(const CacheSetup& setup, const ModelState& state, int slot,
              std::vector<CacheOp>* ops) {
  CacheOp made;
  made.slot = slot;
  made.count = static_cast<int64_t>(state.rows.size());
  if (!(state.layout == setup.layout)) made.layout = state.layout;
  if (!(state.k == setup.k)) made.k = state.k;
  if (!(state.v == setup.v)) made.v = state.v;
  const int64_t longest = LongestRow(state);
  bool padded = false;
  for (const ModelRow& row : state.rows) {
    made.numbers.push_back(longest - row.offset + row.unfed_padding);
    padded = padded || made.numbers.back() > 0;
  }
  if (!padded) made.numbers.clear();
  ops->push_back(std::move(made));
  if (longest == 0) return;
  CacheOp append;
  append.kind = CacheOpKind::kAppend;
  append.slot = slot;
  append.count = longest;
  ops->push_back(std::move(append));
}

}  // namespace

bool RebuildStates(const CacheCase& c, const Offer& offer) {
  std::vector<CacheCase> candidates;
  TraceShadow shadow;
  shadow.Start(c.setup);
  for (size_t i = 0; i < c.ops.size(); ++i) {
    // All slots that what follows names, in place of everything before.
    CacheCase all;
    all.setup = c.setup;
    for (int slot = 0; slot < kSlots; ++slot) {
      if (!shadow.Used(slot) || shadow.State(slot).pending) continue;
      const bool named = std::any_of(
          c.ops.begin() + static_cast<std::ptrdiff_t>(i), c.ops.end(), [&](const CacheOp& op) {
            const std::vector<int> slots = NamedSlots(op);
            return std::find(slots.begin(), slots.end(), slot) != slots.end();
          });
      if (!named) continue;
      AddState(c.setup, shadow.State(slot), slot, &all.ops);
      // One slot, in place of what has changed it.
      CacheCase one;
      one.setup = c.setup;
      for (size_t j = 0; j < i; ++j) {
        if (TargetOf(c.ops[j]) != slot) one.ops.push_back(c.ops[j]);
      }
      AddState(c.setup, shadow.State(slot), slot, &one.ops);
      one.ops.insert(one.ops.end(), c.ops.begin() + static_cast<std::ptrdiff_t>(i), c.ops.end());
      candidates.push_back(std::move(one));
    }
    all.ops.insert(all.ops.end(), c.ops.begin() + static_cast<std::ptrdiff_t>(i), c.ops.end());
    candidates.push_back(std::move(all));
    shadow.Apply(c.ops[i]);
  }
  // The later a state is rebuilt, the more goes.
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    if (candidate->ops.size() < c.ops.size() && offer(std::move(*candidate))) return true;
  }
  return false;
}

}  // namespace kvcheck
