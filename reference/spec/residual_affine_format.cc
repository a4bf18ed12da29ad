#include "reference/spec/residual_affine_format.h"

#include <fmt/format.h>

#include <utility>

#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

constexpr int64_t kMostResidualTokens = int64_t{1} << 20;  // of a residual
constexpr const char* kResidualWritten =
    "an affine format with a residual is written affine:BITS:gGROUP:rRESIDUAL:SCALE_TYPE, as "
    "affine:2:g32:r128:f16";

}  // namespace

std::optional<ResidualAffineFormat> ResidualAffineFormat::Parse(Piece piece,
                                                                const std::vector<Piece>& parts,
                                                                bool* has_row_type) {
  // Others are of AffineFormat.
  if (parts[0].text != Names() || parts.size() < 4 || parts[3].text.substr(0, 1) != "r") {
    return std::nullopt;
  }
  bool named = false;
  ResidualAffineFormat format;
  const std::vector<Piece> of_codes(parts.begin(), parts.begin() + 3);
  format.coded = *AffineFormat::Parse(piece, of_codes, &named);
  format.residual = ParseInt({parts[3].text.substr(1), parts[3].whole}, 1, kMostResidualTokens);
  const DType type = ParseRowType(piece, parts, 4, kResidualWritten, has_row_type);
  return format.WithRowType(type);
}

std::vector<ResidualAffineFormat> ResidualAffineFormat::All() {
  std::vector<ResidualAffineFormat> formats;
  for (const int bits : {2, 4}) {
    for (const auto& [group, residual] : {std::pair(32, 3), {64, 16}}) {
      for (const DType type : kRowTypes) formats.push_back({{bits, group, type}, residual});
    }
  }
  return formats;
}

bool ResidualAffineFormat::Exists() const {
  return coded.Exists() && residual >= 0 && residual <= kMostResidualTokens;
}

std::string ResidualAffineFormat::Text() const {
  return fmt::format("affine:{}:g{}:r{}:{}", coded.bits, coded.group_size, residual,
                     ShortName(coded.scale_dtype));
}

std::string ResidualAffineFormat::Kind() const { return coded.Kind() + ":r"; }

Planes ResidualAffineFormat::PlanesOf(int64_t head_dim) const {
  Planes planes = coded.PlanesOf(head_dim);
  planes.Add({"vectors", RowType(), "", head_dim});
  return planes;
}

std::vector<ResidualAffineFormat> ResidualAffineFormat::Simpler() const {
  std::vector<ResidualAffineFormat> simpler;
  for (const AffineFormat& format : coded.Simpler()) simpler.push_back({format, residual});
  if (residual > 1) simpler.push_back({coded, 1});
  return simpler;
}

}  // namespace kvcheck
