// Rounding of doubles to f32, bf16 and f16 values, and conversions between f32 and the two 16-bit
// types, written without branches so that loops over them vectorise: the hot path of simulated
// kernels. They must equal the definitions in convert.h, which a test proves.
//
// Rounding from double is by a constant: with C = 2^(max(floor(log2 a), emin) + 52 - m), the sum
// a + C lies in the binade of C, whose spacing is that of the target at a, so the addition rounds a
// to the target's grid, ties to even, also below its normal range; (a + C) - C is then exact. This
// needs the default floating-point environment (nearest even, subnormals on).

#ifndef REFERENCE_NUMERICS_FAST_ROUND_H_
#define REFERENCE_NUMERICS_FAST_ROUND_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace kvcheck {
namespace fast_round {

// 2^k for k in the normal range of double.
constexpr double PowerOfTwo(int k) {
  return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
}

// The largest finite value of a type whose largest exponent is -min_exponent + 1, and the smallest
// magnitude that rounds (to nearest even) past it.
template <int kMantissaBits, int kMinExponent>
inline constexpr double kLargest =
    PowerOfTwo(2 - kMinExponent) - PowerOfTwo(1 - kMinExponent - kMantissaBits);
template <int kMantissaBits, int kMinExponent>
inline constexpr double kFirstOverflow =
    PowerOfTwo(2 - kMinExponent) - PowerOfTwo(-kMinExponent - kMantissaBits);

inline constexpr uint64_t kSignBit = uint64_t{1} << 63;

// The spacing of the type at a, 2^(max(floor(log2 a), emin) - m). Meaningless, but no trap, for
// huge and non-finite a: the callers replace that result.
template <int kMantissaBits, int kMinExponent>
inline double SpacingOf(double a) {
  const double binade = std::bit_cast<double>(std::bit_cast<uint64_t>(a) & 0x7ff0000000000000u);
  constexpr double kSmallestNormal = PowerOfTwo(kMinExponent);
  const double base = binade > kSmallestNormal ? binade : kSmallestNormal;
  return base * PowerOfTwo(-kMantissaBits);
}

template <int kMantissaBits, int kMinExponent>
inline double Nearest(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const double a = std::bit_cast<double>(bits & ~kSignBit);
  const double c = SpacingOf<kMantissaBits, kMinExponent>(a) * 0x1p52;
  const double rounded = (a + c) - c;
  // Infinity for what overflows, a quiet NaN for NaN.
  const double beyond = a * std::numeric_limits<double>::infinity();
  const double r = a < kFirstOverflow<kMantissaBits, kMinExponent> ? rounded : beyond;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(r) | (bits & kSignBit));
}

// Comparisons whose outcome is known from an earlier one, or which guard an operation, become
// branches in g++ and stop vectorisation; hence the arithmetic in their place.
template <int kMantissaBits, int kMinExponent>
inline double TowardZero(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const double a = std::bit_cast<double>(bits & ~kSignBit);
  const double spacing = SpacingOf<kMantissaBits, kMinExponent>(a);
  const double c = spacing * 0x1p52;
  const double nearest = (a + c) - c;
  // All ones where nearest > a: one step back.
  const uint64_t past = uint64_t{0} - (std::bit_cast<uint64_t>(a - nearest) >> 63);
  const double rounded = nearest - std::bit_cast<double>(std::bit_cast<uint64_t>(spacing) & past);
  // The largest value for finite a, since 2^600 absorbs a 2^-500; infinity and NaN for themselves.
  constexpr double kTop = kLargest<kMantissaBits, kMinExponent>;
  const double beyond = (a * 0x1p-500 + 0x1p600) * (kTop * 0x1p-600);
  const double r = a < kTop ? rounded : beyond;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(r) | (bits & kSignBit));
}

}  // namespace fast_round

// The value of the type nearest to x, ties to even; beyond the range, infinity. NaN gives a quiet
// NaN of the same sign, its payload unspecified.
inline double RoundToF32(double x) { return static_cast<double>(static_cast<float>(x)); }
inline double RoundToBF16(double x) { return fast_round::Nearest<7, -126>(x); }
inline double RoundToF16(double x) { return fast_round::Nearest<10, -14>(x); }

// The value of the type of largest magnitude not beyond x, with x's sign; a finite x beyond the
// range gives the largest finite value, infinity stays. NaN as above.
inline double RoundTowardZeroToF32(double x) { return fast_round::TowardZero<23, -126>(x); }
inline double RoundTowardZeroToBF16(double x) { return fast_round::TowardZero<7, -126>(x); }
inline double RoundTowardZeroToF16(double x) { return fast_round::TowardZero<10, -14>(x); }

// Exact. The bits of a NaN are kept, a signalling one stays signalling.
inline float F32FromBF16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Exact. NaN is quieted, sign and payload are kept.
inline float F32FromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  const uint32_t normal = shifted + (112u << 23);
  // 2^-14 (1 + m / 2^10) - 2^-14 = m 2^-24, without a subnormal operand.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f);
  const uint32_t quiet = shifted > 0x0f800000u ? 0x00400000u : 0u;
  const uint32_t special = shifted | 0x7f800000u | quiet;
  const uint32_t finite = shifted < 0x00800000u ? subnormal : normal;
  return std::bit_cast<float>((shifted < 0x0f800000u ? finite : special) | sign);
}

// Nearest even. NaN is quieted, its sign and leading payload bits are kept.
inline uint16_t BF16FromF32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x0040u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// Nearest even; 65520 and above give infinity. NaN as for BF16FromF32.
inline uint16_t F16FromF32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t a = bits & 0x7fffffffu;
  const uint32_t normal = (a + 0x0fffu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
  // 0.5 has the spacing 2^-24 of the subnormals: the addition rounds, the low bits are the code.
  const uint32_t clamped = a < 0x38800000u ? a : 0u;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(clamped) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t nan = 0x7e00u | ((a >> 13) & 0x01ffu);
  const uint32_t special = a > 0x7f800000u ? nan : 0x7c00u;
  const uint32_t finite = a < 0x38800000u ? subnormal : normal;
  return static_cast<uint16_t>((a < 0x477ff000u ? finite : special) | ((bits >> 16) & 0x8000u));
}

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_FAST_ROUND_H_
