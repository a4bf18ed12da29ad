// Attention faults of what is read: heads, batch rows, rows of K and V, codes and their scales,
// rotations that one side has and the other lacks.

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "reference/formats/codec.h"
#include "tools/faults/attention_fault_rules.h"
#include "tools/faults/attention_faults.h"

namespace kvcheck {
namespace {

using namespace attention_fault;

// The kernel has variants for ratios that are powers of two.
int64_t RatioPowerOfTwo(const AttentionCase& c, int64_t query_head) {
  const auto ratio = static_cast<uint64_t>(c.query_heads / c.kv_heads);
  return std::min(query_head / static_cast<int64_t>(std::bit_floor(ratio)), c.kv_heads - 1);
}
// And for ratios up to 2.
int64_t RatioUpToTwo(const AttentionCase& c, int64_t query_head) {
  const int64_t ratio = std::min<int64_t>(2, c.query_heads / c.kv_heads);
  return std::min(query_head / ratio, c.kv_heads - 1);
}

void EditInput(AttentionQuestion* a, const std::string& name,
               void (*edit)(std::vector<double>* values)) {
  const auto found = a->inputs.find(name);
  if (found != a->inputs.end()) EditNumbers(&found->second, edit);
}
void AllOne(std::vector<double>* values) { std::fill(values->begin(), values->end(), 1.0); }
void AllZero(std::vector<double>* values) { std::fill(values->begin(), values->end(), 0.0); }
void Negated(std::vector<double>* values) {
  for (double& value : *values) value = -value;
}
void KScaleIgnored(AttentionQuestion* a) { EditInput(a, "k_scales", AllOne); }
void VScaleIgnored(AttentionQuestion* a) { EditInput(a, "v_scales", AllOne); }
void VBiasIgnored(AttentionQuestion* a) { EditInput(a, "v_biases", AllZero); }
void KBiasNegated(AttentionQuestion* a) { EditInput(a, "k_biases", Negated); }

void VScaleOfNextGroup(AttentionQuestion* a) {
  EditInput(a, "v_scales", [](std::vector<double>* values) {
    std::rotate(values->begin(), values->begin() + 1, values->end());
  });
}

void KAndVSwapped(AttentionQuestion* a) {
  if (!IsPlain(a->c.k) || a->c.k != a->c.v || a->c.k_dim != a->c.v_dim) return;
  std::swap(a->inputs.at("k"), a->inputs.at("v"));
}

void OtherBatchRow(AttentionQuestion* a) {
  for (const Plane& plane : PlanesOf(a->c.k, a->c.k_dim)) {
    if (plane.scope != PlaneScope::kRow) continue;
    const auto found = a->inputs.find(PlaneTensor(a->c.k, "k", plane));
    if (found != a->inputs.end()) RotateSlices(&found->second, a->c.batch);
  }
}

// (B, Hkv, T, D) read as (B, T, Hkv, D).
void HeadsAndTokensSwapped(AttentionQuestion* a) {
  const auto found = a->inputs.find("v");
  if (found == a->inputs.end()) return;
  const auto row = static_cast<std::ptrdiff_t>(a->c.v_dim) *
                   static_cast<std::ptrdiff_t>(SizeInBytes(found->second.dtype));
  const std::vector<std::byte> right = found->second.bytes;
  const int64_t heads = a->c.kv_heads, tokens = a->c.kv_len;
  for (int64_t b = 0; b < a->c.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < tokens; ++t) {
        const auto from = right.begin() + (b * heads * tokens + t * heads + h) * row;
        const auto to = found->second.bytes.begin() + (b * heads * tokens + h * tokens + t) * row;
        std::copy(from, from + row, to);
      }
    }
  }
}

