// q.k over planes of codes (planes.h), where the instruction set has the vectors for them.

#include <cstdint>

#include "optimized/attention/kernel_parts.h"
#include "optimized/attention/planes.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/plane_dot_kernels.cc"
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

void FillPlaneDots(bool fused, AttentionKernels* kernels) {
  static_assert(kLanes == kPlaneLanes);
  kernels->planes = fused;
#define KVCHECK_PLANES(name, rows)                                                    \
  FillWidths(kernels->dot[static_cast<int>(RowKind::name)], true, PlaneDots<rows, 1>, \
             PlaneDots<rows, kQuad>, PlaneDots<rows, 1>, PlaneDots<rows, kQuad>);
  KVCHECK_ATTENTION_PLANE_KINDS(KVCHECK_PLANES)
#undef KVCHECK_PLANES
}

#else

void FillPlaneDots(bool, AttentionKernels* kernels) { kernels->planes = false; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillPlaneDots);
void FillPlaneDotKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillPlaneDots)(fused, kernels);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
