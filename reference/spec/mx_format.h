// Microscaling (OCP MX 1.0): blocks of channels whose elements are small floats and which share one
// scale, a power of two. A value is element * 2^(scale byte - 127).
// Text: mxfp4:TYPE, mxfp8:e4m3:TYPE, mxfp8:e5m2:TYPE ("mxfp4:bf16"), blocks of 32 channels;
// mxfp4:g16:TYPE, blocks of 16, the record that SGLang calls fp4_e2m1.

#ifndef REFERENCE_SPEC_MX_FORMAT_H_
#define REFERENCE_SPEC_MX_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Planes, of bytes: `codes`, elements of 4 bits two a byte, the lower channel in the low half;
// `scales`, e8m0, one a block.
struct MxFormat {
  DType element = DType::kFloat4E2M1FN;  // or kFloat8E4M3FN, kFloat8E5M2
  int block = 32;                        // of e2m1 also 16
  DType row_dtype = DType::kFloat32;     // f32, f16 or bf16: type of encoded and decoded rows
  bool operator==(const MxFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "mxfp4[:g16]:TYPE, mxfp8:e4m3|e5m2:TYPE"; }
  static std::string_view Names() { return "mxfp4, mxfp8"; }
  static std::optional<MxFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                       bool* has_row_type);
  static std::vector<MxFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const { return element == DType::kFloat4E2M1FN ? "mxfp4" : "mxfp8"; }
  int64_t Block() const { return block; }
  DType RowType() const { return row_dtype; }
  // Of a maximum that a writer rounds up, the value may be twice as large.
  DType RangeType() const {
    return row_dtype == DType::kFloat16 ? DType::kFloat8E4M3FN : DType::kFloat16;
  }
  MxFormat WithRowType(DType type) const { return {element, block, type}; }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const;
  bool MayBeRotated() const { return true; }
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kDecode || choice == CodecChoice::kMxEncode;
  }
  int64_t Rank() const;
  std::vector<MxFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_MX_FORMAT_H_
