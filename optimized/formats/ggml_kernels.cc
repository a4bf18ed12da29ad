// Blocks of ggml by vectors. Codes pass through 32 bytes, one a channel, between which and the
// block lie a few 16-byte operations. Sums of iq4_nl keep the order of the channels.

#include "optimized/formats/ggml_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/ggml_half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/ggml_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kvcheck::HWY_NAMESPACE::LoadBytes;

#if HWY_TARGET == HWY_SCALAR

void EncodeBlocks(GgmlBlockKind, const GgmlBlockCodec& codec, const std::byte* x, int64_t count,
                  std::byte* to) {
  float values[32];  // x need not be aligned
  for (int64_t b = 0; b < count; ++b) {
    std::memcpy(values, x + sizeof(values) * static_cast<size_t>(b), sizeof(values));
    codec.encode(values, to + codec.bytes * b);
  }
}
void DecodeBlocks(GgmlBlockKind, const GgmlBlockCodec& codec, const std::byte* from, int64_t count,
                  float* y) {
  float values[32];  // y need not be aligned
  for (int64_t b = 0; b < count; ++b) {
    codec.decode(from + codec.bytes * b, values);
    std::memcpy(y + 32 * b, values, sizeof(values));
  }
}

#else

constexpr size_t kSize = 32;                            // channels
constexpr int64_t kValueBytes = kSize * sizeof(float);  // of a block
using Floats = HWY_CAPPED(float, 16);
using FloatVec = hn::Vec<Floats>;
using Bytes16 = hn::FixedTag<uint8_t, 16>;

HWY_ALIGN constexpr int8_t kEntries[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
constexpr float kBetween[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                7,       19,     31.5f, 45.5f, 61,  79,     101};

HWY_INLINE hn::Vec<Bytes16> Load16(const void* from) {
  return hn::LoadU(Bytes16(), static_cast<const uint8_t*>(from));
}
HWY_INLINE void Store16(hn::Vec<Bytes16> v, void* to) {
  hn::StoreU(v, Bytes16(), static_cast<uint8_t*>(to));
}

HWY_INLINE void SpreadNibbles(const std::byte* from, uint8_t* HWY_RESTRICT codes) {
  const Bytes16 d8;
  const hn::Repartition<uint16_t, Bytes16> d16;
  const auto packed = Load16(from);
  const auto low = hn::Set(d8, 15);
  const auto shifted = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, packed)));
  Store16(hn::And(packed, low), codes);
  Store16(hn::And(shifted, low), codes + 16);
}
HWY_INLINE void JoinNibbles(const uint8_t* HWY_RESTRICT codes, std::byte* to) {
  const Bytes16 d8;
  const hn::Repartition<uint16_t, Bytes16> d16;
  const auto low = hn::Set(d8, 15);
  const auto high = hn::BitCast(d16, hn::And(Load16(codes + 16), low));
  Store16(hn::Or(hn::And(Load16(codes), low), hn::BitCast(d8, hn::ShiftLeft<4>(high))), to);
}

// Bit i of a word as 16 in byte i.
HWY_INLINE void AddFifthBits(const std::byte* from, uint8_t* HWY_RESTRICT codes) {
  HWY_ALIGN static constexpr uint8_t kOfByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  HWY_ALIGN static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                 1, 2, 4, 8, 16, 32, 64, 128};
  const Bytes16 d8;
  uint32_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  const auto bytes = hn::BitCast(d8, hn::Set(hn::Repartition<uint32_t, Bytes16>(), word));
  const auto of_byte = hn::Load(d8, kOfByte);
  const auto bit = hn::Load(d8, kBit);
  for (size_t half = 0; half < 2; ++half) {
    const auto place = hn::Add(of_byte, hn::Set(d8, static_cast<uint8_t>(2 * half)));
    const auto is_set = hn::Eq(hn::And(hn::TableLookupBytes(bytes, place), bit), bit);
    const auto fifth = hn::IfThenElseZero(is_set, hn::Set(d8, 16));
    Store16(hn::Or(Load16(codes + 16 * half), fifth), codes + 16 * half);
  }
}
HWY_INLINE void TakeFifthBits(const uint8_t* HWY_RESTRICT codes, std::byte* to) {
  const Bytes16 d8;
  const auto fifth = hn::Set(d8, 16);
  for (size_t half = 0; half < 2; ++half) {
    const auto is_set = hn::Eq(hn::And(Load16(codes + 16 * half), fifth), fifth);
    uint8_t bits[8] = {};  // StoreMaskBits may write eight
    hn::StoreMaskBits(d8, is_set, bits);
    std::memcpy(to + 2 * half, bits, 2);
  }
}

