#include "reference/spec/known_plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/dtype.h"

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
#define KVCHECK_MLX_VLM                                                                      \
  "qk=f32:sequential pv=f32:sequential l=f32:sequential op=f32 scores=f32 p=f32 merge=none " \
  "splits=1 lazy_rescale=0 p_scale=1 l_from=unrounded saturate=no dequantize=rotated:1"
#define KVCHECK_MLX_VLM_REASON                                                                   \
  "mlx-vlm 0.7.10 on the CPU: decode_attention over TurboQuant codes in their rotated basis; q " \
  "times scale in its own type, all sums in f32; golden/make/plans_of_libraries.md, 8"
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

#define KVCHECK_VLLM_TRITON \
  "scale_roundings=2 exp=exp2_scaled block=16 normalise=approximate partial=f32 sink=first"

// Where values come from that several plans share. Pages: golden/make/plans_of_gpu_kernels.md
// (GPU), golden/make/plans_of_libraries.md (CPU), each with the lines of the sources.
constexpr PlanSource kDefinition[] = {
    {"qk pv l op", "the definition: f32, product and add, one term after the other"},
    {"scale_roundings", "the scale is rounded to f32, and multiplies each score"},
    {"prescale bias_roundings scores p p_scale p_normalised l_from", "the definition, in f32"},
    {"exp exp_error exp_floor", "expf within 1 ulp, which underflows below 2^-126"},
    {"tanh_error log_error", "tanhf within 2 ulp, logf within 1 ulp, and half an ulp of rounding"},
    {"block merge splits lazy_rescale sink", "one softmax over all keys, the sink among them"},
    {"normalise flush saturate", "a division; subnormals are kept, overflow is infinite"},
};

constexpr PlanSource kMlxCpu[] = {
    {"qk pv", "plans_of_libraries.md, 2: netlib sgemm and the float loops of simd_gemm.h: bits"},
    {"l op exp exp_error exp_floor normalise p_normalised",
     "plans_of_libraries.md, 2: softmax.cpp and simd/math.h: bits; exp exhaustively: section 5"},
    {"scale_roundings prescale scores p", "plans_of_libraries.md, 2: fallback of fast.cpp: bits"},
    {"bias_roundings sink",
     "plans_of_libraries.md, 2: fast.cpp: a bias is added in the storage "
     "type, a sink is one more column: bits"},
    {"block merge splits lazy_rescale p_scale l_from saturate",
     "plans_of_libraries.md, 2: separate operations, one softmax over all keys: bits"},
    {"flush", "plans_of_libraries.md, 2: run"},
    {"tanh_error log_error", "tanhf and logf of the C library within 2 ulp; no lse is returned"},
    {"dequantize",
     "plans_of_libraries.md, 3: quantized.cpp rounds scale * code, then the sum: bits"},
};
constexpr PlanSource kMlxLmHalf[] = {
    {"qk pv",
     "plans_of_libraries.md, 3: _qmm_t and _qmm of quantized.cpp accumulate in the "
     "storage type: bits"},
};

constexpr PlanSource kMlxVlm[] = {
    {"qk pv l",
     "plans_of_libraries.md, 8: einsum of turboquant.py:4339 and 4360 in f32, any order"},
    {"op scores p", "plans_of_libraries.md, 8: everything between is f32"},
    {"prescale scale_roundings",
     "plans_of_libraries.md, 8: queries * scale in the type of q (6116), times the norm (4340)"},
    {"dequantize",
     "plans_of_libraries.md, 8: q is rotated (4316), sums of V are rotated back (4366)"},
    {"merge splits lazy_rescale p_scale l_from saturate",
     "plans_of_libraries.md, 8: chunks of keys join one running sum, by their own maximum (6273)"},
};

constexpr PlanSource kTorchCpu[] = {
    {"qk pv", "plans_of_libraries.md, 4: MKL and oneDNN, whose order is not known: any order"},
    {"l op block p p_normalised l_from normalise",
     "plans_of_libraries.md, 4: FlashAttentionKernel.cpp, blocks of 512 keys, f32"},
    {"scale_roundings prescale scores bias_roundings",
     "plans_of_libraries.md, 4: the scale in f32, on the score; of the math path on q and k"},
    {"exp exp_error exp_floor", "plans_of_libraries.md, 5: every float, against double"},
    {"tanh_error log_error", "Sleef within 1 ulp, and half an ulp of rounding: 2^-21 is wider"},
    {"merge splits lazy_rescale p_scale saturate sink", "plans_of_libraries.md, 4: none of these"},
    {"flush", "plans_of_libraries.md, 4: of bf16 the conversion flushes"},
};

