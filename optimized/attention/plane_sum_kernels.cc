// P.V over planes of codes (planes.h), where the instruction set has the vectors for them.

#include <cstdint>

#include "optimized/attention/kernel_parts.h"
#include "optimized/attention/planes.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/plane_sum_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/lane_sums-inl.h"
#include "optimized/attention/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_HAVE_PLANES

// Weights times the scales of one group, and the sum of weights times biases: by token modulo 8,
// then by halves.
template <int kWidth>
struct GroupWeights {
  HWY_ALIGN float weights[kWidth * kBlockTokens];  // fl(p s), (kWidth, kBlockTokens)
  float biases[kWidth];
};

template <int kWidth>
HWY_INLINE void WeighGroup(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                           GroupWeights<kWidth>* HWY_RESTRICT out) {
  const F32 d;
  const float* HWY_RESTRICT scales = block.scales + g * kBlockTokens;
  const float* HWY_RESTRICT biases = block.biases + g * kBlockTokens;
  VF32 sum[kWidth];
  for (VF32& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= block.count; i += kLanes) {
    const VF32 scale = hn::LoadU(d, scales + i);
    const VF32 bias = hn::LoadU(d, biases + i);
    for (int h = 0; h < kWidth; ++h) {
      const VF32 p = hn::LoadU(d, weights + h * kBlockTokens + i);
      hn::Store(hn::Mul(p, scale), d, out->weights + h * kBlockTokens + i);
      sum[h] = hn::MulAdd(p, bias, sum[h]);
    }
  }
  if (i < block.count) {
    // What stands behind the last token may be anything.
    const auto here = hn::FirstN(d, static_cast<size_t>(block.count - i));
    const VF32 scale = hn::IfThenElseZero(here, hn::LoadU(d, scales + i));
    const VF32 bias = hn::IfThenElseZero(here, hn::LoadU(d, biases + i));
    for (int h = 0; h < kWidth; ++h) {
      const VF32 p = hn::IfThenElseZero(here, hn::LoadU(d, weights + h * kBlockTokens + i));
      hn::Store(hn::Mul(p, scale), d, out->weights + h * kBlockTokens + i);
      sum[h] = hn::MulAdd(p, bias, sum[h]);
    }
  }
  StoreSums<kWidth>(sum, out->biases);
}

// Whether codes may stay in place: then no product or sum leaves the normal numbers that would not
// leave them with codes shifted down, and the bits are the same. With scales between 2^-40 and 2^60
// that holds for weights from 2^-60 to 1: multiples of 2^-123, and sums of 64 below 2^98.
// Shapes: weights (kWidth, kBlockTokens).
template <int kWidth>
HWY_INLINE bool AreUsual(const float* weights, int64_t count) {
  // As integers, which order numbers from 0 on as they are; one less, so that 0 is the largest.
  constexpr uint32_t kLeast = (127u - 60u) << 23;
  constexpr uint32_t kOne = 127u << 23;
  const Words d;
  const auto one = hn::Set(d, 1u);
  auto least = hn::Set(d, ~0u);
  auto most = hn::Zero(d);
  for (int h = 0; h < kWidth; ++h) {
    const float* row = weights + h * kBlockTokens;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const auto p = hn::BitCast(d, hn::LoadU(F32(), row + i));
      least = hn::Min(least, hn::Sub(p, one));
      most = hn::Max(most, p);
    }
    if (i == count) continue;
    const auto here = hn::FirstN(d, static_cast<size_t>(count - i));
    const auto p = hn::IfThenElseZero(here, hn::BitCast(d, hn::LoadU(F32(), row + i)));
    least = hn::Min(least, hn::Sub(p, one));
    most = hn::Max(most, p);
  }
  least = hn::Min(least, hn::Set(d, kLeast - 1));
  most = hn::Max(most, hn::Set(d, kOne));
  return hn::AllTrue(
      d, hn::And(hn::Eq(least, hn::Set(d, kLeast - 1)), hn::Eq(most, hn::Set(d, kOne))));
}

// Tokens between two steps of what is fetched ahead.
inline constexpr int64_t kPlaneFetchTokens = 16;

template <class Rows, int kVector, int kCount, bool kInPlace>
HWY_INLINE void LoadVectors(const std::byte* row, VF32* codes) {
  codes[0] = Rows::template Load<kInPlace, kVector>(row);
  if constexpr (kCount > 1) LoadVectors<Rows, kVector + 1, kCount - 1, kInPlace>(row, codes + 1);
}

// Vectors that are summed at once: as many accumulators as hide the latency of a product.
inline constexpr int kSumVectors = 2;

// Adds what `count` tokens from token i on give.
template <class Rows, int kWidth, int kVector, bool kInPlace>
HWY_INLINE void AddTokens(const BlockRows& block, int64_t offset, const float* HWY_RESTRICT weights,
                          int64_t i, int64_t count, VF32* HWY_RESTRICT sum) {
  constexpr int kCount = kSumVectors;
  const std::byte* const* rows = block.rows + i;
  weights += i;
  HWY_UNROLL(4)
  for (int64_t k = 0; k < count; ++k) {
    VF32 codes[kCount];
    LoadVectors<Rows, kVector, kCount, kInPlace>(rows[k] + offset, codes);
    for (int h = 0; h < kWidth; ++h) {
      const VF32 weight = hn::Set(F32(), weights[h * kBlockTokens + k]);
      for (int v = 0; v < kCount; ++v) {
        sum[h * kCount + v] = hn::MulAdd(codes[v], weight, sum[h * kCount + v]);
      }
    }
  }
}

