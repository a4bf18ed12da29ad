// Uniform codes with a scale and a minimum in f16 per vector (of a token and a head), as vLLM's
// turboquant cache types store V: code c means c S + Z. Codes are joined from the lowest bit on,
// eight in BITS bytes.
//
// Text: uniform:BITS:PLACE:TYPE ("uniform:4:token:bf16"). BITS: 3 or 4. PLACE: token, S and Z in
// planes of their own; inline, in the 4 bytes after the codes, S first, little endian. TYPE: of
// rows.

#ifndef REFERENCE_SPEC_UNIFORM_FORMAT_H_
#define REFERENCE_SPEC_UNIFORM_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Channels whose codes are whole bytes.
inline constexpr int64_t kUniformBlock = 8;

struct UniformFormat {
  int bits = 4;
  bool is_inline = false;
  DType row_type = DType::kBFloat16;
  bool operator==(const UniformFormat&) const = default;

  int64_t CodeBytes(int64_t head_dim) const { return head_dim * bits / 8; }

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "uniform:BITS:PLACE:TYPE"; }
  static std::string_view Names() { return "uniform"; }
  static std::optional<UniformFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                            bool* has_row_type);
  static std::vector<UniformFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return kUniformBlock; }
  DType RowType() const { return row_type; }
  DType RangeType() const { return DType::kFloat16; }  // of Z; S is at most 2/7 of it
  UniformFormat WithRowType(DType type) const { return {bits, is_inline, type}; }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }  // a group is a whole row
  bool MayBeRotated() const { return true; }
  bool Leaves(CodecChoice choice) const { return choice == CodecChoice::kDecode; }
  int64_t Rank() const;
  std::vector<UniformFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_UNIFORM_FORMAT_H_