constexpr PlanSource kGpu[] = {
    {"qk pv",
     "plans_of_gpu_kernels.md, 7: tensor cores align products and cut at 23 bits or more "
     "(MMA-Sim); 8 products a call cover 16"},
    {"l op prescale scores",
     "plans_of_gpu_kernels.md, 2 to 6: f32 registers, one sum a thread, "
     "then a tree"},
    {"exp_error exp_floor",
     "plans_of_gpu_kernels.md, 8: ex2.approx and exp2f measured, every float"},
    {"tanh_error", "plans_of_gpu_kernels.md, 8: tanh.approx measured; documented as 2^-11"},
    {"log_error", "plans_of_gpu_kernels.md, 7 and 8: lg2.approx, logf"},
    {"lazy_rescale p_scale p_normalised l_from saturate",
     "plans_of_gpu_kernels.md, 2 to 6: rescaled in every block; f32 weights are summed before "
     "they are rounded, and divided at the end"},
    {"flush", "plans_of_gpu_kernels.md, 7: not established of TF32; yes is the loosest"},
};
constexpr PlanSource kFlash[] = {
    {"scale_roundings",
     "plans_of_gpu_kernels.md, 4: alpha, alpha * log2 e, and the product "
     "(flash_api.cpp:137)"},
    {"exp", "plans_of_gpu_kernels.md, 4: exp2f(fma(x, c, -fl(m c))) (softmax.h:68-94)"},
    {"block", "plans_of_gpu_kernels.md, 4: flash_fwd_launch_template.h, tile_size.h: 64 or more"},
    {"normalise",
     "plans_of_gpu_kernels.md, 4: rcp.approx under fast math, IEEE as PyTorch builds it"},
    {"partial", "plans_of_gpu_kernels.md, 4: f32 partial outputs of split keys"},
};
constexpr PlanSource kTorchMath[] = {
    {"qk pv", "plans_of_gpu_kernels.md, 1: cuBLAS in f32, FFMA, any order"},
    {"scale_roundings", "plans_of_gpu_kernels.md, 1: sqrt(alpha) on q and k: 4, and the product"},
    {"exp exp_error exp_floor normalise p p_normalised l_from flush",
     "plans_of_gpu_kernels.md, 1: PersistentSoftmax.cuh: expf and a division, seen in the SASS"},
    {"op prescale scores bias_roundings l", "plans_of_gpu_kernels.md, 1: everything in f32"},
    {"block merge splits lazy_rescale p_scale saturate",
     "plans_of_gpu_kernels.md, 1: separate operations, one softmax over all keys"},
    {"tanh_error log_error", "plans_of_gpu_kernels.md, 7: tanhf 2 ulp, logf 1 ulp"},
};
constexpr PlanSource kTorchEfficient[] = {
    {"scale_roundings",
     "plans_of_gpu_kernels.md, 2: alpha, product, log2 e, product "
     "(kernel_forward.h:815, 1233)"},
    {"exp",
     "plans_of_gpu_kernels.md, 2: exp2f of differences in log2 units (kernel_forward.h:1275)"},
    {"block", "plans_of_gpu_kernels.md, 2: kernels/cutlassF.h: 64 or 128 keys"},
    {"merge splits", "plans_of_gpu_kernels.md, 2: none"},
    {"normalise", "plans_of_gpu_kernels.md, 2: 1/denom, IEEE (epilogue_rescale_output.h:150)"},
};
constexpr PlanSource kTorchEfficientF32[] = {
    {"qk pv", "plans_of_gpu_kernels.md, 2 and 7: 16x8x8, of which hardware may take 4 products"},
    {"operands",
     "plans_of_gpu_kernels.md, 2: 3xTF32, the big part truncated (mma_tensor_op_fast_f32.h)"},
    {"p", "plans_of_gpu_kernels.md, 2: P stays f32, split again into two TF32"},
    {"scale_roundings exp block merge splits normalise", "as torch_cuda_efficient"},
};
constexpr PlanSource kCudnn[] = {
    {"qk pv p p_normalised l_from flush",
     "plans_of_gpu_kernels.md, 8: measured (probe_gpu_plans.py); the library is closed"},
    {"op prescale scores lazy_rescale p_scale saturate",
     "plans_of_gpu_kernels.md, 8: f32, as its scores show; nothing of it is documented"},
    {"partial", "plans_of_gpu_kernels.md, 8: measured: not rounded to the storage type"},
};
constexpr PlanSource kFlex[] = {
    {"scale_roundings",
     "plans_of_gpu_kernels.md, 3: alpha, product, 1/ln 2, product "
     "(common.py.jinja)"},
    {"exp", "plans_of_gpu_kernels.md, 3: exp2 of differences in log2 units (common.py.jinja)"},
    {"block", "plans_of_gpu_kernels.md, 3: BLOCK_N 16 and more"},
    {"normalise", "plans_of_gpu_kernels.md, 3: acc / l is div.full, 2 ulp"},
    {"merge splits partial",
     "plans_of_gpu_kernels.md, 3: flex_decoding.py:153-172: accumulators of "
     "two ranges a multiprocessor; above 127 queries none"},
    {"p", "plans_of_gpu_kernels.md, 3: P in the type of q, here f32"},
};
constexpr PlanSource kFlexF32[] = {
    {"qk pv", "plans_of_gpu_kernels.md, 3: FMA on CUDA cores ('ieee'), any order"},
    {"scale_roundings exp block normalise merge splits partial p", "plans_of_gpu_kernels.md, 3"},
};
constexpr PlanSource kFlashInferPrefill[] = {
    {"l l_from",
     "plans_of_gpu_kernels.md, 5: rounded P is summed on tensor cores "
     "(prefill.cuh:1717-1724)"},
    {"scale_roundings",
     "plans_of_gpu_kernels.md, 5: sm_scale * log2 e, and the product "
     "(variants.cuh:44-55)"},
    {"exp", "plans_of_gpu_kernels.md, 5: the rounded shift drifts (prefill.cuh:1625)"},
    {"block", "plans_of_gpu_kernels.md, 5: CTA_TILE_KV, 16 at least"},
    {"normalise", "plans_of_gpu_kernels.md, 5: rcp.approx.ftz (prefill.cuh:3486)"},
};
constexpr PlanSource kFlashInferDecode[] = {
    {"qk pv l p", "plans_of_gpu_kernels.md, 5: f32 on CUDA cores, FMA (decode.cuh:80-89)"},
    {"scale_roundings exp", "plans_of_gpu_kernels.md, 5: s *= sm_scale_log2, exp2(s - m)"},
    {"block", "plans_of_gpu_kernels.md, 5: the maximum is updated after each tile of 1 to 8"},
    {"normalise", "plans_of_gpu_kernels.md, 5: __fdividef (state.cuh)"},
};
constexpr PlanSource kVllmTriton[] = {
    {"scale_roundings", "plans_of_gpu_kernels.md, 6: scale * dot: constant and product"},
    {"exp", "plans_of_gpu_kernels.md, 6: exp in natural units (softmax_step)"},
    {"block", "plans_of_gpu_kernels.md, 6: _get_tile_size: 16 or 32"},
    {"normalise", "plans_of_gpu_kernels.md, 6: acc / L is div.full, 2 ulp"},
    {"sink", "plans_of_gpu_kernels.md, 6: L starts as the sink (init_softmax_M)"},
    {"partial",
     "plans_of_gpu_kernels.md, 6: segm_output is float32 (triton_attn.py, "
     "TritonAttentionMetadataBuilder)"},
};
constexpr PlanSource kVllmTritonF32[] = {
    {"qk pv", "plans_of_gpu_kernels.md, 7: TF32 products, 4 a call at the least"},
    {"operands",
     "plans_of_gpu_kernels.md, 6: tl.dot without input_precision is TF32, cut by the tensor core"},
    {"p", "plans_of_gpu_kernels.md, 6: P in the type of V, here f32"},
    {"scale_roundings exp block normalise sink partial", "as vllm_triton"},
};

