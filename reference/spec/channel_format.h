// Codes per channel (KIVI's keys): groups run along tokens, one scale and one zero per channel and
// group, so that a code is no function of one vector. The newest tokens, of which there is no whole
// group yet, are kept in the row type: the residual.
// Text: channel:BITS:gTOKENS[:rRESIDUAL]:ROW_TYPE ("channel:2:g32:r128:f16").

#ifndef REFERENCE_SPEC_CHANNEL_FORMAT_H_
#define REFERENCE_SPEC_CHANNEL_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// A stored row is a group of tokens: `group` vectors of D channels, token after token. Planes:
// `codes`, one LSB-first bit stream of little-endian u32 words in that order; `scales` and `zeros`
// (D), one of each per channel. A code means c * scale + zero, of some writers (c - zero) * scale.
struct ChannelFormat {
  int bits = 4;                      // 2, 4, 8
  int64_t group = 32;                // tokens: a power of two, 1 to 1024
  int64_t residual = 0;              // a multiple of group; 0: group
  DType row_type = DType::kFloat32;  // of rows, scales, zeros and residual: f32, f16, bf16
  bool operator==(const ChannelFormat&) const = default;

  // Tokens of a row are coded as often as this many are there that are not.
  int64_t Residual() const { return residual == 0 ? group : residual; }
  // How a cache shows one token: the group of one, whose scales and zeros are those of the token's
  // group. A token of the residual has scale and code 0, and is its zeros.
  ChannelFormat OfToken() const { return {bits, 1, 0, row_type}; }

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "channel:BITS:gTOKENS[:rRESIDUAL]:ROW_TYPE"; }
  static std::string_view Names() { return "channel"; }
  static std::optional<ChannelFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                            bool* has_row_type);
  // Groups of 8, 32 and 128 tokens with their own residual; every power of two exists.
  static std::vector<ChannelFormat> All();
  bool Exists() const;
  std::string Text() const;
  std::string Kind() const;
  // Whole groups whose codes are whole words.
  int64_t Block() const;
  // Tokens of a stored row.
  int64_t TokenGroup() const { return group; }
  DType RowType() const { return row_type; }
  DType RangeType() const;
  ChannelFormat WithRowType(DType type) const { return {bits, group, residual, type}; }
  Planes PlanesOf(int64_t row_elements) const;
  // Groups are no consecutive channels.
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kDecode || choice == CodecChoice::kChannel;
  }
  int64_t Rank() const;
  std::vector<ChannelFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_CHANNEL_FORMAT_H_
