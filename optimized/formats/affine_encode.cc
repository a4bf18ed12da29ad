// Affine rows from numbers. Groups are taken sixteen at a time, across vectors: their largest and
// smallest elements are found lane by lane and turned into one lane per group, so that scales and
// biases of the sixteen come from one sequence of vector operations. While those are under way the
// codes of the sixteen before are computed.
//
// Definition, every step one f32 operation, to nearest even:
//   mx, mn = largest and smallest of the group, NaN skipped
//   s = max((mx - mn) / n, 1e-7);  edge = mn if |mn| > |mx|, else edge = mx and s = -s
//   k = round(edge / s);  if k != 0: s = edge / k, bias = edge; else bias = 0
//   c = clamp(round((x - bias) / s), 0, n), NaN 0
// Source: MLX 0.32.4, mlx/backend/cpu/quantized.cpp; reference/formats/formats.md, section A.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/affine_encode.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/narrow-inl.h"
#include "optimized/formats/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kvcheck::HWY_NAMESPACE;  // NOLINT

constexpr int kLargestGroup = 128;
constexpr int kChunk = 16;  // groups
constexpr int kMostLanes = 8;
using Lanes = HWY_CAPPED(float, kMostLanes);
using LaneVec = hn::Vec<Lanes>;
// Whether hn::MulAdd rounds once.
constexpr bool kFused = HWY_NATIVE_FMA != 0;

// A comparison with NaN is false, and `so_far` stays: NaN is skipped. That is what the instructions
// of x86 do. Which of two zeros wins changes nothing.
HWY_INLINE LaneVec Larger(LaneVec v, LaneVec so_far) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(v, so_far);
#else
  return hn::IfThenElse(hn::Gt(v, so_far), v, so_far);
#endif
}
HWY_INLINE LaneVec Smaller(LaneVec v, LaneVec so_far) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Min(v, so_far);
#else
  return hn::IfThenElse(hn::Lt(v, so_far), v, so_far);
#endif
}

// Groups under way. Where values need no rounding they stay where they came from.
struct Chunk {
  HWY_ALIGN float most[kChunk * kMostLanes];  // of each group, by lane
  HWY_ALIGN float least[kChunk * kMostLanes];
  HWY_ALIGN float scale[kChunk];
  HWY_ALIGN float bias[kChunk];
  HWY_ALIGN float inverse[kChunk];
  HWY_ALIGN float values[kChunk * kLargestGroup];
  const std::byte* x[kChunk];        // as they came
  const std::byte* numbers[kChunk];  // f32
  std::byte* codes[kChunk];
  int64_t scale_at[kChunk];  // bytes from the call's first scale
  int count = 0;
  bool divides = false;  // by a scale whose inverse will not do
};

// Walks over the groups of a call, vector by vector.
class Cursor {
 public:
  Cursor(const EncodeCall& call, int64_t group, int64_t x_bytes, int64_t code_bytes,
         int64_t scale_bytes)
      : group_x_(group * x_bytes),
        group_codes_(code_bytes),
        group_scales_(scale_bytes),
        groups_(call.dim / group),
        next_x_(call.x_stride - groups_ * group_x_),
        next_codes_(call.out.code_stride - groups_ * group_codes_),
        next_scales_(call.out.scale_stride - groups_ * group_scales_),
        x_(call.x),
        codes_(call.out.codes),
        group_(groups_),
        left_(call.count * groups_) {}

  // Whether the scales of a chunk follow each other.
  bool scales_adjoin() const { return next_scales_ == 0; }

  void Fill(Chunk* chunk) {
    const int count = static_cast<int>(std::min<int64_t>(kChunk, left_));
    chunk->count = count;
    left_ -= count;
    const std::byte* x = x_;
    std::byte* codes = codes_;
    int64_t scales = scales_;
    int64_t group = group_;
    for (int i = 0; i < count; ++i) {
      chunk->x[i] = x;
      chunk->codes[i] = codes;
      chunk->scale_at[i] = scales;
      x += group_x_;
      codes += group_codes_;
      scales += group_scales_;
      if (--group > 0) continue;
      group = groups_;
      x += next_x_;
      codes += next_codes_;
      scales += next_scales_;
    }
    x_ = x;
    codes_ = codes;
    scales_ = scales;
    group_ = group;
  }

