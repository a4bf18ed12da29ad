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
#include "optimized/attention/transposed_keys-inl.h"

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

// Words as stored of so many channels make one word of codes, or two.
constexpr bool IsNibbles(FixedLayout layout) {
  return layout != FixedLayout::kBytes && layout != FixedLayout::kSignedBytes;
}

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

// What the sums of kWidth rows begin with, kStride words from row to row. Unrolled by recursion: as
// loops g++ spills the accumulators. Shapes: first (kWidth, kFixedParts), sum (kWidth, kFixedParts,
// kVectors).
template <int kVectors, int kWidth, int64_t kStride, int kPart = 0>
HWY_INLINE void BeginSums(const uint32_t* HWY_RESTRICT first, Sums32* HWY_RESTRICT sum) {
  static_assert(kVectors == 2);
  constexpr int kRow = kPart / kFixedParts;
  sum[kPart * kVectors] = sum[kPart * kVectors + 1] = reinterpret_cast<Sums32>(
      _mm512_set1_epi32(static_cast<int>(first[kRow * kStride + kPart % kFixedParts])));
  if constexpr (kPart + 1 < kWidth * kFixedParts) {
    BeginSums<kVectors, kWidth, kStride, kPart + 1>(first, sum);
  }
}

// The sum of the three parts as f32, in units of the step, with two roundings. Shapes: sum
// (kFixedParts, kVectors), from the vector asked for on.
template <int kVectors>
HWY_INLINE VF32 JoinParts(const Sums32* sum) {
  const Sums32 low = (sum[kVectors] << 8) + sum[0];
  const VI32 lower{reinterpret_cast<__m512i>(low)};
  const VI32 upper{reinterpret_cast<__m512i>(sum[2 * kVectors])};
  return hn::MulAdd(hn::ConvertTo(F32(), upper), hn::Set(F32(), 0x1p16f),
                    hn::ConvertTo(F32(), lower));
}

// The values of iq4_nl and 127, in each 128 bits.
alignas(64) inline constexpr uint8_t kTableCodes[16] = {0,   23,  44,  62,  78,  92,  105, 117,
                                                        128, 140, 152, 165, 180, 196, 216, 240};

// Codes as bytes, of nibbles that are the low ones of bytes.
template <FixedLayout kLayout>
HWY_INLINE VWords CodesOfNibbles(VWords nibbles) {
  if constexpr (kLayout == FixedLayout::kTableHalves) {
    const hn::Repartition<uint8_t, Words> d8;
    const auto table = hn::LoadDup128(d8, kTableCodes);
    return hn::BitCast(Words(), hn::TableLookupBytes(table, hn::BitCast(d8, nibbles)));
  }
  return nibbles;
}

// The codes of words as stored: nibbles as two words, the low ones first.
template <FixedLayout kLayout>
HWY_INLINE void SplitCodes(VWords stored, VWords* HWY_RESTRICT codes) {
  const Words d;
  if constexpr (kLayout == FixedLayout::kBytes) {
    codes[0] = stored;
  } else if constexpr (kLayout == FixedLayout::kSignedBytes) {
    codes[0] = hn::Xor(stored, hn::Set(d, 0x80808080u));
  } else {
    const auto low = hn::Set(d, 0x0f0f0f0fu);
    codes[0] = CodesOfNibbles<kLayout>(hn::And(stored, low));
    codes[1] = CodesOfNibbles<kLayout>(hn::And(hn::ShiftRight<4>(stored), low));
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
