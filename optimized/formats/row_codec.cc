#include "optimized/formats/row_codec.h"

#include <cstring>

#include "optimized/formats/row_kernels.h"

namespace kvcheck::optimized {
namespace {

// Vectors are short: calls of memcpy would cost more than the copies.
void CopyVectors(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
                 int64_t bytes, int64_t count) {
  if (count == 0) return;  // of no vectors neither place need be there
  if (from_stride == bytes && to_stride == bytes) {
    std::memcpy(to, from, static_cast<size_t>(count * bytes));
    return;
  }
  if (bytes % 16 == 0 && bytes <= 64) {
    for (int64_t i = 0; i < count; ++i, from += from_stride, to += to_stride) {
      for (int64_t at = 0; at < bytes; at += 16) std::memcpy(to + at, from + at, 16);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i, from += from_stride, to += to_stride) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

}  // namespace

RowBytes RowBytesOf(const KvFormat& format, int64_t dim) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    return {dim * static_cast<int64_t>(SizeInBytes(plain->dtype)), 0};
  }
  const auto& affine = std::get<AffineFormat>(format);
  return {dim * affine.bits / 8,
          dim / affine.group_size * static_cast<int64_t>(SizeInBytes(affine.scale_dtype))};
}

bool FitsDim(const KvFormat& format, int64_t dim) {
  const auto* affine = std::get_if<AffineFormat>(&format);
  return affine == nullptr || dim % affine->group_size == 0;
}

void RowCodec::Start(const KvFormat& format, DType from, int64_t dim) {
  format_ = format;
  from_ = from;
  dim_ = dim;
  bytes_ = RowBytesOf(format, dim);
  if (static_cast<int64_t>(values_.size()) < dim) values_.resize(static_cast<size_t>(dim));
}

void RowCodec::Encode(const std::byte* x, int64_t x_stride, int64_t count, const StoredRows& out) {
  const auto* plain = std::get_if<PlainFormat>(&format_);
  if (plain != nullptr && plain->dtype == from_) {
    CopyVectors(x, x_stride, out.codes, out.code_stride, bytes_.codes, count);
    return;
  }
  const EncodeCall call = {from_, dim_, x, x_stride, count, out, values_.data()};
  if (plain != nullptr) {
    EncodePlainRows(plain->dtype, call);
  } else {
    EncodeAffineRows(std::get<AffineFormat>(format_), call);
  }
}

void RowCodec::Decode(const StoredRowsView& rows, int64_t count, float* values) const {
  const DecodeCall call = {dim_, rows, count, reinterpret_cast<std::byte*>(values)};
  if (const auto* plain = std::get_if<PlainFormat>(&format_)) {
    DecodePlainRows(plain->dtype, call);
  } else {
    DecodeAffineRows(std::get<AffineFormat>(format_), DType::kFloat32, call);
  }
}

void RowCodec::DecodeToRowType(const StoredRowsView& rows, int64_t count, std::byte* out) const {
  if (const auto* affine = std::get_if<AffineFormat>(&format_)) {
    DecodeAffineRows(*affine, affine->scale_dtype, {dim_, rows, count, out});
  } else {
    CopyVectors(rows.codes, rows.code_stride, out, bytes_.codes, bytes_.codes, count);
  }
}

}  // namespace kvcheck::optimized
