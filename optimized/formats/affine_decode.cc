// Numbers from affine rows: c s + b in f32, or with product and sum each rounded to the type of
// rows. Scales and biases are read for sixteen groups at once. Where a code has at most 4 bits, a
// group of 16-bit numbers has at most 16 values: they are computed once and looked up.

#include <algorithm>
#include <cstring>

#include "optimized/formats/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/affine_decode.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "optimized/formats/narrow-inl.h"
#include "optimized/formats/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kvcheck::HWY_NAMESPACE;  // NOLINT

using Lanes = HWY_CAPPED(float, 8);
using LaneVec = hn::Vec<Lanes>;
constexpr int kChunk = 16;  // groups

// Numbers that no cache will hold until somebody reads them go past the caches: memory would have
// to be read before it is written. Their places are multiples of 16 bytes.
constexpr int64_t kStreamedBytes = int64_t{8} << 20;

template <bool kStream, class D>
HWY_INLINE void Put(hn::Vec<D> v, D d, std::byte* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kStream) {
    const hn::Repartition<uint8_t, D> d8;
    uint8_t* bytes = reinterpret_cast<uint8_t*>(to);
    if constexpr (hn::MaxLanes(d8) == 32) {
      const hn::Half<decltype(d8)> half;
      const auto all = hn::BitCast(d8, v);
      hn::Stream(hn::LowerHalf(half, all), half, bytes);
      hn::Stream(hn::UpperHalf(half, all), half, bytes + 16);
    } else if constexpr (hn::MaxLanes(d8) == 16) {
      hn::Stream(hn::BitCast(d8, v), d8, bytes);
    } else {
      StoreBytes(v, d, to);
    }
    return;
  }
#endif
  StoreBytes(v, d, to);
}

// Some groups, in the order of their numbers.
struct Groups {
  HWY_ALIGN float scale[kChunk];
  HWY_ALIGN float bias[kChunk];
  const std::byte* codes[kChunk];
  int count;
};

// Vectors in flight: independent dependency chains hide the latency of each step.
constexpr int kInFlight = 4;

