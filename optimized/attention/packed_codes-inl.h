// Fields of packed codes (packed_codes.h) as f32 lanes, in registers. Included once per instruction
// set; for vectors of eight lanes or more, with FMA.

#if defined(OPTIMIZED_ATTENTION_PACKED_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_ATTENTION_PACKED_CODES_INL_H_
#undef OPTIMIZED_ATTENTION_PACKED_CODES_INL_H_
#else
#define OPTIMIZED_ATTENTION_PACKED_CODES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "optimized/attention/packed_codes.h"
#include "optimized/attention/rows-inl.h"
#include "optimized/attention/transposed_keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

#if KVCHECK_WIDE_VECTORS

// Field kVector of a vector of words. kInPlace: c 2^Shift(kVector); else c.
template <int kBits>
struct PackedCodes {
  static constexpr bool kCodes = true;
  static constexpr int kVectors = 32 / kBits;
  static constexpr int64_t kChunkBytes = 4 * kChunkWords;
  static constexpr int64_t BytesOf(int64_t channels) { return channels * kBits / 8; }
  static constexpr int Shift(int field) { return FieldShift(kBits, field); }
  static constexpr uint32_t MaskOf(bool in_place, int field) {
    return ((1u << kBits) - 1) << (in_place ? kBits * field : 0);
  }
  // The mask of each field, broadcast.
  struct Masks {
    alignas(64) uint32_t words[kVectors * kLanes];
  };
  static constexpr Masks MasksOf(bool in_place) {
    Masks masks{};
    for (int i = 0; i < kVectors * static_cast<int>(kLanes); ++i) {
      masks.words[i] = MaskOf(in_place, i / static_cast<int>(kLanes));
    }
    return masks;
  }
  template <bool kInPlace>
  static constexpr Masks kMasks = MasksOf(kInPlace);

  template <bool kInPlace, int kVector>
  static HWY_INLINE VF32 Field(VWords words, VWords mask) {
    const hn::RebindToSigned<F32> di;
    if constexpr (kVector + 1 == kVectors) {  // reaches the sign bit
      words = hn::ShiftRight<32 - kBits>(words);
    } else if constexpr (kInPlace) {
      words = hn::And(words, mask);
    } else {
      words = hn::And(hn::ShiftRight<kBits * kVector>(words), mask);
    }
    return hn::ConvertTo(F32(), hn::BitCast(di, words));
  }
};
using Packed8Rows = PackedCodes<8>;
using Packed4Rows = PackedCodes<4>;

#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#endif
