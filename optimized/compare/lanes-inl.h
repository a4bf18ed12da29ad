// The values of a block in which codes differ, 16 elements at a time: a lane is quiet when it is
// certified and sets no record (pass_plan.h, LaneLimits; first_pass.md says why that is proved).
// What is not quiet in float lanes is looked at in double lanes, and what is not quiet there one by
// one. Included once per instruction set by first_pass.cc.

#if defined(OPTIMIZED_COMPARE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_COMPARE_LANES_INL_H_
#undef OPTIMIZED_COMPARE_LANES_INL_H_
#else
#define OPTIMIZED_COMPARE_LANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "optimized/compare/raw_scan-inl.h"
#include "optimized/compare/scan.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kSumLanes>;
using F64 = hn::CappedTag<double, kSumLanes>;
using VF32 = hn::Vec<F32>;
using VF64 = hn::Vec<F64>;
inline constexpr size_t kFloatLanes = hn::MaxLanes(F32());
inline constexpr size_t kDoubleLanes = hn::MaxLanes(F64());
// Double vectors that hold one float vector.
inline constexpr size_t kDoubleParts = kFloatLanes / kDoubleLanes;

// How codes become float lanes. kHasTiny: values so small that products of limits would be
// subnormal.
struct Float32Codes {
  static constexpr size_t kBytes = 4;
  static constexpr bool kIsFloat = true;
  static constexpr bool kHasTiny = true;
  static HWY_INLINE VF32 Load(const std::byte* from) { return LoadBytes(F32(), from); }
};

template <class Bits>
HWY_INLINE hn::Vec<Bits> LoadHalves(Bits bits, const std::byte* from) {
  return hn::PromoteTo(bits, LoadBytes(hn::Rebind<uint16_t, Bits>(), from));
}

struct BFloat16Codes {
  static constexpr size_t kBytes = 2;
  static constexpr bool kIsFloat = true;
  static constexpr bool kHasTiny = true;
  static HWY_INLINE VF32 Load(const std::byte* from) {
    const hn::RebindToUnsigned<F32> bits;
    return hn::BitCast(F32(), hn::ShiftLeft<16>(LoadHalves(bits, from)));
  }
};

struct Float16Codes {
  static constexpr size_t kBytes = 2;
  static constexpr bool kIsFloat = true;
  static constexpr bool kHasTiny = false;
  static HWY_INLINE VF32 Load(const std::byte* from) { return LoadFloat16(F32(), from); }
};

struct UInt16Codes {
  static constexpr size_t kBytes = 2;
  static constexpr bool kIsFloat = false;
  static constexpr bool kHasTiny = false;
  static HWY_INLINE VF32 Load(const std::byte* from) {
    return hn::ConvertTo(F32(), LoadHalves(hn::RebindToSigned<F32>(), from));
  }
};

struct Int16Codes {
  static constexpr size_t kBytes = 2;
  static constexpr bool kIsFloat = false;
  static constexpr bool kHasTiny = false;
  static HWY_INLINE VF32 Load(const std::byte* from) {
    const hn::RebindToSigned<F32> integers;
    return hn::ConvertTo(F32(),
                         hn::PromoteTo(integers, LoadBytes(hn::Rebind<int16_t, F32>(), from)));
  }
};

// The limits as double lanes.
struct DoubleLimits {
  VF64 max_abs, ratio, ratio_add, steps, relative, absolute;
  explicit HWY_INLINE DoubleLimits(const LaneLimits& limits)
      : max_abs(hn::Set(F64(), limits.max_abs)),
        ratio(hn::Set(F64(), limits.ratio)),
        ratio_add(hn::Set(F64(), limits.ratio_add)),
        steps(hn::Set(F64(), limits.steps)),
        relative(hn::Set(F64(), limits.relative)),
        absolute(hn::Set(F64(), limits.absolute)) {}
};

