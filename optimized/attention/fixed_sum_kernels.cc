// P.V over codes and weights in fixed point (fixed_point.h): four tokens of a channel per lane.

// As fixed_dot_kernels.cc.
#define HWY_WANT_AVX3_DL

#include <bit>
#include <cstdint>
#include <cstring>
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
  HWY_ALIGN uint32_t before[kWidth * kFourWords] = {};  // what the sums begin with
  float steps[kWidth];
  float biases[kWidth] = {};  // sums of weights times biases
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

// -offset times the sum of each part. Shapes: parts (kRowWords), before (kFourWords).
HWY_INLINE void SumParts(const uint32_t* HWY_RESTRICT parts, int32_t offset,
                         uint32_t* HWY_RESTRICT before) {
  const auto ones = reinterpret_cast<Sums32>(_mm512_set1_epi8(1));
  Sums32 sum{};
  for (int64_t v = 0; v < kRowWords; v += kLanes) AddProducts(ones, LoadWords32(parts + v), sum);
  const hn::Half<Words> half;
  const hn::Half<decltype(half)> four;
  const VWords all{reinterpret_cast<__m512i>(sum)};
  const auto two = hn::Add(hn::LowerHalf(half, all), hn::UpperHalf(half, all));
  const auto sums = hn::Add(hn::LowerHalf(four, two), hn::UpperHalf(four, two));
  hn::Store(hn::Mul(sums, hn::Set(four, static_cast<uint32_t>(-offset))), four, before);
}

// The weights of group g. Shapes: weights (kWidth, kBlockTokens).
template <int kWidth, bool kWhole, bool kBiases>
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
    const VF32 bias = kBiases ? load(block.biases + g * kBlockTokens) : hn::Zero(d);
    for (int h = 0; h < kWidth; ++h) {
      const VF32 p = load(weights + h * kBlockTokens);
      if constexpr (kBiases) sum[h] = hn::MulAdd(p, bias, sum[h]);
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
  if (block.code_offset != 0) {
    for (int h = 0; h < kWidth; ++h) {
      SumParts(out->parts + h * kRowWords, block.code_offset, out->before + h * kFourWords);
    }
  }
  if constexpr (kBiases) StoreHorizontalSums<kWidth>(sum, out->biases);
}

template <int kWidth, bool kWhole>
HWY_INLINE void WeighFixed(const BlockRows& block, const float* HWY_RESTRICT weights, int64_t g,
                           FixedWeights<kWidth>* HWY_RESTRICT out) {
  if (block.has_biases) return WeighFixed<kWidth, kWhole, true>(block, weights, g, out);
  WeighFixed<kWidth, kWhole, false>(block, weights, g, out);
}

// Transposes sixteen bytes of four rows: the four bytes of a channel in one word.
HWY_INLINE Sums32 JoinFour(const std::byte* const* rows, int64_t offset) {
  // From 16 r + i to 4 i + r.
  alignas(64) static constexpr uint8_t kByPlace[64] = {
      0,  16, 32, 48, 1,  17, 33, 49, 2,  18, 34, 50, 3,  19, 35, 51, 4,  20, 36, 52, 5,  21,
      37, 53, 6,  22, 38, 54, 7,  23, 39, 55, 8,  24, 40, 56, 9,  25, 41, 57, 10, 26, 42, 58,
      11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61, 14, 30, 46, 62, 15, 31, 47, 63};
  const __m512i all =
      LoadFourParts(rows[0] + offset, rows[1] + offset, rows[2] + offset, rows[3] + offset);
  return reinterpret_cast<Sums32>(_mm512_permutexvar_epi8(_mm512_load_si512(kByPlace), all));
}

// The same of thirty-two bytes, which are fewer loads, and of rows in blocks fewer that cross cache
// lines.
HWY_INLINE void JoinFourOfTwo(const std::byte* const* rows, int64_t offset,
                              VWords* HWY_RESTRICT to) {
  const auto load = [&](int r) HWY_ATTR {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[r] + offset));
  };
  const auto two = [&](int r) HWY_ATTR {
    return _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(load(r)), 0xf0, load(r + 1));
  };
  // From 32 r + i to 4 i + r, of the lower sixteen i.
  alignas(64) static constexpr uint8_t kByPlace[64] = {
      0,  32, 64, 96,  1,  33, 65, 97,  2,  34, 66, 98,  3,  35, 67, 99,
      4,  36, 68, 100, 5,  37, 69, 101, 6,  38, 70, 102, 7,  39, 71, 103,
      8,  40, 72, 104, 9,  41, 73, 105, 10, 42, 74, 106, 11, 43, 75, 107,
      12, 44, 76, 108, 13, 45, 77, 109, 14, 46, 78, 110, 15, 47, 79, 111};
  const __m512i low = two(0);
  const __m512i high = two(2);
  const __m512i place = _mm512_load_si512(kByPlace);
  to[0] = VWords{_mm512_permutex2var_epi8(low, place, high)};
  to[1] = VWords{_mm512_permutex2var_epi8(low, _mm512_add_epi8(place, _mm512_set1_epi8(16)), high)};
}

