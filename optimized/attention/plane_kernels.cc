// q.k and P.V over planes of codes (planes.h), where the instruction set has the vectors for them.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "optimized/attention/kernel_parts.h"
#include "optimized/attention/planes.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/plane_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/lane_sums-inl.h"
#include "optimized/attention/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_HAVE_PLANES

// One number for each of kWidth queries: a vector of as many lanes, with the same bits for any.
template <int kWidth>
using PerQuery = hn::FixedTag<float, kWidth>;

// scores[t * kWidth + h] = sum over groups of the biases of key t times the sums of query h.
template <int kWidth>
HWY_INLINE void BiasParts(const BlockRows& block, const float* HWY_RESTRICT sums,
                          float* HWY_RESTRICT scores) {
  const PerQuery<kWidth> d;
  const int64_t groups = block.groups;
  for (int64_t i = 0; i < block.count; ++i) {
    const float* HWY_RESTRICT biases = block.biases + i * groups;
    auto part = hn::Mul(hn::Set(d, biases[0]), hn::LoadU(d, sums));
    for (int64_t g = 1; g < groups; ++g) {
      part = hn::MulAdd(hn::Set(d, biases[g]), hn::LoadU(d, sums + g * kQuad), part);
    }
    hn::StoreU(part, d, scores + i * kWidth);
  }
}

// Products of a chunk of kTokens rows with the queries, from plane kPlane on.
// Shapes: sum (kTokens, kWidth).
template <class Rows, int kWidth, int kTokens, bool kInPlace, int kPlane = 0>
HWY_INLINE void AddChunk(const std::byte* const* row, int64_t offset, const float* HWY_RESTRICT q,
                         VF32* HWY_RESTRICT sum) {
  VF32 codes[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    codes[t] = Rows::template Load<kInPlace, kPlane>(row[t] + offset);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 query = InRegister(hn::Load(F32(), q + (kPlane * kQuad + h) * kLanes));
    for (int t = 0; t < kTokens; ++t) {
      sum[t * kWidth + h] = hn::MulAdd(codes[t], query, sum[t * kWidth + h]);
    }
  }
  if constexpr (kPlane + 1 < Rows::kPlanes) {
    AddChunk<Rows, kWidth, kTokens, kInPlace, kPlane + 1>(row, offset, q, sum);
  }
}

// A group of channels of a block. kChunks: of the group; 0: any number.
template <class Rows, int kChunks>
struct GroupOf {
  HWY_INLINE GroupOf(const BlockRows& block, int64_t g)
      : g(g),
        chunks(kChunks > 0 ? kChunks : block.group / kChunk),
        offset(g * (block.group / kChunk) * Rows::kChunkBytes) {}
  static constexpr int64_t kChunk = kLanes * Rows::kPlanes;
  int64_t g, chunks, offset;
};

// Adds to the scores of kTokens keys from key i on what a group gives; q: the queries' part of it.
template <class Rows, int kWidth, int kTokens, bool kInPlace, int kChunks>
HWY_INLINE void PlaneDotTile(const BlockRows& block, int64_t i, const GroupOf<Rows, kChunks>& group,
                             const float* HWY_RESTRICT q, float* HWY_RESTRICT scores) {
  constexpr int kSums = kTokens * kWidth;
  const std::byte* row[kTokens];
  for (int t = 0; t < kTokens; ++t) row[t] = block.rows[i + t] + group.offset;
  VF32 sum[kSums];
  for (int k = 0; k < kSums; ++k) sum[k] = hn::Zero(F32());
  HWY_UNROLL(2)
  for (int64_t c = 0; c < (kChunks > 0 ? kChunks : group.chunks); ++c) {
    AddChunk<Rows, kWidth, kTokens, kInPlace>(row, c * Rows::kChunkBytes,
                                              q + c * group.kChunk * kQuad, sum);
  }
  HWY_ALIGN float codes[kSums];
  StoreSums<kSums>(sum, codes);
  const PerQuery<kWidth> d;
  for (int t = 0; t < kTokens; ++t) {
    float* to = scores + (i + t) * kWidth;
    const auto scale = hn::Set(d, block.scale(i + t, group.g));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, codes + t * kWidth), scale, hn::LoadU(d, to)), d, to);
  }
}

