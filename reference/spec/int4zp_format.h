// Nibbles with a scale and a zero point per vector (of a token and a head), as vLLM's
// int4_per_token_head: c in 0..15 means (c - z) s. The low 4 bits of the stored f32 are the zero
// point z; the scale s is the same f32 with these bits cleared. Channel 2 i is the low nibble of
// byte i, channel 2 i + 1 the high one.
//
// Text: int4zp:PLACE:TYPE ("int4zp:token:bf16"). PLACE: token, the f32 in a plane of its own;
// inline, in the 4 bytes after the codes, little endian. TYPE: of rows.
//
// The rotation before it (H D x) is none of the format: rows are what it is given.

#ifndef REFERENCE_SPEC_INT4ZP_FORMAT_H_
#define REFERENCE_SPEC_INT4ZP_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Channels of whole words: the f32 of an inline cell stays aligned.
inline constexpr int64_t kInt4zpBlock = 8;

struct Int4zpFormat {
  bool is_inline = false;
  DType row_type = DType::kBFloat16;
  bool operator==(const Int4zpFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "int4zp:PLACE:TYPE"; }
  static std::string_view Names() { return "int4zp"; }
  static std::optional<Int4zpFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                           bool* has_row_type);
  static std::vector<Int4zpFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const { return is_inline ? "int4zp:inline" : "int4zp:token"; }
  int64_t Block() const { return kInt4zpBlock; }
  DType RowType() const { return row_type; }
  DType RangeType() const { return DType::kFloat16; }  // the range of a row is twice its largest
  Int4zpFormat WithRowType(DType type) const { return {is_inline, type}; }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }  // a group is a whole row
  bool MayBeRotated() const { return true; }
  bool Leaves(CodecChoice) const { return false; }  // values are exact in f32
  int64_t Rank() const;
  std::vector<Int4zpFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_INT4ZP_FORMAT_H_
