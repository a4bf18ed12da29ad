// Affine codes between one a byte and the packed stream of a row: code k occupies bits
// [k kBits, (k + 1) kBits), lowest first. 16 codes at a time, which fill whole bytes for every
// width. Included once per instruction set.

#if defined(OPTIMIZED_FORMATS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPTIMIZED_FORMATS_PACK_INL_H_
#undef OPTIMIZED_FORMATS_PACK_INL_H_
#else
#define OPTIMIZED_FORMATS_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "optimized/formats/pack.h"
#include "optimized/formats/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 codes, one a byte, packed to 2 kBits bytes.
template <int kBits>
HWY_INLINE void PackSixteen(const uint8_t* HWY_RESTRICT codes, std::byte* to) {
  uint64_t eight[2];
  std::memcpy(eight, codes, 16);
  for (int i = 0; i < 2; ++i) {
    eight[i] = JoinCodes<kBits>(eight[i]);
    std::memcpy(to + i * kBits, &eight[i], kBits);
  }
}

template <int kBits>
HWY_INLINE void UnpackSixteen(const std::byte* from, uint8_t* HWY_RESTRICT codes) {
  for (int i = 0; i < 2; ++i) {
    uint64_t eight = 0;
    std::memcpy(&eight, from + i * kBits, kBits);
    eight = SplitCodes<kBits>(eight);
    std::memcpy(codes + 8 * i, &eight, 8);
  }
}

#if HWY_TARGET != HWY_SCALAR
// A vector of codes, one a byte, as JoinCodes joins eight of them.
template <int kBits, class D8>
HWY_INLINE void StorePacked(D8 d8, hn::Vec<D8> codes, std::byte* to) {
  const hn::Repartition<uint16_t, D8> d16;
  if constexpr (kBits == 8) {
    hn::StoreU(codes, d8, reinterpret_cast<uint8_t*>(to));
    return;
  }
  const auto pairs_apart = hn::BitCast(d16, codes);
  const auto pairs = hn::Or(hn::And(pairs_apart, hn::Set(d16, 0xff)),
                            hn::ShiftLeft<kBits>(hn::ShiftRight<8>(pairs_apart)));
  if constexpr (kBits == 4) {
    const hn::Rebind<uint8_t, decltype(d16)> half;
    const hn::RebindToSigned<decltype(d16)> di16;
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(di16, pairs)), half, reinterpret_cast<uint8_t*>(to));
  } else {
    const hn::Repartition<uint32_t, D8> d32;
    const hn::Repartition<uint64_t, D8> d64;
    const auto fours_apart = hn::BitCast(d32, pairs);
    const auto fours =
        hn::BitCast(d64, hn::Or(hn::And(fours_apart, hn::Set(d32, 0xffffu)),
                                hn::ShiftLeft<2 * kBits>(hn::ShiftRight<16>(fours_apart))));
    const auto eights = hn::Or(hn::And(fours, hn::Set(d64, 0xffffffffu)),
                               hn::ShiftLeft<4 * kBits>(hn::ShiftRight<32>(fours)));
    HWY_ALIGN uint64_t words[hn::MaxLanes(d64)];
    hn::Store(eights, d64, words);
    for (size_t i = 0; i < hn::Lanes(d64); ++i) {
      std::memcpy(to + i * kBits, &words[i], kBits);
    }
  }
}

// 16 or 32 codes, one a byte.
template <int kBits, class D8>
HWY_INLINE hn::Vec<D8> LoadPacked(D8 d8, const std::byte* from) {
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(from);
  if constexpr (kBits == 8) {
    return hn::LoadU(d8, bytes);
  } else if constexpr (kBits == 4) {
    const hn::Repartition<uint16_t, D8> d16;
    const auto pairs = hn::PromoteTo(d16, hn::LoadU(hn::Half<D8>(), bytes));
    const auto apart = hn::Or(pairs, hn::ShiftLeft<4>(pairs));
    return hn::BitCast(d8, hn::And(apart, hn::Set(d16, 0x0f0f)));
  } else if constexpr (hn::MaxLanes(d8) == 32) {
    const hn::Half<D8> half;
    return hn::Combine(d8, LoadPacked<kBits>(half, from + 2 * kBits),
                       LoadPacked<kBits>(half, from));
  } else {
    uint64_t eight[2];
    if constexpr (kBits < 4) {
      uint32_t low = 0;
      std::memcpy(&low, from, 4);
      uint64_t all = low;
      if constexpr (kBits == 3) {
        uint16_t high = 0;
        std::memcpy(&high, from + 4, 2);
        all |= uint64_t{high} << 32;
      }
      eight[0] = all;
      eight[1] = all >> (8 * kBits);
    } else {  // the last eight bytes end with the last code
      std::memcpy(&eight[0], from, 8);
      std::memcpy(&eight[1], from + 2 * kBits - 8, 8);
      eight[1] >>= 64 - 8 * kBits;
    }
    const hn::FixedTag<uint64_t, 2> d64;
    return hn::BitCast(d8, hn::InterleaveLower(d64, hn::Set(d64, SplitCodes<kBits>(eight[0])),
                                               hn::Set(d64, SplitCodes<kBits>(eight[1]))));
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck
HWY_AFTER_NAMESPACE();

#endif  // OPTIMIZED_FORMATS_PACK_INL_H_
