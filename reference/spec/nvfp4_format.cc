#include "reference/spec/nvfp4_format.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "reference/spec/plain_format.h"
#include "reference/spec/row_type.h"

namespace kvcheck {
namespace {

constexpr std::string_view kWritten =
    "nvfp4 is written nvfp4[:swizzled][:xGLOBAL_SCALE]:TYPE, as nvfp4:x0.011:bf16";
// Of AllKvFormats(): no power of two, so that its products round.
constexpr float kSomeScale = 0.011f;

// So that products with a block's scale are normal numbers of f32.
bool IsGlobalScale(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f; }

float ParseGlobalScale(Piece part) {
  const std::string_view number = part.text.substr(1);
  float scale = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), scale);
  const bool is_whole = error == std::errc() && end == number.data() + number.size();
  if (!is_whole || !IsGlobalScale(scale)) {
    part.Refuse("a global scale is a number from 2^-100 to 2^100, written x0.011");
  }
  if (scale == 1) part.Refuse("a global scale of 1 is left out");
  return scale;
}

}  // namespace

std::optional<Nvfp4Format> Nvfp4Format::Parse(Piece piece, const std::vector<Piece>& parts,
                                              bool* has_row_type) {
  if (parts[0].text != "nvfp4") return std::nullopt;
  Nvfp4Format format;
  size_t taken = 1;
  format.swizzled = parts.size() > taken && parts[taken].text == "swizzled";
  if (format.swizzled) ++taken;
  if (parts.size() > taken && parts[taken].text.substr(0, 1) == "x") {
    format.global_scale = ParseGlobalScale(parts[taken++]);
  }
  format.row_dtype = ParseRowType(piece, parts, taken, kWritten, has_row_type);
  return format;
}

std::vector<Nvfp4Format> Nvfp4Format::All() {
  std::vector<Nvfp4Format> formats;
  for (const DType type : kRowTypes) {
    formats.push_back({1, type});
    formats.push_back({kSomeScale, type});
    formats.push_back({1, type, true});
  }
  return formats;
}

bool Nvfp4Format::Exists() const { return IsRowType(row_dtype) && IsGlobalScale(global_scale); }

// The shortest decimal that is this f32.
std::string Nvfp4Format::Text() const {
  const std::string_view order = swizzled ? ":swizzled" : "";
  const std::string scale = global_scale == 1 ? "" : fmt::format(":x{}", global_scale);
  return fmt::format("nvfp4{}{}:{}", order, scale, ShortName(row_dtype));
}

Planes Nvfp4Format::PlanesOf(int64_t head_dim) const {
  Planes planes;
  planes.Add({"codes", DType::kUInt8, "", head_dim / 2});
  planes.Add({"scales", DType::kUInt8, "G", head_dim / kBlock});
  return planes;
}

int64_t Nvfp4Format::Rank() const {
  return 200 + (global_scale == 1 ? 0 : 10) + (swizzled ? 20 : 0) + RankOf(row_dtype);
}

std::vector<Nvfp4Format> Nvfp4Format::Simpler() const {
  std::vector<Nvfp4Format> simpler = {
      {1, DType::kFloat32}, {1, row_dtype}, {global_scale, DType::kFloat32}};
  if (swizzled) simpler.push_back({1, DType::kFloat32, true});
  return simpler;
}

}  // namespace kvcheck
