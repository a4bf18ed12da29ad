#include "reference/cache/model_state.h"

#include <algorithm>

#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

constexpr std::string_view kPending = "a prepared prefill is pending: append or finalize first";

constexpr std::string_view kTokenGroups =
    "the format has a residual of the newest tokens, and this layout forgets tokens one by one: "
    "store them in layout linear";

constexpr std::string_view kGroup = "the group of the format does not divide head_dim";

// The same row as a row of another cache: without a step.
void CarryRow(const ModelRow& from, ModelRow* to) {
  if (from.tokens.data() != to->tokens.data()) to->tokens = from.tokens;
  to->retained = from.retained;
  to->offset = from.offset;
  to->unfed_padding = from.unfed_padding;
  to->to_come = from.to_come;
  to->most_retained = from.most_retained;
  to->k_coded = from.k_coded;
  to->v_coded = from.v_coded;
  to->seen.clear();
  to->first_query = 0;
  to->query_tokens = 0;
}

}  // namespace

TokenRange Visible(const CacheLayout& layout, int64_t position) {
  const int64_t end = position + 1;
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return {0, layout.window == 0 ? 0 : std::max<int64_t>(0, end - layout.window), end};
    case LayoutKind::kRing:
      return {layout.keep, std::max<int64_t>(0, end - (layout.window - layout.keep)), end};
    case LayoutKind::kChunk:
      return {0, position / layout.chunk * layout.chunk, end};
  }
  return {};
}

TokenRange VisibleInWindow(const CacheLayout& layout, int64_t position, int64_t window) {
  TokenRange range = Visible(layout, position);
  range.from = std::max(range.from, position + 1 - window);
  return range;
}

TokenRange Required(const CacheLayout& layout, int64_t offset) {
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return {0, layout.window == 0 ? 0 : std::max<int64_t>(0, offset - (layout.window - 1)),
              offset};
    case LayoutKind::kRing:
      return {layout.keep, std::max<int64_t>(0, offset - (layout.window - layout.keep - 1)),
              offset};
    case LayoutKind::kChunk:
      return {0, offset / layout.chunk * layout.chunk, offset};
  }
  return {};
}

bool Holds(const TokenRange& retained, const TokenRange& required) {
  if (required.end > retained.end) return false;
  // The first position of the required range that `retained` may lack.
  const int64_t kept = std::min(required.keep, required.end);
  if (kept > retained.keep && retained.keep < retained.from) return false;
  const int64_t from = std::max(required.from, retained.keep);
  return from >= required.end || from >= retained.from;
}

std::string_view RefuseNew(const CacheSetup& setup, const CacheLayout& layout, const KvFormat& k,
                           const KvFormat& v, int64_t rows, std::span<const int64_t> padding) {
  if (!IsLegal(layout)) return "the layout needs W and C of at least 1 and K below W";
  if (!FitsTokens(k, setup.k_dim) || !FitsTokens(v, setup.v_dim)) return kGroup;
  if (!KeepsGroups(layout, k) || !KeepsGroups(layout, v)) return kTokenGroups;
  if (rows < 0) return "a batch has no negative number of rows";
  if (!padding.empty() && static_cast<int64_t>(padding.size()) != rows) {
    return "left padding names another number of rows";
  }
  for (int64_t p : padding) {
    if (p < 0) return "left padding is negative";
  }
  return "";
}

std::string_view RefuseAppend(const CacheSetup& setup, const ModelState& state,
                              const TokenColumns& columns) {
  if (columns.dtype != setup.x) return "columns of another type";
  if (columns.rows != static_cast<int64_t>(state.rows.size())) {
    return "columns of another number of rows";
  }
  if (columns.kv_heads != setup.kv_heads) return "columns of another number of heads";
  if (columns.k_dim != setup.k_dim || columns.v_dim != setup.v_dim) {
    return "columns of another head_dim";
  }
  if (columns.ValueColumns() != columns.columns) return "K and V of different numbers of columns";
  return "";
}

std::string_view RefusePrepare(const ModelState& state, std::span<const int64_t> lengths) {
  if (state.pending) return kPending;
  if (lengths.size() != state.rows.size()) return "lengths name another number of rows";
  for (int64_t length : lengths) {
    if (length < 0) return "a length is negative";
  }
  return "";
}

std::string_view RefuseFinalize(const ModelState& state) {
  if (!state.pending) return "";
  for (const ModelRow& row : state.rows) {
    if (row.to_come > 0) return "prepared tokens have not all arrived";
  }
  return "";
}

std::string_view RefuseTrim(const ModelState& state, int64_t count) {
  if (state.pending) return kPending;
  return count < 0 ? "a negative number of tokens" : "";
}

std::string_view RefuseFilter(const ModelState& state, std::span<const int64_t> rows) {
  if (state.pending) return kPending;
  for (int64_t row : rows) {
    if (row < 0 || row >= static_cast<int64_t>(state.rows.size())) return "a row out of range";
  }
  return "";
}

