#include "tools/faults/prefix_faults.h"

#include <algorithm>

#include "tools/faults/prefix_fault_rules.h"

namespace kvcheck {
namespace {

constexpr PrefixFault kFaults[] = {
    {{"adapter_not_in_key", "identity", "the adapter is left out of the key", "lora-not-in-key",
      "P11", "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all adapter=a"},
     prefix_fault::AdapterNotInKey},
    {{"adapter_version_not_in_key", "identity",
      "the version of an adapter's weights is left out of the key", "lora-version-not-in-key",
      "P11", "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0 adapter=a; write A; close A "
      "keep; open A 0 all adapter=a version=1"},
     prefix_fault::AdapterVersionNotInKey},
    {{"salt_not_in_key", "identity", "the salt is left out of the key",
      "connector-ignores-salt vllm-prefix-hash-collision", "P11", "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all salt=a"},
     prefix_fault::SaltNotInKey},
    {{"image_not_in_key", "identity", "the digest of images is left out of the key",
      "image-placeholders-alike vlm-apc-split-multimodal", "P11", "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all image=a"},
     prefix_fault::ImageNotInKey},
    {{"image_digest_truncated", "identity", "of the digest of images one byte is in the key",
      "mm-hash-16-bits", "P11", "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0 image=a; write A; close A "
      "keep; open A 0 all image=ab"},
     prefix_fault::ImageDigestTruncated},
    {{"model_not_in_key", "identity", "the model is left out of the key", "stale-disk-cache", "P4",
      "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all model=a"},
     prefix_fault::ModelNotInKey},
    {{"fields_joined", "identity_text",
      "fields of the identity are joined without saying where one ends",
      "mm-hash-no-boundaries vllm-prefix-hash-collision", "P11", "open other_tenant",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0 salt=a; write A; close A "
      "keep; open A 0 all adapter=a"},
     prefix_fault::FieldsJoined},
    {{"key_of_process", "block_key", "keys are those of one process", "hash-of-process", "P11",
      "open hit_missing",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; restart; open A 0 all"},
     prefix_fault::KeyOfProcess},
    {{"block_not_chained", "block_key", "the key of a block does not have the blocks before it",
      "hash-other-granularity lcpp-cache-reuse-head", "P11",
      "open stale | open other_prefix | open other_position",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0,1; write A; close A keep; "
      "open A 1 all"},
     prefix_fault::BlockNotChained},
    {{"last_token_not_in_key", "block_key", "the key of a block leaves out its last token",
      "block-hash-last-token", "P11", "open stale | open other_position",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 1 all"},
     prefix_fault::LastTokenNotInKey},
    {{"tokens_as_bytes", "block_key", "of a token's id one byte is in the key", "hash-8bit-tokens",
      "P11", "open stale",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 256 all"},
     prefix_fault::TokensAsBytes},
    {{"hash_not_verified", "block_key", "an equal hash is taken for equal tokens",
      "vllm-prefix-hash-collision", "P11", "open stale",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 3 all"},
     prefix_fault::HashNotVerified},
    {{"key_of_half_block", "block_key", "the key of a block has half of its tokens",
      "hash-other-granularity", "P11", "open stale",
      "prefix block=2 tokens=4 layers=1 dk=16 data=tokens:1; open A 0x2; write A; close A keep; "
      "open A 0,1 all; open B 0x2 all"},
     prefix_fault::KeyOfHalfBlock},
    {{"one_block_too_long", "found", "a hit is one block longer than what was found",
      "probe-too-high", "P11", "open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0x3"},
     prefix_fault::OneBlockTooLong},
    {{"prefix_as_exact", "found", "a prefix that is found counts as the whole prompt",
      "ssd-prefix-as-exact", "P11", "open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0x2 all"},
     prefix_fault::PrefixAsExact},
    {{"last_token_hits", "found", "all of a prompt hits where its last token is to be computed",
      "exact-hit-n-minus-1 exact-hit-empty-rest-swa", "P11",
      "open hit_too_long | open unwritten | end hit_too_long",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0; open B 0x2"},
     prefix_fault::LastTokenHits},
    {{"never_hits_again", "found", "after two lookups nothing hits any more", "silent-zero-hits",
      "P11", "open hit_missing",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "B 1; open A 0 all"},
     prefix_fault::NeverHitsTwice},
    {{"short_prompt_disables", "found", "a kept prompt of one token lets nothing hit",
      "vlm-short-prompt-disables", "P11", "open hit_missing",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all"},
     prefix_fault::ShortPromptDisables},
    {{"negative_hit", "found", "a miss is a hit of minus one block", "connector-ignores-salt",
      "P11", "open hit_too_long",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A"},
     prefix_fault::NegativeHit},
    {{"every_second_less", "found", "every other lookup finds one block less",
      "lcpp-cache-reuse-head", "P11", "open hit_missing | open hit_unsteady",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "B 1; open A 0 all"},
     prefix_fault::EverySecondLess},
    {{"evicts_held", "may_evict", "what a request reads is evicted",
      "evicted-in-use split-loses-lock", "P10",
      "write written_later held | open written_later held",
      "prefix block=1 tokens=2 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all; open B 1x2; write B"},
     prefix_fault::EvictsHeld},
    {{"evicted_key_stays", "evicted_key", "an evicted block is still found",
      "evicted-block-keeps-hash vllm-stale-hash-rebuild", "P11",
      "open stale | open other_tenant | open other_prefix | open other_position | open older_epoch "
      "| open unwritten | open hit_unpublished",
      "prefix block=1 tokens=2 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; "
      "evict 2; open B 1; write B; open A 0 all; close B keep; open B 1 all"},
     prefix_fault::EvictedKeyStays},
    {{"revival_not_counted", "refs", "who revives a block that nobody held is not counted",
      "revival-breaks-count", "P10", "open blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all"},
     prefix_fault::RevivalNotCounted},
    {{"shared_hit_not_counted", "refs", "a second reader of a block is not counted",
      "live-block-not-counted", "P10", "close blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all; open B 0 all; close A"},
     prefix_fault::SharedHitNotCounted},
    {{"fork_not_counted", "refs", "a fork is not counted", "shared-page-rebase", "P10",
      "close blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; fork A -> B; close "
      "A"},
     prefix_fault::ForkNotCounted},
    {{"released_twice", "refs", "a close releases its blocks twice", "sgl-dup-prefix-freed", "P10",
      "open blocks | close blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; open "
      "A 0 all"},
     prefix_fault::ReleasedTwice},
    {{"not_released", "refs", "a close releases nothing", "exact-hit-n-minus-1", "P11",
      "close blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A"},
     prefix_fault::NotReleased},
    {{"trim_not_released", "refs", "what is trimmed away stays held", "quant-trim-offset-skipped",
      "P3", "trim_to blocks | write blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; trim_to A 0"},
     prefix_fault::TrimNotReleased},
    {{"no_copy_on_write", "copy_on_write", "a request writes into a block that others have",
      "shared-page-rebase lcp-shared-buffer-leak", "P10", "write written_later held",
      "prefix block=2 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; fork A -> B; write "
      "A more=0; write B more=1"},
     prefix_fault::NoCopyOnWrite},
    {{"unkept_kept", "publishes", "what is closed without being kept hits", "stored-before-written",
      "P11", "open hit_unpublished",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; open A 0 all"},
     prefix_fault::UnkeptKept},
    {{"kept_across_epoch", "publishes", "what was computed before new weights is kept under them",
      "lora-version-not-in-key", "P11", "open older_epoch",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; epoch; close A "
      "keep; open A 0 all"},
     prefix_fault::KeptAcrossEpoch},
    {{"tail_as_block", "publishes", "a block that is not whole is kept as one",
      "partial-hash-after-promotion", "P11", "open unwritten",
      "prefix block=2 tokens=4 layers=1 dk=16 data=tokens:1; open A 1; write A; close A keep; open "
      "A 1,0 all; open B 0x2; write B; close B keep; open B 0x2 all"},
     prefix_fault::TailAsBlock},
    {{"kept_before_written", "publishes", "blocks are found before they are written",
      "stored-before-written", "P11", "open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; open B 0 all; write A"},
     prefix_fault::KeptBeforeWritten},
    {{"trimmed_kept", "live_tokens", "tokens that were trimmed away are kept",
      "vllm-mtp-prefix-cache", "P11", "open hit_unpublished",
      "prefix block=2 tokens=4 layers=1 dk=16 data=tokens:1; open A 0x2; write A; trim_to A 1; "
      "close A keep; open A 0x2 all; open B 1x2; write B; close B keep; open B 1x2 all"},
     prefix_fault::TrimmedKept},
    {{"clear_keeps_memory", "forgets", "clear leaves what memory holds", "lcpp-set-state-not-reset",
      "P4", "open hit_unpublished | end blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; "
      "clear; open A 0 all"},
     prefix_fault::ClearKeepsMemory},
    {{"clear_keeps_disk", "forgets", "clear leaves what is on disk", "lcpp-set-state-not-reset",
      "P4", "open hit_unpublished",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; clear; open A 0 all"},
     prefix_fault::ClearKeepsDisk},
    {{"epoch_keeps_memory", "forgets", "new weights, and memory still hits",
      "lora-version-not-in-key", "P11", "open older_epoch",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; "
      "epoch; open A 0 all"},
     prefix_fault::EpochKeepsMemory},
    {{"epoch_keeps_disk", "forgets", "new weights, and the disk still hits",
      "lora-version-not-in-key", "P11", "open older_epoch",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; epoch; open A 0 all"},
     prefix_fault::EpochKeepsDisk},
    {{"first_token_alone_restored", "restored",
      "of what is on disk one token is restored, and all reported", "one-page-restored", "P4",
      "open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0x2; write A; close A "
      "keep; restart; open A 0x2 all"},
     prefix_fault::FirstTokenAloneRestored},
    {{"restored_k_for_v", "restored", "K and V change places on the way back", "fused-kv-misread",
      "P4", "open k_for_v",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; restart; open A 0 all"},
     prefix_fault::KAndVSwapped},
    {{"restored_heads_swapped", "restored", "two heads change places on the way back",
      "fused-kv-misread", "P4", "open other_head",
      "prefix block=1 tokens=4 layers=1 dk=16 hkv=2 disk=yes data=tokens:1; open A 0; write A; "
      "close A keep; restart; open A 0 all"},
     prefix_fault::HeadsSwapped},
    {{"restored_layers_swapped", "restored", "two layers change places on the way back",
      "block-id-as-slot", "P4", "open other_layer",
      "prefix block=1 tokens=4 dk=16 disk=yes data=tokens:1; open A 0; write A; close A keep; "
      "restart; open A 0 all"},
     prefix_fault::LayersSwapped},
    {{"last_layer_not_restored", "restored", "the last layer is not restored",
      "ssd-layer-count-stale one-page-restored", "P4", "open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; restart; open A 0 all"},
     prefix_fault::LastLayerNotRestored},
    {{"restored_positions_shifted", "restored", "rows of a block are restored one position off",
      "position-not-restored", "P14", "open other_position",
      "prefix block=2 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0x2; write A; close A "
      "keep; restart; open A 0x2 all"},
     prefix_fault::PositionsShifted},
    {{"restored_scales_lost", "restored", "values come back without their scale",
      "vllm-offload-scale-room trt-fp8-reuse tq-prefix-hit-retrieval vlm-kvbits-reused-corrupt",
      "P4", "open damaged",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; restart; open A 0 all"},
     prefix_fault::ScalesLost},
    {{"restored_scales_stale", "restored",
      "values come back with the scale of the block that was restored before",
      "vllm-offload-scale-room ssd-loses-bits-groupsize", "P4", "open damaged",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0x2; write A; close A "
      "keep; restart; open A 0x2 all"},
     prefix_fault::ScalesStale},
    {{"kept_in_other_order", "stored", "rows of a block are kept in another order",
      "vllm-nvfp4-v-swizzle", "P9", "open other_position",
      "prefix block=2 tokens=4 layers=1 dk=16 data=tokens:1; open A 0x2; write A; close A keep; "
      "open A 0x2 all"},
     prefix_fault::KeptInOtherOrder},
    {{"hit_in_other_order", "shown", "first and last row of a hit change places",
      "block-id-as-slot", "P4", "open other_position",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0x2; write A; close A keep; "
      "open A 0x2 all"},
     prefix_fault::HitInOtherOrder},
    {{"fork_loses_tail", "forked", "the newest row is not there after a fork", "shared-page-rebase",
      "P10", "fork unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; fork A -> B"},
     prefix_fault::ForkLosesTail},
    {{"other_file_read", "file_name", "two keys share a file, whose key is not looked at",
      "other-request-restored", "P11",
      "open other_tenant | open other_prefix | open other_position | open stale | open older_epoch",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; open A 1 all"},
     prefix_fault::OtherFileRead},
    {{"cut_file_served", "accepts", "a file that ends early is served with zeros",
      "short-file-loads", "P4", "open unwritten | open damaged",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; damage cut at=200; restart; open A 0 all; open B 1; write B; close B keep; open B 1 "
      "all"},
     prefix_fault::CutFileServed},
    {{"flip_served", "accepts", "a file of which a bit has changed is served",
      "short-file-loads lcpp-failed-restore-poisons", "P4", "open damaged",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; damage flip at=1200; restart; open A 0 all; open B 1; write B; close B keep; open B 1 "
      "all"},
     prefix_fault::FlipServed},
    {{"foreign_file_served", "accepts", "somebody else's file is served", "stale-disk-cache", "P4",
      "open damaged | open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; damage foreign; restart; open A 0 all; open B 1; write B; close B keep; open B 1 all"},
     prefix_fault::ForeignFileServed},
    {{"other_setup_served", "accepts", "a file of another type of vectors is served",
      "ssd-bf16-dtype vlm-warm-layout-mismatch", "P4", "open damaged | open unwritten",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; restart x=bf16; open A 0 all; open B 1; write B; close B keep; open B 1 all"},
     prefix_fault::OtherSetupServed},
    {{"first_block_alone_written", "writes_block",
      "of a prompt's blocks the first alone goes to disk", "one-page-restored", "P4",
      "open hit_missing",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0x2; write A; close A "
      "keep; restart; open A 0x2 all"},
     prefix_fault::FirstBlockAloneWritten},
    {{"older_files_rewritten", "writes_block",
      "files that are there are written again in place, and cut when the process ends",
      "short-file-loads", "P4", "open hit_missing",
      "prefix block=1 tokens=4 layers=1 dk=16 disk=yes data=tokens:1; open A 0; write A; close A "
      "keep; open A 0 all; close A keep kill=1; open A 0 all"},
     prefix_fault::OlderFilesRewritten},
    {{"full_too_early", "fits", "there is no room for what would fill the last block",
      "sgl-evictable-double-count", "P7", "write full | end full",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0x4; write A"},
     prefix_fault::FullTooEarly},
    {{"full_write_half_done", "full_write", "a write without room has changed a row",
      "failed-transfer-writes", "P10",
      "write other_position | write other_position held | write stale | write written_later | "
      "write "
      "other_prefix",
      "prefix block=1 tokens=2 layers=1 dk=16 data=tokens:1; open A 0; write A; write A more=0x2"},
     prefix_fault::FullWriteHalfDone},
    {{"hits_counted_as_lookups", "counters", "every lookup counts as a hit", "hits-without-restore",
      "P7", "open counters",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A"},
     prefix_fault::HitsCountedAsLookups},
    {{"cached_counted_twice", "counters", "blocks that may be evicted count twice",
      "sgl-evictable-double-count", "P7", "close blocks",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep"},
     prefix_fault::CachedCountedTwice},
    {{"bytes_never_freed", "counters", "bytes of what is gone go on counting",
      "pop-prefixes-off-by-one", "P7", "end over_budget",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A"},
     prefix_fault::BytesNeverFreed},
    {{"trim_beyond_accepted", "legal", "a request is trimmed to more than it has",
      "quant-trim-offset-skipped", "P3", "trim_to accepted",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; trim_to A 1; write A"},
     prefix_fault::TrimBeyondAccepted},
    {{"wrong_vectors_accepted", "legal", "vectors of another shape are taken",
      "ssd-layer-count-stale", "P4", "write accepted",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A wrong=layers; write "
      "A"},
     prefix_fault::WrongVectorsAccepted},
    {{"load_of_anything", "legal", "a store is loaded that nobody saved", "stale-disk-cache", "P4",
      "load accepted",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; load s0; open A 0; write A"},
     prefix_fault::LoadOfAnything},
    {{"load_of_older_epoch", "legal", "a store saved under other weights is loaded",
      "lora-version-not-in-key", "P11", "open older_epoch",
      "prefix block=1 tokens=4 layers=1 dk=16 data=tokens:1; open A 0; write A; close A keep; save "
      "s0; epoch; load s0; open A 0 all"},
     prefix_fault::LoadOfOlderEpoch},
};

}  // namespace

std::span<const PrefixFault> PrefixFaults() { return kFaults; }

const PrefixFault* FindPrefixFault(std::string_view id) {
  const auto* found = std::find_if(std::begin(kFaults), std::end(kFaults),
                                   [&](const PrefixFault& fault) { return fault.id == id; });
  return found == std::end(kFaults) ? nullptr : found;
}

}  // namespace kvcheck
