// The codes of groups whose scales and biases are known. Included once per instruction set.
// Definition, source: affine_encode.cc.

#if defined(OPTIMIZED_FORMATS_AFFINE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_FORMATS_AFFINE_CODES_INL_H_
#undef OPTIMIZED_FORMATS_AFFINE_CODES_INL_H_
#else
#define OPTIMIZED_FORMATS_AFFINE_CODES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "optimized/formats/affine_scales-inl.h"
#include "optimized/formats/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kvcheck::HWY_NAMESPACE;  // NOLINT

// What the elements of one group are divided by.
struct Divisor {
  LaneVec scale, bias, inverse;
};

// Vectors of codes in flight: independent dependency chains hide the latency of each step.
constexpr int kInFlight = 4;

// t / s, rounded once, without a division (Markstein, "Computation of elementary functions on the
// IBM RISC System/6000 processor", 1990): y = fl(1 / s), q = fl(t y), r = fl(t - s q), fl(q + r y).
// Proof. By powers of two s and t are in [1, 2), s > 1; y is in [1/2, 1) and off by at most 2^-25.
// Q = t / s has the spacing u = 2^-23, or 2^-24 where t < s. No Q is a midpoint m of two floats,
// and in units of the last places of s and t |Q - m| is a fraction over s: G = |Q - m| >= u 2^-24 /
// s.
//  - |q - Q| < u where t >= s, and <= (t + 1) u / 2 where t < s, hence below (3/2 - 2^-23) u; q has
//    the spacing of Q, unless Q = 1, where q is 1 or 1 - 2^-24 and the result is 1.
//  - q + r y = Q + e. The result is wrong only if some m is between Q and Q + e; |q - m| is an odd
//    multiple of u / 2, so |q - Q| is u / 2 or 3 u / 2 but for |e|.
//  - 3 u / 2: there |e| <= (3 s 2^-27 + 2^-23 / s) u <= 5 2^-25 u, the second part from rounding r.
//  So t
//    would be 2 - 2^-22 and s 2 - 2^-23, for which |q - Q| is u (1 + 2^-24).
//  - u / 2: r is exact, |e| <= |q - Q| s 2^-25. If q is the float nearest to Q that is less than
//    s u 2^-26 < u 2^-24 / s <= G. If it is the next, (u / 2 + G) s 2^-25 < G, because
//    s^2 / 4 <= (1 - 2^-24)^2 < 1 - s 2^-25.
// Nothing underflows where a code is not 0: 2^-30 <= |s| <= 2^60 and |Q| >= 1/2; below, |Q| stays
// below. Other s divide, NaN among them. t is finite or NaN, since an infinite difference within
// the group makes s infinite.
template <bool kDivide>
HWY_INLINE void Quotients(const std::byte* x, const Divisor& by, LaneVec (&q)[kInFlight]) {
  const Lanes d;
  const size_t lanes = hn::Lanes(d);
  LaneVec t[kInFlight];
  for (size_t i = 0; i < kInFlight; ++i) t[i] = hn::Sub(LoadBytes(d, x + 4 * lanes * i), by.bias);
  if constexpr (kDivide) {
    for (size_t i = 0; i < kInFlight; ++i) q[i] = hn::Div(t[i], by.scale);
  } else {
    for (size_t i = 0; i < kInFlight; ++i) q[i] = hn::Mul(t[i], by.inverse);
    for (size_t i = 0; i < kInFlight; ++i) t[i] = hn::NegMulAdd(by.scale, q[i], t[i]);
    for (size_t i = 0; i < kInFlight; ++i) q[i] = hn::MulAdd(t[i], by.inverse, q[i]);
  }
}

