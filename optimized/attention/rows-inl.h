// Stored vectors as f32 lanes, in registers: N channels of one vector from any channel that is a
// multiple of N, where N is the width of the instruction set's vectors (at most 16). Included once
// per instruction set.
//
// Every conversion is exact. What codes stand for: values-inl.h.

#if defined(OPTIMIZED_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_ROWS_INL_H_
#undef OPTIMIZED_ATTENTION_ROWS_INL_H_
#else
#define OPTIMIZED_ATTENTION_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "optimized/attention/block.h"
#include "optimized/attention/exp-inl.h"
#include "optimized/attention/kernels.h"
#include "optimized/attention/prefetcher.h"
#include "optimized/formats/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of 8 lanes or more, F16C and shifts by lane.
#undef KVCHECK_WIDE_VECTORS
#define KVCHECK_WIDE_VECTORS \
  (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

// Of those the ones with vectors of sixteen lanes.
#undef KVCHECK_SIXTEEN_LANES
#define KVCHECK_SIXTEEN_LANES (KVCHECK_WIDE_VECTORS && HWY_TARGET != HWY_AVX2)

using F32 = hn::CappedTag<float, kSumLanes16>;
using VF32 = hn::Vec<F32>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(F32()));

using kvcheck::HWY_NAMESPACE::FromFloat16;
using kvcheck::HWY_NAMESPACE::LoadBytes;
using kvcheck::HWY_NAMESPACE::LoadFloat16;

struct Float32Rows {
  static constexpr bool kScaled = false;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    return LoadBytes(F32(), row + 4 * channel);
  }
  // `count` channels, fewer than a vector, and zeros. Nothing beyond them is read.
  static HWY_INLINE VF32 LoadTail(const std::byte* row, int64_t channel, int64_t count) {
    std::byte bytes[4 * kLanes] = {};
    std::memcpy(bytes, row + 4 * channel, static_cast<size_t>(4 * count));
    return Load(bytes, 0);
  }
};

template <class Rows, int64_t kBytes>
HWY_INLINE VF32 TailOf(const std::byte* row, int64_t channel, int64_t count) {
  std::byte bytes[kBytes * kLanes] = {};
  std::memcpy(bytes, row + kBytes * channel, static_cast<size_t>(kBytes * count));
  return Rows::Load(bytes, 0);
}

struct Float16Rows {
  static constexpr bool kScaled = false;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    return LoadFloat16(F32(), row + 2 * channel);
  }
  static HWY_INLINE VF32 LoadTail(const std::byte* row, int64_t channel, int64_t count) {
    return TailOf<Float16Rows, 2>(row, channel, count);
  }
};

struct BFloat16Rows {
  static constexpr bool kScaled = false;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
#if HWY_TARGET == HWY_AVX2
    // A broadcast and one byte shuffle: widening and a shift would be two operations on the FMA
    // ports.
    alignas(32) static constexpr uint8_t kPlaces[32] = {
        128, 128, 0, 1, 128, 128, 2,  3,  128, 128, 4,  5,  128, 128, 6,  7,
        128, 128, 8, 9, 128, 128, 10, 11, 128, 128, 12, 13, 128, 128, 14, 15};
    const hn::Repartition<uint8_t, F32> d8;
    const auto both = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(row + 2 * channel));
    return hn::BitCast(F32(), hn::TableLookupBytesOr0(both, hn::Load(d8, kPlaces)));
#else
    const hn::RebindToUnsigned<F32> du;
    const auto code = hn::PromoteTo(du, LoadBytes(hn::Rebind<uint16_t, F32>(), row + 2 * channel));
    return hn::BitCast(F32(), hn::ShiftLeft<16>(code));
#endif
  }
  static HWY_INLINE VF32 LoadTail(const std::byte* row, int64_t channel, int64_t count) {
    return TailOf<BFloat16Rows, 2>(row, channel, count);
  }
};

