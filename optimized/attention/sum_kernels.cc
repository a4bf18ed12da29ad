// P.V of up to four queries over a block of V: every value is loaded and widened once for all of
// them. And blocks widened to f32, for tiles that read them many times.

#include <algorithm>
#include <cstdint>

#include "optimized/attention/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/sum_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// Tokens a step of the prefetcher.
inline constexpr int64_t kPrefetchTokens = 4;

template <class Rows>
HWY_INLINE VF32 LoadAnyOf(const std::byte* row, int64_t channel, int64_t dim) {
  return channel + kLanes <= dim ? Rows::Load(row, channel)
                                 : Rows::LoadTail(row, channel, dim - channel);
}

// sum += weights[h][i] times row i. Shapes: sum (kWidth, kVectors).
template <class Rows, int kWidth, int kVectors, bool kWhole, bool kFused>
HWY_INLINE void AddToken(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t i,
                         int64_t channel, int64_t g, VF32* HWY_RESTRICT sum) {
  const F32 d;
  const std::byte* row = block.rows[i];
  const VF32 scale = ScaleOf<Rows>(block, i, g);
  const VF32 bias = BiasOf<Rows>(block, i, g);
  VF32 value[kVectors];
  for (int k = 0; k < kVectors; ++k) {
    const int64_t at = channel + k * kLanes;
    if constexpr (kWhole || Rows::kScaled) {  // codes have no tail
      value[k] = LoadValue<Rows, kFused>(block, row, at, scale, bias);
    } else {
      value[k] = Value<Rows, kFused>(LoadAnyOf<Rows>(row, at, block.dim), scale, bias);
    }
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 weight = hn::Set(d, weights[h * kBlockTokens + i]);
    for (int k = 0; k < kVectors; ++k) {
      sum[h * kVectors + k] = MultiplyAdd<kFused>(value[k], weight, sum[h * kVectors + k]);
    }
  }
}

// kVectors vectors of channels, in one group. kWhole: no tail.
template <class Rows, int kWidth, int kVectors, bool kWhole, bool kFused>
HWY_INLINE void SumSlice(const BlockRows& block, const float* HWY_RESTRICT weights,
                         const float* HWY_RESTRICT rescale, int64_t channel, Prefetcher& prefetcher,
                         float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  VF32 sum[kWidth * kVectors];
  for (int k = 0; k < kWidth * kVectors; ++k) sum[k] = hn::Zero(d);
  const int64_t g = Rows::kScaled ? channel / block.group : 0;
  int64_t i = 0;
  for (; i + kPrefetchTokens <= block.count; i += kPrefetchTokens) {
    prefetcher.Step();
    HWY_UNROLL(4)
    for (int64_t k = 0; k < kPrefetchTokens; ++k) {
      AddToken<Rows, kWidth, kVectors, kWhole, kFused>(block, weights, i + k, channel, g, sum);
    }
  }
  if (i < block.count) prefetcher.Step();
  for (; i < block.count; ++i) {
    AddToken<Rows, kWidth, kVectors, kWhole, kFused>(block, weights, i, channel, g, sum);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 factor = hn::Set(d, rescale[h]);
    for (int k = 0; k < kVectors; ++k) {
      float* to = out + h * out_stride + channel + k * kLanes;
      hn::Store(hn::Add(hn::Mul(hn::Load(d, to), factor), sum[h * kVectors + k]), d, to);
    }
  }
}

template <class Rows, int kWidth, int64_t kVectors, bool kFused>
void SumSlices(const BlockRows& block, const float* weights, const float* rescale, float* out,
               int64_t out_stride) {
  const int64_t slices = (block.dim + kVectors * kLanes - 1) / (kVectors * kLanes);
  Prefetcher prefetcher(block.prefetch,
                        slices * ((block.count + kPrefetchTokens - 1) / kPrefetchTokens));
  int64_t channel = 0;
  for (; channel + kVectors * kLanes <= block.dim; channel += kVectors * kLanes) {
    SumSlice<Rows, kWidth, kVectors, true, kFused>(block, weights, rescale, channel, prefetcher,
                                                   out, out_stride);
  }
  for (; channel < block.dim; channel += kLanes) {
    SumSlice<Rows, kWidth, 1, false, kFused>(block, weights, rescale, channel, prefetcher, out,
                                             out_stride);
  }
}