 private:
  const int64_t group_x_, group_codes_, group_scales_;  // bytes
  const int64_t groups_;                                // of a vector
  const int64_t next_x_, next_codes_, next_scales_;     // bytes from the end of a vector
  const std::byte* x_;
  std::byte* codes_;
  int64_t scales_ = 0;
  int64_t group_, left_;
};

// Values of a chunk as f32, rounded to the scale's type (f32: not), and their extremes by lane.
template <DType kFrom, DType kRound>
void ReadChunk(int group, Chunk* chunk) {
  const Lanes d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  constexpr int kSize = kFrom == DType::kFloat32 ? 4 : 2;
  constexpr bool kInPlace = kFrom == DType::kFloat32 && kRound == DType::kFloat32;
  for (int g = 0; g < chunk->count; ++g) {
    const std::byte* x = chunk->x[g];
    float* values = chunk->values + g * group;
    chunk->numbers[g] = kInPlace ? x : reinterpret_cast<const std::byte*>(values);
    auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto least = hn::Set(d, std::numeric_limits<float>::infinity());
    auto most2 = most;
    auto least2 = least;
    for (int i = 0; i < group; i += 2 * lanes) {
      const auto v = RoundLanes<kRound>(d, LoadLanes<kFrom>(d, x + kSize * i));
      const auto w = RoundLanes<kRound>(d, LoadLanes<kFrom>(d, x + kSize * (i + lanes)));
      if constexpr (!kInPlace) {
        hn::Store(v, d, values + i);
        hn::Store(w, d, values + i + lanes);
      }
      most = Larger(v, most);
      least = Smaller(v, least);
      most2 = Larger(w, most2);
      least2 = Smaller(w, least2);
    }
    hn::Store(Larger(most2, most), d, chunk->most + g * lanes);
    hn::Store(Smaller(least2, least), d, chunk->least + g * lanes);
  }
  // Vectors of the last groups are whole.
  for (int g = chunk->count; g % lanes != 0; ++g) {
    hn::Store(hn::Zero(d), d, chunk->most + g * lanes);
    hn::Store(hn::Zero(d), d, chunk->least + g * lanes);
  }
}

// The other types, one value at a time: of f64 rounded once, also where the scale's type is
// narrower.
void WidenGroup(DType from, DType scale, const std::byte* x, int group, float* values) {
  for (int i = 0; i < group; ++i) {
    if (from == DType::kFloat64) {
      double value = 0;
      std::memcpy(&value, x + 8 * i, 8);
      values[i] = scale == DType::kFloat32 ? static_cast<float>(value)
                                           : std::bit_cast<float>(OddF32FromF64(value));
      continue;
    }
    const auto code = static_cast<uint8_t>(x[i]);
    values[i] =
        std::bit_cast<float>(from == DType::kFloat8E4M3FN ? F32FromE4M3(code) : F32FromE5M2(code));
  }
}

template <DType kRound>
void ReadOther(DType from, int group, Chunk* chunk) {
  for (int g = 0; g < chunk->count; ++g) {
    float* values = chunk->values + g * group;
    WidenGroup(from, kRound, chunk->x[g], group, values);
    chunk->x[g] = reinterpret_cast<const std::byte*>(values);
  }
  ReadChunk<DType::kFloat32, kRound>(group, chunk);
}