HWY_INLINE auto LoadCodes8(const std::byte* from) {
  const hn::RebindToSigned<F32> di;
  return hn::PromoteTo(di, LoadBytes(hn::Rebind<uint8_t, F32>(), from));
}

struct Float8E4M3Rows {
  static constexpr bool kScaled = false;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    const F32 d;
#if KVCHECK_WIDE_VECTORS
    // As f16, whose exponent bias is larger by 8: subnormal codes are subnormal f16.
    const hn::Rebind<uint16_t, F32> d16;
    const auto code = hn::PromoteTo(d16, LoadBytes(hn::Rebind<uint8_t, F32>(), row + channel));
    const auto magnitude = hn::And(code, hn::Set(d16, uint16_t{0x7f}));
    const auto sign = hn::ShiftLeft<8>(hn::Xor(code, magnitude));
    const auto largest = hn::VecFromMask(d16, hn::Eq(magnitude, hn::Set(d16, uint16_t{0x7f})));
    const auto nan = hn::And(largest, hn::Set(d16, uint16_t{0x7e00}));
    const auto half = hn::Or(hn::Or(hn::ShiftLeft<7>(magnitude), sign), nan);
    const hn::Rebind<hwy::float16_t, F32> halves;
    return hn::Mul(hn::PromoteTo(d, hn::BitCast(halves, half)), hn::Set(d, 256.0f));
#else
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    const auto code = LoadCodes8(row + channel);
    const auto magnitude = hn::And(code, hn::Set(di, 0x7f));
    const auto sign = hn::ShiftLeft<24>(hn::BitCast(du, hn::Xor(code, magnitude)));
    const auto is_subnormal = hn::RebindMask(d, hn::Lt(magnitude, hn::Set(di, 8)));
    const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(di, 0x7f)));
    const auto normal = hn::BitCast(
        d, hn::Add(hn::ShiftLeft<20>(hn::BitCast(du, magnitude)), hn::Set(du, 120u << 23)));
    const auto subnormal = hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-9f));
    const auto nan = hn::BitCast(d, hn::Set(du, 0x7fc00000u));
    const auto size = hn::IfThenElse(is_nan, nan, hn::IfThenElse(is_subnormal, subnormal, normal));
    return hn::Or(size, hn::BitCast(d, sign));
#endif
  }
  static HWY_INLINE VF32 LoadTail(const std::byte* row, int64_t channel, int64_t count) {
    return TailOf<Float8E4M3Rows, 1>(row, channel, count);
  }
};

// e5m2 is the upper half of f16.
struct Float8E5M2Rows {
  static constexpr bool kScaled = false;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
#if KVCHECK_WIDE_VECTORS
    const hn::Rebind<uint16_t, F32> d16;
    const hn::Rebind<hwy::float16_t, F32> halves;
    const auto code = hn::PromoteTo(d16, LoadBytes(hn::Rebind<uint8_t, F32>(), row + channel));
    return hn::PromoteTo(F32(), hn::BitCast(halves, hn::ShiftLeft<8>(code)));
#else
    const hn::RebindToUnsigned<F32> du;
    return FromFloat16(F32(), hn::ShiftLeft<8>(hn::BitCast(du, LoadCodes8(row + channel))));
#endif
  }
  static HWY_INLINE VF32 LoadTail(const std::byte* row, int64_t channel, int64_t count) {
    return TailOf<Float8E5M2Rows, 1>(row, channel, count);
  }
};

HWY_INLINE VF32 LoadInt8(const std::byte* from) {
  const hn::RebindToSigned<F32> di;
  return hn::ConvertTo(F32(), hn::PromoteTo(di, LoadBytes(hn::Rebind<int8_t, F32>(), from)));
}

struct Int8Rows {
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    return LoadInt8(row + channel);
  }
};