// kCount codes, one a byte, as numbers. With f16 and bf16 the product is exact in f32 (8 + 11
// bits), and the sum, rounded to 24 bits first, is that of one rounding since 24 >= 2 11 + 2
// (Figueroa, "When is double rounding innocuous?", 1995).
template <DType kOut, bool kStream, int kCount>
HWY_INLINE void StoreNumbers(const uint8_t* HWY_RESTRICT codes, LaneVec scale, LaneVec bias,
                             std::byte* to) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const hn::Rebind<uint8_t, Lanes> d8;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectors = std::min(kInFlight, kCount / kLanes);
  constexpr int kSize = kOut == DType::kFloat32 ? 4 : 2;
  for (int at = 0; at < kCount; at += kVectors * kLanes) {
    LaneVec v[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      v[i] = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, codes + at + kLanes * i)));
    }
    for (int i = 0; i < kVectors; ++i) v[i] = hn::Mul(v[i], scale);
    for (int i = 0; i < kVectors; ++i) v[i] = RoundLanes<kOut>(d, v[i]);
    for (int i = 0; i < kVectors; ++i) v[i] = hn::Add(v[i], bias);
    for (int i = 0; i < kVectors; ++i) {
      std::byte* place = to + kSize * (at + kLanes * i);
      if constexpr (kOut == DType::kFloat32) {
        Put<kStream>(v[i], d, place);
      } else {
        Put<kStream>(NarrowLanes<kOut>(d, v[i]), hn::Rebind<uint16_t, Lanes>(), place);
      }
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Block after block, first those of `even`.
template <bool kStream, class D8>
HWY_INLINE void PutPairs(D8 d8, hn::Vec<D8> even, hn::Vec<D8> odd, std::byte* to) {
  if constexpr (hn::MaxLanes(d8) == 32) {
    const hn::Half<D8> half;
    Put<kStream>(hn::LowerHalf(half, even), half, to);
    Put<kStream>(hn::LowerHalf(half, odd), half, to + 16);
    Put<kStream>(hn::UpperHalf(half, even), half, to + 32);
    Put<kStream>(hn::UpperHalf(half, odd), half, to + 48);
  } else {
    Put<kStream>(even, d8, to);
    Put<kStream>(odd, d8, to + 16);
  }
}

// Groups by looking up their values, the lower and the upper bytes of them.
template <int kBits, DType kOut, bool kStream>
HWY_INLINE std::byte* LookUp(const Groups& groups, int group, std::byte* to) {
  HWY_ALIGN static constexpr uint8_t kCodes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  const Lanes d;
  const hn::FixedTag<uint8_t, 16> d16;
  // One or two blocks of 16 codes: a table serves both.
  const hn::FixedTag<uint8_t, hn::MaxLanes(d) == 8 ? 32 : 16> d8;
  constexpr int kCount = static_cast<int>(hn::MaxLanes(d8));
  HWY_ALIGN std::byte values[kChunk * 32];
  for (int g = 0; g < groups.count; ++g) {
    StoreNumbers<kOut, false, 16>(kCodes, hn::Set(d, groups.scale[g]), hn::Set(d, groups.bias[g]),
                                  values + 32 * g);
  }
  for (int g = 0; g < groups.count; ++g) {
    const auto first = LoadBytes(d16, values + 32 * g);
    const auto last = LoadBytes(d16, values + 32 * g + 16);
    HWY_ALIGN uint8_t halves[32];
    hn::Store(hn::ConcatEven(d16, last, first), d16, halves);
    hn::Store(hn::ConcatOdd(d16, last, first), d16, halves + 16);
    const auto lower = hn::LoadDup128(d8, halves);
    const auto upper = hn::LoadDup128(d8, halves + 16);
    const std::byte* from = groups.codes[g];
    for (int i = 0; i < group; i += kCount) {
      const auto codes = LoadPacked<kBits>(d8, from);
      const auto low = hn::TableLookupBytes(lower, codes);
      const auto high = hn::TableLookupBytes(upper, codes);
      PutPairs<kStream>(d8, hn::InterleaveLower(d8, low, high), hn::InterleaveUpper(d8, low, high),
                        to);
      from += kCount / 8 * kBits;
      to += 2 * kCount;
    }
  }
  return to;
}
#endif

template <int kBits, DType kOut, bool kStream>
HWY_INLINE std::byte* DecodeGroup(const std::byte* from, int group, LaneVec scale, LaneVec bias,
                                  std::byte* to) {
  constexpr int kSize = kOut == DType::kFloat32 ? 4 : 2;
  for (int i = 0; i < group; i += 32) {
    if constexpr (kBits == 8) {
      StoreNumbers<kOut, kStream, 32>(reinterpret_cast<const uint8_t*>(from), scale, bias, to);
    } else {
      HWY_ALIGN uint8_t codes[32];
      [[maybe_unused]] const hn::CappedTag<uint8_t, 16> d16;
      for (int half = 0; half < 2; ++half) {
#if HWY_TARGET == HWY_SCALAR
        UnpackSixteen<kBits>(from + 2 * kBits * half, codes + 16 * half);
#else
        hn::Store(LoadPacked<kBits>(d16, from + 2 * kBits * half), d16, codes + 16 * half);
#endif
      }
      StoreNumbers<kOut, kStream, 32>(codes, scale, bias, to);
    }
    from += 4 * kBits;
    to += 32 * kSize;
  }
  return to;
}

template <int kBits, DType kOut, bool kStream>
HWY_INLINE std::byte* DecodeGroups(const Groups& groups, int group, std::byte* to) {
  const Lanes d;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kBits <= 4 && kOut != DType::kFloat32) {
    return LookUp<kBits, kOut, kStream>(groups, group, to);
  }
#endif
  for (int g = 0; g < groups.count; ++g) {
    const auto scale = hn::Set(d, groups.scale[g]);
    const auto bias = hn::Set(d, groups.bias[g]);
    to = DecodeGroup<kBits, kOut, kStream>(groups.codes[g], group, scale, bias, to);
  }
  return to;
}

