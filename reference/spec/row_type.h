// The type of rows as the last part of a coded format's text: f32, f16 or bf16.

#ifndef REFERENCE_SPEC_ROW_TYPE_H_
#define REFERENCE_SPEC_ROW_TYPE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/text.h"

namespace kvcheck {

inline constexpr std::array<DType, 3> kRowTypes = {DType::kFloat32, DType::kFloat16,
                                                   DType::kBFloat16};

inline bool IsRowType(DType type) {
  return std::find(kRowTypes.begin(), kRowTypes.end(), type) != kRowTypes.end();
}

// parts[taken], after which nothing may follow. has_row_type: as FormatFamily's Parse has it; where
// the text ends before the type, f32. written: how the format is written, for messages.
inline DType ParseRowType(Piece piece, const std::vector<Piece>& parts, size_t taken,
                          std::string_view written, bool* has_row_type) {
  const bool is_named = parts.size() == taken + 1;
  if (!is_named && !(parts.size() == taken && has_row_type != nullptr)) {
    piece.Refuse(written);
  }
  if (has_row_type != nullptr) *has_row_type = is_named;
  if (!is_named) return DType::kFloat32;
  const auto type = ParseDType(parts[taken].text);
  if (!type || !IsRowType(*type)) parts[taken].Refuse("rows are f32, f16 or bf16");
  return *type;
}

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_ROW_TYPE_H_
