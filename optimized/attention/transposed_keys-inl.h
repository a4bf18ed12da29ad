// Transposes of 32-bit words, and q.k with one key per lane (transposed_keys.h). Included once per
// instruction set; for vectors of eight lanes or more.

#if defined(OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_INL_H_
#undef OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_INL_H_
#else
#define OPTIMIZED_ATTENTION_TRANSPOSED_KEYS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "optimized/attention/packed_codes.h"
#include "optimized/attention/rows-inl.h"
#include "optimized/attention/transposed_keys.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_WIDE_VECTORS

using Words = hn::RebindToUnsigned<F32>;
using VWords = hn::Vec<Words>;

// Keys of a panel, two vectors, and their accumulators with four queries: (kQuad, 2).
inline constexpr int64_t kPanelKeys = 2 * kLanes;
inline constexpr int kPanelSums = 2 * static_cast<int>(kQuad);

// Four words at `offset` of every fourth of kLanes rows, row after row.
HWY_INLINE VWords EveryFourth(const std::byte* const* row, int64_t offset) {
  const Words d;
#if HWY_TARGET == HWY_AVX2
  const hn::Half<Words> four;
  return hn::Combine(d, LoadBytes(four, row[4] + offset), LoadBytes(four, row[0] + offset));
#else
  (void)d;
  return VWords{LoadFourParts(row[0] + offset, row[4] + offset, row[8] + offset, row[12] + offset)};
#endif
}

// Transposes four words at `offset` of kLanes rows. store(word, of_rows).
template <class Store>
HWY_INLINE void TransposeFour(const std::byte* const* row, int64_t offset, const Store& store) {
  const Words d;
  const hn::Repartition<uint64_t, Words> pairs;
  VWords of[4];
  for (int i = 0; i < 4; ++i) of[i] = EveryFourth(row + i, offset);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, of[0], of[1]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, of[0], of[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, of[2], of[3]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, of[2], of[3]));
  store(0, hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)));
  store(1, hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)));
  store(2, hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)));
  store(3, hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)));
}

// Shapes: to (4, kStride), of which kLanes are written.
template <int64_t kStride>
HWY_INLINE void TransposeFour(const std::byte* const* row, int64_t offset,
                              uint32_t* HWY_RESTRICT to) {
  TransposeFour(row, offset, [&](int word, VWords of_rows) HWY_ATTR {
    hn::Store(of_rows, Words(), to + word * kStride);
  });
}

// Eight words. Shapes: to (8, kStride).
template <int64_t kStride>
HWY_INLINE void TransposeWords(const std::byte* const* row, int64_t offset,
                               uint32_t* HWY_RESTRICT to) {
  for (int part = 0; part < 2; ++part, offset += 16, to += 4 * kStride) {
    TransposeFour<kStride>(row, offset, to);
  }
}

// Unrolled by recursion: as loops g++ spills the accumulators.
template <int kCount>
HWY_INLINE void AddVectors(const float* HWY_RESTRICT from, VF32* HWY_RESTRICT sum) {
  sum[0] = hn::Add(hn::Load(F32(), from), sum[0]);
  if constexpr (kCount > 1) AddVectors<kCount - 1>(from + kLanes, sum + 1);
}
template <int kCount>
HWY_INLINE void StoreVectors(const VF32* HWY_RESTRICT sum, float* HWY_RESTRICT to) {
  hn::Store(sum[0], F32(), to);
  if constexpr (kCount > 1) StoreVectors<kCount - 1>(sum + 1, to + kLanes);
}

// Adds the kHalves partial sums stored before `to`, the last one first, and stores the result in
// place of the first of them. Shapes: each (kSums, kLanes).
template <int kSums, int kHalves>
HWY_INLINE void AddHalves(float* HWY_RESTRICT to, VF32* HWY_RESTRICT sum) {
  if constexpr (kHalves == 0) {
    StoreVectors<kSums>(sum, to);
  } else {
    float* const before = to - kSums * kLanes;
    AddVectors<kSums>(before, sum);
    AddHalves<kSums, kHalves - 1>(before, sum);
  }
}

