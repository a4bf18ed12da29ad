#include "reference/formats/codec.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "reference/formats/affine.h"
#include "reference/formats/plain.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

const Tensor* Typed(const TensorMap& tensors, const std::string& name, DType dtype) {
  const Tensor& tensor = Get(tensors, name);
  if (tensor.dtype != dtype) {
    throw Error(ErrorCode::kMissingData, fmt::format("'{}' is {}, its format stores {}", name,
                                                     Name(tensor.dtype), Name(dtype)));
  }
  return &tensor;
}

EncodedRows AffineRows(const AffineFormat& format, const TensorMap& tensors,
                       const std::string& prefix) {
  EncodedRows rows;
  rows.codes = Typed(tensors, prefix + "codes", DType::kUInt32);
  rows.scales = Typed(tensors, prefix + "scales", format.scale_dtype);
  rows.biases = Typed(tensors, prefix + "biases", format.scale_dtype);
  const int64_t groups = rows.scales->shape.RowLength();
  const int64_t words = rows.codes->shape.RowLength();
  if (!rows.scales->shape.SameExtents(rows.biases->shape) ||
      rows.scales->shape.RowCount() != rows.codes->shape.RowCount() ||
      words * 32 != groups * format.group_size * format.bits) {
    throw Error(
        ErrorCode::kMissingData,
        fmt::format("codes {}, scales {} and biases {} are not rows of one {} tensor; a row "
                    "of D channels has D * {} / 32 words and D / {} groups",
                    ToString(rows.codes->shape), ToString(rows.scales->shape),
                    ToString(rows.biases->shape), Print(KvFormat(format)), format.bits,
                    format.group_size));
  }
  return rows;
}

Shape WithLastAxis(Shape shape, const std::string& name, int64_t extent) {
  if (shape.axes.empty()) shape.axes.push_back({"", 1});
  shape.axes.back() = {name, extent};
  return shape;
}

TensorMap EncodePlain(DType dtype, const Profile& profile, const Tensor& x) {
  Tensor codes(dtype, x.shape);
  std::vector<double> values(static_cast<size_t>(x.ElementCount()));
  DecodeTo(x, 0, values);
  EncodeFrom(values, dtype, codes.bytes.data(), StoreRule(dtype, profile));
  return {{"codes", std::move(codes)}};
}

TensorMap EncodeAffine(const AffineFormat& format, const Profile& profile, const Tensor& x) {
  const int64_t dim = x.shape.RowLength();
  CheckHeadDim(format, dim, "EncodeRows");
  const size_t group = static_cast<size_t>(format.group_size);
  const size_t group_words = group * static_cast<size_t>(format.bits) / 32;
  const size_t element_bytes = SizeInBytes(format.scale_dtype);
  Tensor codes(DType::kUInt32, WithLastAxis(x.shape, "W", dim * format.bits / 32));
  Tensor scales(format.scale_dtype, WithLastAxis(x.shape, "G", dim / format.group_size));
  Tensor biases = scales;
  std::vector<double> values(group);
  std::vector<float> rounded(group);
  std::vector<uint8_t> group_codes(group);
  std::vector<uint32_t> words(group_words);
  const int64_t group_count = scales.ElementCount();
  for (int64_t g = 0; g < group_count; ++g) {
    DecodeTo(x, g * format.group_size, values);
    RoundAll(values, format.scale_dtype);
    // Values of f32, f16 and bf16 are exact in f32.
    for (size_t i = 0; i < group; ++i) rounded[i] = static_cast<float>(values[i]);
    const AffineGroup encoded =
        EncodeAffineGroup(format.bits, profile.encode, rounded, group_codes);
    PackCodes(group_codes, format.bits, words);
    const size_t at = static_cast<size_t>(g);
    std::memcpy(codes.bytes.data() + at * group_words * sizeof(uint32_t), words.data(),
                group_words * sizeof(uint32_t));
    const double scale = encoded.scale;
    const double bias = encoded.bias;
    EncodeFrom({&scale, 1}, format.scale_dtype, scales.bytes.data() + at * element_bytes);
    EncodeFrom({&bias, 1}, format.scale_dtype, biases.bytes.data() + at * element_bytes);
  }
  return {
      {"codes", std::move(codes)}, {"scales", std::move(scales)}, {"biases", std::move(biases)}};
}