// Quotients as codes, packed: clamped to 0..n, NaN to 0, rounded to even. Clamping to integers
// commutes with rounding. kSmall: no quotient is beyond 2 n, since |s| >= (mx - mn) / (2 n).
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
template <int kBits, bool kSmall>
HWY_INLINE void StoreQuotients(const LaneVec (&q)[kInFlight], std::byte* to) {
  // min gives its second operand where one is NaN. NaN and what is below -2^31 are converted to
  // -2^31, which packing with saturation brings to 0 like everything negative.
  constexpr int kMost = (1 << kBits) - 1;
  const __m256 most = _mm256_set1_ps(static_cast<float>(kMost));
  __m256i c[kInFlight];
  for (int i = 0; i < kInFlight; ++i) {
    c[i] = _mm256_cvtps_epi32(kSmall ? q[i].raw : _mm256_min_ps(most, q[i].raw));
  }
  // Halves are packed each by itself: four codes of each vector, then the other four of each.
  __m256i codes =
      _mm256_packus_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
  if (kSmall && kBits < 8) codes = _mm256_min_epu8(codes, _mm256_set1_epi8(kMost));
  if constexpr (kBits == 4) {
    const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
    const __m256i bytes = _mm256_packus_epi16(pairs, pairs);
    const __m128i in_order =
        _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), in_order);
  } else {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const hn::FixedTag<uint8_t, 32> d8;
    StorePacked<kBits>(d8, hn::Vec<decltype(d8)>{_mm256_permutevar8x32_epi32(codes, order)}, to);
  }
}
#elif HWY_TARGET != HWY_SCALAR
template <int kBits, bool kSmall>
HWY_INLINE void StoreQuotients(const LaneVec (&q)[kInFlight], std::byte* to) {
  const Lanes d;
  const auto n = hn::Set(d, static_cast<float>((1 << kBits) - 1));
  const hn::RebindToSigned<Lanes> di;
  static_assert(hn::MaxLanes(Lanes()) == 4);
  hn::Vec<decltype(di)> c[kInFlight];
  for (int i = 0; i < kInFlight; ++i) {
    // NaN fails the first comparison. From 2^23 on the spacing is 1: the addition rounds.
    const auto clamped = Smaller(Larger(q[i], hn::Zero(d)), n);
    const auto rounded = hn::BitCast(di, hn::Add(clamped, hn::Set(d, 0x1.8p23F)));
    c[i] = hn::And(rounded, hn::Set(di, 0xff));
  }
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<uint8_t, 8> half;
  const hn::FixedTag<uint8_t, 16> d8;
  const auto codes = hn::Combine(d8, hn::DemoteTo(half, hn::ReorderDemote2To(d16, c[2], c[3])),
                                 hn::DemoteTo(half, hn::ReorderDemote2To(d16, c[0], c[1])));
  StorePacked<kBits>(d8, codes, to);
}
#endif

// Prefetches the chunk `ahead` into L1 and the bytes `beyond` past it into L2: one chunk's time is
// too short a prefetch distance for memory.
template <int kBits, bool kDivide>
HWY_INLINE void StoreCodes(int group, const Chunk& chunk, int64_t x_bytes, const Chunk& ahead,
                           uintptr_t beyond) {
  const Lanes d;
  constexpr int step = kInFlight * static_cast<int>(hn::MaxLanes(d));
  for (int g = 0; g < chunk.count; ++g) {
    const Divisor by = {hn::Set(d, chunk.scale[g]), hn::Set(d, chunk.bias[g]),
                        hn::Set(d, kDivide ? 0.0F : chunk.inverse[g])};
    const std::byte* x = chunk.numbers[g];
    std::byte* to = chunk.codes[g];
    if (g < ahead.count) {
      for (int64_t i = 0; i < x_bytes; i += 64) {
        hwy::Prefetch(ahead.x[g] + i);
        // It may lie outside of every allocation.
        const uintptr_t far = reinterpret_cast<uintptr_t>(ahead.x[g] + i) + beyond;
        __builtin_prefetch(reinterpret_cast<const void*>(far), 0, 2);
      }
    }
#if HWY_TARGET == HWY_SCALAR
    const auto n = hn::Set(d, static_cast<float>((1 << kBits) - 1));
    uint8_t codes[kLargestGroup];
    for (int i = 0; i < group; i += step) {
      LaneVec q[kInFlight];
      Quotients<kDivide>(x + 4 * i, by, q);
      for (int j = 0; j < kInFlight; ++j) {
        const float clamped = hn::GetLane(Smaller(Larger(q[j], hn::Zero(d)), n));
        codes[i + j] = static_cast<uint8_t>(std::nearbyint(clamped));
      }
    }
    for (int i = 0; i < group; i += 16) PackSixteen<kBits>(codes + i, to + i / 8 * kBits);
#else
    for (int i = 0; i < group; i += step) {
      LaneVec q[kInFlight];
      Quotients<kDivide>(x, by, q);
      StoreQuotients<kBits, !kDivide>(q, to);
      x += 4 * step;
      to += step / 8 * kBits;
    }
#endif
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_FORMATS_AFFINE_CODES_INL_H_