constexpr std::string_view kHalfTypes = "f16 bf16";
constexpr std::string_view kVllmSoftcap =
    "softcap: its tanh is a quotient of differences of exponentials, whose relative error near 0 "
    "has no bound (plans_of_gpu_kernels.md, 6)";

constexpr KnownPlan kPlans[] = {
    {"plain_f32",
     "the definition in f32, term by term: a kernel written for reading",
     KVCHECK_F32_COMMON
     "qk=f32:sequential pv=f32:sequential l=f32:sequential scale_roundings=2 prescale=none "
     "scores=f32 bias_roundings=0 tanh_error=2^-22 exp=exp exp_error=2^-23 exp_floor=2^-126 "
     "block=all p=f32 p_normalised=no normalise=divide flush=no log_error=2^-22",
     "the definition written out in f32: product and add, term by term, expf within 1 ulp",
     {},
     kDefinition},
    {"flash_attention_2",
     "FlashAttention 2: flash-attn, PyTorch on a GPU, vLLM, SGLang",
     KVCHECK_FLASH,
     "FlashAttention 2, also as PyTorch builds it: constants and scaling per score, exp2 of a "
     "fused multiply-add with the rounded shift, P in the storage type of V, blocks of at least 64 "
     "keys; split merge unsaid; golden/make/plans_of_gpu_kernels.md, 4",
     {.types = kHalfTypes},
     kFlash,
     kGpu},
    {"flash_attention_3",
     "FlashAttention 3 in f16 and bf16; FlashInfer on Hopper",
     KVCHECK_FLASH,
     "FlashAttention 3 in f16 and bf16: as flash_attention_2; partial outputs in f32, merge "
     "unsaid; "
     "golden/make/plans_of_gpu_kernels.md, 4",
     {.types = kHalfTypes},
     kFlash,
     kGpu},
    {"torch_cuda_math",
     "PyTorch SDPA on a GPU, math, without TF32",
     "qk=f32:sequential:fma pv=f32:sequential:fma l=f32:sequential op=f32 scale_roundings=5 "
     "prescale=none scores=f32 bias_roundings=0 exp=exp exp_error=2^-21 exp_floor=2^-126 "
     "lazy_rescale=0 block=all p=f32 p_scale=1 p_normalised=yes l_from=unrounded merge=none "
     "splits=1 normalise=divide flush=no saturate=no tanh_error=2^-21 log_error=2^-21",
     "PyTorch on a GPU, math path without TF32: everything in f32, q and k scaled by the root of "
     "scale, one rounding to the storage type at the end; golden/make/plans_of_gpu_kernels.md, 1",
     {},
     kTorchMath},
    {"torch_cuda_efficient",
     "PyTorch SDPA on a GPU, memory-efficient, f16 and bf16",
     KVCHECK_TENSOR_CORES KVCHECK_TORCH_EFFICIENT,
     "PyTorch on a GPU, memory-efficient kernel in f16 and bf16: scores in log2 units, P in the "
     "storage type; golden/make/plans_of_gpu_kernels.md, 2",
     {.types = kHalfTypes},
     kTorchEfficient,
     kGpu},
    {"torch_cuda_efficient_f32",
     "PyTorch SDPA on a GPU, memory-efficient, f32",
     KVCHECK_TORCH_EFFICIENT
     " qk=f32:tensor_core:4:23:chained pv=f32:tensor_core:4:23:chained operands=tf32x3.rz p=f32",
     "PyTorch on a GPU, memory-efficient kernel in f32: three products of TF32 parts for one; "
     "golden/make/plans_of_gpu_kernels.md, 2",
     {.types = "f32"},
     kTorchEfficientF32,
     kGpu},
    {"torch_cuda_cudnn",
     "PyTorch SDPA on a GPU, cuDNN, f16 and bf16",
     "qk=f32:tensor_core:8:23:chained pv=f32:tensor_core:8:23:chained op=f32 prescale=none "
     "scores=f32 lazy_rescale=0 p_scale=1 p_normalised=no l_from=unrounded partial=f32 flush=yes "
     "saturate=no",
     "PyTorch on a GPU, cuDNN 9.19 in f16 and bf16, as measured: f32 accumulators and scores, P in "
     "the storage type and not normalised, denominator from unrounded weights, all else unsaid; "
     "golden/make/plans_of_gpu_kernels.md, 8",
     {.types = kHalfTypes},
     kCudnn},
    {"torch_flex_attention",
     "PyTorch flex_attention, 128 queries and more, f16 and bf16",
     KVCHECK_TENSOR_CORES KVCHECK_TORCH_FLEX "merge=none splits=1",
     "PyTorch's flex_attention by Triton, f16 and bf16, from 128 queries on: scores in log2 units, "
     "P in the storage type; golden/make/plans_of_gpu_kernels.md, 3",
     {.types = kHalfTypes, .least_queries = 128},
     kFlex,
     kGpu},
    {"torch_flex_attention_f32",
     "PyTorch flex_attention, 128 queries and more, f32 without TF32",
     KVCHECK_TORCH_FLEX
     "merge=none splits=1 qk=f32:sequential:fma pv=f32:sequential:fma:chained p=f32",
     "PyTorch's flex_attention by Triton, f32 without TF32; "
     "golden/make/plans_of_gpu_kernels.md, 3",
     {.types = "f32", .least_queries = 128},
     kFlexF32,
     kGpu},
    {"torch_flex_decoding",
     "PyTorch flex_attention below 128 queries, f16 and bf16",
     KVCHECK_TENSOR_CORES KVCHECK_TORCH_FLEX "merge=accumulators splits=264 partial=f32",
     "PyTorch's flex_attention by Triton below 128 queries: accumulators of ranges of keys merged "
     "in f32; golden/make/plans_of_gpu_kernels.md, 3",
     {.types = kHalfTypes, .most_queries = 127},
     kFlex,
     kGpu},
    {"torch_flex_decoding_f32",
     "PyTorch flex_attention below 128 queries, f32 without TF32",
     KVCHECK_TORCH_FLEX "merge=accumulators splits=264 partial=f32 qk=f32:sequential:fma "
                        "pv=f32:sequential:fma:chained "
                        "p=f32",
     "the same in f32 without TF32; golden/make/plans_of_gpu_kernels.md, 3",
     {.types = "f32", .most_queries = 127},
     kFlexF32,
     kGpu},
    {"flashinfer_prefill",
     "FlashInfer FA2 prefill, and its decode on tensor cores, f16 and bf16",
     "qk=f32:tensor_core:8:23:chained pv=f32:tensor_core:8:23:chained "
     "l=f32:tensor_core:8:23:chained op=f32 scale_roundings=3 prescale=none scores=f32 "
     "exp=exp2_fma_drift exp_error=2^-21 exp_floor=2^-126 lazy_rescale=0 block=16 p_scale=1 "
     "p_normalised=no l_from=rounded normalise=approximate flush=yes saturate=no tanh_error=2^-10 "
     "log_error=2^-20",
     "FlashInfer's FA2 prefill in f16 and bf16: the denominator sums rounded P, the rounded shift "
     "drifts; split merge and partial outputs unsaid; golden/make/plans_of_gpu_kernels.md, 5",
     {.types = kHalfTypes},
     kFlashInferPrefill,
     kGpu},
    {"flashinfer_decode",
     "FlashInfer decode on CUDA cores",
     "qk=f32:sequential:fma pv=f32:sequential:fma:chained l=f32:sequential:chained op=f32 "
     "scale_roundings=3 prescale=none scores=f32 exp=exp2_log2 exp_error=2^-21 exp_floor=2^-126 "
     "lazy_rescale=0 block=1 p=f32 p_scale=1 p_normalised=no l_from=unrounded "
     "normalise=approximate flush=yes saturate=no tanh_error=2^-10 log_error=2^-20",
     "FlashInfer's decode on CUDA cores: f32 products and P; split merge and partial outputs "
     "unsaid; golden/make/plans_of_gpu_kernels.md, 5",
     {},
     kFlashInferDecode,
     kGpu},
    {"vllm_triton",
     "vLLM's unified attention by Triton, f16 and bf16, no softcap",
     KVCHECK_TENSOR_CORES KVCHECK_GPU_COMMON KVCHECK_VLLM_TRITON,
     "vLLM's unified attention by Triton in f16 and bf16, without softcap: natural units, P in the "
     "storage type of V; merge of segments unsaid; golden/make/plans_of_gpu_kernels.md, 6",
     {.types = kHalfTypes, .no_softcap = kVllmSoftcap, .first_tile = 16},
     kVllmTriton,
     kGpu},
    {"vllm_triton_f32",
     "vLLM's unified attention by Triton, f32, no softcap",
     KVCHECK_GPU_COMMON KVCHECK_VLLM_TRITON
     " qk=f32:tensor_core:4:23:chained pv=f32:tensor_core:4:23:chained operands=tf32.rz p=f32",
     "vLLM's unified attention by Triton in f32, without softcap: TF32 products, Triton's default; "
     "golden/make/plans_of_gpu_kernels.md, 6",
     {.types = "f32", .no_softcap = kVllmSoftcap, .first_tile = 16},
     kVllmTritonF32,
     kGpu},
    {"mlx_cpu_sdpa_f32",
     "MLX on a CPU, scaled_dot_product_attention, f32",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=2 prescale=none scores=f32 p=f32",
     KVCHECK_MLX_SDPA_REASON,
     {.types = "f32"},
     kMlxCpu},
    {"mlx_cpu_sdpa_f16",
     "MLX on a CPU, scaled_dot_product_attention, f16",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=0 prescale=f16:2 scores=f16 p=f16",
     KVCHECK_MLX_SDPA_REASON,
     {.types = "f16"},
     kMlxCpu},
    {"mlx_cpu_sdpa_bf16",
     "MLX on a CPU, scaled_dot_product_attention, bf16",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=0 prescale=bf16:2 scores=bf16 p=bf16",
     KVCHECK_MLX_SDPA_REASON,
     {.types = "bf16"},
     kMlxCpu},
    {"mlx_lm_quantized_f32",
     "mlx-lm on a CPU over quantized caches, f32",
     KVCHECK_MLX_SOFTMAX
     " qk=f32:sequential pv=f32:sequential scale_roundings=2 prescale=none scores=f32 p=f32 "
     "dequantize=inside:2",
     KVCHECK_MLX_LM_REASON,
     {.types = "f32"},
     kMlxCpu},
    {"mlx_lm_quantized_f16",
     "mlx-lm on a CPU over quantized caches, f16",
     KVCHECK_MLX_SOFTMAX
     " qk=f16:sequential pv=f16:sequential scale_roundings=0 prescale=f16:2 scores=f16 p=f16 "
     "dequantize=rounded:f16",
     KVCHECK_MLX_LM_REASON,
     {.types = "f16"},
     kMlxLmHalf,
     kMlxCpu},
    {"mlx_lm_quantized_bf16",
     "mlx-lm on a CPU over quantized caches, bf16",
     KVCHECK_MLX_SOFTMAX
     " qk=bf16:sequential pv=bf16:sequential scale_roundings=0 prescale=bf16:2 scores=bf16 p=bf16 "
     "dequantize=rounded:bf16",
     KVCHECK_MLX_LM_REASON,
     {.types = "bf16"},
     kMlxLmHalf,
     kMlxCpu},
    {"mlx_vlm_rotated_f32",
     "mlx-vlm on a CPU over TurboQuant caches, one query of one row, f32",
     KVCHECK_MLX_VLM " prescale=none scale_roundings=3",
     KVCHECK_MLX_VLM_REASON,
     {.types = "f32", .most_queries = 1},
     kMlxVlm},
    {"mlx_vlm_rotated_f16",
     "mlx-vlm on a CPU over TurboQuant caches, one query of one row, f16",
     KVCHECK_MLX_VLM " prescale=f16:2 scale_roundings=1",
     KVCHECK_MLX_VLM_REASON,
     {.types = "f16", .most_queries = 1},
     kMlxVlm},
    {"mlx_vlm_rotated_bf16",
     "mlx-vlm on a CPU over TurboQuant caches, one query of one row, bf16",
     KVCHECK_MLX_VLM " prescale=bf16:2 scale_roundings=1",
     KVCHECK_MLX_VLM_REASON,
     {.types = "bf16", .most_queries = 1},
     kMlxVlm},
    {"torch_cpu_flash_f32",
     "PyTorch SDPA on a CPU, flash, f32",
     KVCHECK_TORCH_COMMON
     "pv=f32:sequential:chained scale_roundings=2 exp_error=2^-21 exp_floor=2^-125 block=512 p=f32 "
     "p_normalised=no flush=no",
     KVCHECK_TORCH_FLASH_REASON,
     {.types = "f32"},
     kTorchCpu},
    {"torch_cpu_flash_f16",
     "PyTorch SDPA on a CPU, flash, f16",
     KVCHECK_TORCH_COMMON
     "pv=f32:sequential:chained scale_roundings=2 exp_error=2^-13 exp_floor=2^-126 block=512 p=f16 "
     "p_normalised=no flush=no",
     KVCHECK_TORCH_FLASH_REASON,
     {.types = "f16"},
     kTorchCpu},
    {"torch_cpu_flash_bf16",
     "PyTorch SDPA on a CPU, flash, bf16",
     KVCHECK_TORCH_COMMON "pv=f32:sequential:chained scale_roundings=2 exp_error=2^-13 "
                          "exp_floor=2^-126 block=512 p=bf16 "
                          "p_normalised=no flush=yes",
     KVCHECK_TORCH_FLASH_REASON,
     {.types = "bf16"},
     kTorchCpu},
    {"torch_cpu_math",
     "PyTorch SDPA on a CPU, math",
     KVCHECK_TORCH_COMMON
     "pv=f32:sequential scale_roundings=5 exp_error=2^-21 exp_floor=2^-125 block=all p=f32 "
     "p_normalised=yes flush=no",
     KVCHECK_TORCH_MATH_REASON,
     {},
     kTorchCpu},
    {"auto", "any kernel, as stranger; says also which known plans the answer fits", "",
     "nothing is known, as of stranger; every plan of this list that is of the call is tried "
     "beside, "
     "which is a finding about the plan and no proof"},
    {"stranger", "any kernel: nothing is claimed", "",
     "nothing is known: every field takes the loosest sound value"},
};