// Codes, as `Code` (u8 or i8), less `offset`, times the scale; plus the minimum where there is one.
template <bool kMinimum, typename Code>
HWY_INLINE void StoreValues(const Code* HWY_RESTRICT codes, float offset, float step, float least,
                            float* HWY_RESTRICT y) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<Code, Floats> dc;
  for (size_t i = 0; i < kSize; i += hn::Lanes(d)) {
    FloatVec v = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dc, codes + i)));
    if (offset != 0) v = hn::Sub(v, hn::Set(d, offset));
    v = hn::Mul(v, hn::Set(d, step));
    if constexpr (kMinimum) v = hn::Add(v, hn::Set(d, least));
    hn::StoreU(v, d, y + i);
  }
}

constexpr bool HasMinimum(GgmlBlockKind kind) {
  return kind == GgmlBlockKind::kQ4_1 || kind == GgmlBlockKind::kQ5_1;
}

template <GgmlBlockKind kKind>
HWY_INLINE void DecodeBlock(const std::byte* block, float* HWY_RESTRICT y) {
  using enum GgmlBlockKind;
  const float step = LoadHalf(block);
  HWY_ALIGN uint8_t codes[kSize];
  if constexpr (kKind == kQ8_0) {
    StoreValues<false>(reinterpret_cast<const int8_t*>(block + 2), 0, step, 0, y);
  } else if constexpr (kKind == kIq4Nl) {
    SpreadNibbles(block + 2, codes);
    const auto table = Load16(kEntries);
    for (size_t at = 0; at < kSize; at += 16) {
      Store16(hn::TableLookupBytes(table, Load16(codes + at)), codes + at);
    }
    StoreValues<false>(reinterpret_cast<const int8_t*>(codes), 0, step, 0, y);
  } else {
    constexpr bool kMinimum = HasMinimum(kKind);
    constexpr bool kFive = kKind == kQ5_0 || kKind == kQ5_1;
    constexpr size_t kFirst = kMinimum ? 4 : 2;
    SpreadNibbles(block + kFirst + (kFive ? 4 : 0), codes);
    if constexpr (kFive) AddFifthBits(block + kFirst, codes);
    StoreValues<kMinimum>(codes,
                          kMinimum ? 0
                          : kFive  ? 16
                                   : 8,
                          step, kMinimum ? LoadHalf(block + 2) : 0, y);
  }
}

// Of finite values, as every function below.
struct Extremes {
  float least, most;  // of formats with a minimum
  float largest;      // a magnitude; of the others
};

template <bool kMinimum>
HWY_INLINE bool FindExtremes(const float* HWY_RESTRICT x, Extremes* out) {
  const Floats d;
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  FloatVec least = hn::Load(d, x), most = kMinimum ? least : hn::Abs(least);
  auto finite = hn::Lt(hn::Abs(least), infinity);
  for (size_t i = hn::Lanes(d); i < kSize; i += hn::Lanes(d)) {
    const FloatVec v = hn::Load(d, x + i);
    finite = hn::And(finite, hn::Lt(hn::Abs(v), infinity));
    if constexpr (kMinimum) least = hn::Min(least, v);
    most = hn::Max(most, kMinimum ? v : hn::Abs(v));
  }
  if (!hn::AllTrue(d, finite)) return false;
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  *out = kMinimum ? Extremes{hn::GetLane(hn::MinOfLanes(d, least)), largest, 0}
                  : Extremes{0, 0, largest};
  return true;
}

// The first element equal to `value`, or of that magnitude, which is there: zeros have signs.
template <bool kMagnitude>
HWY_INLINE float FirstOf(const float* HWY_RESTRICT x, float value) {
  const Floats d;
  for (size_t i = 0; i < kSize; i += hn::Lanes(d)) {
    FloatVec v = hn::Load(d, x + i);
    if constexpr (kMagnitude) v = hn::Abs(v);
    const intptr_t at = hn::FindFirstTrue(d, hn::Eq(v, hn::Set(d, value)));
    if (at >= 0) return x[i + static_cast<size_t>(at)];
  }
  return value;
}

HWY_INLINE float Inverse(float step) { return step != 0 ? 1.0f / step : 0.0f; }

