// P.V over planes of codes (packed_codes.h), where the instruction set has the vectors for them.

#include <cstdint>
#include <cstring>

#include "optimized/attention/kernel_table.h"
#include "optimized/attention/packed_codes.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

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

// Whose words a vector of codes has: one group's; with sixteen lanes also of two groups of eight
// words each, in turns, or of the last group of an odd number of them.
enum class Span { kGroup, kTwoGroups, kLastGroup };
constexpr int GroupsOf(Span span) { return span == Span::kTwoGroups ? 2 : 1; }

// Codes as f32, channel by channel.
struct PlaneFloatRows {
  static constexpr bool kCodes = false;
  static constexpr int kVectors = static_cast<int>(32 / kLanes);
  static constexpr int64_t BytesOf(int64_t channels) { return 4 * channels; }
  static constexpr int Shift(int) { return 0; }
};

// Weights times scales, and the sums of weights times biases: by token modulo N, then by halves.
template <int kWidth>
struct GroupWeights {
  // fl(p s), (kWidth, kBlockTokens); of two groups (kWidth, kBlockTokens, 2).
  HWY_ALIGN float weights[2 * kWidth * kBlockTokens];
  float biases[2 * kWidth];  // (groups, kWidth)
};

// Of kLanes tokens from token i on; kWhole: all of them are there.
template <int kWidth, int kGroups, bool kWhole>
HWY_INLINE void WeighTokens(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                            int64_t i, float* HWY_RESTRICT out, VF32* HWY_RESTRICT sum) {
  const F32 d;
  // What stands behind the last token may be anything.
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

// Of kGroups groups from group g on.
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
  StoreSums<kGroups * kWidth>(sum, out->biases);
}

// Whether codes may stay in place: then no product or sum leaves the normal numbers that would not
// leave them with codes shifted down, and the bits are the same. With scales between 2^-40 and 2^60
// that holds for weights from 2^-60 to 1: multiples of 2^-123, and sums of 64 below 2^98.
// Shapes: weights (kWidth, kBlockTokens).
template <int kWidth>
HWY_INLINE bool AreUsual(const float* weights, int64_t count) {
  // As integers, which order numbers from 0 on as they are; one less, so that 0 is the largest.
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

// Tokens between two steps of what is fetched ahead.
inline constexpr int64_t kPlaneFetchTokens = 16;

// Vectors that are summed at once: as many accumulators as hide the latency of a product and stay
// in registers with the codes.
template <class Rows>
inline constexpr int kSumVectors = kLanes == 16 ? HWY_MIN(4, Rows::kVectors) : 2;

#if HWY_TARGET != HWY_AVX2
// Of two groups of eight lanes, one after the other: lane by lane in turns, and back.
alignas(64) inline constexpr uint32_t kInTurns[16] = {0, 8,  1, 9,  2, 10, 3, 11,
                                                      4, 12, 5, 13, 6, 14, 7, 15};
alignas(64) inline constexpr uint32_t kInOrder[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                      1, 3, 5, 7, 9, 11, 13, 15};
#endif

template <Span kSpan>
HWY_INLINE VWords LoadWords(const std::byte* row) {
  const Words d;
#if HWY_TARGET != HWY_AVX2
  if constexpr (kSpan == Span::kTwoGroups) {
    return hn::TableLookupLanes(LoadBytes(d, row), hn::SetTableIndices(d, kInTurns));
  }
  if constexpr (kSpan == Span::kLastGroup) {
    return hn::ZeroExtendVector(d, LoadBytes(hn::Half<Words>(), row));
  }
#endif
  return LoadBytes(d, row);
}

// Vectors kVector to kVector + kCount - 1 of what stands at `row`.
template <class Rows, Span kSpan, int kVector, int kCount, bool kInPlace>
HWY_INLINE void LoadVectors(const std::byte* row, VF32* codes) {
  if constexpr (Rows::kCodes) {
    const VWords mask = hn::Set(Words(), Rows::MaskOf(kInPlace, kVector));
    codes[0] = Rows::template Plane<kInPlace, kVector>(LoadWords<kSpan>(row), mask);
  } else {
    codes[0] = LoadBytes(F32(), row + 4 * kLanes * kVector);
  }
  if constexpr (kCount > 1) {
    LoadVectors<Rows, kSpan, kVector + 1, kCount - 1, kInPlace>(row, codes + 1);
  }
}

// A number for all lanes, or of two groups two in turns. Shapes: from (groups).
template <Span kSpan>
HWY_INLINE VF32 SetLanes(const float* from) {
  if constexpr (kSpan != Span::kTwoGroups) return hn::Set(F32(), *from);
  uint64_t two = 0;
  std::memcpy(&two, from, sizeof(two));
  return hn::BitCast(F32(), hn::Set(hn::Repartition<uint64_t, F32>(), two));
}

// Adds what `count` tokens from token i on give.
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

// out = fl(fl(out factor) + part), of the lanes that there are.
template <Span kSpan>
HWY_INLINE void AddToOut(VF32 part, VF32 factor, float* HWY_RESTRICT out) {
  const F32 d;
#if HWY_TARGET != HWY_AVX2
  if constexpr (kSpan == Span::kTwoGroups) {
    part = hn::TableLookupLanes(part, hn::SetTableIndices(d, kInOrder));
  }
  if constexpr (kSpan == Span::kLastGroup) {
    const hn::Half<F32> half;
    const auto kept = hn::Mul(hn::LoadU(half, out), hn::LowerHalf(half, factor));
    return hn::StoreU(hn::Add(kept, hn::LowerHalf(half, part)), half, out);
  }
#endif
  hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, out), factor), part), d, out);
}

