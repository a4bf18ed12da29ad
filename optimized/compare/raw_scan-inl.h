// What codes say without being decoded, over one block: whether any differ, zeros of two signs,
// loose tolerances (by the key of the expected code), and, where all are equal, NaN and infinities.
// Included once per instruction set by first_pass.cc.

#if defined(OPTIMIZED_COMPARE_RAW_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_COMPARE_RAW_SCAN_INL_H_
#undef OPTIMIZED_COMPARE_RAW_SCAN_INL_H_
#else
#define OPTIMIZED_COMPARE_RAW_SCAN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "optimized/compare/scan.h"
#include "optimized/formats/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct RawCounts {
  size_t unlike = 0;
  size_t zeros_of_two_signs = 0;
  size_t loose = 0;
  size_t special = 0;     // where all codes are equal: those that are no finite number
  size_t infinities = 0;  // of these
  bool any_nonzero = false;
};

// The keys of a plan as vectors of the codes' width. T: the signed integer of that width.
template <typename T, bool kAbsolute>
struct KeyLanes {
  static constexpr hn::ScalableTag<T> d{};
  using V = hn::Vec<decltype(d)>;
  V mask, flip, largest, last_loose;
  explicit HWY_INLINE KeyLanes(const CodeKeys& keys)
      : mask(hn::Set(d, static_cast<T>(keys.mask))),
        flip(hn::Set(d, static_cast<T>(keys.flip))),
        largest(hn::Set(d, static_cast<T>(keys.largest))),
        last_loose(hn::Set(d, static_cast<T>(keys.last_loose))) {}
  HWY_INLINE V Of(V code) const {
    if constexpr (kAbsolute) return hn::Abs(code);
    return hn::Xor(hn::And(code, mask), flip);
  }
};

// Codes of `from`, all of the block, that are no finite number.
template <typename T, bool kAbsolute>
void CountSpecial(const PassPlan& plan, const std::byte* from, size_t count, RawCounts* counts) {
  const KeyLanes<T, kAbsolute> keys(plan.keys);
  const auto d = keys.d;
  const auto infinity = hn::Set(d, static_cast<T>(plan.keys.infinity));
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto key = keys.Of(LoadBytes(d, from + i * sizeof(T)));
    counts->special += hn::CountTrue(d, hn::Gt(key, keys.largest));
    counts->infinities += hn::CountTrue(d, hn::Eq(key, infinity));
  }
  for (; i < count; ++i) {
    const int64_t key = KeyOf(plan, LoadCode(sizeof(T), from + i * sizeof(T)));
    counts->special += key > plan.keys.largest ? 1 : 0;
    counts->infinities += key == plan.keys.infinity ? 1 : 0;
  }
  if (!plan.keys.has_infinity) counts->infinities = 0;
}

// False as soon as a code differs; then the counts are not complete.
template <typename T, bool kAbsolute, bool kLoose>
bool ScanEqualCodes(const PassPlan& plan, const std::byte* want, const std::byte* got, size_t count,
                    RawCounts* counts) {
  const KeyLanes<T, kAbsolute> keys(plan.keys);
  const auto d = keys.d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t kUnroll = 4;
  const size_t lanes = hn::Lanes(d);
  const V zero_key = hn::Set(d, static_cast<T>(plan.keys.flip));
  V most = zero_key;
  V bits = hn::Zero(d);  // only where a magnitude has no sign: the most negative one
  size_t firm = 0;
  size_t i = 0;
  for (; i + kUnroll * lanes <= count; i += kUnroll * lanes) {
    V differing = hn::Zero(d);
    for (size_t k = 0; k < kUnroll; ++k) {
      const size_t at = (i + k * lanes) * sizeof(T);
      const V w = LoadBytes(d, want + at);
      differing = hn::Or(differing, hn::Xor(w, LoadBytes(d, got + at)));
      const V key = keys.Of(w);
      most = hn::Max(most, key);
      if constexpr (kAbsolute) bits = hn::Or(bits, w);
      if constexpr (kLoose) firm += hn::CountTrue(d, hn::Gt(key, keys.last_loose));
    }
    if (!hn::AllTrue(d, hn::Eq(differing, hn::Zero(d)))) return false;
  }
  bool special = !hn::AllFalse(d, hn::Gt(most, keys.largest));
  bool any_nonzero =
      !hn::AllTrue(d, hn::Eq(kAbsolute ? bits : hn::Xor(most, zero_key), hn::Zero(d)));
  for (; i < count; ++i) {
    const uint64_t w = LoadCode(sizeof(T), want + i * sizeof(T));
    if (w != LoadCode(sizeof(T), got + i * sizeof(T))) return false;
    const int64_t key = KeyOf(plan, w);
    firm += key > plan.keys.last_loose ? 1 : 0;
    special |= key > plan.keys.largest;
    any_nonzero |= (w & plan.keys.mask) != 0;
  }
  if (kLoose) counts->loose = count - firm;
  counts->any_nonzero = any_nonzero;
  if (special) CountSpecial<T, kAbsolute>(plan, want, count, counts);
  return true;
}

