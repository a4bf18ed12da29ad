// Planes of codes (planes.h) as f32 lanes, in registers. Included once per instruction set; for
// vectors of eight lanes that fuse products.

#if defined(OPTIMIZED_ATTENTION_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_PLANES_INL_H_
#undef OPTIMIZED_ATTENTION_PLANES_INL_H_
#else
#define OPTIMIZED_ATTENTION_PLANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "optimized/attention/planes.h"
#include "optimized/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#undef KVCHECK_HAVE_PLANES
#define KVCHECK_HAVE_PLANES (HWY_TARGET == HWY_AVX2)

#if KVCHECK_HAVE_PLANES

// Plane kPlane of the chunk at `from`. kInPlace: c 2^(kBits kPlane), of the last plane c; else c.
template <int kBits>
struct CodePlanes {
  static constexpr int kPlanes = 32 / kBits;
  static constexpr int64_t kChunkBytes = 4 * kPlaneLanes;
  static constexpr int kShift = kBits;
  template <bool kInPlace, int kPlane>
  static HWY_INLINE VF32 Load(const std::byte* from) {
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    constexpr uint32_t kMask = (1u << kBits) - 1;
    auto words = LoadBytes(du, from);
    if constexpr (kPlane + 1 == kPlanes) {
      words = hn::ShiftRight<32 - kBits>(words);
    } else if constexpr (kInPlace) {
      words = hn::And(words, hn::Set(du, kMask << (kBits * kPlane)));
    } else {
      words = hn::And(hn::ShiftRight<kBits * kPlane>(words), hn::Set(du, kMask));
    }
    return hn::ConvertTo(F32(), hn::BitCast(di, words));
  }
};
using Planes8Rows = CodePlanes<8>;
using Planes4Rows = CodePlanes<4>;

// Codes as f32 in the order of planes.
struct PlaneFloatRows {
  static constexpr int kPlanes = 4;
  static constexpr int64_t kChunkBytes = 4 * kPlaneLanes * kPlanes;
  static constexpr int kShift = 0;
  template <bool kInPlace, int kPlane>
  static HWY_INLINE VF32 Load(const std::byte* from) {
    return LoadBytes(F32(), from + 4 * kPlaneLanes * kPlane);
  }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
