#include "reference/spec/mx_format.h"

#include <fmt/format.h>

#include "reference/spec/plain_format.h"
#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

constexpr int kBlock = 32;
constexpr int kSmallBlock = 16;
constexpr std::string_view kWritten =
    "an MX format is written mxfp4:TYPE, mxfp4:g16:TYPE, mxfp8:e4m3:TYPE or mxfp8:e5m2:TYPE, as "
    "mxfp4:bf16";

}  // namespace

std::optional<MxFormat> MxFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                        bool* has_row_type) {
  MxFormat format;
  size_t taken = 1;
  if (parts[0].text == "mxfp8") {
    if (parts.size() < 2) piece.Refuse(kWritten);
    if (parts[1].text != "e4m3" && parts[1].text != "e5m2") {
      parts[1].Refuse("elements of mxfp8 are e4m3 or e5m2");
    }
    format.element = parts[1].text == "e4m3" ? DType::kFloat8E4M3FN : DType::kFloat8E5M2;
    taken = 2;
  } else if (parts[0].text != "mxfp4") {
    return std::nullopt;
  } else if (parts.size() > 1 && parts[1].text.substr(0, 1) == "g") {
    if (parts[1].text != "g16") {
      parts[1].Refuse("blocks of mxfp4 have 32 channels, which is left out, or 16, written g16");
    }
    format.block = kSmallBlock;
    taken = 2;
  }
  format.row_dtype = ParseRowType(piece, parts, taken, kWritten, has_row_type);
  return format;
}

std::vector<MxFormat> MxFormat::All() {
  std::vector<MxFormat> formats;
  for (const DType type : kRowTypes) {
    formats.push_back({DType::kFloat4E2M1FN, kBlock, type});
    formats.push_back({DType::kFloat4E2M1FN, kSmallBlock, type});
    formats.push_back({DType::kFloat8E4M3FN, kBlock, type});
    formats.push_back({DType::kFloat8E5M2, kBlock, type});
  }
  return formats;
}

bool MxFormat::Exists() const {
  const bool is_fp4 = element == DType::kFloat4E2M1FN;
  const bool is_fp8 = element == DType::kFloat8E4M3FN || element == DType::kFloat8E5M2;
  return IsRowType(row_dtype) && (is_fp4 || is_fp8) &&
         (block == kBlock || (is_fp4 && block == kSmallBlock));
}

std::string MxFormat::Text() const {
  const std::string_view middle = element == DType::kFloat8E4M3FN ? ":e4m3"
                                  : element == DType::kFloat8E5M2 ? ":e5m2"
                                  : block == kSmallBlock          ? ":g16"
                                                                  : "";
  return fmt::format("{}{}:{}", Kind(), middle, ShortName(row_dtype));
}

Planes MxFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  planes.Add(
      {"codes", DType::kUInt8, "", element == DType::kFloat4E2M1FN ? head_dim / 2 : head_dim});
  planes.Add({"scales", DType::kUInt8, "G", head_dim / block});
  return planes;
}

// Products of e5m2 span more bits than sums over codes are exact in.
std::optional<CodeGrid> MxFormat::Grid() const {
  if (element == DType::kFloat8E5M2) return std::nullopt;
  const auto largest = static_cast<int64_t>(FloatTypeOf(element).largest_finite);
  return CodeGrid{-largest, largest, block};
}

int64_t MxFormat::Rank() const {
  const int64_t bits = element == DType::kFloat4E2M1FN   ? 4
                       : element == DType::kFloat8E4M3FN ? 8
                                                         : 9;
  return 150 + 4 * bits + (block == kBlock ? 0 : 3) + RankOf(row_dtype);
}

std::vector<MxFormat> MxFormat::Simpler() const {
  return {{DType::kFloat4E2M1FN, block, DType::kFloat32},
          {DType::kFloat4E2M1FN, block, row_dtype},
          {element, block, DType::kFloat32}};
}

}  // namespace kvcheck