template <bool kIsFloat, bool kAbsRel>
HWY_INLINE VF64 DoubleLimit(const DoubleLimits& limits, VF64 smallest_normal, VF64 want) {
  const F64 d;
  const hn::RebindToUnsigned<F64> bits;
  const VF64 size = hn::Abs(want);
  VF64 limit = hn::MulAdd(limits.ratio, size, limits.ratio_add);
  if constexpr (kIsFloat) {
    const VF64 exponent =
        hn::And(size, hn::BitCast(d, hn::Set(bits, uint64_t{0x7ff0000000000000})));
    limit = hn::Min(limit, hn::Mul(hn::Max(exponent, smallest_normal), limits.steps));
  }
  if constexpr (kAbsRel) {
    limit = hn::Min(limit, hn::MulAdd(limits.relative, size, limits.absolute));
  }
  // Last, so that an infinite error is never quiet: of an infinite value, the others may be NaN,
  // which Min may drop.
  return hn::Min(limit, limits.max_abs);
}

// Decides the lanes of `loud` one by one.
template <class D>
HWY_INLINE void DoubtLanes(Scan& scan, D d, hn::Mask<D> loud, const std::byte* want,
                           const std::byte* got) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d, loud, bits);
  for (size_t lane = 0; lane < hn::Lanes(d); ++lane) {
    if ((bits[lane / 8] >> (lane % 8) & 1) == 0) continue;
    scan.Doubt(want + lane * scan.bytes(), got + lane * scan.bytes());
  }
}

// Part `part` of a float vector, as doubles.
HWY_INLINE VF64 WidenPart(size_t part, VF32 v) {
  const F64 d;
#if HWY_TARGET == HWY_SCALAR
  (void)part;
  return hn::PromoteTo(d, v);
#else
  const hn::Half<F32> half;
  return part == 0 ? hn::PromoteTo(d, hn::LowerHalf(half, v))
                   : hn::PromoteTo(d, hn::UpperHalf(half, v));
#endif
}

// One float vector, in double lanes. want and got: the codes of its lanes.
template <bool kIsFloat, bool kAbsRel>
HWY_NOINLINE void LookWider(Scan& scan, VF32 w, VF32 g, const std::byte* want,
                            const std::byte* got) {
  const F64 d;
  const VF64 smallest_normal = hn::Set(d, scan.plan().smallest_normal);
  for (size_t part = 0; part < kDoubleParts; ++part) {
    const VF64 wide_want = WidenPart(part, w);
    const VF64 error = hn::Abs(hn::Sub(WidenPart(part, g), wide_want));
    const DoubleLimits limits(scan.limits());
    const VF64 limit = DoubleLimit<kIsFloat, kAbsRel>(limits, smallest_normal, wide_want);
    const auto quiet = hn::Le(error, limit);
    if (hn::AllTrue(d, quiet)) continue;
    const size_t first = part * kDoubleLanes * scan.bytes();
    DoubtLanes(scan, d, hn::Not(quiet), want + first, got + first);
  }
}