// Vectors of codes consist of groups of 32 channels or more: they have no tail.
struct Code8Rows {
  static constexpr bool kScaled = true;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    return hn::ConvertTo(F32(), LoadCodes8(row + channel));
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

#if KVCHECK_WIDE_VECTORS
// Codes of kBits bits, 1 to 4, in the low bits of lanes, other bits above them: words of 32 bits,
// broadcast and shifted by lane. Reads no byte but theirs.
template <int kBits>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<F32>> MovedCodes(const std::byte* from) {
  const hn::RebindToUnsigned<F32> du;
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (kBits == 4) {
    // Sixteen codes are one 64-bit word, of which each byte takes eight bits from any bit on.
    alignas(64) static constexpr std::array<uint8_t, 64> kFirstBit = [] {
      std::array<uint8_t, 64> bits{};
      for (size_t lane = 0; lane < 16; ++lane) bits[4 * lane] = static_cast<uint8_t>(4 * lane);
      return bits;
    }();
    uint64_t word = 0;
    std::memcpy(&word, from, 8);
    const auto words = hn::Set(hn::Repartition<uint64_t, F32>(), word);
    const auto first_bit = hn::Load(hn::Repartition<uint8_t, F32>(), kFirstBit.data());
    return hn::Vec<hn::RebindToUnsigned<F32>>{
        _mm512_multishift_epi64_epi8(first_bit.raw, words.raw)};
  }
#endif
  constexpr size_t kBytes = static_cast<size_t>(kLanes) * kBits / 8;
  // Of more than four bytes lanes from the eighth on read the last four.
  constexpr size_t kSecond = kBytes > 4 ? kBytes - 4 : 0;
  alignas(64) static constexpr std::array<uint32_t, kLanes> kShift = [] {
    std::array<uint32_t, kLanes> shift{};
    for (size_t lane = 0; lane < kLanes; ++lane) {
      shift[lane] = static_cast<uint32_t>(kBits * lane - (lane < 8 ? 0 : 8 * kSecond));
    }
    return shift;
  }();
  uint32_t word = 0;
  std::memcpy(&word, from, kBytes < 4 ? kBytes : 4);
  auto words = hn::Set(du, word);
  if constexpr (kSecond > 0) {
    // A masked broadcast, which costs no shuffle as a permute of both words does.
    uint32_t second = 0;
    std::memcpy(&second, from + kSecond, 4);
    words = hn::IfThenElse(hn::FirstN(du, 8), words, hn::Set(du, second));
  }
  return hn::Shr(words, hn::Load(du, kShift.data()));
}
#endif

// Channel 2 i is the lower half of byte i.
struct Code4Rows {
  static constexpr bool kScaled = true;
#if KVCHECK_SIXTEEN_LANES
  static HWY_INLINE auto SixteenCodes(const std::byte* row, int64_t channel) {
    return MovedCodes<4>(row + channel / 2);
  }
#endif
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const std::byte* from = row + channel / 2;
#if HWY_TARGET == HWY_SCALAR
    const auto byte = static_cast<int32_t>(*from);
    return hn::ConvertTo(d, hn::Set(di, channel % 2 == 0 ? byte & 15 : byte >> 4));
#elif KVCHECK_WIDE_VECTORS
    return hn::ConvertTo(d, hn::And(hn::BitCast(di, MovedCodes<4>(from)), hn::Set(di, 15)));
#else
    const hn::FixedTag<uint8_t, 16> d8;
    // N / 2 bytes; the rest of the register is not used.
    uint64_t bytes = 0;
    std::memcpy(&bytes, from, static_cast<size_t>(kLanes / 2));
    const auto pairs = hn::BitCast(d8, hn::Set(hn::FixedTag<uint64_t, 2>(), bytes));
    const auto mask = hn::Set(d8, uint8_t{15});
    const auto low = hn::And(pairs, mask);
    const auto high = hn::And(
        hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(hn::FixedTag<uint16_t, 8>(), pairs))), mask);
    const auto codes = hn::InterleaveLower(d8, low, high);
    return hn::ConvertTo(d, hn::PromoteTo(di, hn::LowerHalf(hn::LowerHalf(codes))));