// Pairs of channels turned by 45 degrees, as by the Hadamard matrix of order 2. An odd last channel
// stays.
void Rotate(std::span<double> row) {
  for (size_t i = 0; i + 1 < row.size(); i += 2) {
    const double a = row[i], b = row[i + 1];
    row[i] = (a + b) * std::sqrt(0.5);
    row[i + 1] = (a - b) * std::sqrt(0.5);
  }
}
void KRotated(AttentionQuestion* a) {
  const auto found = a->inputs.find("k");
  if (found == a->inputs.end()) return;
  const auto d = static_cast<size_t>(a->c.k_dim);
  EditNumbers(&found->second, [d](std::vector<double>* values) {
    for (size_t i = 0; i < values->size(); i += d) Rotate(std::span(*values).subspan(i, d));
  });
}
// What meets rotated keys is the query itself: R q is q, as if q had been rotated back.
void QueryNotInBasisOfKeys(AttentionQuestion* a) {
  const StoredBasis basis = BasisOf(a->c.k, a->c.k_dim);
  if (!basis.Rotates()) return;
  const auto d = static_cast<size_t>(a->c.k_dim);
  EditNumbers(&a->inputs.at("q"), [&](std::vector<double>* values) {
    for (size_t i = 0; i < values->size(); i += d) {
      basis.RotateBack(std::span(*values).subspan(i, d));
    }
  });
}
void OutputInBasisOfValues(const AttentionCase& c, const QueryIndex&, std::span<double> out) {
  BasisOf(c.v, c.v_dim).Rotate(out);
}
void OutputRotated(const AttentionCase&, const QueryIndex&, std::span<double> out) { Rotate(out); }

// One 16-bit type for the other.
void ReadAsOtherHalf(AttentionQuestion* a) {
  const auto found = a->inputs.find("v");
  if (found == a->inputs.end()) return;
  Tensor& v = found->second;
  if (v.dtype != DType::kBFloat16 && v.dtype != DType::kFloat16) return;
  Tensor other = v;
  other.dtype = v.dtype == DType::kFloat16 ? DType::kBFloat16 : DType::kFloat16;
  std::vector<double> values(static_cast<size_t>(v.ElementCount()));
  DecodeTo(other, 0, values);
  ConvertRule rule;
  rule.overflow = Overflow::kSaturateAll;
  EncodeFrom(values, v.dtype, v.bytes.data(), rule);
}

void FirstRowZero(AttentionQuestion* a) {
  const auto found = a->inputs.find("k");
  if (found == a->inputs.end()) return;
  const auto row = static_cast<std::ptrdiff_t>(a->c.k_dim) *
                   static_cast<std::ptrdiff_t>(SizeInBytes(found->second.dtype));
  std::fill_n(found->second.bytes.begin(), row, std::byte{0});
}

void LastChannelZero(AttentionQuestion* a) {
  const auto d = static_cast<size_t>(a->c.k_dim);
  EditNumbers(&a->inputs.at("q"), [d](std::vector<double>* values) {
    for (size_t i = d - 1; i < values->size(); i += d) (*values)[i] = 0;
  });
}

using R = AttentionRules;