// Elements [0, count) of a block, count a multiple of 16, in float lanes.
template <class Codes, bool kAbsRel>
void ScanFloats(Scan& scan, const std::byte* want, const std::byte* got, size_t count,
                SumLanes* squares) {
  const F32 d;
  const F64 d64;
  const hn::RebindToUnsigned<F32> bits;
  constexpr size_t kVectors = kSumLanes / kFloatLanes;
  const VF32 largest = hn::Set(d, std::numeric_limits<float>::max());
  const VF32 tiny = hn::Set(d, kSmallestFloatLane);
  const VF32 exponent_bits = hn::BitCast(d, hn::Set(bits, 0x7f800000u));
  const VF32 smallest_normal = hn::Set(d, static_cast<float>(scan.plan().smallest_normal));
  VF32 max_abs = hn::Set(d, scan.limits().max_abs32);
  VF32 ratio = hn::Set(d, scan.limits().ratio32);
  VF32 steps = hn::Set(d, scan.limits().steps32);
  const VF32 relative = hn::Set(d, scan.limits().relative32);
  const VF32 absolute = hn::Set(d, scan.limits().absolute32);
  VF64 sums[kVectors * kDoubleParts];
  for (VF64& sum : sums) sum = hn::Zero(d64);
  for (size_t i = 0; i < count; i += kSumLanes) {
    for (size_t k = 0; k < kVectors; ++k) {
      const std::byte* want_from = want + (i + k * kFloatLanes) * Codes::kBytes;
      const std::byte* got_from = got + (i + k * kFloatLanes) * Codes::kBytes;
      // The next block arrives while this one is computed.
      hwy::Prefetch(want_from + kPassBlockElements * Codes::kBytes);
      hwy::Prefetch(got_from + kPassBlockElements * Codes::kBytes);
      const VF32 w = Codes::Load(want_from);
      const VF32 g = Codes::Load(got_from);
      VF32 error = hn::Abs(hn::Sub(g, w));
      VF32 size = hn::Abs(w);
      if constexpr (Codes::kHasTiny) size = hn::IfThenElseZero(hn::Ge(size, tiny), size);
      VF32 limit = hn::Mul(ratio, size);
      if constexpr (Codes::kIsFloat) {
        VF32 exponent = hn::And(size, exponent_bits);
        if constexpr (!Codes::kHasTiny) exponent = hn::Max(exponent, smallest_normal);
        limit = hn::Min(limit, hn::Mul(exponent, steps));
      }
      if constexpr (kAbsRel) limit = hn::Min(limit, hn::MulAdd(relative, size, absolute));
      // Last: as in DoubleLimit.
      const auto quiet = hn::Le(error, hn::Min(limit, max_abs));
      if (HWY_UNLIKELY(!hn::AllTrue(d, quiet))) {
        LookWider<Codes::kIsFloat, kAbsRel>(scan, w, g, want_from, got_from);
        max_abs = hn::Set(d, scan.limits().max_abs32);
        ratio = hn::Set(d, scan.limits().ratio32);
        steps = hn::Set(d, scan.limits().steps32);
        // What is not finite was counted, or squared, by itself.
        error = hn::IfThenElseZero(hn::Le(error, largest), error);
      }
      for (size_t part = 0; part < kDoubleParts; ++part) {
        const VF64 wide = WidenPart(part, error);
        VF64& sum = sums[k * kDoubleParts + part];
        sum = hn::Add(sum, hn::Mul(wide, wide));
      }
    }
  }
  for (size_t k = 0; k < kVectors * kDoubleParts; ++k) {
    hn::StoreU(sums[k], d64, squares->data() + k * kDoubleLanes);
  }
}

// How codes become double lanes. Exact: which lanes hold their value.
struct Float64Codes {
  static constexpr bool kIsFloat = true;
  static constexpr bool kMayMiss = false;
  static HWY_INLINE VF64 Load(const std::byte* from) { return LoadBytes(F64(), from); }
};

struct Int32Codes {
  static constexpr bool kIsFloat = false;
  static constexpr bool kMayMiss = false;
  static HWY_INLINE VF64 Load(const std::byte* from) {
    return hn::PromoteTo(F64(), LoadBytes(hn::Rebind<int32_t, F64>(), from));
  }
};

struct UInt32Codes {
  static constexpr bool kIsFloat = false;
  static constexpr bool kMayMiss = false;
  static HWY_INLINE VF64 Load(const std::byte* from) {
    // Moved by 2^31 into int32 and back.
    const hn::Rebind<int32_t, F64> integers;
    const auto moved =
        hn::Xor(LoadBytes(integers, from), hn::Set(integers, std::numeric_limits<int32_t>::min()));
    return hn::Add(hn::PromoteTo(F64(), moved), hn::Set(F64(), 0x1p31));
  }
};