#endif
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

// Codes of 1 to 4 bits that name centroids: channel i is bits kBits i to kBits i + kBits - 1.
template <int kBits>
struct CentroidRows {
  static constexpr bool kScaled = true;
  // Whether a vector holds all centroids: as many as its lanes, those of fewer bits over and over.
  static constexpr bool kOneVector = KVCHECK_SIXTEEN_LANES || (HWY_TARGET == HWY_AVX2 && kBits < 4);
  // The scale in every lane; of kOneVector the products of all centroids with it.
  static HWY_INLINE VF32 Factors(const float* centroids, VF32 scale) {
    if constexpr (kOneVector) return hn::Mul(hn::Load(F32(), centroids), scale);
    return scale;
  }
  static HWY_INLINE VF32 LookUp(const std::byte* row, int64_t channel, const float* centroids,
                                VF32 factors) {
#if KVCHECK_WIDE_VECTORS
    // Vectors begin at multiples of eight channels.
    return LookUpCodes(MovedCodes<kBits>(row + (channel * kBits >> 3)), centroids, factors);
#else
    HWY_ALIGN float values[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t bit = (channel + i) * kBits;
      auto bits = static_cast<uint32_t>(row[bit / 8]) >> bit % 8;
      if (bit % 8 + kBits > 8) bits |= static_cast<uint32_t>(row[bit / 8 + 1]) << (8 - bit % 8);
      values[i] = centroids[bits & ((1u << kBits) - 1)];
    }
    return hn::Mul(hn::Load(F32(), values), factors);
#endif
  }
#if KVCHECK_WIDE_VECTORS
  // A permute takes the low four bits of one of sixteen lanes, three of one of eight: with other
  // bits above it a narrower code names the same centroid.
  static HWY_INLINE VF32 LookUpCodes(hn::Vec<hn::RebindToUnsigned<F32>> codes,
                                     const float* centroids, VF32 factors) {
#if KVCHECK_SIXTEEN_LANES
    (void)centroids;
    return VF32{_mm512_permutexvar_ps(codes.raw, factors.raw)};
#else
    if constexpr (kOneVector) {
      return VF32{_mm256_permutevar8x32_ps(factors.raw, codes.raw)};
    } else {
      // The blend takes the fourth bit.
      const F32 d;
      const auto low = _mm256_permutevar8x32_ps(hn::Load(d, centroids).raw, codes.raw);
      const auto high = _mm256_permutevar8x32_ps(hn::Load(d, centroids + kLanes).raw, codes.raw);
      const auto fourth = hn::BitCast(d, hn::ShiftLeft<28>(codes));
      return hn::Mul(VF32{_mm256_blendv_ps(low, high, fourth.raw)}, factors);
    }
#endif
  }
#endif
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

#if KVCHECK_SIXTEEN_LANES
// Sixteen bytes at each address. Masked broadcasts, which cost no shuffle as inserts do.
HWY_INLINE __m512i LoadFourParts(const std::byte* a, const std::byte* b, const std::byte* c,
                                 const std::byte* e) {
  const auto load = [](const std::byte* from) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  __m512i all = _mm512_castsi128_si512(load(a));
  all = _mm512_mask_broadcast_i32x4(all, 0x00f0, load(b));
  all = _mm512_mask_broadcast_i32x4(all, 0x0f00, load(c));
  return _mm512_mask_broadcast_i32x4(all, 0xf000, load(e));
}
#endif

// Keeps the compiler from reloading it for every product: the loop is bound by loads.
HWY_INLINE VF32 InRegister(VF32 x) {
#if KVCHECK_WIDE_VECTORS && (defined(__GNUC__) || defined(__clang__))
  asm("" : "+v"(x.raw));
#endif
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
