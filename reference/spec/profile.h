// The profile: which of the declared conventions an implementation follows where the definition
// leaves a choice. Stated by the implementation, stored beside its outputs, printed with every
// verdict.
//
// Text: fields of `key=value`, separated by one space; a field left out has the first value:
//   masked_row=zero|nan|mean|any  result of a query that sees no key: zeros; NaN; the mean of V
//   over
//                                 all T keys (what a finite mask value gives); not judged
//   mask_value=-inf|lowest|X      what a boolean or causal mask puts in place of a hidden score:
//                                 minus infinity, the lowest finite value of the score type, or X
//   maximum=visible|all           the softmax shift runs over visible or over all keys (masked
//   scores
//                                 as computed; -inf where an additive mask says so)
//   decode=exact|two_roundings|one_rounding   stored value of affine codes: the real c*scale+bias;
//                                 product and sum each rounded to the row type (MLX CPU); once
//                                 (GPU)
//   encode=mlx_cpu|mlx_gpu        the affine encoder (running maximum from the data or from 0,
//   ties) ggml_encode=reference|x86     who writes blocks of ggml where this decides a byte: the C
//   reference
//                                 (quantize_row_q8_0_ref), or the vector code of x86 with which
//                                 llama.cpp's CPU backend writes a KV cache
//   fp8_overflow=nan|saturate|saturate_all    encoding above the largest finite fp8: NaN or inf by
//                                 type; largest finite, NaN kept; largest finite for NaN too
//   mx_encode=ocp|up|mlx|mlx_0_31|sglang      who writes MX blocks: the floor rule of OCP MX 1.0,
//                                 nearest even; the same with the scale rounded up (CUDA's
//                                 cvt.rp.ue8m0, MLX's GPU backends); MLX on a CPU (0.32: exponents
//                                 rounded up; up to 0.31.2: to nearest); SGLang's fp4_e2m1
//   nvfp4_encode=mlx|vllm|vllm_4over6         who writes NVFP4: MLX on a CPU; vLLM's cache kernel,
//                                 with maxima at 6, or at 6 or 4 by the smaller error

#ifndef REFERENCE_SPEC_PROFILE_H_
#define REFERENCE_SPEC_PROFILE_H_

#include <string>
#include <string_view>

#include "reference/spec/text.h"

namespace kvcheck {

enum class MaskedRow { kZero, kNan, kMean, kAny };
enum class MaskValueKind { kMinusInfinity, kLowest, kNumber };
enum class DecodeRounding { kExact, kTwoRoundings, kOneRounding };
enum class AffineEncoder { kMlxCpu, kMlxGpu };
enum class GgmlEncoder { kReference, kX86 };
enum class Fp8Overflow { kNan, kSaturate, kSaturateAll };
enum class MxEncoder { kOcp, kUp, kMlx, kMlx031, kSglang };
enum class Nvfp4Encoder { kMlx, kVllm, kVllm4Over6 };

struct Profile {
  MaskedRow masked_row = MaskedRow::kZero;
  MaskValueKind mask_value = MaskValueKind::kMinusInfinity;
  double mask_number = 0;  // for kNumber
  bool maximum_over_all = false;
  DecodeRounding decode = DecodeRounding::kExact;
  AffineEncoder encode = AffineEncoder::kMlxCpu;
  GgmlEncoder ggml_encode = GgmlEncoder::kReference;
  Fp8Overflow fp8_overflow = Fp8Overflow::kNan;
  MxEncoder mx_encode = MxEncoder::kOcp;
  Nvfp4Encoder nvfp4_encode = Nvfp4Encoder::kMlx;
  bool operator==(const Profile&) const = default;
};

// The name of each value in texts ("two_roundings", "mlx_cpu", "saturate_all"), and back.
// Errors: kParse listing the names.
std::string_view Name(DecodeRounding decode);
std::string_view Name(AffineEncoder encode);
std::string_view Name(GgmlEncoder encode);
std::string_view Name(Fp8Overflow overflow);
std::string_view Name(MxEncoder encode);
std::string_view Name(Nvfp4Encoder encode);
DecodeRounding ParseDecodeRounding(Piece piece);
AffineEncoder ParseAffineEncoder(Piece piece);
GgmlEncoder ParseGgmlEncoder(Piece piece);
Fp8Overflow ParseFp8Overflow(Piece piece);
MxEncoder ParseMxEncoder(Piece piece);
Nvfp4Encoder ParseNvfp4Encoder(Piece piece);

// Only the fields that differ from the defaults; "" for the default profile.
std::string Print(const Profile& profile);
// Errors: kParse with the column.
Profile ParseProfile(std::string_view text);

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PROFILE_H_