// Rows are rounded to the scale's type before anything else; of that type they are already.
template <DType kScale>
HWY_INLINE void Read(DType from, int group, Chunk* chunk) {
  switch (from) {
    case DType::kFloat32:
      return ReadChunk<DType::kFloat32, kScale>(group, chunk);
    case DType::kFloat16:
      return ReadChunk < DType::kFloat16,
             kScale == DType::kFloat16 ? DType::kFloat32 : kScale > (group, chunk);
    case DType::kBFloat16:
      return ReadChunk < DType::kBFloat16,
             kScale == DType::kBFloat16 ? DType::kFloat32 : kScale > (group, chunk);
    default:
      return ReadOther<kScale>(from, group, chunk);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four vectors, one a group, to the extremes of each 128-bit block: lane i of a block is group i.
template <class Pick>
HWY_INLINE LaneVec BlocksOfFour(Lanes d, const float* HWY_RESTRICT by_lane, Pick pick) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<Lanes>> d64;
  const size_t lanes = hn::Lanes(d);
  const auto a = hn::Load(d, by_lane);
  const auto b = hn::Load(d, by_lane + lanes);
  const auto c = hn::Load(d, by_lane + 2 * lanes);
  const auto e = hn::Load(d, by_lane + 3 * lanes);
  const auto ab =
      hn::BitCast(d64, pick(hn::InterleaveUpper(d, a, b), hn::InterleaveLower(d, a, b)));
  const auto ce =
      hn::BitCast(d64, pick(hn::InterleaveUpper(d, c, e), hn::InterleaveLower(d, c, e)));
  return pick(hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)),
              hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)));
}
#endif

struct PickLarger {
  HWY_INLINE LaneVec operator()(LaneVec a, LaneVec b) const { return Larger(a, b); }
};
struct PickSmaller {
  HWY_INLINE LaneVec operator()(LaneVec a, LaneVec b) const { return Smaller(a, b); }
};

// Extremes of as many groups as there are lanes, from those by lane.
template <size_t kLanes, class Pick>
HWY_INLINE LaneVec ByGroup(Lanes d, const float* HWY_RESTRICT by_lane, Pick pick) {
#if HWY_TARGET == HWY_SCALAR
  (void)pick;
  return hn::Load(d, by_lane);
#else
  const auto low = BlocksOfFour(d, by_lane, pick);
  if constexpr (kLanes == 4) {
    return low;
  } else {
    const auto high = BlocksOfFour(d, by_lane + 4 * kLanes, pick);
    return pick(hn::ConcatUpperUpper(d, high, low), hn::ConcatLowerLower(d, high, low));
  }
#endif
}

// Scales and biases of a chunk, in f32.
HWY_INLINE void Scales(float n, Chunk* chunk) {
  const Lanes d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto smallest = hn::Set(d, 1e-7f);
  bool divides = !kFused;
  for (int g = 0; g < chunk->count; g += lanes) {
    const auto mx = ByGroup<hn::MaxLanes(Lanes())>(d, chunk->most + g * lanes, PickLarger());
    const auto mn = ByGroup<hn::MaxLanes(Lanes())>(d, chunk->least + g * lanes, PickSmaller());
    const auto step = hn::Div(hn::Sub(mx, mn), hn::Set(d, n));
    const auto floor = hn::IfThenElse(hn::Lt(step, smallest), smallest, step);  // a NaN step stays
    const auto is_low = hn::Gt(hn::Abs(mn), hn::Abs(mx));
    const auto edge = hn::IfThenElse(is_low, mn, mx);
    const auto s = hn::IfThenElse(is_low, floor, hn::Neg(floor));
    const auto k = hn::Round(hn::Div(edge, s));
    const auto is_zero = hn::Eq(k, hn::Zero(d));  // NaN is not
    const auto scale = hn::IfThenElse(is_zero, s, hn::Div(edge, k));
    hn::Store(scale, d, chunk->scale + g);
    hn::Store(hn::IfThenElse(is_zero, hn::Zero(d), edge), d, chunk->bias + g);
    if constexpr (kFused) {
      hn::Store(hn::Div(hn::Set(d, 1.0F), scale), d, chunk->inverse + g);
      const auto size = hn::Abs(scale);
      const auto fits =
          hn::And(hn::Ge(size, hn::Set(d, 0x1p-30F)), hn::Le(size, hn::Set(d, 0x1p60F)));
      divides |= !hn::AllTrue(d, fits);
    }
  }
  chunk->divides = divides;
}