// kSumVectors vectors of a chunk from kVector on, and the following ones.
// Shapes: out (kWidth, out_stride), from the first of them on.
template <class Rows, int kWidth, int kVector, bool kInPlace>
HWY_INLINE void SumVectors(const BlockRows& block, int64_t offset,
                           const GroupWeights<kWidth>& group, const float* rescale,
                           FetchInOrder& ahead, float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  constexpr int kCount = kSumVectors;
  VF32 sum[kCount * kWidth];
  for (VF32& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + kPlaneFetchTokens <= block.count; i += kPlaneFetchTokens) {
    ahead.Step();
    AddTokens<Rows, kWidth, kVector, kInPlace>(block, offset, group.weights, i, kPlaneFetchTokens,
                                               sum);
  }
  if (i < block.count) {
    ahead.Step();
    AddTokens<Rows, kWidth, kVector, kInPlace>(block, offset, group.weights, i, block.count - i,
                                               sum);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 factor = hn::Set(d, rescale[h]);
    const VF32 biases = hn::Set(d, group.biases[h]);
    for (int k = 0; k < kCount; ++k) {
      const int shift = kInPlace ? Rows::Shift(kVector + k) : 0;
      const VF32 unshift = hn::Set(d, 1.0f / static_cast<float>(1u << shift));
      float* to = out + h * out_stride + k * kLanes;
      // The power of two is exact: one rounding.
      const VF32 part = hn::MulAdd(sum[h * kCount + k], unshift, biases);
      hn::Store(hn::Add(hn::Mul(hn::Load(d, to), factor), part), d, to);
    }
  }
  if constexpr (kVector + kCount < Rows::kVectors) {
    SumVectors<Rows, kWidth, kVector + kCount, kInPlace>(block, offset, group, rescale, ahead,
                                                         out + kCount * kLanes, out_stride);
  }
}

template <class Rows, int kWidth, bool kInPlace>
HWY_INLINE void SumGroup(const BlockRows& block, int64_t g, const GroupWeights<kWidth>& group,
                         const float* rescale, FetchInOrder& ahead, float* HWY_RESTRICT out,
                         int64_t out_stride) {
  const int64_t chunks = block.group / (kLanes * Rows::kVectors);
  out += g * block.group;
  for (int64_t c = g * chunks; c < (g + 1) * chunks; ++c) {
    SumVectors<Rows, kWidth, 0, kInPlace>(block, c * Rows::kChunkBytes, group, rescale, ahead, out,
                                          out_stride);
    out += Rows::kVectors * kLanes;
  }
}

template <class Rows, int kWidth>
void PlaneSums(const BlockRows& block, const float* weights, const float* rescale, float* out,
               int64_t out_stride) {
  const int64_t steps = (block.count + kPlaneFetchTokens - 1) / kPlaneFetchTokens;
  FetchInOrder ahead(block, steps * block.dim / (kSumVectors * kLanes));
  bool in_place = false;
  if constexpr (Rows::kCodes) {
    in_place = block.usual_scales && AreUsual<kWidth>(weights, block.count);
  }
  GroupWeights<kWidth> group;
  for (int64_t g = 0; g < block.dim / block.group; ++g) {
    WeighGroup(block, weights, g, &group);
    if (Rows::kCodes && in_place) {
      SumGroup<Rows, kWidth, Rows::kCodes>(block, g, group, rescale, ahead, out, out_stride);
    } else {
      SumGroup<Rows, kWidth, false>(block, g, group, rescale, ahead, out, out_stride);
    }
  }
}

template <class Rows, int kVector = 0>
HWY_INLINE void WidenChunk(const std::byte* row, float* out) {
  hn::Store(Rows::template Load<false, kVector>(row), F32(), out + kVector * kLanes);
  if constexpr (kVector + 1 < Rows::kVectors) WidenChunk<Rows, kVector + 1>(row, out);
}

// The codes as f32, in the order of planes.
template <class Rows>
void WidenPlanes(const BlockRows& block, float* out, int64_t stride) {
  constexpr int64_t kChunk = Rows::kVectors * kLanes;
  for (int64_t i = 0; i < block.count; ++i, out += stride) {
    FetchRows(block, i);
    const std::byte* row = block.rows[i];
    for (int64_t done = 0; done < block.dim; done += kChunk) {
      WidenChunk<Rows>(row, out + done);
      row += Rows::kChunkBytes;
    }
  }
}

void FillPlaneSums(bool, AttentionKernels* kernels) {
  static_assert(kLanes == kPlaneLanes);
#define KVCHECK_PLANES(name, rows)                                                    \
  FillWidths(kernels->sum[static_cast<int>(RowKind::name)], true, PlaneSums<rows, 1>, \
             PlaneSums<rows, kQuad>, PlaneSums<rows, 1>, PlaneSums<rows, kQuad>);     \
  kernels->widen[static_cast<int>(RowKind::name)] = WidenPlanes<rows>;
  KVCHECK_ATTENTION_PLANE_KINDS(KVCHECK_PLANES)
#undef KVCHECK_PLANES
}

#else

void FillPlaneSums(bool, AttentionKernels*) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillPlaneSums);
void FillPlaneSumKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillPlaneSums)(fused, kernels);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