template <class Rows, int kWidth, bool kInPlace, int kChunks>
HWY_INLINE void PlaneDotsOf(const BlockRows& block, const Queries& queries, float* scores) {
  constexpr int kTokens = 8 / kWidth;
  const int64_t count = block.count;
  const int64_t groups = block.groups;
  FetchInOrder ahead(block, groups * (count / kTokens));
  for (int64_t g = 0; g < groups; ++g) {
    const GroupOf<Rows, kChunks> group(block, g);
    const float* q = queries.q + g * block.group * kQuad;
    int64_t i = 0;
    for (; i + kTokens <= count; i += kTokens) {
      ahead.Step();
      PlaneDotTile<Rows, kWidth, kTokens, kInPlace>(block, i, group, q, scores);
    }
    for (; i < count; ++i) {
      PlaneDotTile<Rows, kWidth, 1, kInPlace>(block, i, group, q, scores);
    }
  }
}

template <class Rows, int kWidth, bool kInPlace>
HWY_INLINE void PlaneDotsOfAny(const BlockRows& block, const Queries& queries, float* scores) {
  switch (block.group / (kLanes * Rows::kPlanes)) {
    case 1:
      return PlaneDotsOf<Rows, kWidth, kInPlace, 1>(block, queries, scores);
    case 2:
      return PlaneDotsOf<Rows, kWidth, kInPlace, 2>(block, queries, scores);
    default:
      return PlaneDotsOf<Rows, kWidth, kInPlace, 0>(block, queries, scores);
  }
}

template <class Rows, int kWidth>
void PlaneDots(const BlockRows& block, const Queries& queries, float* scores) {
  BiasParts<kWidth>(block, queries.sums, scores);
  if (queries.in_place) return PlaneDotsOfAny<Rows, kWidth, true>(block, queries, scores);
  PlaneDotsOfAny<Rows, kWidth, false>(block, queries, scores);
}

// Weights times the scales of one group, and the sum of weights times biases: by token modulo 8,
// then by halves.
template <int kWidth>
struct GroupWeights {
  HWY_ALIGN float weights[kBlockTokens * kWidth];  // fl(p s), (count, kWidth)
  float biases[kWidth];
};

HWY_INLINE void WeighGroup(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                           GroupWeights<1>* HWY_RESTRICT out) {
  const PerQuery<1> d;
  hn::Vec<PerQuery<1>> sum[8];
  for (auto& s : sum) s = hn::Zero(d);
  for (int64_t first = 0; first < block.count; first += 8) {
    for (int k = 0; k < 8; ++k) {
      const int64_t i = first + k;
      if (i >= block.count) break;
      const auto p = hn::Set(d, weights[i]);
      hn::StoreU(hn::Mul(p, hn::Set(d, block.scale(i, g))), d, out->weights + i);
      sum[k] = hn::MulAdd(p, hn::Set(d, block.bias(i, g)), sum[k]);
    }
  }
  for (int half = 4; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) sum[k] = hn::Add(sum[k], sum[k + half]);
  }
  hn::StoreU(sum[0], d, out->biases);
}

// Both tokens of a pair, the first one below.
HWY_INLINE VF32 OfPair(const float* HWY_RESTRICT of, int64_t groups) {
  const PerQuery<kQuad> four;
  return hn::Combine(F32(), hn::Set(four, of[groups]), hn::Set(four, of[0]));
}

HWY_INLINE void WeighPair(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                          int64_t pair, GroupWeights<kQuad>* HWY_RESTRICT out, VF32* sum) {
  const F32 d;
  const int64_t at = 2 * pair * block.groups + g;
  const VF32 p = hn::LoadU(d, weights + pair * kLanes);
  hn::Store(hn::Mul(p, OfPair(block.scales + at, block.groups)), d, out->weights + pair * kLanes);
  *sum = hn::MulAdd(p, OfPair(block.biases + at, block.groups), *sum);
}

