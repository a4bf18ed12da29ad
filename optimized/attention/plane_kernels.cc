// q.k and P.V over planes of codes (planes.h), where the instruction set has the vectors for them.

#include <algorithm>
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
  const int64_t groups = block.dim / block.group;
  for (int64_t i = 0; i < block.count; ++i) {
    const float* HWY_RESTRICT biases = block.biases + i * block.groups;
    auto part = hn::Mul(hn::Set(d, biases[0]), hn::LoadU(d, sums));
    for (int64_t g = 1; g < groups; ++g) {
      part = hn::MulAdd(hn::Set(d, biases[g]), hn::LoadU(d, sums + g * kQuad), part);
    }
    hn::StoreU(part, d, scores + i * kWidth);
  }
}

// Products of a chunk of kTokens rows with the queries, from vector kVector on.
// Shapes: sum (kTokens, kWidth).
template <class Rows, int kWidth, int kTokens, bool kInPlace, int kVector = 0>
HWY_INLINE void AddChunk(const std::byte* const* row, int64_t offset, const float* HWY_RESTRICT q,
                         VF32* HWY_RESTRICT sum) {
  VF32 codes[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    codes[t] = Rows::template Load<kInPlace, kVector>(row[t] + offset);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 query = InRegister(hn::Load(F32(), q + (kVector * kQuad + h) * kLanes));
    for (int t = 0; t < kTokens; ++t) {
      sum[t * kWidth + h] = hn::MulAdd(codes[t], query, sum[t * kWidth + h]);
    }
  }
  if constexpr (kVector + 1 < Rows::kVectors) {
    AddChunk<Rows, kWidth, kTokens, kInPlace, kVector + 1>(row, offset, q, sum);
  }
}

// A group of channels of a block. kChunks: of the group; 0: any number.
template <class Rows, int kChunks>
struct GroupOf {
  HWY_INLINE GroupOf(const BlockRows& block, int64_t g)
      : g(g),
        chunks(kChunks > 0 ? kChunks : block.group / kChunk),
        offset(g * (block.group / kChunk) * Rows::kChunkBytes) {}
  static constexpr int64_t kChunk = kLanes * Rows::kVectors;
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
  constexpr int kTokens = static_cast<int>(kLanes) / kWidth;
  const int64_t count = block.count;
  const int64_t groups = block.dim / block.group;
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
  switch (block.group / (kLanes * Rows::kVectors)) {
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
  if constexpr (Rows::kCodes) {
    if (queries.in_place) return PlaneDotsOfAny<Rows, kWidth, true>(block, queries, scores);
  }
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

// Four queries of two tokens.
using Pair = hn::FixedTag<float, 2 * kQuad>;
using VPair = hn::Vec<Pair>;

// A number of both tokens of a pair, the first one below.
HWY_INLINE VPair OfPair(const float* HWY_RESTRICT of, int64_t groups) {
  const PerQuery<kQuad> four;
  return hn::Combine(Pair(), hn::Set(four, of[groups]), hn::Set(four, of[0]));
}

HWY_INLINE void WeighPair(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                          int64_t pair, GroupWeights<kQuad>* HWY_RESTRICT out, VPair* sum) {
  const Pair d;
  const int64_t at = 2 * pair * block.groups + g;
  const VPair p = hn::LoadU(d, weights + pair * 2 * kQuad);
  hn::Store(hn::Mul(p, OfPair(block.scales + at, block.groups)), d,
            out->weights + pair * 2 * kQuad);
  *sum = hn::MulAdd(p, OfPair(block.biases + at, block.groups), *sum);
}

HWY_INLINE void WeighGroup(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                           GroupWeights<kQuad>* HWY_RESTRICT out) {
  const Pair d;
  const PerQuery<kQuad> four;
  VPair sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
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
    const VPair bias = hn::Combine(d, hn::Zero(four), hn::Set(four, block.bias(i, g)));
    sum[k] = hn::MulAdd(hn::Combine(d, hn::Zero(four), p), bias, sum[k]);
  }
  const VPair all = hn::Add(hn::Add(sum[0], sum[2]), hn::Add(sum[1], sum[3]));
  hn::StoreU(hn::Add(hn::LowerHalf(four, all), hn::UpperHalf(four, all)), four, out->biases);
}

// Whether codes may stay in place: then no product or sum leaves the normal numbers that would not
// leave them with codes shifted down, and the bits are the same. With scales between 2^-40 and 2^60
// that holds for weights from 2^-60 to 1: multiples of 2^-123, and sums of 64 below 2^98.
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

template <class Rows, int kVector, int kCount, bool kInPlace>
HWY_INLINE void LoadVectors(const std::byte* row, VF32* codes) {
  codes[0] = Rows::template Load<kInPlace, kVector>(row);
  if constexpr (kCount > 1) LoadVectors<Rows, kVector + 1, kCount - 1, kInPlace>(row, codes + 1);
}

// Vectors that are summed at once: as many accumulators as hide the latency of a product.
inline constexpr int kSumVectors = 2;

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
  for (int64_t first = 0; first < block.count; first += kPlaneFetchTokens) {
    ahead.Step();
    const int64_t end = std::min(first + kPlaneFetchTokens, block.count);
    for (int64_t i = first; i < end; ++i) {
      VF32 codes[kCount];
      LoadVectors<Rows, kVector, kCount, kInPlace>(block.rows[i] + offset, codes);
      for (int h = 0; h < kWidth; ++h) {
        const VF32 weight = hn::Set(d, group.weights[i * kWidth + h]);
        for (int k = 0; k < kCount; ++k) {
          sum[h * kCount + k] = hn::MulAdd(codes[k], weight, sum[h * kCount + k]);
        }
      }
    }
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
    in_place = block.usual_scales && AreUsual(weights, block.count * kWidth);
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
    if (i < block.ahead_count) {
      FetchLines(block.ahead + i * block.ahead_stride, block.ahead_bytes);
    }
    const std::byte* row = block.rows[i];
    for (int64_t done = 0; done < block.dim; done += kChunk) {
      WidenChunk<Rows>(row, out + done);
      row += Rows::kChunkBytes;
    }
  }
}

void FillPlanes(bool fused, AttentionKernels* kernels) {
  static_assert(kLanes == kPlaneLanes);
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
