// The step of the online softmax over one block.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "optimized/attention/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/softmax_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/horizontal_sum-inl.h"
#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// tanh of the platform in double, rounded once.
HWY_INLINE void Softcap(float cap, float* scores, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = cap * static_cast<float>(std::tanh(static_cast<double>(scores[i] / cap)));
  }
}

inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Scaled scores of one query; elements past `count` up to `places` become -inf. Returns the maximum
// by lane: a maximum has no rounding, so its order does not matter.
HWY_INLINE VF32 LargestScores(const SoftmaxStep& step, int64_t places, const float* bias,
                              float* HWY_RESTRICT scores) {
  const F32 d;
  const VF32 scale = hn::Set(d, step.scale);
  VF32 top = hn::Set(d, kNothing);
  if (places == step.count && step.softcap <= 0 && bias == nullptr) {
    for (int64_t i = 0; i < places; i += kLanes) {
      const VF32 score = hn::Mul(hn::Load(d, scores + i), scale);
      hn::Store(score, d, scores + i);
      top = hn::Max(top, score);
    }
    return top;
  }
  // Elements past `count` are undefined.
  std::fill(scores + step.count, scores + places, 0.0f);
  for (int64_t i = 0; i < places; i += kLanes) {
    hn::Store(hn::Mul(hn::Load(d, scores + i), scale), d, scores + i);
  }
  if (step.softcap > 0) Softcap(step.softcap, scores, step.count);
  if (bias != nullptr) {
    for (int64_t i = 0; i < step.count; ++i) scores[i] += bias[i];
  }
  std::fill(scores + step.count, scores + places, kNothing);
  for (int64_t i = 0; i < places; i += kLanes) top = hn::Max(top, hn::Load(d, scores + i));
  return top;
}

// Highway's scalar MaxOfLanes starts from the lowest finite number.
HWY_INLINE float LargestLane(VF32 x) {
#if KVCHECK_WIDE_VECTORS
  return hn::GetLane(hn::MaxOfLanes(F32(), x));
#else
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x, F32(), lanes);
  return *std::max_element(lanes, lanes + kLanes);
#endif
}

// Weights of one query, in place of its scores. Returns their sum, token i in lane i mod 16, folded
// to one vector.
template <bool kFused>
HWY_INLINE VF32 WeighScores(int64_t places, float shift, float* HWY_RESTRICT scores) {
  constexpr int64_t kParts = kSumLanes16 / kLanes;
  const F32 d;
  const VF32 top = hn::Set(d, shift);
  VF32 sum[kParts];
  for (VF32& s : sum) s = hn::Zero(d);
  for (int64_t i = 0; i < places; i += kSumLanes16) {
    for (int64_t part = 0; part < kParts; ++part) {
      float* at = scores + i + part * kLanes;
      const VF32 weight = ExpOfNegative<kFused>(d, hn::Sub(hn::Load(d, at), top));
      hn::Store(weight, d, at);
      sum[part] = hn::Add(sum[part], weight);
    }
  }
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t part = 0; part < half; ++part) sum[part] = hn::Add(sum[part], sum[part + half]);
  }
  return sum[0];
}

// One number a query.
#if HWY_TARGET == HWY_SCALAR
template <int kWidth>
using PerQuery = hn::CappedTag<float, 1>;
#else
template <int kWidth>
using PerQuery = hn::FixedTag<float, kWidth>;
#endif

#if KVCHECK_SIXTEEN_LANES
// Broadcasts one number a query to the four lanes of its 128-bit part.
HWY_INLINE VF32 ToParts(const float* numbers) {
  const __m512i places = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  return VF32{_mm512_permutexvar_ps(places, _mm512_castps128_ps512(_mm_loadu_ps(numbers)))};
}
HWY_INLINE __m128 FromParts(VF32 parts) {
  const __m512i places = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(places, parts.raw));
}

struct LargerOf {
  HWY_INLINE VF32 operator()(VF32 a, VF32 b) const { return hn::Max(a, b); }
};
// The maximum of each of four vectors, broadcast in its 128-bit part.
HWY_INLINE VF32 LargestLanes(const VF32* of) {
  const VF32 four = FoldFour(LargerOf(), of[0], of[1], of[2], of[3]);
  const VF32 two = hn::Max(four, VF32{_mm512_permute_ps(four.raw, 0x4e)});
  return hn::Max(two, VF32{_mm512_permute_ps(two.raw, 0xb1)});
}

// Weights of a whole block for query kQuery. Returns their sum, by lane.
template <int kQuery, bool kFused>
HWY_INLINE VF32 WeighVectors(const VF32* score, VF32 shifts, float* HWY_RESTRICT scores) {
  const F32 d;
  const VF32 shift{_mm512_shuffle_f32x4(shifts.raw, shifts.raw, kQuery * 0x55)};
  VF32 sum = hn::Zero(d);
  for (int64_t v = 0; v < kBlockTokens / kLanes; ++v) {
    const VF32 weight = ExpOfNegative<kFused>(d, hn::Sub(score[v], shift));
    hn::Store(weight, d, scores + v * kLanes);
    sum = hn::Add(sum, weight);
  }
  return sum;
}

