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
#include "optimized/attention/turned-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_HAVE_PLANES

// Products of a chunk of kTokens rows with the queries, from vector kVector on.
// Shapes: sum (kWidth, kTokens).
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
      sum[h * kTokens + t] = hn::MulAdd(codes[t], query, sum[h * kTokens + t]);
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
  const hn::FixedTag<float, kTokens> d;
  const auto scales = hn::LoadU(d, block.scales + group.g * kBlockTokens + i);
  for (int h = 0; h < kWidth; ++h) {
    float* to = scores + h * kBlockTokens + i;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, codes + h * kTokens), scales, hn::LoadU(d, to)), d, to);
  }
}

// Adds to the sums of kTurned tokens the products of a word's codes with the queries', from plane
// kVector on. Shapes: sum (kQuad, 2).
template <class Rows, bool kInPlace, int kVector = 0>
HWY_INLINE void AddWord(VWords low, VWords high, const uint32_t* HWY_RESTRICT masks,
                        const float* HWY_RESTRICT q, VF32* HWY_RESTRICT sum) {
  const VWords mask = hn::Load(Words(), masks + kVector * kLanes);
  const VF32 first = Rows::template Plane<kInPlace, kVector>(low, mask);
  const VF32 second = Rows::template Plane<kInPlace, kVector>(high, mask);
  for (int64_t h = 0; h < kQuad; ++h) {
    const VF32 query = hn::Set(F32(), q[kVector * kQuad + h]);
    sum[2 * h] = hn::MulAdd(first, query, sum[2 * h]);
    sum[2 * h + 1] = hn::MulAdd(second, query, sum[2 * h + 1]);
  }
  if constexpr (kVector + 1 < Rows::kVectors) {
    AddWord<Rows, kInPlace, kVector + 1>(low, high, masks, q, sum);
  }
}

// Of one group, as SumByHalves takes it: lane `lane` is word number `lane` of every chunk.
template <class Rows, bool kInPlace, int kChunks>
struct TurnedWords {
  template <int kHalves>
  HWY_NOINLINE void SumLane(int64_t lane, float* HWY_RESTRICT to) const {
    VF32 sum[kTurnedSums];
    for (VF32& s : sum) s = hn::Zero(F32());
    const int64_t count = kChunks > 0 ? kChunks : chunks;
    const float* HWY_RESTRICT query = q + lane * count * Rows::kVectors * kQuad;
    const uint32_t* masks = Rows::template kMasks<kInPlace>.words;
    // As constants they would take more registers than there are.
    asm("" : "+r"(masks));
    for (int64_t c = 0; c < count; ++c) {
      const uint32_t* from = words + (c * kLanes + lane) * kTurned;
      AddWord<Rows, kInPlace>(hn::Load(Words(), from), hn::Load(Words(), from + kLanes), masks,
                              query + c * Rows::kVectors * kQuad, sum);
    }
    AddHalves<kHalves>(to, sum);
  }
  template <int kHalves>
  HWY_INLINE void Sum(int64_t lane, float* to) const {
    ahead.Step();
    SumLane<kHalves>(lane, to);
  }

  const uint32_t* words;  // (chunks, 8, kTurned)
  int64_t chunks;
  const float* q;  // of TurnPlaneQueries
  FetchInOrder& ahead;
};

// PlaneDotTile of kTurned tokens with the same bits: the sum of a word is one lane there.
template <class Rows, bool kInPlace, int kChunks>
HWY_INLINE void TurnedDotTile(const BlockRows& block, int64_t i,
                              const GroupOf<Rows, kChunks>& group, const float* HWY_RESTRICT q,
                              uint32_t* HWY_RESTRICT words, FetchInOrder& ahead,
                              float* HWY_RESTRICT scores) {
  const int64_t chunks = kChunks > 0 ? kChunks : group.chunks;
  for (int64_t c = 0; c < chunks; ++c) {
    uint32_t* to = words + c * kLanes * kTurned;
    const int64_t offset = group.offset + c * Rows::kChunkBytes;
    TurnWords(block.rows + i, offset, to);
    TurnWords(block.rows + i + kLanes, offset, to + kLanes);
  }
  HWY_ALIGN float sums[4 * kTurnedSums * kLanes];
  SumByHalves(TurnedWords<Rows, kInPlace, kChunks>{words, chunks, q, ahead}, sums);
  AddScaled(block, i, group.g, sums, scores);
}

template <class Rows, int kWidth, bool kInPlace, int kChunks>
HWY_INLINE void PlaneDotsOf(const BlockRows& block, const Queries& queries, float* scores) {
  constexpr int kTokens = static_cast<int>(kLanes) / kWidth;
  // One query has too few sums to hide the latency of a product.
  constexpr bool kTurns = Rows::kCodes && kWidth == kQuad;
  const int64_t count = block.count;
  const int64_t groups = block.dim / block.group;
  const int64_t turned = kTurns ? count / kTurned : 0;
  const int64_t steps = turned * kLanes + (count - turned * kTurned) / kTokens;
  FetchInOrder ahead(block, groups * steps);
  for (int64_t g = 0; g < groups; ++g) {
    const GroupOf<Rows, kChunks> group(block, g);
    const float* q = queries.q + g * block.group * kQuad;
    int64_t i = 0;
    if constexpr (kTurns) {
      // Groups have at most 128 codes, which are four chunks.
      HWY_ALIGN uint32_t words[(kChunks > 0 ? kChunks : 4) * kLanes * kTurned];
      const float* lanes = queries.turned + g * block.group * kQuad;
      for (; i + kTurned <= count; i += kTurned) {
        TurnedDotTile<Rows, kInPlace>(block, i, group, lanes, words, ahead, scores);
      }
    }
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
    HWY_UNROLL(2)
    for (int64_t i = first; i < end; ++i) {
      VF32 codes[kCount];
      LoadVectors<Rows, kVector, kCount, kInPlace>(block.rows[i] + offset, codes);
      for (int h = 0; h < kWidth; ++h) {
        const VF32 weight = hn::Set(d, group.weights[h * kBlockTokens + i]);
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
