// Horizontal sums of several vectors at once, in one tree order: (i, i + N / 2), ..., (i, i + 1).
// Included once per instruction set.

#if defined(OPTIMIZED_ATTENTION_HORIZONTAL_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_HORIZONTAL_SUM_INL_H_
#undef OPTIMIZED_ATTENTION_HORIZONTAL_SUM_INL_H_
#else
#define OPTIMIZED_ATTENTION_HORIZONTAL_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// Of one vector.
HWY_INLINE float HorizontalSum(VF32 x) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x, F32(), lanes);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

#if HWY_TARGET != HWY_SCALAR
using F32x4 = hn::FixedTag<float, 4>;

// Folds a vector to four lanes: (i, i + 8), (i, i + 4).
template <class D, class V = hn::Vec<D>>
HWY_INLINE auto FoldToFour(D d, V x) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    (void)d;
    return x;
  } else {
    const hn::Half<D> half;
    return FoldToFour(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}

// Within each 128 bits the horizontal sums of four vectors: (i, i + 2), then (i, i + 1).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AddWithinParts(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> pairs;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  return hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
}

// Of four vectors.
HWY_INLINE hn::Vec<F32x4> HorizontalSums4(VF32 a, VF32 b, VF32 c, VF32 e) {
  return AddWithinParts(F32x4(), FoldToFour(F32(), a), FoldToFour(F32(), b), FoldToFour(F32(), c),
                        FoldToFour(F32(), e));
}

#if KVCHECK_WIDE_VECTORS
HWY_INLINE auto FoldToEight(VF32 x) {
#if HWY_TARGET == HWY_AVX2
  return x;
#else
  const hn::FixedTag<float, 8> half;
  return hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x));
#endif
}

// Of eight vectors.
HWY_INLINE void StoreHorizontalSums8(const VF32* sums, float* to) {
  const hn::FixedTag<float, 8> d;
  const auto fold = [&](int a) {  // vector a in the lower half, a + 4 in the upper
    const auto x = FoldToEight(sums[a]);
    const auto y = FoldToEight(sums[a + 4]);
    return hn::Add(hn::ConcatLowerLower(d, y, x), hn::ConcatUpperUpper(d, y, x));
  };
  hn::StoreU(AddWithinParts(d, fold(0), fold(1), fold(2), fold(3)), d, to);
}
#endif

#if KVCHECK_SIXTEEN_LANES
struct AddOf {
  HWY_INLINE VF32 operator()(VF32 a, VF32 b) const { return hn::Add(a, b); }
};
// of(128-bit parts of a and b selected by kFirst, those selected by kSecond).
template <int kFirst, int kSecond, class Of>
HWY_INLINE VF32 FoldQuarters(Of of, VF32 a, VF32 b) {
  return of(VF32{_mm512_shuffle_f32x4(a.raw, b.raw, kFirst)},
            VF32{_mm512_shuffle_f32x4(a.raw, b.raw, kSecond)});
}
// Folds four vectors to four lanes each, one 128-bit part a vector.
template <class Of>
HWY_INLINE VF32 FoldFour(Of of, VF32 a, VF32 b, VF32 c, VF32 e) {
  const VF32 ab = FoldQuarters<0x44, 0xee>(of, a, b);
  const VF32 ce = FoldQuarters<0x44, 0xee>(of, c, e);
  return FoldQuarters<0x88, 0xdd>(of, ab, ce);
}
// Of sixteen vectors: lane i of 128-bit part p is the sum of vector p kPart + i kPlace.
template <int kPart, int kPlace>
HWY_INLINE VF32 HorizontalSums16(const VF32* HWY_RESTRICT sums) {
  const auto fold = [&](int i) HWY_ATTR {
    const VF32* of = sums + i * kPlace;
    return FoldFour(AddOf(), of[0], of[kPart], of[2 * kPart], of[3 * kPart]);
  };
  return AddWithinParts(F32(), fold(0), fold(1), fold(2), fold(3));
}
#endif
#endif

// Of kSums vectors. Shapes: to (kSums).
template <int kSums>
HWY_INLINE void StoreHorizontalSums(const VF32* sums, float* to) {
  int k = 0;
#if KVCHECK_SIXTEEN_LANES
  for (; k + 16 <= kSums; k += 16) hn::StoreU(HorizontalSums16<4, 1>(sums + k), F32(), to + k);
#endif
#if KVCHECK_WIDE_VECTORS
  for (; k + 8 <= kSums; k += 8) StoreHorizontalSums8(sums + k, to + k);
#endif
#if HWY_TARGET != HWY_SCALAR
  for (; k + 4 <= kSums; k += 4) {
    hn::StoreU(HorizontalSums4(sums[k], sums[k + 1], sums[k + 2], sums[k + 3]), F32x4(), to + k);
  }
#endif
  for (; k < kSums; ++k) to[k] = HorizontalSum(sums[k]);
}

// Of kTokens x 4 vectors, into the scores of four queries. Shapes: sums (kTokens, 4), scores (4,
// kBlockTokens), from the first token on.
template <int kTokens>
HWY_INLINE void StoreScores(const VF32* sums, float* HWY_RESTRICT scores) {
#if KVCHECK_SIXTEEN_LANES
  if constexpr (kTokens == 4) {
    const __m512 by_query = HorizontalSums16<1, 4>(sums).raw;
    _mm_storeu_ps(scores, _mm512_castps512_ps128(by_query));
    _mm_storeu_ps(scores + kBlockTokens, _mm512_extractf32x4_ps(by_query, 1));
    _mm_storeu_ps(scores + 2 * kBlockTokens, _mm512_extractf32x4_ps(by_query, 2));
    _mm_storeu_ps(scores + 3 * kBlockTokens, _mm512_extractf32x4_ps(by_query, 3));
    return;
  }
#endif
  float by_token[4 * kTokens];
  StoreHorizontalSums<4 * kTokens>(sums, by_token);
  for (int64_t i = 0; i < kTokens; ++i) {
    for (int64_t h = 0; h < 4; ++h) scores[h * kBlockTokens + i] = by_token[4 * i + h];
  }
}

// Shapes: from (count, 4), with room for a multiple of 8 keys; scores (4, kBlockTokens).
HWY_INLINE void TransposeScores(const float* HWY_RESTRICT from, int64_t count,
                                float* HWY_RESTRICT scores) {
  int64_t i = 0;
#if KVCHECK_WIDE_VECTORS
  const hn::FixedTag<float, 8> d;
  const hn::Repartition<double, decltype(d)> pairs;
  for (; i < count; i += 8) {
    const auto keys01 = hn::LoadU(d, from + 4 * i);
    const auto keys23 = hn::LoadU(d, from + 4 * i + 8);
    const auto keys45 = hn::LoadU(d, from + 4 * i + 16);
    const auto keys67 = hn::LoadU(d, from + 4 * i + 24);
    const auto keys04 = hn::ConcatLowerLower(d, keys45, keys01);
    const auto keys15 = hn::ConcatUpperUpper(d, keys45, keys01);
    const auto keys26 = hn::ConcatLowerLower(d, keys67, keys23);
    const auto keys37 = hn::ConcatUpperUpper(d, keys67, keys23);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, keys04, keys15));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, keys04, keys15));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, keys26, keys37));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, keys26, keys37));
    float* to = scores + i;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + kBlockTokens);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d,
               to + 2 * kBlockTokens);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d,
               to + 3 * kBlockTokens);
  }
#endif
  for (; i < count; ++i) {
    for (int64_t h = 0; h < 4; ++h) scores[h * kBlockTokens + i] = from[4 * i + h];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
