// P.V over packed codes (packed_codes.h), on targets with vectors of eight lanes or more.

#include <cstdint>
#include <cstring>

#include "optimized/attention/kernel_table.h"
#include "optimized/attention/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/packed_sum_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/horizontal_sum-inl.h"
#include "optimized/attention/packed_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_WIDE_VECTORS

// The groups in a vector of words: one; with sixteen lanes also two groups of eight words,
// interleaved, or the last group of an odd number of them, alone.
enum class Span { kGroup, kTwoGroups, kLastGroup };
constexpr int GroupsOf(Span span) { return span == Span::kTwoGroups ? 2 : 1; }

// Codes widened to f32, in channel order.
struct WidenedCodeRows {
  static constexpr bool kCodes = false;
  static constexpr int kVectors = static_cast<int>(32 / kLanes);
  static constexpr int64_t BytesOf(int64_t channels) { return 4 * channels; }
  static constexpr int Shift(int) { return 0; }
};

// fl(p s), and horizontal sums over tokens of p z.
template <int kWidth>
struct GroupWeights {
  // fl(p s), (kWidth, kBlockTokens); of two groups (kWidth, kBlockTokens, 2).
  HWY_ALIGN float weights[2 * kWidth * kBlockTokens];
  float biases[2 * kWidth];  // (groups, kWidth)
};

// kLanes tokens from token i on; kWhole: no tail.
template <int kWidth, int kGroups, bool kWhole>
HWY_INLINE void WeighTokens(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                            int64_t i, float* HWY_RESTRICT out, VF32* HWY_RESTRICT sum) {
  const F32 d;
  // Elements past `count` are undefined.
  const auto here = hn::FirstN(d, static_cast<size_t>(kWhole ? kLanes : block.count - i));
  const auto load = [&](const float* from) HWY_ATTR {
    const VF32 all = hn::LoadU(d, from + i);
    return kWhole ? all : hn::IfThenElseZero(here, all);
  };
  VF32 scale[kGroups], bias[kGroups];
  for (int j = 0; j < kGroups; ++j) {
    scale[j] = load(block.scales + (g + j) * kBlockTokens);
    bias[j] = load(block.biases + (g + j) * kBlockTokens);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 p = load(weights + h * kBlockTokens);
    for (int j = 0; j < kGroups; ++j) {
      sum[j * kWidth + h] = hn::MulAdd(p, bias[j], sum[j * kWidth + h]);
    }
    float* to = out + kGroups * (h * kBlockTokens + i);
    if constexpr (kGroups == 1) {
      hn::Store(hn::Mul(p, scale[0]), d, to);
    } else {
      hn::StoreInterleaved2(hn::Mul(p, scale[0]), hn::Mul(p, scale[1]), d, to);
    }
  }
}

// kGroups groups from group g on.
template <int kWidth, int kGroups>
HWY_INLINE void WeighGroups(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                            GroupWeights<kWidth>* HWY_RESTRICT out) {
  VF32 sum[kGroups * kWidth];
  for (VF32& s : sum) s = hn::Zero(F32());
  int64_t i = 0;
  for (; i + kLanes <= block.count; i += kLanes) {
    WeighTokens<kWidth, kGroups, true>(block, weights, g, i, out->weights, sum);
  }
  if (i < block.count) {
    WeighTokens<kWidth, kGroups, false>(block, weights, g, i, out->weights, sum);
  }
  StoreHorizontalSums<kGroups * kWidth>(sum, out->biases);
}

