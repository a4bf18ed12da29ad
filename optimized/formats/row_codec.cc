#include "optimized/formats/row_codec.h"

#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {

RowBytes RowBytesOf(const KvFormat& format, int64_t dim) {
  return FamilyOf(format).bytes(format, dim);
}

int DecodeRoundings(const KvFormat& format) {
  const auto roundings = FamilyOf(format).roundings;
  return roundings == nullptr ? 0 : roundings(format);
}

bool RotatesRows(const KvFormat& format) { return FamilyOf(format).basis != nullptr; }

int BasisRoundings(const KvFormat& format) { return FamilyOf(format).basis->roundings(format); }

void RotateToBasis(const KvFormat& format, int64_t dim, float* x) {
  FamilyOf(format).basis->rotate(format, dim, x);
}

void RotateFromBasis(const KvFormat& format, int64_t dim, float* y) {
  FamilyOf(format).basis->rotate_back(format, dim, y);
}

bool FitsDim(const KvFormat& format, int64_t dim) {
  return dim % FamilyOf(format).block(format) == 0;
}

void RowCodec::Start(const KvFormat& format, DType from, int64_t dim, AffineEncoder affine) {
  format_ = format;
  heads_ = HeadsOf(format);
  SetHead(0);
  family_ = &FamilyOf(format);
  from_ = from;
  affine_ = affine;
  dim_ = dim;
  bytes_ = family_->bytes(format, dim);
  if (static_cast<int64_t>(values_.size()) < dim) values_.resize(static_cast<size_t>(dim));
}

void RowCodec::Encode(const std::byte* x, int64_t x_stride, int64_t count, const StoredRows& out) {
  family_->encode(OfHead(), {from_, dim_, x, x_stride, count, out, values_.data(), affine_});
}

void RowCodec::Decode(const StoredRowsView& rows, int64_t count, float* values) const {
  family_->decode(OfHead(), {dim_, rows, count, reinterpret_cast<std::byte*>(values)});
}

void RowCodec::DecodeInBasis(const StoredRowsView& rows, int64_t count, float* values) const {
  family_->basis->decode(OfHead(), {dim_, rows, count, reinterpret_cast<std::byte*>(values)});
}

void RowCodec::DecodeToRowType(const StoredRowsView& rows, int64_t count, std::byte* out) const {
  family_->decode_to_row_type(OfHead(), {dim_, rows, count, out});
}

}  // namespace kvcheck::optimized
