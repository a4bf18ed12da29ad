// q.k of up to four queries over a block of K: every key is loaded and widened once for all of
// them.

#include <cstdint>

#include "optimized/attention/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/dot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/horizontal_sum-inl.h"
#include "optimized/attention/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// Partial sums of a dot product: a vector where products are fused, else 16 on every target.
template <bool kFused>
inline constexpr int64_t kDotLanes = kFused ? kLanes : kSumLanes16;

// Channels of one run of a dot product, unrolled.
inline constexpr int64_t kRun = 32;

template <class Rows, int kWidth, int kTokens, bool kFused>
HWY_INLINE void AddProducts(const BlockRows& block, const std::byte* const* row, int64_t channel,
                            const float* HWY_RESTRICT q, int64_t q_stride, const VF32* scale,
                            const VF32* bias, VF32* HWY_RESTRICT sum) {
  VF32 key[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    key[t] = LoadValue<Rows, kFused>(block, row[t], channel, scale[t], bias[t]);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 query = InRegister(hn::Load(F32(), q + h * q_stride + channel));
    for (int t = 0; t < kTokens; ++t) {
      sum[t * kWidth + h] = MultiplyAdd<kFused>(key[t], query, sum[t * kWidth + h]);
    }
  }
}

// Vector `part` of the partial sums of kTokens keys from key i on with kWidth queries.
// Shapes: sums (kTokens, kWidth). kWhole: dim is a multiple of kRun. kContinues: `sums` are those
// of the channels before.
template <class Rows, int kWidth, int kTokens, bool kWhole, bool kFused, bool kContinues = false>
HWY_INLINE void DotPart(const BlockRows& block, int64_t i, int64_t part,
                        const float* HWY_RESTRICT q, int64_t q_stride, Prefetcher& prefetcher,
                        VF32* HWY_RESTRICT sums) {
  const F32 d;
  constexpr int64_t kStep = kDotLanes<kFused>;
  const int64_t dim = block.dim;
  const std::byte* row[kTokens];
  for (int t = 0; t < kTokens; ++t) row[t] = block.rows[i + t];
  VF32 sum[kTokens * kWidth];
  for (int k = 0; k < kTokens * kWidth; ++k) sum[k] = kContinues ? sums[k] : hn::Zero(d);
  VF32 scale[kTokens], bias[kTokens];
  for (int t = 0; t < kTokens; ++t) scale[t] = bias[t] = hn::Zero(d);
  int64_t channel = 0;
  if constexpr (kWhole) {
    const int64_t group = Rows::kScaled ? block.group : kRun;
    for (int64_t first = 0, g = 0; first < dim; first += group, ++g) {
      for (int t = 0; Rows::kScaled && t < kTokens; ++t) {
        scale[t] = ScaleOf<Rows>(block, i + t, g);
        bias[t] = BiasOf<Rows>(block, i + t, g);
      }
      for (const int64_t end = first + group; channel < end; channel += kRun) {
        prefetcher.Step();
        for (int64_t k = 0; k < kRun; k += kStep) {
          AddProducts<Rows, kWidth, kTokens, kFused>(block, row, channel + part * kLanes + k, q,
                                                     q_stride, scale, bias, sum);
        }
      }
    }
  } else {
    channel = part * kLanes;
    for (; channel + kLanes <= dim; channel += kStep) {
      AddProducts<Rows, kWidth, kTokens, kFused>(block, row, channel, q, q_stride, scale, bias,
                                                 sum);
    }
    if (channel < dim) {  // the tail
      for (int t = 0; t < kTokens; ++t) {
        const VF32 key = Rows::LoadTail(row[t], channel, dim - channel);
        for (int h = 0; h < kWidth; ++h) {
          const VF32 query = hn::Load(d, q + h * q_stride + channel);
          sum[t * kWidth + h] = MultiplyAdd<kFused>(key, query, sum[t * kWidth + h]);
        }
      }
    }
  }
  for (int k = 0; k < kTokens * kWidth; ++k) sums[k] = sum[k];
}

// Whether scores of four queries are stored key-major and transposed once a block.
template <int kWidth>
inline constexpr bool kByKey = kWidth == kQuad && !KVCHECK_SIXTEEN_LANES;

