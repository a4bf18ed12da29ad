// Affine codes with a residual (KIVI's values; transformers' quantized cache): the newest tokens of
// a row are kept in the row type, and what comes out of the residual is coded in groups of
// channels, each token by itself, as KIVI writes it. A format of caches alone: of a row by itself
// nobody knows how new it is. Text: affine:BITS:gGROUP:rRESIDUAL:SCALE_TYPE
// ("affine:2:g32:r128:f16").

#ifndef REFERENCE_SPEC_RESIDUAL_AFFINE_FORMAT_H_
#define REFERENCE_SPEC_RESIDUAL_AFFINE_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/affine_format.h"
#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Rows of it are those that have left the residual, rows of OfToken those that are in it.
// Planes of one token: `codes`, `scales` and `biases` of AffineFormat, and `vectors`, the D
// elements in the row type. Where scale and bias of a group are 0, its elements are those of the
// vector; else a code means c * scale + bias. A token that is coded has the vector 0, one of the
// residual codes, scales and biases 0.
struct ResidualAffineFormat {
  AffineFormat coded = {};
  int64_t residual = 128;  // tokens, 1 to 2^20; 0: OfToken, which no text names
  bool operator==(const ResidualAffineFormat&) const = default;

  // What codes, scales and biases are.
  AffineFormat Coded() const { return coded; }
  int64_t Residual() const { return residual; }
  // How a cache shows one token.
  ResidualAffineFormat OfToken() const { return {coded, 0}; }
  int64_t TokenGroup() const { return 1; }

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "affine:BITS:gGROUP:rRESIDUAL:SCALE_TYPE"; }
  static std::string_view Names() { return "affine"; }
  static std::optional<ResidualAffineFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                                   bool* has_row_type);
  // Codes of 2 and 4 bits, groups of 32 behind 3 tokens and of 64 behind 16; every residual exists.
  static std::vector<ResidualAffineFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return coded.Block(); }
  DType RowType() const { return coded.RowType(); }
  // The range of a group is up to twice its largest magnitude.
  DType RangeType() const {
    return RowType() == DType::kFloat16 ? DType::kFloat8E4M3FN : DType::kFloat16;
  }
  ResidualAffineFormat WithRowType(DType type) const { return {coded.WithRowType(type), residual}; }
  Planes PlanesOf(int64_t head_dim) const;
  // A value may be the vector's.
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }
  // Codes are those of KIVI's writer.
  bool Leaves(CodecChoice choice) const { return choice == CodecChoice::kDecode; }
  int64_t Rank() const { return 10 + coded.Rank() + residual; }
  std::vector<ResidualAffineFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_RESIDUAL_AFFINE_FORMAT_H_
