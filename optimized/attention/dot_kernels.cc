// q.k of up to four queries with the keys of a block: every key is read and widened once for all of
// them.

#include <cstdint>

#include "optimized/attention/kernel_parts.h"

// Vectors of unknown length cannot be array elements; NEON takes the place of SVE.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/dot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// The lanes of one sum by halves.
HWY_INLINE float AddLanes(VF32 x) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(x, F32(), lanes);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

#if HWY_TARGET != HWY_SCALAR
using F32x4 = hn::FixedTag<float, 4>;

// Halves of a vector added until four lanes are left: (i, i + 8), (i, i + 4).
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

// The lanes of four sums at once: (i, i + 2), then (i, i + 1).
HWY_INLINE hn::Vec<F32x4> AddFour(VF32 a, VF32 b, VF32 c, VF32 e) {
  const F32x4 d;
  const hn::Repartition<double, F32x4> pairs;
  const auto fa = FoldToFour(F32(), a);
  const auto fb = FoldToFour(F32(), b);
  const auto fc = FoldToFour(F32(), c);
  const auto fe = FoldToFour(F32(), e);
  const auto ab = hn::Add(hn::InterleaveLower(d, fa, fb), hn::InterleaveUpper(d, fa, fb));
  const auto ce = hn::Add(hn::InterleaveLower(d, fc, fe), hn::InterleaveUpper(d, fc, fe));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce));
  return hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
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

// The lanes of eight sums at once, added as AddFour does.
HWY_INLINE void StoreEight(const VF32* sums, float* to) {
  const hn::FixedTag<float, 8> d;
  const hn::Repartition<double, decltype(d)> pairs;
  const auto fold = [&](int a) {  // sum a below sum a + 4
    const auto x = FoldToEight(sums[a]);
    const auto y = FoldToEight(sums[a + 4]);
    return hn::Add(hn::ConcatLowerLower(d, y, x), hn::ConcatUpperUpper(d, y, x));
  };
  const auto f0 = fold(0);
  const auto f1 = fold(1);
  const auto f2 = fold(2);
  const auto f3 = fold(3);
  const auto f01 = hn::Add(hn::InterleaveLower(d, f0, f1), hn::InterleaveUpper(d, f0, f1));
  const auto f23 = hn::Add(hn::InterleaveLower(d, f2, f3), hn::InterleaveUpper(d, f2, f3));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, f01), hn::BitCast(pairs, f23));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, f01), hn::BitCast(pairs, f23));
  hn::StoreU(hn::Add(hn::BitCast(d, low), hn::BitCast(d, high)), d, to);
}
#endif
#endif

// Keeps the compiler from reading it again for every product: the loop is bound by loads.
HWY_INLINE VF32 InRegister(VF32 x) {
#if KVCHECK_WIDE_VECTORS && (defined(__GNUC__) || defined(__clang__))
  asm("" : "+v"(x.raw));
#endif
  return x;
}

// Lanes of part `part` of the sums of kTokens keys from key i on with kWidth queries.
// Shapes: sums (kTokens, kWidth). kWhole: the channels are whole groups of 16.
template <class Rows, int kWidth, int kTokens, bool kWhole, bool kFused>
HWY_INLINE void DotPart(const BlockRows& block, int64_t i, int64_t part,
                        const float* HWY_RESTRICT q, int64_t q_stride, VF32* HWY_RESTRICT sums) {
  const F32 d;
  const int64_t dim = block.dim;
  const int64_t group = Rows::kScaled ? block.group : dim;
  const std::byte* row[kTokens];
  for (int t = 0; t < kTokens; ++t) row[t] = block.rows[i + t];
  VF32 sum[kTokens * kWidth];
  for (int k = 0; k < kTokens * kWidth; ++k) sum[k] = hn::Zero(d);
  int64_t channel = part * kLanes;
  for (int64_t first = 0, g = 0; first < dim; first += group, ++g) {
    VF32 scale[kTokens], bias[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      scale[t] = Rows::kScaled ? hn::Set(d, block.scales[i + t][g]) : hn::Zero(d);
      bias[t] = Rows::kScaled ? hn::Set(d, block.biases[i + t][g]) : hn::Zero(d);
    }
    const int64_t end = first + group;
    for (; channel + kLanes <= end; channel += kSumLanes16) {
      VF32 key[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        key[t] = Value<Rows, kFused>(Rows::Load(row[t], channel), scale[t], bias[t]);
      }
      for (int h = 0; h < kWidth; ++h) {
        const VF32 query = InRegister(hn::Load(d, q + h * q_stride + channel));
        for (int t = 0; t < kTokens; ++t) {
          sum[t * kWidth + h] = MultiplyAdd<kFused>(key[t], query, sum[t * kWidth + h]);
        }
      }
    }
  }
  if (!kWhole && channel < dim) {  // what is left of a vector, of plain formats alone
    for (int t = 0; t < kTokens; ++t) {
      const VF32 key = Rows::LoadTail(row[t], channel, dim - channel);
      for (int h = 0; h < kWidth; ++h) {
        const VF32 query = hn::Load(d, q + h * q_stride + channel);
        sum[t * kWidth + h] = MultiplyAdd<kFused>(key, query, sum[t * kWidth + h]);
      }
    }
  }
  for (int k = 0; k < kTokens * kWidth; ++k) sums[k] = sum[k];
}