std::string_view RefuseExtend(const ModelState& state, const ModelState& other) {
  if (state.pending || other.pending) return kPending;
  if (!(state.layout == other.layout)) return "layouts differ";
  if (!(state.k == other.k) || !(state.v == other.v)) return "formats differ";
  return "";
}

std::string_view RefuseMerge(std::span<const ModelState* const> states) {
  if (states.empty()) return "nothing to merge";
  for (const ModelState* state : states) {
    if (state->rows.size() != 1) return "merge takes caches of one row";
    const std::string_view why = RefuseExtend(*states[0], *state);
    if (!why.empty()) return why;
  }
  return "";
}

std::string_view RefuseExtract(const ModelState& state, int64_t row) {
  if (state.pending) return kPending;
  return row < 0 || row >= static_cast<int64_t>(state.rows.size()) ? "a row out of range" : "";
}

std::string_view RefuseToQuantized(const CacheSetup& setup, const ModelState& state,
                                   const KvFormat& k, const KvFormat& v) {
  if (state.pending) return kPending;
  if ((!IsPlain(state.k) && !(state.k == k)) || (!IsPlain(state.v) && !(state.v == v))) {
    return "it is quantized already, in another format";
  }
  if (!FitsTokens(k, setup.k_dim) || !FitsTokens(v, setup.v_dim)) return kGroup;
  return KeepsGroups(state.layout, k) && KeepsGroups(state.layout, v) ? "" : kTokenGroups;
}

std::string_view RefuseWhilePending(const ModelState& state) {
  return state.pending ? kPending : "";
}

std::string_view RefuseAttend(const CacheSetup& setup, const ModelState& state,
                              const AttendRequest& request) {
  if (state.pending) return kPending;
  if (state.queries == 0) return "there is no append whose queries could attend";
  if (request.dtype != setup.x || request.query_heads != setup.query_heads ||
      request.rows != static_cast<int64_t>(state.rows.size()) || request.queries != state.queries) {
    return "queries of another type or shape than the last append's";
  }
  return request.window && *request.window < 1 ? "a window holds at least 1 token" : "";
}

ColumnSplit SplitColumns(const ModelState& state, size_t row, int64_t columns) {
  const ModelRow& r = state.rows[row];
  ColumnSplit split;
  split.padding = std::min(r.unfed_padding, columns);
  split.tokens = columns - split.padding;
  if (state.pending) split.tokens = std::min(split.tokens, r.to_come);
  return split;
}

void New(const CacheLayout& layout, const KvFormat& k, const KvFormat& v, int64_t rows,
         std::span<const int64_t> padding, ModelState* state) {
  state->layout = layout;
  state->k = k;
  state->v = v;
  state->pending = false;
  state->queries = 0;
  state->no_tail = false;
  state->rows.Resize(static_cast<size_t>(rows));
  for (size_t b = 0; b < state->rows.size(); ++b) {
    ModelRow& row = state->rows[b];
    row.tokens.clear();
    row.seen.clear();
    row.k_coded = row.v_coded = 0;
    row.retained = {layout.keep, 0, 0};
    row.offset = 0;
    row.unfed_padding = padding.empty() ? 0 : padding[b];
    row.to_come = 0;
    row.most_retained = 0;
    row.first_query = 0;
    row.query_tokens = 0;
  }
}

void StartAppend(ModelState* state, size_t row, int64_t columns, ColumnSplit split, bool evicts) {
  ModelRow& r = state->rows[row];
  r.unfed_padding -= split.padding;
  if (state->pending) r.to_come -= split.tokens;
  r.seen.clear();
  r.first_query = split.padding;
  r.query_tokens = split.tokens;
  state->queries = columns;
  state->no_tail = false;
  if (evicts) r.retained.from = std::max(r.retained.from, Required(state->layout, r.offset).from);
  // A ring may evict late: at the next append, and in a prefill when it is finalized.
  const int64_t before = state->pending ? r.most_retained : 0;
  r.most_retained = std::max(before, state->layout.window - 1) + columns;
}

void Appended(ModelState* state, size_t row, ColumnSplit split) {
  ModelRow& r = state->rows[row];
  r.offset += split.tokens;
  r.retained.end = r.offset;
}

void Prepare(std::span<const int64_t> lengths, ModelState* state) {
  state->pending = true;
  for (size_t b = 0; b < lengths.size(); ++b) state->rows[b].to_come = lengths[b];
  EndStep(state);
}

void Finalize(ModelState* state) {
  if (!state->pending) return;
  state->pending = false;
  EndStep(state);
}

