// Faults of one row: what its queries see, what it retains, which columns are its tokens.

#include <algorithm>
#include <limits>

#include "tools/faults/cache_fault_rules.h"

namespace kvcheck::cache_fault {

CacheRules LaterRowsNotEvicted() {
  CacheRules rules;
  rules.visible = [hits = rules.hits](const ModelState& state, size_t row, int64_t,
                                      TokenRange* range) {
    if (row == 0 || state.rows[row].retained.from >= range->from) return;
    range->from = state.rows[row].retained.from;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules SingleTokenOtherCodes() {
  CacheRules rules;
  rules.encode = [hits = rules.hits](TokenPart part, const KvFormat& format, int64_t columns,
                                     std::span<std::byte> stored) {
    if (columns != 1 || IsPlain(format) || part != TokenPart::kKey) return;
    stored[0] ^= std::byte{1};
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules SingleTokenSeesLess() {
  CacheRules rules;
  rules.visible = [hits = rules.hits](const ModelState& state, size_t, int64_t position,
                                      TokenRange* range) {
    if (state.layout.kind != LayoutKind::kRing || state.queries != 1 ||
        position + 1 < state.layout.window) {
      return;
    }
    ++range->from;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules RollsAtWindow() {
  CacheRules rules;
  rules.visible = [hits = rules.hits](const ModelState& state, size_t, int64_t position,
                                      TokenRange* range) {
    if (state.layout.kind != LayoutKind::kLinear || position + 1 != state.layout.window) return;
    ++range->from;
    hits->fetch_add(1);
  };
  return rules;
}

// Makes room for the columns of an append as if whole buffers counted, not the tokens in them.
CacheRules EvictsByCapacity() {
  CacheRules rules;
  rules.retained = [hits = rules.hits](const ModelState& state, size_t row, int64_t columns,
                                       TokenRange* retained) {
    if (state.layout.kind != LayoutKind::kChunk) return;
    const int64_t offset = state.rows[row].offset;
    const int64_t in_chunk = offset % state.layout.chunk;
    const int64_t too_many = std::min(in_chunk, in_chunk + columns - state.layout.chunk);
    if (too_many <= 0) return;
    retained->from = std::max(retained->from, offset - in_chunk + too_many);
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules EvictsByAppend() {
  CacheRules rules;
  rules.retained = [hits = rules.hits](const ModelState& state, size_t row, int64_t columns,
                                       TokenRange* retained) {
    if (state.layout.window == 0 || columns < 2) return;
    const int64_t offset = state.rows[row].offset;
    const int64_t from = offset - std::max<int64_t>(0, state.layout.window - columns);
    if (from <= retained->from) return;
    retained->from = from;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules KeptEvictedOnWrap() {
  CacheRules rules;
  rules.retained = [hits = rules.hits](const ModelState& state, size_t row, int64_t columns,
                                       TokenRange* retained) {
    if (retained->keep == 0 || state.rows[row].offset + columns <= state.layout.window) return;
    retained->keep = 0;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules NeverEvicts() {
  CacheRules rules;
  rules.retained = [hits = rules.hits](const ModelState&, size_t, int64_t, TokenRange* retained) {
    if (retained->from == 0) return;
    retained->from = 0;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules PaddingIsToken() {
  CacheRules rules;
  rules.split = [hits = rules.hits](const ModelState&, size_t, int64_t, ColumnSplit* split) {
    if (split->padding == 0) return;
    --split->padding;
    ++split->tokens;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules RightPaddingIsToken() {
  CacheRules rules;
  rules.split = [hits = rules.hits](const ModelState& state, size_t, int64_t columns,
                                    ColumnSplit* split) {
    if (!state.pending || split->tokens == columns - split->padding) return;
    split->tokens = columns - split->padding;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules AttendIgnoresWindow() {
  CacheRules rules;
  rules.visible_in_window = [hits = rules.hits](const ModelState& state, size_t, int64_t position,
                                                int64_t, TokenRange* range) {
    const TokenRange layouts = Visible(state.layout, position);
    if (*range == layouts) return;
    *range = layouts;
    hits->fetch_add(1);
  };
  return rules;
}

// A weight of zero times a NaN.
CacheRules PaddingLeaksNan() {
  CacheRules rules;
  rules.attend = [hits = rules.hits](const ModelState& state, size_t row, int64_t,
                                     std::span<double> out) {
    if (state.rows[row].first_query == 0) return;
    std::fill(out.begin(), out.end(), std::numeric_limits<double>::quiet_NaN());
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace kvcheck::cache_fault
