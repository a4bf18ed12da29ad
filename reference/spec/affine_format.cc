#include "reference/spec/affine_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "reference/spec/plain_format.h"

namespace kvcheck {
namespace {

constexpr std::array<int, 6> kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array<int, 3> kGroups = {32, 64, 128};
constexpr std::array<DType, 3> kScaleTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

template <typename Range, typename T>
bool Contains(const Range& range, const T& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

}  // namespace

// has_row_type: null where the text must name the scale type.
std::optional<AffineFormat> AffineFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                                bool* has_row_type) {
  if (parts[0].text != "affine") return std::nullopt;
  // With a residual: ResidualAffineFormat.
  if (parts.size() > 3 && parts[3].text.substr(0, 1) == "r") return std::nullopt;
  const bool named = parts.size() == 4;
  if (!named && !(parts.size() == 3 && has_row_type != nullptr)) {
    piece.Refuse("an affine format is written affine:BITS:gGROUP:SCALE_TYPE, as affine:4:g64:bf16");
  }
  AffineFormat format;
  format.bits = static_cast<int>(ParseInt(parts[1], 0, 64));
  if (!Contains(kBits, format.bits)) parts[1].Refuse("affine bits are 2, 3, 4, 5, 6 or 8");
  if (parts[2].text.substr(0, 1) != "g") parts[2].Refuse("a group is written g32, g64 or g128");
  format.group_size =
      static_cast<int>(ParseInt({parts[2].text.substr(1), parts[2].whole}, 0, 1 << 20));
  if (!Contains(kGroups, format.group_size)) parts[2].Refuse("affine groups are g32, g64 or g128");
  if (has_row_type != nullptr) *has_row_type = named;
  if (!named) return format;
  const auto scale = ParseDType(parts[3].text);
  if (!scale || !Contains(kScaleTypes, *scale)) {
    parts[3].Refuse("affine scales are f32, f16 or bf16");
  }
  format.scale_dtype = *scale;
  return format;
}

std::vector<AffineFormat> AffineFormat::All() {
  std::vector<AffineFormat> formats;
  for (const int bits : kBits) {
    for (const int group : kGroups) {
      for (const DType scale : kScaleTypes) formats.push_back({bits, group, scale});
    }
  }
  return formats;
}

bool AffineFormat::Exists() const {
  return Contains(kBits, bits) && Contains(kGroups, group_size) &&
         Contains(kScaleTypes, scale_dtype);
}

std::string AffineFormat::Text() const {
  return fmt::format("affine:{}:g{}:{}", bits, group_size, ShortName(scale_dtype));
}

std::string AffineFormat::Kind() const { return fmt::format("affine:{}", bits); }

Planes AffineFormat::PlanesOf(int64_t head_dim) const {
  const int64_t groups = head_dim / group_size;
  Planes planes;
  planes.Add({"codes", DType::kUInt32, "W", head_dim * bits / 32});
  planes.Add({"scales", scale_dtype, "G", groups});
  planes.Add({"biases", scale_dtype, "G", groups});
  return planes;
}

int64_t AffineFormat::Rank() const {
  return 10 + 2 * std::abs(bits - 4) + group_size + RankOf(scale_dtype);
}

std::vector<AffineFormat> AffineFormat::Simpler() const {
  return {{4, 32, DType::kFloat16}, {4, group_size, scale_dtype}, {bits, 32, scale_dtype}};
}

}  // namespace kvcheck