// Codes toward zero of (x - least) inverse + middle, at most `most`.
template <bool kMinimum>
HWY_INLINE void StoreCodes(const float* HWY_RESTRICT x, float least, float inverse, float middle,
                           int32_t most, uint8_t* HWY_RESTRICT codes) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<uint8_t, Floats> d8;
  for (size_t i = 0; i < kSize; i += hn::Lanes(d)) {
    FloatVec v = hn::Load(d, x + i);
    if constexpr (kMinimum) v = hn::Sub(v, hn::Set(d, least));
    v = hn::Add(hn::Mul(v, hn::Set(d, inverse)), hn::Set(d, middle));
    // Not finite where the scale has no reciprocal.
    v = hn::IfThenElseZero(hn::Lt(hn::Abs(v), hn::Set(d, 64.0f)), v);
    const auto code = hn::Min(hn::ConvertTo(di, v), hn::Set(di, most));
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
  }
}

// Blocks of q8_0 that are encoded step by step: a block by itself is a chain of dependent
// operations.
constexpr int64_t kBlocksAtOnce = 16;
using Ints = hn::RebindToSigned<Floats>;
using Ints4 = hn::FixedTag<int32_t, 4>;

// The larger of lanes that are a multiple of four apart.
template <class D>
HWY_INLINE auto LargestLanes(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return LargestLanes(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Of four blocks the largest magnitude each, as integers: those order magnitudes, with infinity and
// NaN above all. Past `count` blocks the last one again.
HWY_INLINE void StoreLargest(const std::byte* x, int64_t count, int32_t* to) {
  const Ints di;
  const Ints4 d;
  const hn::Repartition<int64_t, Ints4> pairs;
  const auto largest = [&](int64_t block) HWY_ATTR {
    const std::byte* from = x + std::min(block, count - 1) * kValueBytes;
    auto most = hn::Zero(di);
    for (size_t i = 0; i < kSize; i += hn::Lanes(di)) {
      most = hn::Max(most, hn::And(LoadBytes(di, from + 4 * i), hn::Set(di, 0x7fffffff)));
    }
    return LargestLanes(di, most);
  };
  const auto both = [&](auto a, auto b) HWY_ATTR {
    return hn::BitCast(pairs, hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto low = both(largest(0), largest(1));
  const auto high = both(largest(2), largest(3));
  hn::Store(hn::Max(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                    hn::BitCast(d, hn::InterleaveUpper(pairs, low, high))),
            d, to);
}

struct BlockSteps {
  HWY_ALIGN float inverse[kBlocksAtOnce];
  HWY_ALIGN uint16_t scale[kBlocksAtOnce];
};

// Of magnitudes. False where a step is no normal number, nor 0: then codes may be anything; else
// they are at most 127 in size. Shapes: largest (kBlocksAtOnce).
HWY_INLINE bool FindSteps(const float* HWY_RESTRICT largest, BlockSteps* HWY_RESTRICT to) {
  const Floats d;
  for (size_t i = 0; i < kBlocksAtOnce; i += hn::Lanes(d)) {
    const auto most = hn::Load(d, largest + i);
    const auto step = hn::Div(most, hn::Set(d, 127.0f));
    const auto is_zero = hn::Eq(most, hn::Zero(d));
    const auto normal = hn::And(hn::Ge(step, hn::Set(d, std::numeric_limits<float>::min())),
                                hn::Le(step, hn::Set(d, std::numeric_limits<float>::max())));
    if (!hn::AllTrue(d, hn::Or(normal, is_zero))) return false;
    hn::Store(hn::IfThenZeroElse(is_zero, hn::Div(hn::Set(d, 1.0f), step)), d, to->inverse + i);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    const hn::Rebind<hwy::float16_t, Floats> halves;
    const hn::Rebind<uint16_t, Floats> codes;
    hn::Store(hn::BitCast(codes, hn::DemoteTo(halves, step)), codes, to->scale + i);
#else
    HWY_ALIGN float steps[hn::MaxLanes(Floats())];
    hn::Store(step, d, steps);
    for (size_t k = 0; k < hn::Lanes(d); ++k) {
      StoreHalf(steps[k], reinterpret_cast<std::byte*>(to->scale + i + k));
    }
#endif
  }
  return true;
}

// Toward zero. Precondition: int32 holds it.
HWY_INLINE hn::Vec<Ints> CutToInts(FloatVec v) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Ints>{_mm512_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(Ints(), v);
#endif
}

// The codes of a block. Precondition: they are at most 127 in size.
HWY_INLINE void StoreRounded(const std::byte* HWY_RESTRICT x, float inverse, std::byte* to) {
  const Floats d;
  // The largest number below 1/2, so that sums just below an integer do not reach it.
  const auto below_half = hn::Set(d, 0x1.fffffep-2f);
  for (size_t i = 0; i < kSize; i += hn::Lanes(d)) {
    const FloatVec v = hn::Mul(LoadBytes(d, x + 4 * i), hn::Set(d, inverse));
    const auto code = CutToInts(hn::Add(v, hn::CopySignToAbs(below_half, v)));
#if HWY_TARGET == HWY_AVX3
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_cvtepi32_epi8(code.raw));
#else
    const hn::Rebind<int8_t, Floats> d8;
    hn::StoreU(hn::DemoteTo(d8, code), d8, reinterpret_cast<int8_t*>(to) + i);
#endif
  }
}

// 1 to kBlocksAtOnce blocks of q8_0. False: as FindSteps.
HWY_INLINE bool EncodeBytes(const std::byte* HWY_RESTRICT x, int64_t count,
                            std::byte* HWY_RESTRICT to) {
  HWY_ALIGN int32_t largest[kBlocksAtOnce] = {};
  for (int64_t k = 0; k < count; k += 4) {
    StoreLargest(x + k * kValueBytes, count - k, largest + k);
  }
  HWY_ALIGN float magnitudes[kBlocksAtOnce];
  std::memcpy(magnitudes, largest, sizeof(magnitudes));
  BlockSteps steps;
  if (!FindSteps(magnitudes, &steps)) return false;
  for (int64_t k = 0; k < count; ++k, x += kValueBytes, to += 2 + kSize) {
    std::memcpy(to, steps.scale + k, 2);
    StoreRounded(x, steps.inverse[k], to + 2);
  }
  return true;
}

HWY_INLINE void EncodeTable(const float* HWY_RESTRICT x, float largest, std::byte* block) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<uint8_t, Floats> d8;
  HWY_ALIGN uint8_t codes[kSize] = {};
  HWY_ALIGN float of_x[kSize], of_entries[kSize];
  float step = 0;
  if (largest >= 1e-15f) {
    const auto inverse = hn::Set(d, 1.0f / (FirstOf<true>(x, largest) / -127.0f));
    for (size_t i = 0; i < kSize; i += hn::Lanes(d)) {
      const FloatVec v = hn::Load(d, x + i);
      const FloatVec steps = hn::Mul(v, inverse);
      auto code = hn::Zero(di);
      FloatVec entry = hn::Set(d, -127.0f);
      for (size_t k = 0; k < 15; ++k) {
        const auto above = hn::Ge(steps, hn::Set(d, kBetween[k]));
        code = hn::Sub(code, hn::VecFromMask(di, hn::RebindMask(di, above)));
        entry = hn::IfThenElse(above, hn::Set(d, static_cast<float>(kEntries[k + 1])), entry);
      }
      hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
      const FloatVec part = hn::Mul(hn::Mul(v, v), entry);
      hn::Store(hn::Mul(part, v), d, of_x + i);
      hn::Store(hn::Mul(part, entry), d, of_entries + i);
    }
    float above = 0, below = 0;
    for (size_t i = 0; i < kSize; ++i) {
      above += of_x[i];
      below += of_entries[i];
    }
    step = below > 0 ? above / below : 0.0f;
  }
  StoreHalf(step, block);
  JoinNibbles(codes, block + 2);
}

template <GgmlBlockKind kKind>
HWY_INLINE void EncodeBlock(const float* HWY_RESTRICT x, const Extremes& extremes,
                            std::byte* block) {
  using enum GgmlBlockKind;
  if constexpr (kKind == kIq4Nl) {
    EncodeTable(x, extremes.largest, block);
  } else {
    constexpr bool kMinimum = HasMinimum(kKind);
    constexpr bool kFive = kKind == kQ5_0 || kKind == kQ5_1;
    constexpr int32_t kMost = kFive ? 31 : 15;
    std::byte* rest = block + (kMinimum ? 4 : 2);
    HWY_ALIGN uint8_t codes[kSize];
    if constexpr (kMinimum) {
      const float least = extremes.least == 0 ? FirstOf<false>(x, 0) : extremes.least;
      const float step = extremes.least == extremes.most
                             ? 0.0f
                             : (extremes.most - extremes.least) / static_cast<float>(kMost);
      StoreHalf(step, block);
      StoreHalf(least, block + 2);
      StoreCodes<true>(x, least, Inverse(step), 0.5f, kMost, codes);
    } else {
      constexpr int kMiddle = (kMost + 1) / 2;
      constexpr auto kHalf = static_cast<float>(kMiddle);
      const float element = extremes.largest == 0 ? 0.0f : FirstOf<true>(x, extremes.largest);
      const float step = element / -kHalf;
      StoreHalf(step, block);
      StoreCodes<false>(x, 0, Inverse(step), kHalf + 0.5f, kMost, codes);
    }
    if constexpr (kFive) {
      TakeFifthBits(codes, rest);
      rest += 4;
    }
    JoinNibbles(codes, rest);
  }
}

template <GgmlBlockKind kKind>
void Encode(const GgmlBlockCodec& codec, const std::byte* x, int64_t count, std::byte* to) {
  HWY_ALIGN float values[kSize];
  for (int64_t b = 0; b < count; ++b, x += sizeof(values), to += codec.bytes) {
    std::memcpy(values, x, sizeof(values));
    Extremes extremes;
    if (FindExtremes<HasMinimum(kKind)>(values, &extremes)) {
      EncodeBlock<kKind>(values, extremes, to);
    } else {
      codec.encode(values, to);
    }
  }
}

template <>
void Encode<GgmlBlockKind::kQ8_0>(const GgmlBlockCodec& codec, const std::byte* x, int64_t count,
                                  std::byte* to) {
  float values[kSize];
  for (int64_t b = 0; b < count; b += kBlocksAtOnce) {
    const int64_t some = std::min(kBlocksAtOnce, count - b);
    if (EncodeBytes(x, some, to)) {
      x += sizeof(values) * static_cast<size_t>(some);
      to += codec.bytes * some;
      continue;
    }
    for (int64_t k = 0; k < some; ++k, x += sizeof(values), to += codec.bytes) {
      std::memcpy(values, x, sizeof(values));
      codec.encode(values, to);
    }
  }
}

template <GgmlBlockKind kKind>
void Decode(const GgmlBlockCodec& codec, const std::byte* from, int64_t count, float* y) {
  for (int64_t b = 0; b < count; ++b, from += codec.bytes, y += kSize) DecodeBlock<kKind>(from, y);
}

void EncodeBlocks(GgmlBlockKind kind, const GgmlBlockCodec& codec, const std::byte* x,
                  int64_t count, std::byte* to) {
  using enum GgmlBlockKind;
  switch (kind) {
    case kQ8_0:
      return Encode<kQ8_0>(codec, x, count, to);
    case kQ4_0:
      return Encode<kQ4_0>(codec, x, count, to);
    case kQ4_1:
      return Encode<kQ4_1>(codec, x, count, to);
    case kQ5_0:
      return Encode<kQ5_0>(codec, x, count, to);
    case kQ5_1:
      return Encode<kQ5_1>(codec, x, count, to);
    case kIq4Nl:
      return Encode<kIq4Nl>(codec, x, count, to);
  }
}

void DecodeBlocks(GgmlBlockKind kind, const GgmlBlockCodec& codec, const std::byte* from,
                  int64_t count, float* y) {
  using enum GgmlBlockKind;
  switch (kind) {
    case kQ8_0:
      return Decode<kQ8_0>(codec, from, count, y);
    case kQ4_0:
      return Decode<kQ4_0>(codec, from, count, y);
    case kQ4_1:
      return Decode<kQ4_1>(codec, from, count, y);
    case kQ5_0:
      return Decode<kQ5_0>(codec, from, count, y);
    case kQ5_1:
      return Decode<kQ5_1>(codec, from, count, y);
    case kIq4Nl:
      return Decode<kIq4Nl>(codec, from, count, y);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(EncodeBlocks);
HWY_EXPORT(DecodeBlocks);

void EncodeGgmlBlocks(GgmlBlockKind kind, const GgmlBlockCodec& codec, const std::byte* x,
                      int64_t count, std::byte* blocks) {
  HWY_DYNAMIC_DISPATCH(EncodeBlocks)(kind, codec, x, count, blocks);
}

void DecodeGgmlBlocks(GgmlBlockKind kind, const GgmlBlockCodec& codec, const std::byte* blocks,
                      int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(DecodeBlocks)(kind, codec, blocks, count, y);
}

}  // namespace kvcheck::optimized
#endif