// Codes as stored, of four rows from byte Offset on: of kSumChannels channels from `channel` on, in
// group g. kEvenOdd: the even channels in one vector, the odd ones in the other.
template <FixedLayout kLayout>
struct StoredCodes {
  static constexpr bool kEvenOdd = kLayout == FixedLayout::kNibbles;
  static int64_t Offset(const BlockRows& block, int64_t g, int64_t channel) {
    const int64_t in_group = channel - g * block.group;
    return g * block.group_bytes + (IsNibbles(kLayout) ? in_group / 2 : in_group);
  }
  static HWY_INLINE void Load(const std::byte* const* rows, int64_t offset, Sums32* codes) {
    VWords of[kSumVectors];
    if constexpr (IsNibbles(kLayout)) {
      SplitCodes<kLayout>(VWords{reinterpret_cast<__m512i>(JoinFour(rows, offset))}, of);
    } else {
      VWords joined[kSumVectors];
      JoinFourOfTwo(rows, offset, joined);
      SplitCodes<kLayout>(joined[0], of);
      SplitCodes<kLayout>(joined[1], of + 1);
    }
    if constexpr (kLayout == FixedLayout::kFiveHalves) {
      const __m128i fifth = _mm_setr_epi32(Fifth(rows[0] + offset), Fifth(rows[1] + offset),
                                           Fifth(rows[2] + offset), Fifth(rows[3] + offset));
      of[0] = AddFifthBits(of[0], _mm512_broadcast_i32x4(fifth), 0);
      of[1] = AddFifthBits(of[1], _mm512_broadcast_i32x4(fifth), 2);
    }
    codes[0] = reinterpret_cast<Sums32>(of[0].raw);
    codes[1] = reinterpret_cast<Sums32>(of[1].raw);
  }

 private:
  // The word of fifth bits before the codes.
  static HWY_INLINE int32_t Fifth(const std::byte* codes) {
    int32_t word = 0;
    std::memcpy(&word, codes - sizeof(word), sizeof(word));
    return word;
  }
  // Of sixteen channels, whose bits begin with byte `first` of each row's word.
  static HWY_INLINE VWords AddFifthBits(VWords codes, __m512i fifth, int first) {
    // Of channel c and row r byte 4 r + c / 8.
    const __m512i place =
        _mm512_mask_blend_epi64(0xf0, _mm512_set1_epi32(0x0c080400), _mm512_set1_epi32(0x0d090501));
    alignas(64) static constexpr uint32_t kBit[16] = {
        0x01010101, 0x02020202, 0x04040404, 0x08080808, 0x10101010, 0x20202020,
        0x40404040, 0x80808080, 0x01010101, 0x02020202, 0x04040404, 0x08080808,
        0x10101010, 0x20202020, 0x40404040, 0x80808080};
    const __m512i bytes = _mm512_shuffle_epi8(
        fifth, _mm512_add_epi8(place, _mm512_set1_epi8(static_cast<char>(first))));
    const __mmask64 is_set = _mm512_test_epi8_mask(bytes, _mm512_load_si512(kBit));
    return VWords{_mm512_mask_add_epi8(codes.raw, is_set, codes.raw, _mm512_set1_epi8(16))};
  }
};
// As JoinCodes leaves them, at the address of the first of four rows.
struct JoinedRows {
  static constexpr bool kEvenOdd = false;
  static int64_t Offset(const BlockRows&, int64_t, int64_t channel) {
    return kFixedCodes * channel;
  }
  static HWY_INLINE void Load(const std::byte* const* rows, int64_t offset, Sums32* codes) {
    codes[0] = LoadWords32(rows[0] + offset);
    codes[1] = LoadWords32(rows[0] + offset + kFixedCodes * kLanes);
  }
};

