// Group-wise affine codes: c in 0..2^bits - 1 means c * scale + bias, with one scale and one bias
// per group of consecutive channels.
// Text: affine:BITS:gGROUP:SCALE_TYPE ("affine:4:g64:bf16").

#ifndef REFERENCE_SPEC_AFFINE_FORMAT_H_
#define REFERENCE_SPEC_AFFINE_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Planes: `codes`, one LSB-first bit stream of little-endian u32 words per row, without padding;
// `scales` and `biases` in scale_dtype, one of each per group.
struct AffineFormat {
  int bits = 4;                         // 2, 3, 4, 5, 6, 8
  int group_size = 64;                  // 32, 64, 128
  DType scale_dtype = DType::kFloat32;  // f32, f16 or bf16; also the type of encoded rows
  bool operator==(const AffineFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "affine:BITS:gGROUP:SCALE_TYPE"; }
  static std::string_view Names() { return "affine"; }
  static std::optional<AffineFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                           bool* has_row_type);
  static std::vector<AffineFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return group_size; }
  DType RowType() const { return scale_dtype; }
  DType RangeType() const { return scale_dtype; }
  AffineFormat WithRowType(DType type) const { return {bits, group_size, type}; }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return CodeGrid{0, (int64_t{1} << bits) - 1, group_size}; }
  // Product and sum of f32 scales and biases are rounded once or twice.
  bool MayBeRotated() const { return scale_dtype != DType::kFloat32; }
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kDecode || choice == CodecChoice::kEncode;
  }
  int64_t Rank() const;
  std::vector<AffineFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_AFFINE_FORMAT_H_