// The partial sums of lanes `lane`, `lane` + kStep, ... in the tree order of HorizontalSum (of
// eight 0 + 4, 2 + 6, both, ...), then AddHalves<kHalves>. `lanes.Sum<n>(lane, to)` makes a lane's
// sum and applies AddHalves<n>. Shapes: sums (kMaxHalves, kSums, kLanes), the first is the result.
inline constexpr int64_t kMaxHalves = 5;
template <int64_t kStep = 1, int kHalves = 0, class LanesOf>
HWY_INLINE void SumByHalves(const LanesOf& lanes, float* HWY_RESTRICT sums, int64_t lane = 0) {
  if constexpr (kStep == kLanes) {
    lanes.template Sum<kHalves>(lane, sums);
  } else {
    SumByHalves<2 * kStep, 0>(lanes, sums, lane);
    SumByHalves<2 * kStep, kHalves + 1>(lanes, sums + LanesOf::kSums * kLanes, lane + kStep);
  }
}

// The sums of a group's runs (packed_codes.h) in a pairwise tree: 0 + 1, 2 + 3, both.
// `runs_of.Sum(run, sum)` makes the sum of a run. Shapes: kept (kTreeDepth, kSums, kLanes).
template <int kSums, class RunsOf>
HWY_INLINE void SumRuns(const RunsOf& runs_of, int64_t runs, float* HWY_RESTRICT kept,
                        VF32* HWY_RESTRICT sum) {
  constexpr int64_t kNext = kSums * kLanes;
  for (int64_t run = 0; run < runs; ++run) {
    runs_of.Sum(run, sum);
    if (run % 2 == 1) AddVectors<kSums>(kept, sum);
    if (run % 4 == 3) AddVectors<kSums>(kept + kNext, sum);
    if (run + 1 < runs) StoreVectors<kSums>(sum, kept + run % 2 * kNext);
  }
}

// scores[h][i] = sum over groups g of bias[g][i] times the sum of query h over g.
template <int kWidth>
HWY_INLINE void BiasParts(const BlockRows& block, const float* HWY_RESTRICT sums,
                          float* HWY_RESTRICT scores) {
  const F32 d;
  const int64_t groups = block.dim / block.group;
  for (int64_t i = 0; i < block.count; i += kLanes) {
    const float* HWY_RESTRICT biases = block.biases + i;
    VF32 part[kWidth];
    const VF32 first = hn::LoadU(d, biases);
    for (int h = 0; h < kWidth; ++h) part[h] = hn::Mul(first, hn::Set(d, sums[h]));
    for (int64_t g = 1; g < groups; ++g) {
      const VF32 bias = hn::LoadU(d, biases + g * kBlockTokens);
      for (int h = 0; h < kWidth; ++h) {
        part[h] = hn::MulAdd(bias, hn::Set(d, sums[g * kQuad + h]), part[h]);
      }
    }
    for (int h = 0; h < kWidth; ++h) hn::StoreU(part[h], d, scores + h * kBlockTokens + i);
  }
}

// scores[h][i ...] += sum times the scales of group g, of kVectors vectors of keys from key i on.
// Shapes: sum (kWidth, kVectors).
template <int kVectors, int kWidth>
HWY_INLINE void AddScaled(const BlockRows& block, int64_t i, int64_t g,
                          const VF32* HWY_RESTRICT sum, float* HWY_RESTRICT scores) {
  const F32 d;
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = i + v * kLanes;
    const VF32 scale = hn::LoadU(d, block.scales + g * kBlockTokens + at);
    for (int h = 0; h < kWidth; ++h) {
      float* to = scores + h * kBlockTokens + at;
      hn::StoreU(hn::MulAdd(sum[h * kVectors + v], scale, hn::LoadU(d, to)), d, to);
    }
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
