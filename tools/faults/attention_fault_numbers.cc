// Attention faults of numbers: scale, softcap, sinks, ALiBi, log-sum-exp, the merge of splits, and
// arithmetic coarser than the plan says.

#include <cmath>
#include <memory>

#include "tools/faults/attention_fault_rules.h"
#include "tools/faults/attention_faults.h"

namespace kvcheck {
namespace {

using namespace attention_fault;

double NoScale(const AttentionCase&) { return 1; }
double ScaleOfV(const AttentionCase& c) {
  return c.scale * std::sqrt(static_cast<double>(c.k_dim) / static_cast<double>(c.v_dim));
}

void SoftcapIgnored(AttentionQuestion* a) { a->c.softcap.reset(); }
void SoftcapDoubled(AttentionQuestion* a) {
  if (a->c.softcap) *a->c.softcap *= 2;
}
void SinksIgnored(AttentionQuestion* a) { a->c.sinks.reset(); }
void SinkOfNextHead(AttentionQuestion* a) {
  if (a->c.sinks) RotateSlices(&a->inputs.at("sinks"), a->c.query_heads);
}
// Logits that stand for no sink, -inf among them, become 0.
void DisabledSinkCounted(AttentionQuestion* a) {
  if (!a->c.sinks) return;
  EditNumbers(&a->inputs.at("sinks"), [](std::vector<double>* sinks) {
    for (double& sink : *sinks) sink = sink < -kVanishes ? 0 : sink;
  });
}
void AlibiIgnored(AttentionQuestion* a) { a->c.alibi = false; }
void AlibiOfNextHead(AttentionQuestion* a) {
  if (a->c.alibi) RotateSlices(&a->inputs.at("alibi_slopes"), a->c.query_heads);
}
void LseInOtherUnit(AttentionQuestion* a) {
  if (a->c.lse == LseKind::kNone) return;
  a->c.lse = a->c.lse == LseKind::kBase2 ? LseKind::kNatural : LseKind::kBase2;
}

bool AlwaysJoins(int, int) { return true; }
double EqualWeights(size_t, size_t, double) { return 1; }
double LastLeftOut(size_t index, size_t count, double weight) {
  return count > 1 && index + 1 == count ? 0 : weight;
}
double One(double) { return 1; }

// Written one row too late.
AttentionRules LseShifted() {
  AttentionRules rules;
  rules.lse = [hits = rules.hits, last = std::make_shared<double>(0)](
                  const AttentionCase&, const QueryIndex&, double lse) {
    const double wrong = *last;
    *last = lse;
    if (wrong != lse) hits->fetch_add(1);
    return wrong;
  };
  return rules;
}
double LseWithoutSign(const AttentionCase&, const QueryIndex&, double lse) {
  return std::fabs(lse);
}

// Rounded toward zero before the rounding that is declared.
void Truncated(const AttentionCase& c, const QueryIndex&, std::span<double> out) {
  ConvertRule rule;
  rule.rounding = Rounding::kTowardZero;
  for (double& value : out) value = RoundTo(c.out, value, rule);
}
void ToE4M3(const AttentionCase&, const QueryIndex&, std::span<double> out) {
  ConvertRule rule;
  rule.overflow = Overflow::kSaturate;
  for (double& value : out) value = RoundTo(DType::kFloat8E4M3FN, value, rule);
}
void CheckedForHuge(const AttentionCase&, const QueryIndex&, std::span<double> out) {
  for (double& value : out) {
    if (std::fabs(value) > 1e4) value = std::copysign(1e4, value);
  }
}

SumPlan Coarse(DType type) {
  SumPlan sum;
  sum.accumulator = {type, false};
  return sum;
}
void QkInBf16(AttentionQuestion* a) { a->plan.qk = Coarse(DType::kBFloat16); }
void PvInF16(AttentionQuestion* a) { a->plan.pv = Coarse(DType::kFloat16); }
void DenominatorInBf16(AttentionQuestion* a) { a->plan.l = Coarse(DType::kBFloat16); }
void ScoresInF16(AttentionQuestion* a) { a->plan.scores = DType::kFloat16; }
void CoarseExp(AttentionQuestion* a) { a->plan.exp_error = 0x1p-7; }
void PInE4M3(AttentionQuestion* a) {
  a->plan.p = DType::kFloat8E4M3FN;
  a->plan.p_scale = 1;
}

using R = AttentionRules;

constexpr std::string_view kOutOrLse = "attention out bound | attention lse bound";

constexpr AttentionFault kNumberFaults[] = {
    {{"scale_missing", "scale", "q.k is not scaled",
      "sgl-fp8-scale-not-loaded vllm-fp8-descale-dropped trt-mla-scale-none", "P9", kOutOrLse,
      kTwoKeys},
     Scaled<NoScale>},
    {{"scale_of_v_dim", "scale", "the scale is that of the channels of V", "mlx-sdpa-wrong-scores",
      "P8", kOutOrLse,
      "attention hq=1 hkv=1 l=1 t=2 d=1 dv=2 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1"},
     Scaled<ScaleOfV>},
    {{"softcap_ignored", "softcap", "the softcap is not applied", "mlx-sdpa-wrong-scores", "P8",
      kOutOrLse,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 softcap=1 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     SoftcapIgnored},
    {{"softcap_doubled", "softcap", "the softcap is twice as large", "mlx-sdpa-wrong-scores", "P8",
      kOutOrLse,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 softcap=1 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     SoftcapDoubled},
    {{"sinks_ignored", "sinks", "the sinks do not join the denominator",
      "sink-double-count-splitkv", "P8", "attention out bound | attention out special_value",
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 sinks=f32 scale=0.5 "
      "data=gauss:1"},
     nullptr,
     SinksIgnored},
    {{"disabled_sink_counted", "sinks", "a sink of logit -inf, or near it, is counted as one of 0",
      "sink-double-count-splitkv", "P8", kOutOrLse,
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 sinks=f32 scale=0.5 "
      "data=disabled_sinks:0"},
     nullptr,
     DisabledSinkCounted},
    {{"sink_in_every_split", "sink_joins", "every split counts the sink",
      "sink-double-count-splitkv", "P8", kOutOrLse,
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 sinks=f32 scale=0.5 data=gauss:1",
      "base=plain_f32 block=1 merge=accumulators splits=2"},
     Replaced<&R::sink_joins, AlwaysJoins>},
    {{"sink_of_next_head", "sinks", "each head takes the sink of the next one",
      "sink-double-count-splitkv", "P8", kOutOrLse,
      "attention hq=2 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 sinks=f32 "
      "data=gauss:1"},
     nullptr,
     SinkOfNextHead},
    {{"alibi_ignored", "alibi", "the bias of ALiBi is not added", "mlx-sdpa-wrong-scores", "P8",
      kOutOrLse,
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 alibi=yes "
      "data=gauss:1"},
     nullptr,
     AlibiIgnored},
    {{"alibi_of_next_head", "alibi", "each head takes the slope of the next one",
      "mlx-sdpa-wrong-scores", "P8", kOutOrLse,
      "attention hq=2 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 alibi=yes "
      "data=gauss:1"},
     nullptr,
     AlibiOfNextHead},
    {{"lse_in_other_unit", "lse", "lse in base 2 is given as natural, and the reverse",
      "vllm-cascade-lse-layout", "P8", "attention lse bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 lse=natural "
      "data=gauss:1"},
     nullptr,
     LseInOtherUnit},
    {{"lse_one_row_late", "lse", "lse is written one row too late",
      "fa-combine-lse-ngroups vllm-cascade-lse-layout", "P8",
      "attention lse bound | attention lse special_value",
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 lse=natural "
      "data=gauss:1"},
     LseShifted},
    {{"lse_without_sign", "lse", "lse is given without its sign", "vllm-cascade-lse-layout", "P8",
      "attention lse bound | attention lse special_value",
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 lse=natural scale=0.5 "
      "data=gauss:1"},
     Replaced<&R::lse, LseWithoutSign>},
    {{"merge_with_equal_weights", "merge_weight", "splits are merged without their weights",
      "vllm-cascade-lse-layout fa-combine-lse-ngroups", "P8", "attention out bound", kTwoKeys,
      "base=plain_f32 block=1 merge=accumulators splits=2"},
     Replaced<&R::merge_weight, EqualWeights>},
    {{"merge_without_last", "merge_weight", "the last split is left out of the merge",
      "fa-combine-lse-ngroups", "P8", "attention out bound", kTwoKeys,
      "base=plain_f32 block=1 merge=accumulators splits=2"},
     Replaced<&R::merge_weight, LastLeftOut>},
    {{"sums_not_rescaled", "sums_rescale", "P.V keeps its old shift when the maximum rises",
      "kv8-nan-chunked", "P8", "attention out bound", kTwoKeys, "base=plain_f32 block=1"},
     Number<&R::sums_rescale, One>},
    {{"qk_in_bf16", "qk", "q.k is summed in bf16, and the plan does not say so",
      "mlx-sdpa-wrong-scores", "P8", kOutOrLse, kTwoKeys},
     nullptr,
     QkInBf16},
    {{"pv_in_f16", "pv", "P.V is summed in f16, and the plan does not say so",
      "lcpp-q4-kv-fa-blackwell", "P8", "attention out bound | attention out special_value",
      kOneKey},
     nullptr,
     PvInF16},
    {{"denominator_in_bf16", "l", "the denominator is summed in bf16, and the plan does not say so",
      "mlx-sdpa-wrong-scores", "P8", "attention out bound", kTwoKeys},
     nullptr,
     DenominatorInBf16},
    {{"scores_in_f16", "scores", "scores are stored in f16, and the plan does not say so",
      "mlx-sdpa-wrong-scores kv8-nan-chunked", "P8",
      "attention out bound | attention out special_value", kTwoKeys},
     nullptr,
     ScoresInF16},
    {{"exp_of_7_bits", "exp", "exp is a table of seven bits, and the plan does not say so",
      "sgl-fp8-prefill-decode-mismatch", "P5", "attention out bound", kTwoKeys},
     nullptr,
     CoarseExp},
    {{"p_in_e4m3", "p", "P is rounded to fp8, and the plan does not say so",
      "sgl-fp8-prefill-decode-mismatch", "P5", "attention out bound", kTwoKeys},
     nullptr,
     PInE4M3},
    {{"output_truncated", "output", "the output is truncated instead of rounded",
      "mlx-sdpa-wrong-scores", "P8", "attention out bound",
      "attention hq=1 hkv=1 l=1 t=2 d=1 q=bf16 k=bf16 v=bf16 out=bf16 scale=0.5 data=gauss:1"},
     Output<Truncated>},
    {{"output_in_e4m3", "output", "the output passes through fp8", "vllm-fp8-v1-wrong", "P9",
      "attention out bound", kOneKey},
     Output<ToE4M3>},
    {{"output_clamped", "output", "the output is clamped to 10,000", "pt-memeff-nan", "P8",
      "attention out bound",
      "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=large_v:1"},
     Output<CheckedForHuge>},
};

}  // namespace

std::span<const AttentionFault> NumberFaults() { return kNumberFaults; }

}  // namespace kvcheck