// What the elements of one group are divided by.
struct Divisor {
  LaneVec scale, bias, inverse;
};

// Vectors of codes that are under way together: each step of one waits for the step before.
constexpr int kTogether = 4;

// t / s, rounded once, without a division (Markstein, "Computation of elementary functions on the
// IBM RISC System/6000 processor", 1990): y = fl(1 / s), q = fl(t y), r = fl(t - s q), fl(q + r y).
// Proof. By powers of two s and t are in [1, 2), s > 1; y is in [1/2, 1) and off by at most 2^-25.
// Q = t / s has the spacing u = 2^-23, or 2^-24 where t < s. No Q is a midpoint m of two floats,
// and in units of the last places of s and t |Q - m| is a fraction over s: G = |Q - m| >= u 2^-24 /
// s.
//  - |q - Q| < u where t >= s, and <= (t + 1) u / 2 where t < s, hence below (3/2 - 2^-23) u; q has
//    the spacing of Q, unless Q = 1, where q is 1 or 1 - 2^-24 and the result is 1.
//  - q + r y = Q + e. The result is wrong only if some m is between Q and Q + e; |q - m| is an odd
//    multiple of u / 2, so |q - Q| is u / 2 or 3 u / 2 but for |e|.
//  - 3 u / 2: there |e| <= (3 s 2^-27 + 2^-23 / s) u <= 5 2^-25 u, the second part from rounding r.
//  So t
//    would be 2 - 2^-22 and s 2 - 2^-23, for which |q - Q| is u (1 + 2^-24).
//  - u / 2: r is exact, |e| <= |q - Q| s 2^-25. If q is the float nearest to Q that is less than
//    s u 2^-26 < u 2^-24 / s <= G. If it is the next, (u / 2 + G) s 2^-25 < G, because
//    s^2 / 4 <= (1 - 2^-24)^2 < 1 - s 2^-25.
// Nothing underflows where a code is not 0: 2^-30 <= |s| <= 2^60 and |Q| >= 1/2; below, |Q| stays
// below. Other s divide, NaN among them. t is finite or NaN, since an infinite difference within
// the group makes s infinite.
template <bool kDivide>
HWY_INLINE void Quotients(const std::byte* x, const Divisor& by, LaneVec (&q)[kTogether]) {
  const Lanes d;
  const size_t lanes = hn::Lanes(d);
  LaneVec t[kTogether];
  for (size_t i = 0; i < kTogether; ++i) t[i] = hn::Sub(LoadBytes(d, x + 4 * lanes * i), by.bias);
  if constexpr (kDivide) {
    for (size_t i = 0; i < kTogether; ++i) q[i] = hn::Div(t[i], by.scale);
  } else {
    for (size_t i = 0; i < kTogether; ++i) q[i] = hn::Mul(t[i], by.inverse);
    for (size_t i = 0; i < kTogether; ++i) t[i] = hn::NegMulAdd(by.scale, q[i], t[i]);
    for (size_t i = 0; i < kTogether; ++i) q[i] = hn::MulAdd(t[i], by.inverse, q[i]);
  }
}

