// Affine rows from numbers. Groups are taken sixteen at a time, across vectors: their largest and
// smallest elements are found lane by lane and transposed to one lane per group, so that scales and
// biases of the sixteen come from one sequence of vector operations. While those are under way the
// codes of the sixteen before are computed.
//
// Definition, every step one f32 operation, to nearest even:
//   mx, mn = largest and smallest of the group, NaN skipped
//   s = max((mx - mn) / n, 1e-7);  edge = mn if |mn| > |mx|, else edge = mx and s = -s
//   k = round(edge / s);  if k != 0: s = edge / k, bias = edge; else bias = 0
//   c = clamp(round((x - bias) / s), 0, n), NaN 0
// Source: MLX 0.32.4, mlx/backend/cpu/quantized.cpp; reference/formats/formats.md, section A.

#include <cstring>

#include "optimized/formats/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/affine_encode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/affine_codes-inl.h"
#include "optimized/formats/affine_scales-inl.h"
#include "optimized/formats/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kvcheck::HWY_NAMESPACE;  // NOLINT

// Scales and biases in their own type, to their places.
template <DType kScale>
HWY_INLINE void StoreScales(const EncodeCall& call, bool adjoin, const Chunk& chunk) {
  const Lanes d;
  constexpr int kSize = kScale == DType::kFloat32 ? 4 : 2;
  const int lanes = static_cast<int>(hn::Lanes(d));
  HWY_ALIGN std::byte scales[kChunk * kSize];
  HWY_ALIGN std::byte biases[kChunk * kSize];
  for (int g = 0; g < chunk.count; g += lanes) {
    StoreLanes<kScale>(hn::Load(d, chunk.scale + g), d, scales + kSize * g);
    StoreLanes<kScale>(hn::Load(d, chunk.bias + g), d, biases + kSize * g);
  }
  if (adjoin && chunk.count == kChunk) {
    std::memcpy(call.out.scales + chunk.scale_at[0], scales, sizeof(scales));
    std::memcpy(call.out.biases + chunk.scale_at[0], biases, sizeof(biases));
    return;
  }
  for (int g = 0; g < chunk.count; ++g) {
    std::memcpy(call.out.scales + chunk.scale_at[g], scales + kSize * g, kSize);
    std::memcpy(call.out.biases + chunk.scale_at[g], biases + kSize * g, kSize);
  }
}

template <int kBits, DType kScale>
void EncodeAs(const AffineFormat& format, const EncodeCall& call) {
  const int group = format.group_size;
  const float n = static_cast<float>((1 << kBits) - 1);
  const auto x_bytes = static_cast<int64_t>(SizeInBytes(call.from));
  Cursor cursor(call, group, x_bytes, group * kBits / 8, static_cast<int64_t>(SizeInBytes(kScale)));
  Chunk chunks[3];
  cursor.Fill(&chunks[0]);
  // The chunks whose places are known, whose scales are computed, whose codes are stored.
  Chunk* ahead = &chunks[1];
  Chunk* next = &chunks[0];
  Chunk* last = &chunks[2];
  for (;;) {
    cursor.Fill(ahead);
    if (next->count > 0) {
      Read<kScale>(call.from, group, next);
      Scales(n, next);
      StoreScales<kScale>(call, cursor.scales_adjoin(), *next);
    }
    // As far apart as these two, and as rows mostly are, is the chunk after them.
    const uintptr_t beyond = ahead->count == 0 ? 0
                                               : reinterpret_cast<uintptr_t>(ahead->x[0]) -
                                                     reinterpret_cast<uintptr_t>(next->x[0]);
    if (last->divides) {
      StoreCodes<kBits, true>(group, *last, group * x_bytes, *ahead, beyond);
    } else {
      StoreCodes<kBits, !kFused>(group, *last, group * x_bytes, *ahead, beyond);
    }
    if (next->count == 0) return;
    Chunk* const free = last;
    last = next;
    next = ahead;
    ahead = free;
  }
}

template <int kBits>
void EncodeBits(const AffineFormat& format, const EncodeCall& call) {
  switch (format.scale_dtype) {
    case DType::kFloat16:
      return EncodeAs<kBits, DType::kFloat16>(format, call);
    case DType::kBFloat16:
      return EncodeAs<kBits, DType::kBFloat16>(format, call);
    default:
      return EncodeAs<kBits, DType::kFloat32>(format, call);
  }
}

void EncodeAffine(const AffineFormat& format, const EncodeCall& call) {
  switch (format.bits) {
    case 2:
      return EncodeBits<2>(format, call);
    case 3:
      return EncodeBits<3>(format, call);
    case 4:
      return EncodeBits<4>(format, call);
    case 5:
      return EncodeBits<5>(format, call);
    case 6:
      return EncodeBits<6>(format, call);
    default:
      return EncodeBits<8>(format, call);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(EncodeAffine);

void EncodeAffineRows(const AffineFormat& format, const EncodeCall& call) {
  HWY_DYNAMIC_DISPATCH(EncodeAffine)(format, call);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
