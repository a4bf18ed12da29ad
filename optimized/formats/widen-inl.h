// Stored numbers into f32 lanes, in registers, by exact conversions. Included once per instruction
// set by whoever reads stored vectors lane by lane.

#if defined(OPTIMIZED_FORMATS_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_FORMATS_WIDEN_INL_H_
#undef OPTIMIZED_FORMATS_WIDEN_INL_H_
#else
#define OPTIMIZED_FORMATS_WIDEN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Any alignment.
template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const std::byte* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof(value));
  return hn::Set(d, value);
#else
  const hn::Repartition<uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
#endif
}

// f16 codes, one a 32-bit lane. Our own: without F16C Highway 1.0.3 decodes infinities and NaN as
// numbers.
template <class F32>
HWY_INLINE hn::Vec<F32> FromFloat16(F32 d, hn::Vec<hn::RebindToUnsigned<F32>> code) {
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  const auto magnitude = hn::And(code, hn::Set(du, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(code, magnitude));
  const auto is_subnormal =
      hn::RebindMask(d, hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x400)));
  const auto is_special =
      hn::RebindMask(d, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7bff)));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::BitCast(d, hn::Add(shifted, hn::Set(du, 112u << 23)));
  const auto special = hn::BitCast(d, hn::Add(shifted, hn::Set(du, 224u << 23)));
  const auto subnormal =
      hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1p-24f));
  const auto size =
      hn::IfThenElse(is_subnormal, subnormal, hn::IfThenElse(is_special, special, normal));
  return hn::Or(size, hn::BitCast(d, sign));
}

// f16 from memory, any alignment.
template <class F32>
HWY_INLINE hn::Vec<F32> LoadFloat16(F32 d, const std::byte* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::PromoteTo(d, LoadBytes(hn::Rebind<hwy::float16_t, F32>(), from));
#else
  const hn::RebindToUnsigned<F32> du;
  return FromFloat16(d, hn::PromoteTo(du, LoadBytes(hn::Rebind<uint16_t, F32>(), from)));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_FORMATS_WIDEN_INL_H_
