// The kernels of RowCodec, compiled once for every instruction set and dispatched at run time
// (Highway).

#ifndef OPTIMIZED_FORMATS_ROW_KERNELS_H_
#define OPTIMIZED_FORMATS_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "optimized/formats/row_codec.h"
#include "reference/spec/dtype.h"
#include "reference/spec/kv_format.h"
#include "reference/spec/profile.h"

namespace kvcheck::optimized {

struct EncodeCall {
  DType from;
  int64_t dim;
  const std::byte* x;
  int64_t x_stride;
  int64_t count;
  StoredRows out;
  float* values;                                  // room for one vector
  AffineEncoder affine = AffineEncoder::kMlxCpu;  // of affine rows: as RowCodec::Start
};
// from and dtype differ.
void EncodePlainRows(DType dtype, const EncodeCall& call);
void EncodeAffineRows(const AffineFormat& format, const EncodeCall& call);
// The same planes as KIVI writes them (encode=kivi).
void EncodeAffineRowsFromMinimum(const AffineFormat& format, const EncodeCall& call);

struct DecodeCall {
  int64_t dim;
  StoredRowsView rows;
  int64_t count;
  std::byte* out;  // (count, dim), contiguous
};
// To f32.
void DecodePlainRows(DType dtype, const DecodeCall& call);
// to: f32, or the type of rows.
void DecodeAffineRows(const AffineFormat& format, DType to, const DecodeCall& call);

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_ROW_KERNELS_H_
