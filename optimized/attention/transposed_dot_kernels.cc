// Transposes a block of K once for many queries, and q.k over it (transposed_keys.h).

#include <cstdint>

#include "optimized/attention/kernel_table.h"
#include "optimized/attention/transposed_keys.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/transposed_dot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_WIDE_VECTORS

// The last panel is filled up with the last key.
void TransposeFloats(const BlockRows& block, float* to) {
  constexpr int64_t kWords = 8;
  const int64_t end = (block.count + kPanelKeys - 1) / kPanelKeys * kPanelKeys;
  for (int64_t first = 0; first < end; first += kLanes) {
    const std::byte* rows[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      rows[i] = block.rows[HWY_MIN(first + i, block.count - 1)];
    }
    float* at = to + first / kPanelKeys * kPanelKeys * block.dim + first % kPanelKeys;
    for (int64_t c = 0; c < block.dim; c += kWords, at += kWords * kPanelKeys) {
      TransposeWords<kPanelKeys>(rows, 4 * c, reinterpret_cast<uint32_t*>(at));
    }
  }
}

// Lanes for SumByHalves: `numbers` channels a lane, of kTimes panels.
template <int kTimes>
struct TransposedFloats {
  static constexpr int kVectors = 2 * kTimes;
  static constexpr int kSums = kVectors * static_cast<int>(kQuad);

  template <int kHalves>
  HWY_NOINLINE void Sum(int64_t lane, float* HWY_RESTRICT to) const {
    VF32 sum[kSums];
    for (VF32& s : sum) s = hn::Zero(F32());
    const float* HWY_RESTRICT key = keys + lane * kPanelKeys;
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
      key += kLanes * kPanelKeys;
      query += kQuad;
    }
    AddHalves<kSums, kHalves>(to, sum);
  }

  const float* keys;  // (kTimes, dim, kPanelKeys)
  const float* q;     // (N, numbers, 4)
  int64_t numbers;
  int64_t next;  // floats of a panel
};

// kTimes panels from key i on. Inlined into one function both versions are slower.
template <int kTimes>
HWY_NOINLINE void TransposedDotsOf(const BlockRows& block, const Queries& queries, int64_t i,
                                   float* scores) {
  using Floats = TransposedFloats<kTimes>;
  const F32 d;
  HWY_ALIGN float sums[kMaxHalves * Floats::kSums * kLanes];
  SumByHalves(Floats{block.transposed + i * block.dim, queries.transposed, block.dim / kLanes,
                     kPanelKeys * block.dim},
              sums);
  for (int64_t h = 0; h < kQuad; ++h) {
    for (int64_t v = 0; v < Floats::kVectors; ++v) {
      hn::StoreU(hn::Load(d, sums + (h * Floats::kVectors + v) * kLanes), d,
                 scores + h * kBlockTokens + i + v * kLanes);
    }
  }
}

void TransposedDots(const BlockRows& block, const Queries& queries, float* scores) {
  int64_t i = 0;
  // Sixteen accumulators hide the FMA latency where eight just do, and queries are broadcast half
  // as often.
  constexpr int kTimes = KVCHECK_SIXTEEN_LANES ? 2 : 1;
  for (; i + kPanelKeys < block.count; i += kTimes * kPanelKeys) {
    TransposedDotsOf<kTimes>(block, queries, i, scores);
  }
  if (i < block.count) TransposedDotsOf<1>(block, queries, i, scores);
}

static_assert(HWY_NATIVE_FMA);

PanelKernels PanelsOfTarget() {
  return {
      .keys = static_cast<int>(kPanelKeys), .transpose = TransposeFloats, .dot = TransposedDots};
}

#else

PanelKernels PanelsOfTarget() { return {}; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(PanelsOfTarget);
PanelKernels TransposedKernels() { return HWY_DYNAMIC_DISPATCH(PanelsOfTarget)(); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
