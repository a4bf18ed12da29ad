// P.V over codes and weights in fixed point (fixed_point.h): four tokens of a channel per lane.

// As fixed_dot_kernels.cc.
#define HWY_WANT_AVX3_DL

#include <bit>
#include <cstdint>
#include <limits>

#include "optimized/attention/fixed_point.h"
#include "optimized/attention/kernel_table.h"
#include "optimized/attention/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/attention/fixed_sum_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/attention/fixed_point-inl.h"
#include "optimized/attention/horizontal_sum-inl.h"
#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_FIXED_POINT

inline constexpr int64_t kFours = kBlockTokens / kFixedCodes;
inline constexpr int64_t kBlockVectors = kBlockTokens / kLanes;
inline constexpr int kSumVectors = 2;
// Channels summed at once, one per lane.
inline constexpr int64_t kSumChannels = kSumVectors * kLanes;
// Fours a step of the prefetcher.
inline constexpr int64_t kPrefetchFours = 4;

// The weights of a group. A row has a word a part for each four tokens, and one of padding.
inline constexpr int64_t kFourWords = 4;
inline constexpr int64_t kRowWords = kFours * kFourWords;
template <int kWidth>
struct FixedWeights {
  HWY_ALIGN uint32_t parts[kWidth * kRowWords];
  float steps[kWidth];
  float biases[kWidth];  // sums of weights times biases
};

// Absolute values as integers, which order them, with infinity and NaN above all. Shapes: w
// (kBlockVectors).
HWY_INLINE VWords LargestOf(const VF32* w) {
  static_assert(kBlockVectors == 4);
  const Words d;
  const auto size = [&](int v) HWY_ATTR { return hn::BitCast(d, hn::Abs(w[v])); };
  return hn::Max(hn::Max(size(0), size(1)), hn::Max(size(2), size(3)));
}

