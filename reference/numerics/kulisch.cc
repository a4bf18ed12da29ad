#include "reference/numerics/kulisch.h"

#include <cmath>
#include <limits>

#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

constexpr int64_t kBase = int64_t{1} << 32;

__extension__ using Wide = unsigned __int128;

struct Term {
  uint64_t mantissa;
  int exponent;  // of the last place
};

// Precondition: x finite.
Term Decompose(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int field = static_cast<int>(bits >> 52) & 0x7ff;
  const uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (field == 0) return {mantissa, -1074};
  return {mantissa | uint64_t{1} << 52, field - 1075};
}

int64_t SignMask(bool negative) { return negative ? -1 : 0; }

}  // namespace

// Digits [low, high) of the sum's magnitude, in base 2^32 and at their places.
struct KulischAccumulator::Window {
  int low = 0;
  int high = 0;
  bool negative = false;
  std::array<int64_t, kSlots> digits;  // only [low, high) is set

  // floor(log2) of the integer of all digits. Precondition: not zero.
  int TopBit() const {
    return 32 * high - 1 - (std::countl_zero(static_cast<uint64_t>(digits[At(high - 1)])) - 32);
  }
  // 64 bits from `position` up. Positions outside the window read as zero.
  uint64_t BitsAt(int position) const {
    const int slot = position >> 5;
    const int shift = position & 31;
    const uint64_t below = Digit(slot) | Digit(slot + 1) << 32;
    return shift == 0 ? below : below >> shift | Digit(slot + 2) << (64 - shift);
  }
  bool AnyBelow(int position) const {
    const int slot = position >> 5;
    for (int i = low; i < high && i < slot; ++i) {
      if (digits[At(i)] != 0) return true;
    }
    return (Digit(slot) & ((uint64_t{1} << (position & 31)) - 1)) != 0;
  }

  static size_t At(int slot) { return static_cast<size_t>(slot); }

 private:
  uint64_t Digit(int slot) const {
    return slot >= low && slot < high ? static_cast<uint64_t>(digits[At(slot)]) : 0;
  }
};

void KulischAccumulator::NoteSpecial(double value) {
  special_ |= std::isnan(value) ? kSawNaN : value > 0 ? kSawPlusInfinity : kSawMinusInfinity;
}

