#include "reference/spec/uniform_format.h"

#include <fmt/format.h>

#include <string_view>

#include "reference/spec/plain_format.h"
#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

std::string_view PlaceOf(const UniformFormat& format) {
  return format.is_inline ? "inline" : "token";
}

}  // namespace

std::optional<UniformFormat> UniformFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                                  bool* has_row_type) {
  if (parts[0].text != "uniform") return std::nullopt;
  constexpr std::string_view kWritten =
      "uniform codes are written uniform:BITS:PLACE:TYPE, as uniform:4:token:bf16";
  if (parts.size() < 3) piece.Refuse(kWritten);
  UniformFormat format;
  format.bits = static_cast<int>(ParseInt(parts[1], 0, 64));
  if (format.bits != 3 && format.bits != 4) parts[1].Refuse("uniform codes have 3 or 4 bits");
  if (parts[2].text != "token" && parts[2].text != "inline") {
    parts[2].Refuse(
        "the place of scale and minimum is token (in planes of their own) or inline (after the "
        "codes)");
  }
  format.is_inline = parts[2].text == "inline";
  format.row_type = ParseRowType(piece, parts, 3, kWritten, has_row_type);
  return format;
}

std::vector<UniformFormat> UniformFormat::All() {
  std::vector<UniformFormat> formats;
  for (const int bits : {3, 4}) {
    for (const bool is_inline : {false, true}) {
      for (const DType type : kRowTypes) formats.push_back({bits, is_inline, type});
    }
  }
  return formats;
}

bool UniformFormat::Exists() const { return (bits == 3 || bits == 4) && IsRowType(row_type); }

std::string UniformFormat::Kind() const {
  return fmt::format("uniform:{}:{}", bits, PlaceOf(*this));
}

std::string UniformFormat::Text() const {
  return fmt::format("{}:{}", Kind(), ShortName(row_type));
}

Planes UniformFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  if (is_inline) {
    planes.Add({"cells", DType::kUInt8, "", CodeBytes(head_dim) + 4});
    return planes;
  }
  planes.Add({"codes", DType::kUInt8, "", CodeBytes(head_dim)});
  planes.Add({"scales", DType::kFloat16, "", 1});
  planes.Add({"zeros", DType::kFloat16, "", 1});
  return planes;
}

int64_t UniformFormat::Rank() const {
  return 126 + 2 * (4 - bits) + (is_inline ? 1 : 0) + kvcheck::RankOf(row_type);
}

std::vector<UniformFormat> UniformFormat::Simpler() const {
  std::vector<UniformFormat> simpler;
  if (is_inline) simpler.push_back({bits, false, row_type});
  if (bits != 4) simpler.push_back({4, is_inline, row_type});
  return simpler;
}

}  // namespace kvcheck