// Whether codes may stay in place with the same bits: no product or sum underflows or overflows
// that would not with codes shifted down. With scales in [2^-40, 2^60] that holds for weights in
// [2^-60, 1]: multiples of 2^-123, and sums of 64 below 2^98. Shapes: weights (kWidth,
// kBlockTokens).
template <int kWidth>
HWY_INLINE bool WeightsInRange(const float* weights, int64_t count) {
  // Compared as integers, which order floats >= 0; minus 1, so that 0 is the largest.
  constexpr uint32_t kLeast = (127u - 60u) << 23;
  constexpr uint32_t kOne = 127u << 23;
  const Words d;
  const auto one = hn::Set(d, 1u);
  auto least = hn::Set(d, ~0u);
  auto most = hn::Zero(d);
  for (int h = 0; h < kWidth; ++h) {
    const float* row = weights + h * kBlockTokens;
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const auto p = hn::BitCast(d, hn::LoadU(F32(), row + i));
      least = hn::Min(least, hn::Sub(p, one));
      most = hn::Max(most, p);
    }
    if (i == count) continue;
    const auto here = hn::FirstN(d, static_cast<size_t>(count - i));
    const auto p = hn::IfThenElseZero(here, hn::BitCast(d, hn::LoadU(F32(), row + i)));
    least = hn::Min(least, hn::Sub(p, one));
    most = hn::Max(most, p);
  }
  least = hn::Min(least, hn::Set(d, kLeast - 1));
  most = hn::Max(most, hn::Set(d, kOne));
  return hn::AllTrue(
      d, hn::And(hn::Eq(least, hn::Set(d, kLeast - 1)), hn::Eq(most, hn::Set(d, kOne))));
}

// Tokens a step of the prefetcher.
inline constexpr int64_t kPackedPrefetchTokens = 16;

// Vectors summed at once: accumulators enough to hide the FMA latency, few enough for the
// registers.
template <class Rows>
inline constexpr int kSumVectors = kLanes == 16 ? HWY_MIN(4, Rows::kVectors) : 2;

#if HWY_TARGET != HWY_AVX2
// Lane orders that interleave two groups of eight lanes, and back.
alignas(64) inline constexpr uint32_t kInterleave[16] = {0, 8,  1, 9,  2, 10, 3, 11,
                                                         4, 12, 5, 13, 6, 14, 7, 15};
alignas(64) inline constexpr uint32_t kDeinterleave[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                           1, 3, 5, 7, 9, 11, 13, 15};
#endif

template <Span kSpan>
HWY_INLINE VWords LoadWords(const std::byte* row) {
  const Words d;
#if HWY_TARGET != HWY_AVX2
  if constexpr (kSpan == Span::kTwoGroups) {
    return hn::TableLookupLanes(LoadBytes(d, row), hn::SetTableIndices(d, kInterleave));
  }
  if constexpr (kSpan == Span::kLastGroup) {
    return hn::ZeroExtendVector(d, LoadBytes(hn::Half<Words>(), row));
  }
#endif
  return LoadBytes(d, row);
}

// Fields (vectors of f32) kVector to kVector + kCount - 1 at `row`.
template <class Rows, Span kSpan, int kVector, int kCount, bool kInPlace>
HWY_INLINE void LoadVectors(const std::byte* row, VF32* codes) {
  if constexpr (Rows::kCodes) {
    const VWords mask = hn::Set(Words(), Rows::MaskOf(kInPlace, kVector));
    codes[0] = Rows::template Field<kInPlace, kVector>(LoadWords<kSpan>(row), mask);
  } else {
    codes[0] = LoadBytes(F32(), row + 4 * kLanes * kVector);
  }
  if constexpr (kCount > 1) {
    LoadVectors<Rows, kSpan, kVector + 1, kCount - 1, kInPlace>(row, codes + 1);
  }
}

// Broadcasts a group's number, or two groups' interleaved. Shapes: from (groups).
template <Span kSpan>
HWY_INLINE VF32 SetLanes(const float* from) {
  if constexpr (kSpan != Span::kTwoGroups) return hn::Set(F32(), *from);
  uint64_t two = 0;
  std::memcpy(&two, from, sizeof(two));
  return hn::BitCast(F32(), hn::Set(hn::Repartition<uint64_t, F32>(), two));
}