int64_t TrimReach(const ModelState& state, int64_t count, std::span<const TokenRange> retained) {
  if (state.rows.size() == 0) return 0;
  int64_t reach = count;
  for (const ModelRow& row : state.rows) reach = std::min(reach, row.offset);
  for (; reach > 0; --reach) {
    bool every = true;
    for (size_t b = 0; b < state.rows.size() && every; ++b) {
      const ModelRow& row = state.rows[b];
      every = Holds(retained.empty() ? row.retained : retained[b],
                    Required(state.layout, row.offset - reach));
    }
    if (every && GroupsReturn(state, reach)) return reach;
  }
  return 0;
}

int64_t CodedTokens(const ModelState& state, const ModelRow& row, TokenPart part) {
  const bool is_key = part == TokenPart::kKey;
  if (state.regroup == RegroupRule::kNever) {
    return ClosedTokens(is_key ? state.k : state.v, row.offset);
  }
  return is_key ? row.k_coded : row.v_coded;
}

bool GroupsReturn(const ModelState& state, const ModelRow& row, int64_t trimmed) {
  const int64_t left = row.offset - trimmed;
  const auto returns = [&](const KvFormat& format, TokenPart part) {
    if (!HasResidual(format)) return true;
    switch (state.regroup) {
      case RegroupRule::kNever:
        return CanReturnTo(format, row.offset, left);
      case RegroupRule::kAll:
        return left >= CodedTokens(state, row, part) || left == 0;
      case RegroupRule::kOpen:
        // Whole groups were never coded with what came behind them.
        return trimmed == 0 || left % TokenGroupOf(format) == 0;
    }
    return false;
  };
  return returns(state.k, TokenPart::kKey) && returns(state.v, TokenPart::kValue);
}

bool GroupsReturn(const ModelState& state, int64_t trimmed) {
  return std::all_of(state.rows.begin(), state.rows.end(),
                     [&](const ModelRow& row) { return GroupsReturn(state, row, trimmed); });
}

void Trim(int64_t reach, ModelState* state) {
  for (ModelRow& row : state->rows) {
    row.offset -= reach;
    row.tokens.resize(static_cast<size_t>(row.offset));
    row.retained.end = row.offset;
    row.retained.from = std::min(row.retained.from, row.offset);
    row.k_coded = std::min(row.k_coded, row.offset);
    row.v_coded = std::min(row.v_coded, row.offset);
  }
  EndStep(state);
}

void Filter(std::span<const int64_t> rows, ModelState* state, ModelRows* scratch) {
  scratch->Resize(rows.size());
  for (size_t b = 0; b < rows.size(); ++b) {
    CarryRow(state->rows[static_cast<size_t>(rows[b])], &(*scratch)[b]);
  }
  state->rows.Swap(scratch);
  EndStep(state);
}

void Extend(const ModelState& other, ModelState* state) {
  const size_t before = state->rows.size();
  const size_t more = other.rows.size();
  state->rows.Resize(before + more);
  for (size_t b = 0; b < more; ++b) CarryRow(other.rows[b], &state->rows[before + b]);
  EndStep(state);
}

void Merge(std::span<const ModelState* const> states, ModelState* out) {
  out->layout = states[0]->layout;
  out->k = states[0]->k;
  out->v = states[0]->v;
  out->regroup = states[0]->regroup;
  out->pending = false;
  out->rows.Resize(states.size());
  for (size_t b = 0; b < states.size(); ++b) CarryRow(states[b]->rows[0], &out->rows[b]);
  EndStep(out);
}

void Extract(const ModelState& state, int64_t row, ModelState* out) {
  out->layout = state.layout;
  out->k = state.k;
  out->v = state.v;
  out->regroup = state.regroup;
  out->pending = false;
  out->rows.Resize(1);
  CarryRow(state.rows[static_cast<size_t>(row)], &out->rows[0]);
  out->rows[0].unfed_padding = 0;
  EndStep(out);
  out->no_tail = true;
}

void CopyState(const ModelState& state, ModelState* out) {
  *out = state;
  EndStep(out);
}

void EndStep(ModelState* state) {
  state->queries = 0;
  state->no_tail = false;
  for (ModelRow& row : state->rows) {
    row.first_query = 0;
    row.query_tokens = 0;
    row.seen.clear();
  }
}

int64_t SizeOf(const ModelState& state) {
  int64_t size = 0;
  for (const ModelRow& row : state.rows) {
    if (row.offset == 0) continue;
    const TokenRange visible = Visible(state.layout, row.offset - 1);
    // Both ranges keep the same first tokens.
    const TokenRange both = {std::min(visible.keep, row.retained.keep),
                             std::max(visible.from, row.retained.from), row.offset};
    size = std::max(size, both.Count());
  }
  return size;
}

bool IsEmpty(const ModelState& state) {
  return std::all_of(state.rows.begin(), state.rows.end(),
                     [](const ModelRow& row) { return row.offset == 0; });
}

bool IsTrimmable(const ModelState& state) { return IsEmpty(state) || TrimReach(state, 1, {}) == 1; }

}  // namespace kvcheck
