// f32 lanes to the codes of narrower types and back, by the rules of convert.h: to nearest even,
// what overflows becomes infinity (in e4m3fn NaN), NaN is quiet and keeps its sign, in f16 and bf16
// the leading bits of its payload too. Included once per instruction set.

#if defined(OPTIMIZED_FORMATS_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_FORMATS_NARROW_INL_H_
#undef OPTIMIZED_FORMATS_NARROW_INL_H_
#else
#define OPTIMIZED_FORMATS_NARROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "optimized/formats/widen-inl.h"
#include "reference/spec/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The 16-bit types of rows and scales; f32 is not narrowed.
template <DType kType>
concept NarrowType = kType == DType::kFloat16 || kType == DType::kBFloat16;

// Bytes of a number of a type of at most 32 bits.
template <DType kType>
inline constexpr int kElementBytes = kType == DType::kFloat32 ? 4 : (NarrowType<kType> ? 2 : 1);

// Any alignment.
template <class D>
HWY_INLINE void StoreBytes(hn::Vec<D> v, D /*d*/, std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(v);
  std::memcpy(to, &value, sizeof(value));
#else
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<uint8_t*>(to));
#endif
}

// NarrowMagnitude of convert.h; of what is not finite, kOverflow.
template <int kMantissa, int kBias, int32_t kOverflow, class I32>
HWY_INLINE hn::Vec<I32> MagnitudeLanes(I32 di, hn::Vec<I32> a) {
  const hn::Rebind<float, I32> d;
  constexpr int kShift = 23 - kMantissa;
  constexpr int32_t kRebias = (127 - kBias) << 23;
  const auto odd = hn::And(hn::ShiftRight<kShift>(a), hn::Set(di, 1));
  const auto half = hn::Add(odd, hn::Set(di, (1 << (kShift - 1)) - 1));
  const auto normal = hn::ShiftRight<kShift>(hn::Add(hn::Sub(a, hn::Set(di, kRebias)), half));
  // Adding the power of two whose spacing is that of the subnormal codes rounds to them.
  const auto magic = hn::Set(di, (127 + 24 - kBias - kMantissa) << 23);
  const auto sum = hn::Add(hn::BitCast(d, a), hn::BitCast(d, magic));
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), magic);
  const auto is_small = hn::Lt(a, hn::Set(di, kRebias + (1 << 23)));
  return hn::Min(hn::IfThenElse(is_small, subnormal, normal), hn::Set(di, kOverflow));
}

// Codes of f16, one a 32-bit lane. Our own: without F16C Highway 1.0.3 truncates.
template <class F32>
HWY_INLINE hn::Vec<hn::RebindToSigned<F32>> Float16Lanes(F32 /*d*/, hn::Vec<F32> v) {
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(di, v);
  const auto a = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto number = MagnitudeLanes<10, 15, 0x7c00>(di, a);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(a), hn::Set(di, 0x1ff)), hn::Set(di, 0x7e00));
  return hn::Or(hn::IfThenElse(hn::Gt(a, hn::Set(di, 0x7f800000)), nan, number), sign);
}

// Codes of the types of 8 bits, one a 32-bit lane.
template <DType kType, class F32>
HWY_INLINE hn::Vec<hn::RebindToSigned<F32>> Float8Lanes(F32 /*d*/, hn::Vec<F32> v) {
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(di, v);
  const auto a = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
  if constexpr (kType == DType::kFloat8E4M3FN) {
    return hn::Or(MagnitudeLanes<3, 7, 0x7f>(di, a), sign);
  } else {
    const auto number = MagnitudeLanes<2, 15, 0x7c>(di, a);
    const auto is_nan = hn::Gt(a, hn::Set(di, 0x7f800000));
    return hn::Or(hn::IfThenElse(is_nan, hn::Set(di, 0x7e), number), sign);
  }
}

// e4m3fn codes, one a 32-bit lane, as values.
template <class F32>
HWY_INLINE hn::Vec<F32> FromFloat8E4M3(F32 d, hn::Vec<hn::RebindToUnsigned<F32>> code) {
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(di, code);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7f));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(bits, magnitude));
  const auto shifted = hn::ShiftLeft<20>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(di, 120 << 23));
  const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-9F)));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 8)), subnormal, normal);
  const auto is_nan = hn::Eq(magnitude, hn::Set(di, 0x7f));
  return hn::BitCast(d, hn::Or(hn::IfThenElse(is_nan, hn::Set(di, 0x7fc00000), finite), sign));
}