// out[h] = fl(fl(out[h] rescale[h]) + part of row h), from row kRow on. Shapes: sum (kWidth,
// kFixedParts, kSumVectors), out (kWidth, out_stride).
template <bool kEvenOdd, int kWidth, int kRow = 0>
HWY_INLINE void AddRows(const Sums32* HWY_RESTRICT sum, const FixedWeights<kWidth>& group,
                        const float* rescale, float* HWY_RESTRICT out, int64_t out_stride) {
  const F32 d;
  const Sums32* of = sum + kRow * static_cast<int>(kFixedParts) * kSumVectors;
  const VF32 step = hn::Set(d, group.steps[kRow]);
  const VF32 bias = hn::Set(d, group.biases[kRow]);
  // The power of two is exact: one rounding.
  VF32 first = hn::MulAdd(JoinParts<kSumVectors>(of), step, bias);
  VF32 second = hn::MulAdd(JoinParts<kSumVectors>(of + 1), step, bias);
  if constexpr (kEvenOdd) {
    HWY_ALIGN float in_order[kSumChannels];
    hn::StoreInterleaved2(first, second, d, in_order);
    first = hn::Load(d, in_order);
    second = hn::Load(d, in_order + kLanes);
  }
  const VF32 factor = hn::Set(d, rescale[kRow]);
  hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, out), factor), first), d, out);
  hn::StoreU(hn::Add(hn::Mul(hn::LoadU(d, out + kLanes), factor), second), d, out + kLanes);
  if constexpr (kRow + 1 < kWidth) {
    AddRows<kEvenOdd, kWidth, kRow + 1>(sum, group, rescale, out + out_stride, out_stride);
  }
}

// kSumChannels channels of one group, at byte `offset` of the rows. Shapes: rows (fours,
// kFixedCodes), out (kWidth, out_stride), from the first channel on.
template <class Rows, int kWidth>
HWY_INLINE void SumFixed(const std::byte* const* rows, int64_t fours, int64_t offset,
                         const FixedWeights<kWidth>& group, const float* rescale,
                         Prefetcher& prefetcher, float* HWY_RESTRICT out, int64_t out_stride) {
  Sums32 sum[kWidth * static_cast<int>(kFixedParts) * kSumVectors];
  BeginSums<kSumVectors, kWidth, kFourWords>(group.before, sum);
  const uint32_t* parts = group.parts;
  for (int64_t f = 0; f < fours; ++f, rows += kFixedCodes, parts += kFourWords) {
    if (f % kPrefetchFours == 0) prefetcher.Step();
    Sums32 codes[kSumVectors];
    Rows::Load(rows, offset, codes);
    AddParts<kSumVectors, kWidth, kRowWords>(codes, parts, sum);
  }
  AddRows<Rows::kEvenOdd, kWidth>(sum, group, rescale, out, out_stride);
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
  // Weights of several groups at once: a group's step is a long chain of dependent operations,
  // which those of other groups hide.
  constexpr int64_t kGroups = 4;
  FixedWeights<kWidth> of[kGroups];
  const int64_t groups = block.dim / block.group;
  for (int64_t first = 0; first < groups; first += kGroups) {
    const int64_t end = HWY_MIN(first + kGroups, groups);
    for (int64_t g = first; g < end; ++g) {
      if (block.count == kBlockTokens) {
        WeighFixed<kWidth, true>(block, weights, g, &of[g - first]);
      } else {
        WeighFixed<kWidth, false>(block, weights, g, &of[g - first]);
      }
    }
    for (int64_t c = first * block.group; c < end * block.group; c += kSumChannels) {
      const int64_t g = c / block.group;
      SumFixed<Rows, kWidth>(four.rows, fours, Rows::Offset(block, g, c), of[g - first], rescale,
                             prefetcher, out + c, out_stride);
    }
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
      Rows::Load(four.rows + i, Rows::Offset(block, c / block.group, c), codes);
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

template <FixedLayout kLayout>
constexpr FactoredSums::Codes FixedSumsOfLayout() {
  return {.sum = FixedSumsOfRows<StoredCodes<kLayout>>(), .widen = JoinCodes<StoredCodes<kLayout>>};
}

FactoredSums SumsOfFixed() {
  return {.of8 = FixedSumsOfLayout<FixedLayout::kBytes>(),
          .of4 = FixedSumsOfLayout<FixedLayout::kNibbles>(),
          .of_signed8 = FixedSumsOfLayout<FixedLayout::kSignedBytes>(),
          .of_halves4 = FixedSumsOfLayout<FixedLayout::kHalves>(),
          .of_table4 = FixedSumsOfLayout<FixedLayout::kTableHalves>(),
          .of_halves5 = FixedSumsOfLayout<FixedLayout::kFiveHalves>(),
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
