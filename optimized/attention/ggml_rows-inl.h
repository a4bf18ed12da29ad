// Rows of ggml's blocks as f32 lanes, in registers: 32 channels each, before their codes an f16
// scale, of some an f16 minimum, of five bits a word of the fifth ones. What rows-inl.h says of
// rows holds for these. Included once per instruction set.

#if defined(OPTIMIZED_ATTENTION_GGML_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_GGML_ROWS_INL_H_
#undef OPTIMIZED_ATTENTION_GGML_ROWS_INL_H_
#else
#define OPTIMIZED_ATTENTION_GGML_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// The block and the place within it of a channel; blocks have 32.
constexpr int64_t BlockOfChannel(int64_t channel) { return channel >> 5; }
constexpr int64_t PlaceInBlock(int64_t channel) { return channel & 31; }

// The byte that holds the code of a channel, of blocks that end with sixteen bytes of nibbles:
// channel i below channel i + 16.
template <int64_t kBytes>
HWY_INLINE const std::byte* NibbleByte(const std::byte* row, int64_t channel) {
  return row + BlockOfChannel(channel) * kBytes + (kBytes - 16) + PlaceInBlock(channel) % 16;
}
constexpr int NibbleShift(int64_t channel) { return PlaceInBlock(channel) < 16 ? 0 : 4; }

// Codes of 4 bits in the low bits of lanes, others above them.
template <int64_t kBytes>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<F32>> NibblesOf(const std::byte* row, int64_t channel) {
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint8_t, F32> d8;
  const auto bytes = hn::PromoteTo(du, LoadBytes(d8, NibbleByte<kBytes>(row, channel)));
  return hn::ShiftRightSame(bytes, NibbleShift(channel));
}

// q8_0.
struct Block8Rows {
  static constexpr bool kScaled = true;
  static constexpr int64_t kBlockBytes = 34;
  static constexpr bool kHasMinimum = false;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    return LoadInt8(row + BlockOfChannel(channel) * kBlockBytes + 2 + PlaceInBlock(channel));
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

// q4_0 and iq4_nl: codes name sixteen numbers.
struct Block4Rows {
  static constexpr bool kScaled = true;
  static constexpr int64_t kBlockBytes = 18;
  static constexpr bool kHasMinimum = false;
  static HWY_INLINE VF32 Factors(const float* numbers, VF32 scale) {
    return CentroidRows<4>::Factors(numbers, scale);
  }
  static HWY_INLINE VF32 LookUp(const std::byte* row, int64_t channel, const float* numbers,
                                VF32 factors) {
#if KVCHECK_WIDE_VECTORS
    return CentroidRows<4>::LookUpCodes(NibblesOf<kBlockBytes>(row, channel), numbers, factors);
#else
    HWY_ALIGN float values[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const auto byte = static_cast<uint32_t>(*NibbleByte<kBlockBytes>(row, channel + i));
      values[i] = numbers[byte >> NibbleShift(channel + i) & 15];
    }
    return hn::Mul(hn::Load(F32(), values), factors);
#endif
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

// q4_1.
struct Block4MinimumRows {
  static constexpr bool kScaled = true;
  static constexpr int64_t kBlockBytes = 20;
  static constexpr bool kHasMinimum = true;
#if KVCHECK_SIXTEEN_LANES
  static HWY_INLINE auto SixteenCodes(const std::byte* row, int64_t channel) {
    return NibblesOf<kBlockBytes>(row, channel);
  }
#endif
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    const hn::RebindToSigned<F32> di;
    const auto nibbles = hn::BitCast(di, NibblesOf<kBlockBytes>(row, channel));
    return hn::ConvertTo(F32(), hn::And(nibbles, hn::Set(di, 15)));
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

// q5_0, whose codes stand for 16 less, and q5_1.
template <bool kMinimum>
struct Block5Rows {
  static constexpr bool kScaled = true;
  static constexpr int64_t kBlockBytes = kMinimum ? 24 : 22;
  static constexpr bool kHasMinimum = kMinimum;
  static constexpr int64_t kFifthBits = kMinimum ? 4 : 2;
  static constexpr float kLeast = kMinimum ? 0.0f : -16.0f;  // what code 0 stands for
#if KVCHECK_SIXTEEN_LANES
  static HWY_INLINE auto SixteenCodes(const std::byte* row, int64_t channel) {
    return NibblesOf<kBlockBytes>(row, channel);
  }
  static HWY_INLINE uint16_t SixteenFifthBits(const std::byte* row, int64_t channel) {
    uint16_t bits = 0;
    const std::byte* word = row + BlockOfChannel(channel) * kBlockBytes + kFifthBits;
    std::memcpy(&bits, word + PlaceInBlock(channel) / 8, sizeof(bits));
    return bits;
  }
#endif
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    uint32_t word = 0;
    std::memcpy(&word, row + BlockOfChannel(channel) * kBlockBytes + kFifthBits, sizeof(word));
    const auto places = hn::Iota(du, static_cast<uint32_t>(PlaceInBlock(channel)));
    const auto fifth = hn::And(hn::Shr(hn::Set(du, word), places), hn::Set(du, 1u));
    const auto nibbles = hn::And(NibblesOf<kBlockBytes>(row, channel), hn::Set(du, 15u));
    const auto codes = hn::BitCast(di, hn::Or(nibbles, hn::ShiftLeft<4>(fifth)));
    return hn::ConvertTo(F32(), hn::Add(codes, hn::Set(di, static_cast<int32_t>(kLeast))));
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
