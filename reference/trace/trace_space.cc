#include "reference/trace/trace_space.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "reference/spec/glob.h"
#include "reference/trace/trace_shadow.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 5> kLayoutVariants = {"linear", "linear:w", "ring",
                                                             "ring:keep", "chunk"};

bool HasLayout(const CacheSpace& space, const CacheLayout& layout) {
  const auto kind = static_cast<size_t>(LayoutVariantOf(layout));
  return MatchesAnyGlob(space.layouts, std::string(LayoutVariants()[kind]));
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

std::span<const std::string_view> LayoutVariants() { return kLayoutVariants; }

int LayoutVariantOf(const CacheLayout& layout) {
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return layout.window == 0 ? 0 : 1;
    case LayoutKind::kRing:
      return layout.keep == 0 ? 2 : 3;
    case LayoutKind::kChunk:
      return 4;
  }
  return 0;
}

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
  auto within =
      [all = std::vector<CacheSpace>(spaces.begin(), spaces.end())](const CacheCase& candidate) {
        return std::any_of(all.begin(), all.end(),
                           [&](const CacheSpace& space) { return HasTrace(space, candidate); });
      };
  if (spaces.empty() || !within(c)) return [](const CacheCase&) { return true; };
  return within;
}

}  // namespace kvcheck
