// q.k over packed codes (packed_codes.h), one key per lane (transposed_keys.h), on targets with
// vectors of eight lanes or more.

#include <cstdint>

#include "optimized/attention/kernel_table.h"
#include "optimized/attention/packed_codes.h"

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

// FMAs of the fields of a word, from kField on, of kVectors vectors of keys with kWidth queries.
// Shapes: words (kVectors, N), q (fields, kQuad), sum (kWidth, kVectors).
template <class Rows, int kVectors, int kWidth, bool kInPlace, int kField = 0>
HWY_INLINE void AddWord(const VWords* HWY_RESTRICT words, const uint32_t* HWY_RESTRICT masks,
                        const float* HWY_RESTRICT q, VF32* HWY_RESTRICT sum) {
  const VWords mask = hn::Load(Words(), masks + kField * kLanes);
  VF32 codes[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    codes[v] = Rows::template Field<kInPlace, kField>(words[v], mask);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 query = hn::Set(F32(), q[kField * kQuad + h]);
    for (int v = 0; v < kVectors; ++v) {
      sum[h * kVectors + v] = hn::MulAdd(codes[v], query, sum[h * kVectors + v]);
    }
  }
  if constexpr (kField + 1 < Rows::kVectors) {
    AddWord<Rows, kVectors, kWidth, kInPlace, kField + 1>(words, masks, q, sum);
  }
}

// A run of channels, in order, from zero. Shapes: words (kGroupRun / fields, kVectors N), q
// (kGroupRun, kQuad).
template <class Rows, int kVectors, int kWidth, bool kInPlace>
HWY_INLINE void SumRun(const uint32_t* HWY_RESTRICT words, const float* HWY_RESTRICT q,
                       VF32* HWY_RESTRICT sum) {
  constexpr int64_t kKeys = kVectors * kLanes;
  for (int k = 0; k < kVectors * kWidth; ++k) sum[k] = hn::Zero(F32());
  const uint32_t* masks = Rows::template kMasks<kInPlace>.words;
  // Loaded, not constants: as constants they would spill registers.
  asm("" : "+r"(masks));
  for (int64_t w = 0; w < kGroupRun / Rows::kVectors; ++w) {
    VWords of[kVectors];
    for (int v = 0; v < kVectors; ++v) of[v] = hn::Load(Words(), words + v * kLanes);
    AddWord<Rows, kVectors, kWidth, kInPlace>(of, masks, q, sum);
    words += kKeys;
    q += Rows::kVectors * kQuad;
  }
}

// Runs for SumRuns.
template <class Rows, int kVectors, int kWidth, bool kInPlace>
struct CodeRuns {
  HWY_INLINE void Sum(int64_t run, VF32* HWY_RESTRICT sum) const {
    prefetcher.Step();
    SumRun<Rows, kVectors, kWidth, kInPlace>(
        words + run * (kGroupRun / Rows::kVectors) * kVectors * kLanes, q + run * kGroupRun * kQuad,
        sum);
  }

  const uint32_t* words;
  const float* q;
  Prefetcher& prefetcher;
};

// Micro-kernel: kVectors vectors of keys from key i on with kWidth queries; keys past the last one
// repeat it. Shapes: scores (kWidth, kBlockTokens), of which all of these keys are written.
template <class Rows, int kVectors, int kWidth, bool kInPlace>
HWY_INLINE void PackedDotMicroKernel(const BlockRows& block, const std::byte* const* rows,
                                     int64_t i, const float* HWY_RESTRICT q, Prefetcher& prefetcher,
                                     float* HWY_RESTRICT scores) {
  constexpr int64_t kKeys = kVectors * kLanes;
  constexpr int kSums = kVectors * kWidth;
  HWY_ALIGN uint32_t words[kMaxGroup / Rows::kVectors * kKeys];
  HWY_ALIGN float kept[kTreeDepth * kSums * kLanes];
  VF32 sum[kSums];
  // All groups of a cache line at once: token-major rows share few L1 sets, so that a line does not
  // survive until the next group.
  const int64_t group_words = Rows::BytesOf(block.group) / 4;
  const int64_t line_groups = HWY_MAX(int64_t{1}, kLineBytes / 4 / group_words);
  for (int64_t first = 0, offset = 0; first < block.groups; first += line_groups) {
    const int64_t end = HWY_MIN(first + line_groups, block.groups);
    const int64_t bytes = 4 * group_words * (end - first);
    for (int v = 0; v < kVectors; ++v) {
      uint32_t* to = words + v * kLanes;
      for (int64_t c = 0; c < bytes; c += Rows::kChunkBytes, to += kChunkWords * kKeys) {
        TransposeWords<kKeys>(rows + v * kLanes, offset + c, to);
      }
    }
    offset += bytes;
    for (int64_t g = first; g < end; ++g, q += block.group * kQuad) {
      const uint32_t* of = words + (g - first) * group_words * kKeys;
      SumRuns<kSums>(CodeRuns<Rows, kVectors, kWidth, kInPlace>{of, q, prefetcher},
                     block.group / kGroupRun, kept, sum);
      AddScaled<kVectors, kWidth>(block, i, g, sum, scores);
    }
  }
}