// FixedStepOf of each row. Shapes: largest (kWidth), by lane; to (kWidth).
struct Steps {
  float lift[kQuad], inverse[kQuad], step[kQuad];
  bool any_lift;
};
template <int kWidth>
HWY_INLINE void StepsOf(const VWords* largest, Steps* HWY_RESTRICT to) {
  const Words d;
  if constexpr (kWidth == 1) {
    const uint32_t bits = hn::GetLane(hn::MaxOfLanes(d, largest[0]));
    const FixedStep step = FixedStepOf(std::bit_cast<float>(bits));
    to->lift[0] = step.lift;
    to->inverse[0] = step.inverse;
    to->step[0] = step.step;
    to->any_lift = step.lift != 1;
  } else {
    const hn::Repartition<uint64_t, Words> pairs;
    const auto both = [&](VWords a, VWords b) HWY_ATTR {
      return hn::BitCast(pairs,
                         hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
    };
    const auto rows01 = both(largest[0], largest[1]);
    const auto rows23 = both(largest[2], largest[3]);
    // One row a lane, repeated in each 128-bit part.
    const auto rows = hn::Max(hn::BitCast(d, hn::InterleaveLower(pairs, rows01, rows23)),
                              hn::BitCast(d, hn::InterleaveUpper(pairs, rows01, rows23)));
    const hn::Half<Words> half;
    const hn::Half<decltype(half)> du;
    const hn::RebindToFloat<decltype(du)> df;
    const auto two = hn::Max(hn::LowerHalf(half, rows), hn::UpperHalf(half, rows));
    const auto bits = hn::Max(hn::LowerHalf(du, two), hn::UpperHalf(du, two));
    const auto size = hn::BitCast(df, bits);
    const auto one = hn::Set(df, 1.0f);
    const auto zero = hn::Eq(size, hn::Zero(df));
    const auto tiny = hn::AndNot(zero, hn::Lt(size, hn::Set(df, 0x1p-100f)));
    const auto lift = hn::IfThenElse(tiny, hn::Set(df, 0x1p100f), one);
    auto exponent =
        hn::ShiftRight<23>(hn::BitCast(du, hn::Mul(hn::Mul(size, lift), hn::Set(df, 0x1.018p0f))));
    exponent = hn::Max(exponent, hn::IfThenElseZero(hn::RebindMask(du, tiny), hn::Set(du, 100u)));
    const auto inverse = hn::ShiftLeft<23>(hn::Sub(hn::Set(du, 276u), exponent));
    const auto step =
        hn::Mul(hn::BitCast(df, hn::ShiftLeft<23>(hn::Sub(exponent, hn::Set(du, 22u)))),
                hn::IfThenElse(tiny, hn::Set(df, 0x1p-100f), one));
    const auto finite = hn::RebindMask(df, hn::Lt(bits, hn::Set(du, 0x7f800000u)));
    const auto nan = hn::Set(df, std::numeric_limits<float>::quiet_NaN());
    hn::StoreU(lift, df, to->lift);
    hn::StoreU(hn::BitCast(df, inverse), df, to->inverse);
    hn::StoreU(hn::IfThenElse(finite, hn::IfThenElse(zero, one, step), nan), df, to->step);
    to->any_lift = !hn::AllFalse(df, tiny);
  }
}

// Weights times scales of one row as integers. Shapes: w (kBlockVectors), zeros past the last
// token; parts (kRowWords).
HWY_INLINE void RoundWeights(const VF32* w, float inverse, uint32_t* HWY_RESTRICT parts) {
  const Words du;
  const hn::Repartition<uint8_t, F32> d8;
  // Transposes four integers: byte b to word b.
  alignas(64) static constexpr uint8_t kByParts[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                       2, 6, 10, 14, 3, 7, 11, 15};
  const auto prefixes = hn::LoadDup128(d8, kByParts);
  const VF32 factor = hn::Set(F32(), inverse);
  const auto signs = hn::Set(du, 0x808080u);
  for (int64_t v = 0; v < kBlockVectors; ++v) {
    const auto n = hn::BitCast(du, hn::NearestInt(hn::Mul(w[v], factor)));
    const auto bytes = hn::Xor(hn::Add(n, signs), signs);
    hn::Store(hn::BitCast(du, hn::TableLookupBytes(hn::BitCast(d8, bytes), prefixes)), du,
              parts + v * kLanes);
  }
}

// The weights of group g. Shapes: weights (kWidth, kBlockTokens).
template <int kWidth, bool kWhole>
HWY_INLINE void WeighFixed(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                           FixedWeights<kWidth>* HWY_RESTRICT out) {
  const F32 d;
  VF32 sum[kWidth];
  VF32 w[kWidth * kBlockVectors];
  VWords largest[kWidth];
  for (int h = 0; h < kWidth; ++h) sum[h] = hn::Zero(d);
  for (int64_t v = 0; v < kBlockVectors; ++v) {
    // Elements past `count` are undefined.
    const auto here =
        hn::FirstN(d, static_cast<size_t>(HWY_MAX(int64_t{0}, block.count - v * kLanes)));
    const auto load = [&](const float* from) HWY_ATTR {
      const VF32 all = hn::LoadU(d, from + v * kLanes);
      return kWhole ? all : hn::IfThenElseZero(here, all);
    };
    const VF32 scale = load(block.scales + g * kBlockTokens);
    const VF32 bias = load(block.biases + g * kBlockTokens);
    for (int h = 0; h < kWidth; ++h) {
      const VF32 p = load(weights + h * kBlockTokens);
      sum[h] = hn::MulAdd(p, bias, sum[h]);
      w[h * kBlockVectors + v] = hn::Mul(p, scale);
    }
  }
  for (int h = 0; h < kWidth; ++h) largest[h] = LargestOf(w + h * kBlockVectors);
  Steps steps;
  StepsOf<kWidth>(largest, &steps);
  for (int h = 0; h < kWidth; ++h) {
    if (HWY_UNLIKELY(steps.any_lift)) {
      for (int64_t v = 0; v < kBlockVectors; ++v) {
        w[h * kBlockVectors + v] = hn::Mul(w[h * kBlockVectors + v], hn::Set(d, steps.lift[h]));
      }
    }
    RoundWeights(w + h * kBlockVectors, steps.inverse[h], out->parts + h * kRowWords);
    out->steps[h] = steps.step[h];
  }
  StoreHorizontalSums<kWidth>(sum, out->biases);
}

// Transposes sixteen bytes of four rows: the four bytes of a channel in one word.
HWY_INLINE Sums32 JoinFour(const std::byte* const* rows, int64_t offset) {
  // From 16 r + i to 4 i + r.
  alignas(64) static constexpr uint8_t kByPlace[64] = {
      0,  16, 32, 48, 1,  17, 33, 49, 2,  18, 34, 50, 3,  19, 35, 51, 4,  20, 36, 52, 5,  21,
      37, 53, 6,  22, 38, 54, 7,  23, 39, 55, 8,  24, 40, 56, 9,  25, 41, 57, 10, 26, 42, 58,
      11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61, 14, 30, 46, 62, 15, 31, 47, 63};
  const auto load = [&](int r) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + offset));
  };
  __m512i all = _mm512_castsi128_si512(load(0));
  all = _mm512_inserti32x4(all, load(1), 1);
  all = _mm512_inserti32x4(all, load(2), 2);
  all = _mm512_inserti32x4(all, load(3), 3);
  return reinterpret_cast<Sums32>(_mm512_permutexvar_epi8(_mm512_load_si512(kByPlace), all));
}

