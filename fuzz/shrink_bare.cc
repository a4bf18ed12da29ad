// Caches without rows or tokens: how bare a trace is, and the step of shrinking that fills them.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "fuzz/shrink_steps.h"
#include "reference/trace/trace_shadow.h"

namespace kvcheck {
namespace {

bool HasRowlessCache(const TraceShadow& shadow) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (shadow.Used(slot) && shadow.State(slot).rows.size() == 0) return true;
  }
  return false;
}

enum class Tokens : uint8_t { kNoCache, kNone, kSome };

// Of the caches that the operation names; of all where it names none that is there (a load that is
// refused leaves nothing behind).
Tokens TokensAt(const TraceShadow& shadow, const std::vector<int>& named) {
  const bool finds =
      std::any_of(named.begin(), named.end(), [&](int slot) { return shadow.Used(slot); });
  Tokens tokens = Tokens::kNoCache;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (!shadow.Used(slot)) continue;
    if (finds && std::find(named.begin(), named.end(), slot) == named.end()) continue;
    if (LongestRow(shadow.State(slot)) > 0) return Tokens::kSome;
    tokens = Tokens::kNone;
  }
  return tokens;
}

// What an operation puts its result on is not what it works on.
Tokens TokensBefore(const TraceShadow& shadow, const CacheOp& op) {
  switch (op.kind) {
    case CacheOpKind::kCopy:
    case CacheOpKind::kExtract:
      return TokensAt(shadow, {op.slot});
    case CacheOpKind::kMerge:
      return TokensAt(shadow, op.operands);
    default:
      return TokensAt(shadow, NamedSlots(op));
  }
}

CacheOp AppendTo(int slot) {
  CacheOp append;
  append.kind = CacheOpKind::kAppend;
  append.slot = slot;
  append.count = 1;
  return append;
}

}  // namespace

int64_t BarenessOf(const CacheCase& c) {
  if (c.ops.empty()) return 0;
  TraceShadow shadow;
  shadow.Start(c.setup);
  Tokens tokens = Tokens::kNoCache;
  for (size_t i = 0; i < c.ops.size(); ++i) {
    // What the last operation leaves, a filter that takes no row, is what is looked for.
    if (HasRowlessCache(shadow)) return 2;
    const bool last = i + 1 == c.ops.size();
    if (last) tokens = TokensBefore(shadow, c.ops[i]);
    shadow.Apply(c.ops[i]);
    if (last) tokens = std::max(tokens, TokensAt(shadow, NamedSlots(c.ops[i])));
  }
  return tokens == Tokens::kNone ? 1 : 0;
}

bool FillCaches(const CacheCase& c, const Offer& offer) {
  if (BarenessOf(c) == 0) return false;
  // All at once, then each alone: rows for caches without, then tokens.
  for (const int64_t rows : {int64_t{1}, int64_t{2}}) {
    CacheCase rowed = c;
    CacheCase filled;
    filled.setup = c.setup;
    for (CacheOp& op : rowed.ops) {
      if (op.kind == CacheOpKind::kNew && op.count == 0) {
        op.count = rows;
        op.numbers.clear();
      }
      if (op.kind == CacheOpKind::kFilter && op.numbers.empty()) op.numbers.push_back(0);
      filled.ops.push_back(op);
      if (op.kind == CacheOpKind::kNew) filled.ops.push_back(AppendTo(op.slot));
    }
    if (offer(std::move(filled))) return true;
    if (offer(std::move(rowed))) return true;
  }
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const CacheOp& op = c.ops[i];
    if (op.kind != CacheOpKind::kNew) continue;
    CacheCase one = c;
    one.ops.insert(one.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, AppendTo(op.slot));
    if (op.count == 0) one.ops[i].count = 1;
    if (offer(std::move(one))) return true;
  }
  return false;
}

}  // namespace kvcheck