// The scores of kTokens keys from key i on.
template <class Rows, int kWidth, int kTokens, bool kWhole, bool kFused>
HWY_INLINE void DotTile(const BlockRows& block, int64_t i, const float* HWY_RESTRICT q,
                        int64_t q_stride, float* HWY_RESTRICT scores) {
  constexpr int kSums = kTokens * kWidth;
  for (int t = 0; t < kTokens; ++t) FetchAhead(block, i + t);
  VF32 parts[kParts][kSums];
  for (int64_t part = 0; part < kParts; ++part) {
    DotPart<Rows, kWidth, kTokens, kWhole, kFused>(block, i, part, q, q_stride, parts[part]);
  }
  // Lane j of part p is lane p N + j of the sum.
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t p = 0; p < half; ++p) {
      for (int k = 0; k < kSums; ++k) parts[p][k] = hn::Add(parts[p][k], parts[p + half][k]);
    }
  }
  const VF32* sums = parts[0];
  float* to = scores + i * kWidth;
  int k = 0;
#if KVCHECK_WIDE_VECTORS
  for (; k + 8 <= kSums; k += 8) StoreEight(sums + k, to + k);
#endif
#if HWY_TARGET != HWY_SCALAR
  for (; k + 4 <= kSums; k += 4) {
    hn::StoreU(AddFour(sums[k], sums[k + 1], sums[k + 2], sums[k + 3]), F32x4(), to + k);
  }
#endif
  for (; k < kSums; ++k) to[k] = AddLanes(sums[k]);
}

template <class Rows, int kWidth, bool kFused>
void Dots(const BlockRows& block, const float* q, int64_t q_stride, float* scores) {
  // Accumulators enough to hide the latency of a product, few enough to stay in registers with the
  // keys, and with the scales of codes.
  constexpr int kSums = kLanes == 16                                       ? 16
                        : kLanes == 8 && kWidth == kQuad && !Rows::kScaled ? 12
                                                                           : 8;
  constexpr int kTokens = kLanes == 1 ? 1 : kSums / kWidth;
  int64_t i = 0;
  if (Rows::kScaled || block.dim % kSumLanes16 == 0) {
    for (; i + kTokens <= block.count; i += kTokens) {
      DotTile<Rows, kWidth, kTokens, true, kFused>(block, i, q, q_stride, scores);
    }
  }
  for (; i < block.count; ++i) {
    DotTile<Rows, kWidth, 1, Rows::kScaled, kFused>(block, i, q, q_stride, scores);
  }
}

void FillDots(bool fused, AttentionKernels* kernels) {
#define KVCHECK_DOTS(name, rows)                                                         \
  FillWidths(kernels->dot[static_cast<int>(RowKind::name)], fused, Dots<rows, 1, false>, \
             Dots<rows, kQuad, false>, Dots<rows, 1, HWY_NATIVE_FMA>,                    \
             Dots<rows, kQuad, HWY_NATIVE_FMA>);
  KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_DOTS)
#undef KVCHECK_DOTS
  kernels->fused = fused && HWY_NATIVE_FMA;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillDots);
void FillDotKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillDots)(fused, kernels);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
