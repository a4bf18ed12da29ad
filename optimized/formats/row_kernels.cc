#include "optimized/formats/row_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/formats/row_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvcheck::optimized {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLargestGroup = 128;

template <typename T>
HWY_INLINE T LoadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Elements of a storage type as f32, exact; of f64 rounded to odd, for types narrower than f32.
void Widen(DType from, const std::byte* x, int64_t count, float* HWY_RESTRICT out) {
  switch (from) {
    case DType::kFloat64:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(OddF32FromF64(LoadAs<double>(x + 8 * i)));
      }
      return;
    case DType::kFloat32:
      std::memcpy(out, x, static_cast<size_t>(count) * 4);
      return;
    case DType::kFloat16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromF16(LoadAs<uint16_t>(x + 2 * i)));
      }
      return;
    case DType::kBFloat16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromBF16(LoadAs<uint16_t>(x + 2 * i)));
      }
      return;
    case DType::kFloat8E4M3FN:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromE4M3(LoadAs<uint8_t>(x + i)));
      }
      return;
    default:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(F32FromE5M2(LoadAs<uint8_t>(x + i)));
      }
      return;
  }
}

template <typename T, typename Convert>
HWY_INLINE void NarrowLoop(const float* HWY_RESTRICT x, int64_t count, std::byte* out,
                           Convert convert) {
  for (int64_t i = 0; i < count; ++i) {
    const T code = convert(std::bit_cast<uint32_t>(x[i]));
    std::memcpy(out + static_cast<int64_t>(sizeof(T)) * i, &code, sizeof(T));
  }
}

void Narrow(DType dtype, const float* HWY_RESTRICT x, int64_t count, std::byte* out) {
  switch (dtype) {
    case DType::kFloat64:
      for (int64_t i = 0; i < count; ++i) {
        const double value = static_cast<double>(x[i]);  // quiets a NaN
        std::memcpy(out + 8 * i, &value, 8);
      }
      return;
    case DType::kFloat32:
      return NarrowLoop<uint32_t>(x, count, out, [](uint32_t b) { return QuietF32(b); });
    case DType::kFloat16:
      return NarrowLoop<uint16_t>(x, count, out, [](uint32_t b) { return F16FromF32(b); });
    case DType::kBFloat16:
      return NarrowLoop<uint16_t>(x, count, out, [](uint32_t b) { return BF16FromF32(b); });
    case DType::kFloat8E4M3FN:
      return NarrowLoop<uint8_t>(x, count, out, [](uint32_t b) { return E4M3FromF32(b); });
    default:
      return NarrowLoop<uint8_t>(x, count, out, [](uint32_t b) { return E5M2FromF32(b); });
  }
}

void EncodePlain(DType dtype, const EncodeCall& call) {
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* x = call.x + i * call.x_stride;
    std::byte* out = call.out.codes + i * call.out.code_stride;
    if (call.from == DType::kFloat64 && dtype == DType::kFloat32) {
      for (int64_t j = 0; j < call.dim; ++j) {  // once, to nearest
        const float value = static_cast<float>(LoadAs<double>(x + 8 * j));
        std::memcpy(out + 4 * j, &value, 4);
      }
      continue;
    }
    Widen(call.from, x, call.dim, call.values);
    Narrow(dtype, call.values, call.dim, out);
  }
}

// Eight codes, one a byte, as 8 kBits bits: code i at bit i kBits. Neighbours are joined in pairs,
// then pairs and pairs of pairs.
template <int kBits>
HWY_INLINE uint64_t JoinCodes(uint64_t bytes) {
  if constexpr (kBits == 8) return bytes;
  constexpr uint64_t kBytes = 0x00ff00ff00ff00ffu;
  constexpr uint64_t kShorts = 0x0000ffff0000ffffu;
  const uint64_t pairs = (bytes & kBytes) | ((bytes >> 8) & kBytes) << kBits;
  const uint64_t fours = (pairs & kShorts) | ((pairs >> 16) & kShorts) << (2 * kBits);
  return (fours & 0xffffffffu) | (fours >> 32) << (4 * kBits);
}

