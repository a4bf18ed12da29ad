// q.k over planes of codes (packed_codes.h), where the instruction set has the vectors for them: a key in
// each lane (transposed_keys.h), so that no lanes are left to add up.

#include <cstdint>

#include "optimized/attention/kernel_table.h"
#include "optimized/attention/packed_codes.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/packed_dot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/packed_codes-inl.h"
#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_WIDE_VECTORS

// Products of one channel of kVectors vectors of keys with kWidth queries, of the word's codes from
// plane kPlane on. Shapes: words (kVectors, N), q (planes, kQuad), sum (kWidth, kVectors).
template <class Rows, int kVectors, int kWidth, bool kInPlace, int kPlane = 0>
HWY_INLINE void AddWord(const VWords* HWY_RESTRICT words, const uint32_t* HWY_RESTRICT masks,
                        const float* HWY_RESTRICT q, VF32* HWY_RESTRICT sum) {
  const VWords mask = hn::Load(Words(), masks + kPlane * kLanes);
  VF32 codes[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    codes[v] = Rows::template Plane<kInPlace, kPlane>(words[v], mask);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 query = hn::Set(F32(), q[kPlane * kQuad + h]);
    for (int v = 0; v < kVectors; ++v) {
      sum[h * kVectors + v] = hn::MulAdd(codes[v], query, sum[h * kVectors + v]);
    }
  }
  if constexpr (kPlane + 1 < Rows::kVectors) {
    AddWord<Rows, kVectors, kWidth, kInPlace, kPlane + 1>(words, masks, q, sum);
  }
}

// Of a run of channels, channel by channel from zero. Shapes: words (8, kVectors * N) or, where a
// word has eight codes, half as many; q (kPlaneRun, kQuad).
template <class Rows, int kVectors, int kWidth, bool kInPlace>
HWY_INLINE void SumRun(const uint32_t* HWY_RESTRICT words, const float* HWY_RESTRICT q,
                       VF32* HWY_RESTRICT sum) {
  constexpr int64_t kKeys = kVectors * kLanes;
  for (int k = 0; k < kVectors * kWidth; ++k) sum[k] = hn::Zero(F32());
  const uint32_t* masks = Rows::template kMasks<kInPlace>.words;
  // As constants they would take more registers than there are.
  asm("" : "+r"(masks));
  for (int64_t w = 0; w < kPlaneRun / Rows::kVectors; ++w) {
    VWords of[kVectors];
    for (int v = 0; v < kVectors; ++v) of[v] = hn::Load(Words(), words + v * kLanes);
    AddWord<Rows, kVectors, kWidth, kInPlace>(of, masks, q, sum);
    words += kKeys;
    q += Rows::kVectors * kQuad;
  }
}

// As SumRuns takes them.
template <class Rows, int kVectors, int kWidth, bool kInPlace>
struct CodeRuns {
  HWY_INLINE void Sum(int64_t run, VF32* HWY_RESTRICT sum) const {
    ahead.Step();
    SumRun<Rows, kVectors, kWidth, kInPlace>(
        words + run * (kPlaneRun / Rows::kVectors) * kVectors * kLanes, q + run * kPlaneRun * kQuad,
        sum);
  }

  const uint32_t* words;
  const float* q;
  FetchInOrder& ahead;
};

// Of kVectors vectors of keys from key i on; behind the last key of the block it stands again.
// Shapes: scores (kWidth, kBlockTokens), with room for all of these keys.
template <class Rows, int kVectors, int kWidth, bool kInPlace>
HWY_INLINE void PlaneDotTile(const BlockRows& block, const std::byte* const* rows, int64_t i,
                             const float* HWY_RESTRICT q, FetchInOrder& ahead,
                             float* HWY_RESTRICT scores) {
  constexpr int64_t kKeys = kVectors * kLanes;
  constexpr int kSums = kVectors * kWidth;
  HWY_ALIGN uint32_t words[kMostGroup / Rows::kVectors * kKeys];
  HWY_ALIGN float kept[kMostTree * kSums * kLanes];
  VF32 sum[kSums];
  // Groups of a line together: where heads stand together, rows share few sets of the first cache,
  // and a line that is left is soon gone.
  const int64_t group_words = Rows::BytesOf(block.group) / 4;
  const int64_t together = HWY_MAX(int64_t{1}, kLineBytes / 4 / group_words);
  for (int64_t first = 0, offset = 0; first < block.groups; first += together) {
    const int64_t end = HWY_MIN(first + together, block.groups);
    const int64_t bytes = 4 * group_words * (end - first);
    for (int v = 0; v < kVectors; ++v) {
      uint32_t* to = words + v * kLanes;
      for (int64_t c = 0; c < bytes; c += Rows::kChunkBytes, to += kChunkWords * kKeys) {
        TurnWords<kKeys>(rows + v * kLanes, offset + c, to);
      }
    }
    offset += bytes;
    for (int64_t g = first; g < end; ++g, q += block.group * kQuad) {
      const uint32_t* of = words + (g - first) * group_words * kKeys;
      SumRuns<kSums>(CodeRuns<Rows, kVectors, kWidth, kInPlace>{of, q, ahead},
                     block.group / kPlaneRun, kept, sum);
      AddScaled<kVectors, kWidth>(block, i, g, sum, scores);
    }
  }
}

