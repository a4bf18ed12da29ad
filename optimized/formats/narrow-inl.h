// f32 lanes to f16 and bf16, to nearest even, by the rules of convert.h: what overflows becomes
// infinity, NaN is quiet and keeps its sign and the leading bits of its payload. Included once per
// instruction set.

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

// Any alignment.
template <class D>
HWY_INLINE void StoreBytes(hn::Vec<D> v, D d, std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> value = hn::GetLane(v);
  std::memcpy(to, &value, sizeof(value));
  (void)d;
#else
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, reinterpret_cast<uint8_t*>(to));
#endif
}

// Codes of f16, one a 32-bit lane. Our own: without F16C Highway 1.0.3 truncates.
template <class F32>
HWY_INLINE hn::Vec<hn::RebindToSigned<F32>> Float16Lanes(F32 d, hn::Vec<F32> v) {
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(di, v);
  const auto a = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto half = hn::Add(hn::And(hn::ShiftRight<13>(a), hn::Set(di, 1)), hn::Set(di, 0xfff));
  const auto normal = hn::ShiftRight<13>(hn::Sub(hn::Add(a, half), hn::Set(di, 112 << 23)));
  // Adding 0.5, whose spacing is that of the subnormal codes, rounds to them.
  const auto magic = hn::Set(d, 0.5F);
  const auto subnormal =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, a), magic)), hn::BitCast(di, magic));
  const auto finite = hn::IfThenElse(hn::Lt(a, hn::Set(di, 113 << 23)), subnormal, normal);
  const auto infinity = hn::Set(di, 0x7c00);
  const auto number = hn::IfThenElse(hn::Lt(finite, infinity), finite, infinity);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(a), hn::Set(di, 0x1ff)), hn::Set(di, 0x7e00));
  return hn::Or(hn::IfThenElse(hn::Gt(a, hn::Set(di, 0x7f800000)), nan, number), sign);
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

// Values as codes of f32, f16 or bf16, next to each other. Any alignment.
template <DType kType, class F32>
HWY_INLINE void StoreLanes(hn::Vec<F32> v, F32 d, std::byte* to) {
  if constexpr (kType == DType::kFloat32) {
    StoreBytes(v, d, to);
  } else {
    StoreBytes(NarrowLanes<kType>(d, v), hn::Rebind<uint16_t, F32>(), to);
  }
}

// The other way. NaN need not be quiet.
template <DType kType, class F32>
HWY_INLINE hn::Vec<F32> LoadLanes(F32 d, const std::byte* from) {
  if constexpr (kType == DType::kFloat32) {
    return LoadBytes(d, from);
  } else if constexpr (kType == DType::kFloat16) {
    return LoadFloat16(d, from);
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
