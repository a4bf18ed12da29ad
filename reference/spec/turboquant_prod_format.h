// TurboQuant's inner-product codec ("prod"): bits - 1 of the MSE codec, and one bit a coordinate of
// what they leave, the sign of its projection by a matrix of normal deviates (QJL), so that <q, x>
// is estimated without bias over projections. With one bit there are no codes, only signs.
// Text: turboquant:prod:BITS:gGROUP[:CODEBOOK][:sSEED]:ROW_TYPE
// ("turboquant:prod:4:g128:mlx_vlm:bf16").

#ifndef REFERENCE_SPEC_TURBOQUANT_PROD_FORMAT_H_
#define REFERENCE_SPEC_TURBOQUANT_PROD_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"
#include "reference/spec/turboquant_format.h"

namespace kvcheck {

// Planes: `codes`, the u32 words of the codes of all groups of a row, as TurboquantFormat has them,
// then those of the signs, a bit for each coordinate of the projection, set where it is not
// negative; `norms` and `residual_norms` in f16, one per group.
struct TurboquantProdFormat {
  int bits = 4;          // 1 to 5, the sign included
  int group_size = 128;  // 32, 64, 128, 256, 512
  TurboquantCodebook codebook = TurboquantCodebook::kExact;
  int64_t seed = 0;  // of the rotation, 0 to 2^31 - 1; the projection has the one after it
  DType row_type = DType::kFloat32;
  bool operator==(const TurboquantProdFormat&) const = default;

  // The format of the codes; nullopt where there are none.
  std::optional<TurboquantFormat> Codes() const {
    if (bits == 1) return std::nullopt;
    return TurboquantFormat{bits - 1, group_size, codebook, seed, row_type, {}};
  }

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() {
    return "turboquant:prod:BITS:gGROUP[:CODEBOOK][:sSEED]:ROW_TYPE";
  }
  static std::string_view Names() { return "turboquant"; }
  // nullopt where the second part is not `prod`.
  static std::optional<TurboquantProdFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                                   bool* has_row_type);
  static std::vector<TurboquantProdFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return group_size; }
  DType RowType() const { return row_type; }
  // As of TurboquantFormat.
  DType RangeType() const { return DType::kFloat8E4M3FN; }
  TurboquantProdFormat WithRowType(DType type) const {
    return {bits, group_size, codebook, seed, type};
  }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }  // rotates itself
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kDecode && row_type != DType::kFloat32;
  }
  int64_t Rank() const;
  std::vector<TurboquantProdFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_TURBOQUANT_PROD_FORMAT_H_