// Accumulates `count` tokens from token i on.
template <class Rows, int kWidth, Span kSpan, int kVector, bool kInPlace>
HWY_INLINE void AddTokens(const BlockRows& block, int64_t offset, const float* HWY_RESTRICT weights,
                          int64_t i, int64_t count, VF32* HWY_RESTRICT sum) {
  constexpr int kCount = kSumVectors<Rows>;
  constexpr int64_t kGroups = GroupsOf(kSpan);
  const std::byte* const* rows = block.rows + i;
  weights += kGroups * i;
  HWY_UNROLL(4)
  for (int64_t k = 0; k < count; ++k) {
    VF32 codes[kCount];
    LoadVectors<Rows, kSpan, kVector, kCount, kInPlace>(rows[k] + offset, codes);
    for (int h = 0; h < kWidth; ++h) {
      const VF32 weight = SetLanes<kSpan>(weights + kGroups * (h * kBlockTokens + k));
      for (int v = 0; v < kCount; ++v) {
        sum[h * kCount + v] = hn::MulAdd(codes[v], weight, sum[h * kCount + v]);
      }
    }
  }
}

// out = fl(fl(out factor) + part).
template <Span kSpan>
HWY_INLINE void AddToOut(VF32 part, VF32 factor, float* HWY_RESTRICT out) {
  const F32 d;
#if HWY_TARGET != HWY_AVX2
  if constexpr (kSpan == Span::kTwoGroups) {
    part = hn::TableLookupLanes(part, hn::SetTableIndices(d, kDeinterleave));
  }
  if constexpr (kSpan == Span::kLastGroup) {
    const hn::Half<F32> half;
    const auto kept = hn::Mul(hn::LoadU(half, out), hn::LowerHalf(half, factor));
    return hn::StoreU(hn::Add(kept, hn::LowerHalf(half, part)), half, out);
  }
#endif
  hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, out), factor), part), d, out);
}

// Vectors kVector and following of the row bytes at `offset`, kSumVectors at once.
// Shapes: out (kWidth, out_stride), from their first channel on.
template <class Rows, int kWidth, Span kSpan, int kVector, bool kInPlace>
HWY_INLINE void SumVectors(const BlockRows& block, int64_t offset,
                           const GroupWeights<kWidth>& group, const float* rescale,
                           Prefetcher& prefetcher, float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  constexpr int kCount = kSumVectors<Rows>;
  constexpr int64_t kHere = kSpan == Span::kLastGroup ? kChunkWords : kLanes;
  VF32 sum[kCount * kWidth];
  for (VF32& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + kPackedPrefetchTokens <= block.count; i += kPackedPrefetchTokens) {
    prefetcher.Step();
    AddTokens<Rows, kWidth, kSpan, kVector, kInPlace>(block, offset, group.weights, i,
                                                      kPackedPrefetchTokens, sum);
  }
  if (i < block.count) {
    prefetcher.Step();
    AddTokens<Rows, kWidth, kSpan, kVector, kInPlace>(block, offset, group.weights, i,
                                                      block.count - i, sum);
  }
  for (int h = 0; h < kWidth; ++h) {
    const VF32 factor = hn::Set(d, rescale[h]);
    float two[2] = {group.biases[h]};
    if constexpr (kSpan == Span::kTwoGroups) two[1] = group.biases[kWidth + h];
    const VF32 biases = SetLanes<kSpan>(two);
    for (int k = 0; k < kCount; ++k) {
      const int shift = kInPlace ? Rows::Shift(kVector + k) : 0;
      const VF32 unshift = hn::Set(d, 1.0f / static_cast<float>(1u << shift));
      // The power of two is exact: one rounding.
      const VF32 part = hn::MulAdd(sum[h * kCount + k], unshift, biases);
      AddToOut<kSpan>(part, factor, out + h * out_stride + k * kHere);
    }
  }
  if constexpr (kVector + kCount < Rows::kVectors) {
    SumVectors<Rows, kWidth, kSpan, kVector + kCount, kInPlace>(
        block, offset, group, rescale, prefetcher, out + kCount * kHere, out_stride);
  }
}

