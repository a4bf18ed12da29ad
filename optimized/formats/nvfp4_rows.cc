// NVFP4 rows as MLX writes them on the CPU (nvfp4_encode=mlx): the scale is the block's largest
// magnitude over 6, rounded to the row type, over the global scale, rounded to e4m3; elements are
// quotients, rounded to the row type, to nearest, ties to the smaller magnitude, zero without a
// sign; nearest is the first element whose distance in f32 is least, zero beyond 2^27. Values are
// element times the f32 product of scale and global scale.
//
// Swizzled: a row is four tokens of S scales each, in four rows of S bytes; quarter q of the scales
// of every token makes row q, in which the four tokens' scales of a block stand side by side.

#include <algorithm>
#include <vector>

#include "optimized/formats/float_rows.h"

namespace kvcheck::optimized {
namespace {

constexpr int64_t kNvfp4Channels = 16;

const Nvfp4Format& Nvfp4Of(const KvFormat& format) { return std::get<Nvfp4Format>(format); }

constexpr int64_t kPageTokens = 4;

// Calls copy(in the order of tokens, as stored) with the places of every scale of a row.
template <typename Copy>
void ForEachSwizzled(int64_t dim, Copy copy) {
  const int64_t quarter = dim / (kNvfp4Channels * kPageTokens * kPageTokens);
  int64_t stored = 0;
  for (int64_t q = 0; q < kPageTokens; ++q) {
    for (int64_t s = q * quarter; s < (q + 1) * quarter; ++s) {
      for (int64_t t = 0; t < kPageTokens; ++t) copy(t * kPageTokens * quarter + s, stored++);
    }
  }
}

// Of the calling thread; kept from call to call.
std::vector<std::byte>& ScalesRoom(int64_t dim) {
  thread_local std::vector<std::byte> room;
  const auto scales = static_cast<size_t>(dim / kNvfp4Channels);
  if (room.size() < scales) room.resize(scales);
  return room;
}

void SwizzleRow(int64_t dim, std::byte* scales) {
  std::vector<std::byte>& linear = ScalesRoom(dim);
  std::copy_n(scales, dim / kNvfp4Channels, linear.data());
  ForEachSwizzled(dim, [&](int64_t token_order, int64_t stored) {
    scales[stored] = linear[static_cast<size_t>(token_order)];
  });
}

// The scales of a row in the order of tokens; `stored` itself where they are.
const std::byte* LinearScales(const Nvfp4Format& format, int64_t dim, const std::byte* stored) {
  if (!format.swizzled) return stored;
  std::vector<std::byte>& linear = ScalesRoom(dim);
  ForEachSwizzled(dim, [&](int64_t token_order, int64_t at) {
    linear[static_cast<size_t>(token_order)] = stored[at];
  });
  return linear.data();
}

// Where distances from the elements are rounded: the first one, from zero on, that is nearest.
uint8_t FarElementBits(float w) {
  constexpr float kElements[] = {0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float size = std::fabs(w);
  float least = size;
  uint32_t nearest = 0;
  for (uint32_t i = 0; i < 7; ++i) {
    if (size - kElements[i] < least) least = size - kElements[i], nearest = i + 1;
  }
  return static_cast<uint8_t>(nearest == 0 ? 0 : nearest | (BitsOf(w) >> 28 & 8));
}

uint8_t ElementBits(float w) {
  const float size = std::fabs(w);
  if (size >= 0x1p25f) return FarElementBits(w);
  const unsigned code =
      static_cast<unsigned>((size > 0.25f) + (size > 0.75f) + (size > 1.25f) + (size > 1.75f) +
                            (size > 2.5f) + (size > 3.5f) + (size > 5.0f));
  const unsigned sign = code != 0 ? BitsOf(w) >> 28 & 8 : 0;
  return static_cast<uint8_t>(code | sign);
}

template <DType kRow>
void Nvfp4EncodeAs(const Nvfp4Format& format, const EncodeCall& call) {
  const float global_scale = format.global_scale;
  for (int64_t i = 0; i < call.count; ++i) {
    LoadRow<kRow>(call, i, call.values);
    std::byte* codes = call.out.codes + i * call.out.code_stride;
    std::byte* scales = call.out.scales + i * call.out.scale_stride;
    for (int64_t c = 0; c < call.dim; c += kNvfp4Channels, codes += kNvfp4Channels / 2) {
      const float* x = call.values + c;
      const uint32_t largest = LargestBits(x, kNvfp4Channels);
      const bool is_finite = largest < kF32Infinity;
      const float quotient = Narrowed<kRow>(AsFloat(largest) / 6.0f);
      const uint8_t nearest = E4M3FromF32(BitsOf(quotient / global_scale));
      const uint8_t byte = nearest < 0x7e ? nearest : 0x7e;
      *scales++ = static_cast<std::byte>(is_finite ? byte : 0x7f);  // NaN of what is not finite
      const float scale = AsFloat(F32FromE4M3(byte)) * global_scale;
      uint8_t elements[kNvfp4Channels];
      for (int64_t j = 0; j < kNvfp4Channels; ++j) {
        const uint8_t element = ElementBits(Narrowed<kRow>(x[j] / scale));
        elements[j] = is_finite && scale != 0 ? element : 0;
      }
      StoreNibbles(elements, kNvfp4Channels, codes);
    }
    if (format.swizzled) SwizzleRow(call.dim, call.out.scales + i * call.out.scale_stride);
  }
}

template <DType kTo>
void Nvfp4DecodeAs(const Nvfp4Format& format, const DecodeCall& call) {
  const float global_scale = format.global_scale;
  constexpr int64_t kSize = kTo == DType::kFloat32 ? 4 : 2;
  for (int64_t i = 0; i < call.count; ++i) {
    const std::byte* codes = call.rows.codes + i * call.rows.code_stride;
    const std::byte* scales =
        LinearScales(format, call.dim, call.rows.scales + i * call.rows.scale_stride);
    std::byte* out = call.out + i * call.dim * kSize;
    for (int64_t c = 0; c < call.dim; c += kNvfp4Channels) {
      float values[kNvfp4Channels];
      LoadNibbles(codes, kNvfp4Channels, values);
      const auto byte = static_cast<uint32_t>(*scales++);
      StoreScaled<kTo>(values, AsFloat(F32FromE4M3(byte)) * global_scale, kNvfp4Channels, out);
      codes += kNvfp4Channels / 2;
      out += kNvfp4Channels * kSize;
    }
  }
}

int64_t Nvfp4Block(const KvFormat& format) {
  return Nvfp4Of(format).swizzled ? kNvfp4Channels * kPageTokens * kPageTokens : kNvfp4Channels;
}

RowBytes Nvfp4Bytes(const KvFormat&, int64_t dim) { return {dim / 2, dim / kNvfp4Channels, 0}; }

void Nvfp4Encode(const KvFormat& format, const EncodeCall& call) {
  const Nvfp4Format& nvfp4 = Nvfp4Of(format);
  switch (nvfp4.row_dtype) {
    case DType::kFloat16:
      return Nvfp4EncodeAs<DType::kFloat16>(nvfp4, call);
    case DType::kBFloat16:
      return Nvfp4EncodeAs<DType::kBFloat16>(nvfp4, call);
    default:
      return Nvfp4EncodeAs<DType::kFloat32>(nvfp4, call);
  }
}

void Nvfp4Decode(const KvFormat& format, const DecodeCall& call) {
  Nvfp4DecodeAs<DType::kFloat32>(Nvfp4Of(format), call);
}

void Nvfp4DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  const Nvfp4Format& nvfp4 = Nvfp4Of(format);
  switch (nvfp4.row_dtype) {
    case DType::kFloat16:
      return Nvfp4DecodeAs<DType::kFloat16>(nvfp4, call);
    case DType::kBFloat16:
      return Nvfp4DecodeAs<DType::kBFloat16>(nvfp4, call);
    default:
      return Nvfp4DecodeAs<DType::kFloat32>(nvfp4, call);
  }
}

// The product of the scales, and that with the element.
int Nvfp4Roundings(const KvFormat& format) { return Nvfp4Of(format).global_scale == 1 ? 0 : 2; }

constexpr RowFamily kNvfp4Family = {Nvfp4Block,  Nvfp4Bytes,           Nvfp4Encode,
                                    Nvfp4Decode, Nvfp4DecodeToRowType, Nvfp4Roundings};

}  // namespace

const RowFamily& RowFamilyOf(const Nvfp4Format&) { return kNvfp4Family; }

}  // namespace kvcheck::optimized