// Quotients as codes, packed: clamped to 0..n, NaN to 0, rounded to even. Clamping to integers
// commutes with rounding. kSmall: no quotient is beyond 2 n, since |s| >= (mx - mn) / (2 n).
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
template <int kBits, bool kSmall>
HWY_INLINE void StoreQuotients(const LaneVec (&q)[kTogether], std::byte* to) {
  // min gives its second operand where one is NaN. NaN and what is below -2^31 are converted to
  // -2^31, which packing with saturation brings to 0 like everything negative.
  constexpr int kMost = (1 << kBits) - 1;
  const __m256 most = _mm256_set1_ps(static_cast<float>(kMost));
  __m256i c[kTogether];
  for (int i = 0; i < kTogether; ++i) {
    c[i] = _mm256_cvtps_epi32(kSmall ? q[i].raw : _mm256_min_ps(most, q[i].raw));
  }
  // Halves are packed each by itself: four codes of each vector, then the other four of each.
  __m256i codes =
      _mm256_packus_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
  if (kSmall && kBits < 8) codes = _mm256_min_epu8(codes, _mm256_set1_epi8(kMost));
  if constexpr (kBits == 4) {
    const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
    const __m256i bytes = _mm256_packus_epi16(pairs, pairs);
    const __m128i in_order =
        _mm_unpacklo_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), in_order);
  } else {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const hn::FixedTag<uint8_t, 32> d8;
    StorePacked<kBits>(d8, hn::Vec<decltype(d8)>{_mm256_permutevar8x32_epi32(codes, order)}, to);
  }
}
#elif HWY_TARGET != HWY_SCALAR
template <int kBits, bool kSmall>
HWY_INLINE void StoreQuotients(const LaneVec (&q)[kTogether], std::byte* to) {
  const Lanes d;
  const auto n = hn::Set(d, static_cast<float>((1 << kBits) - 1));
  const hn::RebindToSigned<Lanes> di;
  static_assert(hn::MaxLanes(Lanes()) == 4);
  hn::Vec<decltype(di)> c[kTogether];
  for (int i = 0; i < kTogether; ++i) {
    // NaN fails the first comparison. From 2^23 on the spacing is 1: the addition rounds.
    const auto clamped = Smaller(Larger(q[i], hn::Zero(d)), n);
    const auto rounded = hn::BitCast(di, hn::Add(clamped, hn::Set(d, 0x1.8p23F)));
    c[i] = hn::And(rounded, hn::Set(di, 0xff));
  }
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<uint8_t, 8> half;
  const hn::FixedTag<uint8_t, 16> d8;
  const auto codes = hn::Combine(d8, hn::DemoteTo(half, hn::ReorderDemote2To(d16, c[2], c[3])),
                                 hn::DemoteTo(half, hn::ReorderDemote2To(d16, c[0], c[1])));
  StorePacked<kBits>(d8, codes, to);
}
#endif

// Fetches meanwhile what the chunk `ahead` will read: memory would rest while codes are computed.
template <int kBits, bool kDivide>
HWY_INLINE void StoreCodes(int group, const Chunk& chunk, int64_t x_bytes, const Chunk& ahead) {
  const Lanes d;
  constexpr int step = kTogether * static_cast<int>(hn::MaxLanes(d));
  for (int g = 0; g < chunk.count; ++g) {
    const Divisor by = {hn::Set(d, chunk.scale[g]), hn::Set(d, chunk.bias[g]),
                        hn::Set(d, kDivide ? 0.0F : chunk.inverse[g])};
    const std::byte* x = chunk.numbers[g];
    std::byte* to = chunk.codes[g];
    if (g < ahead.count) {
      for (int64_t i = 0; i < x_bytes; i += 64) hwy::Prefetch(ahead.x[g] + i);
    }
#if HWY_TARGET == HWY_SCALAR
    const auto n = hn::Set(d, static_cast<float>((1 << kBits) - 1));
    uint8_t codes[kLargestGroup];
    for (int i = 0; i < group; i += step) {
      LaneVec q[kTogether];
      Quotients<kDivide>(x + 4 * i, by, q);
      for (int j = 0; j < kTogether; ++j) {
        const float clamped = hn::GetLane(Smaller(Larger(q[j], hn::Zero(d)), n));
        codes[i + j] = static_cast<uint8_t>(std::nearbyint(clamped));
      }
    }
    for (int i = 0; i < group; i += 16) PackSixteen<kBits>(codes + i, to + i / 8 * kBits);
#else
    for (int i = 0; i < group; i += step) {
      LaneVec q[kTogether];
      Quotients<kDivide>(x, by, q);
      StoreQuotients<kBits, !kDivide>(q, to);
      x += 4 * step;
      to += step / 8 * kBits;
    }
#endif
  }
}

