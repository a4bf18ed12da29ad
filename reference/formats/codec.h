// One entry for every storage format: rows to stored tensors and back. What a stored row means
// depends on the profile only where the format leaves a choice: the encoder and the decoder's
// roundings of affine codes, and overflow of fp8.

#ifndef REFERENCE_FORMATS_CODEC_H_
#define REFERENCE_FORMATS_CODEC_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/formats/stored_basis.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// The planes of one set of stored rows, not owned, in the order of PlanesOf. Rows are counted over
// all axes but the last.
struct EncodedRows {
  std::array<const Tensor*, kMaxPlanes> planes{};
  int64_t RowCount() const { return planes[0]->shape.RowCount(); }
};

// The rows of a codec case, whose tensors are called as the planes.
// Errors of both: kMissingData when a tensor is absent, or not of the type of the format, or when
// their row counts or widths contradict each other.
EncodedRows CodecRows(const KvFormat& format, const TensorMap& tensors);
// K or V of an attention case: PlaneTensor(format, name, plane).
EncodedRows CacheRows(const KvFormat& format, const TensorMap& tensors, const std::string& name);

// The head of K or V whose row this is: of (B, Hkv, T, channels) its own; other rows are those of
// one token after the other, head by head. Only formats whose text names heads make a difference.
int64_t HeadOfRow(const KvFormat& format, const Shape& shape, int64_t row);

// Rows that are a part of a tensor. Null: a tensor of their own.
struct RowPlace {
  const Shape* shape = nullptr;
  int64_t first_row = 0;
};

// Elements of a decoded row.
int64_t RowDim(const KvFormat& format, const EncodedRows& rows);

// x, of any float type with head_dim last, stored: the planes by name, with the leading axes of x.
// Rows of coded formats are first rounded to the row type. parameters: holds the planes of
// PlaneScope::kTensor, by name.
// Errors: kIllegalCase when head_dim is not a multiple of the format's block; kMissingData without
// a parameter.
TensorMap EncodeRows(const KvFormat& format, const Profile& profile, const Tensor& x,
                     const TensorMap& parameters = {}, const RowPlace& place = {});

// Values of rows [first_row, first_row + row_count), row-major.
struct DecodedRows {
  std::vector<double> hi;
  std::vector<double> lo;  // what remains of the exact value; empty when nothing does
};

// The stored values under the profile: for decode=exact the real numbers as unevaluated sums
// hi + lo, else values of the row type. Plain values are exact in any case.
DecodedRows DecodeRows(const KvFormat& format, const Profile& profile, const EncodedRows& rows,
                       int64_t first_row, int64_t row_count);

// The basis in which the format stores rows of head_dim channels.
StoredBasis BasisOf(const KvFormat& format, int64_t head_dim);

// The same rows as they are stored in that basis, within 2^-50 of the real numbers, row-major.
// Precondition: BasisOf(format, head_dim) rotates; the profile says decode=exact.
std::vector<double> DecodeRowsInBasis(const KvFormat& format, const Profile& profile,
                                      const EncodedRows& rows, int64_t first_row,
                                      int64_t row_count);

// The same rows written out in the row type; decode=exact is then rounded once.
std::vector<double> DecodeToRowType(const KvFormat& format, const Profile& profile,
                                    const EncodedRows& rows, int64_t first_row, int64_t row_count);

// How far a decoder may be from these values that takes its sums in another order, where the
// profile leaves that open: infinite where a row has no finite value; empty: bit for bit.
std::vector<double> DecodeFreedom(const KvFormat& format, const Profile& profile,
                                  const EncodedRows& rows, int64_t first_row,
                                  std::span<const double> values);

// Code, scale and bias of the same rows as numbers, per row [codes head_dim][scales groups][biases
// groups]. Precondition: the format has a grid.
std::vector<double> CodesAsNumbers(const KvFormat& format, const EncodedRows& rows,
                                   int64_t first_row, int64_t row_count);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_CODEC_H_