// Whether the window hides all of the first keys from the last query, which sees the newest ones.
bool HidesFirstKeys(const AttentionCase& c, int64_t keys) {
  if (!c.mask.window) return false;
  const int64_t tokens =
      c.mask.causal == CausalAlignment::kTopLeft ? std::min(c.query_len, c.kv_len) : c.kv_len;
  return tokens - *c.mask.window >= keys;
}

bool IsIn(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace

std::span<const KnownPlan> KnownPlans() { return kPlans; }

const KnownPlan* FindKnownPlan(std::string_view name) {
  for (const KnownPlan& plan : kPlans) {
    if (plan.name == name) return &plan;
  }
  return nullptr;
}

std::string_view SourceOf(const KnownPlan& plan, std::string_view field) {
  for (const std::span<const PlanSource> sources : {plan.sources, plan.more_sources}) {
    for (const PlanSource& source : sources) {
      if (IsIn(field, source.fields)) return source.source;
    }
  }
  return "";
}

std::vector<std::string> ExcludedBy(const KnownPlan& plan, const AttentionCase& c) {
  const PlanScope& scope = plan.scope;
  std::vector<std::string> excluded;
  if (!scope.types.empty() && !IsIn(ShortName(c.q), scope.types)) {
    excluded.push_back(fmt::format("q in {}: it is of {}", ShortName(c.q), scope.types));
  }
  if (c.query_len < scope.least_queries) {
    excluded.push_back(
        fmt::format("{} queries: it is of {} and more", c.query_len, scope.least_queries));
  }
  if (c.query_len > scope.most_queries) {
    excluded.push_back(
        fmt::format("{} queries: it is of {} and fewer", c.query_len, scope.most_queries));
  }
  if (c.softcap && !scope.no_softcap.empty()) excluded.emplace_back(scope.no_softcap);
  if (scope.first_tile > 0 && HidesFirstKeys(c, scope.first_tile)) {
    excluded.push_back(fmt::format(
        "a window that hides the first {} keys from a query: the kernel then shifts by 0",
        scope.first_tile));
  }
  return excluded;
}

}  // namespace kvcheck
