// Rows stored as the elements themselves: f64, f32, f16, bf16 and the two fp8 types with scale 1.
// Text: the short name of the type ("bf16", "f8e4m3fn").

#ifndef REFERENCE_SPEC_PLAIN_FORMAT_H_
#define REFERENCE_SPEC_PLAIN_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Types from simple to odd, for shrinking: f32 is 0.
int64_t RankOf(DType type);

struct PlainFormat {
  DType dtype = DType::kFloat32;
  bool operator==(const PlainFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "f64, f32, f16, bf16, f8e4m3fn, f8e5m2"; }
  static std::string_view Names() { return "f64, f32, f16, bf16, f8e4m3fn, f8e5m2"; }
  static std::optional<PlainFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                          bool* has_row_type);
  static std::vector<PlainFormat> All();
  bool Exists() const;
  std::string Text() const { return std::string(ShortName(dtype)); }
  std::string Kind() const;
  int64_t Block() const { return 1; }
  DType RowType() const { return dtype; }
  DType RangeType() const { return dtype; }
  PlainFormat WithRowType(DType type) const { return {type}; }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kFp8Overflow && SizeInBytes(dtype) == 1;
  }
  int64_t Rank() const { return RankOf(dtype); }
  std::vector<PlainFormat> Simpler() const { return {}; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_PLAIN_FORMAT_H_