// Channels `first` to `end`, all in the groups of the weights.
template <class Rows, int kWidth, Span kSpan, bool kInPlace>
HWY_INLINE void SumChannels(const BlockRows& block, int64_t first, int64_t end,
                            const GroupWeights<kWidth>& group, const float* rescale,
                            Prefetcher& prefetcher, float* HWY_RESTRICT out, int64_t out_stride) {
  for (; first < end; first += Rows::kVectors * kLanes) {
    SumVectors<Rows, kWidth, kSpan, 0, kInPlace>(block, Rows::BytesOf(first), group, rescale,
                                                 prefetcher, out + first, out_stride);
  }
}

// A kernel's arguments, and its buffer of weights.
template <int kWidth>
struct PackedSumCall {
  const BlockRows& block;
  const float* weights;
  const float* rescale;
  float* out;
  int64_t out_stride;
  bool in_place;
  GroupWeights<kWidth>* group;
};

// The groups of a span, from group g on.
template <class Rows, int kWidth, Span kSpan>
HWY_INLINE void SumSpan(const PackedSumCall<kWidth>& call, int64_t g, Prefetcher& prefetcher) {
  WeighGroups<kWidth, GroupsOf(kSpan)>(call.block, call.weights, g, call.group);
  const int64_t first = g * call.block.group;
  const int64_t end = first + GroupsOf(kSpan) * call.block.group;
  if (Rows::kCodes && call.in_place) {
    SumChannels<Rows, kWidth, kSpan, Rows::kCodes>(
        call.block, first, end, *call.group, call.rescale, prefetcher, call.out, call.out_stride);
  } else {
    SumChannels<Rows, kWidth, kSpan, false>(call.block, first, end, *call.group, call.rescale,
                                            prefetcher, call.out, call.out_stride);
  }
}

template <class Rows, int kWidth>
void PackedSums(const BlockRows& block, const float* weights, const float* rescale, float* out,
                int64_t out_stride) {
  constexpr int64_t kChunk = Rows::kVectors * kLanes;
  const int64_t tokens = (block.count + kPackedPrefetchTokens - 1) / kPackedPrefetchTokens;
  const int64_t vectors = (block.dim + kChunk - 1) / kChunk * (Rows::kVectors / kSumVectors<Rows>);
  bool in_place = false;
  if constexpr (Rows::kCodes) {
    in_place = block.scales_in_range && WeightsInRange<kWidth>(weights, block.count);
  }
  Prefetcher prefetcher(block.prefetch, tokens * vectors);
  GroupWeights<kWidth> group;
  const PackedSumCall<kWidth> call = {block, weights, rescale, out, out_stride, in_place, &group};
  const int64_t groups = block.dim / block.group;
  int64_t g = 0;
  if constexpr (Rows::kCodes && kLanes == 16) {
    if (block.group < kChunk) {
      for (; g + 2 <= groups; g += 2) SumSpan<Rows, kWidth, Span::kTwoGroups>(call, g, prefetcher);
      if (g < groups) SumSpan<Rows, kWidth, Span::kLastGroup>(call, g, prefetcher);
      return;
    }
  }
  for (; g < groups; ++g) SumSpan<Rows, kWidth, Span::kGroup>(call, g, prefetcher);
}

// Codes to f32, in channel order.
template <class Codes>
void WidenPacked(const BlockRows& block, float* out, int64_t stride) {
  for (int64_t i = 0; i < block.count; ++i, out += stride) {
    for (int64_t c = 0; c < block.dim; c += kLanes) {
      hn::Store(Codes::Load(block.rows[i], c), F32(), out + c);
    }
  }
}

template <class Rows>
constexpr Widths<SumKernel> SumsOf() {
  return {PackedSums<Rows, 1>, PackedSums<Rows, kQuad>};
}

FactoredSums SumsOfPacked() {
  return {.of8 = {.sum = SumsOf<Packed8Rows>(), .widen = WidenPacked<Code8Rows>},
          .of4 = {.sum = SumsOf<Packed4Rows>(), .widen = WidenPacked<Code4Rows>},
          .of_widened = SumsOf<WidenedCodeRows>()};
}

#else

FactoredSums SumsOfPacked() { return {}; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(SumsOfPacked);
FactoredSums PackedSumKernels() { return HWY_DYNAMIC_DISPATCH(SumsOfPacked)(); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
