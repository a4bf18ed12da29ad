// TurboQuant with half a bit: of every group of channels one half, the channels of large magnitude,
// is stored with one bit more than the other, each half as a TurboQuant group of its own with a
// norm, a rotation and centroids of its dimension (mlx-vlm's split codec: key_bits=3.5). Which
// channels those are is data; mlx-vlm takes those of the largest mean |x| of the first tokens that
// it ever stores.
// Text: turboquant:BITS.5:gGROUP[:CODEBOOK]:hHIGH[:sSEED]:ROW_TYPE
// ("turboquant:3.5:g64:mlx_vlm:ha53cc35affff0000:f16").

#ifndef REFERENCE_SPEC_SPLIT_TURBOQUANT_FORMAT_H_
#define REFERENCE_SPEC_SPLIT_TURBOQUANT_FORMAT_H_

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

// Planes as those of TurboquantFormat: `codes`, the words of the low halves of all groups of a row,
// then those of the high halves; `norms` likewise.
struct SplitTurboquantFormat {
  // Of the signs of the high half, beside those of the low one.
  static constexpr int64_t kHighSeed = 97;

  int bits = 3;          // of the low half, 1 to 4; the high one has one more
  int group_size = 128;  // both halves: 64, 128, 256, 512
  TurboquantCodebook codebook = TurboquantCodebook::kExact;
  int64_t seed = 0;  // of the low half's signs, 0 to 2^31 - 98
  DType row_type = DType::kFloat32;
  ChannelBits high{};  // set for the channels of the high half, half of the group
  bool operator==(const SplitTurboquantFormat&) const = default;

  // What is stored of a half, as if its channels were a vector of their own, in ascending order.
  TurboquantFormat Low() const { return {bits, group_size / 2, codebook, seed, row_type, {}}; }
  TurboquantFormat High() const {
    return {bits + 1, group_size / 2, codebook, seed + kHighSeed, row_type, {}};
  }

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() {
    return "turboquant:BITS.5:gGROUP[:CODEBOOK]:hHIGH[:sSEED]:ROW_TYPE";
  }
  static std::string_view Names() { return "turboquant"; }
  // nullopt where the bits are whole.
  static std::optional<SplitTurboquantFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                                    bool* has_row_type);
  // Some of each kind.
  static std::vector<SplitTurboquantFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  int64_t Block() const { return group_size; }
  DType RowType() const { return row_type; }
  DType RangeType() const { return Low().RangeType(); }
  SplitTurboquantFormat WithRowType(DType type) const {
    return {bits, group_size, codebook, seed, type, high};
  }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }  // rotates itself
  bool Leaves(CodecChoice choice) const { return Low().Leaves(choice); }
  int64_t Rank() const;
  std::vector<SplitTurboquantFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_SPLIT_TURBOQUANT_FORMAT_H_
