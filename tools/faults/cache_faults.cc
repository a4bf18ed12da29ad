#include "tools/faults/cache_faults.h"

#include "tools/faults/cache_fault_rules.h"

namespace kvcheck {
namespace {

constexpr CacheFault kFaults[] = {
    {"later_rows_not_evicted", "append",
     "rows after the first see what their window has left behind", "lcpp-kshift-streams", "P1",
     cache_fault::LaterRowsNotEvicted,
     "cache layout=linear:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A rows=2; append A 3"},
    {"trim_offset_kept", "trim", "trim of codes says what it did and does nothing",
     "quant-trim-offset-skipped", "P3", cache_fault::TrimKeepsTokens,
     "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
     "new A; append A 1; trim A 1"},
    {"trim_removes_oldest", "trim", "trim removes the oldest tokens instead of the newest",
     "lcpp-tokens-rm-index", "P3", cache_fault::TrimRemovesOldest,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 2; trim A 1"},
    {"trim_longest_rows_only", "trim", "trim leaves shorter rows as they are",
     "vlm-tq-rollback-tail", "P3", cache_fault::TrimLongestOnly,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A rows=2 pad=1,0; append A 2; trim A 1"},
    {"trim_negative_carried_out", "trim", "a negative trim is carried out", "lcpp-seq-rm-negative",
     "P3", cache_fault::NegativeTrim,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; trim A -1"},
    {"trim_ignores_eviction", "trim", "trim goes back to tokens that are gone",
     "rotating-trim-cross-boundary", "P6", cache_fault::TrimIgnoresEviction,
     "cache layout=ring:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 2; append A 1; trim A 2"},
    {"load_any_version", "load", "a record of an unknown version is loaded", "stale-disk-cache",
     "P4", cache_fault::AnyVersion,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; save A s0; damage s0 version; load s0 -> B"},
    {"load_without_hash", "load", "a damaged record is loaded", "lcpp-failed-restore-poisons", "P4",
     cache_fault::AnyContent,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; save A s0; damage s0 flip at=8; load s0 -> B"},
    {"load_loses_keep", "load", "a loaded ring keeps no first tokens",
     "arrays-from-state-missing-attrs", "P4", cache_fault::LoadLosesKeep,
     "cache layout=ring:w=2:keep=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; save A s0; load s0 -> B"},
    {"load_as_f32", "load", "bf16 is loaded as f32", "ssd-bf16-dtype", "P4", cache_fault::LoadAsF32,
     "cache k=bf16 x=bf16 dk=8 hkv=2 data=tokens:1; "
     "new A; save A s0; load s0 -> B"},
    {"load_loses_bits", "load", "codes are loaded as those of 8 bits", "ssd-loses-bits-groupsize",
     "P4", cache_fault::LoadLosesBits,
     "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
     "new A; save A s0; load s0 -> B"},
    {"load_loses_oldest", "load", "the oldest retained token of a loaded row is gone",
     "lcpp-restore-head-zero", "P4", cache_fault::LoadLosesOldest,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; save A s0; load s0 -> B"},
    {"load_loses_padding", "load", "unfed padding is not saved", "wrapper-no-state", "P4",
     cache_fault::LoadLosesPadding,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A pad=1; save A s0; load s0 -> B"},
    {"single_token_other_codes", "append", "a token that comes alone is encoded otherwise",
     "tq-fused-l1-quantize-basis", "P5", cache_fault::SingleTokenOtherCodes,
     "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
     "new A; append A 1"},
    {"single_token_sees_less", "append",
     "a token that comes alone to a full ring sees one token less", "rotating-size-w-vs-w-1", "P5",
     cache_fault::SingleTokenSeesLess,
     "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1"},
    {"single_token_while_pending", "append", "one column is refused while a prefill is pending",
     "vlm-s1-prefill-pending", "P5", cache_fault::SingleAppendWhilePending,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; prepare A 1; append A 1"},
    {"filter_keeps_padding", "filter", "filter does not select the unfed padding",
     "arrays-filter-left-padding", "P6", cache_fault::FilterKeepsPadding,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A rows=2 pad=1,0; filter A 1"},
    {"filter_moves_keys_only", "filter", "filter selects K and leaves V", "hf-quantized-reorder",
     "P6", cache_fault::FilterMovesKeysOnly,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A rows=2; append A 1; filter A 1"},
    {"filter_while_pending", "filter", "filter is carried out while a prefill is pending",
     "vlm-filter-pending-padding", "P6", cache_fault::FilterWhilePending,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; prepare A 0; filter A"},
    {"merge_swaps_values", "merge", "merge gives a row the V of the next one",
     "batchquant-merge-values-swap", "P6", cache_fault::MergeSwapsValues,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; new B; append B 1; merge A,B -> C"},
    {"merge_of_wrapped_ring", "merge", "merge takes the write pointer of a ring for its length",
     "batchrot-merge-wrapped-idx", "P6", cache_fault::MergeOfWrappedRing,
     "cache layout=ring:w=3 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 4; merge A -> B"},
    {"merge_skips_empty_row", "merge", "merge leaves out an empty row", "tq-merge-empty-row", "P6",
     cache_fault::MergeSkipsEmpty,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; merge A -> B"},
    {"merge_aligns_to_longest", "merge", "merge counts the padding of shorter rows as tokens",
     "vlm-tq-offset-merge", "P6", cache_fault::MergeAlignsToLongest,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; new B; merge A,B -> C"},
    {"extend_drops_empty_side", "extend", "extend by rows without tokens does nothing",
     "arrays-extend-metadata", "P6", cache_fault::ExtendDropsEmpty,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; extend A A"},
    {"extend_unequal_refused", "extend", "extend refuses another length",
     "vlm-merge-capacity-mismatch", "P6", cache_fault::ExtendUnequalRefused,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; new B; extend A B"},
    {"size_zero_of_codes", "append to_quantized", "the size of codes is 0", "quantized-size-zero",
     "P7", cache_fault::SizeZeroOfCodes,
     "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
     "new A; append A 1"},
    {"bytes_zero_of_codes", "append to_quantized", "the bytes of codes are not counted",
     "nested-state-zero-bytes", "P7", cache_fault::BytesZeroOfCodes,
     "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
     "new A; append A 1"},
    {"repeated_rows_counted_once", "filter extend merge",
     "the bytes of a repeated row are not counted", "sgl-evictable-double-count", "P7",
     cache_fault::RepeatedRowsCountedOnce,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; filter A 0,0"},
    {"extract_with_tail", "extract", "extract takes the capacity along", "store-oversized-buffer",
     "P7", cache_fault::ExtractWithTail,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; extract A 0 -> B"},
    {"quantize_does_nothing", "to_quantized", "to_quantized changes nothing", "tq-dead-code", "P7",
     cache_fault::QuantizeDoesNothing,
     "cache k=f32 dk=32 hkv=2 data=tokens:1; "
     "new A; to_quantized A k=affine:4:g32:f16"},
    {"ring_never_evicts", "append", "a ring forgets nothing", "left-padding-lazy-graph", "P7",
     cache_fault::NeverEvicts,
     "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; append A 1"},
    {"copy_shares", "copy", "a copy and its source are one object", "store-aliases-batch", "P10",
     cache_fault::CopyShares,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; copy A -> B; append A 1"},
    {"save_shares", "save", "what was saved changes with the cache", "vlm-disk-promotion-alias",
     "P10", cache_fault::SaveShares,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; save A s0; append A 1; load s0 -> B"},
    {"extend_changes_operand", "extend", "extend changes the cache whose rows it takes",
     "lcp-shared-buffer-leak", "P10", cache_fault::ExtendChangesOperand,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; new B; extend A B"},
    {"chunk_evicts_by_capacity", "append",
     "a chunk makes room by dropping tokens that are still seen", "chunked-trim-front-drops-valid",
     "P12", cache_fault::EvictsByCapacity,
     "cache layout=chunk:c=2 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; append A 2"},
    {"rolls_at_window", "append", "the oldest token goes when the window is just full",
     "hf-sliding-roll-at-window", "P12", cache_fault::RollsAtWindow,
     "cache layout=linear:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1"},
    {"evicts_inside_window", "append", "an append of N columns leaves W - N older tokens",
     "sgl-swa-evict-inside-window", "P12", cache_fault::EvictsByAppend,
     "cache layout=linear:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 1; append A 2"},
    {"kept_evicted_on_wrap", "append", "the first tokens of a ring go when it wraps",
     "rotating-idx-not-updated", "P12", cache_fault::KeptEvictedOnWrap,
     "cache layout=ring:w=2:keep=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 3"},
    {"padding_leaks_nan", "attend", "the NaN of padding reaches the output",
     "pt-nan-in-masked-slot", "P13", cache_fault::PaddingLeaksNan,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A pad=1; append A 2; attend A"},
    {"padding_is_token", "append", "the last column of left padding is a token",
     "batch-max-size-mxarray", "P14", cache_fault::PaddingIsToken,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A pad=1; append A 1"},
    {"offset_of_longest_row", "append merge extend", "all rows show the offset of the longest",
     "hf-leftpad-positions", "P14", cache_fault::OffsetOfLongest,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A rows=2 pad=1,0; append A 1"},
    {"offset_stops_at_window", "append", "the offset does not grow beyond the window",
     "hf-hybrid-seq-len-layer0", "P14", cache_fault::OffsetStopsAtWindow,
     "cache layout=linear:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 2"},
    {"trim_renumbers", "trim", "after a trim positions start at the oldest token left",
     "lcpp-iswa-seq-pos-max", "P14", cache_fault::TrimRenumbers,
     "cache layout=ring:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 2; append A 1; trim A 1"},
    {"merge_empty_refused", "merge", "merge refuses an empty cache", "merge-with-empty", "P15",
     cache_fault::MergeEmptyRefused,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; merge A -> B"},
    {"merge_of_codes_refused", "merge", "merge refuses codes", "quant-cache-no-batching", "P15",
     cache_fault::MergeCodesRefused,
     "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
     "new A; merge A -> B"},
    {"quantize_ring_refused", "to_quantized", "to_quantized refuses a ring",
     "rotating-to-quantized-nyi", "P15", cache_fault::QuantizeRingRefused,
     "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; to_quantized A k=f32"},
    {"load_wrapped_refused", "load", "a ring that has wrapped cannot be loaded",
     "rotating-restore-negative-dim", "P15", cache_fault::LoadWrappedRefused,
     "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 2; save A s0; load s0 -> B"},
    {"refused_filter_half_done", "filter", "a filter that is refused has taken some rows",
     "lcpp-failed-restore-poisons", "P4", cache_fault::RefusedFilterHalfDone,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; filter A 1"},
    {"right_padding_is_token", "append", "right padding of a prefill counts as tokens",
     "vlm-quant-batch-mask", "P2", cache_fault::RightPaddingIsToken,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; prepare A 0; append A 1"},
    {"attend_ignores_window", "attend", "attend does not use its window",
     "vllm-xformers-window-ignored", "P2", cache_fault::AttendIgnoresWindow,
     "cache k=f32 dk=8 hkv=2 data=tokens:1; "
     "new A; append A 2; attend A window=1"},
};

}  // namespace

std::span<const CacheFault> CacheFaults() { return kFaults; }

const CacheFault* FindCacheFault(std::string_view id) {
  for (const CacheFault& fault : kFaults) {
    if (fault.id == id) return &fault;
  }
  return nullptr;
}

}  // namespace kvcheck
