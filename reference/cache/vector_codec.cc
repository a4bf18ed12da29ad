#include "reference/cache/vector_codec.h"

#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <string>

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

VectorCodec::VectorCodec(const KvFormat& format, DType from, int64_t dim, const Profile& profile,
                         const TensorMap& parameters)
    : format_(format),
      from_(from),
      planes_(PlanesOf(format, dim)),
      bytes_(planes_.RowBytes()),
      values_(static_cast<size_t>(dim)) {
  for (int64_t head = 0; head < HeadsOf(format); ++head) {
    rows_.push_back(ArithmeticOf(FormatOfHead(format, head))->MakeRows(profile, dim));
  }
  for (size_t i = 0; i < planes_.size(); ++i) {
    if (planes_[i].scope != PlaneScope::kTensor) continue;
    parameters_[i] = Get(parameters, std::string(planes_[i].name)).bytes;
  }
}

template <typename Byte>
std::array<Byte*, kMaxPlanes> VectorCodec::At(Byte* stored) {
  std::array<Byte*, kMaxPlanes> at{};
  for (size_t i = 0; i < planes_.size(); ++i) {
    if (planes_[i].scope == PlaneScope::kTensor) {
      at[i] = parameters_[i].data();
      continue;
    }
    at[i] = stored;
    stored += planes_[i].Bytes();
  }
  return at;
}

void VectorCodec::Encode(const std::byte* x, std::byte* stored, int64_t head) {
  if (IsPlain(format_) && RowDType(format_) == from_) {
    std::memcpy(stored, x, bytes_);
    return;
  }
  ReadValues(x, from_, values_);
  const auto at = At(stored);
  RowsOf(head).Encode(values_, {at.data(), planes_.size()});
}

void VectorCodec::Decode(const std::byte* stored, double* values, int64_t head) {
  const std::span<double> out(values, values_.size());
  if (IsPlain(format_)) {
    ReadValues(stored, RowDType(format_), out);
    return;
  }
  const auto at = At(stored);
  RowsOf(head).DecodeExact({at.data(), planes_.size()}, out, {});
}

void VectorCodec::DecodeToRowType(const std::byte* stored, double* values, int64_t head) {
  const auto at = At(stored);
  RowsOf(head).DecodeToRowType({at.data(), planes_.size()}, {values, values_.size()});
}

}  // namespace kvcheck
