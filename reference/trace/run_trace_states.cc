// The states that a TraceRunner compares with the model's.

#include <algorithm>

#include "reference/trace/run_trace.h"
#include "reference/trace/run_trace_slots.h"

namespace kvcheck {

bool TraceRunner::Compare(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (rehearses_) {
    StepView nothing;
    slot.cache->Observe(&nothing);
    return true;
  }
  const ModelState& state = slot.state;
  rows_.resize(state.rows.size());
  size_t queries = 0;
  for (const ModelRow& row : state.rows) queries += static_cast<size_t>(row.query_tokens);
  visible_.resize(queries);
  size_t at = 0;
  const bool ring = state.layout.kind == LayoutKind::kRing;
  for (size_t b = 0; b < state.rows.size(); ++b) {
    const ModelRow& row = state.rows[b];
    ExpectedRow& expected = rows_[b];
    expected.tokens = row.tokens;
    expected.seen = row.seen;
    expected.k_coded = CodedTokens(state, row, TokenPart::kKey);
    expected.v_coded = CodedTokens(state, row, TokenPart::kValue);
    expected.offset = row.offset;
    expected.unfed_padding = row.unfed_padding;
    expected.required = Required(state.layout, row.offset);
    expected.required_before = {};
    expected.newest_visible = {};
    expected.returns_before = true;
    if (row.offset > 0) {
      expected.required_before = Required(state.layout, row.offset - 1);
      expected.returns_before = GroupsReturn(state, row, 1);
      expected.newest_visible = Visible(state.layout, row.offset - 1);
    }
    expected.most_retained = ring ? row.most_retained : -1;
    expected.first_query = row.first_query;
    const auto tokens = static_cast<size_t>(row.query_tokens);
    for (size_t i = 0; i < tokens; ++i) {
      visible_[at + i] =
          Visible(state.layout, row.offset - row.query_tokens + static_cast<int64_t>(i));
    }
    expected.visible = {visible_.data() + at, tokens};
    at += tokens;
  }
  const CacheSetup& setup = case_->setup;
  const ExpectedStep expected = {state.layout,  state.k,     state.v,       setup.kv_heads,
                                 setup.k_dim,   setup.v_dim, state.queries, state.pending,
                                 state.no_tail, rows_,       table_.View(), names_.get()};
  if (options_.poison) slot.cache->PoisonUnused();
  StepView view;
  slot.cache->Observe(&view);
  if (options_.on_state) options_.on_state(view);
  ++result_.counts.states;
  const bool holds = std::any_of(state.rows.begin(), state.rows.end(),
                                 [](const ModelRow& row) { return !row.tokens.empty(); });
  if (holds) {
    ++result_.counts.with_tokens;
    const bool shows = view.retained != nullptr || (view.visible != nullptr && queries > 0);
    if (shows) ++result_.counts.shown;
    if (state.pending && queries == 0) ++result_.counts.between;
  }
  if (comparer_.Compare(expected, view, capabilities_.cache_profile, &result_.failure)) return true;
  // Rows, formats and the like are told; tokens were seen by the probe alone.
  if (view.probed && result_.failure.row >= 0) {
    result_.failure.message +=
        "; found by a probe: a column appended to a copy, to learn what is retained. Either the "
        "operation or an append behind it is wrong";
  }
  return Fail(index, StepFault::kNone, result_.failure.message);
}

bool TraceRunner::CompareTouched() {
  for (int slot = 0; touched_ != 0; ++slot, touched_ >>= 1) {
    if ((touched_ & 1u) != 0 && slots_[static_cast<size_t>(slot)].used && !Compare(slot)) {
      return false;
    }
  }
  return true;
}

bool TraceRunner::CompareAll() {
  observed_.clear();
  for (Slot& slot : slots_) {
    if (slot.used) observed_.push_back(slot.cache.get());
  }
  if (!observed_.empty()) factory_->ObserveNext(observed_);
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slots_[static_cast<size_t>(slot)].used && !Compare(slot)) return false;
  }
  return true;
}

}  // namespace kvcheck
