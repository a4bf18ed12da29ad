// How the K or V vector of one token and one head is stored. Kinds: plain storage types (fp8
// without a scale included) and affine group quantization. The variant is the seam for more
// formats (llama.cpp blocks, MX, scaled fp8, TurboQuant): a new alternative, its text here and its
// arithmetic in reference/formats.
//
// Text: a short type name ("bf16", "f8e4m3fn") or "affine:BITS:gGROUP:SCALE_TYPE"
// ("affine:4:g64:bf16").

#ifndef REFERENCE_SPEC_KV_FORMAT_H_
#define REFERENCE_SPEC_KV_FORMAT_H_

#include <string>
#include <variant>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/text.h"

namespace kvcheck {

struct PlainFormat {
  DType dtype = DType::kFloat32;
  bool operator==(const PlainFormat&) const = default;
};

// Group-wise affine codes c in 0..2^bits - 1, value c * scale + bias; one scale and one bias, in
// scale_dtype, per group of consecutive channels. Packed as one LSB-first bit stream of
// little-endian u32 words per row, without padding.
struct AffineFormat {
  int bits = 4;         // 2, 3, 4, 5, 6, 8
  int group_size = 64;  // 32, 64, 128
  DType scale_dtype = DType::kFloat32;  // f32, f16 or bf16; also the type of encoded rows
  bool operator==(const AffineFormat&) const = default;
};

using KvFormat = std::variant<PlainFormat, AffineFormat>;

std::string Print(const KvFormat& format);
// Errors: kParse with the column of what is not a format.
KvFormat ParseKvFormat(Piece piece);
// The same, and an affine format without its scale type ("affine:4:g64"): *has_scale_type says
// whether the text names one; else scale_dtype is f32.
KvFormat ParseKvFormat(Piece piece, bool* has_scale_type);

bool IsPlain(const KvFormat& format);
// The type in which a decoded row is given: the plain type, or the scale type.
DType RowDType(const KvFormat& format);
// Errors: kIllegalCase when head_dim is not a multiple of the format's group, and for a format built
// in code that is none of AllKvFormats().
void CheckHeadDim(const KvFormat& format, int64_t head_dim, const std::string& context);

// Every format of this build, for coverage lists and tests.
std::vector<KvFormat> AllKvFormats();

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_KV_FORMAT_H_
