#include "reference/spec/known_plans.h"

#include <array>

namespace kvcheck {
namespace {

constexpr std::array<KnownPlan, 3> kPlans = {{
    {"plain_f32",
     "qk=f32:sequential pv=f32:sequential l=f32:sequential op=f32 scale_roundings=1 prescale=none "
     "scores=f32 bias_roundings=0 tanh_error=2^-22 exp=exp exp_error=2^-23 exp_floor=2^-126 "
     "lazy_rescale=0 block=all sink=first p=f32 p_scale=1 p_normalised=no l_from=unrounded "
     "merge=none splits=1 normalise=divide flush=no saturate=no log_error=2^-22 dequantize=inside:2",
     "the definition written out in f32: product and add, term by term, expf within 1 ulp"},
    {"flash_attention_2",
     "qk=f32:tensor_core:16:23:chained pv=f32:tensor_core:16:23:chained l=f32:sequential:chained "
     "op=f32 scale_roundings=2 prescale=none scores=f32 exp=exp2_fma exp_error=2^-21 "
     "exp_floor=2^-126 lazy_rescale=0 block=64 p_scale=1 p_normalised=no l_from=unrounded "
     "normalise=reciprocal flush=yes saturate=no log_error=2^-21",
     "FlashAttention 2/3 on tensor cores: one constant and one scaling per score, exp2 of a fused "
     "multiply-add with the rounded shift, P in the storage type of V, block of 64 keys"},
    {"stranger", "", "nothing is known: every field takes the loosest sound value"},
}};

}  // namespace

std::span<const KnownPlan> KnownPlans() { return kPlans; }

const KnownPlan* FindKnownPlan(std::string_view name) {
  for (const KnownPlan& plan : kPlans) {
    if (plan.name == name) return &plan;
  }
  return nullptr;
}

}  // namespace kvcheck