template <class Rows, int kWidth, bool kFused>
void SumsOfRows(const BlockRows& block, const float* weights, const float* rescale, float* out,
                int64_t out_stride) {
  // Accumulators enough to hide the FMA latency, few enough for the registers; codes of one group,
  // which has at least 32 channels.
  constexpr int64_t kMost = kLanes == 16 ? 16 / kWidth : 8 / kWidth;
  constexpr int64_t kVectors = Rows::kScaled && kMost * kLanes > 32 ? 32 / kLanes : kMost;
  // A table of products with a group's scale, and a vector's one scale, serve as many channels as
  // there is room for.
  constexpr int64_t kMore = std::min<int64_t>(kMost, 128 / kLanes);
  if constexpr ((kLooksUp<Rows> || kIsUnbiased<Rows>) && kMore > kVectors) {
    if (block.group % (kMore * kLanes) == 0) {
      return SumSlices<Rows, kWidth, kMore, kFused>(block, weights, rescale, out, out_stride);
    }
  }
  SumSlices<Rows, kWidth, kVectors, kFused>(block, weights, rescale, out, out_stride);
}

template <class Rows, int kWidth, bool kFused>
void Sums(const BlockRows& block, const float* weights, const float* rescale, float* out,
          int64_t out_stride) {
  if constexpr (kHasHalves<Rows>) {
    SumsOfRows<typename Rows::Low, kWidth, kFused>(block, weights, rescale, out, out_stride);
    SumsOfRows<typename Rows::High, kWidth, kFused>(*block.high, weights, rescale, out + block.dim,
                                                    out_stride);
  } else {
    SumsOfRows<Rows, kWidth, kFused>(block, weights, rescale, out, out_stride);
  }
}

template <class Rows, bool kFused>
void WidenRows(const BlockRows& block, float* out, int64_t stride) {
  const F32 d;
  const int64_t padded = PaddedDim(block.dim);
  for (int64_t i = 0; i < block.count; ++i, out += stride) {
    const std::byte* row = block.rows[i];
    const int64_t group = Rows::kScaled ? block.group : block.dim;
    int64_t channel = 0;
    for (int64_t first = 0, g = 0; first < block.dim; first += group, ++g) {
      const VF32 scale = ScaleOf<Rows>(block, i, g);
      const VF32 bias = BiasOf<Rows>(block, i, g);
      for (; channel + kLanes <= first + group; channel += kLanes) {
        hn::Store(LoadValue<Rows, kFused>(block, row, channel, scale, bias), d, out + channel);
      }
    }
    if (channel < block.dim) {
      hn::Store(Rows::LoadTail(row, channel, block.dim - channel), d, out + channel);
      channel += kLanes;
    }
    for (; channel < padded; channel += kLanes) hn::Store(hn::Zero(d), d, out + channel);
  }
}

template <class Rows, bool kFused>
void Widen(const BlockRows& block, float* out, int64_t stride) {
  if constexpr (kHasHalves<Rows>) {
    WidenRows<typename Rows::Low, kFused>(block, out, stride);
    WidenRows<typename Rows::High, kFused>(*block.high, out + block.dim, stride);
  } else {
    WidenRows<Rows, kFused>(block, out, stride);
  }
}

template <bool kFused>
PlainSums PlainSumsOf() {
#define KVCHECK_SUMS(name, rows) {Sums<rows, 1, kFused>, Sums<rows, kQuad, kFused>},
#define KVCHECK_WIDEN(name, rows) Widen<rows, kFused>,
  return {
      .sum = {{KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_SUMS)}},
      .widen = {KVCHECK_ATTENTION_ROW_KINDS(KVCHECK_WIDEN)},
  };
#undef KVCHECK_WIDEN
#undef KVCHECK_SUMS
}

PlainSums PlainSumsFor(bool fused) {
  return fused ? PlainSumsOf<HWY_NATIVE_FMA>() : PlainSumsOf<false>();
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(PlainSumsFor);
PlainSums PlainSumKernels(bool fused) { return HWY_DYNAMIC_DISPATCH(PlainSumsFor)(fused); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
