// The butterflies of a Hadamard transform in f32, each sum and each difference one operation, so
// that every target gives the bits of the definition. Strides below the length of a vector are
// butterflies of lanes: a + b and a - b are one addition of the swapped lanes and the lanes, of
// which every second one has the other sign.

#if defined(OPTIMIZED_FORMATS_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_FORMATS_HADAMARD_INL_H_
#undef OPTIMIZED_FORMATS_HADAMARD_INL_H_
#else
#define OPTIMIZED_FORMATS_HADAMARD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using ButterflyFloats = HWY_CAPPED(float, 8);
using ButterflyVec = hn::Vec<ButterflyFloats>;
constexpr int kButterflyLanes = static_cast<int>(hn::MaxLanes(ButterflyFloats()));

#if HWY_TARGET != HWY_SCALAR
template <uint32_t kOdd>
HWY_INLINE ButterflyVec OtherSign(ButterflyVec v) {
  HWY_ALIGN static constexpr uint32_t kMask[8] = {
      0,
      kOdd & 1 ? 0x80000000u : 0,
      kOdd & 2 ? 0x80000000u : 0,
      kOdd & 3 ? 0x80000000u : 0,
      kOdd & 4 ? 0x80000000u : 0,
      kOdd & 5 ? 0x80000000u : 0,
      kOdd & 6 ? 0x80000000u : 0,
      kOdd & 7 ? 0x80000000u : 0,
  };
  const ButterflyFloats d;
  return hn::Xor(v, hn::BitCast(d, hn::Load(hn::RebindToUnsigned<ButterflyFloats>(), kMask)));
}

// Strides within a vector.
HWY_INLINE ButterflyVec LaneButterflies(ButterflyVec v) {
  const ButterflyFloats d;
  v = hn::Add(hn::Reverse2(d, v), OtherSign<1>(v));
  v = hn::Add(hn::Shuffle1032(v), OtherSign<2>(v));
#if HWY_MAX_BYTES >= 32
  if constexpr (kButterflyLanes == 8) v = hn::Add(hn::SwapAdjacentBlocks(v), OtherSign<4>(v));
#endif
  return v;
}
#endif

// v: count values, a power of two from 8 on; strides 1, 2, ..., count / 2, the sum to the lower
// value, the difference to the upper.
HWY_INLINE void HadamardButterflies(float* v, int count) {
  const ButterflyFloats d;
  int stride = 1;
#if HWY_TARGET != HWY_SCALAR
  for (int i = 0; i < count; i += kButterflyLanes)
    hn::StoreU(LaneButterflies(hn::LoadU(d, v + i)), d, v + i);
  stride = kButterflyLanes;
#endif
  // Two strides at a time, so that values are loaded half as often.
  for (; 2 * stride < count; stride *= 4) {
    for (int first = 0; first < count; first += 4 * stride) {
      for (int i = first; i < first + stride; i += kButterflyLanes) {
        const ButterflyVec a = hn::LoadU(d, v + i), b = hn::LoadU(d, v + i + stride);
        const ButterflyVec e = hn::LoadU(d, v + i + 2 * stride),
                           f = hn::LoadU(d, v + i + 3 * stride);
        const ButterflyVec ab = hn::Add(a, b), a_b = hn::Sub(a, b);
        const ButterflyVec ef = hn::Add(e, f), e_f = hn::Sub(e, f);
        hn::StoreU(hn::Add(ab, ef), d, v + i);
        hn::StoreU(hn::Add(a_b, e_f), d, v + i + stride);
        hn::StoreU(hn::Sub(ab, ef), d, v + i + 2 * stride);
        hn::StoreU(hn::Sub(a_b, e_f), d, v + i + 3 * stride);
      }
    }
  }
  if (stride >= count) return;
  for (int i = 0; i < stride; i += kButterflyLanes) {
    const ButterflyVec a = hn::LoadU(d, v + i), b = hn::LoadU(d, v + i + stride);
    hn::StoreU(hn::Add(a, b), d, v + i);
    hn::StoreU(hn::Sub(a, b), d, v + i + stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_FORMATS_HADAMARD_INL_H_
