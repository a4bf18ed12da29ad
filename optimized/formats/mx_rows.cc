// MX rows by the rule of OCP MX 1.0 (mx_encode=ocp): the scale is 2^k with k the exponent of the
// block's largest magnitude less that of the largest element, at least -127; elements are quotients
// to nearest even, saturated. Values are products of element and scale.

#include "optimized/formats/float_rows.h"

namespace kvcheck::optimized {
namespace {

const MxFormat& MxOf(const KvFormat& format) { return std::get<MxFormat>(format); }

// Exponent of the largest element: 6 = 1.5 2^2, 448 = 1.75 2^8, 57344 = 1.75 2^15.
template <DType kElement>
constexpr uint32_t kTop = kElement == DType::kFloat4E2M1FN   ? 2
                          : kElement == DType::kFloat8E4M3FN ? 8
                                                             : 15;

// 2^(byte - 127); 255 is NaN.
float PowerOf(unsigned byte) {
  const uint32_t bits = byte == 0 ? 0x00400000u : byte << 23;
  return AsFloat(byte == 255 ? 0x7fc00000u : bits);
}

template <DType kElement>
uint8_t ElementCode(float w) {
  const uint32_t bits = BitsOf(w);
  if constexpr (kElement == DType::kFloat4E2M1FN) {
    const float size = std::fabs(w);
    const int code = (size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) +
                     (size > 2.5f) + (size >= 3.5f) + (size > 5.0f);
    return static_cast<uint8_t>(code | static_cast<int>(bits >> 31) << 3);
  } else {
    const uint8_t code = kElement == DType::kFloat8E4M3FN ? E4M3FromF32(bits) : E5M2FromF32(bits);
    constexpr unsigned kLargest = kElement == DType::kFloat8E4M3FN ? 0x7e : 0x7b;
    const unsigned size = code & 0x7fu;
    return static_cast<uint8_t>((size < kLargest ? size : kLargest) | (code & 0x80u));
  }
}

template <DType kElement>
float ElementValue(const std::byte* codes, int64_t c) {
  if constexpr (kElement == DType::kFloat4E2M1FN) {
    return E2M1Value(static_cast<unsigned>(codes[c / 2]) >> (c % 2 == 0 ? 0 : 4) & 15);
  } else {
    const auto code = static_cast<uint32_t>(codes[c]);
    return AsFloat(kElement == DType::kFloat8E4M3FN ? F32FromE4M3(code) : F32FromE5M2(code));
  }
}

template <DType kElement, DType kRow>
void EncodeAs(int64_t block, const EncodeCall& call) {
  constexpr int64_t kMostChannels = 32;
  for (int64_t i = 0; i < call.count; ++i) {
    LoadRow<kRow>(call, i, call.values);
    std::byte* codes = call.out.codes + i * call.out.code_stride;
    std::byte* scales = call.out.scales + i * call.out.scale_stride;
    for (int64_t c = 0; c < call.dim; c += block) {
      const float* x = call.values + c;
      const uint32_t exponent = LargestBits(x, block) >> 23;  // biased by 127
      const bool is_finite = exponent < 255;
      const uint32_t byte = exponent > kTop<kElement> ? exponent - kTop<kElement> : 0;
      *scales++ = static_cast<std::byte>(is_finite ? byte : 255);  // NaN of what is not finite
      const float inverse = AsFloat((254 - byte) << 23);
      uint8_t elements[kMostChannels];
      for (int64_t j = 0; j < block; ++j) {
        elements[j] = ElementCode<kElement>(is_finite ? x[j] * inverse : 0.0f);
      }
      if constexpr (kElement == DType::kFloat4E2M1FN) {
        StoreNibbles(elements, block, codes);
        codes += block / 2;
      } else {
        std::memcpy(codes, elements, static_cast<size_t>(block));
        codes += block;
      }
    }
  }
}

// kScale: the type to which a scale is rounded; kTo: that of the values.
template <DType kElement, DType kScale, DType kTo>
void DecodeAs(int64_t block, const DecodeCall& call) {
  constexpr int64_t kSize = kTo == DType::kFloat32 ? 4 : 2;
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    const std::byte* scales = call.rows.scales + i * call.rows.scale_stride;
    std::byte* out = call.out + i * call.dim * kSize;
    for (int64_t first = 0; first < call.dim; first += block) {
      const float scale = Narrowed<kScale>(PowerOf(static_cast<unsigned>(*scales++)));
      for (int64_t c = first; c < first + block; ++c) {
        StoreValue<kTo>(ElementValue<kElement>(codes, c) * scale, c, out);
      }
    }
  }
}

template <DType kElement>
void EncodeElements(const MxFormat& format, const EncodeCall& call) {
  switch (format.row_dtype) {
    case DType::kFloat16:
      return EncodeAs<kElement, DType::kFloat16>(format.block, call);
    case DType::kBFloat16:
      return EncodeAs<kElement, DType::kBFloat16>(format.block, call);
    default:
      return EncodeAs<kElement, DType::kFloat32>(format.block, call);
  }
}

template <DType kElement>
void DecodeElements(const MxFormat& format, DType to, const DecodeCall& call) {
  constexpr DType kF32 = DType::kFloat32;
  switch (to) {
    case DType::kFloat16:
      return DecodeAs<kElement, DType::kFloat16, DType::kFloat16>(format.block, call);
    case DType::kBFloat16:
      return DecodeAs<kElement, DType::kBFloat16, DType::kBFloat16>(format.block, call);
    default:
      return DecodeAs<kElement, kF32, kF32>(format.block, call);
  }
}

void DecodeTo(const MxFormat& format, DType to, const DecodeCall& call) {
  switch (format.element) {
    case DType::kFloat8E4M3FN:
      return DecodeElements<DType::kFloat8E4M3FN>(format, to, call);
    case DType::kFloat8E5M2:
      return DecodeElements<DType::kFloat8E5M2>(format, to, call);
    default:
      return DecodeElements<DType::kFloat4E2M1FN>(format, to, call);
  }
}

int64_t MxBlock(const KvFormat& format) { return MxOf(format).block; }

RowBytes MxBytes(const KvFormat& format, int64_t dim) {
  const MxFormat& mx = MxOf(format);
  return {mx.element == DType::kFloat4E2M1FN ? dim / 2 : dim, dim / mx.block, 0};
}

void MxEncode(const KvFormat& format, const EncodeCall& call) {
  switch (MxOf(format).element) {
    case DType::kFloat8E4M3FN:
      return EncodeElements<DType::kFloat8E4M3FN>(MxOf(format), call);
    case DType::kFloat8E5M2:
      return EncodeElements<DType::kFloat8E5M2>(MxOf(format), call);
    default:
      return EncodeElements<DType::kFloat4E2M1FN>(MxOf(format), call);
  }
}

void MxDecode(const KvFormat& format, const DecodeCall& call) {
  DecodeTo(MxOf(format), DType::kFloat32, call);
}

void MxDecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  DecodeTo(MxOf(format), MxOf(format).row_dtype, call);
}

constexpr RowFamily kMxFamily = {MxBlock, MxBytes, MxEncode, MxDecode, MxDecodeToRowType};

}  // namespace

const RowFamily& RowFamilyOf(const MxFormat&) { return kMxFamily; }

}  // namespace kvcheck::optimized