template <int kBits>
HWY_INLINE uint64_t SplitCodes(uint64_t joined) {
  if constexpr (kBits == 8) return joined;
  constexpr uint64_t kFour = (uint64_t{1} << (4 * kBits)) - 1;
  constexpr uint64_t kTwo = ((uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001u;
  constexpr uint64_t kOne = ((uint64_t{1} << kBits) - 1) * 0x0001000100010001u;
  const uint64_t fours = (joined & kFour) | ((joined >> (4 * kBits)) & kFour) << 32;
  const uint64_t pairs = (fours & kTwo) | ((fours >> (2 * kBits)) & kTwo) << 16;
  return (pairs & kOne) | ((pairs >> kBits) & kOne) << 8;
}

// Codes of one group, a byte each, and its scale and bias.
// Definition, every step one f32 operation, to nearest even:
//   mx, mn = largest and smallest of the group, NaN skipped
//   s = max((mx - mn) / n, 1e-7);  edge = mn if |mn| > |mx|, else edge = mx and s = -s
//   k = round(edge / s);  if k != 0: s = edge / k, bias = edge; else bias = 0
//   c = clamp(round((x - bias) / s), 0, n), NaN 0
// Source: MLX 0.32.4, mlx/backend/cpu/quantized.cpp; reference/formats/formats.md, section A.
HWY_INLINE void EncodeGroup(float n, const float* HWY_RESTRICT x, int group, float* scale,
                            float* bias, uint8_t* HWY_RESTRICT codes) {
  const HWY_CAPPED(float, 16) d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int lanes = static_cast<int>(hn::Lanes(d));
  // A comparison with NaN is false: NaN is skipped. Which of two zeros wins changes nothing.
  auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto least = hn::Set(d, std::numeric_limits<float>::infinity());
  for (int i = 0; i < group; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    most = hn::IfThenElse(hn::Gt(v, most), v, most);
    least = hn::IfThenElse(hn::Lt(v, least), v, least);
  }
  const float mx = hn::GetLane(hn::MaxOfLanes(d, most));
  const float mn = hn::GetLane(hn::MinOfLanes(d, least));
  const float step = (mx - mn) / n;
  // Which edge is as good as random: chosen without a branch.
  const uint32_t low = 0u - static_cast<uint32_t>(std::fabs(mn) > std::fabs(mx));
  const float edge = std::bit_cast<float>((std::bit_cast<uint32_t>(mn) & low) |
                                          (std::bit_cast<uint32_t>(mx) & ~low));
  float s = step < 1e-7f ? 1e-7f : step;
  s = std::bit_cast<float>(std::bit_cast<uint32_t>(s) ^ (~low & 0x80000000u));
  const float k = std::nearbyint(edge / s);
  float b = 0;
  if (k != 0) {
    s = edge / k;
    b = edge;
  }
  const auto vs = hn::Set(d, s);
  const auto vb = hn::Set(d, b);
  const auto vn = hn::Set(d, n);
  for (int i = 0; i < group; i += lanes) {
    const auto c = hn::Div(hn::Sub(hn::LoadU(d, x + i), vb), vs);
    // Clamping to integers commutes with rounding; NaN fails the first comparison.
    const auto low = hn::IfThenElseZero(hn::Gt(c, hn::Zero(d)), c);
    const auto clamped = hn::IfThenElse(hn::Lt(low, vn), low, vn);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, hn::Round(clamped))), d8, codes + i);
  }
  *scale = s;
  *bias = b;
}

HWY_INLINE void StoreScale(DType dtype, float value, std::byte* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &bits, 4);
    return;
  }
  const uint16_t code = dtype == DType::kFloat16 ? F16FromF32(bits) : BF16FromF32(bits);
  std::memcpy(to, &code, 2);
}

HWY_INLINE float LoadScale(DType dtype, const std::byte* from) {
  if (dtype == DType::kFloat32) return LoadAs<float>(from);
  const uint16_t code = LoadAs<uint16_t>(from);
  return std::bit_cast<float>(dtype == DType::kFloat16 ? F32FromF16(code) : F32FromBF16(code));
}

// Rows are rounded to the scale's type before anything else.
void RoundToScaleType(DType dtype, int64_t count, float* values) {
  if (dtype == DType::kFloat16) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(F32FromF16(F16FromF32(std::bit_cast<uint32_t>(values[i]))));
    }
  } else if (dtype == DType::kBFloat16) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] =
          std::bit_cast<float>(F32FromBF16(BF16FromF32(std::bit_cast<uint32_t>(values[i]))));
    }
  }
}

