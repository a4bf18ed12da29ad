#include "reference/spec/int4zp_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reference/spec/plain_format.h"

namespace kvcheck {
namespace {

constexpr std::array<DType, 3> kRows = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

bool IsRowType(DType type) { return std::find(kRows.begin(), kRows.end(), type) != kRows.end(); }

}  // namespace

std::optional<Int4zpFormat> Int4zpFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                                bool* has_row_type) {
  if (parts[0].text != "int4zp") return std::nullopt;
  const bool named = parts.size() == 3;
  if (!named && !(parts.size() == 2 && has_row_type != nullptr)) {
    piece.Refuse("nibbles with a zero point are written int4zp:PLACE:TYPE, as int4zp:token:bf16");
  }
  Int4zpFormat format;
  if (parts[1].text != "token" && parts[1].text != "inline") {
    parts[1].Refuse(
        "the scale's place is token (in a plane of its own) or inline (after the codes)");
  }
  format.is_inline = parts[1].text == "inline";
  format.row_type = DType::kFloat32;
  if (has_row_type != nullptr) *has_row_type = named;
  if (!named) return format;
  const auto type = ParseDType(parts[2].text);
  if (!type || !IsRowType(*type)) parts[2].Refuse("rows are f32, f16 or bf16");
  format.row_type = *type;
  return format;
}

std::vector<Int4zpFormat> Int4zpFormat::All() {
  std::vector<Int4zpFormat> formats;
  for (const bool is_inline : {false, true}) {
    for (const DType type : kRows) formats.push_back({is_inline, type});
  }
  return formats;
}

bool Int4zpFormat::Exists() const { return IsRowType(row_type); }

std::string Int4zpFormat::Text() const {
  return fmt::format("int4zp:{}:{}", is_inline ? "inline" : "token", ShortName(row_type));
}

Planes Int4zpFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  if (is_inline) {
    planes.Add({"cells", DType::kUInt8, "", head_dim / 2 + 4});
    return planes;
  }
  planes.Add({"codes", DType::kUInt8, "", head_dim / 2});
  planes.Add({"scales", DType::kFloat32, "", 1});
  return planes;
}

int64_t Int4zpFormat::Rank() const { return 120 + (is_inline ? 1 : 0) + kvcheck::RankOf(row_type); }

std::vector<Int4zpFormat> Int4zpFormat::Simpler() const {
  if (!is_inline) return {};
  return {{false, row_type}};
}

}  // namespace kvcheck
