// Rows that are rotated by a normalized Hadamard transform before another format stores them, so
// that outlier channels are spread over their neighbours (QuaRot; llama.cpp rotates quantized K and
// V by default, and Q, and the output back).
// Text: hadamard:SIZE:FORMAT ("hadamard:64:q4_0", "hadamard:128:affine:4:g64:bf16").

#ifndef REFERENCE_SPEC_ROTATED_FORMAT_H_
#define REFERENCE_SPEC_ROTATED_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/spec/affine_format.h"
#include "reference/spec/channel_format.h"
#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/int4zp_format.h"
#include "reference/spec/iq4_nl_format.h"
#include "reference/spec/mx_format.h"
#include "reference/spec/nvfp4_format.h"
#include "reference/spec/plain_format.h"
#include "reference/spec/q4_0_format.h"
#include "reference/spec/q4_1_format.h"
#include "reference/spec/q5_0_format.h"
#include "reference/spec/q5_1_format.h"
#include "reference/spec/q8_0_format.h"
#include "reference/spec/residual_affine_format.h"
#include "reference/spec/scaled_format.h"
#include "reference/spec/split_turboquant_format.h"
#include "reference/spec/text.h"
#include "reference/spec/turboquant_format.h"
#include "reference/spec/turboquant_prod_format.h"
#include "reference/spec/uniform_format.h"

namespace kvcheck {

// Every family but the rotation itself.
using UnrotatedFormat =
    std::variant<PlainFormat, AffineFormat, Q8_0Format, Q4_0Format, Q4_1Format, Q5_0Format,
                 Q5_1Format, Iq4NlFormat, MxFormat, Nvfp4Format, SplitTurboquantFormat,
                 TurboquantProdFormat, TurboquantFormat, ScaledFormat, Int4zpFormat, UniformFormat,
                 ChannelFormat, ResidualAffineFormat>;

// Planes are those of `stored`. A row is rotated in blocks of `size` consecutive channels.
struct RotatedFormat {
  int64_t size = 64;  // a power of two, 2 to 512
  UnrotatedFormat stored = Q4_0Format{};
  bool operator==(const RotatedFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return "hadamard:SIZE:FORMAT"; }
  static std::string_view Names() { return "hadamard"; }
  static std::optional<RotatedFormat> Parse(Piece piece, const std::vector<Piece>& parts,
                                            bool* has_row_type);
  // One of each kind, of size 64; every size that is a power of two from 2 to 512 exists.
  static std::vector<RotatedFormat> All();
  bool Exists() const;
  std::string Text() const;
  // As kv_format.h has them.
  int64_t Heads() const;
  RotatedFormat OfHead(int64_t head) const;
  std::string Kind() const;
  int64_t Block() const;
  DType RowType() const;
  DType RangeType() const;
  RotatedFormat WithRowType(DType type) const;
  Planes PlanesOf(int64_t head_dim) const;
  std::optional<CodeGrid> Grid() const { return std::nullopt; }
  bool MayBeRotated() const { return false; }
  bool Leaves(CodecChoice choice) const;
  int64_t Rank() const;
  std::vector<RotatedFormat> Simpler() const;
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_ROTATED_FORMAT_H_
