#include "reference/spec/scaled_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "reference/spec/enum_text.h"
#include "reference/spec/plain_format.h"

namespace kvcheck {
namespace {

constexpr EnumNames<ScaledCode, 4> kCodes = {{{ScaledCode::kE4M3FN, "e4m3fn"},
                                              {ScaledCode::kE5M2, "e5m2"},
                                              {ScaledCode::kE4M3FNUZ, "e4m3fnuz"},
                                              {ScaledCode::kE5M2FNUZ, "e5m2fnuz"}}};
constexpr std::array<DType, 3> kRowTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
// One number per code in the list of all formats: not a power of two, but for one of them.
constexpr std::array<std::pair<ScaledCode, float>, 5> kTensorScales = {
    {{ScaledCode::kE4M3FN, 1.25f},
     {ScaledCode::kE5M2, 0.5f},
     {ScaledCode::kE4M3FNUZ, 2.5f},
     {ScaledCode::kE5M2FNUZ, 0.3f},
     {ScaledCode::kInt8, 0.05f}}};

double LargestOf(ScaledCode code) {
  switch (code) {
    case ScaledCode::kE4M3FN:
      return 448;
    case ScaledCode::kE4M3FNUZ:
      return 240;
    case ScaledCode::kInt8:
      return 127;
    default:
      return 57344;
  }
}

bool IsScale(float scale) { return scale >= 0x1p-64f && scale <= 0x1p64f; }

void ParsePlace(Piece piece, ScaledFormat* format) {
  if (piece.text == "token") {
    format->place = ScalePlace::kToken;
  } else if (piece.text == "inline") {
    format->place = ScalePlace::kInline;
  } else if (piece.text.substr(0, 1) == "s") {
    format->place = ScalePlace::kTensor;
    format->scale = static_cast<float>(ParseReal({piece.text.substr(1), piece.whole}));
    if (!IsScale(format->scale)) piece.Refuse("a scale lies between 2^-64 and 2^64");
  } else if (piece.text.substr(0, 1) == "h") {
    format->place = ScalePlace::kHeads;
    const std::vector<Piece> scales = Split({piece.text.substr(1), piece.whole}, '/');
    if (scales.size() > kMostScaledHeads) piece.Refuse("scales are those of 16 heads at most");
    for (const Piece& scale : scales) {
      auto& of_head = format->head_scales[static_cast<size_t>(format->heads++)];
      of_head = static_cast<float>(ParseReal(scale));
      if (!IsScale(of_head)) scale.Refuse("a scale lies between 2^-64 and 2^64");
    }
  } else {
    piece.Refuse(
        "the scale's place is token (in a plane of its own), inline (after the codes), sNUMBER "
        "(one for the tensor), as s0.5, or hNUMBER/NUMBER... (one per head)");
  }
}

}  // namespace

std::optional<ScaledFormat> ScaledFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                                bool* has_row_type) {
  const bool fp8 = parts[0].text == "fp8";
  if (!fp8 && parts[0].text != "int8") return std::nullopt;
  const size_t place = fp8 ? 2 : 1;
  const bool named = parts.size() == place + 2;
  if (!named && !(parts.size() == place + 1 && has_row_type != nullptr)) {
    piece.Refuse(
        "codes of 8 bits with a scale are written fp8:CODE:PLACE:TYPE or int8:PLACE:TYPE, as "
        "fp8:e4m3fn:token:bf16 or int8:inline:f16");
  }
  ScaledFormat format;
  format.code = fp8 ? ParseEnum(kCodes, parts[1]) : ScaledCode::kInt8;
  ParsePlace(parts[place], &format);
  format.row_type = DType::kFloat32;
  if (has_row_type != nullptr) *has_row_type = named;
  if (!named) return format;
  const auto type = ParseDType(parts[place + 1].text);
  if (!type || std::find(kRowTypes.begin(), kRowTypes.end(), *type) == kRowTypes.end()) {
    parts[place + 1].Refuse("rows are f32, f16 or bf16");
  }
  format.row_type = *type;
  return format;
}

