// Conversions between f32 and the narrower storage types, by integer arithmetic on bit patterns,
// one element at a time and without branches, so that loops over them vectorise. Hardware and
// library conversions are not used: they differ in NaN, in overflow and in the fp8 types.
//
// Narrowing rounds to nearest even. What overflows becomes infinity, in e4m3fn, which has none,
// NaN. NaN is quiet and keeps its sign, in f16 and bf16 the leading bits of its payload too. Needs
// the default floating-point environment: subnormal codes are rounded by an addition.

#ifndef OPTIMIZED_FORMATS_CONVERT_H_
#define OPTIMIZED_FORMATS_CONVERT_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace kvcheck::optimized {

inline constexpr uint32_t kF32Infinity = 0x7f800000u;
inline constexpr uint32_t kF32Quiet = 0x00400000u;

// The same value, a NaN quiet.
inline uint32_t QuietF32(uint32_t bits) {
  return bits | ((bits & 0x7fffffffu) > kF32Infinity ? kF32Quiet : 0u);
}

// Code of a magnitude (f32 bits without a sign) in a type of kMantissa stored bits and exponent
// bias kBias; from kOverflow on, kOverflow.
template <int kMantissa, int kBias, uint32_t kOverflow>
inline uint32_t NarrowMagnitude(uint32_t a) {
  constexpr int kShift = 23 - kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  constexpr uint32_t kSmallestNormal = kRebias + (1u << 23);
  // The power of two whose spacing in f32 is that of the subnormals: adding it rounds to them.
  constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;
  const uint32_t half = (1u << (kShift - 1)) - 1 + ((a >> kShift) & 1u);
  const uint32_t normal = (a + half - kRebias) >> kShift;
  const uint32_t small = a < kSmallestNormal ? a : 0u;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(small) + std::bit_cast<float>(kMagic)) - kMagic;
  const uint32_t code = a < kSmallestNormal ? subnormal : normal;
  return code < kOverflow ? code : kOverflow;
}

inline uint16_t F16FromF32(uint32_t bits) {
  const uint32_t a = bits & 0x7fffffffu;
  const uint32_t nan = 0x7e00u | ((a >> 13) & 0x01ffu);
  const uint32_t code = a > kF32Infinity ? nan : NarrowMagnitude<10, 15, 0x7c00u>(a);
  return static_cast<uint16_t>(code | ((bits >> 16) & 0x8000u));
}

// bf16 has the exponents of f32: rounding is one addition, for subnormals too.
inline uint16_t BF16FromF32(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > kF32Infinity ? nan : rounded);
}

inline uint8_t E4M3FromF32(uint32_t bits) {
  const uint32_t a = bits & 0x7fffffffu;
  // The code after the largest finite one is NaN, and so is NaN's own exponent.
  return static_cast<uint8_t>(NarrowMagnitude<3, 7, 0x7fu>(a) | ((bits >> 24) & 0x80u));
}

inline uint8_t E5M2FromF32(uint32_t bits) {
  const uint32_t a = bits & 0x7fffffffu;
  const uint32_t code = a > kF32Infinity ? 0x7eu : NarrowMagnitude<2, 15, 0x7cu>(a);
  return static_cast<uint8_t>(code | ((bits >> 24) & 0x80u));
}

inline uint32_t F32FromF16(uint32_t code) {
  const uint32_t sign = (code & 0x8000u) << 16;
  const uint32_t shifted = (code & 0x7fffu) << 13;
  const uint32_t normal = shifted + (112u << 23);
  // 2^-14 (1 + m 2^-10) - 2^-14 = m 2^-24.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + (113u << 23)) -
                                                     std::bit_cast<float>(113u << 23));
  const uint32_t special = QuietF32(shifted + (224u << 23));
  const uint32_t finite = shifted < (1u << 23) ? subnormal : normal;
  return (shifted < (31u << 23) ? finite : special) | sign;
}

inline uint32_t F32FromBF16(uint32_t code) { return QuietF32(code << 16); }

inline uint32_t F32FromE4M3(uint32_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t shifted = (code & 0x7fu) << 20;
  const uint32_t normal = shifted + (120u << 23);
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + (121u << 23)) -
                                                     std::bit_cast<float>(121u << 23));
  const uint32_t finite = shifted < (1u << 23) ? subnormal : normal;
  return ((code & 0x7fu) == 0x7fu ? kF32Infinity | kF32Quiet : finite) | sign;
}

// e5m2 is the upper half of f16.
inline uint32_t F32FromE5M2(uint32_t code) { return F32FromF16(code << 8); }

// A double rounded to f32 by rounding to odd: what is rounded again, to at most 22 bits, comes out
// as if it had been rounded once (Boldo, Melquiond, "Emulation of FMA and correctly rounded sums",
// 2008). NaN is quiet.
inline uint32_t OddF32FromF64(double x) {
  const float nearest = static_cast<float>(x);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double back = static_cast<double>(nearest);
  if (back == x || std::isnan(x)) return bits;
  if (std::fabs(back) > std::fabs(x)) --bits;  // toward zero, infinity to the largest finite value
  return bits | 1u;
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_CONVERT_H_