// Codes from `channel` on of four rows as stored. kEvenOdd: the even channels in one vector, the
// odd ones in the other.
struct Fixed8Rows {
  static constexpr bool kEvenOdd = false;
  static HWY_INLINE void Load(const std::byte* const* rows, int64_t channel, Sums32* codes) {
    codes[0] = JoinFour(rows, channel);
    codes[1] = JoinFour(rows, channel + kLanes);
  }
};
struct Fixed4Rows {
  static constexpr bool kEvenOdd = true;
  static HWY_INLINE void Load(const std::byte* const* rows, int64_t channel, Sums32* codes) {
    const auto lower = reinterpret_cast<Sums32>(_mm512_set1_epi8(0x0f));
    const Sums32 both = JoinFour(rows, channel / 2);
    codes[0] = both & lower;
    codes[1] = (both >> 4) & lower;
  }
};
// As JoinCodes leaves them, at the address of the first of four rows.
struct JoinedRows {
  static constexpr bool kEvenOdd = false;
  static HWY_INLINE void Load(const std::byte* const* rows, int64_t channel, Sums32* codes) {
    codes[0] = LoadWords32(rows[0] + kFixedCodes * channel);
    codes[1] = LoadWords32(rows[0] + kFixedCodes * (channel + kLanes));
  }
};

// kSumChannels channels of one group from `channel` on. Shapes: rows (fours, kFixedCodes), out
// (kWidth, out_stride), from the first channel on.
template <class Rows, int kWidth>
HWY_INLINE void SumFixed(const std::byte* const* rows, int64_t fours, int64_t channel,
                         const FixedWeights<kWidth>& group, const float* rescale,
                         Prefetcher& prefetcher, float* HWY_RESTRICT out, int64_t out_stride) {
  constexpr int kSums = kWidth * static_cast<int>(kFixedParts) * kSumVectors;
  HWY_ALIGN int32_t sums[kSums * kLanes];
  {
    Sums32 sum[kSums];
    ClearSums<kSums>(sum);
    const uint32_t* parts = group.parts;
    for (int64_t f = 0; f < fours; ++f, rows += kFixedCodes, parts += kFourWords) {
      if (f % kPrefetchFours == 0) prefetcher.Step();
      Sums32 codes[kSumVectors];
      Rows::Load(rows, channel, codes);
      AddParts<kSumVectors, kWidth, kRowWords>(codes, parts, sum);
    }
    StoreSums32<kSums>(sum, sums);
  }
  const F32 d;
  for (int h = 0; h < kWidth; ++h) {
    const int32_t* of = sums + h * kFixedParts * kSumVectors * kLanes;
    const VF32 step = hn::Set(d, group.steps[h]);
    const VF32 bias = hn::Set(d, group.biases[h]);
    // The power of two is exact: one rounding.
    VF32 part[kSumVectors];
    part[0] = hn::MulAdd(JoinParts<kSumVectors>(of), step, bias);
    part[1] = hn::MulAdd(JoinParts<kSumVectors>(of + kLanes), step, bias);
    HWY_ALIGN float in_order[kSumChannels];
    if constexpr (Rows::kEvenOdd) {
      hn::StoreInterleaved2(part[0], part[1], d, in_order);
      part[0] = hn::Load(d, in_order);
      part[1] = hn::Load(d, in_order + kLanes);
    }
    const VF32 factor = hn::Set(d, rescale[h]);
    float* to = out + h * out_stride;
    for (int64_t v = 0; v < kSumVectors; ++v, to += kLanes) {
      hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, to), factor), part[v]), d, to);
    }
  }
}

