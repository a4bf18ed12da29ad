// What RowCodec and attention need of a family of formats: one row of a table by alternatives of
// KvFormat. A family has a file of its own, which defines its row; one without a row does not
// compile. Its constants stand there a second time, on purpose (row_codec.h).

#ifndef OPTIMIZED_FORMATS_ROW_FAMILY_H_
#define OPTIMIZED_FORMATS_ROW_FAMILY_H_

#include <cstddef>
#include <cstdint>

#include "optimized/formats/row_kernels.h"
#include "reference/spec/kv_format.h"

namespace kvcheck::optimized {

// Of families that rotate rows: what is read in the basis in which rows are stored, y = R x.
// Coordinates are in the order of the codes.
struct BasisRows {
  void (*decode)(const KvFormat& format, const DecodeCall& call);      // y, to f32
  int (*roundings)(const KvFormat& format);                            // of a value of decode
  void (*rotate)(const KvFormat& format, int64_t dim, float* x);       // x to R x, one vector
  void (*rotate_back)(const KvFormat& format, int64_t dim, float* y);  // y to R^T y
};

// Formats given are of the family.
struct RowFamily {
  int64_t (*block)(const KvFormat& format);                // channels; vectors have whole blocks
  RowBytes (*bytes)(const KvFormat& format, int64_t dim);  // of a vector
  void (*encode)(const KvFormat& format, const EncodeCall& call);
  void (*decode)(const KvFormat& format, const DecodeCall& call);  // to f32
  void (*decode_to_row_type)(const KvFormat& format, const DecodeCall& call);
  // Roundings of a value that decode gives, where no kernel reads the rows; null: it is exact.
  int (*roundings)(const KvFormat& format) = nullptr;
  const BasisRows* basis = nullptr;  // null: rows are not rotated
};

const RowFamily& RowFamilyOf(const PlainFormat& format);
const RowFamily& RowFamilyOf(const AffineFormat& format);
const RowFamily& RowFamilyOf(const Q8_0Format& format);
const RowFamily& RowFamilyOf(const Q4_0Format& format);
const RowFamily& RowFamilyOf(const Q4_1Format& format);
const RowFamily& RowFamilyOf(const Q5_0Format& format);
const RowFamily& RowFamilyOf(const Q5_1Format& format);
const RowFamily& RowFamilyOf(const Iq4NlFormat& format);
const RowFamily& RowFamilyOf(const MxFormat& format);
const RowFamily& RowFamilyOf(const Nvfp4Format& format);
const RowFamily& RowFamilyOf(const SplitTurboquantFormat& format);
const RowFamily& RowFamilyOf(const TurboquantProdFormat& format);
const RowFamily& RowFamilyOf(const TurboquantFormat& format);
const RowFamily& RowFamilyOf(const RotatedFormat& format);
const RowFamily& RowFamilyOf(const ScaledFormat& format);
const RowFamily& RowFamilyOf(const Int4zpFormat& format);
const RowFamily& RowFamilyOf(const UniformFormat& format);
const RowFamily& RowFamilyOf(const ChannelFormat& format);
const RowFamily& RowFamilyOf(const ResidualAffineFormat& format);

// Of another name than the overloads, or a family without one would convert to KvFormat and
// recurse.
inline const RowFamily& FamilyOf(const KvFormat& format) {
  return std::visit([](const auto& family) -> const RowFamily& { return RowFamilyOf(family); },
                    format);
}

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_FORMATS_ROW_FAMILY_H_