// Micro-kernel: scores of kTokens keys from key i on with kWidth queries. Shapes: scores (count,
// kWidth) if kByKey, else (kWidth, kBlockTokens).
template <class Rows, int kWidth, int kTokens, bool kWhole, bool kFused>
HWY_INLINE void DotMicroKernel(const BlockRows& block, int64_t i, const float* HWY_RESTRICT q,
                               int64_t q_stride, Prefetcher& prefetcher,
                               float* HWY_RESTRICT scores) {
  constexpr int kSums = kTokens * kWidth;
  constexpr int64_t kParts = kDotLanes<kFused> / kLanes;
  VF32 parts[kParts][kSums];
  for (int64_t part = 0; part < kParts; ++part) {
    if constexpr (kHasHalves<Rows>) {
      DotPart<typename Rows::Low, kWidth, kTokens, kWhole, kFused>(block, i, part, q, q_stride,
                                                                   prefetcher, parts[part]);
      DotPart<typename Rows::High, kWidth, kTokens, kWhole, kFused, true>(
          *block.high, i, part, q + block.dim, q_stride, prefetcher, parts[part]);
    } else {
      DotPart<Rows, kWidth, kTokens, kWhole, kFused>(block, i, part, q, q_stride, prefetcher,
                                                     parts[part]);
    }
  }
  // Lane j of part p is partial sum p N + j.
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t p = 0; p < half; ++p) {
      for (int k = 0; k < kSums; ++k) parts[p][k] = hn::Add(parts[p][k], parts[p + half][k]);
    }
  }
  if constexpr (kWidth == 1 || kByKey<kWidth>) {
    StoreHorizontalSums<kSums>(parts[0], scores + i * kWidth);
  } else {
    StoreScores<kTokens>(parts[0], scores + i);
  }
}

template <class Rows, int kWidth, bool kFused>
void Dots(const BlockRows& block, const Queries& queries, float* scores) {
  // Accumulators enough to hide the FMA latency, few enough for the registers beside keys and
  // scales.
  constexpr int kTokens = kLanes == 1 ? 1 : (kLanes == 16 ? 16 : 8) / kWidth;
  const float* q = queries.q;
  HWY_ALIGN float by_key[kByKey<kWidth> ? kWidth * kBlockTokens : 1];
  float* const to = kByKey<kWidth> ? by_key : scores;
  const int64_t calls = (block.count + kTokens - 1) / kTokens;
  const int64_t dim = kHasHalves<Rows> ? 2 * block.dim : block.dim;
  Prefetcher prefetcher(block.prefetch,
                        calls * (kDotLanes<kFused> / kLanes) * ((dim + kRun - 1) / kRun));
  int64_t i = 0;
  if (Rows::kScaled || block.dim % kRun == 0) {
    for (; i + kTokens <= block.count; i += kTokens) {
      DotMicroKernel<Rows, kWidth, kTokens, true, kFused>(block, i, q, queries.stride, prefetcher,
                                                          to);
    }
    for (; i < block.count; ++i) {
      DotMicroKernel<Rows, kWidth, 1, true, kFused>(block, i, q, queries.stride, prefetcher, to);
    }
  } else if constexpr (!Rows::kScaled) {
    for (; i + kTokens <= block.count; i += kTokens) {
      DotMicroKernel<Rows, kWidth, kTokens, false, kFused>(block, i, q, queries.stride, prefetcher,
                                                           to);
    }
    for (; i < block.count; ++i) {
      DotMicroKernel<Rows, kWidth, 1, false, kFused>(block, i, q, queries.stride, prefetcher, to);
    }
  }
  if constexpr (kByKey<kWidth>) TransposeScores(by_key, block.count, scores);
}

template <bool kFused>
PlainDots PlainDotsOf() {
#define KVCHECK_DOTS(name, rows) {Dots<rows, 1, kFused>, Dots<rows, kQuad, kFused>},
  return {
      .dot = {{KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_DOTS)}},
      .fused = kFused,
      .lanes = static_cast<int>(kDotLanes<kFused>),
      .prefetch = KVCHECK_SIXTEEN_LANES ? PrefetchPolicy::kTwoLevels : PrefetchPolicy::kHalfBlocks,
  };
#undef KVCHECK_DOTS
}

PlainDots PlainDotsFor(bool fused) {
  return fused ? PlainDotsOf<HWY_NATIVE_FMA>() : PlainDotsOf<false>();
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(PlainDotsFor);
PlainDots PlainDotKernels(bool fused) { return HWY_DYNAMIC_DISPATCH(PlainDotsFor)(fused); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
