// Planes of codes (planes.h) as f32 lanes, in registers. Included once per instruction set; for
// vectors of eight or sixteen lanes that fuse products.

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

// Vectors of eight lanes take a plane, of sixteen two planes that follow each other.
#undef KVCHECK_HAVE_PLANES
#define KVCHECK_HAVE_PLANES KVCHECK_WIDE_VECTORS

#if KVCHECK_HAVE_PLANES

// Planes of codes from the chunk at `from` on: vector kVector of kVectors.
// kInPlace: c 2^shift, the shift being Shift(plane); else c.
template <int kBits>
struct CodePlanes {
  static constexpr bool kCodes = true;
  static constexpr int kPlanes = 32 / kBits;
  static constexpr int kVectors = kPlanes * kPlaneLanes / kLanes;
  static constexpr int64_t kChunkBytes = 4 * kPlaneLanes;
  static constexpr int Shift(int plane) { return PlaneShift(kBits, kLanes, plane); }

  template <bool kInPlace, int kVector>
  static HWY_INLINE VF32 Load(const std::byte* from) {
    constexpr uint32_t kMask = (1u << kBits) - 1;
#if HWY_TARGET == HWY_AVX2
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    auto words = LoadBytes(du, from);
    if constexpr (kVector + 1 == kPlanes) {  // the sign of a word
      words = hn::ShiftRight<32 - kBits>(words);
    } else if constexpr (kInPlace) {
      words = hn::And(words, hn::Set(du, kMask << (kBits * kVector)));
    } else {
      words = hn::And(hn::ShiftRight<kBits * kVector>(words), hn::Set(du, kMask));
    }
    return hn::ConvertTo(F32(), hn::BitCast(di, words));
#else
    // Highway 1.0.3 converts no unsigned words.
    const __m512i words =
        _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    constexpr int kLow = kBits * 2 * kVector;
    constexpr int kHigh = kLow + kBits;
    const auto both = [](uint32_t low, uint32_t high) HWY_ATTR {
      return _mm512_inserti64x4(_mm512_set1_epi32(static_cast<int>(low)),
                                _mm256_set1_epi32(static_cast<int>(high)), 1);
    };
    if constexpr (kInPlace) {
      return VF32{_mm512_cvtepu32_ps(_mm512_and_si512(words, both(kMask << kLow, kMask << kHigh)))};
    } else {
      return VF32{_mm512_cvtepu32_ps(
          _mm512_and_si512(_mm512_srlv_epi32(words, both(kLow, kHigh)), both(kMask, kMask)))};
    }
#endif
  }
};
using Planes8Rows = CodePlanes<8>;
using Planes4Rows = CodePlanes<4>;

// Codes as f32 in the order of planes.
struct PlaneFloatRows {
  static constexpr bool kCodes = false;
  static constexpr int kVectors = 4 * kPlaneLanes / kLanes;
  static constexpr int64_t kChunkBytes = 4 * kLanes * kVectors;
  static constexpr int Shift(int) { return 0; }
  template <bool kInPlace, int kVector>
  static HWY_INLINE VF32 Load(const std::byte* from) {
    return LoadBytes(F32(), from + 4 * kLanes * kVector);
  }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
