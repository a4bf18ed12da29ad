// Affine rows: packed codes, and a scale and a bias per group, each in a plane of its own.

#include "optimized/formats/row_family.h"

namespace kvcheck::optimized {
namespace {

const AffineFormat& Of(const KvFormat& format) { return std::get<AffineFormat>(format); }

int64_t Block(const KvFormat& format) { return Of(format).group_size; }

RowBytes Bytes(const KvFormat& format, int64_t dim) {
  const AffineFormat& affine = Of(format);
  const int64_t scales =
      dim / affine.group_size * static_cast<int64_t>(SizeInBytes(affine.scale_dtype));
  return {dim * affine.bits / 8, scales, scales};
}

void Encode(const KvFormat& format, const EncodeCall& call) {
  if (call.affine == AffineEncoder::kKivi) return EncodeAffineRowsFromMinimum(Of(format), call);
  EncodeAffineRows(Of(format), call);
}

void Decode(const KvFormat& format, const DecodeCall& call) {
  DecodeAffineRows(Of(format), DType::kFloat32, call);
}

void DecodeToRowType(const KvFormat& format, const DecodeCall& call) {
  DecodeAffineRows(Of(format), Of(format).scale_dtype, call);
}

constexpr RowFamily kFamily = {Block, Bytes, Encode, Decode, DecodeToRowType};

}  // namespace

const RowFamily& RowFamilyOf(const AffineFormat&) { return kFamily; }

}  // namespace kvcheck::optimized
