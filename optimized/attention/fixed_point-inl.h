// Dot products of bytes (fixed_point.h), in registers. Included once per instruction set; for
// targets with VNNI.

#if defined(OPTIMIZED_ATTENTION_FIXED_POINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_FIXED_POINT_INL_H_
#undef OPTIMIZED_ATTENTION_FIXED_POINT_INL_H_
#else
#define OPTIMIZED_ATTENTION_FIXED_POINT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "optimized/attention/fixed_point.h"
#include "optimized/attention/rows-inl.h"

#undef KVCHECK_FIXED_POINT
// Newer targets have smaller numbers.
#define KVCHECK_FIXED_POINT (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL)

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_FIXED_POINT

using I32 = hn::RebindToSigned<F32>;
using VI32 = hn::Vec<I32>;
// A vector type of the compiler: it keeps arrays of these in registers, not those of VI32.
using Sums32 = int32_t __attribute__((vector_size(64)));

HWY_INLINE Sums32 LoadWords32(const void* from) {
  return reinterpret_cast<Sums32>(_mm512_loadu_si512(from));
}

// sum += the four products of bytes of each lane: unsigned codes, signed parts.
HWY_INLINE void AddProducts(Sums32 codes, Sums32 parts, Sums32& sum) {
  // No intrinsic: Highway's target attributes do not name the extension that it asks for.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(parts));
}

// kVectors vectors of codes times the parts of kWidth rows, kStride words from row to row. Shapes:
// codes (kVectors), parts (kWidth, kFixedParts), sum (kWidth, kFixedParts, kVectors).
template <int kVectors, int kWidth, int64_t kStride, int kPart = 0>
HWY_INLINE void AddParts(const Sums32* HWY_RESTRICT codes, const uint32_t* HWY_RESTRICT parts,
                         Sums32* HWY_RESTRICT sum) {
  static_assert(kVectors == 2);
  constexpr int kRow = kPart / kFixedParts;
  const auto part = reinterpret_cast<Sums32>(
      _mm512_set1_epi32(static_cast<int>(parts[kRow * kStride + kPart % kFixedParts])));
  AddProducts(codes[0], part, sum[kPart * kVectors]);
  AddProducts(codes[1], part, sum[kPart * kVectors + 1]);
  if constexpr (kPart + 1 < kWidth * kFixedParts) {
    AddParts<kVectors, kWidth, kStride, kPart + 1>(codes, parts, sum);
  }
}

// Unrolled by recursion: as loops g++ spills the accumulators.
template <int kCount>
HWY_INLINE void ClearSums(Sums32* sum) {
  sum[0] = Sums32{};
  if constexpr (kCount > 1) ClearSums<kCount - 1>(sum + 1);
}
template <int kCount>
HWY_INLINE void StoreSums32(const Sums32* sum, int32_t* to) {
  _mm512_store_si512(to, reinterpret_cast<__m512i>(sum[0]));
  if constexpr (kCount > 1) StoreSums32<kCount - 1>(sum + 1, to + kLanes);
}

// The sum of the three parts as f32, in units of the step, with two roundings. Shapes: sums
// (kFixedParts, kVectors, kLanes), from the vector asked for on.
template <int kVectors>
HWY_INLINE VF32 JoinParts(const int32_t* sums) {
  const I32 d;
  constexpr int64_t kNext = kVectors * kLanes;
  const VI32 low = hn::Add(hn::ShiftLeft<8>(hn::Load(d, sums + kNext)), hn::Load(d, sums));
  const VF32 high = hn::ConvertTo(F32(), hn::Load(d, sums + 2 * kNext));
  return hn::MulAdd(high, hn::Set(F32(), 0x1p16f), hn::ConvertTo(F32(), low));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
