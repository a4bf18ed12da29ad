#include "reference/cache/vector_codec.h"

#include <bit>
#include <cstring>
#include <span>

#include "reference/formats/affine.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

// The code of the dtype that starts at `at`, little endian.
uint64_t ReadCode(const std::byte* at, size_t size) {
  uint64_t code = 0;
  if (size == 2) {
    std::memcpy(&code, at, 2);
  } else {
    std::memcpy(&code, at, size);
  }
  return code;
}

// Decode of numerics/convert.h, without its call per element for the types that traces use.
void ReadValues(const std::byte* x, DType dtype, std::span<double> values) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) {
    const size_t bytes = SizeInBytes(dtype);
    for (size_t i = 0; i < values.size(); ++i) {
      // bf16 is the upper half of an f32.
      const auto code = static_cast<uint32_t>(ReadCode(x + i * bytes, bytes));
      values[i] = std::bit_cast<float>(bytes == 2 ? code << 16 : code);
    }
    return;
  }
  if (dtype == DType::kFloat16) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<uint32_t>(ReadCode(x + 2 * i, 2));
      // Sign, exponent and mantissa in their places of an f32, whose exponent is 112 larger; the
      // product is exact, for subnormal numbers too. Infinity and NaN are left to Decode.
      if ((code & 0x7c00u) == 0x7c00u) {
        values[i] = Decode(dtype, code);
        continue;
      }
      const float magnitude = std::bit_cast<float>((code & 0x7fffu) << 13) * 0x1p112f;
      values[i] = (code & 0x8000u) != 0 ? -magnitude : magnitude;
    }
    return;
  }
  const size_t size = SizeInBytes(dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Decode(dtype, ReadCode(x + i * size, size));
  }
}

}  // namespace

VectorSize StoredSize(const KvFormat& format, int64_t dim) {
  const auto channels = static_cast<size_t>(dim);
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    return {channels * SizeInBytes(plain->dtype), 0};
  }
  const auto& affine = std::get<AffineFormat>(format);
  return {channels * static_cast<size_t>(affine.bits) / 8,
          channels / static_cast<size_t>(affine.group_size) * SizeInBytes(affine.scale_dtype)};
}

VectorCodec::VectorCodec(const KvFormat& format, DType from, int64_t dim, const Profile& profile)
    : format_(format), from_(from), dim_(dim), profile_(profile), size_(StoredSize(format, dim)) {
  values_.resize(static_cast<size_t>(dim));
  if (const auto* affine = std::get_if<AffineFormat>(&format)) {
    const auto group = static_cast<size_t>(affine->group_size);
    group_.resize(group);
    codes_.resize(group);
    words_.resize(group * static_cast<size_t>(affine->bits) / 32);
  }
}

void VectorCodec::Encode(const std::byte* x, std::byte* stored) {
  if (const auto* plain = std::get_if<PlainFormat>(&format_)) {
    if (plain->dtype == from_) {
      std::memcpy(stored, x, size_.codes);
      return;
    }
    ReadValues(x, from_, values_);
    EncodeFrom(values_, plain->dtype, stored, StoreRule(plain->dtype, profile_));
    return;
  }
  const auto& affine = std::get<AffineFormat>(format_);
  ReadValues(x, from_, values_);
  if (from_ != affine.scale_dtype) RoundAll(values_, affine.scale_dtype);
  const size_t scale_bytes = SizeInBytes(affine.scale_dtype);
  for (size_t g = 0; g * group_.size() < values_.size(); ++g) {
    // Values of f32, f16 and bf16 are exact in f32.
    for (size_t i = 0; i < group_.size(); ++i) {
      group_[i] = static_cast<float>(values_[g * group_.size() + i]);
    }
    const AffineGroup encoded = EncodeAffineGroup(affine.bits, profile_.encode, group_, codes_);
    PackCodes(codes_, affine.bits, words_);
    std::memcpy(stored + g * words_.size() * sizeof(uint32_t), words_.data(),
                words_.size() * sizeof(uint32_t));
    const double scale = encoded.scale;
    const double bias = encoded.bias;
    std::byte* scales = stored + size_.codes + g * scale_bytes;
    EncodeFrom({&scale, 1}, affine.scale_dtype, scales);
    EncodeFrom({&bias, 1}, affine.scale_dtype, scales + size_.scales);
  }
}

void VectorCodec::Decode(const std::byte* stored, double* values) {
  const std::span<double> out(values, static_cast<size_t>(dim_));
  if (const auto* plain = std::get_if<PlainFormat>(&format_)) {
    ReadValues(stored, plain->dtype, out);
    return;
  }
  const auto& affine = std::get<AffineFormat>(format_);
  const size_t scale_bytes = SizeInBytes(affine.scale_dtype);
  for (size_t g = 0; g * codes_.size() < out.size(); ++g) {
    std::memcpy(words_.data(), stored + g * words_.size() * sizeof(uint32_t),
                words_.size() * sizeof(uint32_t));
    UnpackCodes(words_, affine.bits, codes_);
    const std::byte* scales = stored + size_.codes + g * scale_bytes;
    const double scale = kvcheck::Decode(affine.scale_dtype, ReadCode(scales, scale_bytes));
    const double bias =
        kvcheck::Decode(affine.scale_dtype, ReadCode(scales + size_.scales, scale_bytes));
    for (size_t i = 0; i < codes_.size(); ++i) {
      out[g * codes_.size() + i] = AffineValue(codes_[i], scale, bias).hi;
    }
  }
}

}  // namespace kvcheck
