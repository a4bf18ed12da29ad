#include "reference/spec/known_plans.h"

namespace kvcheck {
namespace {

// Fields that every f32-accumulating plan below shares.
#define KVCHECK_F32_COMMON \
  "op=f32 lazy_rescale=0 p_scale=1 l_from=unrounded merge=none splits=1 saturate=no sink=first "

// MLX on the CPU has no fused kernel: scale, matmul, mask, softmax and matmul are separate
// operations, and each stores its result in the type of its operands.
#define KVCHECK_MLX_SOFTMAX                                                                       \
  KVCHECK_F32_COMMON                                                                              \
  "bias_roundings=0 exp=exp2_scaled exp_error=2^-23 exp_floor=2^-126 block=all p_normalised=yes " \
  "normalise=reciprocal flush=no l=f32:sequential tanh_error=2^-22 log_error=2^-22"

#define KVCHECK_MLX_SDPA_REASON                                                                 \
  "MLX 0.32.4 CPU: the unfused fallback of scaled_dot_product_attention; scale rounded to the " \
  "storage type, q * scale, scores and normalised P stored in it; f32 accumulators; "           \
  "golden/make/plans_of_libraries.md, A"
#define KVCHECK_MLX_LM_REASON                                                                      \
  "mlx-lm 0.32.2 quantized_scaled_dot_product_attention on the CPU: quantized_matmul accumulates " \
  "in the storage type, term by term; golden/make/plans_of_libraries.md, B"
#define KVCHECK_TORCH_FLASH_REASON                                                           \
  "PyTorch 2.15 CPU flash kernel: blocks of 512 keys, f32 accumulators in any order (MKL), " \
  "unnormalised P in the storage type, Sleef exp (f32) or the fast exp (half types); "       \
  "golden/make/plans_of_libraries.md, C"
#define KVCHECK_TORCH_MATH_REASON                                                            \
  "PyTorch 2.15 CPU math path: everything in f32, q and k scaled by the root of scale, one " \
  "rounding to the storage type at the end; golden/make/plans_of_libraries.md, C"

#define KVCHECK_TORCH_COMMON                                                              \
  KVCHECK_F32_COMMON                                                                      \
  "qk=f32:sequential l=f32:sequential prescale=none scores=f32 bias_roundings=0 exp=exp " \
  "normalise=reciprocal tanh_error=2^-21 log_error=2^-21 "

// Kernels of tensor cores that keep a running maximum. P in the storage type of V is left unsaid,
// which is the lowest type of the case. An instruction of 8 products covers those of 16.
#define KVCHECK_TENSOR_CORES "qk=f32:tensor_core:8:23:chained pv=f32:tensor_core:8:23:chained "
#define KVCHECK_GPU_COMMON                                                                     \
  "l=f32:sequential:chained op=f32 prescale=none scores=f32 exp_error=2^-21 exp_floor=2^-126 " \
  "lazy_rescale=0 p_scale=1 p_normalised=no l_from=unrounded flush=yes saturate=no "           \
  "tanh_error=2^-10 log_error=2^-20 "
#define KVCHECK_FLASH                     \
  KVCHECK_TENSOR_CORES KVCHECK_GPU_COMMON \
      "scale_roundings=3 exp=exp2_fma block=64 normalise=approximate partial=f32"
#define KVCHECK_TORCH_EFFICIENT \
  KVCHECK_GPU_COMMON            \
  "scale_roundings=4 exp=exp2_log2 block=64 merge=none splits=1 normalise=reciprocal"
#define KVCHECK_TORCH_FLEX \
  KVCHECK_GPU_COMMON "scale_roundings=4 exp=exp2_log2 block=16 normalise=approximate "

constexpr KnownPlan kPlans[] = {
    {"plain_f32",
     KVCHECK_F32_COMMON
     "qk=f32:sequential pv=f32:sequential l=f32:sequential scale_roundings=2 prescale=none "
     "scores=f32 bias_roundings=0 tanh_error=2^-22 exp=exp exp_error=2^-23 exp_floor=2^-126 "
     "block=all p=f32 p_normalised=no normalise=divide flush=no log_error=2^-22",
     "the definition written out in f32: product and add, term by term, expf within 1 ulp"},
    {"flash_attention_2", KVCHECK_FLASH,
     "FlashAttention 2, also as PyTorch builds it: constants and scaling per score, exp2 of a "
     "fused multiply-add with the rounded shift, P in the storage type of V, blocks of at least 64 "
     "keys; split merge unsaid; golden/make/plans_of_gpu_kernels.md, 4"},
    {"flash_attention_3", KVCHECK_FLASH,
     "FlashAttention 3 in f16 and bf16: as flash_attention_2; partial outputs in f32, merge "
     "unsaid; "
     "golden/make/plans_of_gpu_kernels.md, 4"},
    {"torch_cuda_math",
     "qk=f32:sequential:fma pv=f32:sequential:fma l=f32:sequential op=f32 scale_roundings=5 "
     "prescale=none scores=f32 bias_roundings=0 exp=exp exp_error=2^-21 exp_floor=2^-126 "
     "lazy_rescale=0 block=all p=f32 p_scale=1 p_normalised=yes l_from=unrounded merge=none "
     "splits=1 normalise=divide flush=no saturate=no tanh_error=2^-21 log_error=2^-21",
     "PyTorch on a GPU, math path without TF32: everything in f32, q and k scaled by the root of "
     "scale, one rounding to the storage type at the end; golden/make/plans_of_gpu_kernels.md, 1"},
    {"torch_cuda_efficient", KVCHECK_TENSOR_CORES KVCHECK_TORCH_EFFICIENT,
     "PyTorch on a GPU, memory-efficient kernel in f16 and bf16: scores in log2 units, P in the "
     "storage type; golden/make/plans_of_gpu_kernels.md, 2"},
    {"torch_cuda_efficient_f32",
     KVCHECK_TORCH_EFFICIENT
     " qk=f32:tensor_core:4:20:chained pv=f32:tensor_core:4:20:chained p=f32",
     "PyTorch on a GPU, memory-efficient kernel in f32: products of three TF32 products, which 20 "
     "bits of alignment cover; golden/make/plans_of_gpu_kernels.md, 2"},
    {"torch_cuda_cudnn",
     "qk=f32:tensor_core:8:23:chained pv=f32:tensor_core:8:23:chained op=f32 prescale=none "
     "scores=f32 lazy_rescale=0 p_scale=1 p_normalised=no l_from=unrounded flush=yes saturate=no",
     "PyTorch on a GPU, cuDNN 9.19 in f16 and bf16, as measured: f32 accumulators and scores, P in "
     "the storage type and not normalised, denominator from unrounded weights, all else unsaid; "
     "golden/make/plans_of_gpu_kernels.md, 8"},
    {"torch_flex_attention", KVCHECK_TENSOR_CORES KVCHECK_TORCH_FLEX "merge=none splits=1",
     "PyTorch's flex_attention by Triton, f16 and bf16, from 128 queries on: scores in log2 units, "
     "P in the storage type; golden/make/plans_of_gpu_kernels.md, 3"},
    {"torch_flex_attention_f32",
     KVCHECK_TORCH_FLEX
     "merge=none splits=1 qk=f32:sequential:fma pv=f32:sequential:fma:chained p=f32",
     "PyTorch's flex_attention by Triton, f32 without TF32; "
     "golden/make/plans_of_gpu_kernels.md, 3"},
    {"torch_flex_decoding",
     KVCHECK_TENSOR_CORES KVCHECK_TORCH_FLEX "merge=accumulators splits=264 partial=f32",
     "PyTorch's flex_attention by Triton below 128 queries: accumulators of ranges of keys merged "
     "in f32; golden/make/plans_of_gpu_kernels.md, 3"},
    {"torch_flex_decoding_f32",
     KVCHECK_TORCH_FLEX "merge=accumulators splits=264 partial=f32 qk=f32:sequential:fma "
                        "pv=f32:sequential:fma:chained "
                        "p=f32",
     "the same in f32 without TF32; golden/make/plans_of_gpu_kernels.md, 3"},
    {"flashinfer_prefill",
     "qk=f32:tensor_core:8:23:chained pv=f32:tensor_core:8:23:chained "
     "l=f32:tensor_core:8:23:chained op=f32 scale_roundings=3 prescale=none scores=f32 "
     "exp=exp2_fma_drift exp_error=2^-21 exp_floor=2^-126 lazy_rescale=0 block=16 p_scale=1 "
     "p_normalised=no l_from=rounded normalise=approximate flush=yes saturate=no tanh_error=2^-10 "
     "log_error=2^-20",
     "FlashInfer's FA2 prefill in f16 and bf16: the denominator sums rounded P, the rounded shift "
     "drifts; split merge and partial outputs unsaid; golden/make/plans_of_gpu_kernels.md, 5"},
    {"flashinfer_decode",
     "qk=f32:sequential:fma pv=f32:sequential:fma:chained l=f32:sequential:chained op=f32 "
     "scale_roundings=3 prescale=none scores=f32 exp=exp2_log2 exp_error=2^-21 exp_floor=2^-126 "
     "lazy_rescale=0 block=1 p=f32 p_scale=1 p_normalised=no l_from=unrounded "
     "normalise=approximate flush=yes saturate=no tanh_error=2^-10 log_error=2^-20",
     "FlashInfer's decode on CUDA cores: f32 products and P; split merge and partial outputs "
     "unsaid; golden/make/plans_of_gpu_kernels.md, 5"},
    {"vllm_triton",
     KVCHECK_TENSOR_CORES KVCHECK_GPU_COMMON
     "scale_roundings=2 exp=exp2_scaled block=16 normalise=approximate sink=first",
     "vLLM's unified attention by Triton in f16 and bf16, without softcap: natural units, P in the "
     "storage type of V; merge of segments unsaid; golden/make/plans_of_gpu_kernels.md, 6"},
    {"mlx_cpu_sdpa_f32",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=2 prescale=none scores=f32 p=f32",
     KVCHECK_MLX_SDPA_REASON},
    {"mlx_cpu_sdpa_f16",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=0 prescale=f16:2 scores=f16 p=f16",
     KVCHECK_MLX_SDPA_REASON},
    {"mlx_cpu_sdpa_bf16",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=0 prescale=bf16:2 scores=bf16 p=bf16",
     KVCHECK_MLX_SDPA_REASON},
    {"mlx_lm_quantized_f32",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=2 prescale=none scores=f32 p=f32 "
     "dequantize=inside:2",
     KVCHECK_MLX_LM_REASON},
    {"mlx_lm_quantized_f16",
     KVCHECK_MLX_SOFTMAX
     " qk=f16:sequential pv=f16:sequential scale_roundings=0 prescale=f16:2 scores=f16 p=f16 "
     "dequantize=rounded:f16",
     KVCHECK_MLX_LM_REASON},
    {"mlx_lm_quantized_bf16",
     KVCHECK_MLX_SOFTMAX
     " qk=bf16:sequential pv=bf16:sequential scale_roundings=0 prescale=bf16:2 scores=bf16 p=bf16 "
     "dequantize=rounded:bf16",
     KVCHECK_MLX_LM_REASON},
    {"torch_cpu_flash_f32",
     KVCHECK_TORCH_COMMON
     "pv=f32:sequential:chained scale_roundings=2 exp_error=2^-21 exp_floor=2^-125 block=512 p=f32 "
     "p_normalised=no flush=no",
     KVCHECK_TORCH_FLASH_REASON},
    {"torch_cpu_flash_f16",
     KVCHECK_TORCH_COMMON
     "pv=f32:sequential:chained scale_roundings=2 exp_error=2^-13 exp_floor=2^-126 block=512 p=f16 "
     "p_normalised=no flush=no",
     KVCHECK_TORCH_FLASH_REASON},
    {"torch_cpu_flash_bf16",
     KVCHECK_TORCH_COMMON "pv=f32:sequential:chained scale_roundings=2 exp_error=2^-13 "
                          "exp_floor=2^-126 block=512 p=bf16 "
                          "p_normalised=no flush=yes",
     KVCHECK_TORCH_FLASH_REASON},
    {"torch_cpu_math",
     KVCHECK_TORCH_COMMON
     "pv=f32:sequential scale_roundings=5 exp_error=2^-21 exp_floor=2^-125 block=all p=f32 "
     "p_normalised=yes flush=no",
     KVCHECK_TORCH_MATH_REASON},
    {"stranger", "", "nothing is known: every field takes the loosest sound value"},
};

}  // namespace

std::span<const KnownPlan> KnownPlans() { return kPlans; }

const KnownPlan* FindKnownPlan(std::string_view name) {
  for (const KnownPlan& plan : kPlans) {
    if (plan.name == name) return &plan;
  }
  return nullptr;
}

}  // namespace kvcheck