template <typename T, bool kAbsolute, bool kLoose>
void ScanUnlikeCodes(const PassPlan& plan, const std::byte* want, const std::byte* got,
                     size_t count, RawCounts* counts) {
  const KeyLanes<T, kAbsolute> keys(plan.keys);
  const auto d = keys.d;
  using V = hn::Vec<decltype(d)>;
  const V sign = hn::Set(d, static_cast<T>(plan.keys.sign));
  V bits = hn::Zero(d);
  size_t firm = 0;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const V w = LoadBytes(d, want + i * sizeof(T));
    const V g = LoadBytes(d, got + i * sizeof(T));
    const V either = hn::Or(w, g);
    const auto unlike = hn::Ne(w, g);
    counts->unlike += hn::CountTrue(d, unlike);
    counts->zeros_of_two_signs += hn::CountTrue(d, hn::And(unlike, hn::Eq(either, sign)));
    if constexpr (kLoose) firm += hn::CountTrue(d, hn::Gt(keys.Of(w), keys.last_loose));
    bits = hn::Or(bits, hn::And(either, keys.mask));
  }
  counts->any_nonzero = !hn::AllTrue(d, hn::Eq(bits, hn::Zero(d)));
  for (; i < count; ++i) {
    const uint64_t w = LoadCode(sizeof(T), want + i * sizeof(T));
    const uint64_t g = LoadCode(sizeof(T), got + i * sizeof(T));
    counts->unlike += w != g ? 1 : 0;
    counts->zeros_of_two_signs += w != g && (w | g) == plan.keys.sign ? 1 : 0;
    firm += KeyOf(plan, w) > plan.keys.last_loose ? 1 : 0;
    counts->any_nonzero |= ((w | g) & plan.keys.mask) != 0;
  }
  if (kLoose) counts->loose = count - firm;
}

template <typename T, bool kAbsolute, bool kLoose>
RawCounts ScanCodesOf(const PassPlan& plan, const std::byte* want, const std::byte* got,
                      size_t count) {
  RawCounts counts;
  if (!ScanEqualCodes<T, kAbsolute, kLoose>(plan, want, got, count, &counts)) {
    counts = {};
    ScanUnlikeCodes<T, kAbsolute, kLoose>(plan, want, got, count, &counts);
  }
  // The code 0 of a type without zero is a value like others.
  if (plan.type.is_float && plan.type.sign == 0) counts.any_nonzero = true;
  return counts;
}

template <typename T, bool kMayBeSigned>
RawCounts ScanCodesOf(const PassPlan& plan, const std::byte* want, const std::byte* got,
                      size_t count) {
  if constexpr (kMayBeSigned) {
    if (plan.keys.is_absolute) {
      return plan.keys.any_loose ? ScanCodesOf<T, true, true>(plan, want, got, count)
                                 : ScanCodesOf<T, true, false>(plan, want, got, count);
    }
  }
  return plan.keys.any_loose ? ScanCodesOf<T, false, true>(plan, want, got, count)
                             : ScanCodesOf<T, false, false>(plan, want, got, count);
}

inline RawCounts ScanCodes(const PassPlan& plan, const std::byte* want, const std::byte* got,
                           size_t count) {
  switch (plan.type.bytes) {
    case 1:
      return ScanCodesOf<int8_t, true>(plan, want, got, count);
    case 2:
      return ScanCodesOf<int16_t, true>(plan, want, got, count);
    case 4:
      return ScanCodesOf<int32_t, true>(plan, want, got, count);
    default:
      return ScanCodesOf<int64_t, true>(plan, want, got, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_COMPARE_RAW_SCAN_INL_H_
