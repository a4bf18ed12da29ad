// Codes per channel: a row is a group of tokens, token after token, and channel c of token t stands
// at t D + c. Of each channel the least value is the zero, the range over the largest code the
// scale; every step is rounded to the row type. Loops run along channels, which are contiguous.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "optimized/formats/convert.h"
#include "optimized/formats/row_family.h"
#include "optimized/formats/row_floats.h"

namespace kvcheck::optimized {
namespace {

// Channels that are coded at a time: their ranges stay in L1.
constexpr int64_t kPiece = 128;

const ChannelFormat& Of(const KvFormat& format) { return std::get<ChannelFormat>(format); }

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

float Top(int bits) { return bits == 8 ? 255.0f : bits == 4 ? 15.0f : 3.0f; }

// Steps of the channels [first, first + count) of a group; a channel without a finite range or
// whose range is none has codes 0.
void ChannelSteps(const ChannelFormat& format, const float* x, int64_t channels, int64_t first,
                  int64_t count, float* scales, float* zeros) {
  if (format.group == 1) {
    for (int64_t c = 0; c < count; ++c) {
      scales[c] = 0;
      zeros[c] = x[first + c];
    }
    return;
  }
  float most[kPiece];
  float sum[kPiece];  // NaN where a value is no number
  for (int64_t c = 0; c < count; ++c) {
    most[c] = zeros[c] = x[first + c];
    sum[c] = 0;
  }
  for (int64_t t = 0; t < format.group; ++t) {
    const float* token = x + t * channels + first;
    for (int64_t c = 0; c < count; ++c) {
      const float value = token[c];
      most[c] = value > most[c] ? value : most[c];
      zeros[c] = value < zeros[c] ? value : zeros[c];
      sum[c] += value * 0.0f;
    }
  }
  for (int64_t c = 0; c < count; ++c) scales[c] = most[c] - zeros[c];
  RoundFloats(format.row_type, count, scales);
  for (int64_t c = 0; c < count; ++c) {
    const bool are_numbers = sum[c] == sum[c];
    scales[c] = are_numbers ? scales[c] / Top(format.bits) : kNan;
    zeros[c] = !are_numbers ? kNan : zeros[c] == 0 ? 0.0f : zeros[c];
  }
  RoundFloats(format.row_type, count, scales);
}

void CodeTokens(const ChannelFormat& format, const float* x, int64_t channels, int64_t first,
                int64_t count, const float* scales, const float* zeros, uint8_t* codes) {
  const float top = Top(format.bits);
  float q[kPiece];
  for (int64_t t = 0; t < format.group; ++t) {
    const float* token = x + t * channels + first;
    for (int64_t c = 0; c < count; ++c) q[c] = token[c] - zeros[c];
    RoundFloats(format.row_type, count, q);
    for (int64_t c = 0; c < count; ++c) q[c] = q[c] / scales[c];
    RoundFloats(format.row_type, count, q);
    uint8_t* out = codes + t * channels + first;
    for (int64_t c = 0; c < count; ++c) {
      // NaN, of 0 / 0 too, gives 0; so does a range without a step.
      const float clamped = q[c] > 0 ? (q[c] < top ? q[c] : top) : 0.0f;
      const bool has_step = scales[c] > 0 && scales[c] <= kLargest;
      const float code = has_step ? (clamped + 0x1p23f) - 0x1p23f : 0.0f;
      out[c] = static_cast<uint8_t>(code);
    }
  }
}

// `count` codes side by side, as whole bytes.
void Pack(int bits, const uint8_t* codes, int64_t count, std::byte* out) {
  if (bits == 8) {
    std::memcpy(out, codes, static_cast<size_t>(count));
  } else if (bits == 4) {
    for (int64_t i = 0; i < count / 2; ++i) {
      out[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  } else {
    for (int64_t i = 0; i < count / 4; ++i) {
      const uint8_t* four = codes + 4 * i;
      out[i] = static_cast<std::byte>(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
    }
  }
}

uint8_t CodeAt(int bits, const std::byte* codes, int64_t i) {
  const int64_t bit = i * bits;
  return static_cast<uint8_t>((std::to_integer<unsigned>(codes[bit / 8]) >> (bit % 8)) &
                              ((1u << bits) - 1));
}

int64_t Block(const KvFormat& format) {
  return std::max<int64_t>(Of(format).group, 32 / Of(format).bits);
}

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  const ChannelFormat& of = Of(format);
  const int64_t parameters = dim / of.group * (of.row_type == DType::kFloat32 ? 4 : 2);
  return {dim * of.bits / 8, parameters, parameters};
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  const ChannelFormat& of = Of(format);
  const int64_t channels = call.dim / of.group;
  const auto element = static_cast<int64_t>(SizeInBytes(of.row_type));
  std::vector<uint8_t> codes(static_cast<size_t>(call.dim));
  float scales[kPiece];
  float zeros[kPiece];
  for (int64_t v = 0; v < call.count; ++v) {
    LoadRow(call, of.row_type, call.x + v * call.x_stride);
    std::byte* to_scales = call.out.scales + v * call.out.scale_stride;
    std::byte* to_zeros = call.out.biases + v * call.out.scale_stride;
    for (int64_t first = 0; first < channels; first += kPiece) {
      const int64_t count = std::min(kPiece, channels - first);
      ChannelSteps(of, call.values, channels, first, count, scales, zeros);
      CodeTokens(of, call.values, channels, first, count, scales, zeros, codes.data());
      StoreRow(of.row_type, count, scales, to_scales + first * element);
      StoreRow(of.row_type, count, zeros, to_zeros + first * element);
    }
    Pack(of.bits, codes.data(), call.dim, call.out.codes + v * call.out.code_stride);
  }
}

// give(element, code, scale, zero) of every element of a row.
template <typename Give>
void ForEachCode(const ChannelFormat& of, const DecodeCall& call, int64_t v, Give give) {
  const int64_t channels = call.dim / of.group;
  const auto element = static_cast<int64_t>(SizeInBytes(of.row_type));
  const std::byte* codes = call.rows.codes + v * call.rows.code_stride;
  const std::byte* scale_bytes = call.rows.scales + v * call.rows.scale_stride;
  const std::byte* zero_bytes = call.rows.biases + v * call.rows.scale_stride;
  float scales[kPiece];
  float zeros[kPiece];
  for (int64_t first = 0; first < channels; first += kPiece) {
    const int64_t count = std::min(kPiece, channels - first);
    const auto load = [&](const std::byte* from, float* to) {
      DecodePlainRows(of.row_type, {count,
                                    {from + first * element, nullptr, nullptr, 0, 0},
                                    1,
                                    reinterpret_cast<std::byte*>(to)});
    };
    load(scale_bytes, scales);
    load(zero_bytes, zeros);
    for (int64_t t = 0; t < of.group; ++t) {
      for (int64_t c = 0; c < count; ++c) {
        const int64_t i = t * channels + first + c;
        give(i, static_cast<float>(CodeAt(of.bits, codes, i)), scales[c], zeros[c]);
      }
    }
  }
}

// The product is exact in double, so that nothing is lost where it and the zero cancel.
void Decode(const KvFormat& format, const DecodeCall& call) {
  for (int64_t v = 0; v < call.count; ++v) {
    float* values = reinterpret_cast<float*>(call.out) + v * call.dim;
    ForEachCode(Of(format), call, v, [&](int64_t i, float code, float scale, float zero) {
      values[i] = static_cast<float>(static_cast<double>(code) * static_cast<double>(scale) +
                                     static_cast<double>(zero));
    });
  }
}

void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  const ChannelFormat& of = Of(format);
  const auto element = static_cast<int64_t>(SizeInBytes(of.row_type));
  std::vector<float> values(static_cast<size_t>(call.dim));
  std::vector<float> zeros(static_cast<size_t>(call.dim));
  for (int64_t v = 0; v < call.count; ++v) {
    ForEachCode(of, call, v, [&](int64_t i, float code, float scale, float zero) {
      values[static_cast<size_t>(i)] = code * scale;
      zeros[static_cast<size_t>(i)] = zero;
    });
    RoundFloats(of.row_type, call.dim, values.data());
    for (size_t i = 0; i < values.size(); ++i) values[i] += zeros[i];
    StoreRow(of.row_type, call.dim, values.data(), call.out + v * call.dim * element);
  }
}

int Roundings(const KvFormat&) { return 2; }  // of the sum to double and to f32

constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType, Roundings};

}  // namespace

const RowFamily& RowFamilyOf(const ChannelFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
