#include "tools/faults/kernel_faults.h"

#include <algorithm>

#include "tools/faults/page_memory.h"

namespace kvcheck {
namespace {

size_t WholeLanes(size_t channels) { return channels / kLanes * kLanes; }
size_t LanesFilled(size_t channels) { return (channels + kLanes - 1) / kLanes * kLanes; }
size_t StrideOfK(size_t k_dim, size_t) { return k_dim; }
int64_t In32Bits(int64_t bytes) { return static_cast<int32_t>(static_cast<uint32_t>(bytes)); }
int64_t In16Bits(int64_t bytes) { return static_cast<uint16_t>(bytes); }
// The first page that is handed out is the one that means "none".
int64_t FromPageZero(int64_t i, int64_t n) { return n - 1 - i; }
// The tail of the table still names a page of an earlier owner.
int64_t TailStale(int64_t i, int64_t n) { return i + 1 == n ? n + 1 : n - i; }
int64_t OfFirstBatch(int64_t) { return 0; }
int64_t WithoutFullLast(int64_t tokens) {
  return tokens % kPageTokens == 0 ? tokens / kPageTokens - 1 : tokens / kPageTokens + 1;
}

constexpr std::string_view kBound = "attention out bound";
constexpr std::string_view kBoundOrNan = "attention out bound | attention out special_value";

constexpr KernelFault kFaults[] = {
    {{"channel_tail_not_summed", "channels", "channels beyond whole vectors are not summed",
      "fi-swa-specdecode", "P8", kBound, kTwoKeys},
     {.summed_channels = WholeLanes}},
    {{"channel_tail_reads_neighbours", "channels",
      "the last vector of channels reads past the end of the row", "fi-page-append-stride", "P8",
      kBoundOrNan,
      "attention hq=1 hkv=1 l=1 t=2 d=1 dv=3 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     {.summed_channels = LanesFilled}},
    {{"output_tail_not_written", "channels",
      "channels of the output beyond whole vectors keep what was there", "fi-mla-page-int32", "P8",
      kBound, kOneKey},
     {.written_channels = WholeLanes}},
    {{"slots_too_close", "stride", "slots are read as if they held K alone",
      "fi-page-append-stride", "P8", kBoundOrNan, kOneKey},
     {.slot_stride = StrideOfK}},
    {{"offset_in_32_bits", "offset", "a distance of 2^31 bytes wraps around",
      "fa-kvcache-batch-idx-4096 fi-mla-page-int32 lcpp-fa-mask-int32 vllm-int32-slot", "P8",
      kBoundOrNan,
      "attention b=2 hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     {.offset = In32Bits, .far_batches = true}},
    {{"offset_in_16_bits", "offset", "a distance of 2^16 bytes wraps around",
      "vllm-int32-slot fi-mla-page-int32", "P8", kBoundOrNan,
      "attention hq=2 hkv=2 l=1 t=113 d=64 dv=64 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     {.offset = In16Bits}},
    {{"page_zero_is_none", "page", "a page that is in use has the number that means none",
      "vllm-null-block-id", "P11", kBoundOrNan, kOneKey},
     {.page = FromPageZero}},
    {{"table_tail_stale", "page", "the tail of the block table names a page of an earlier owner",
      "vllm-swa-stale-block-table", "P10", kBoundOrNan, kOneKey},
     {.page = TailStale}},
    {{"page_of_other_request", "page", "a freed page has a new owner, and the table still names it",
      "sgl-dup-prefix-freed lcpp-defrag-use-after-move", "P10", kBoundOrNan,
      "attention b=2 hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     {.first_page_of_batch = OfFirstBatch}},
    {{"pages_moved", "page", "pages were moved, and the table was not", "lcpp-defrag-cpu-garbage",
      "P6", kBoundOrNan,
      "attention hq=1 hkv=1 l=1 t=17 d=1 q=f32 k=f32 v=f32 out=f32 mask=left_pad:1 scale=0.5 "
      "data=gauss:1"},
     {.pages_moved = true}},
    {{"full_last_page_left_out", "pages", "a last page that is just full is left out",
      "sgl-block-boundary", "P16", kBoundOrNan,
      "attention hq=1 hkv=1 l=1 t=16 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     {.pages = WithoutFullLast}},
    {{"hidden_slot_times_zero", "hidden", "a hidden slot takes part with weight 0, and holds NaN",
      "pt-nan-in-masked-slot", "P13", "attention out special_value", kOneKey},
     {.skips_hidden = false}},
    {{"empty_page_nan", "maximum", "a page without a visible key moves the maximum: -inf - -inf",
      "lcpp-fa-inf-nan pt-memeff-nan mlx-sdpa-all-masked-nan", "P13", "attention out special_value",
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left scale=0.5 "
      "data=gauss:1"},
     {.skips_empty_pages = false}},
    {{"sums_not_cleared", "sums", "the sums start with those of the row before",
      "lcpp-set-state-not-reset", "P4", kBound,
      "attention hq=2 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     {.clears_sums = false}},
    {{"weights_not_cleared", "weights", "the denominator sums weights of a longer page too",
      "lcpp-partial-state-nondet", "P4", kBound,
      "attention b=2 hq=1 hkv=1 l=2 t=3 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left "
      "scale=0.5 data=gauss:1"},
     {.clears_weights = false}},
    {{"total_of_last_call", "total", "the denominator starts with that of the call before",
      "lcpp-partial-state-nondet lcpp-set-state-not-reset", "P4", "attention out repeat", kOneKey},
     {.clears_total = false}},
    {{"maximum_starts_at_zero", "maximum", "the running maximum starts at 0", "kv8-nan-chunked",
      "P8", kBoundOrNan,
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=huge:1"},
     {.first_maximum = 0}},
    {{"update_lost", "join", "two threads add to one total, and one addition is lost",
      "sgl-chunk-insert-race", "P16", kBound, kOneKey},
     {.joins_safely = false}},
    {{"ranges_by_threads", "ranges", "keys are split by the number of threads, and so are the sums",
      "sgl-chunk-insert-race", "P16", "attention out threads",
      "attention hq=1 hkv=1 l=1 t=3 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=equal:608109"},
     {.ranges_by_threads = true}},
};

}  // namespace

std::span<const KernelFault> KernelFaults() { return kFaults; }

const KernelFault* FindKernelFault(std::string_view id) {
  for (const KernelFault& fault : kFaults) {
    if (fault.id == id) return &fault;
  }
  return nullptr;
}

}  // namespace kvcheck
