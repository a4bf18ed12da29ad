// The attention faults that bench/reference/detection measures: small ones, each near what a bound
// can tell from rounding.

#include <algorithm>
#include <cmath>

#include "reference/numerics/fast_round.h"
#include "tools/faults/attention_fault_rules.h"
#include "tools/faults/attention_faults.h"

namespace kvcheck {
namespace {

using namespace attention_fault;

bool Always(const AttentionCase&) { return true; }
bool SeveralKeys(const AttentionCase& c) { return c.kv_len > 1; }
bool SeveralKvHeads(const AttentionCase& c) { return c.kv_heads > 1; }
bool Grouped(const AttentionCase& c) { return c.kv_heads > 1 && c.query_heads > c.kv_heads; }
bool SeesLess(const AttentionCase& c) {
  return c.mask.causal != CausalAlignment::kNone && c.query_len > 1;
}
bool Padded(const AttentionCase& c) { return !c.mask.left_padding.empty(); }
bool MaskPerRowAndQuery(const AttentionCase& c) {
  return c.mask.array != MaskArrayKind::kNone && c.mask.axes == MaskAxes::kB1LT && c.batch > 1;
}

bool DropFirst(const AttentionCase&, const QueryIndex&, VisibleSet* set) {
  if (set->keys.size() < 2) return false;
  set->keys.erase(set->keys.begin());
  if (!set->bias.empty()) set->bias.erase(set->bias.begin());
  return true;
}

bool DropLast(const AttentionCase&, const QueryIndex&, VisibleSet* set) {
  if (set->keys.size() < 2) return false;
  set->keys.pop_back();
  if (!set->bias.empty()) set->bias.pop_back();
  return true;
}

bool AddFuture(const AttentionCase& c, const QueryIndex&, VisibleSet* set) {
  if (set->keys.empty() || set->keys.back() + 1 >= c.kv_len) return false;
  set->keys.push_back(set->keys.back() + 1);
  if (!set->bias.empty()) set->bias.push_back(set->bias.back());
  return true;
}

bool AddPadding(const AttentionCase& c, const QueryIndex& q, VisibleSet* set) {
  if (c.mask.left_padding.empty()) return false;
  const int64_t padding = c.mask.left_padding[static_cast<size_t>(q.batch)];
  if (padding == 0 || set->keys.empty() || set->keys.front() != padding) return false;
  set->keys.insert(set->keys.begin(), static_cast<int32_t>(padding - 1));
  if (!set->bias.empty()) set->bias.insert(set->bias.begin(), set->bias.front());
  return true;
}

AttentionRules StaleKRow() {
  AttentionRules rules;
  rules.k_row = [hits = rules.hits](std::span<const int32_t> keys, size_t i) {
    if (i + 1 != keys.size() || i == 0) return keys[i];
    hits->fetch_add(1);
    return keys[i - 1];
  };
  return rules;
}

AttentionRules VRowsSwapped() {
  AttentionRules rules;
  rules.v_row = [hits = rules.hits](std::span<const int32_t> keys, size_t i) {
    const size_t n = keys.size();
    if (n < 2 || i + 2 < n) return keys[i];
    hits->fetch_add(1);
    return i + 1 == n ? keys[n - 2] : keys[n - 1];
  };
  return rules;
}

int64_t NextHeadForTheLast(const AttentionCase& c, int64_t query_head) {
  const int64_t right = query_head / (c.query_heads / c.kv_heads);
  return query_head + 1 == c.query_heads ? (right + 1) % c.kv_heads : right;
}

int64_t Tiled(const AttentionCase& c, int64_t query_head) { return query_head % c.kv_heads; }

double ScaleOfNextDim(const AttentionCase& c) {
  const auto d = static_cast<double>(c.k_dim);
  return c.scale * std::sqrt(d / (d + 1));
}

double TemperatureOff(const AttentionCase& c) { return c.scale * 1.01; }

// A (B, 1, L, T) mask that meets grouped scores without its own axis for the group: the batch axis
// of the mask lands on the axis of the key/value heads.
AttentionRules MaskAlongWrongAxis() {
  AttentionRules rules;
  rules.mask_query = [hits = rules.hits](const AttentionCase& c, const QueryIndex& q) {
    QueryIndex wrong = q;
    wrong.batch = q.query_head / (c.query_heads / c.kv_heads) % c.batch;
    if (wrong.batch != q.batch) hits->fetch_add(1);
    return wrong;
  };
  return rules;
}

double ToBF16(double p) { return RoundToBF16(p); }
double One(double) { return 1; }

void FirstElementReplaced(const AttentionCase&, const QueryIndex& q, std::span<double> out) {
  if (q.batch == 0 && q.query_head == 0 && q.query == 0 && out.size() > 1) out[0] = out[1];
}

void LastRowZero(const AttentionCase& c, const QueryIndex& q, std::span<double> out) {
  if (q.batch + 1 == c.batch && q.query_head + 1 == c.query_heads && q.query + 1 == c.query_len) {
    std::fill(out.begin(), out.end(), 0.0);
  }
}

using R = AttentionRules;

constexpr AttentionFault kDetectionFaults[] = {
    {{"first_key_dropped", "visible", "the oldest visible key is left out", "window-off-by-one",
      "P2", "attention out bound", kTwoKeys},
     Visible<DropFirst>,
     nullptr,
     SeveralKeys},
    {{"last_key_dropped", "visible", "the newest visible key is left out", "vllm-window-inclusive",
      "P2", "attention out bound", kTwoKeys},
     Visible<DropLast>,
     nullptr,
     SeveralKeys},
    {{"future_key_visible", "visible", "one key after the last visible one takes part",
      "litgpt-ring-prefill", "P2", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left scale=0.5 "
      "data=gauss:1"},
     Visible<AddFuture>,
     nullptr,
     SeesLess},
    {{"stale_k_row", "k_row", "the newest key is read as the one before it", "vllm-spec-bonus-kv",
      "P3", "attention out bound", kTwoKeys},
     StaleKRow,
     nullptr,
     SeveralKeys},
    {{"v_rows_swapped", "v_row", "the V rows of the last two keys are exchanged",
      "batchquant-merge-values-swap", "P6", "attention out bound", kTwoKeys},
     VRowsSwapped,
     nullptr,
     SeveralKeys},
    {{"wrong_kv_head", "head_map", "the last query head reads the next key/value head",
      "lcpp-fa-gqa-pow2", "P8", "attention out bound",
      "attention hq=2 hkv=2 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Replaced<&R::head_map, NextHeadForTheLast>,
     nullptr,
     SeveralKvHeads},
    {{"gqa_tiled", "head_map", "query heads are tiled over key/value heads instead of grouped",
      "fa-combine-lse-ngroups", "P8", "attention out bound",
      "attention hq=4 hkv=2 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Replaced<&R::head_map, Tiled>,
     nullptr,
     Grouped},
    {{"scale_of_next_dim", "scale", "the scale is 1/sqrt(d + 1)", "mlx-sdpa-wrong-scores", "P8",
      "attention out bound", kTwoKeys},
     Scaled<ScaleOfNextDim>,
     nullptr,
     Always},
    {{"temperature_1_percent", "scale", "the scores are 1 % too large", "mlx-sdpa-wrong-scores",
      "P8", "attention out bound", kTwoKeys},
     Scaled<TemperatureOff>,
     nullptr,
     Always},
    {{"left_padding_off_by_one", "visible", "the newest padding token takes part",
      "hf-leftpad-positions", "P14", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=left_pad:1 scale=0.5 "
      "data=gauss:1"},
     Visible<AddPadding>,
     nullptr,
     Padded},
    {{"mask_along_wrong_axis", "mask_query", "a mask per batch row is applied per key/value head",
      "quant-sdpa-gqa-batch-mask", "P2", "attention out bound",
      "attention b=2 hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=left_pad:1,0 scale=0.5 "
      "data=gauss:1"},
     MaskAlongWrongAxis,
     nullptr,
     MaskPerRowAndQuery},
    {{"p_rounded_to_bf16", "p_step", "P is rounded to bf16, and the plan does not say so",
      "tq-ssd-fresh-vs-hit", "P11", "attention out bound", kTwoKeys},
     Number<&R::p_step, ToBF16>,
     nullptr,
     Always},
    {{"denominator_not_rescaled", "denominator_rescale",
      "the denominator keeps its old shift when the maximum rises", "sink-double-count-splitkv",
      "P8", "attention out bound", kTwoKeys, "base=plain_f32 block=1"},
     Number<&R::denominator_rescale, One>,
     nullptr,
     SeveralKeys},
    {{"element_replaced", "output", "one element of the output is its neighbour",
      "fi-swa-specdecode", "P8", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 dv=2 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Output<FirstElementReplaced>,
     nullptr,
     Always},
    {{"output_row_zero", "output", "the last row of the output is zero", "fi-mla-page-int32", "P8",
      "attention out bound", kOneKey},
     Output<LastRowZero>,
     nullptr,
     Always},
};

}  // namespace

std::span<const AttentionFault> DetectionFaults() { return kDetectionFaults; }

}  // namespace kvcheck