// kSumVectors vectors of those at `offset` from kVector on, and the following ones.
// Shapes: out (kWidth, out_stride), from the first of them on.
template <class Rows, int kWidth, Span kSpan, int kVector, bool kInPlace>
HWY_INLINE void SumVectors(const BlockRows& block, int64_t offset,
                           const GroupWeights<kWidth>& group, const float* rescale,
                           FetchInOrder& ahead, float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  constexpr int kCount = kSumVectors<Rows>;
  constexpr int64_t kHere = kSpan == Span::kLastGroup ? kChunkWords : kLanes;
  VF32 sum[kCount * kWidth];
  for (VF32& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + kPlaneFetchTokens <= block.count; i += kPlaneFetchTokens) {
    ahead.Step();
    AddTokens<Rows, kWidth, kSpan, kVector, kInPlace>(block, offset, group.weights, i,
                                                      kPlaneFetchTokens, sum);
  }
  if (i < block.count) {
    ahead.Step();
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
        block, offset, group, rescale, ahead, out + kCount * kHere, out_stride);
  }
}

// Channels `first` to `end`, of the groups of the weights.
template <class Rows, int kWidth, Span kSpan, bool kInPlace>
HWY_INLINE void SumChannels(const BlockRows& block, int64_t first, int64_t end,
                            const GroupWeights<kWidth>& group, const float* rescale,
                            FetchInOrder& ahead, float* HWY_RESTRICT out, int64_t out_stride) {
  for (; first < end; first += Rows::kVectors * kLanes) {
    SumVectors<Rows, kWidth, kSpan, 0, kInPlace>(block, Rows::BytesOf(first), group, rescale, ahead,
                                                 out + first, out_stride);
  }
}

// What a kernel is called with, and what it keeps from group to group.
template <int kWidth>
struct PlaneCall {
  const BlockRows& block;
  const float* weights;
  const float* rescale;
  float* out;
  int64_t out_stride;
  bool in_place;
  GroupWeights<kWidth>* group;
};

// Of the groups of a span, from group g on.
template <class Rows, int kWidth, Span kSpan>
HWY_INLINE void SumSpan(const PlaneCall<kWidth>& call, int64_t g, FetchInOrder& ahead) {
  WeighGroups<kWidth, GroupsOf(kSpan)>(call.block, call.weights, g, call.group);
  const int64_t first = g * call.block.group;
  const int64_t end = first + GroupsOf(kSpan) * call.block.group;
  if (Rows::kCodes && call.in_place) {
    SumChannels<Rows, kWidth, kSpan, Rows::kCodes>(call.block, first, end, *call.group,
                                                   call.rescale, ahead, call.out, call.out_stride);
  } else {
    SumChannels<Rows, kWidth, kSpan, false>(call.block, first, end, *call.group, call.rescale,
                                            ahead, call.out, call.out_stride);
  }
}

template <class Rows, int kWidth>
void PlaneSums(const BlockRows& block, const float* weights, const float* rescale, float* out,
               int64_t out_stride) {
  constexpr int64_t kChunk = Rows::kVectors * kLanes;
  const int64_t tokens = (block.count + kPlaneFetchTokens - 1) / kPlaneFetchTokens;
  const int64_t vectors = (block.dim + kChunk - 1) / kChunk * (Rows::kVectors / kSumVectors<Rows>);
  bool in_place = false;
  if constexpr (Rows::kCodes) {
    in_place = block.usual_scales && AreUsual<kWidth>(weights, block.count);
  }
  FetchInOrder ahead(block.ahead, tokens * vectors);
  GroupWeights<kWidth> group;
  const PlaneCall<kWidth> call = {block, weights, rescale, out, out_stride, in_place, &group};
  const int64_t groups = block.dim / block.group;
  int64_t g = 0;
  if constexpr (Rows::kCodes && kLanes == 16) {
    if (block.group < kChunk) {
      for (; g + 2 <= groups; g += 2) SumSpan<Rows, kWidth, Span::kTwoGroups>(call, g, ahead);
      if (g < groups) SumSpan<Rows, kWidth, Span::kLastGroup>(call, g, ahead);
      return;
    }
  }
  for (; g < groups; ++g) SumSpan<Rows, kWidth, Span::kGroup>(call, g, ahead);
}

// The codes as f32.
template <class Codes>
void WidenPlanes(const BlockRows& block, float* out, int64_t stride) {
  for (int64_t i = 0; i < block.count; ++i, out += stride) {
    for (int64_t c = 0; c < block.dim; c += kLanes) {
      hn::Store(Codes::Load(block.rows[i], c), F32(), out + c);
    }
  }
}

template <class Rows>
void FillPlaneSumsOf(RowKind kind, AttentionKernels* kernels) {
  FillWidths(kernels->sum[static_cast<int>(kind)], true, PlaneSums<Rows, 1>, PlaneSums<Rows, kQuad>,
             PlaneSums<Rows, 1>, PlaneSums<Rows, kQuad>);
}

void FillPlaneSums(bool, AttentionKernels* kernels) {
#define KVCHECK_PLANES(name, rows) FillPlaneSumsOf<rows>(RowKind::name, kernels);
  KVCHECK_ATTENTION_PLANE_KINDS(KVCHECK_PLANES)
#undef KVCHECK_PLANES
  kernels->widen[static_cast<int>(RowKind::kPlanes8)] = WidenPlanes<Code8Rows>;
  kernels->widen[static_cast<int>(RowKind::kPlanes4)] = WidenPlanes<Code4Rows>;
}

#else

void FillPlaneSums(bool, AttentionKernels*) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(FillPlaneSums);
void FillPlaneSumKernels(bool fused, AttentionKernels* kernels) {
  HWY_DYNAMIC_DISPATCH(FillPlaneSums)(fused, kernels);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
