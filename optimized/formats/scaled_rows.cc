// Codes of 8 bits with an f32 scale of the vector, max|x| over the largest code (token_encode=
// divide), or one of the format: codes x / s to nearest even; values code * s. Every step one f32
// operation; loops without branches.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_family.h"
#include "optimized/formats/row_floats.h"

namespace kvcheck::optimized {
namespace {

constexpr int64_t kScaleBytes = 4;

const ScaledFormat& Of(const KvFormat& format) { return std::get<ScaledFormat>(format); }

// fnuz: no -0, and one NaN in its place, which is what overflows too.
template <int kMantissa, int kBias>
uint8_t FnuzFromF32(uint32_t bits) {
  const uint32_t code = NarrowMagnitude<kMantissa, kBias, 0x80u>(bits & 0x7fffffffu);
  const uint32_t sign = (bits >> 24) & 0x80u;
  return static_cast<uint8_t>(code == 0 ? code : code | sign);
}

template <int kMantissa, int kBias>
uint32_t F32FromFnuz(uint32_t code) {
  const uint32_t sign = (code & 0x80u) << 24;
  const uint32_t shifted = (code & 0x7fu) << (23 - kMantissa);
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  const float subnormal = std::bit_cast<float>(shifted + kRebias + (1u << 23)) -
                          std::bit_cast<float>(kRebias + (1u << 23));
  const uint32_t size =
      shifted < (1u << 23) ? std::bit_cast<uint32_t>(subnormal) : shifted + kRebias;
  return code == 0x80u ? kF32Infinity | kF32Quiet : size | sign;
}

// kLargest; From(bits of a position), of NaN and overflow as fp8_overflow=nan; To(code): bits.
struct E4M3FN {
  static constexpr float kLargest = 448;
  static uint8_t From(uint32_t bits) { return E4M3FromF32(bits); }
  static uint32_t To(uint32_t code) { return F32FromE4M3(code); }
};
struct E5M2 {
  static constexpr float kLargest = 57344;
  static uint8_t From(uint32_t bits) { return E5M2FromF32(bits); }
  static uint32_t To(uint32_t code) { return F32FromE5M2(code); }
};
struct E4M3FNUZ {
  static constexpr float kLargest = 240;
  static uint8_t From(uint32_t bits) { return FnuzFromF32<3, 8>(bits); }
  static uint32_t To(uint32_t code) { return F32FromFnuz<3, 8>(code); }
};
struct E5M2FNUZ {
  static constexpr float kLargest = 57344;
  static uint8_t From(uint32_t bits) { return FnuzFromF32<2, 16>(bits); }
  static uint32_t To(uint32_t code) { return F32FromFnuz<2, 16>(code); }
};
struct Int8 {
  static constexpr float kLargest = 127;
  static uint8_t From(uint32_t bits) {
    // Below 2^22 the sum is an integer, rounded to even.
    const float q = std::bit_cast<float>(bits);
    const float low = q < -128.0f ? -128.0f : q;
    const float clamped = low > 127.0f ? 127.0f : low;
    const float number = clamped == clamped ? clamped : 0.0f;
    const float rounded = (number + 0x1.8p23f) - 0x1.8p23f;
    return static_cast<uint8_t>(static_cast<int32_t>(rounded));
  }
  static uint32_t To(uint32_t code) {
    return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int8_t>(code)));
  }
};

template <typename Code>
float DynamicScale(const float* x, int64_t dim) {
  float largest = 0;
  for (int64_t i = 0; i < dim; ++i) {
    const float size = std::fabs(x[i]);
    largest = size > largest ? size : largest;
  }
  return largest / Code::kLargest;
}

template <typename Code>
void EncodeGiven(const float* x, int64_t dim, float scale, std::byte* out) {
  for (int64_t i = 0; i < dim; ++i) {
    out[i] = static_cast<std::byte>(Code::From(std::bit_cast<uint32_t>(x[i] / scale)));
  }
}

