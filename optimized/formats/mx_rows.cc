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

// Of the codes of an fp8 type.
template <DType kElement>
const std::array<float, 256>& ValuesOf() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> of_code{};
    for (uint32_t code = 0; code < 256; ++code) {
      of_code[code] =
          AsFloat(kElement == DType::kFloat8E4M3FN ? F32FromE4M3(code) : F32FromE5M2(code));
    }
    return of_code;
  }();
  return values;
}

template <DType kElement>
void LoadElements(const std::byte* codes, int64_t count, float* values) {
  if constexpr (kElement == DType::kFloat4E2M1FN) {
    LoadNibbles(codes, count, values);
  } else {
    const std::array<float, 256>& table = ValuesOf<kElement>();
    for (int64_t i = 0; i < count; ++i) values[i] = table[static_cast<size_t>(codes[i])];
  }
}

template <DType kElement, int64_t kBlock, DType kRow>
void EncodeAs(const EncodeCall& call) {
  for (int64_t i = 0; i < call.count; ++i) {
    LoadRow<kRow>(call, i, call.values);
    std::byte* codes = call.out.codes + i * call.out.code_stride;
    std::byte* scales = call.out.scales + i * call.out.scale_stride;
    for (int64_t c = 0; c < call.dim; c += kBlock) {
      const float* x = call.values + c;
      const uint32_t exponent = LargestBits(x, kBlock) >> 23;  // biased by 127
      const bool is_finite = exponent < 255;
      const uint32_t byte = exponent > kTop<kElement> ? exponent - kTop<kElement> : 0;
      *scales++ = static_cast<std::byte>(is_finite ? byte : 255);  // NaN of what is not finite
      const float inverse = AsFloat((254 - byte) << 23);
      uint8_t elements[kMostBlockChannels];
      for (int64_t j = 0; j < kBlock; ++j) {
        elements[j] = ElementCode<kElement>(is_finite ? x[j] * inverse : 0.0f);
      }
      if constexpr (kElement == DType::kFloat4E2M1FN) {
        StoreNibbles(elements, kBlock, codes);
        codes += kBlock / 2;
      } else {
        std::memcpy(codes, elements, static_cast<size_t>(kBlock));
        codes += kBlock;
      }
    }
  }
}

// kScale: the type to which a scale is rounded; kTo: that of the values.
template <DType kElement, int64_t kBlock, DType kScale, DType kTo>
void DecodeAs(const DecodeCall& call) {
  constexpr int64_t kSize = kTo == DType::kFloat32 ? 4 : 2;
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    const std::byte* scales = call.rows.scales + i * call.rows.scale_stride;
    std::byte* out = call.out + i * call.dim * kSize;
    constexpr int64_t kBlockBytes = kElement == DType::kFloat4E2M1FN ? kBlock / 2 : kBlock;
    for (int64_t c = 0; c < call.dim; c += kBlock, codes += kBlockBytes, out += kBlock * kSize) {
      float values[kMostBlockChannels];
      LoadElements<kElement>(codes, kBlock, values);
      const float scale = Narrowed<kScale>(PowerOf(static_cast<unsigned>(*scales++)));
      StoreScaled<kTo>(values, scale, kBlock, out);
    }
  }
}

template <DType kElement, int64_t kBlock>
struct Elements {
  static void Encode(DType row, const EncodeCall& call) {
    switch (row) {
      case DType::kFloat16:
        return EncodeAs<kElement, kBlock, DType::kFloat16>(call);
      case DType::kBFloat16:
        return EncodeAs<kElement, kBlock, DType::kBFloat16>(call);
      default:
        return EncodeAs<kElement, kBlock, DType::kFloat32>(call);
    }
  }
  static void Decode(DType to, const DecodeCall& call) {
    switch (to) {
      case DType::kFloat16:
        return DecodeAs<kElement, kBlock, DType::kFloat16, DType::kFloat16>(call);
      case DType::kBFloat16:
        return DecodeAs<kElement, kBlock, DType::kBFloat16, DType::kBFloat16>(call);
      default:
        return DecodeAs<kElement, kBlock, DType::kFloat32, DType::kFloat32>(call);
    }
  }
};

// visit: called with the Elements of the format.
template <typename Visit>
void WithElements(const MxFormat& format, Visit visit) {
  switch (format.element) {
    case DType::kFloat8E4M3FN:
      return visit(Elements<DType::kFloat8E4M3FN, 32>());
    case DType::kFloat8E5M2:
      return visit(Elements<DType::kFloat8E5M2, 32>());
    default:
      return format.block == 16 ? visit(Elements<DType::kFloat4E2M1FN, 16>())
                                : visit(Elements<DType::kFloat4E2M1FN, 32>());
  }
}

void DecodeTo(const MxFormat& format, DType to, const DecodeCall& call) {
  WithElements(format, [&](auto elements) { elements.Decode(to, call); });
}

int64_t MxBlock(const KvFormat& format) { return MxOf(format).block; }

RowBytes MxBytes(const KvFormat& format, int64_t dim) {
  const MxFormat& mx = MxOf(format);
  return {mx.element == DType::kFloat4E2M1FN ? dim / 2 : dim, dim / mx.block, 0};
}

void MxEncode(const KvFormat& format, const EncodeCall& call) {
  const MxFormat& mx = MxOf(format);
  WithElements(mx, [&](auto elements) { elements.Encode(mx.row_dtype, call); });
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
