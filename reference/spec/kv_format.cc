#include "reference/spec/kv_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

constexpr std::array<int, 6> kAffineBits = {2, 3, 4, 5, 6, 8};
constexpr std::array<int, 3> kAffineGroups = {32, 64, 128};
constexpr std::array<DType, 3> kScaleTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr std::string_view kNames = "f64, f32, f16, bf16, f8e4m3fn, f8e5m2, affine";
constexpr std::array<DType, 6> kPlainTypes = {DType::kFloat64,      DType::kFloat32,
                                              DType::kFloat16,      DType::kBFloat16,
                                              DType::kFloat8E4M3FN, DType::kFloat8E5M2};

template <typename Range, typename T>
bool Contains(const Range& range, const T& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

// has_scale_type: null where the text must name it.
AffineFormat ParseAffine(Piece piece, const std::vector<Piece>& parts, bool* has_scale_type) {
  const bool named = parts.size() == 4;
  if (!named && !(parts.size() == 3 && has_scale_type != nullptr)) {
    piece.Refuse("an affine format is written affine:BITS:gGROUP:SCALE_TYPE, as affine:4:g64:bf16");
  }
  AffineFormat format;
  format.bits = static_cast<int>(ParseInt(parts[1], 0, 64));
  if (!Contains(kAffineBits, format.bits)) parts[1].Refuse("affine bits are 2, 3, 4, 5, 6 or 8");
  if (parts[2].text.substr(0, 1) != "g") parts[2].Refuse("a group is written g32, g64 or g128");
  format.group_size =
      static_cast<int>(ParseInt({parts[2].text.substr(1), parts[2].whole}, 0, 1 << 20));
  if (!Contains(kAffineGroups, format.group_size)) {
    parts[2].Refuse("affine groups are g32, g64 or g128");
  }
  if (has_scale_type != nullptr) *has_scale_type = named;
  if (!named) return format;
  const auto scale = ParseDType(parts[3].text);
  if (!scale || !Contains(kScaleTypes, *scale)) {
    parts[3].Refuse("affine scales are f32, f16 or bf16");
  }
  format.scale_dtype = *scale;
  return format;
}

}  // namespace

std::string Print(const KvFormat& format) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) {
    return std::string(ShortName(plain->dtype));
  }
  const auto& affine = std::get<AffineFormat>(format);
  return fmt::format("affine:{}:g{}:{}", affine.bits, affine.group_size,
                     ShortName(affine.scale_dtype));
}

KvFormat ParseKvFormat(Piece piece) { return ParseKvFormat(piece, nullptr); }

KvFormat ParseKvFormat(Piece piece, bool* has_scale_type) {
  const std::vector<Piece> parts = Split(piece, ':');
  if (parts[0].text == "affine") return ParseAffine(piece, parts, has_scale_type);
  if (has_scale_type != nullptr) *has_scale_type = true;
  const auto dtype = ParseDType(parts[0].text);
  if (parts.size() != 1 || !dtype || !Contains(kPlainTypes, *dtype)) {
    piece.Refuse(
        fmt::format("'{}' is not a format{}; formats: f64, f32, f16, bf16, f8e4m3fn, f8e5m2, "
                    "affine:BITS:gGROUP:SCALE_TYPE",
                    piece.text, DidYouMean(parts[0].text, kNames)));
  }
  return PlainFormat{*dtype};
}

bool IsPlain(const KvFormat& format) { return std::holds_alternative<PlainFormat>(format); }

DType RowDType(const KvFormat& format) {
  if (const auto* plain = std::get_if<PlainFormat>(&format)) return plain->dtype;
  return std::get<AffineFormat>(format).scale_dtype;
}

void CheckHeadDim(const KvFormat& format, int64_t head_dim, const std::string& context) {
  const auto* affine = std::get_if<AffineFormat>(&format);
  const bool exists = affine == nullptr ? Contains(kPlainTypes, std::get<PlainFormat>(format).dtype)
                                        : Contains(kAffineBits, affine->bits) &&
                                              Contains(kAffineGroups, affine->group_size) &&
                                              Contains(kScaleTypes, affine->scale_dtype);
  if (!exists) {
    throw Error(ErrorCode::kIllegalCase, fmt::format("'{}' is not a format", Print(format)),
                context);
  }
  if (affine != nullptr && head_dim % affine->group_size != 0) {
    throw Error(ErrorCode::kIllegalCase,
                fmt::format("head_dim {} is not a multiple of the group {} of {}; choose a smaller "
                            "group or a plain format",
                            head_dim, affine->group_size, Print(format)),
                context);
  }
}

std::vector<KvFormat> AllKvFormats() {
  std::vector<KvFormat> formats;
  for (DType dtype : kPlainTypes) formats.push_back(PlainFormat{dtype});
  for (int bits : kAffineBits) {
    for (int group : kAffineGroups) {
      for (DType scale : kScaleTypes) formats.push_back(AffineFormat{bits, group, scale});
    }
  }
  return formats;
}

}  // namespace kvcheck
