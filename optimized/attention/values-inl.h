// Values of stored rows as f32 lanes, in registers: of codes c with scale s and bias b fl(c s + b),
// of one rounding where kFused holds, of two where it does not; without a bias, as of codes that
// name numbers, fl(number[c] s). Included once per instruction set.

#if defined(OPTIMIZED_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_VALUES_INL_H_
#undef OPTIMIZED_ATTENTION_VALUES_INL_H_
#else
#define OPTIMIZED_ATTENTION_VALUES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "optimized/attention/ggml_rows-inl.h"
#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

// Codes of 8 bits with a scale of the whole vector, and no bias.
template <class Codes>
struct ScaledRows {
  static constexpr bool kScaled = true;
  static constexpr bool kUnbiased = true;
  static HWY_INLINE VF32 Load(const std::byte* row, int64_t channel) {
    return Codes::Load(row, channel);
  }
  static HWY_INLINE VF32 LoadTail(const std::byte*, int64_t, int64_t) { return hn::Zero(F32()); }
};
template <class Rows>
inline constexpr bool kIsUnbiased = requires { Rows::kUnbiased; };

// Rows of two halves (BlockRows::high), the second of one bit more.
template <int kBits>
struct CentroidHalves {
  static constexpr bool kScaled = true;
  using Low = CentroidRows<kBits>;
  using High = CentroidRows<kBits + 1>;
};
template <class Rows>
inline constexpr bool kHasHalves = false;
template <int kBits>
inline constexpr bool kHasHalves<CentroidHalves<kBits>> = true;

// Whether codes of Rows name numbers, BlockRows::centroids.
template <class Rows>
inline constexpr bool kLooksUp = false;
template <int kBits>
inline constexpr bool kLooksUp<CentroidRows<kBits>> = true;
template <>
inline constexpr bool kLooksUp<Block4Rows> = true;

// Whether rows hold scales beside their codes, block after block (ggml_rows-inl.h).
template <class Rows>
inline constexpr bool kHoldsScales = requires { Rows::kBlockBytes; };

// A number in f16, in every lane.
HWY_INLINE VF32 SetHalf(const std::byte* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
#if KVCHECK_WIDE_VECTORS
  const hn::Rebind<uint16_t, F32> d16;
  const hn::Rebind<hwy::float16_t, F32> halves;
  return hn::PromoteTo(F32(), hn::BitCast(halves, hn::Set(d16, bits)));
#else
  return FromFloat16(F32(), hn::Set(hn::RebindToUnsigned<F32>(), uint32_t{bits}));
#endif
}

// The scale of row i and group g.
template <class Rows>
HWY_INLINE VF32 StoredScaleOf(const BlockRows& block, int64_t i, int64_t g) {
  if constexpr (kHoldsScales<Rows>) return SetHalf(block.rows[i] + g * Rows::kBlockBytes);
  return hn::Set(F32(), block.scale(i, g));
}

// What LoadValue takes for it.
template <class Rows>
HWY_INLINE VF32 ScaleOf(const BlockRows& block, int64_t i, int64_t g) {
  if constexpr (!Rows::kScaled) return hn::Zero(F32());
  if constexpr (kLooksUp<Rows>) {
    return Rows::Factors(block.centroids, StoredScaleOf<Rows>(block, i, g));
  }
  return StoredScaleOf<Rows>(block, i, g);
}

// And for the bias.
template <class Rows>
HWY_INLINE VF32 BiasOf(const BlockRows& block, int64_t i, int64_t g) {
  if constexpr (!Rows::kScaled || kLooksUp<Rows> || kIsUnbiased<Rows>) return hn::Zero(F32());
  if constexpr (kHoldsScales<Rows>) {
    return Rows::kHasMinimum ? SetHalf(block.rows[i] + g * Rows::kBlockBytes + 2) : hn::Zero(F32());
  }
  return hn::Set(F32(), block.bias(i, g));
}

// fl(c s + b), or the value as it is stored.
template <class Rows, bool kFused>
HWY_INLINE VF32 Value(VF32 stored, VF32 scale, VF32 bias) {
  if constexpr (Rows::kScaled) {
    return MultiplyAdd<kFused>(stored, scale, bias);
  } else {
    (void)scale, (void)bias;
    return stored;
  }
}

template <class Rows, bool kFused>
HWY_INLINE VF32 LoadStored(const std::byte* row, int64_t channel, VF32 scale, VF32 bias) {
#if KVCHECK_SIXTEEN_LANES
  // A lookup table of the sixteen values of a group, of five bits a second one; the permute takes
  // the low four bits of a lane.
  if constexpr (requires { Rows::SixteenFifthBits(row, channel); }) {
    const VF32 low = MultiplyAdd<kFused>(hn::Iota(F32(), Rows::kLeast), scale, bias);
    const VF32 high = MultiplyAdd<kFused>(hn::Iota(F32(), Rows::kLeast + 16), scale, bias);
    const auto codes = Rows::SixteenCodes(row, channel);
    return VF32{_mm512_mask_permutexvar_ps(_mm512_permutexvar_ps(codes.raw, low.raw),
                                           Rows::SixteenFifthBits(row, channel), codes.raw,
                                           high.raw)};
  } else if constexpr (requires { Rows::SixteenCodes(row, channel); }) {
    const VF32 values = MultiplyAdd<kFused>(hn::Iota(F32(), 0.0f), scale, bias);
    return VF32{_mm512_permutexvar_ps(Rows::SixteenCodes(row, channel).raw, values.raw)};
  }
#endif
  return Value<Rows, kFused>(Rows::Load(row, channel), scale, bias);
}

// Value of what is stored at `row` of the block from `channel` on.
template <class Rows, bool kFused>
HWY_INLINE VF32 LoadValue(const BlockRows& block, const std::byte* row, int64_t channel, VF32 scale,
                          VF32 bias) {
  if constexpr (kLooksUp<Rows>) {
    return Rows::LookUp(row, channel, block.centroids, scale);
  } else {
    return LoadStored<Rows, kFused>(row, channel, scale, bias);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