// Positions within the codes; 0 where there is none.
template <typename Code>
void EncodeDynamic(const float* x, int64_t dim, float scale, std::byte* out) {
  constexpr float kLowest = std::is_same_v<Code, Int8> ? -128.0f : -Code::kLargest;
  if (scale == 0) {
    std::memset(out, 0, static_cast<size_t>(dim));
    return;
  }
  for (int64_t i = 0; i < dim; ++i) {
    const float q = x[i] / scale;
    const float low = q < kLowest ? kLowest : q;
    const float clamped = low > Code::kLargest ? Code::kLargest : low;
    const float number = clamped == clamped ? clamped : 0.0f;
    out[i] = static_cast<std::byte>(Code::From(std::bit_cast<uint32_t>(number)));
  }
}

template <typename Code>
void EncodeCodes(const ScaledFormat& format, const EncodeCall& call) {
  for (int64_t v = 0; v < call.count; ++v) {
    LoadRow(call, format.row_type, call.x + v * call.x_stride);
    std::byte* codes = call.out.codes + v * call.out.code_stride;
    if (format.place == ScalePlace::kTensor) {
      EncodeGiven<Code>(call.values, call.dim, format.scale, codes);
      continue;
    }
    const float scale = DynamicScale<Code>(call.values, call.dim);
    EncodeDynamic<Code>(call.values, call.dim, scale, codes);
    std::byte* to = format.place == ScalePlace::kInline
                        ? codes + call.dim
                        : call.out.scales + v * call.out.scale_stride;
    std::memcpy(to, &scale, kScaleBytes);
  }
}

template <typename Code>
void DecodeCodes(const std::byte* codes, int64_t dim, float scale, float* out) {
  for (int64_t i = 0; i < dim; ++i) {
    out[i] = std::bit_cast<float>(Code::To(std::to_integer<uint32_t>(codes[i]))) * scale;
  }
}

template <typename Visit>
void WithCode(ScaledCode code, Visit visit) {
  switch (code) {
    case ScaledCode::kE4M3FN:
      return visit(E4M3FN());
    case ScaledCode::kE5M2:
      return visit(E5M2());
    case ScaledCode::kE4M3FNUZ:
      return visit(E4M3FNUZ());
    case ScaledCode::kE5M2FNUZ:
      return visit(E5M2FNUZ());
    case ScaledCode::kInt8:
      return visit(Int8());
  }
}

// Give(vector, values) of each, in f32.
template <typename Give>
void DecodeEach(const ScaledFormat& format, const DecodeCall& call, Give give) {
  WithCode(format.code, [&](auto code) {
    for (int64_t v = 0; v < call.count; ++v) {
      const std::byte* codes = call.rows.codes + v * call.rows.code_stride;
      float scale = format.scale;
      if (format.place == ScalePlace::kInline) {
        std::memcpy(&scale, codes + call.dim, kScaleBytes);
      } else if (format.place == ScalePlace::kToken) {
        std::memcpy(&scale, call.rows.scales + v * call.rows.scale_stride, kScaleBytes);
      }
      give(v, [&](int64_t first, int64_t count, float* out) {
        DecodeCodes<decltype(code)>(codes + first, count, scale, out);
      });
    }
  });
}

int64_t Block(const KvFormat&) { return 4; }

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  switch (Of(format).place) {
    case ScalePlace::kInline:
      return {dim + kScaleBytes, 0, 0};
    case ScalePlace::kToken:
      return {dim, kScaleBytes, 0};
    default:
      return {dim, 0, 0};
  }
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  WithCode(Of(format).code, [&](auto code) { EncodeCodes<decltype(code)>(Of(format), call); });
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  DecodeEach(Of(format), call, [&](int64_t v, auto decode) {
    decode(0, call.dim, reinterpret_cast<float*>(call.out) + v * call.dim);
  });
}

// Some channels at a time, in registers and L1.
void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  constexpr int64_t kPiece = 64;
  const DType type = Of(format).row_type;
  const auto element = static_cast<int64_t>(SizeInBytes(type));
  DecodeEach(Of(format), call, [&](int64_t v, auto decode) {
    float values[kPiece];
    for (int64_t first = 0; first < call.dim; first += kPiece) {
      const int64_t count = std::min(kPiece, call.dim - first);
      decode(first, count, values);
      StoreRow(type, count, values, call.out + (v * call.dim + first) * element);
    }
  });
}

int Roundings(const KvFormat&) { return 1; }  // of the product with the scale

constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType, Roundings};

}  // namespace

const RowFamily& RowFamilyOf(const ScaledFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
