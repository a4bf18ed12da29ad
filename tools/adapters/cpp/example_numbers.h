// Elements of the example's types as floats and back: f32, f16 and bf16, to nearest, ties to even.

#ifndef KVCHECK_EXAMPLE_NUMBERS_H_
#define KVCHECK_EXAMPLE_NUMBERS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

enum class Number { kF32, kF16, kBF16 };

inline float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float FromHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {  // subnormal: spacing 2^-24
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign == 0 ? value : -value;
  }
  if (exponent == 31) return FromBits(sign | 0x7f800000u | fraction << 13);
  return FromBits(sign | (exponent + 112) << 23 | fraction << 13);
}

inline uint16_t ToHalf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 on: infinity
  if (size < 0x38800000u) {                                               // below 2^-14
    const long units = std::lrint(std::ldexp(std::fabs(value), 24));
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(units));
  }
  size += 0xfffu + (size >> 13 & 1u);
  return static_cast<uint16_t>(sign | (size - 0x38000000u) >> 13);
}

inline uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float Load(Number number, const std::byte* from, int64_t i) {
  if (number == Number::kF32) {
    float value;
    std::memcpy(&value, from + 4 * i, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from + 2 * i, 2);
  return number == Number::kF16 ? FromHalf(bits) : FromBits(static_cast<uint32_t>(bits) << 16);
}

inline void Store(Number number, float value, std::byte* to, int64_t i) {
  if (number == Number::kF32) {
    std::memcpy(to + 4 * i, &value, 4);
    return;
  }
  const uint16_t bits = number == Number::kF16 ? ToHalf(value) : ToBFloat16(value);
  std::memcpy(to + 2 * i, &bits, 2);
}

#endif  // KVCHECK_EXAMPLE_NUMBERS_H_
