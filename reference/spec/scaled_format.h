// Codes of 8 bits times one f32 scale: fp8 of four types, or signed integers. The scale is that of
// the vector (of a token and a head), found from its largest magnitude and stored beside the codes
// or after them, or one number for the whole tensor, which is part of the text.
//
// Texts: fp8:CODE:PLACE:TYPE and int8:PLACE:TYPE ("fp8:e4m3fn:token:bf16", "int8:s0.05:f16"). CODE:
// e4m3fn, e5m2 (OCP), e4m3fnuz, e5m2fnuz (AMD: no infinity, one NaN, no -0, one more exponent).
// PLACE: token, the scale in a plane of its own; inline, the scale in the 4 bytes after the codes,
// little endian, as the cells of head_size + 4 bytes of vLLM; sNUMBER, of the tensor;
// hNUMBER/NUMBER..., of the heads, as many as K or V has. TYPE: of rows.

#ifndef REFERENCE_SPEC_SCALED_FORMAT_H_
#define REFERENCE_SPEC_SCALED_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

enum class ScaledCode : uint8_t { kE4M3FN, kE5M2, kE4M3FNUZ, kE5M2FNUZ, kInt8 };
enum class ScalePlace : uint8_t { kToken, kInline, kTensor, kHeads };

inline constexpr size_t kMostScaledHeads = 16;

// Channels of whole cells: the scale of an inline cell stays aligned.
inline constexpr int64_t kScaledBlock = 4;

struct ScaledFormat {
  ScaledCode code = ScaledCode::kE4M3FN;
  ScalePlace place = ScalePlace::kToken;
  float scale = 0;  // of kTensor alone; 2^-64 to 2^64
  DType row_type = DType::kBFloat16;
  std::array<float, kMostScaledHeads> head_scales{};  // of kHeads alone, the first `heads`
  int64_t heads = 0;
  bool operator==(const ScaledFormat&) const = default;

  bool IsFp8() const { return code != ScaledCode::kInt8; }
  bool IsDynamic() const { return place == ScalePlace::kToken || place == ScalePlace::kInline; }
  // Heads whose scales the text names; 1: the same for all.
  int64_t Heads() const { return place == ScalePlace::kHeads ? heads : 1; }
  // How the rows of one head are stored.
  ScaledFormat OfHead(int64_t head) const;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "fp8:CODE:PLACE:TYPE, int8:PLACE:TYPE"; }
  static std::string_view Names() { return "fp8, int8"; }
  static std::optional<ScaledFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                           bool* has_row_type);
  static std::vector<ScaledFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return kScaledBlock; }
  DType RowType() const { return row_type; }
  DType RangeType() const;
  ScaledFormat WithRowType(DType type) const {
    ScaledFormat other = *this;
    other.row_type = type;
    return other;
  }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }  // a group is a whole row
  bool MayBeRotated() const { return true; }
  bool Leaves(CodecChoice choice) const {
    switch (choice) {
      case CodecChoice::kDecode:
        return true;
      case CodecChoice::kTokenEncode:
        return IsDynamic();
      case CodecChoice::kFp8Overflow:
        return IsFp8() && !IsDynamic();
      default:
        return false;
    }
  }
  int64_t Rank() const;
  std::vector<ScaledFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_SCALED_FORMAT_H_