double KulischAccumulator::SpecialSum() const {
  if (special_ == kSawPlusInfinity) return std::numeric_limits<double>::infinity();
  if (special_ == kSawMinusInfinity) return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

void KulischAccumulator::AddProductSlow(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return NoteSpecial(a * b);
  if (a == 0 || b == 0) return;
  const Term x = Decompose(a);
  const Term y = Decompose(b);
  const int64_t sign = SignMask(std::signbit(a) != std::signbit(b));
  const int position = x.exponent + y.exponent + kFractionBits;
  const Wide product = static_cast<Wide>(x.mantissa) * y.mantissa;
  AddShifted(static_cast<uint64_t>(product), position, sign);
  AddShifted(static_cast<uint64_t>(product >> 64), position + 64, sign);
}

void KulischAccumulator::Add(double a) {
  if (!std::isfinite(a)) return NoteSpecial(a);
  if (a == 0) return;
  const Term x = Decompose(a);
  AddShifted(x.mantissa, x.exponent + kFractionBits, SignMask(std::signbit(a)));
}

KulischAccumulator::Window KulischAccumulator::Canonical() const {
  Window window;
  if (low_ >= high_) return window;
  // Non-negative digits, with what is left over as the top digit, of either sign.
  int64_t carry = 0;
  for (int i = low_; i < high_; ++i) {
    const int64_t sum = slots_[Window::At(i)] + carry;
    carry = sum >> 32;  // floor
    window.digits[Window::At(i)] = sum - carry * kBase;
  }
  window.low = low_;
  window.high = high_;
  if (carry < 0) {
    // The value is negative; its magnitude is the complement of every digit above the lowest one.
    window.negative = true;
    int64_t borrow = 0;
    for (int i = window.low; i < window.high; ++i) {
      int64_t& digit = window.digits[Window::At(i)];
      digit = -digit - borrow;
      borrow = digit < 0 ? 1 : 0;
      digit += borrow * kBase;
    }
    carry = -carry - borrow;
  }
  if (carry != 0) window.digits[Window::At(window.high++)] = carry;
  while (window.high > window.low && window.digits[Window::At(window.high - 1)] == 0) --window.high;
  while (window.low < window.high && window.digits[Window::At(window.low)] == 0) ++window.low;
  if (window.low == window.high) return Window{};
  return window;
}

void KulischAccumulator::Carry() {
  const Window window = Canonical();
  for (int i = low_; i < high_; ++i) slots_[Window::At(i)] = 0;
  for (int i = window.low; i < window.high; ++i) {
    const int64_t digit = window.digits[Window::At(i)];
    slots_[Window::At(i)] = window.negative ? -digit : digit;
  }
  low_ = window.low < window.high ? window.low : kSlots;
  high_ = window.high;
  adds_ = 1;
}

void KulischAccumulator::Merge(const KulischAccumulator& other) {
  const Window theirs = other.Canonical();
  special_ |= other.special_;
  if (theirs.low == theirs.high) return;
  for (int i = theirs.low; i < theirs.high; ++i) {
    const int64_t digit = theirs.digits[Window::At(i)];
    slots_[Window::At(i)] += theirs.negative ? -digit : digit;
  }
  low_ = theirs.low < low_ ? theirs.low : low_;
  high_ = theirs.high > high_ ? theirs.high : high_;
  if (++adds_ >= kAddsPerCarry) Carry();
}

bool KulischAccumulator::operator==(const KulischAccumulator& other) const {
  if (special_ != 0 || other.special_ != 0) {
    if (special_ == 0 || other.special_ == 0) return false;
    const double mine = SpecialSum();
    const double theirs = other.SpecialSum();
    return mine == theirs || (std::isnan(mine) && std::isnan(theirs));
  }
  const Window mine = Canonical();
  const Window theirs = other.Canonical();
  if (mine.low != theirs.low || mine.high != theirs.high || mine.negative != theirs.negative) {
    return false;
  }
  for (int i = mine.low; i < mine.high; ++i) {
    if (mine.digits[Window::At(i)] != theirs.digits[Window::At(i)]) return false;
  }
  return true;
}

double KulischAccumulator::RoundToDouble(Direction direction) const {
  if (special_ != 0) return SpecialSum();
  const Window window = Canonical();
  if (window.low == window.high) return 0.0;
  const int top = window.TopBit();
  constexpr int kSmallestNormalBit = kFractionBits - 1022;
  const int binade = top > kSmallestNormalBit ? top : kSmallestNormalBit;
  const int last = binade - 52;  // the bit of the double's last place
  uint64_t kept = window.BitsAt(last) & ((uint64_t{1} << 53) - 1);
  const bool half = (window.BitsAt(last - 1) & 1) != 0;
  const bool below_half = window.AnyBelow(last - 1);
  switch (direction) {
    case Direction::kNearestEven:
      kept += half && (below_half || (kept & 1) != 0) ? 1 : 0;
      break;
    case Direction::kNearestAway:
      kept += half ? 1 : 0;
      break;
    case Direction::kTowardZero:
      break;
    case Direction::kOdd:
      kept |= half || below_half ? 1 : 0;
      break;
  }
  // The hidden bit of kept counts in the exponent field; fields beyond 2045 are past the range.
  const uint64_t field = static_cast<uint64_t>(binade - kSmallestNormalBit);
  constexpr uint64_t kInfinityBits = uint64_t{0x7ff} << 52;
  uint64_t bits = field > 2045 ? kInfinityBits : (field << 52) + kept;
  const bool nearest = direction == Direction::kNearestEven || direction == Direction::kNearestAway;
  if (bits == kInfinityBits && !nearest) bits -= 1;  // the largest finite value, which is odd
  const double magnitude = std::bit_cast<double>(bits);
  return window.negative ? -magnitude : magnitude;
}

double KulischAccumulator::Round() const { return RoundToDouble(Direction::kNearestEven); }

std::pair<double, double> KulischAccumulator::RoundToPair() const {
  const double high = Round();
  if (!std::isfinite(high)) return {high, 0.0};
  KulischAccumulator remainder = *this;
  remainder.Add(-high);
  return {high, remainder.Round()};
}

// Rounding to odd with at least two more bits than the target keeps on which side of every midpoint
// the sum lies, so the second rounding is the only one that counts.
double KulischAccumulator::RoundTo(DType dtype, const ConvertRule& rule) const {
  Direction direction = Direction::kOdd;
  if (dtype == DType::kFloat64) {
    switch (rule.rounding) {
      case Rounding::kNearestEven:
        direction = Direction::kNearestEven;
        break;
      case Rounding::kTowardZero:
        direction = Direction::kTowardZero;
        break;
      case Rounding::kNearestAway:
        direction = Direction::kNearestAway;
        break;
    }
  }
  return kvcheck::RoundTo(dtype, RoundToDouble(direction), rule);
}

int KulischAccumulator::Sign() const {
  if (special_ != 0) {
    const double sum = SpecialSum();
    return std::isnan(sum) ? 0 : sum > 0 ? 1 : -1;
  }
  const Window window = Canonical();
  if (window.low == window.high) return 0;
  return window.negative ? -1 : 1;
}

}  // namespace kvcheck