std::vector<ScaledFormat> ScaledFormat::All() {
  std::vector<ScaledFormat> formats;
  for (const auto& [code, scale] : kTensorScales) {
    for (const DType type : kRowTypes) {
      for (const ScalePlace place :
           {ScalePlace::kToken, ScalePlace::kInline, ScalePlace::kTensor}) {
        ScaledFormat format;
        format.code = code;
        format.place = place;
        format.row_type = type;
        if (place == ScalePlace::kTensor) format.scale = scale;
        formats.push_back(format);
      }
    }
  }
  return formats;
}

bool ScaledFormat::Exists() const {
  const bool has_scale = place == ScalePlace::kTensor ? IsScale(scale) : scale == 0;
  const bool has_heads =
      place == ScalePlace::kHeads
          ? heads > 0 && std::all_of(head_scales.begin(), head_scales.begin() + heads, IsScale)
          : heads == 0;
  return std::find(kRowTypes.begin(), kRowTypes.end(), row_type) != kRowTypes.end() && has_scale &&
         has_heads;
}

ScaledFormat ScaledFormat::OfHead(int64_t head) const {
  if (place != ScalePlace::kHeads) return *this;
  ScaledFormat one;
  one.code = code;
  one.place = ScalePlace::kTensor;
  one.scale = head_scales[static_cast<size_t>(head)];
  one.row_type = row_type;
  return one;
}

std::string ScaledFormat::Text() const {
  std::string place_text = place == ScalePlace::kToken ? "token" : "inline";
  // The shortest decimal that is this float.
  if (place == ScalePlace::kTensor) place_text = fmt::format("s{}", scale);
  for (int64_t h = 0; h < heads; ++h) {
    const float of_head = head_scales[static_cast<size_t>(h)];
    place_text = h == 0 ? fmt::format("h{}", of_head) : fmt::format("{}/{}", place_text, of_head);
  }
  if (!IsFp8()) return fmt::format("int8:{}:{}", place_text, ShortName(row_type));
  return fmt::format("fp8:{}:{}:{}", NameIn(kCodes, code), place_text, ShortName(row_type));
}

std::string ScaledFormat::Kind() const {
  const std::string name = IsFp8() ? fmt::format("fp8:{}", NameIn(kCodes, code)) : "int8";
  switch (place) {
    case ScalePlace::kToken:
      return name + ":token";
    case ScalePlace::kInline:
      return name + ":inline";
    case ScalePlace::kTensor:
      return name + ":tensor";
    default:
      return name + ":heads";
  }
}

// Dynamic: the largest code times the scale rounds to the row again, but next to the end of f32.
DType ScaledFormat::RangeType() const {
  if (IsDynamic()) return row_type == DType::kFloat32 ? DType::kBFloat16 : row_type;
  const float least = place == ScalePlace::kTensor
                          ? scale
                          : *std::min_element(head_scales.begin(), head_scales.begin() + heads);
  const double largest = LargestOf(code) * static_cast<double>(least);
  for (const DType type : {row_type, DType::kFloat16, DType::kFloat8E5M2, DType::kFloat8E4M3FN}) {
    if (FloatTypeOf(type).largest_finite <= largest) return type;
  }
  return DType::kFloat4E2M1FN;
}

Planes ScaledFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  if (place == ScalePlace::kInline) {
    planes.Add({"cells", DType::kUInt8, "", head_dim + 4});
    return planes;
  }
  planes.Add({"codes", IsFp8() ? DType::kUInt8 : DType::kInt8, "", head_dim});
  if (place == ScalePlace::kToken) planes.Add({"scales", DType::kFloat32, "", 1});
  return planes;
}

int64_t ScaledFormat::Rank() const {
  return 90 + 4 * static_cast<int64_t>(code) + static_cast<int64_t>(place) +
         kvcheck::RankOf(row_type);
}

std::vector<ScaledFormat> ScaledFormat::Simpler() const {
  std::vector<ScaledFormat> simpler;
  const auto add = [&](ScaledCode other, bool per_token, DType type) {
    ScaledFormat format = *this;
    format.code = other;
    format.row_type = type;
    if (per_token) {
      format.place = ScalePlace::kToken;
      format.scale = 0;
      format.head_scales = {};
      format.heads = 0;
    }
    if (format.Rank() < Rank()) simpler.push_back(format);
  };
  add(ScaledCode::kE4M3FN, true, DType::kFloat16);
  add(code, true, row_type);
  add(ScaledCode::kE4M3FN, false, row_type);
  return simpler;
}

}  // namespace kvcheck