// Calls visit(first element of the output, codes, S, B) for every group of the rows.
template <typename Visit>
void ForEachGroup(const AffineFormat& format, const EncodedRows& rows, int64_t first_row,
                  int64_t row_count, Visit visit) {
  const size_t group = static_cast<size_t>(format.group_size);
  const size_t group_words = group * static_cast<size_t>(format.bits) / 32;
  const int64_t row_groups = rows.scales->shape.RowLength();
  std::vector<uint8_t> codes(group);
  std::vector<uint32_t> words(group_words);
  for (int64_t g = 0; g < row_count * row_groups; ++g) {
    const int64_t at = first_row * row_groups + g;
    std::memcpy(words.data(),
                rows.codes->bytes.data() + static_cast<size_t>(at) * group_words * sizeof(uint32_t),
                group_words * sizeof(uint32_t));
    UnpackCodes(words, format.bits, codes);
    double scale = 0;
    double bias = 0;
    DecodeTo(*rows.scales, at, {&scale, 1});
    DecodeTo(*rows.biases, at, {&bias, 1});
    visit(static_cast<size_t>(g) * group, codes, scale, bias);
  }
}

void CheckRange(const EncodedRows& rows, int64_t first_row, int64_t row_count) {
  KVCHECK_CHECK(first_row >= 0 && row_count >= 0 && first_row + row_count <= rows.RowCount(),
                "rows outside the stored ones");
}

}  // namespace

EncodedRows CodecRows(const KvFormat& format, const TensorMap& tensors) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    return {Typed(tensors, "codes", plain->dtype), nullptr, nullptr};
  }
  return AffineRows(std::get<AffineFormat>(format), tensors, "");
}

EncodedRows CacheRows(const KvFormat& format, const TensorMap& tensors, const std::string& name) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    return {Typed(tensors, name, plain->dtype), nullptr, nullptr};
  }
  return AffineRows(std::get<AffineFormat>(format), tensors, name + "_");
}

int64_t RowDim(const KvFormat& format, const EncodedRows& rows) {
  if (IsPlain(format)) return rows.codes->shape.RowLength();
  return rows.scales->shape.RowLength() * std::get<AffineFormat>(format).group_size;
}

TensorMap EncodeRows(const KvFormat& format, const Profile& profile, const Tensor& x) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    return EncodePlain(plain->dtype, profile, x);
  }
  return EncodeAffine(std::get<AffineFormat>(format), profile, x);
}

DecodedRows DecodeRows(const KvFormat& format, const Profile& profile, const EncodedRows& rows,
                       int64_t first_row, int64_t row_count) {
  if (IsPlain(format) || profile.decode != DecodeRounding::kExact) {
    return {DecodeToRowType(format, profile, rows, first_row, row_count), {}};
  }
  CheckRange(rows, first_row, row_count);
  const size_t count = static_cast<size_t>(row_count * RowDim(format, rows));
  DecodedRows decoded = {std::vector<double>(count), std::vector<double>(count)};
  ForEachGroup(std::get<AffineFormat>(format), rows, first_row, row_count,
               [&](size_t first, const std::vector<uint8_t>& codes, double scale, double bias) {
                 for (size_t i = 0; i < codes.size(); ++i) {
                   const ExactValue value = AffineValue(codes[i], scale, bias);
                   decoded.hi[first + i] = value.hi;
                   decoded.lo[first + i] = value.lo;
                 }
               });
  return decoded;
}

std::vector<double> DecodeToRowType(const KvFormat& format, const Profile& profile,
                                    const EncodedRows& rows, int64_t first_row, int64_t row_count) {
  CheckRange(rows, first_row, row_count);
  const int64_t dim = RowDim(format, rows);
  std::vector<double> out(static_cast<size_t>(row_count * dim));
  if (IsPlain(format)) {
    DecodeTo(*rows.codes, first_row * dim, out);
    return out;
  }
  const auto& affine = std::get<AffineFormat>(format);
  ForEachGroup(affine, rows, first_row, row_count,
               [&](size_t first, const std::vector<uint8_t>& codes, double scale, double bias) {
                 DecodeAffineGroup(profile.decode, affine.scale_dtype, codes, scale, bias,
                                   std::span(out).subspan(first, codes.size()));
               });
  return out;
}

}  // namespace kvcheck
