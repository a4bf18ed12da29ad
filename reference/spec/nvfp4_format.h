// NVFP4: blocks of 16 channels, elements e2m1, which share one scale e4m3; one global scale for the
// whole tensor. A value is element * scale * global scale.
// Text: nvfp4:TYPE ("nvfp4:bf16"), whose global scale is 1; nvfp4:xSCALE:TYPE
// ("nvfp4:x0.011:bf16"); nvfp4:swizzled[:xSCALE]:TYPE, whose scales have the order of V on SM100.
//
// The global scale is a number of the text, not a plane: a cache is made with it, before there are
// data, it is one f32 of a layer, and what is stored under another one means other numbers. It is
// the factor of decoding: of the two conventions to make it from a tensor's largest magnitude it is
// amax / 448 or amax / (448 * 6); APIs that take the factor of encoding take its reciprocal.

#ifndef REFERENCE_SPEC_NVFP4_FORMAT_H_
#define REFERENCE_SPEC_NVFP4_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

// Planes, of bytes: `codes`, two elements a byte, the lower channel in the low half; `scales`, one
// a block, channel after channel. Swizzled: a stored row is four tokens of S blocks each, one after
// the other, whose codes stay in order; the scale of token t and block s is byte
// s / (S / 4) * S + s % (S / 4) * 4 + t of the row's 4 S.
struct Nvfp4Format {
  float global_scale = 1;             // from 2^-100 to 2^100
  DType row_dtype = DType::kFloat32;  // f32, f16 or bf16: type of encoded and decoded rows
  bool swizzled = false;
  bool operator==(const Nvfp4Format&) const = default;

  static constexpr int64_t kBlock = 16;
  static constexpr int64_t kSwizzledTokens = 4;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "nvfp4[:swizzled][:xGLOBAL_SCALE]:TYPE"; }
  static std::string_view Names() { return "nvfp4"; }
  static std::optional<Nvfp4Format> Parse(Piece piece, const std::vector<Piece>& parts,
                                          bool* has_row_type);
  // One global scale stands for all others.
  static std::vector<Nvfp4Format> All();
  bool Exists() const;  // with any global scale
  std::string Text() const;
  std::string Kind() const { return swizzled ? "nvfp4:swizzled" : "nvfp4"; }
  // Swizzled: of four tokens, whose blocks are whole quarters.
  int64_t Block() const { return swizzled ? kBlock * kSwizzledTokens * kSwizzledTokens : kBlock; }
  // Tokens of a stored row.
  int64_t TokenGroup() const { return swizzled ? kSwizzledTokens : 1; }
  // What a cache keeps of one token: no page.
  Nvfp4Format OfToken() const { return {global_scale, row_dtype}; }
  DType RowType() const { return row_dtype; }
  DType RangeType() const { return DType::kFloat8E4M3FN; }
  Nvfp4Format WithRowType(DType type) const { return {global_scale, type, swizzled}; }
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return CodeGrid{-6, 6, kBlock}; }
  // With a global scale decoding rounds twice.
  bool MayBeRotated() const { return global_scale == 1 && !swizzled; }
  // Without a global scale every value is one of the row type.
  bool Leaves(CodecChoice choice) const {
    return choice == CodecChoice::kNvfp4Encode ||
           (choice == CodecChoice::kDecode && global_scale != 1);
  }
  int64_t Rank() const;
  std::vector<Nvfp4Format> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_NVFP4_FORMAT_H_
