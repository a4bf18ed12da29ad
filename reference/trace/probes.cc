#include "reference/trace/probes.h"

#include <algorithm>

#include "reference/trace/trace_shadow.h"

namespace kvcheck {
namespace {

static_assert(kProbes <= 64, "ProbeCounter keeps a bit per probe");

struct ProbeText {
  Probe probe;
  std::string_view name;
  std::string_view description;
};

constexpr std::array<ProbeText, kProbes> kTexts = {{
    {Probe::kRingWrapped, "ring_wrapped", "a row of a ring outgrows its window"},
    {Probe::kRingWithKeepWrapped, "ring_with_keep_wrapped", "the same in a ring that keeps tokens"},
    {Probe::kRingWrappedTwice, "ring_wrapped_twice", "a row of a ring outgrows two windows"},
    {Probe::kAppendAcrossWrap, "append_across_wrap",
     "several columns begin inside a ring's window and end outside"},
    {Probe::kOneTokenAfterWrap, "one_token_after_wrap", "one column for a ring that has wrapped"},
    {Probe::kAppendLargerThanWindow, "append_larger_than_window",
     "an append has more columns than the layout's window"},
    {Probe::kLinearWindowPassed, "linear_window_passed",
     "a row of a linear layout outgrows its window"},
    {Probe::kChunkBoundaryCrossed, "chunk_boundary_crossed",
     "one append ends a chunk that holds tokens and begins the next"},
    {Probe::kGrowthPastStep, "growth_past_step",
     "a row with tokens grows past a multiple of the growth step"},
    {Probe::kTrimAcrossWrap, "trim_across_wrap",
     "trim takes a ring that has wrapped back inside its window"},
    {Probe::kTrimIntoKept, "trim_into_kept", "trim takes some of the tokens that a ring keeps"},
    {Probe::kTrimReachesLess, "trim_reaches_less",
     "trim answers less than asked although the rows have more tokens"},
    {Probe::kTrimToEmpty, "trim_to_empty", "trim takes every token"},
    {Probe::kTrimOfUnequalRows, "trim_of_unequal_rows", "trim of rows of unequal length"},
    {Probe::kTrimThenAppend, "trim_then_append", "the first append after a trim"},
    {Probe::kFilterToNothing, "filter_to_nothing", "filter leaves no row"},
    {Probe::kFilterRepeats, "filter_repeats", "filter takes a row twice"},
    {Probe::kFilterPermutes, "filter_permutes", "filter changes the order of rows"},
    {Probe::kFilterMovesUnfedPadding, "filter_moves_unfed_padding",
     "filter changes the order of rows, or repeats one, while padding is unfed"},
    {Probe::kEmptyBatchUsed, "empty_batch_used", "an operation on a batch of 0 rows"},
    {Probe::kExtendByEmptySide, "extend_by_empty_side",
     "extend of tokens by a batch that has none"},
    {Probe::kExtendOfEmptySide, "extend_of_empty_side",
     "extend of a batch without tokens by one with tokens"},
    {Probe::kExtendOfOtherCapacity, "extend_of_other_capacity",
     "extend of batches whose lengths differ by a growth step or more"},
    {Probe::kExtendWithItself, "extend_with_itself", "extend by the same cache"},
    {Probe::kMergeUnequalFill, "merge_unequal_fill", "merge of rows of unequal length"},
    {Probe::kMergeOfHistories, "merge_of_histories",
     "merge of a row that has outgrown its window with one that has not"},
    {Probe::kMergeWithEmptyRow, "merge_with_empty_row", "merge of an empty row with one of tokens"},
    {Probe::kMergeSameTwice, "merge_same_twice", "merge that names a cache twice"},
    {Probe::kMergeOfCodes, "merge_of_codes", "merge of several rows of affine codes"},
    {Probe::kExtractLeftPaddedRow, "extract_left_padded_row",
     "extract of a row that is shorter than another of its batch"},
    {Probe::kExtractThenAppend, "extract_then_append", "the first append after an extract"},
    {Probe::kUnfedPaddingCopied, "unfed_padding_copied", "copy of unfed padding"},
    {Probe::kUnfedPaddingSaved, "unfed_padding_saved", "save of unfed padding"},
    {Probe::kUnfedPaddingMerged, "unfed_padding_merged", "merge or extend by unfed padding"},
    {Probe::kUnfedPaddingExtracted, "unfed_padding_extracted",
     "extract of a row with unfed padding, which is left behind"},
    {Probe::kPrepareZeroLength, "prepare_zero_length",
     "a prepared prefill in which a row gets no token beside one that does"},
    {Probe::kPrepareBehindPadding, "prepare_behind_padding",
     "a prefill prepared for a row with unfed padding"},
    {Probe::kPendingAppendSplit, "pending_append_split",
     "a prepared prefill arrives in several appends"},
    {Probe::kFinalizeRefused, "finalize_refused", "finalize before all lengths have arrived"},
    {Probe::kIllegalWhilePending, "illegal_while_pending",
     "another illegal call while a prefill is pending"},
    {Probe::kQuantizeTokens, "quantize_tokens", "to_quantized of tokens"},
    {Probe::kQuantizeWrappedRing, "quantize_wrapped_ring",
     "to_quantized of a ring that has wrapped"},
    {Probe::kQuantizeKeysOnly, "quantize_keys_only", "to_quantized that changes K and not V"},
    {Probe::kQuantizeRefused, "quantize_refused", "to_quantized of other codes is refused"},
    {Probe::kLoadAfterDamage, "load_after_damage", "load of what was damaged is refused"},
    {Probe::kLoadThenAppend, "load_then_append", "the first append after a load"},
    {Probe::kLoadOfWrappedRing, "load_of_wrapped_ring", "load of a ring that has wrapped"},
    {Probe::kLoadAfterChange, "load_after_change",
     "load of a state whose cache has changed since it was saved"},
    {Probe::kAttendInsideWindow, "attend_inside_window",
     "attend with a window that hides what the layout's would show"},
    {Probe::kAttendBesidePadding, "attend_beside_padding",
     "attend where a column of the step is padding"},
    {Probe::kAttendAfterWrap, "attend_after_wrap", "attend over a ring that has wrapped"},
    {Probe::kAttendWithSinks, "attend_with_sinks", "attend with attention sinks"},
}};

constexpr bool InOrder() {
  for (size_t i = 0; i < kTexts.size(); ++i) {
    if (static_cast<size_t>(kTexts[i].probe) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "a line per probe, in the order of the enumeration");

bool HasUnfedPadding(const ModelState& state) {
  return std::any_of(state.rows.begin(), state.rows.end(),
                     [](const ModelRow& row) { return row.unfed_padding > 0; });
}

bool Outgrown(const ModelState& state) {
  return state.layout.window > 0 && LongestRow(state) > state.layout.window;
}

bool HasWrapped(const ModelState& state) {
  return state.layout.kind == LayoutKind::kRing && Outgrown(state);
}

}  // namespace

std::string_view Name(Probe probe) { return kTexts[static_cast<size_t>(probe)].name; }
std::string_view Description(Probe probe) { return kTexts[static_cast<size_t>(probe)].description; }

void ProbeCounter::Start(const CacheSetup& setup) {
  setup_ = setup;
  marks_ = {};
  changed_keys_ = 0;
  counts_ = {};
}

void ProbeCounter::Before(const CacheOp& op, const ModelState* state, const ModelState* other,
                          std::span<const ModelState* const> operands, bool damaged) {
  due_ = 0;
  damaged_ = damaged;
  pending_ = state != nullptr && state->pending;
  longest_ = state == nullptr ? 0 : LongestRow(*state);
  shortest_ = state == nullptr ? 0 : ShortestRow(*state);
  if (op.kind == CacheOpKind::kMerge) return BeforeMerge(operands);
  if (state == nullptr) return;
  if (op.kind != CacheOpKind::kNew && op.kind != CacheOpKind::kDrop) {
    Due(state->rows.size() == 0, Probe::kEmptyBatchUsed);
  }
  switch (op.kind) {
    case CacheOpKind::kPrepare: {
      bool zero = false;
      bool some = false;
      for (size_t b = 0; b < std::min(op.numbers.size(), state->rows.size()); ++b) {
        (op.numbers[b] == 0 ? zero : some) = true;
        Due(op.numbers[b] > 0 && state->rows[b].unfed_padding > 0, Probe::kPrepareBehindPadding);
      }
      Due(zero && some, Probe::kPrepareZeroLength);
      break;
    }
    case CacheOpKind::kFilter:
      BeforeFilter(op, *state);
      break;
    case CacheOpKind::kExtend:
      BeforeExtend(op, *state, *other);
      break;
    case CacheOpKind::kExtract:
      if (op.count < 0 || op.count >= static_cast<int64_t>(state->rows.size())) break;
      Due(state->rows[static_cast<size_t>(op.count)].offset < longest_,
          Probe::kExtractLeftPaddedRow);
      Due(state->rows[static_cast<size_t>(op.count)].unfed_padding > 0,
          Probe::kUnfedPaddingExtracted);
      break;
    case CacheOpKind::kToQuantized:
      BeforeToQuantized(op, *state);
      break;
    case CacheOpKind::kCopy:
      Due(HasUnfedPadding(*state), Probe::kUnfedPaddingCopied);
      break;
    case CacheOpKind::kSave:
      Due(HasUnfedPadding(*state), Probe::kUnfedPaddingSaved);
      break;
    case CacheOpKind::kAttend:
      BeforeAttend(op, *state);
      break;
    default:
      break;
  }
}

void ProbeCounter::BeforeFilter(const CacheOp& op, const ModelState& state) {
  bool repeats = false;
  for (size_t i = 0; i < op.numbers.size() && !repeats; ++i) {
    repeats = std::find(op.numbers.begin(), op.numbers.begin() + static_cast<int64_t>(i),
                        op.numbers[i]) != op.numbers.begin() + static_cast<int64_t>(i);
  }
  const bool permutes = !std::is_sorted(op.numbers.begin(), op.numbers.end());
  Due(op.numbers.empty() && state.rows.size() > 0, Probe::kFilterToNothing);
  Due(repeats && longest_ > 0, Probe::kFilterRepeats);
  Due(permutes && longest_ > 0, Probe::kFilterPermutes);
  Due((repeats || permutes) && HasUnfedPadding(state), Probe::kFilterMovesUnfedPadding);
}

void ProbeCounter::BeforeExtend(const CacheOp& op, const ModelState& state,
                                const ModelState& other) {
  const int64_t others = LongestRow(other);
  Due(longest_ > 0 && others == 0, Probe::kExtendByEmptySide);
  Due(longest_ == 0 && others > 0, Probe::kExtendOfEmptySide);
  Due(longest_ > 0 && others > 0 && std::abs(longest_ - others) >= setup_.growth_tokens,
      Probe::kExtendOfOtherCapacity);
  Due(op.slot == op.target && state.rows.size() > 0, Probe::kExtendWithItself);
  Due(HasUnfedPadding(other), Probe::kUnfedPaddingMerged);
}

void ProbeCounter::BeforeMerge(std::span<const ModelState* const> operands) {
  bool unequal = false, twice = false, empty = false, filled = false, outgrown = false;
  bool within = false, unfed = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ModelState& state = *operands[i];
    const int64_t longest = LongestRow(state);
    unequal = unequal || longest != LongestRow(*operands[0]);
    twice = twice || std::find(operands.begin(), operands.begin() + static_cast<int64_t>(i),
                               &state) != operands.begin() + static_cast<int64_t>(i);
    (longest == 0 ? empty : filled) = true;
    if (longest > 0) (Outgrown(state) ? outgrown : within) = true;
    unfed = unfed || HasUnfedPadding(state);
  }
  Due(unequal, Probe::kMergeUnequalFill);
  Due(outgrown && within, Probe::kMergeOfHistories);
  Due(empty && filled, Probe::kMergeWithEmptyRow);
  Due(twice && filled, Probe::kMergeSameTwice);
  Due(unfed, Probe::kUnfedPaddingMerged);
  Due(operands.size() > 1 && filled && (!IsPlain(operands[0]->k) || !IsPlain(operands[0]->v)),
      Probe::kMergeOfCodes);
}

void ProbeCounter::BeforeToQuantized(const CacheOp& op, const ModelState& state) {
  const bool keys = !(state.k == *op.k);
  const bool values = !(state.v == *op.v);
  Due((keys || values) && longest_ > 0, Probe::kQuantizeTokens);
  Due((keys || values) && HasWrapped(state), Probe::kQuantizeWrappedRing);
  Due(keys && !values && longest_ > 0, Probe::kQuantizeKeysOnly);
}

void ProbeCounter::BeforeAttend(const CacheOp& op, const ModelState& state) {
  bool padding = false;
  for (const ModelRow& row : state.rows) padding = padding || row.query_tokens < state.queries;
  Due(op.window && longest_ > *op.window && *op.window < state.layout.window,
      Probe::kAttendInsideWindow);
  Due(padding && longest_ > 0, Probe::kAttendBesidePadding);
  Due(HasWrapped(state), Probe::kAttendAfterWrap);
  Due(op.sinks && longest_ > 0, Probe::kAttendWithSinks);
}

void ProbeCounter::After(const CacheOp& op, bool carried_out, const ModelState* state) {
  if (!carried_out) {
    Reach(op.kind == CacheOpKind::kFinalize, Probe::kFinalizeRefused);
    Reach(pending_ && op.kind != CacheOpKind::kFinalize && op.kind != CacheOpKind::kNew,
          Probe::kIllegalWhilePending);
    Reach(op.kind == CacheOpKind::kToQuantized && !pending_, Probe::kQuantizeRefused);
    Reach(op.kind == CacheOpKind::kLoad && damaged_, Probe::kLoadAfterDamage);
    return;
  }
  for (size_t i = 0; due_ != 0; ++i, due_ >>= 1) counts_[i] += static_cast<int64_t>(due_ & 1);
  Marks& marks = marks_[static_cast<size_t>(op.slot)];
  Marks& made = marks_[static_cast<size_t>(op.target)];
  switch (op.kind) {
    case CacheOpKind::kNew:
    case CacheOpKind::kDrop:
      marks = {};
      return;
    case CacheOpKind::kCopy:
    case CacheOpKind::kMerge:
      made = {};
      return;
    case CacheOpKind::kExtract:
      made = {};
      made.extracted = true;
      return;
    case CacheOpKind::kLoad:
      Reach(HasWrapped(*state), Probe::kLoadOfWrappedRing);
      Reach((changed_keys_ >> op.key & 1u) != 0, Probe::kLoadAfterChange);
      made = {};
      made.loaded = true;
      return;
    case CacheOpKind::kSave:
      for (Marks& other : marks_) other.saved_as &= ~(1u << op.key);
      marks.saved_as |= 1u << op.key;
      changed_keys_ &= ~(1u << op.key);
      return;
    case CacheOpKind::kPrepare:
      marks.pending_appends = 0;
      return;
    case CacheOpKind::kAppend:
      AfterAppend(op, *state);
      break;
    case CacheOpKind::kTrim:
      AfterTrim(op, *state);
      break;
    case CacheOpKind::kFilter:
    case CacheOpKind::kExtend:
    case CacheOpKind::kToQuantized:
      break;
    default:
      return;
  }
  changed_keys_ |= marks.saved_as;
  marks.saved_as = 0;
}

void ProbeCounter::AfterAppend(const CacheOp& op, const ModelState& state) {
  Marks& marks = marks_[static_cast<size_t>(op.slot)];
  const CacheLayout& layout = state.layout;
  const int64_t window = layout.window;
  bool wrapped = false, twice = false, across = false, one_after = false, boundary = false;
  for (const ModelRow& row : state.rows) {
    const int64_t before = row.offset - row.query_tokens;
    if (layout.kind == LayoutKind::kChunk) {
      boundary = boundary || (before % layout.chunk != 0 &&
                              row.offset > (before / layout.chunk + 1) * layout.chunk);
    }
    if (window == 0) continue;
    wrapped = wrapped || (before <= window && row.offset > window);
    twice = twice || (before <= 2 * window && row.offset > 2 * window);
    across = across || (before < window && row.offset > window && row.query_tokens > 1);
    one_after = one_after || (before > window && row.query_tokens == 1);
  }
  const bool ring = layout.kind == LayoutKind::kRing;
  Reach(ring && wrapped, Probe::kRingWrapped);
  Reach(ring && wrapped && layout.keep > 0, Probe::kRingWithKeepWrapped);
  Reach(ring && twice, Probe::kRingWrappedTwice);
  Reach(ring && across, Probe::kAppendAcrossWrap);
  Reach(ring && one_after && op.count == 1, Probe::kOneTokenAfterWrap);
  Reach(window > 0 && op.count > window && state.rows.size() > 0, Probe::kAppendLargerThanWindow);
  Reach(!ring && wrapped, Probe::kLinearWindowPassed);
  Reach(boundary, Probe::kChunkBoundaryCrossed);
  const int64_t step = setup_.growth_tokens;
  Reach(longest_ > 0 && (longest_ - 1) / step != (LongestRow(state) - 1) / step,
        Probe::kGrowthPastStep);
  Reach(marks.trimmed, Probe::kTrimThenAppend);
  Reach(marks.extracted, Probe::kExtractThenAppend);
  Reach(marks.loaded, Probe::kLoadThenAppend);
  marks.trimmed = marks.extracted = marks.loaded = false;
  if (state.pending) Reach(marks.pending_appends++ == 1, Probe::kPendingAppendSplit);
}

void ProbeCounter::AfterTrim(const CacheOp& op, const ModelState& state) {
  const int64_t after = LongestRow(state);
  const int64_t trimmed = longest_ - after;
  const CacheLayout& layout = state.layout;
  Reach(trimmed < std::min(op.count, shortest_), Probe::kTrimReachesLess);
  if (trimmed == 0) return;
  marks_[static_cast<size_t>(op.slot)].trimmed = true;
  Reach(layout.kind == LayoutKind::kRing && longest_ > layout.window && after <= layout.window,
        Probe::kTrimAcrossWrap);
  Reach(longest_ > layout.keep && after < layout.keep, Probe::kTrimIntoKept);
  Reach(after == 0, Probe::kTrimToEmpty);
  Reach(shortest_ != longest_, Probe::kTrimOfUnequalRows);
}

}  // namespace kvcheck
