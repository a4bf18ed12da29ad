// An exact accumulator of sums of products of doubles (Kulisch's long accumulator): one fixed-point
// number wide enough for every product of two finite doubles, subnormals included, so nothing is
// rounded until it is read out. The state does not depend on the order of the terms, and partial
// sums merge exactly. Exact dot products come from here: scores, exact dequantisation, bitwise
// checks that a sum of chunks is the sum.

#ifndef REFERENCE_NUMERICS_KULISCH_H_
#define REFERENCE_NUMERICS_KULISCH_H_

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "reference/spec/dtype.h"
#include "reference/spec/rounding.h"

namespace kvcheck {

// Definition: the sum of all added terms, in exact arithmetic. A non-finite term (an infinite or
// NaN operand, or 0 * infinity) is remembered for good and decides the sum by the rules of IEEE
// 754: NaN, or infinities of both signs, give NaN; infinities of one sign give that infinity.
// Capacity: 2^90 terms of the largest magnitude.
class KulischAccumulator {
 public:
  void AddProduct(double a, double b);
  void Add(double a);
  // Adds the other's sum. Safe on itself.
  void Merge(const KulischAccumulator& other);

  // Equal sums. Two sums decided by non-finite terms are equal when both are NaN or both the same
  // infinity.
  bool operator==(const KulischAccumulator& other) const;

  // The sum as the nearest double, ties to even; an exact zero is +0.
  double Round() const;
  // first = Round(), second = the remainder sum - first as the nearest double (0 when first is not
  // finite).
  std::pair<double, double> RoundToPair() const;
  // The sum rounded once to a value of a float type. Errors: as RoundTo in convert.h.
  double RoundTo(DType dtype, const ConvertRule& rule = {}) const;

  // -1, 0 or 1. 0 when the sum is NaN.
  int Sign() const;
  bool IsFinite() const { return special_ == 0; }

 private:
  // Slot i holds a signed multiple of 2^(32 i - kFractionBits); slots outside [low_, high_) are
  // zero. Between carries a slot may hold up to 2^62.
  static constexpr int kFractionBits = 2148;                       // 2^-1074 squared
  static constexpr int kSlots = (kFractionBits + 2048 + 92) / 32;  // 92 bits of head room
  static constexpr int64_t kAddsPerCarry = int64_t{1} << 29;
  static_assert(kSlots * 32 == kFractionBits + 2048 + 92);

  enum : uint8_t { kSawNaN = 1, kSawPlusInfinity = 2, kSawMinusInfinity = 4 };

  // kOdd: an inexact sum goes to the neighbour whose last bit is 1.
  enum class Direction : uint8_t { kNearestEven, kTowardZero, kNearestAway, kOdd };

  struct Window;

  // Adds magnitude * 2^(position - kFractionBits), negated when sign is all ones.
  void AddShifted(uint64_t magnitude, int position, int64_t sign);
  void AddProductSlow(double a, double b);
  void NoteSpecial(double value);
  double SpecialSum() const;
  // The one form of each sum: digits of one sign, below 2^32 in magnitude, the outer ones not zero.
  Window Canonical() const;
  void Carry();
  double RoundToDouble(Direction direction) const;

  std::array<int64_t, kSlots> slots_{};
  int low_ = kSlots;
  int high_ = 0;
  int64_t adds_ = 0;
  uint8_t special_ = 0;
};

inline void KulischAccumulator::AddShifted(uint64_t magnitude, int position, int64_t sign) {
  const int slot = position >> 5;
  const int shift = position & 31;
  const uint64_t below = magnitude << shift;
  const uint64_t above = (magnitude >> 1) >> (63 - shift);
  const int64_t digit0 = static_cast<int64_t>(below & 0xffffffffu);
  const int64_t digit1 = static_cast<int64_t>(below >> 32);
  const int64_t digit2 = static_cast<int64_t>(above);
  int64_t* const at = slots_.data() + slot;
  at[0] += (digit0 ^ sign) - sign;
  at[1] += (digit1 ^ sign) - sign;
  at[2] += (digit2 ^ sign) - sign;
  low_ = slot < low_ ? slot : low_;
  high_ = slot + 3 > high_ ? slot + 3 : high_;
  if (++adds_ >= kAddsPerCarry) Carry();
}

// Operands of 24 significant bits (every type narrower than f64 decodes to such) have a 48-bit
// product, which is one shifted integer; all else goes to AddProductSlow.
inline void KulischAccumulator::AddProduct(double a, double b) {
  const uint64_t a_bits = std::bit_cast<uint64_t>(a);
  const uint64_t b_bits = std::bit_cast<uint64_t>(b);
  const uint32_t a_field = static_cast<uint32_t>(a_bits >> 52) & 0x7ffu;
  const uint32_t b_field = static_cast<uint32_t>(b_bits >> 52) & 0x7ffu;
  const bool both_normal = a_field - 1u < 0x7feu && b_field - 1u < 0x7feu;
  if (!both_normal || ((a_bits | b_bits) & 0x1fffffffu) != 0) [[unlikely]] {
    AddProductSlow(a, b);
    return;
  }
  const uint64_t a_mantissa = (a_bits >> 29 & 0x7fffffu) | 0x800000u;
  const uint64_t b_mantissa = (b_bits >> 29 & 0x7fffffu) | 0x800000u;
  // Mantissas are integers times 2^(field - 1075 + 29).
  const int position = static_cast<int>(a_field + b_field) - 2 * (1075 - 29) + kFractionBits;
  AddShifted(a_mantissa * b_mantissa, position, static_cast<int64_t>(a_bits ^ b_bits) >> 63);
}

}  // namespace kvcheck

#endif  // REFERENCE_NUMERICS_KULISCH_H_
