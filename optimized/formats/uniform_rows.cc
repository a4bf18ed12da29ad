// Uniform codes with a scale and a minimum per vector, as vLLM's turboquant cache types write V:
// scale max((max - min) (1 / L), 1e-8) with L = 2^bits - 1, codes trunc((x - min) (1 / scale) +
// 1/2) within 0..L; scale and minimum are stored as f16. Every step one f32 operation. Source:
// reference/formats/formats.md, section D.

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "optimized/formats/convert.h"
#include "optimized/formats/pack.h"
#include "optimized/formats/row_family.h"
#include "optimized/formats/row_floats.h"

namespace kvcheck::optimized {
namespace {

constexpr int64_t kEight = 8;
constexpr int64_t kParameterBytes = 4;

const UniformFormat& FormatOf(const KvFormat& format) { return std::get<UniformFormat>(format); }

float Half(const std::byte* at) {
  uint16_t code = 0;
  std::memcpy(&code, at, sizeof(code));
  return std::bit_cast<float>(F32FromF16(code));
}

void PutHalf(float value, std::byte* at) {
  const uint16_t code = F16FromF32(std::bit_cast<uint32_t>(value));
  std::memcpy(at, &code, sizeof(code));
}

// trunc(x + 1/2) within 0..highest; 0 of NaN.
uint8_t CodeOf(float x, float highest) {
  const float shifted = x + 0.5f;
  const float low = shifted > 0.0f ? shifted : 0.0f;
  return static_cast<uint8_t>(static_cast<int32_t>(low < highest ? low : highest));
}

template <int kBits>
void EncodeVector(const float* x, int64_t dim, std::byte* codes, std::byte* scale,
                  std::byte* minimum) {
  constexpr auto kHighest = static_cast<float>((1 << kBits) - 1);
  constexpr float kPart = 1.0f / kHighest;
  float lowest = std::numeric_limits<float>::infinity(), highest = -lowest;
  for (int64_t i = 0; i < dim; ++i) {
    lowest = x[i] < lowest ? x[i] : lowest;
    highest = x[i] > highest ? x[i] : highest;
  }
  const float step = (highest - lowest) * kPart;
  const float used = step > 1e-8f ? step : 1e-8f;
  const float inverse = 1.0f / used;
  for (int64_t i = 0; i < dim; i += kEight, codes += kBits) {
    uint8_t eight[kEight];
    for (int64_t j = 0; j < kEight; ++j) {
      eight[j] = CodeOf((x[i + j] - lowest) * inverse, kHighest);
    }
    const uint64_t joined = JoinCodes<kBits>(std::bit_cast<uint64_t>(eight));
    std::memcpy(codes, &joined, kBits);
  }
  PutHalf(used, scale);
  PutHalf(lowest, minimum);
}

// The product has 15 bits: the sum is the only rounding.
template <int kBits>
void DecodeCodes(const std::byte* codes, float scale, float minimum, int64_t dim, float* y) {
  for (int64_t i = 0; i < dim; i += kEight, codes += kBits) {
    uint64_t joined = 0;
    std::memcpy(&joined, codes, kBits);
    const uint64_t eight = SplitCodes<kBits>(joined);
    for (int64_t j = 0; j < kEight; ++j) {
      y[i + j] = static_cast<float>(eight >> (8 * j) & 0xff) * scale + minimum;
    }
  }
}

void DecodeVector(int bits, const std::byte* codes, float scale, float minimum, int64_t dim,
                  float* y) {
  if (bits == 3) {
    DecodeCodes<3>(codes, scale, minimum, dim, y);
  } else {
    DecodeCodes<4>(codes, scale, minimum, dim, y);
  }
}

int64_t Channels(const KvFormat&) { return kEight; }

RowBytes BytesOf(const KvFormat& format, int64_t dim) {
  const int64_t codes = FormatOf(format).CodeBytes(dim);
  if (FormatOf(format).is_inline) return {codes + kParameterBytes, 0, 0};
  return {codes, 2, 2};
}

void EncodeVectors(const KvFormat& format, const EncodeCall& call) {
  const UniformFormat& of = FormatOf(format);
  const auto encode = of.bits == 3 ? EncodeVector<3> : EncodeVector<4>;
  for (int64_t v = 0; v < call.count; ++v) {
    LoadRow(call, of.row_type, call.x + v * call.x_stride);
    std::byte* codes = call.out.codes + v * call.out.code_stride;
    std::byte* after = codes + of.CodeBytes(call.dim);
    encode(call.values, call.dim, codes,
           of.is_inline ? after : call.out.scales + v * call.out.scale_stride,
           of.is_inline ? after + 2 : call.out.biases + v * call.out.scale_stride);
  }
}

// Give(vector, codes, scale, minimum) of each.
template <typename Give>
void ForEachVector(const KvFormat& format, const DecodeCall& call, Give give) {
  const UniformFormat& of = FormatOf(format);
  for (int64_t v = 0; v < call.count; ++v) {
    const std::byte* codes = call.rows.codes + v * call.rows.code_stride;
    const std::byte* after = codes + of.CodeBytes(call.dim);
    give(v, codes, Half(of.is_inline ? after : call.rows.scales + v * call.rows.scale_stride),
         Half(of.is_inline ? after + 2 : call.rows.biases + v * call.rows.scale_stride));
  }
}

void DecodeVectors(const KvFormat& format, const DecodeCall& call) {
  ForEachVector(format, call, [&](int64_t v, const std::byte* codes, float scale, float minimum) {
    DecodeVector(FormatOf(format).bits, codes, scale, minimum, call.dim,
                 reinterpret_cast<float*>(call.out) + v * call.dim);
  });
}

void DecodeVectorsToRowType(const KvFormat& format, const DecodeCall& call) {
  constexpr int64_t kSome = 64;
  const UniformFormat& of = FormatOf(format);
  const auto element = static_cast<int64_t>(SizeInBytes(of.row_type));
  ForEachVector(format, call, [&](int64_t v, const std::byte* codes, float scale, float minimum) {
    float values[kSome];
    for (int64_t first = 0; first < call.dim; first += kSome) {
      const int64_t count = std::min(kSome, call.dim - first);
      DecodeVector(of.bits, codes + of.CodeBytes(first), scale, minimum, count, values);
      StoreRow(of.row_type, count, values, call.out + (v * call.dim + first) * element);
    }
  });
}

int Roundings(const KvFormat&) { return 1; }  // of the sum

constexpr RowFamily kUniform = {
    Channels, BytesOf, EncodeVectors, DecodeVectors, DecodeVectorsToRowType, Roundings};

}  // namespace

const RowFamily& RowFamilyOf(const UniformFormat&) { return kUniform; }

}  // namespace kvcheck::optimized
