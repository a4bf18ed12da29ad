// Keys turned about (transposed_keys.h), for many queries: once for all of them.

#include <cstdint>

#include "optimized/attention/kernel_table.h"
#include "optimized/attention/transposed_keys.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/transposed_dot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_WIDE_VECTORS

// Keys behind the last one, up to a multiple of kTurned, are the last one.
void Turn(const BlockRows& block, float* to) {
  constexpr int64_t kWords = 8;
  const int64_t end = (block.count + kTurned - 1) / kTurned * kTurned;
  for (int64_t first = 0; first < end; first += kLanes) {
    const std::byte* rows[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = block.rows[HWY_MIN(first + i, block.count - 1)];
    }
    float* at = to + first / kTurned * kTurned * block.dim + first % kTurned;
    for (int64_t c = 0; c < block.dim; c += kWords, at += kWords * kTurned) {
      TurnWords<kTurned>(rows, 4 * c, reinterpret_cast<uint32_t*>(at));
    }
  }
}

// As SumByHalves takes them: `numbers` channels for each lane, of kTimes kTurned keys.
template <int kTimes>
struct TurnedFloats {
  static constexpr int kVectors = 2 * kTimes;
  static constexpr int kSums = kVectors * static_cast<int>(kQuad);

  template <int kHalves>
  HWY_NOINLINE void Sum(int64_t lane, float* HWY_RESTRICT to) const {
    VF32 sum[kSums];
    for (VF32& s : sum) s = hn::Zero(F32());
    const float* HWY_RESTRICT key = keys + lane * kTurned;
    const float* HWY_RESTRICT query = q + lane * numbers * kQuad;
    HWY_UNROLL(4)
    for (int64_t m = 0; m < numbers; ++m) {
      VF32 of_keys[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        of_keys[v] = hn::Load(F32(), key + v / 2 * next + v % 2 * kLanes);
      }
      for (int64_t h = 0; h < kQuad; ++h) {
        const VF32 of = hn::Set(F32(), query[h]);
        for (int v = 0; v < kVectors; ++v) {
          sum[h * kVectors + v] = hn::MulAdd(of_keys[v], of, sum[h * kVectors + v]);
        }
      }
      key += kLanes * kTurned;
      query += kQuad;
    }
    AddHalves<kSums, kHalves>(to, sum);
  }

  const float* keys;  // (kTimes, dim, kTurned)
  const float* q;     // (N, numbers, 4)
  int64_t numbers;
  int64_t next;  // floats of kTurned keys
};

// Of kTimes kTurned keys from key i on. Inlined into one function both versions are slower.
template <int kTimes>
HWY_NOINLINE void TurnedDotsOf(const BlockRows& block, const Queries& queries, int64_t i,
                               float* scores) {
  using Floats = TurnedFloats<kTimes>;
  const F32 d;
  HWY_ALIGN float sums[kMostHalves * Floats::kSums * kLanes];
  SumByHalves(
      Floats{block.turned + i * block.dim, queries.turned, block.dim / kLanes, kTurned * block.dim},
      sums);
  for (int64_t h = 0; h < kQuad; ++h) {
    for (int64_t v = 0; v < Floats::kVectors; ++v) {
      hn::StoreU(hn::Load(d, sums + (h * Floats::kVectors + v) * kLanes), d,
                 scores + h * kBlockTokens + i + v * kLanes);
    }
  }
}

void TurnedDots(const BlockRows& block, const Queries& queries, float* scores) {
  int64_t i = 0;
  // Sixteen sums hide the latency of a product where eight just do, and queries are read half as
  // often.
  constexpr int kTimes = KVCHECK_SIXTEEN_LANES ? 2 : 1;
  for (; i + kTurned < block.count; i += kTimes * kTurned) {
    TurnedDotsOf<kTimes>(block, queries, i, scores);
  }
  if (i < block.count) TurnedDotsOf<1>(block, queries, i, scores);
}

// As SumRuns takes them: a run of a group's channels.
struct TurnedRuns {
  HWY_INLINE void Sum(int64_t run, VF32* HWY_RESTRICT sum) const {
    const float* HWY_RESTRICT key = keys + run * kPlaneRun * kTurned;
    const float* HWY_RESTRICT query = q + run * kPlaneRun * kQuad;
    for (int k = 0; k < kTurnedSums; ++k) sum[k] = hn::Zero(F32());
    HWY_UNROLL(4)
    for (int64_t c = 0; c < kPlaneRun; ++c) {
      const VF32 low = hn::Load(F32(), key + c * kTurned);
      const VF32 high = hn::Load(F32(), key + c * kTurned + kLanes);
      for (int64_t h = 0; h < kQuad; ++h) {
        const VF32 of = hn::Set(F32(), query[c * kQuad + h]);
        sum[2 * h] = hn::MulAdd(low, of, sum[2 * h]);
        sum[2 * h + 1] = hn::MulAdd(high, of, sum[2 * h + 1]);
      }
    }
  }

  const float* keys;  // (dim, kTurned)
  const float* q;     // (dim, kQuad)
};

// Of codes as f32.
void TurnedPlaneDots(const BlockRows& block, const Queries& queries, float* scores) {
  BiasParts<kQuad>(block, queries.sums, scores);
  HWY_ALIGN float kept[kMostTree * kTurnedSums * kLanes];
  VF32 sum[kTurnedSums];
  for (int64_t i = 0; i < block.count; i += kTurned) {
    for (int64_t g = 0; g < block.groups; ++g) {
      const int64_t first = g * block.group;
      SumRuns<kTurnedSums>(
          TurnedRuns{block.turned + i * block.dim + first * kTurned, queries.q + first * kQuad},
          block.group / kPlaneRun, kept, sum);
      AddScaled<2, kQuad>(block, i, g, sum, scores);
    }
  }
}

void FillTurned(bool fused, AttentionKernels* kernels) {
  if (!fused || !HWY_NATIVE_FMA) return;
  kernels->turned_keys = static_cast<int>(kTurned);
  kernels->turn[static_cast<int>(RowKind::kFloat32)] = Turn;
  kernels->turned_dot[0] = TurnedDots;
  kernels->turned_dot[1] = TurnedPlaneDots;
}

#else

void FillTurned(bool, AttentionKernels*) {}

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
