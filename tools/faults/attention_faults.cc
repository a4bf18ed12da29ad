#include "tools/faults/attention_faults.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/numerics/fast_round.h"

namespace kvcheck {
namespace {

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

AttentionRules FirstKeyDropped() {
  AttentionRules rules;
  rules.visible = [hits = rules.hits](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
    if (set->keys.size() < 2) return;
    set->keys.erase(set->keys.begin());
    if (!set->bias.empty()) set->bias.erase(set->bias.begin());
    hits->fetch_add(1);
  };
  return rules;
}

AttentionRules LastKeyDropped() {
  AttentionRules rules;
  rules.visible = [hits = rules.hits](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
    if (set->keys.size() < 2) return;
    set->keys.pop_back();
    if (!set->bias.empty()) set->bias.pop_back();
    hits->fetch_add(1);
  };
  return rules;
}

AttentionRules FutureKeyVisible() {
  AttentionRules rules;
  rules.visible = [hits = rules.hits](const AttentionCase& c, const QueryIndex&, VisibleSet* set) {
    if (set->keys.empty() || set->keys.back() + 1 >= c.kv_len) return;
    set->keys.push_back(set->keys.back() + 1);
    if (!set->bias.empty()) set->bias.push_back(set->bias.back());
    hits->fetch_add(1);
  };
  return rules;
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

AttentionRules WrongKvHead() {
  AttentionRules rules;
  rules.head_map = [](const AttentionCase& c, int64_t query_head) {
    const int64_t right = query_head / (c.query_heads / c.kv_heads);
    return query_head + 1 == c.query_heads ? (right + 1) % c.kv_heads : right;
  };
  return rules;
}

AttentionRules GqaTiled() {
  AttentionRules rules;
  rules.head_map = [](const AttentionCase& c, int64_t query_head) {
    return query_head % c.kv_heads;
  };
  return rules;
}

AttentionRules ScaleOfNextDim() {
  AttentionRules rules;
  rules.scale = [hits = rules.hits](const AttentionCase& c) {
    hits->fetch_add(1);
    const auto d = static_cast<double>(c.k_dim);
    return c.scale * std::sqrt(d / (d + 1));
  };
  return rules;
}

AttentionRules TemperatureOff() {
  AttentionRules rules;
  rules.scale = [hits = rules.hits](const AttentionCase& c) {
    hits->fetch_add(1);
    return c.scale * 1.01;
  };
  return rules;
}

AttentionRules PaddingOffByOne() {
  AttentionRules rules;
  rules.visible = [hits = rules.hits](const AttentionCase& c, const QueryIndex& q,
                                      VisibleSet* set) {
    const int64_t padding = c.mask.left_padding[static_cast<size_t>(q.batch)];
    if (padding == 0 || set->keys.empty() || set->keys.front() != padding) return;
    set->keys.insert(set->keys.begin(), static_cast<int32_t>(padding - 1));
    if (!set->bias.empty()) set->bias.insert(set->bias.begin(), set->bias.front());
    hits->fetch_add(1);
  };
  return rules;
}

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

AttentionRules PRoundedToBf16() {
  AttentionRules rules;
  rules.p_step = [hits = rules.hits](double p) {
    const double rounded = RoundToBF16(p);
    if (rounded != p) hits->fetch_add(1);
    return rounded;
  };
  return rules;
}

AttentionRules DenominatorNotRescaled() {
  AttentionRules rules;
  rules.denominator_rescale = [hits = rules.hits](double correction) {
    if (correction != 1) hits->fetch_add(1);
    return 1.0;
  };
  return rules;
}

AttentionRules ElementReplaced() {
  AttentionRules rules;
  rules.output = [hits = rules.hits](const AttentionCase&, const QueryIndex& q,
                                     std::span<double> out) {
    if (q.batch != 0 || q.query_head != 0 || q.query != 0 || out.size() < 2) return;
    if (out[0] != out[1]) hits->fetch_add(1);
    out[0] = out[1];
  };
  return rules;
}

AttentionRules OutputRowZero() {
  AttentionRules rules;
  rules.output = [hits = rules.hits](const AttentionCase& c, const QueryIndex& q,
                                     std::span<double> out) {
    if (q.batch + 1 != c.batch || q.query_head + 1 != c.query_heads ||
        q.query + 1 != c.query_len) {
      return;
    }
    hits->fetch_add(1);
    std::fill(out.begin(), out.end(), 0.0);
  };
  return rules;
}

constexpr AttentionFault kFaults[] = {
    {"first_key_dropped", "the oldest visible key is left out", "window-off-by-one",
     FirstKeyDropped, "two keys", SeveralKeys},
    {"last_key_dropped", "the newest visible key is left out", "vllm-window-inclusive",
     LastKeyDropped, "two keys", SeveralKeys},
    {"future_key_visible", "one key after the last visible one takes part", "litgpt-ring-prefill",
     FutureKeyVisible, "a causal mask and two queries", SeesLess},
    {"stale_k_row", "the newest key is read as the one before it", "vllm-spec-bonus-kv", StaleKRow,
     "two keys", SeveralKeys},
    {"v_rows_swapped", "the V rows of the last two keys are exchanged",
     "batchquant-merge-values-swap", VRowsSwapped, "two keys", SeveralKeys},
    {"wrong_kv_head", "the last query head reads the next key/value head", "lcpp-fa-gqa-pow2",
     WrongKvHead, "two key/value heads", SeveralKvHeads},
    {"gqa_tiled", "query heads are tiled over key/value heads instead of grouped",
     "fa-combine-lse-ngroups", GqaTiled, "grouped queries over two key/value heads", Grouped},
    {"scale_of_next_dim", "the scale is 1/sqrt(d + 1)", "mlx-sdpa-wrong-scores", ScaleOfNextDim, "",
     Always},
    {"temperature_1_percent", "the scores are 1 % too large", "mlx-sdpa-wrong-scores",
     TemperatureOff, "", Always},
    {"left_padding_off_by_one", "the newest padding token takes part", "hf-leftpad-positions",
     PaddingOffByOne, "left padding", Padded},
    {"mask_along_wrong_axis", "a mask per batch row is applied per key/value head",
     "quant-sdpa-gqa-batch-mask", MaskAlongWrongAxis, "a (B, 1, L, T) mask and two batch rows",
     MaskPerRowAndQuery},
    {"p_rounded_to_bf16", "P is rounded to bf16, and the plan does not say so",
     "tq-ssd-fresh-vs-hit", PRoundedToBf16, "", Always},
    {"denominator_not_rescaled", "the denominator keeps its old shift when the maximum rises",
     "sink-double-count-splitkv", DenominatorNotRescaled, "an online softmax of several blocks",
     SeveralKeys},
    {"element_replaced", "one element of the output is its neighbour", "fi-swa-specdecode",
     ElementReplaced, "", Always},
    {"output_row_zero", "the last row of the output is zero", "fi-mla-page-int32", OutputRowZero,
     "", Always},
};

}  // namespace

std::span<const AttentionFault> AttentionFaults() { return kFaults; }

const AttentionFault* FindAttentionFault(std::string_view id) {
  for (const AttentionFault& fault : kFaults) {
    if (fault.id == id) return &fault;
  }
  return nullptr;
}

}  // namespace kvcheck
