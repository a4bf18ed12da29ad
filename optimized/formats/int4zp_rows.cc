// Nibbles with a scale and a zero point in one f32 per vector, as vLLM writes them: scale
// max((max - min) (1 / 15), 1e-6), zero point -min / s and codes fma(x, 1 / s, zero point), both
// with the reciprocal, rounded half away from zero into 0..15; the stored f32 has the zero point in
// its low 4 bits. Every step one f32 operation.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimized/formats/row_family.h"
#include "optimized/formats/row_floats.h"

namespace kvcheck::optimized {
namespace {

constexpr int64_t kStoredScaleBytes = 4;

const Int4zpFormat& FormatOf(const KvFormat& format) { return std::get<Int4zpFormat>(format); }

// trunc(x + 1/2) within 0..15, which is half away from zero there; 0 of NaN. What is below 0 is 0
// either way.
uint32_t Nibble(float x) {
  const float shifted = x + 0.5f;
  const float low = shifted > 0.0f ? shifted : 0.0f;
  return static_cast<uint32_t>(static_cast<int32_t>(low < 15.0f ? low : 15.0f));
}

// fl(x y + z): the product of two f32 is exact in double; its sum is rounded to odd, so that the
// rounding to f32 is the only one (Boldo, Melquiond, 2008).
float ProductAndSum(float x, float y, double z) {
  const double product = static_cast<double>(x) * static_cast<double>(y);
  const double sum = product + z;
  const double kept = sum - product;
  const double lost = (product - (sum - kept)) + (z - kept);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  const bool is_even = (bits & 1) == 0;
  const uint64_t away = bits + 1, toward = bits - 1;
  const uint64_t odd = (lost > 0) == (sum > 0) ? away : toward;
  bits = lost != 0 && is_even ? odd : bits;
  return static_cast<float>(std::bit_cast<double>(bits));
}

void EncodeVector(const float* x, int64_t dim, std::byte* codes, std::byte* stored) {
  float lowest = std::numeric_limits<float>::infinity(), highest = -lowest;
  for (int64_t i = 0; i < dim; ++i) {
    lowest = x[i] < lowest ? x[i] : lowest;
    highest = x[i] > highest ? x[i] : highest;
  }
  constexpr float kFifteenth = 0x1.111112p-4f;
  const float step = (highest - lowest) * kFifteenth;
  const float scale = step > 1e-6f ? step : 1e-6f;
  const float inverse = 1.0f / scale;
  const uint32_t zero_point = Nibble(-lowest * inverse);
  const auto shift = static_cast<double>(zero_point);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const uint32_t low = Nibble(ProductAndSum(x[2 * i], inverse, shift));
    const uint32_t high = Nibble(ProductAndSum(x[2 * i + 1], inverse, shift));
    codes[i] = static_cast<std::byte>(low | high << 4);
  }
  const uint32_t bits = (std::bit_cast<uint32_t>(scale) & 0xfffffff0u) | zero_point;
  std::memcpy(stored, &bits, sizeof(bits));
}

void DecodeVector(const std::byte* codes, const std::byte* stored, int64_t dim, float* y) {
  uint32_t bits = 0;
  std::memcpy(&bits, stored, sizeof(bits));
  const auto zero_point = static_cast<int32_t>(bits & 15u);
  const float scale = std::bit_cast<float>(bits & 0xfffffff0u);
  for (int64_t i = 0; i < dim / 2; ++i) {
    const auto byte = static_cast<int32_t>(codes[i]);
    y[2 * i] = static_cast<float>((byte & 15) - zero_point) * scale;
    y[2 * i + 1] = static_cast<float>((byte >> 4) - zero_point) * scale;
  }
}

int64_t Channels(const KvFormat&) { return 8; }

RowBytes BytesOf(const KvFormat& format, int64_t dim) {
  if (FormatOf(format).is_inline) return {dim / 2 + kStoredScaleBytes, 0, 0};
  return {dim / 2, kStoredScaleBytes, 0};
}

void EncodeVectors(const KvFormat& format, const EncodeCall& call) {
  const Int4zpFormat& of = FormatOf(format);
  for (int64_t v = 0; v < call.count; ++v) {
    LoadRow(call, of.row_type, call.x + v * call.x_stride);
    std::byte* codes = call.out.codes + v * call.out.code_stride;
    EncodeVector(call.values, call.dim, codes,
                 of.is_inline ? codes + call.dim / 2 : call.out.scales + v * call.out.scale_stride);
  }
}

// Give(vector, codes, stored scale) of each.
template <typename Give>
void ForEachVector(const KvFormat& format, const DecodeCall& call, Give give) {
  const bool is_inline = FormatOf(format).is_inline;
  for (int64_t v = 0; v < call.count; ++v) {
    const std::byte* codes = call.rows.codes + v * call.rows.code_stride;
    give(v, codes,
         is_inline ? codes + call.dim / 2 : call.rows.scales + v * call.rows.scale_stride);
  }
}

void DecodeVectors(const KvFormat& format, const DecodeCall& call) {
  ForEachVector(format, call, [&](int64_t v, const std::byte* codes, const std::byte* stored) {
    DecodeVector(codes, stored, call.dim, reinterpret_cast<float*>(call.out) + v * call.dim);
  });
}

void DecodeVectorsToRowType(const KvFormat& format, const DecodeCall& call) {
  constexpr int64_t kSome = 64;
  const DType type = FormatOf(format).row_type;
  const auto element = static_cast<int64_t>(SizeInBytes(type));
  ForEachVector(format, call, [&](int64_t v, const std::byte* codes, const std::byte* stored) {
    float values[kSome];
    for (int64_t first = 0; first < call.dim; first += kSome) {
      const int64_t count = std::min(kSome, call.dim - first);
      DecodeVector(codes + first / 2, stored, count, values);
      StoreRow(type, count, values, call.out + (v * call.dim + first) * element);
    }
  });
}

constexpr RowFamily kNibbles = {Channels, BytesOf, EncodeVectors, DecodeVectors,
                                DecodeVectorsToRowType};

}  // namespace

const RowFamily& RowFamilyOf(const Int4zpFormat&) { return kNibbles; }

}  // namespace kvcheck::optimized
