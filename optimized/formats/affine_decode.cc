// Numbers from affine rows: c s + b in f32, or with product and sum each rounded to the type of
// rows. Where a code has at most 4 bits, a group of 16-bit numbers has at most 16 values: they are
// computed once and looked up.

#include <bit>
#include <cstring>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/affine_decode.cc"
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

template <DType kScale>
HWY_INLINE float ScaleAt(const std::byte* from) {
  if constexpr (kScale == DType::kFloat32) {
    float value = 0;
    std::memcpy(&value, from, 4);
    return value;
  } else {
    uint16_t code = 0;
    std::memcpy(&code, from, 2);
    return std::bit_cast<float>(kScale == DType::kFloat16 ? F32FromF16(code) : F32FromBF16(code));
  }
}

// The numbers of codes, one a byte. With f16 and bf16 the product is exact in f32 (8 + 11 bits),
// and the sum, rounded to 24 bits first, is that of one rounding since 24 >= 2 11 + 2 (Figueroa,
// "When is double rounding innocuous?", 1995).
template <DType kOut>
HWY_INLINE void StoreNumbers(hn::Vec<hn::Rebind<uint8_t, Lanes>> codes, LaneVec scale, LaneVec bias,
                             std::byte* to) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const auto c = hn::ConvertTo(d, hn::PromoteTo(di, codes));
  const auto product = RoundLanes<kOut>(d, hn::Mul(c, scale));
  StoreLanes<kOut>(hn::Add(product, bias), d, to);
}

template <DType kOut>
HWY_INLINE void StoreSixteen(const uint8_t* HWY_RESTRICT codes, LaneVec scale, LaneVec bias,
                             std::byte* to) {
  constexpr int kSize = kOut == DType::kFloat32 ? 4 : 2;
  const hn::Rebind<uint8_t, Lanes> d8;
  const int lanes = static_cast<int>(hn::Lanes(d8));
  for (int i = 0; i < 16; i += lanes) {
    StoreNumbers<kOut>(hn::LoadU(d8, codes + i), scale, bias, to + kSize * i);
  }
}

#if HWY_TARGET != HWY_SCALAR
// One group by looking up its values, the lower and the upper bytes of them.
template <int kBits, DType kOut>
HWY_INLINE void LookUpGroup(const std::byte* from, int group, LaneVec scale, LaneVec bias,
                            std::byte* to) {
  HWY_ALIGN static constexpr uint8_t kCodes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  const hn::FixedTag<uint8_t, 16> d8;
  HWY_ALIGN uint8_t numbers[32];
  StoreSixteen<kOut>(kCodes, scale, bias, reinterpret_cast<std::byte*>(numbers));
  const auto first = hn::Load(d8, numbers);
  const auto last = hn::Load(d8, numbers + 16);
  const auto lower = hn::ConcatEven(d8, last, first);
  const auto upper = hn::ConcatOdd(d8, last, first);
  for (int i = 0; i < group; i += 16) {
    const auto codes = LoadPacked<kBits>(from + i / 8 * kBits);
    const auto low = hn::TableLookupBytes(lower, codes);
    const auto high = hn::TableLookupBytes(upper, codes);
    StoreBytes(hn::InterleaveLower(d8, low, high), d8, to + 2 * i);
    StoreBytes(hn::InterleaveUpper(d8, low, high), d8, to + 2 * i + 16);
  }
}
#endif

template <int kBits, DType kOut>
HWY_INLINE void DecodeGroup(const std::byte* from, int group, LaneVec scale, LaneVec bias,
                            std::byte* to) {
  constexpr int kSize = kOut == DType::kFloat32 ? 4 : 2;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kBits <= 4 && kOut != DType::kFloat32) {
    return LookUpGroup<kBits, kOut>(from, group, scale, bias, to);
  }
#endif
  for (int i = 0; i < group; i += 16) {
    if constexpr (kBits == 8) {
      StoreSixteen<kOut>(reinterpret_cast<const uint8_t*>(from + i), scale, bias, to + kSize * i);
    } else {
      HWY_ALIGN uint8_t codes[16];
#if HWY_TARGET == HWY_SCALAR
      UnpackSixteen<kBits>(from + i / 8 * kBits, codes);
#else
      hn::Store(LoadPacked<kBits>(from + i / 8 * kBits), hn::FixedTag<uint8_t, 16>(), codes);
#endif
      StoreSixteen<kOut>(codes, scale, bias, to + kSize * i);
    }
  }
}

template <int kBits, DType kScale, DType kOut>
void DecodeAs(const AffineFormat& format, const DecodeCall& call) {
  const Lanes d;
  constexpr int64_t kSize = kOut == DType::kFloat32 ? 4 : 2;
  const int group = format.group_size;
  const int64_t groups = call.dim / group;
  const int64_t code_bytes = group * kBits / 8;
  const auto scale_bytes = static_cast<int64_t>(SizeInBytes(kScale));
  std::byte* out = call.out;
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    const std::byte* scales = call.rows.scales + i * call.rows.scale_stride;
    const std::byte* biases = call.rows.biases + i * call.rows.scale_stride;
    for (int64_t g = 0; g < groups; ++g) {
      DecodeGroup<kBits, kOut>(codes + g * code_bytes, group,
                               hn::Set(d, ScaleAt<kScale>(scales + g * scale_bytes)),
                               hn::Set(d, ScaleAt<kScale>(biases + g * scale_bytes)), out);
      out += kSize * group;
    }
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