template <int kBits>
void EncodeAffineBits(const AffineFormat& format, const EncodeCall& call) {
  const int group = format.group_size;
  const int64_t groups = call.dim / group;
  const int64_t code_bytes = group * kBits / 8;
  const auto scale_bytes = static_cast<int64_t>(SizeInBytes(format.scale_dtype));
  uint8_t codes[kLargestGroup];
  uint64_t joined[kLargestGroup / 8];
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* x = call.x + i * call.x_stride;
    if (call.from == DType::kFloat64 && format.scale_dtype == DType::kFloat32) {
      for (int64_t j = 0; j < call.dim; ++j) {
        call.values[j] = static_cast<float>(LoadAs<double>(x + 8 * j));
      }
    } else {
      Widen(call.from, x, call.dim, call.values);
    }
    if (format.scale_dtype != call.from) {
      RoundToScaleType(format.scale_dtype, call.dim, call.values);
    }
    for (int64_t g = 0; g < groups; ++g) {
      float scale = 0;
      float bias = 0;
      EncodeGroup(static_cast<float>((1 << kBits) - 1), call.values + g * group, group, &scale,
                  &bias, codes);
      std::byte* out = call.out.codes + i * call.out.code_stride + g * code_bytes;
      std::memcpy(joined, codes, static_cast<size_t>(group));
      for (int j = 0; j < group / 8; ++j) joined[j] = JoinCodes<kBits>(joined[j]);
      for (int j = 0; j < group / 8; ++j) std::memcpy(out + j * kBits, &joined[j], kBits);
      const int64_t at = i * call.out.scale_stride + g * scale_bytes;
      StoreScale(format.scale_dtype, scale, call.out.scales + at);
      StoreScale(format.scale_dtype, bias, call.out.biases + at);
    }
  }
}

template <int kBits>
void DecodeAffineBits(const AffineFormat& format, const DecodeCall& call) {
  const HWY_CAPPED(float, 16) d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const int group = format.group_size;
  const int64_t groups = call.dim / group;
  const int64_t code_bytes = group * kBits / 8;
  const auto scale_bytes = static_cast<int64_t>(SizeInBytes(format.scale_dtype));
  uint8_t codes[kLargestGroup];
  for (int64_t i = 0; i < call.count; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      const std::byte* in = call.rows.codes + i * call.rows.code_stride + g * code_bytes;
      for (int j = 0; j < group / 8; ++j) {
        uint64_t joined = 0;
        std::memcpy(&joined, in + j * kBits, kBits);
        const uint64_t bytes = SplitCodes<kBits>(joined);
        std::memcpy(codes + 8 * j, &bytes, 8);
      }
      const int64_t at = i * call.rows.scale_stride + g * scale_bytes;
      const auto s = hn::Set(d, LoadScale(format.scale_dtype, call.rows.scales + at));
      const auto b = hn::Set(d, LoadScale(format.scale_dtype, call.rows.biases + at));
      float* out = call.values + i * call.dim + g * group;
      for (int j = 0; j < group; j += lanes) {
        const auto c = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, codes + j)));
        hn::StoreU(hn::Add(hn::Mul(c, s), b), d, out + j);
      }
    }
  }
}

void EncodeAffine(const AffineFormat& format, const EncodeCall& call) {
  switch (format.bits) {
    case 2:
      return EncodeAffineBits<2>(format, call);
    case 3:
      return EncodeAffineBits<3>(format, call);
    case 4:
      return EncodeAffineBits<4>(format, call);
    case 5:
      return EncodeAffineBits<5>(format, call);
    case 6:
      return EncodeAffineBits<6>(format, call);
    default:
      return EncodeAffineBits<8>(format, call);
  }
}

void DecodeAffine(const AffineFormat& format, const DecodeCall& call) {
  switch (format.bits) {
    case 2:
      return DecodeAffineBits<2>(format, call);
    case 3:
      return DecodeAffineBits<3>(format, call);
    case 4:
      return DecodeAffineBits<4>(format, call);
    case 5:
      return DecodeAffineBits<5>(format, call);
    case 6:
      return DecodeAffineBits<6>(format, call);
    default:
      return DecodeAffineBits<8>(format, call);
  }
}

void DecodePlain(DType dtype, const DecodeCall& call) {
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    float* out = call.values + i * call.dim;
    if (dtype == DType::kFloat64) {
      for (int64_t j = 0; j < call.dim; ++j) {
        out[j] = static_cast<float>(LoadAs<double>(codes + 8 * j));
      }
    } else {
      Widen(dtype, codes, call.dim, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvcheck::optimized
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcheck::optimized {

HWY_EXPORT(EncodePlain);
HWY_EXPORT(EncodeAffine);
HWY_EXPORT(DecodePlain);
HWY_EXPORT(DecodeAffine);

void EncodePlainRows(DType dtype, const EncodeCall& call) {
  HWY_DYNAMIC_DISPATCH(EncodePlain)(dtype, call);
}
void EncodeAffineRows(const AffineFormat& format, const EncodeCall& call) {
  HWY_DYNAMIC_DISPATCH(EncodeAffine)(format, call);
}
void DecodePlainRows(DType dtype, const DecodeCall& call) {
  HWY_DYNAMIC_DISPATCH(DecodePlain)(dtype, call);
}
void DecodeAffineRows(const AffineFormat& format, const DecodeCall& call) {
  HWY_DYNAMIC_DISPATCH(DecodeAffine)(format, call);
}

}  // namespace kvcheck::optimized
#endif  // HWY_ONCE