constexpr AttentionFault kOperandFaults[] = {
    {{"ratio_power_of_two", "head_map", "the ratio of heads is taken for a power of two",
      "lcpp-fa-gqa-pow2", "P8", "attention out bound",
      "attention hq=6 hkv=2 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Replaced<&R::head_map, RatioPowerOfTwo>},
    {{"ratio_up_to_two", "head_map", "a ratio of heads beyond the largest variant falls back to it",
      "fi-gqa16-crash", "P8", "attention out bound",
      "attention hq=6 hkv=2 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Replaced<&R::head_map, RatioUpToTwo>},
    {{"k_scale_ignored", "k_scales", "the scales of K are not applied",
      "fi-fp8-scale-ignored sgl-fp8-scale-not-loaded vllm-fp8-descale-dropped", "P9",
      "attention out bound | attention out special_value",
      "attention hq=1 hkv=1 l=1 t=2 d=32 dv=1 q=f32 k=affine:4:g32:f32 v=f32 out=f32 scale=0.125 "
      "data=gauss:1"},
     nullptr,
     KScaleIgnored},
    {{"v_scale_ignored", "v_scales", "the scales of V are not applied",
      "fi-fp8-scale-ignored trt-mla-scale-none", "P9",
      "attention out bound | attention out special_value",
      "attention hq=1 hkv=1 l=1 t=1 d=1 dv=32 q=f32 k=f32 v=affine:3:g32:f16 out=f32 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     VScaleIgnored},
    {{"v_scale_of_next_group", "v_scales", "each group of V takes the scale of the next one",
      "lcpp-q4-kv-fa-blackwell", "P8", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 dv=64 q=f32 k=f32 v=affine:3:g32:f16 out=f32 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     VScaleOfNextGroup},
    {{"v_bias_ignored", "v_biases", "the biases of V are not added", "lcpp-q4-kv-fa-blackwell",
      "P8", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 dv=32 q=f32 k=f32 v=affine:3:g32:f16 out=f32 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     VBiasIgnored},
    {{"k_bias_negated", "k_biases", "the biases of K have the other sign",
      "tq-fused-l1-quantize-basis", "P5", "attention out bound | attention lse bound",
      "attention hq=1 hkv=1 l=1 t=2 d=32 dv=1 q=f32 k=affine:4:g32:f32 v=f32 out=f32 scale=0.125 "
      "data=gauss:1"},
     nullptr,
     KBiasNegated},
    {{"k_and_v_swapped", "k", "K is read for V, and V for K", "batchquant-merge-values-swap", "P6",
      "attention out bound", kOneKey},
     nullptr,
     KAndVSwapped},
    {{"k_of_other_batch_row", "k", "a batch row reads the K of the next one",
      "lcp-shared-buffer-leak", "P10", "attention out bound",
      "attention b=2 hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     nullptr,
     OtherBatchRow},
    {{"heads_and_tokens_swapped", "v", "V is read with the strides of another order of axes",
      "fi-page-append-stride", "P8", "attention out bound",
      "attention hq=2 hkv=2 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     nullptr,
     HeadsAndTokensSwapped},
    {{"k_rotated_q_not", "k", "K is stored rotated, and the query is not", "lcpp-kv-rotation-arch",
      "P9", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=2 d=2 dv=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     nullptr,
     KRotated},
    {{"output_left_rotated", "output", "V is stored rotated, and the output is not turned back",
      "tq-l1-value-kernel-ignores-rht", "P9", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 dv=2 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Output<OutputRotated>},
    {{"rotated_query_left_as_it_is", "q", "rotated keys meet a query that is not",
      "lcpp-kv-rotation-arch", "P9", "attention out bound | attention lse bound",
      "attention hq=1 hkv=1 l=1 t=2 d=32 dv=1 q=f32 k=turboquant:4:g32:f32 v=f32 out=f32 "
      "scale=0.125 data=gauss:1"},
     nullptr,
     QueryNotInBasisOfKeys},
    {{"rotated_values_not_rotated_back", "output", "the sum of rotated values is given as it is",
      "tq-l1-value-kernel-ignores-rht", "P9", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 dv=32 q=f32 k=f32 v=turboquant:4:g32:f32 out=f32 "
      "scale=0.5 data=gauss:1"},
     Output<OutputInBasisOfValues>},
    {{"v_as_other_half", "v", "f16 is read as bf16, and bf16 as f16",
      "ssd-bf16-dtype vllm-fp8-v1-wrong", "P4", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=bf16 k=bf16 v=bf16 out=bf16 scale=0.5 data=gauss:1"},
     nullptr,
     ReadAsOtherHalf},
    {{"first_row_zero", "k", "the first row of K is zero", "lcpp-restore-head-zero", "P4",
      "attention out bound", kTwoKeys},
     nullptr,
     FirstRowZero},
    {{"last_channel_zero", "q", "the last channel of the query is left out", "fi-swa-specdecode",
      "P8", "attention out bound", kTwoKeys},
     nullptr,
     LastChannelZero},
};

}  // namespace

std::span<const AttentionFault> OperandFaults() { return kOperandFaults; }

}  // namespace kvcheck
