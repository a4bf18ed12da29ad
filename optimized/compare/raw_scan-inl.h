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

struct RawCounts {
  size_t unlike = 0;
  size_t zeros_of_two_signs = 0;
  size_t loose = 0;
  size_t special = 0;     // expected codes that are no finite number
  size_t infinities = 0;  // of these
  bool any_nonzero = false;
};

// T: the signed integer of the codes' width.
template <typename T, bool kAbsolute>
RawCounts ScanCodes(const PassPlan& plan, const std::byte* want, const std::byte* got,
                    size_t count) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const CodeKeys& keys = plan.keys;
  const V mask = hn::Set(d, static_cast<T>(keys.mask));
  const V flip = hn::Set(d, static_cast<T>(keys.flip));
  const V sign = hn::Set(d, static_cast<T>(keys.sign));
  const V largest = hn::Set(d, static_cast<T>(keys.largest));
  const V last_loose = hn::Set(d, static_cast<T>(keys.last_loose));
  V bits = hn::Zero(d);
  RawCounts counts;
  size_t firm = 0;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V w = LoadBytes(d, want + i * sizeof(T));
    const V g = LoadBytes(d, got + i * sizeof(T));
    const V either = hn::Or(w, g);
    const auto unlike = hn::Ne(w, g);
    const V key = kAbsolute ? hn::Abs(w) : hn::Xor(hn::And(w, mask), flip);
    counts.unlike += hn::CountTrue(d, unlike);
    counts.zeros_of_two_signs += hn::CountTrue(d, hn::And(unlike, hn::Eq(either, sign)));
    firm += hn::CountTrue(d, hn::Gt(key, last_loose));
    counts.special += hn::CountTrue(d, hn::Gt(key, largest));
    bits = hn::Or(bits, hn::And(either, mask));
  }
  counts.any_nonzero = !hn::AllTrue(d, hn::Eq(bits, hn::Zero(d)));
  for (; i < count; ++i) {
    const uint64_t w = LoadCode(sizeof(T), want + i * sizeof(T));
    const uint64_t g = LoadCode(sizeof(T), got + i * sizeof(T));
    const int64_t key = KeyOf(plan, w);
    counts.unlike += w != g ? 1 : 0;
    counts.zeros_of_two_signs += w != g && (w | g) == keys.sign ? 1 : 0;
    firm += key > keys.last_loose ? 1 : 0;
    counts.special += key > keys.largest ? 1 : 0;
    counts.any_nonzero |= ((w | g) & keys.mask) != 0;
  }
  if (keys.any_loose) counts.loose = count - firm;
  if (counts.special > 0 && keys.has_infinity) {
    for (i = 0; i < count; ++i) {
      const uint64_t w = LoadCode(sizeof(T), want + i * sizeof(T));
      counts.infinities += KeyOf(plan, w) == keys.infinity ? 1 : 0;
    }
  }
  return counts;
}

inline RawCounts ScanCodes(const PassPlan& plan, const std::byte* want, const std::byte* got,
                           size_t count) {
  const bool is_absolute = plan.keys.is_absolute;
  switch (plan.type.bytes) {
    case 1:
      return is_absolute ? ScanCodes<int8_t, true>(plan, want, got, count)
                         : ScanCodes<int8_t, false>(plan, want, got, count);
    case 2:
      return ScanCodes<int16_t, false>(plan, want, got, count);
    case 4:
      return is_absolute ? ScanCodes<int32_t, true>(plan, want, got, count)
                         : ScanCodes<int32_t, false>(plan, want, got, count);
    default:
      return is_absolute ? ScanCodes<int64_t, true>(plan, want, got, count)
                         : ScanCodes<int64_t, false>(plan, want, got, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_COMPARE_RAW_SCAN_INL_H_
