// Keys turned about (turned.h), for many queries: once for all of them.

#include <cstdint>

#include "optimized/attention/kernel_parts.h"
#include "optimized/attention/turned.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/turned_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/turned-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_HAVE_TURNED

// Keys behind the last one, up to a multiple of 16, are the last one.
void Turn(const BlockRows& block, float* to) {
  const int64_t bytes = 4 * kLanes;
  const int64_t end = (block.count + kTurned - 1) / kTurned * kTurned;
  for (int64_t first = 0; first < end; first += kLanes) {
    const std::byte* rows[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = block.rows[HWY_MIN(first + i, block.count - 1)];
      if (first + i < block.ahead_count) {
        FetchLines(block.ahead + (first + i) * block.ahead_stride, block.ahead_bytes);
      }
    }
    float* at = to + first / kTurned * kTurned * block.dim + first % kTurned;
    for (int64_t c = 0; c < block.dim; c += kLanes, at += kLanes * kTurned) {
      TurnWords(rows, c / kLanes * bytes, reinterpret_cast<uint32_t*>(at));
    }
  }
}

// As SumByHalves takes them: `numbers` channels for each lane.
struct TurnedFloats {
  template <int kHalves>
  HWY_NOINLINE void Sum(int64_t lane, float* HWY_RESTRICT to) const {
    VF32 sum[kTurnedSums];
    for (VF32& s : sum) s = hn::Zero(F32());
    const float* HWY_RESTRICT key = keys + lane * kTurned;
    const float* HWY_RESTRICT query = q + lane * numbers * kQuad;
    HWY_UNROLL(4)
    for (int64_t m = 0; m < numbers; ++m) {
      const VF32 low = hn::Load(F32(), key);
      const VF32 high = hn::Load(F32(), key + kLanes);
      for (int64_t h = 0; h < kQuad; ++h) {
        const VF32 of = hn::Set(F32(), query[h]);
        sum[2 * h] = hn::MulAdd(low, of, sum[2 * h]);
        sum[2 * h + 1] = hn::MulAdd(high, of, sum[2 * h + 1]);
      }
      key += kLanes * kTurned;
      query += kQuad;
    }
    AddHalves<kHalves>(to, sum);
  }

  const float* keys;  // (dim, kTurned)
  const float* q;     // (8, numbers, 4)
  int64_t numbers;
};

template <bool kScaled>
void TurnedDots(const BlockRows& block, const Queries& queries, float* scores) {
  const F32 d;
  if constexpr (kScaled) BiasParts<kQuad>(block, queries.sums, scores);
  const int64_t group = kScaled ? block.group : block.dim;
  HWY_ALIGN float sums[4 * kTurnedSums * kLanes];
  for (int64_t i = 0; i < block.count; i += kTurned) {
    for (int64_t first = 0, g = 0; first < block.dim; first += group, ++g) {
      SumByHalves(TurnedFloats{block.turned + i * block.dim + first * kTurned,
                               queries.turned + first * kQuad, group / kLanes},
                  sums);
      if constexpr (kScaled) {
        AddScaled(block, i, g, sums, scores);
        continue;
      }
      for (int64_t k = 0; k < kTurnedSums; ++k) {
        hn::StoreU(hn::Load(d, sums + k * kLanes), d,
                   scores + k / 2 * kBlockTokens + i + k % 2 * kLanes);
      }
    }
  }
}

void FillTurned(bool fused, AttentionKernels* kernels) {
  kernels->turn = fused && HWY_NATIVE_FMA ? Turn : nullptr;
  kernels->turned_dot[0] = TurnedDots<false>;
  kernels->turned_dot[1] = TurnedDots<true>;
}

#else

void FillTurned(bool, AttentionKernels* kernels) { kernels->turn = nullptr; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillTurned);
void FillTurnedKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillTurned)(fused, kernels);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
