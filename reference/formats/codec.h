// One entry for every storage format: rows to stored tensors and back. What a stored row means
// depends on the profile only where the format leaves a choice: the encoder and the decoder's
// roundings of affine codes, and overflow of fp8.

#ifndef REFERENCE_FORMATS_CODEC_H_
#define REFERENCE_FORMATS_CODEC_H_

#include <span>
#include <string>
#include <vector>

#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"
#include "reference/spec/tensor.h"

namespace kvcheck {

// The tensors of one set of stored rows, not owned: `codes` alone for a plain format (its values),
// all three for an affine one. Rows are counted over all axes but the last.
struct EncodedRows {
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* biases = nullptr;
  int64_t RowCount() const { return codes->shape.RowCount(); }
};

// The rows of a codec case: "codes", "scales", "biases".
// Errors of both: kMissingData when a tensor is absent, or not of the type of the format, or when
// their row counts or widths contradict each other.
EncodedRows CodecRows(const KvFormat& format, const TensorMap& tensors);
// K or V of an attention case: "k" for a plain format, else "k_codes", "k_scales", "k_biases".
EncodedRows CacheRows(const KvFormat& format, const TensorMap& tensors, const std::string& name);

// Elements of a decoded row.
int64_t RowDim(const KvFormat& format, const EncodedRows& rows);

// x, of any float type with head_dim last, stored: "codes", and "scales" and "biases" for affine
// formats, with the leading axes of x. Affine rows are first rounded to the row type.
// Shapes: x (..., D); codes (..., D bits / 32) u32 or (..., D); scales, biases (..., D / group).
// Errors: kIllegalCase when D is not a multiple of the group.
TensorMap EncodeRows(const KvFormat& format, const Profile& profile, const Tensor& x);

// Values of rows [first_row, first_row + row_count), row-major.
struct DecodedRows {
  std::vector<double> hi;
  std::vector<double> lo;  // what remains of the exact value; empty when nothing does
};

// The stored values under the profile: for decode=exact the real numbers c S + B as unevaluated
// sums hi + lo, else values of the row type. Plain values are exact in any case.
DecodedRows DecodeRows(const KvFormat& format, const Profile& profile, const EncodedRows& rows,
                       int64_t first_row, int64_t row_count);

// The same rows written out in the row type; decode=exact is then rounded once.
std::vector<double> DecodeToRowType(const KvFormat& format, const Profile& profile,
                                    const EncodedRows& rows, int64_t first_row, int64_t row_count);

}  // namespace kvcheck

#endif  // REFERENCE_FORMATS_CODEC_H_
