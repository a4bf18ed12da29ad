#include "fuzz/trace_space.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/draw_trace.h"
#include "fuzz/trace_shadow.h"
#include "reference/spec/pattern.h"

namespace kvcheck {
namespace {

bool HasLayout(const CacheSpace& space, const CacheLayout& layout) {
  const auto kind = static_cast<size_t>(DrawnLayoutOf(layout));
  return MatchesAnyPattern(space.layouts, std::string(DrawnLayouts()[kind]));
}

bool HasOperation(const CacheSpace& space, const CacheSetup& setup, const CacheOp& op) {
  if (!space.Has(op.kind)) return false;
  switch (op.kind) {
    case CacheOpKind::kNew:
      return (space.padding || op.numbers.empty()) && (space.empty_batch || op.count != 0) &&
             HasLayout(space, op.layout.value_or(setup.layout)) &&
             space.HasFormats(setup.x, op.k.value_or(setup.k), op.v.value_or(setup.v));
    case CacheOpKind::kToQuantized:
      return space.HasFormats(setup.x, *op.k, *op.v);
    case CacheOpKind::kFilter:
      return space.empty_batch || !op.numbers.empty();
    case CacheOpKind::kDamage:
      return space.Has(op.damage);
    case CacheOpKind::kAttend:
      return (space.window || !op.window) && (space.sinks || !op.sinks);
    default:
      return true;
  }
}

bool HasRows(const CacheSpace& space, const TraceShadow& shadow) {
  if (space.rows != SpaceRows::kSingle) return true;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (shadow.Used(slot) && shadow.State(slot).rows.size() > 1) return false;
  }
  return true;
}

}  // namespace

bool HasTrace(const CacheSpace& space, const CacheCase& c) {
  const CacheSetup& setup = c.setup;
  if (!HasLayout(space, setup.layout) || !space.HasFormats(setup.x, setup.k, setup.v)) return false;
  if (space.same_dims && setup.k_dim != setup.v_dim) return false;
  if (!space.grouped && setup.query_heads != setup.kv_heads) return false;
  TraceShadow shadow;
  shadow.Start(setup);
  for (const CacheOp& op : c.ops) {
    if (!HasOperation(space, setup, op)) return false;
    const bool made = shadow.Apply(op);
    // Operands of a merge are made alone all the same.
    const bool alone = op.kind == CacheOpKind::kNew && made && op.count == 1;
    if (alone && space.rows == SpaceRows::kBatch && !space.Has(CacheOpKind::kMerge)) return false;
    if (!HasRows(space, shadow)) return false;
  }
  return true;
}

std::function<bool(const CacheCase&)> WithinSpaces(std::span<const CacheSpace> spaces,
                                                   const CacheCase& c) {
  const auto within =
      [all = std::vector<CacheSpace>(spaces.begin(), spaces.end())](const CacheCase& candidate) {
        return std::any_of(all.begin(), all.end(),
                           [&](const CacheSpace& space) { return HasTrace(space, candidate); });
      };
  if (spaces.empty() || !within(c)) return [](const CacheCase&) { return true; };
  return within;
}

}  // namespace kvcheck