HWY_INLINE void WeighGroup(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                           GroupWeights<kQuad>* HWY_RESTRICT out) {
  const F32 d;
  const PerQuery<kQuad> four;
  VF32 sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const int64_t pairs = block.count / 2;
  int64_t pair = 0;
  for (; pair + 4 <= pairs; pair += 4) {
    for (int k = 0; k < 4; ++k) WeighPair(block, weights, g, pair + k, out, &sum[k]);
  }
  for (int k = 0; k < 4; ++k) {
    if (pair + k < pairs) WeighPair(block, weights, g, pair + k, out, &sum[k]);
    if (pair + k != pairs || block.count % 2 == 0) continue;
    // A token alone: the other half adds nothing.
    const int64_t i = block.count - 1;
    const auto p = hn::LoadU(four, weights + i * kQuad);
    hn::StoreU(hn::Mul(p, hn::Set(four, block.scale(i, g))), four, out->weights + i * kQuad);
    const VF32 bias = hn::Combine(d, hn::Zero(four), hn::Set(four, block.bias(i, g)));
    sum[k] = hn::MulAdd(hn::Combine(d, hn::Zero(four), p), bias, sum[k]);
  }
  const VF32 all = hn::Add(hn::Add(sum[0], sum[2]), hn::Add(sum[1], sum[3]));
  hn::StoreU(hn::Add(hn::LowerHalf(four, all), hn::UpperHalf(four, all)), four, out->biases);
}

// Whether codes may stay in place: then no product or sum leaves the normal numbers that would not
// leave them with codes shifted down, and the bits are the same. With scales between 2^-40 and 2^60
// that holds for weights from 2^-60 to 1: multiples of 2^-123, below 2^92.
HWY_INLINE bool AreUsual(const float* weights, int64_t count) {
  const F32 d;
  const VF32 one = hn::Set(d, 1.0f);
  const VF32 least = hn::Set(d, 0x1p-60f);
  auto usual = hn::MaskFromVec(hn::BitCast(d, hn::Set(hn::RebindToUnsigned<F32>(), ~0u)));
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF32 p = hn::LoadU(d, weights + i);
    const auto in = hn::And(hn::Ge(p, least), hn::Le(p, one));
    usual = hn::And(usual, hn::Or(in, hn::Eq(p, hn::Zero(d))));
  }
  bool all = hn::AllTrue(d, usual);
  for (; i < count; ++i) all &= weights[i] == 0 || (weights[i] >= 0x1p-60f && weights[i] <= 1);
  return all;
}

// Tokens between two steps of what is fetched ahead.
inline constexpr int64_t kPlaneFetchTokens = 16;

// Two planes of a chunk. Shapes: out (kWidth, out_stride), from the first of the two on.
template <class Rows, int kWidth, int kPlane, bool kInPlace>
HWY_INLINE void SumPlanePair(const BlockRows& block, int64_t offset,
                             const GroupWeights<kWidth>& group, const float* rescale,
                             FetchInOrder& ahead, float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  VF32 sum[2 * kWidth];
  for (VF32& s : sum) s = hn::Zero(d);
  for (int64_t first = 0; first < block.count; first += kPlaneFetchTokens) {
    ahead.Step();
    const int64_t end = std::min(first + kPlaneFetchTokens, block.count);
    for (int64_t i = first; i < end; ++i) {
      const std::byte* row = block.rows[i] + offset;
      const VF32 low = Rows::template Load<kInPlace, kPlane>(row);
      const VF32 high = Rows::template Load<kInPlace, kPlane + 1>(row);
      for (int h = 0; h < kWidth; ++h) {
        const VF32 weight = hn::Set(d, group.weights[i * kWidth + h]);
        sum[2 * h] = hn::MulAdd(low, weight, sum[2 * h]);
        sum[2 * h + 1] = hn::MulAdd(high, weight, sum[2 * h + 1]);
      }
    }
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 factor = hn::Set(d, rescale[h]);
    const VF32 biases = hn::Set(d, group.biases[h]);
    for (int k = 0; k < 2; ++k) {
      constexpr int kBits = kInPlace ? Rows::kShift : 0;
      const int shift = kPlane + k + 1 == Rows::kPlanes ? 0 : kBits * (kPlane + k);
      float* to = out + h * out_stride + k * kLanes;
      // The power of two is exact: one rounding.
      const VF32 part =
          hn::MulAdd(sum[2 * h + k], hn::Set(d, 1.0f / static_cast<float>(1u << shift)), biases);
      hn::Store(hn::Add(hn::Mul(hn::Load(d, to), factor), part), d, to);
    }
  }
}

