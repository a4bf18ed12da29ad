#include "tools/faults/cache_faults.h"

#include "tools/faults/cache_fault_rules.h"

namespace kvcheck {
namespace {

constexpr CacheFault kFaults[] = {
    {{"later_rows_not_evicted", "visible",
      "rows after the first see what their window has left behind", "lcpp-kshift-streams", "P1",
      "append visible_extra",
      "cache layout=linear:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A rows=2; append A 3"},
     "append",
     cache_fault::LaterRowsNotEvicted},
    {{"trim_offset_kept", "trim", "trim of codes says what it did and does nothing",
      "quant-trim-offset-skipped", "P3", "trim offset",
      "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
      "new A; append A 1; trim A 1"},
     "trim",
     cache_fault::TrimKeepsTokens},
    {{"trim_removes_oldest", "trim", "trim removes the oldest tokens instead of the newest",
      "lcpp-tokens-rm-index", "P3", "trim retained_extra",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 2; trim A 1"},
     "trim",
     cache_fault::TrimRemovesOldest},
    {{"trim_longest_rows_only", "trim", "trim leaves shorter rows as they are",
      "vlm-tq-rollback-tail", "P3", "trim offset",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A rows=2 pad=1,0; append A 2; trim A 1"},
     "trim",
     cache_fault::TrimLongestOnly},
    {{"trim_negative_carried_out", "legal", "a negative trim is carried out",
      "lcpp-seq-rm-negative", "P3", "trim accepted",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; trim A -1"},
     "trim",
     cache_fault::NegativeTrim},
    {{"trim_ignores_eviction", "trim_reach", "trim goes back to tokens that are gone",
      "rotating-trim-cross-boundary", "P6", "trim trim_count",
      "cache layout=ring:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 2; append A 1; trim A 2"},
     "trim",
     cache_fault::TrimIgnoresEviction},
    {{"load_any_version", "takes_record", "a record of an unknown version is loaded",
      "stale-disk-cache", "P4", "load accepted",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; save A s0; damage s0 version; load s0 -> B"},
     "load",
     cache_fault::AnyVersion},
    {{"load_without_hash", "takes_record", "a damaged record is loaded",
      "lcpp-failed-restore-poisons", "P4", "load accepted",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; save A s0; damage s0 flip at=8; load s0 -> B"},
     "load",
     cache_fault::AnyContent},
    {{"load_loses_keep", "load", "a loaded ring keeps no first tokens",
      "arrays-from-state-missing-attrs", "P4", "load layout",
      "cache layout=ring:w=2:keep=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; save A s0; load s0 -> B"},
     "load",
     cache_fault::LoadLosesKeep},
    {{"load_as_f32", "load", "bf16 is loaded as f32",
      "ssd-bf16-dtype quant-store-reload-flag vlm-warm-layout-mismatch", "P4", "load format",
      "cache k=bf16 x=bf16 dk=8 hkv=2 data=tokens:1; "
      "new A; save A s0; load s0 -> B"},
     "load",
     cache_fault::LoadAsF32},
    {{"load_loses_bits", "load", "codes are loaded as those of 8 bits",
      "ssd-loses-bits-groupsize tq-ssd-signature-bits", "P4", "load format",
      "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
      "new A; save A s0; load s0 -> B"},
     "load",
     cache_fault::LoadLosesBits},
    {{"load_loses_oldest", "load", "the oldest retained token of a loaded row is gone",
      "lcpp-restore-head-zero", "P4", "load retained_missing",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; save A s0; load s0 -> B"},
     "load",
     cache_fault::LoadLosesOldest},
    {{"load_loses_padding", "load", "unfed padding is not saved",
      "wrapper-no-state lcpp-state-cells-ext", "P4", "load unfed_padding",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A pad=1; save A s0; load s0 -> B"},
     "load",
     cache_fault::LoadLosesPadding},
    {{"single_token_other_codes", "encode", "a token that comes alone is encoded otherwise",
      "tq-fused-l1-quantize-basis sgl-fp8-prefill-decode-mismatch", "P5", "append wrong_bytes",
      "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
      "new A; append A 1"},
     "append",
     cache_fault::SingleTokenOtherCodes},
    {{"single_token_sees_less", "visible",
      "a token that comes alone to a full ring sees one token less", "rotating-size-w-vs-w-1", "P5",
      "append visible_missing",
      "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1"},
     "append",
     cache_fault::SingleTokenSeesLess},
    {{"single_token_while_pending", "legal", "one column is refused while a prefill is pending",
      "vlm-s1-prefill-pending", "P5", "append refused",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; prepare A 1; append A 1"},
     "append",
     cache_fault::SingleAppendWhilePending},
    {{"filter_keeps_padding", "filter", "filter does not select the unfed padding",
      "arrays-filter-left-padding", "P6", "filter unfed_padding",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A rows=2 pad=1,0; filter A 1"},
     "filter",
     cache_fault::FilterKeepsPadding},
    {{"filter_moves_keys_only", "filter", "filter selects K and leaves V", "hf-quantized-reorder",
      "P6", "filter kv_mismatch",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A rows=2; append A 1; filter A 1"},
     "filter",
     cache_fault::FilterMovesKeysOnly},
    {{"filter_while_pending", "legal", "filter is carried out while a prefill is pending",
      "vlm-filter-pending-padding", "P6", "filter accepted",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; prepare A 0; filter A"},
     "filter",
     cache_fault::FilterWhilePending},
    {{"merge_swaps_values", "merge", "merge gives a row the V of the next one",
      "batchquant-merge-values-swap", "P6", "merge kv_mismatch",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; new B; append B 1; merge A,B -> C"},
     "merge",
     cache_fault::MergeSwapsValues},
    {{"merge_of_wrapped_ring", "merge", "merge takes the write pointer of a ring for its length",
      "batchrot-merge-wrapped-idx", "P6", "merge retained_missing",
      "cache layout=ring:w=3 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 4; merge A -> B"},
     "merge",
     cache_fault::MergeOfWrappedRing},
    {{"merge_skips_empty_row", "merge", "merge leaves out an empty row", "tq-merge-empty-row", "P6",
      "merge rows",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; merge A -> B"},
     "merge",
     cache_fault::MergeSkipsEmpty},
    {{"merge_aligns_to_longest", "merge", "merge counts the padding of shorter rows as tokens",
      "vlm-tq-offset-merge", "P6", "merge offset",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; new B; merge A,B -> C"},
     "merge",
     cache_fault::MergeAlignsToLongest},
    {{"extend_drops_empty_side", "extend", "extend by rows without tokens does nothing",
      "arrays-extend-metadata extend-batch-dim", "P6", "extend rows",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; extend A A"},
     "extend",
     cache_fault::ExtendDropsEmpty},
    {{"extend_unequal_refused", "legal", "extend refuses another length",
      "vlm-merge-capacity-mismatch", "P6", "extend refused",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; new B; extend A B"},
     "extend",
     cache_fault::ExtendUnequalRefused},
    {{"size_zero_of_codes", "numbers", "the size of codes is 0", "quantized-size-zero", "P7",
      "append size | to_quantized size",
      "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
      "new A; append A 1"},
     "append to_quantized",
     cache_fault::SizeZeroOfCodes},
    {{"bytes_zero_of_codes", "numbers", "the bytes of codes are not counted",
      "nested-state-zero-bytes", "P7", "append live_bytes | to_quantized live_bytes",
      "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
      "new A; append A 1"},
     "append to_quantized",
     cache_fault::BytesZeroOfCodes},
    {{"repeated_rows_counted_once", "numbers", "the bytes of a repeated row are not counted",
      "sgl-evictable-double-count", "P7",
      "extend live_bytes | filter live_bytes | merge live_bytes",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; filter A 0,0"},
     "filter extend merge",
     cache_fault::RepeatedRowsCountedOnce},
    {{"extract_with_tail", "extract", "extract takes the capacity along", "store-oversized-buffer",
      "P7", "extract capacity",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; extract A 0 -> B"},
     "extract",
     cache_fault::ExtractWithTail},
    {{"quantize_does_nothing", "to_quantized", "to_quantized changes nothing", "tq-dead-code", "P7",
      "to_quantized format",
      "cache k=f32 dk=32 hkv=2 data=tokens:1; "
      "new A; to_quantized A k=affine:4:g32:f16"},
     "to_quantized",
     cache_fault::QuantizeDoesNothing},
    {{"ring_never_evicts", "retained", "a ring forgets nothing", "left-padding-lazy-graph", "P7",
      "append never_forgets",
      "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; append A 1"},
     "append",
     cache_fault::NeverEvicts},
    {{"copy_shares", "shares", "a copy and its source are one object", "store-aliases-batch", "P10",
      "append queries operand",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; copy A -> B; append A 1"},
     "copy",
     cache_fault::CopyShares},
    {{"save_shares", "shares", "what was saved changes with the cache", "vlm-disk-promotion-alias",
      "P10", "load queries | append queries operand",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; save A s0; append A 1; load s0 -> B"},
     "save",
     cache_fault::SaveShares},
    {{"extend_changes_operand", "shares", "extend changes the cache whose rows it takes",
      "lcp-shared-buffer-leak", "P10", "extend queries operand | extend rows operand",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; new B; extend A B"},
     "extend",
     cache_fault::ExtendChangesOperand},
    {{"chunk_evicts_by_capacity", "retained",
      "a chunk makes room by dropping tokens that are still seen", "chunked-trim-front-drops-valid",
      "P12", "append visible_missing",
      "cache layout=chunk:c=2 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; append A 2"},
     "append",
     cache_fault::EvictsByCapacity},
    {{"rolls_at_window", "visible", "the oldest token goes when the window is just full",
      "hf-sliding-roll-at-window", "P12", "append visible_missing",
      "cache layout=linear:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1"},
     "append",
     cache_fault::RollsAtWindow},
    {{"evicts_inside_window", "retained", "an append of N columns leaves W - N older tokens",
      "sgl-swa-evict-inside-window", "P12", "append visible_missing",
      "cache layout=linear:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 1; append A 2"},
     "append",
     cache_fault::EvictsByAppend},
    {{"kept_evicted_on_wrap", "retained", "the first tokens of a ring go when it wraps",
      "rotating-idx-not-updated", "P12", "append visible_missing | append size",
      "cache layout=ring:w=2:keep=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 3"},
     "append",
     cache_fault::KeptEvictedOnWrap},
    {{"padding_leaks_nan", "attend", "the NaN of padding reaches the output",
      "pt-nan-in-masked-slot", "P13", "attend attention operand",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A pad=1; append A 2; attend A"},
     "attend",
     cache_fault::PaddingLeaksNan},
    {{"padding_is_token", "split", "the last column of left padding is a token",
      "batch-max-size-mxarray", "P14", "append offset",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A pad=1; append A 1"},
     "append",
     cache_fault::PaddingIsToken},
    {{"offset_of_longest_row", "numbers", "all rows show the offset of the longest",
      "hf-leftpad-positions", "P14", "append offset",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A rows=2 pad=1,0; append A 1"},
     "append merge extend",
     cache_fault::OffsetOfLongest},
    {{"offset_stops_at_window", "numbers", "the offset does not grow beyond the window",
      "hf-hybrid-seq-len-layer0", "P14", "append offset",
      "cache layout=linear:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 2"},
     "append",
     cache_fault::OffsetStopsAtWindow},
    {{"trim_renumbers", "trim", "after a trim positions start at the oldest token left",
      "lcpp-iswa-seq-pos-max", "P14", "trim offset",
      "cache layout=ring:w=2 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 2; append A 1; trim A 1"},
     "trim",
     cache_fault::TrimRenumbers},
    {{"merge_empty_refused", "legal", "merge refuses an empty cache",
      "merge-with-empty vlm-zero-length-rotating-merge", "P15", "merge refused",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; merge A -> B"},
     "merge",
     cache_fault::MergeEmptyRefused},
    {{"merge_of_codes_refused", "legal", "merge refuses codes", "quant-cache-no-batching", "P15",
      "merge refused",
      "cache k=affine:4:g32:f16 dk=32 hkv=2 data=tokens:1; "
      "new A; merge A -> B"},
     "merge",
     cache_fault::MergeCodesRefused},
    {{"quantize_ring_refused", "legal", "to_quantized refuses a ring",
      "rotating-to-quantized-nyi lcpp-quant-kshift", "P15", "to_quantized refused",
      "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; to_quantized A k=f32"},
     "to_quantized",
     cache_fault::QuantizeRingRefused},
    {{"load_wrapped_refused", "legal", "a ring that has wrapped cannot be loaded",
      "rotating-restore-negative-dim lcpp-state-wrong-seq", "P15", "load refused",
      "cache layout=ring:w=1 k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 2; save A s0; load s0 -> B"},
     "load",
     cache_fault::LoadWrappedRefused},
    {{"refused_filter_half_done", "refused", "a filter that is refused has taken some rows",
      "lcpp-failed-restore-poisons", "P4", "filter rows",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; filter A 1"},
     "filter",
     cache_fault::RefusedFilterHalfDone},
    {{"right_padding_is_token", "split", "right padding of a prefill counts as tokens",
      "vlm-quant-batch-mask", "P2", "append offset",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; prepare A 0; append A 1"},
     "append",
     cache_fault::RightPaddingIsToken},
    {{"attend_ignores_window", "visible_in_window", "attend does not use its window",
      "vllm-xformers-window-ignored", "P2", "attend attention operand",
      "cache k=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 2; attend A window=1"},
     "attend",
     cache_fault::AttendIgnoresWindow},
    {{"groups_close_late", "groups", "a residual is coded one token after it is full",
      "velox-one-token-groups", "P9",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=channel:4:g8:f32 v=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 8"},
     "append to_quantized",
     cache_fault::GroupsCloseLate},
    {{"groups_never_close", "groups", "a residual that is never coded", "velox-one-token-groups",
      "P9", "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=channel:4:g8:f32 v=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 8"},
     "append to_quantized",
     cache_fault::GroupsNeverClose},
    {{"closed_groups_coded_again", "groups",
      "groups that are closed are coded again, from what they read as", "hf-quantized-requantizes",
      "P5", "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=channel:8:g8:bf16 v=f32 x=bf16 dk=16 hkv=2 data=tokens:1; "
      "new A; append A 8; append A 8"},
     "append",
     cache_fault::ClosedGroupsCodedAgain},
    {{"regroup_before_full", "groups",
      "all groups are coded again at every append, under a profile that does it when the residual "
      "is full",
      "hf-quantized-requantizes", "P5",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=channel:8:g8:r16:bf16 v=f32 x=bf16 dk=16 hkv=2 data=tokens:1; "
      "new A; append A 16; append A 8"},
     "append",
     cache_fault::RegroupsBeforeTheResidualIsFull},
    {{"regroup_full_group", "groups",
      "a full group is coded again with the next one, under a profile that codes again only what "
      "is not full",
      "hf-quantized-requantizes", "P5",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=channel:8:g8:bf16 v=f32 x=bf16 dk=16 hkv=2 data=tokens:1; "
      "new A; append A 8; append A 8"},
     "append",
     cache_fault::RegroupsAFullGroup},
    {{"group_scales_of_the_last", "groups", "a group has the scales and zeros of the one before",
      "ov-by-channel-block-scales", "P9",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=channel:4:g8:f32 v=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 16"},
     "append to_quantized",
     cache_fault::GroupScalesOfTheLast},
    {{"trim_into_closed_group", "trim_reach", "trim ends inside a group that is coded",
      "hf-quantized-reorder", "P6", "trim trim_count",
      "cache k=channel:4:g8:f32 v=f32 dk=8 hkv=2 data=tokens:1; "
      "new A; append A 8; trim A 1"},
     "trim",
     cache_fault::TrimIntoClosedGroup},
    {{"residual_one_short", "groups", "a residual of values keeps one token fewer than it says",
      "hf-residual-flushed", "P9",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=f32 v=affine:4:g32:r3:f32 dk=8 dv=32 hkv=2 data=tokens:1; "
      "new A; append A 3"},
     "append to_quantized",
     cache_fault::ResidualOneShort},
    {{"residual_flushed_whole", "groups",
      "a residual of values is coded whole when it is full, and none of the newest are left",
      "hf-residual-flushed", "P9",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=f32 v=affine:4:g32:r3:f32 dk=8 dv=32 hkv=2 data=tokens:1; "
      "new A; append A 3"},
     "append to_quantized",
     cache_fault::ResidualFlushedWhole},
    {{"values_step_of_one_level_more", "groups",
      "values that leave a residual have the range divided by 2^bits", "vllm-fp8-v1-wrong", "P9",
      "append wrong_bytes | append kv_mismatch | append visible_padding",
      "cache k=f32 v=affine:4:g32:r3:f32 dk=8 dv=32 hkv=2 data=tokens:1; "
      "new A; append A 4"},
     "append to_quantized",
     cache_fault::ValuesStepOfOneLevelMore},
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