// Values of [-2^51, 2^51) take the place of the mantissa of 2^52; others are replaced by NaN.
struct Int64Codes {
  static constexpr bool kIsFloat = false;
  static constexpr bool kMayMiss = true;
  static HWY_INLINE VF64 Load(const std::byte* from) {
    const F64 d;
    const hn::RebindToUnsigned<F64> bits;
    const auto moved =
        hn::Add(LoadBytes(bits, from), hn::Set(bits, static_cast<uint64_t>(kLargestLaneInteger)));
    const auto value =
        hn::Sub(hn::BitCast(d, hn::Or(moved, hn::Set(bits, uint64_t{0x4330000000000000}))),
                hn::Set(d, 0x1p52 + static_cast<double>(kLargestLaneInteger)));
    const auto is_small = hn::Eq(hn::ShiftRight<52>(moved), hn::Zero(bits));
    return hn::IfThenElse(hn::RebindMask(d, is_small), value,
                          hn::Set(d, std::numeric_limits<double>::quiet_NaN()));
  }
};

// Values of [0, 2^52) take the place of the mantissa of 2^52; others are replaced by NaN.
struct UInt64Codes {
  static constexpr bool kIsFloat = false;
  static constexpr bool kMayMiss = true;
  static HWY_INLINE VF64 Load(const std::byte* from) {
    const F64 d;
    const hn::RebindToUnsigned<F64> bits;
    const auto code = LoadBytes(bits, from);
    const auto value =
        hn::Sub(hn::BitCast(d, hn::Or(code, hn::Set(bits, uint64_t{0x4330000000000000}))),
                hn::Set(d, 0x1p52));
    const auto is_small = hn::Eq(hn::ShiftRight<52>(code), hn::Zero(bits));
    return hn::IfThenElse(hn::RebindMask(d, is_small), value,
                          hn::Set(d, std::numeric_limits<double>::quiet_NaN()));
  }
};

// Elements [0, count) of a block, count a multiple of 16, in double lanes.
template <class Codes, bool kAbsRel>
void ScanDoubles(Scan& scan, const std::byte* want, const std::byte* got, size_t count,
                 SumLanes* squares) {
  const F64 d;
  constexpr size_t kVectors = kSumLanes / kDoubleLanes;
  const size_t bytes = scan.bytes();
  const VF64 smallest_normal = hn::Set(d, scan.plan().smallest_normal);
  const VF64 smallest = hn::Set(d, kSmallestSummed);
  const VF64 largest =
      hn::Set(d, Codes::kIsFloat ? kLargestSummed : std::numeric_limits<double>::max());
  const VF64 zero = hn::Zero(d);
  DoubleLimits limits(scan.limits());
  VF64 sums[kVectors];
  for (VF64& sum : sums) sum = zero;
  for (size_t i = 0; i < count; i += kSumLanes) {
    for (size_t k = 0; k < kVectors; ++k) {
      const std::byte* want_from = want + (i + k * kDoubleLanes) * bytes;
      const std::byte* got_from = got + (i + k * kDoubleLanes) * bytes;
      hwy::Prefetch(want_from + static_cast<size_t>(kPassBlockElements) * bytes);
      hwy::Prefetch(got_from + static_cast<size_t>(kPassBlockElements) * bytes);
      const VF64 w = Codes::Load(want_from);
      const VF64 g = Codes::Load(got_from);
      VF64 error = hn::Abs(hn::Sub(g, w));
      const VF64 limit = DoubleLimit<Codes::kIsFloat, kAbsRel>(limits, smallest_normal, w);
      auto quiet = hn::Le(error, limit);
      if constexpr (Codes::kIsFloat) {
        quiet = hn::And(quiet, hn::Or(hn::Ge(error, smallest), hn::Eq(error, zero)));
      }
      if (HWY_UNLIKELY(!hn::AllTrue(d, quiet))) {
        DoubtLanes(scan, d, hn::Not(quiet), want_from, got_from);
        limits = DoubleLimits(scan.limits());
        // What the lanes cannot square was counted, or squared, by itself.
        error = hn::IfThenElseZero(hn::Le(error, largest), error);
        if constexpr (Codes::kIsFloat) {
          error = hn::IfThenElseZero(hn::Ge(error, smallest), error);
        }
      }
      sums[k] = hn::Add(sums[k], hn::Mul(error, error));
    }
  }
  for (size_t k = 0; k < kVectors; ++k) {
    hn::StoreU(sums[k], d, squares->data() + k * kDoubleLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_COMPARE_LANES_INL_H_