// Fast path: four queries that see the whole block, without softcap and bias; the same bits, with
// the scores in registers. A query with a NaN score has a NaN total on both paths; its other
// numbers may differ.
template <bool kFused>
HWY_INLINE void SoftmaxOfWhole(const SoftmaxStep& step) {
  const F32 d;
  constexpr int64_t kVectors = kBlockTokens / kLanes;
  static_assert(kVectors == 4 && kQuad == 4);
  const VF32 scale = hn::Set(d, step.scale);
  VF32 score[kQuad * kVectors], tops[kQuad];
  for (int64_t h = 0; h < kQuad; ++h) {
    VF32* of = score + h * kVectors;
    for (int64_t v = 0; v < kVectors; ++v) {
      of[v] = hn::Mul(hn::Load(d, step.scores + h * kBlockTokens + v * kLanes), scale);
    }
    tops[h] = hn::Max(hn::Max(of[0], of[1]), hn::Max(of[2], of[3]));
  }
  const VF32 nothing = hn::Set(d, kNothing);
  const VF32 before = ToParts(step.shift);
  const VF32 top = hn::Max(LargestLanes(tops), before);
  // Before the first finite score nothing has a weight.
  const VF32 from = hn::IfThenZeroElse(hn::Eq(top, nothing), top);
  _mm_storeu_ps(step.shift, FromParts(top));
  const __m128 rescale = FromParts(ExpOfNegative<kFused>(d, hn::Sub(before, from)));
  _mm_storeu_ps(step.rescale, rescale);
  float* to = step.scores;
  const VF32 sum0 = WeighVectors<0, kFused>(score, from, to);
  const VF32 sum1 = WeighVectors<1, kFused>(score + kVectors, from, to + kBlockTokens);
  const VF32 sum2 = WeighVectors<2, kFused>(score + 2 * kVectors, from, to + 2 * kBlockTokens);
  const VF32 sum3 = WeighVectors<3, kFused>(score + 3 * kVectors, from, to + 3 * kBlockTokens);
  const __m128 before_this = _mm_mul_ps(_mm_loadu_ps(step.total), rescale);
  _mm_storeu_ps(step.total, _mm_add_ps(before_this, HorizontalSums4(sum0, sum1, sum2, sum3).raw));
}
#endif

template <int kWidth, bool kFused>
void Softmax(const SoftmaxStep& step) {
#if KVCHECK_SIXTEEN_LANES
  if constexpr (kWidth == kQuad) {
    if (step.count == kBlockTokens && step.softcap <= 0 && step.bias == nullptr) {
      return SoftmaxOfWhole<kFused>(step);
    }
  }
#endif
  const PerQuery<kWidth> d;
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(PerQuery<kWidth>()));
  const int64_t places = (step.count + kSumLanes16 - 1) / kSumLanes16 * kSumLanes16;
  HWY_ALIGN float most[kWidth], shift[kWidth], rescale[kWidth], lanes[kWidth];
  for (int h = 0; h < kWidth; ++h) {
    const float* bias = step.bias == nullptr ? nullptr : step.bias + h * kBlockTokens;
    const VF32 tops = LargestScores(step, places, bias, step.scores + h * kBlockTokens);
    most[h] = LargestLane(tops);
  }
  for (int64_t h = 0; h < kWidth; h += kStep) {
    const auto before = hn::LoadU(d, step.shift + h);
    const auto top = hn::Max(hn::Load(d, most + h), before);
    // Before the first finite score nothing has a weight.
    const auto from = hn::IfThenZeroElse(hn::Eq(top, hn::Set(d, kNothing)), top);
    hn::StoreU(top, d, step.shift + h);
    hn::Store(from, d, shift + h);
    hn::Store(ExpOfNegative<kFused>(d, hn::Sub(before, from)), d, rescale + h);
  }
  VF32 sums[kWidth];
  for (int h = 0; h < kWidth; ++h) {
    sums[h] = WeighScores<kFused>(places, shift[h], step.scores + h * kBlockTokens);
  }
  StoreHorizontalSums<kWidth>(sums, lanes);
  for (int h = 0; h < kWidth; ++h) {
    step.rescale[h] = rescale[h];
    step.total[h] = step.total[h] * rescale[h] + lanes[h];
  }
}

template <bool kFused>
HWY_INLINE void ExpLoop(const float* x, int64_t count, float* y) {
  const F32 d;
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto here = static_cast<size_t>(std::min(kLanes, count - i)) * sizeof(float);
    std::memcpy(lanes, x + i, here);
    hn::Store(ExpOfNegative<kFused>(d, hn::Load(d, lanes)), d, lanes);
    std::memcpy(y + i, lanes, here);
  }
}

void Exps(bool fused, const float* x, int64_t count, float* y) {
  fused ? ExpLoop<HWY_NATIVE_FMA>(x, count, y) : ExpLoop<false>(x, count, y);
}

Widths<SoftmaxKernel> SoftmaxesFor(bool fused) {
  if (fused) return {Softmax<1, HWY_NATIVE_FMA>, Softmax<kQuad, HWY_NATIVE_FMA>};
  return {Softmax<1, false>, Softmax<kQuad, false>};
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(SoftmaxesFor);
HWY_EXPORT(Exps);

Widths<SoftmaxKernel> SoftmaxKernels(bool fused) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxesFor)(fused);
}
void ExpOf(bool fused, const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(Exps)(fused, x, count, y);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