template <class Rows, int kWidth, bool kInPlace>
HWY_INLINE void SumGroup(const BlockRows& block, int64_t g, const GroupWeights<kWidth>& group,
                         const float* rescale, FetchInOrder& ahead, float* HWY_RESTRICT out,
                         int64_t out_stride) {
  const int64_t chunks = block.group / (kLanes * Rows::kPlanes);
  out += g * block.group;
  for (int64_t c = g * chunks; c < (g + 1) * chunks; ++c) {
    const int64_t offset = c * Rows::kChunkBytes;
    SumPlanePair<Rows, kWidth, 0, kInPlace>(block, offset, group, rescale, ahead, out, out_stride);
    SumPlanePair<Rows, kWidth, 2, kInPlace>(block, offset, group, rescale, ahead, out + 2 * kLanes,
                                            out_stride);
    if constexpr (Rows::kPlanes == 8) {
      SumPlanePair<Rows, kWidth, 4, kInPlace>(block, offset, group, rescale, ahead,
                                              out + 4 * kLanes, out_stride);
      SumPlanePair<Rows, kWidth, 6, kInPlace>(block, offset, group, rescale, ahead,
                                              out + 6 * kLanes, out_stride);
    }
    out += Rows::kPlanes * kLanes;
  }
}

template <class Rows, int kWidth>
void PlaneSums(const BlockRows& block, const float* weights, const float* rescale, float* out,
               int64_t out_stride) {
  const int64_t steps = (block.count + kPlaneFetchTokens - 1) / kPlaneFetchTokens;
  FetchInOrder ahead(block, steps * block.dim / (2 * kLanes));
  const bool in_place = block.usual_scales && AreUsual(weights, block.count * kWidth);
  GroupWeights<kWidth> group;
  for (int64_t g = 0; g < block.groups; ++g) {
    WeighGroup(block, weights, g, &group);
    if (in_place) {
      SumGroup<Rows, kWidth, true>(block, g, group, rescale, ahead, out, out_stride);
    } else {
      SumGroup<Rows, kWidth, false>(block, g, group, rescale, ahead, out, out_stride);
    }
  }
}

template <class Rows, int kPlane = 0>
HWY_INLINE void WidenChunk(const std::byte* row, float* out) {
  hn::Store(Rows::template Load<false, kPlane>(row), F32(), out + kPlane * kLanes);
  if constexpr (kPlane + 1 < Rows::kPlanes) WidenChunk<Rows, kPlane + 1>(row, out);
}

// The codes as f32, in the order of planes.
template <class Rows>
void WidenPlanes(const BlockRows& block, float* out) {
  constexpr int64_t kChunk = Rows::kPlanes * kLanes;
  for (int64_t i = 0; i < block.count; ++i) {
    if (block.ahead_bytes > 0) FetchLines(block.ahead + i * block.ahead_stride, block.ahead_bytes);
    const std::byte* row = block.rows[i];
    for (int64_t done = 0; done < block.dim; done += kChunk, out += kChunk) {
      WidenChunk<Rows>(row, out);
      row += Rows::kChunkBytes;
    }
  }
}

void FillPlanes(bool fused, AttentionKernels* kernels) {
  kernels->planes = fused;
#define KVCHECK_PLANES(name, rows)                                                    \
  FillWidths(kernels->dot[static_cast<int>(RowKind::name)], true, PlaneDots<rows, 1>, \
             PlaneDots<rows, kQuad>, PlaneDots<rows, 1>, PlaneDots<rows, kQuad>);     \
  FillWidths(kernels->sum[static_cast<int>(RowKind::name)], true, PlaneSums<rows, 1>, \
             PlaneSums<rows, kQuad>, PlaneSums<rows, 1>, PlaneSums<rows, kQuad>);     \
  kernels->widen[static_cast<int>(RowKind::name)] = WidenPlanes<rows>;
  KVCHECK_ATTENTION_PLANE_KINDS(KVCHECK_PLANES)
#undef KVCHECK_PLANES
}

#else

void FillPlanes(bool, AttentionKernels* kernels) { kernels->planes = false; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillPlanes);
void FillPlaneKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillPlanes)(fused, kernels);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