template <class Rows, int kWidth, bool kInPlace>
HWY_INLINE void PlaneDotsOf(const BlockRows& block, const Queries& queries, float* scores) {
  // As many sums as hide the latency of a product; one query has fewer, and its keys in few tiles.
  constexpr int kVectors = kWidth == 1 || kLanes == 16 ? 4 : 2;
  constexpr int64_t kKeys = kVectors * kLanes;
  const int64_t count = block.count;
  const int64_t tiles = (count + kKeys - 1) / kKeys;
  FetchInOrder ahead(block.ahead, tiles * block.dim / kPlaneRun);
  for (int64_t i = 0; i < count; i += kKeys) {
    const std::byte* last[kKeys];
    const std::byte* const* rows = block.rows + i;
    if (i + kKeys > count) {
      for (int64_t k = 0; k < kKeys; ++k) last[k] = block.rows[HWY_MIN(i + k, count - 1)];
      rows = last;
    }
    PlaneDotTile<Rows, kVectors, kWidth, kInPlace>(block, rows, i, queries.q, ahead, scores);
  }
}

template <class Rows, int kWidth>
void PlaneDots(const BlockRows& block, const Queries& queries, float* scores) {
  BiasParts<kWidth>(block, queries.sums, scores);
  if (queries.in_place) return PlaneDotsOf<Rows, kWidth, true>(block, queries, scores);
  PlaneDotsOf<Rows, kWidth, false>(block, queries, scores);
}

// Codes of a word of kTurned keys as f32, from plane kPlane on. Shapes: out (planes, kTurned).
template <class Rows, int kPlane = 0>
HWY_INLINE void WidenWord(VWords low, VWords high, float* HWY_RESTRICT out) {
  const VWords mask = hn::Set(Words(), Rows::MaskOf(false, kPlane));
  hn::Store(Rows::template Plane<false, kPlane>(low, mask), F32(), out + kPlane * kTurned);
  hn::Store(Rows::template Plane<false, kPlane>(high, mask), F32(),
            out + kPlane * kTurned + kLanes);
  if constexpr (kPlane + 1 < Rows::kVectors) WidenWord<Rows, kPlane + 1>(low, high, out);
}

template <class Rows>
void TurnPlanes(const BlockRows& block, float* out) {
  constexpr int64_t kChunk = kChunkWords * Rows::kVectors;
  for (int64_t i = 0; i < block.count; i += kTurned) {
    const std::byte* rows[kTurned];
    for (int64_t k = 0; k < kTurned; ++k) {
      rows[k] = block.rows[HWY_MIN(i + k, block.count - 1)];
    }
    HWY_ALIGN uint32_t words[kChunkWords * kTurned];
    for (int64_t c = 0; c < block.dim; c += kChunk) {
      TurnWords<kTurned>(rows, c / kChunk * Rows::kChunkBytes, words);
      TurnWords<kTurned>(rows + kLanes, c / kChunk * Rows::kChunkBytes, words + kLanes);
      for (int64_t w = 0; w < kChunkWords; ++w, out += Rows::kVectors * kTurned) {
        const uint32_t* of = words + w * kTurned;
        WidenWord<Rows>(hn::Load(Words(), of), hn::Load(Words(), of + kLanes), out);
      }
    }
  }
}

template <class Rows>
void FillPlaneDotsOf(RowKind kind, AttentionKernels* kernels) {
  const auto k = static_cast<int>(kind);
  kernels->dot[k][0] = PlaneDots<Rows, 1>;
  kernels->dot[k][1] = PlaneDots<Rows, kQuad>;
  kernels->turn[k] = TurnPlanes<Rows>;
}

void FillPlaneDots(bool fused, AttentionKernels* kernels) {
  kernels->planes = fused && HWY_NATIVE_FMA;
  kernels->plane_lanes = static_cast<int>(kLanes);
  FillPlaneDotsOf<Planes8Rows>(RowKind::kPlanes8, kernels);
  FillPlaneDotsOf<Planes4Rows>(RowKind::kPlanes4, kernels);
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