template <int kBits, DType kScale, DType kOut, bool kStream>
HWY_INLINE void DecodeRows(const AffineFormat& format, const DecodeCall& call) {
  constexpr int kScaleBytes = kScale == DType::kFloat32 ? 4 : 2;
  const Lanes d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const int group = format.group_size;
  const int64_t row_groups = call.dim / group;
  const int64_t code_bytes = group * kBits / 8;
  const std::byte* codes = call.rows.codes;
  const std::byte* scales = call.rows.scales;
  const std::byte* biases = call.rows.biases;
  const int64_t next_codes = call.rows.code_stride - row_groups * code_bytes;
  const int64_t next_scales = call.rows.scale_stride - row_groups * kScaleBytes;
  int64_t left_in_row = row_groups;
  std::byte* to = call.out;
  Groups groups;
  HWY_ALIGN std::byte stored[2][kChunk * kScaleBytes] = {};
  for (int64_t left = call.count * row_groups; left > 0; left -= groups.count) {
    groups.count = static_cast<int>(std::min<int64_t>(kChunk, left));
    for (int g = 0; g < groups.count; ++g) {
      groups.codes[g] = codes;
      std::memcpy(stored[0] + g * kScaleBytes, scales, kScaleBytes);
      std::memcpy(stored[1] + g * kScaleBytes, biases, kScaleBytes);
      codes += code_bytes;
      scales += kScaleBytes;
      biases += kScaleBytes;
      if (--left_in_row > 0) continue;
      left_in_row = row_groups;
      codes += next_codes;
      scales += next_scales;
      biases += next_scales;
    }
    for (int g = 0; g < groups.count; g += lanes) {
      hn::Store(LoadLanes<kScale>(d, stored[0] + g * kScaleBytes), d, groups.scale + g);
      hn::Store(LoadLanes<kScale>(d, stored[1] + g * kScaleBytes), d, groups.bias + g);
    }
    to = DecodeGroups<kBits, kOut, kStream>(groups, group, to);
  }
}

template <int kBits, DType kScale, DType kOut>
void DecodeAs(const AffineFormat& format, const DecodeCall& call) {
  constexpr int64_t kSize = kOut == DType::kFloat32 ? 4 : 2;
  if (call.count * call.dim * kSize >= kStreamedBytes &&
      reinterpret_cast<uintptr_t>(call.out) % 16 == 0) {
    DecodeRows<kBits, kScale, kOut, true>(format, call);
    hwy::FlushStream();  // before whatever the caller writes next
  } else {
    DecodeRows<kBits, kScale, kOut, false>(format, call);
  }
}

template <int kBits>
void DecodeBits(const AffineFormat& format, DType to, const DecodeCall& call) {
  const bool narrow = to != DType::kFloat32;
  switch (format.scale_dtype) {
    case DType::kFloat16:
      return narrow ? DecodeAs<kBits, DType::kFloat16, DType::kFloat16>(format, call)
                    : DecodeAs<kBits, DType::kFloat16, DType::kFloat32>(format, call);
    case DType::kBFloat16:
      return narrow ? DecodeAs<kBits, DType::kBFloat16, DType::kBFloat16>(format, call)
                    : DecodeAs<kBits, DType::kBFloat16, DType::kFloat32>(format, call);
    default:
      return DecodeAs<kBits, DType::kFloat32, DType::kFloat32>(format, call);
  }
}

void DecodeAffine(const AffineFormat& format, DType to, const DecodeCall& call) {
  switch (format.bits) {
    case 2:
      return DecodeBits<2>(format, to, call);
    case 3:
      return DecodeBits<3>(format, to, call);
    case 4:
      return DecodeBits<4>(format, to, call);
    case 5:
      return DecodeBits<5>(format, to, call);
    case 6:
      return DecodeBits<6>(format, to, call);
    default:
      return DecodeBits<8>(format, to, call);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(DecodeAffine);

void DecodeAffineRows(const AffineFormat& format, DType to, const DecodeCall& call) {
  HWY_DYNAMIC_DISPATCH(DecodeAffine)(format, to, call);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