// Scales and biases in their own type, to their places.
template <DType kScale>
HWY_INLINE void StoreScales(const EncodeCall& call, bool adjoin, const Chunk& chunk) {
  const Lanes d;
  constexpr int kSize = kScale == DType::kFloat32 ? 4 : 2;
  const int lanes = static_cast<int>(hn::Lanes(d));
  HWY_ALIGN std::byte scales[kChunk * kSize];
  HWY_ALIGN std::byte biases[kChunk * kSize];
  for (int g = 0; g < chunk.count; g += lanes) {
    StoreLanes<kScale>(hn::Load(d, chunk.scale + g), d, scales + kSize * g);
    StoreLanes<kScale>(hn::Load(d, chunk.bias + g), d, biases + kSize * g);
  }
  if (adjoin && chunk.count == kChunk) {
    std::memcpy(call.out.scales + chunk.scale_at[0], scales, sizeof(scales));
    std::memcpy(call.out.biases + chunk.scale_at[0], biases, sizeof(biases));
    return;
  }
  for (int g = 0; g < chunk.count; ++g) {
    std::memcpy(call.out.scales + chunk.scale_at[g], scales + kSize * g, kSize);
    std::memcpy(call.out.biases + chunk.scale_at[g], biases + kSize * g, kSize);
  }
}

template <int kBits, DType kScale>
void EncodeAs(const AffineFormat& format, const EncodeCall& call) {
  const int group = format.group_size;
  const float n = static_cast<float>((1 << kBits) - 1);
  const auto x_bytes = static_cast<int64_t>(SizeInBytes(call.from));
  Cursor cursor(call, group, x_bytes, group * kBits / 8, static_cast<int64_t>(SizeInBytes(kScale)));
  Chunk chunks[3];
  cursor.Fill(&chunks[0]);
  // The chunks whose places are known, whose scales are computed, whose codes are stored.
  Chunk* ahead = &chunks[1];
  Chunk* next = &chunks[0];
  Chunk* last = &chunks[2];
  for (;;) {
    cursor.Fill(ahead);
    if (next->count > 0) {
      Read<kScale>(call.from, group, next);
      Scales(n, next);
      StoreScales<kScale>(call, cursor.scales_adjoin(), *next);
    }
    if (last->divides) {
      StoreCodes<kBits, true>(group, *last, group * x_bytes, *ahead);
    } else {
      StoreCodes<kBits, !kFused>(group, *last, group * x_bytes, *ahead);
    }
    if (next->count == 0) return;
    Chunk* const free = last;
    last = next;
    next = ahead;
    ahead = free;
  }
}

template <int kBits>
void EncodeBits(const AffineFormat& format, const EncodeCall& call) {
  switch (format.scale_dtype) {
    case DType::kFloat16:
      return EncodeAs<kBits, DType::kFloat16>(format, call);
    case DType::kBFloat16:
      return EncodeAs<kBits, DType::kBFloat16>(format, call);
    default:
      return EncodeAs<kBits, DType::kFloat32>(format, call);
  }
}

void EncodeAffine(const AffineFormat& format, const EncodeCall& call) {
  switch (format.bits) {
    case 2:
      return EncodeBits<2>(format, call);
    case 3:
      return EncodeBits<3>(format, call);
    case 4:
      return EncodeBits<4>(format, call);
    case 5:
      return EncodeBits<5>(format, call);
    case 6:
      return EncodeBits<6>(format, call);
    default:
      return EncodeBits<8>(format, call);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(EncodeAffine);

void EncodeAffineRows(const AffineFormat& format, const EncodeCall& call) {
  HWY_DYNAMIC_DISPATCH(EncodeAffine)(format, call);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
