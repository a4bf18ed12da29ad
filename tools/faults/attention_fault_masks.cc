// Attention faults of which key a query sees: windows, causality, padding, mask arrays, rows that
// see nothing.

#include <algorithm>
#include <limits>
#include <vector>

#include "tools/faults/attention_fault_rules.h"
#include "tools/faults/attention_faults.h"

namespace kvcheck {
namespace {

using namespace attention_fault;

constexpr int64_t kTileQueries = 2;  // of a kernel whose first tile forgets its window

void WindowWider(AttentionQuestion* a) {
  if (a->c.mask.window) ++*a->c.mask.window;
}
void WindowNarrower(AttentionQuestion* a) {
  if (a->c.mask.window && *a->c.mask.window > 1) --*a->c.mask.window;
}
void WindowIgnored(AttentionQuestion* a) { a->c.mask.window.reset(); }
void WindowIgnoredAtDecode(AttentionQuestion* a) {
  if (a->c.query_len == 1) a->c.mask.window.reset();
}
void CausalTopLeft(AttentionQuestion* a) {
  if (a->c.mask.causal == CausalAlignment::kBottomRight) {
    a->c.mask.causal = CausalAlignment::kTopLeft;
  }
}
void CausalBottomRight(AttentionQuestion* a) {
  if (a->c.mask.causal == CausalAlignment::kTopLeft) {
    a->c.mask.causal = CausalAlignment::kBottomRight;
  }
}
void CausalIgnored(AttentionQuestion* a) { a->c.mask.causal = CausalAlignment::kNone; }
// Where V is the same for all keys, which no comparison of outputs can tell from the right one.
void CausalIgnoredUnseen(AttentionQuestion* a) {
  if (a->c.data.regime == "constant") a->c.mask.causal = CausalAlignment::kNone;
}
void ArrayIgnored(AttentionQuestion* a) { a->c.mask.array = MaskArrayKind::kNone; }
void PaddingIgnored(AttentionQuestion* a) { a->c.mask.left_padding.clear(); }
void PaddingOfNextRow(AttentionQuestion* a) {
  std::vector<int64_t>& padding = a->c.mask.left_padding;
  if (!padding.empty()) std::rotate(padding.begin(), padding.begin() + 1, padding.end());
}

// true becomes +1 and false +0.
void BoolAdded(AttentionQuestion* a) {
  if (a->c.mask.array != MaskArrayKind::kBoolean) return;
  a->c.mask.array = MaskArrayKind::kAdditive;
  a->c.mask.additive_dtype = DType::kFloat32;
  Tensor& mask = a->inputs.at("mask");
  Tensor numbers(DType::kFloat32, mask.shape);
  for (size_t i = 0; i < mask.bytes.size(); ++i) {
    numbers.As<float>()[i] = mask.bytes[i] != std::byte{0} ? 1.0F : 0.0F;
  }
  mask = std::move(numbers);
}
void BoolInverted(AttentionQuestion* a) {
  if (a->c.mask.array != MaskArrayKind::kBoolean) return;
  for (std::byte& seen : a->inputs.at("mask").bytes) seen ^= std::byte{1};
}
// Numbers that are not 0 are taken for true.
void AdditiveAsBool(AttentionQuestion* a) {
  if (a->c.mask.array != MaskArrayKind::kAdditive) return;
  a->c.mask.array = MaskArrayKind::kBoolean;
  Tensor& mask = a->inputs.at("mask");
  std::vector<double> values(static_cast<size_t>(mask.ElementCount()));
  DecodeTo(mask, 0, values);
  Tensor bits(DType::kBool, mask.shape);
  for (size_t i = 0; i < values.size(); ++i) {
    bits.bytes[i] = values[i] != 0 ? std::byte{1} : std::byte{0};
  }
  mask = std::move(bits);
}
void MaskedRowNan(AttentionQuestion* a) { a->profile.masked_row = MaskedRow::kNan; }
void MaskedRowMean(AttentionQuestion* a) { a->profile.masked_row = MaskedRow::kMean; }
// A zero row of K has score 0, a zero row of V the value 0: what a sink of logit 0 is.
void ZeroRowAttended(AttentionQuestion* a) {
  if (a->c.sinks || !a->c.mask.window || *a->c.mask.window <= a->c.kv_len) return;
  a->c.sinks = a->c.q;
  a->inputs["sinks"] = Tensor(a->c.q, Shape::Unnamed({a->c.query_heads}));
}

// Without padding and arrays, all that stands before the first visible key was hidden by the
// window.
bool WindowIgnoredInFirstTile(const AttentionCase& c, const QueryIndex& q, VisibleSet* set) {
  if (!c.mask.window || !c.mask.left_padding.empty() || c.mask.array != MaskArrayKind::kNone ||
      c.alibi || q.query >= kTileQueries || set->keys.empty() || set->keys.front() == 0) {
    return false;
  }
  for (int32_t key = set->keys.front() - 1; key >= 0; --key) {
    set->keys.insert(set->keys.begin(), key);
  }
  return true;
}

// The query's position counts tokens, the keys' counts columns.
bool PaddingShiftsCausal(const AttentionCase& c, const QueryIndex& q, VisibleSet* set) {
  if (c.mask.left_padding.empty() || c.mask.causal == CausalAlignment::kNone) return false;
  const int64_t last =
      QueryPosition(c, q.query) - c.mask.left_padding[static_cast<size_t>(q.batch)];
  const size_t before = set->keys.size();
  while (!set->keys.empty() && set->keys.back() > last) {
    set->keys.pop_back();
    if (!set->bias.empty()) set->bias.pop_back();
  }
  return set->keys.size() != before;
}

// Positions are taken after the step advanced them by its L tokens.
bool SeesWholeStep(const AttentionCase& c, const QueryIndex&, VisibleSet* set) {
  if (c.mask.causal == CausalAlignment::kNone || set->keys.empty()) return false;
  const int64_t end = std::min(c.kv_len, set->keys.back() + 1 + c.query_len);
  const size_t before = set->keys.size();
  for (int32_t key = set->keys.back() + 1; key < end; ++key) {
    set->keys.push_back(key);
    if (!set->bias.empty()) set->bias.push_back(set->bias.back());
  }
  return set->keys.size() != before;
}

bool LastKeyTwice(const AttentionCase&, const QueryIndex&, VisibleSet* set) {
  if (set->keys.empty()) return false;
  set->keys.push_back(set->keys.back());
  if (!set->bias.empty()) set->bias.push_back(set->bias.back());
  return true;
}

// 0 times -inf: a hidden key is not left out, and its NaN takes part.
bool HiddenKeyIsNan(const AttentionCase& c, const QueryIndex&, VisibleSet* set) {
  if (c.mask.array != MaskArrayKind::kAdditive || set->keys.empty() || set->bias.empty()) {
    return false;
  }
  int32_t key = 0;  // the first that is hidden
  while (static_cast<size_t>(key) < set->keys.size() &&
         set->keys[static_cast<size_t>(key)] == key) {
    ++key;
  }
  if (key >= c.kv_len) return false;
  set->keys.insert(set->keys.begin() + key, key);
  set->bias.insert(set->bias.begin() + key, std::numeric_limits<double>::quiet_NaN());
  return true;
}

QueryIndex OfNextHead(const AttentionCase& c, const QueryIndex& q) {
  QueryIndex wrong = q;
  wrong.query_head = (q.query_head + 1) % c.query_heads;
  return wrong;
}
QueryIndex OfFirstQuery(const AttentionCase&, const QueryIndex& q) {
  return {q.batch, q.query_head, 0};
}

using R = AttentionRules;

// A query that sees no key has NaN under some profiles: then a key too many shows as a number in
// its place.
constexpr std::string_view kOut = "attention out bound | attention out special_value";

constexpr AttentionFault kMaskFaults[] = {
    {{"window_too_wide", "window", "a window of W shows W + 1 keys",
      "window-off-by-one vllm-window-inclusive", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=window:1 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     WindowWider},
    {{"window_too_narrow", "window", "a window of W shows W - 1 keys",
      "vllm-window-inclusive rotating-size-w-vs-w-1", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=window:2 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     WindowNarrower},
    {{"window_ignored", "window", "the window is not passed on", "vllm-xformers-window-ignored",
      "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=window:1 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     WindowIgnored},
    {{"window_ignored_at_decode", "window", "a single query takes no mask, and so no window",
      "window-mask-missing-decode", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=window:1 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     WindowIgnoredAtDecode},
    {{"window_ignored_in_first_tile", "visible", "the first tile of queries ignores the window",
      "fi-noncausal-window-tile", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=window:1 scale=0.5 "
      "data=gauss:1"},
     Visible<WindowIgnoredInFirstTile>},
    {{"causal_top_left", "causal", "bottom-right causality is taken for top-left",
      "pt-causal-topleft mlx-causal-alignment", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
      "scale=0.5 data=gauss:1"},
     nullptr,
     CausalTopLeft},
    {{"causal_bottom_right", "causal", "top-left causality is taken for bottom-right",
      "mlx-causal-alignment", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left scale=0.5 "
      "data=gauss:1"},
     nullptr,
     CausalBottomRight},
    {{"causal_ignored", "causal", "the causal mask is not applied", "quant-sdpa-string-bool-mask",
      "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left scale=0.5 "
      "data=gauss:1"},
     nullptr,
     CausalIgnored},
    {{"causal_ignored_constant_v", "causal",
      "the causal mask is not applied where the values of all keys are the same",
      "quant-sdpa-string-bool-mask", "P2",
      "attention out MISTRUSTED | attention out bound | attention out special_value | attention "
      "lse bound",
      "attention hq=1 hkv=1 l=2 t=9 d=8 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left scale=0.5 "
      "data=constant:1"},
     nullptr,
     CausalIgnoredUnseen},
    {{"mask_array_ignored", "mask", "the mask array is not applied", "quant-sdpa-string-bool-mask",
      "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=bool:LT scale=0.5 "
      "data=gauss:2"},
     nullptr,
     ArrayIgnored},
    {{"bool_mask_added", "mask", "a boolean mask is added to the scores",
      "quant-sdpa-string-bool-mask", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=bool:LT scale=0.5 "
      "data=gauss:2"},
     nullptr,
     BoolAdded},
    {{"bool_mask_inverted", "mask", "true means hidden", "quant-sdpa-string-bool-mask", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=bool:LT scale=0.5 "
      "data=gauss:2"},
     nullptr,
     BoolInverted},
    {{"additive_mask_as_bool", "mask", "an additive mask is read as a boolean one",
      "quant-sdpa-string-bool-mask", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=additive:LT:f32 scale=0.5 "
      "data=gauss:2"},
     nullptr,
     AdditiveAsBool},
    {{"additive_mask_nan", "visible", "-inf in an additive mask makes NaN", "mlx-sdpa-additive-nan",
      "P8", "attention out special_value",
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=additive:LT:f32 scale=0.5 "
      "data=gauss:20"},
     Visible<HiddenKeyIsNan>},
    {{"mask_of_next_head", "mask_query", "a mask per head is applied one head later",
      "vlm-quant-batch-mask", "P2", "attention out bound",
      "attention hq=2 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=bool:BHLT scale=0.5 "
      "data=gauss:2"},
     Replaced<&R::mask_query, OfNextHead>},
    {{"mask_of_first_query", "mask_query", "all queries take the mask of the first one",
      "rotating-size-w-vs-w-1 vlm-quant-batch-mask", "P5", kOut,
      "attention hq=1 hkv=1 l=2 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
      "scale=0.5 data=gauss:1"},
     Replaced<&R::mask_query, OfFirstQuery>},
    {{"padding_ignored", "left_pad", "left padding takes part",
      "hf-leftpad-positions hf-static-sliding-mask-size", "P14", kOut,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=left_pad:1 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     PaddingIgnored},
    {{"padding_of_next_row", "left_pad", "each batch row takes the padding of the next one",
      "arrays-filter-left-padding arrays-extend-metadata", "P6", kOut,
      "attention b=2 hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=left_pad:1,0 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     PaddingOfNextRow},
    {{"padding_shifts_causal", "visible",
      "the causal term compares the token's number with a column of padding and tokens",
      "tq-batch-make-mask-leftpad", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=3 d=1 q=f32 k=f32 v=f32 out=f32 "
      "mask=causal_bottom_right+left_pad:1 scale=0.5 data=gauss:1"},
     Visible<PaddingShiftsCausal>},
    {{"zero_row_attended", "visible", "while a window is not full, a zero row of it is seen",
      "hf-static-sliding-mask-size", "P2", kOut,
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 mask=window:2 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     ZeroRowAttended},
    {{"whole_step_visible", "visible", "positions are read after the step has advanced them",
      "gemma3n-offset-aliasing", "P14", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_top_left scale=0.5 "
      "data=gauss:1"},
     Visible<SeesWholeStep>},
    {{"last_key_twice", "visible", "the newest token is fed twice",
      "exact-hit-empty-rest-swa exact-hit-n-minus-1", "P11", "attention out bound", kTwoKeys},
     Visible<LastKeyTwice>},
    {{"masked_row_nan", "masked_row", "a query that sees no key gives NaN",
      "mlx-sdpa-all-masked-nan pt-masked-nan lcpp-fa-inf-nan", "P13", "attention out special_value",
      "attention hq=1 hkv=1 l=2 t=1 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
      "scale=0.5 data=gauss:1"},
     nullptr,
     MaskedRowNan},
    {{"masked_row_mean", "masked_row", "a query that sees no key gives the mean of all V",
      "pt-masked-nan mlx-sdpa-all-masked-nan", "P13",
      "attention out bound | attention out special_value | attention lse special_value",
      "attention hq=1 hkv=1 l=2 t=1 d=1 q=f32 k=f32 v=f32 out=f32 mask=causal_bottom_right "
      "scale=0.5 data=gauss:1"},
     nullptr,
     MaskedRowMean},
};

}  // namespace

std::span<const AttentionFault> MaskFaults() { return kMaskFaults; }

}  // namespace kvcheck
