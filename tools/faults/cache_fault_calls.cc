// Faults of calls and answers: what is refused or carried out, what is shared instead of copied,
// and the numbers that describe a cache.

#include <algorithm>

#include "tools/faults/cache_fault_rules.h"

namespace kvcheck::cache_fault {
namespace {

bool HasCodes(const ModelState& state) { return !IsPlain(state.k) || !IsPlain(state.v); }

int64_t MostRetained(const ModelState& state) {
  int64_t most = 0;
  for (const ModelRow& row : state.rows) most = std::max(most, row.retained.Count());
  return most;
}

// Refuses legal calls of one kind that `where` says true of.
template <typename Where>
CacheRules Refuses(CacheOpKind op, std::string_view message, Where where) {
  CacheRules rules;
  rules.legal = [hits = rules.hits, op, message, where](const CacheCall& call,
                                                        std::string_view* why) {
    if (call.op != op || !why->empty() || !where(call)) return;
    *why = message;
    hits->fetch_add(1);
  };
  return rules;
}

// Carries out illegal calls of one kind that `where` says true of.
template <typename Where>
CacheRules Accepts(CacheOpKind op, Where where) {
  CacheRules rules;
  rules.legal = [hits = rules.hits, op, where](const CacheCall& call, std::string_view* why) {
    if (call.op != op || why->empty() || !where(call)) return;
    *why = "";
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules Takes(RecordFault fault) {
  CacheRules rules;
  rules.takes_record = [hits = rules.hits, fault](RecordFault found) {
    if (found != fault) return false;
    hits->fetch_add(1);
    return true;
  };
  return rules;
}

CacheRules Shares(CacheOpKind op) {
  CacheRules rules;
  rules.shares = [op](CacheOpKind asked) { return asked == op; };
  return rules;
}

}  // namespace

CacheRules TrimIgnoresEviction() {
  CacheRules rules;
  rules.trim_reach = [hits = rules.hits](const ModelState& state, int64_t count, int64_t* reach) {
    int64_t most = state.rows.size() == 0 ? 0 : count;
    for (const ModelRow& row : state.rows) most = std::min(most, row.offset);
    if (most <= *reach) return;
    *reach = most;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules NegativeTrim() {
  return Accepts(CacheOpKind::kTrim,
                 [](const CacheCall& call) { return call.count < 0 && !call.state->pending; });
}

CacheRules AnyVersion() { return Takes(RecordFault::kVersion); }
CacheRules AnyContent() { return Takes(RecordFault::kHash); }

CacheRules SingleAppendWhilePending() {
  return Refuses(CacheOpKind::kAppend, "no update in place while a prefill is pending",
                 [](const CacheCall& call) { return call.count == 1 && call.state->pending; });
}

CacheRules FilterWhilePending() {
  return Accepts(CacheOpKind::kFilter, [](const CacheCall& call) { return call.state->pending; });
}

CacheRules ExtendUnequalRefused() {
  return Refuses(CacheOpKind::kExtend, "shapes of the buffers differ", [](const CacheCall& call) {
    return MostRetained(*call.state) != MostRetained(*call.other);
  });
}

CacheRules MergeEmptyRefused() {
  return Refuses(CacheOpKind::kMerge, "a cache to merge has no keys",
                 [](const CacheCall& call) { return call.other->rows[0].offset == 0; });
}

CacheRules MergeCodesRefused() {
  return Refuses(CacheOpKind::kMerge, "quantized caches have no merge",
                 [](const CacheCall& call) { return HasCodes(*call.other); });
}

CacheRules QuantizeRingRefused() {
  return Refuses(CacheOpKind::kToQuantized, "not implemented for rings", [](const CacheCall& call) {
    return call.state->layout.kind == LayoutKind::kRing;
  });
}

CacheRules LoadWrappedRefused() {
  return Refuses(CacheOpKind::kLoad, "negative dimensions are not allowed",
                 [](const CacheCall& call) {
                   if (call.state->layout.kind != LayoutKind::kRing) return false;
                   return std::any_of(
                       call.state->rows.begin(), call.state->rows.end(),
                       [&](const ModelRow& row) { return row.offset > call.state->layout.window; });
                 });
}

CacheRules RefusedFilterHalfDone() {
  CacheRules rules;
  rules.refused = [hits = rules.hits](const CacheCall& call, ModelState* state) {
    if (call.op != CacheOpKind::kFilter || state->pending) return;
    // The rows before the one out of range have been taken already.
    std::vector<int64_t> taken;
    for (int64_t row : call.numbers) {
      if (row < 0 || row >= static_cast<int64_t>(state->rows.size())) break;
      taken.push_back(row);
    }
    ModelRows scratch;
    Filter(taken, state, &scratch);
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules CopyShares() { return Shares(CacheOpKind::kCopy); }
CacheRules SaveShares() { return Shares(CacheOpKind::kSave); }
CacheRules ExtendChangesOperand() { return Shares(CacheOpKind::kExtend); }

CacheRules SizeZeroOfCodes() {
  CacheRules rules;
  rules.numbers = [hits = rules.hits](const ModelState& state, CacheNumbers* numbers) {
    if (!HasCodes(state) || numbers->size == 0) return;
    numbers->size = 0;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules BytesZeroOfCodes() {
  CacheRules rules;
  rules.numbers = [hits = rules.hits](const ModelState& state, CacheNumbers* numbers) {
    if (!HasCodes(state) || numbers->live_bytes == 0) return;
    numbers->live_bytes = 0;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules RepeatedRowsCountedOnce() {
  CacheRules rules;
  rules.numbers = [hits = rules.hits](const ModelState& state, CacheNumbers* numbers) {
    int64_t all = 0;
    int64_t repeated = 0;
    for (size_t b = 0; b < state.rows.size(); ++b) {
      const ModelRow& row = state.rows[b];
      all += row.retained.Count();
      for (size_t other = 0; other < b; ++other) {
        if (state.rows[other].tokens == row.tokens) {
          repeated += row.retained.Count();
          break;
        }
      }
    }
    if (repeated == 0) return;
    numbers->live_bytes -= numbers->live_bytes / all * repeated;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules OffsetOfLongest() {
  CacheRules rules;
  rules.numbers = [hits = rules.hits](const ModelState&, CacheNumbers* numbers) {
    if (numbers->offsets.empty()) return;
    const int64_t longest = *std::max_element(numbers->offsets.begin(), numbers->offsets.end());
    for (int64_t& offset : numbers->offsets) {
      if (offset == longest) continue;
      offset = longest;
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules OffsetStopsAtWindow() {
  CacheRules rules;
  rules.numbers = [hits = rules.hits](const ModelState& state, CacheNumbers* numbers) {
    if (state.layout.window == 0) return;
    for (int64_t& offset : numbers->offsets) {
      if (offset <= state.layout.window) continue;
      offset = state.layout.window;
      hits->fetch_add(1);
    }
  };
  return rules;
}

}  // namespace kvcheck::cache_fault