// The rows of a block in whole fours: the last row is repeated, with a weight of zero.
struct FourRows {
  explicit FourRows(const BlockRows& block) {
    if (block.count % kFixedCodes == 0) {
      rows = block.rows;
      return;
    }
    const int64_t count = (block.count + kFixedCodes - 1) / kFixedCodes * kFixedCodes;
    for (int64_t i = 0; i < count; ++i) last[i] = block.rows[HWY_MIN(i, block.count - 1)];
    rows = last;
  }
  const std::byte* const* rows;
  const std::byte* last[kBlockTokens];
};

template <class Rows, int kWidth>
void FixedSumsOf(const BlockRows& block, const float* weights, const float* rescale, float* out,
                 int64_t out_stride) {
  const FourRows four(block);
  const int64_t fours = (block.count + kFixedCodes - 1) / kFixedCodes;
  Prefetcher prefetcher(block.prefetch,
                        block.dim / kSumChannels * ((fours + kPrefetchFours - 1) / kPrefetchFours));
  FixedWeights<kWidth> group;
  for (int64_t c = 0; c < block.dim; c += kSumChannels) {
    if (c % block.group == 0) {
      const int64_t g = c / block.group;
      if (block.count == kBlockTokens) {
        WeighFixed<kWidth, true>(block, weights, g, &group);
      } else {
        WeighFixed<kWidth, false>(block, weights, g, &group);
      }
    }
    SumFixed<Rows, kWidth>(four.rows, fours, c, group, rescale, prefetcher, out + c, out_stride);
  }
}

// Interleaves four rows, one byte a channel of each, at the place of the first of them. stride: dim
// / 4 floats.
template <class Rows>
void JoinCodes(const BlockRows& block, float* out, int64_t stride) {
  const FourRows four(block);
  auto* to = reinterpret_cast<uint32_t*>(out);
  const Words d;
  for (int64_t i = 0; i < block.count; i += kFixedCodes, to += kFixedCodes * stride) {
    for (int64_t c = 0; c < block.dim; c += kSumChannels) {
      Sums32 codes[kSumVectors];
      Rows::Load(four.rows + i, c, codes);
      const VWords first{reinterpret_cast<__m512i>(codes[0])};
      const VWords second{reinterpret_cast<__m512i>(codes[1])};
      if constexpr (Rows::kEvenOdd) {
        hn::StoreInterleaved2(first, second, d, to + c);
      } else {
        hn::StoreU(first, d, to + c);
        hn::StoreU(second, d, to + c + kLanes);
      }
    }
  }
}

template <class Rows>
constexpr Widths<SumKernel> FixedSumsOfRows() {
  return {FixedSumsOf<Rows, 1>, FixedSumsOf<Rows, kQuad>};
}

FactoredSums SumsOfFixed() {
  return {.of8 = {.sum = FixedSumsOfRows<Fixed8Rows>(), .widen = JoinCodes<Fixed8Rows>},
          .of4 = {.sum = FixedSumsOfRows<Fixed4Rows>(), .widen = JoinCodes<Fixed4Rows>},
          .of_widened = FixedSumsOfRows<JoinedRows>()};
}

#else

FactoredSums SumsOfFixed() { return {}; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(SumsOfFixed);
FactoredSums FixedSumKernels() { return HWY_DYNAMIC_DISPATCH(SumsOfFixed)(); }

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