// The same values, NaN quiet.
template <class F32>
HWY_INLINE hn::Vec<F32> QuietLanes(F32 d, hn::Vec<F32> v) {
  const hn::RebindToUnsigned<F32> du;
  const auto quiet = hn::BitCast(d, hn::Or(hn::BitCast(du, v), hn::Set(du, 0x00400000u)));
  return hn::IfThenElse(hn::Eq(v, v), v, quiet);
}

// Codes of bf16 in the upper half of each lane, zeros below: the rounded value.
template <class F32>
HWY_INLINE hn::Vec<F32> RoundToBFloat16(F32 d, hn::Vec<F32> v) {
  const hn::RebindToUnsigned<F32> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  const auto is_number = hn::RebindMask(du, hn::Eq(v, v));
  return hn::BitCast(d,
                     hn::And(hn::IfThenElse(is_number, rounded, quiet), hn::Set(du, 0xffff0000u)));
}

// Each value rounded to the type, in f32; to f32, itself.
template <DType kType, class F32>
HWY_INLINE hn::Vec<F32> RoundLanes(F32 d, hn::Vec<F32> v) {
  if constexpr (kType == DType::kBFloat16) {
    return RoundToBFloat16(d, v);
  } else if constexpr (kType == DType::kFloat16) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), v));
#else
    return FromFloat16(d, hn::BitCast(hn::RebindToUnsigned<F32>(), Float16Lanes(d, v)));
#endif
  } else {
    (void)d;
    return v;
  }
}

// The values' codes, one a 16-bit lane.
template <DType kType, class F32>
  requires NarrowType<kType>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, F32>> NarrowLanes(F32 d, hn::Vec<F32> v) {
  const hn::Rebind<uint16_t, F32> d16;
  if constexpr (kType == DType::kFloat16) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), v));
#else
    return hn::DemoteTo(d16, Float16Lanes(d, v));
#endif
  } else {
    const hn::RebindToSigned<F32> di;
    const hn::RebindToUnsigned<F32> du;
    const auto codes = hn::ShiftRight<16>(hn::BitCast(du, RoundToBFloat16(d, v)));
    return hn::DemoteTo(d16, hn::BitCast(di, codes));
  }
}

// Values as codes of a type of at most 32 bits, next to each other. Any alignment.
template <DType kType, class F32>
HWY_INLINE void StoreLanes(hn::Vec<F32> v, F32 d, std::byte* to) {
  if constexpr (kType == DType::kFloat32) {
    StoreBytes(v, d, to);
  } else if constexpr (NarrowType<kType>) {
    StoreBytes(NarrowLanes<kType>(d, v), hn::Rebind<uint16_t, F32>(), to);
  } else {
    const hn::Rebind<uint8_t, F32> d8;
    StoreBytes(hn::DemoteTo(d8, Float8Lanes<kType>(d, v)), d8, to);
  }
}

// The other way. NaN need not be quiet.
template <DType kType, class F32>
HWY_INLINE hn::Vec<F32> LoadLanes(F32 d, const std::byte* from) {
  if constexpr (kType == DType::kFloat32) {
    return LoadBytes(d, from);
  } else if constexpr (kType == DType::kFloat16) {
    return LoadFloat16(d, from);
  } else if constexpr (kType == DType::kFloat8E4M3FN || kType == DType::kFloat8E5M2) {
    const hn::RebindToUnsigned<F32> du;
    const auto codes = hn::PromoteTo(du, LoadBytes(hn::Rebind<uint8_t, F32>(), from));
    // e5m2 is the upper half of f16.
    if constexpr (kType == DType::kFloat8E4M3FN) return FromFloat8E4M3(d, codes);
    return FromFloat16(d, hn::ShiftLeft<8>(codes));
  } else {
    const hn::RebindToUnsigned<F32> du;
    const auto codes = hn::PromoteTo(du, LoadBytes(hn::Rebind<uint16_t, F32>(), from));
    return hn::BitCast(d, hn::ShiftLeft<16>(codes));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_FORMATS_NARROW_INL_H_