template <class Rows, int kWidth, bool kInPlace>
HWY_INLINE void PackedDotsOf(const BlockRows& block, const Queries& queries, float* scores) {
  // Accumulators that hide the FMA latency; one query has fewer, and takes more keys at once.
  constexpr int kVectors = kWidth == 1 || kLanes == 16 ? 4 : 2;
  constexpr int64_t kKeys = kVectors * kLanes;
  const int64_t count = block.count;
  const int64_t calls = (count + kKeys - 1) / kKeys;
  Prefetcher prefetcher(block.prefetch, calls * block.dim / kGroupRun);
  for (int64_t i = 0; i < count; i += kKeys) {
    const std::byte* last[kKeys];
    const std::byte* const* rows = block.rows + i;
    if (i + kKeys > count) {
      for (int64_t k = 0; k < kKeys; ++k) last[k] = block.rows[HWY_MIN(i + k, count - 1)];
      rows = last;
    }
    PackedDotMicroKernel<Rows, kVectors, kWidth, kInPlace>(block, rows, i, queries.q, prefetcher,
                                                           scores);
  }
}

template <class Rows, int kWidth>
void PackedDots(const BlockRows& block, const Queries& queries, float* scores) {
  BiasParts<kWidth>(block, queries.sums, scores);
  if (queries.in_place) return PackedDotsOf<Rows, kWidth, true>(block, queries, scores);
  PackedDotsOf<Rows, kWidth, false>(block, queries, scores);
}

// The fields of a word of kPanelKeys keys as f32, from kField on. Shapes: out (fields, kPanelKeys).
template <class Rows, int kField = 0>
HWY_INLINE void WidenWord(VWords low, VWords high, float* HWY_RESTRICT out) {
  const VWords mask = hn::Set(Words(), Rows::MaskOf(false, kField));
  hn::Store(Rows::template Field<false, kField>(low, mask), F32(), out + kField * kPanelKeys);
  hn::Store(Rows::template Field<false, kField>(high, mask), F32(),
            out + kField * kPanelKeys + kLanes);
  if constexpr (kField + 1 < Rows::kVectors) WidenWord<Rows, kField + 1>(low, high, out);
}

template <class Rows>
void TransposePacked(const BlockRows& block, float* out) {
  constexpr int64_t kChunk = kChunkWords * Rows::kVectors;
  for (int64_t i = 0; i < block.count; i += kPanelKeys) {
    const std::byte* rows[kPanelKeys];
    for (int64_t k = 0; k < kPanelKeys; ++k) {
      rows[k] = block.rows[HWY_MIN(i + k, block.count - 1)];
    }
    HWY_ALIGN uint32_t words[kChunkWords * kPanelKeys];
    for (int64_t c = 0; c < block.dim; c += kChunk) {
      TransposeWords<kPanelKeys>(rows, c / kChunk * Rows::kChunkBytes, words);
      TransposeWords<kPanelKeys>(rows + kLanes, c / kChunk * Rows::kChunkBytes, words + kLanes);
      for (int64_t w = 0; w < kChunkWords; ++w, out += Rows::kVectors * kPanelKeys) {
        const uint32_t* of = words + w * kPanelKeys;
        WidenWord<Rows>(hn::Load(Words(), of), hn::Load(Words(), of + kLanes), out);
      }
    }
  }
}

// Runs of a group's channels for SumRuns.
struct TransposedRuns {
  HWY_INLINE void Sum(int64_t run, VF32* HWY_RESTRICT sum) const {
    const float* HWY_RESTRICT key = keys + run * kGroupRun * kPanelKeys;
    const float* HWY_RESTRICT query = q + run * kGroupRun * kQuad;
    for (int k = 0; k < kPanelSums; ++k) sum[k] = hn::Zero(F32());
    HWY_UNROLL(4)
    for (int64_t c = 0; c < kGroupRun; ++c) {
      const VF32 low = hn::Load(F32(), key + c * kPanelKeys);
      const VF32 high = hn::Load(F32(), key + c * kPanelKeys + kLanes);
      for (int64_t h = 0; h < kQuad; ++h) {
        const VF32 of = hn::Set(F32(), query[c * kQuad + h]);
        sum[2 * h] = hn::MulAdd(low, of, sum[2 * h]);
        sum[2 * h + 1] = hn::MulAdd(high, of, sum[2 * h + 1]);
      }
    }
  }

  const float* keys;  // (dim, kPanelKeys)
  const float* q;     // (dim, kQuad)
};

// q.k over codes as f32.
void TransposedCodeDots(const BlockRows& block, const Queries& queries, float* scores) {
  BiasParts<kQuad>(block, queries.sums, scores);
  HWY_ALIGN float kept[kTreeDepth * kPanelSums * kLanes];
  VF32 sum[kPanelSums];
  for (int64_t i = 0; i < block.count; i += kPanelKeys) {
    for (int64_t g = 0; g < block.groups; ++g) {
      const int64_t first = g * block.group;
      SumRuns<kPanelSums>(TransposedRuns{block.transposed + i * block.dim + first * kPanelKeys,
                                         queries.q + first * kQuad},
                          block.group / kGroupRun, kept, sum);
      AddScaled<2, kQuad>(block, i, g, sum, scores);
    }
  }
}

static_assert(HWY_NATIVE_FMA);

FactoredDots DotsOfPacked() {
  return {.of8 = {.dot = {PackedDots<Packed8Rows, 1>, PackedDots<Packed8Rows, kQuad>},
                  .transpose = TransposePacked<Packed8Rows>},
          .of4 = {.dot = {PackedDots<Packed4Rows, 1>, PackedDots<Packed4Rows, kQuad>},
                  .transpose = TransposePacked<Packed4Rows>},
          .transposed_dot = TransposedCodeDots,
          .lanes = static_cast<int>(kLanes),
          .panel_keys = static_cast<int>(kPanelKeys)};
}

#else

FactoredDots DotsOfPacked() { return {}; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(DotsOfPacked);
FactoredDots PackedDotKernels() { return HWY_DYNAMIC_DISPATCH(DotsOfPacked)(); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
