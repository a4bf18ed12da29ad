#include "reference/spec/plain_format.h"

#include <algorithm>
#include <array>

namespace kvcheck {
namespace {

// Simplest first, for shrinking; All() lists them as texts do.
constexpr std::array<DType, 6> kByRank = {DType::kFloat32,      DType::kFloat16,
                                          DType::kBFloat16,     DType::kFloat64,
                                          DType::kFloat8E4M3FN, DType::kFloat8E5M2};
constexpr std::array<DType, 6> kTypes = {DType::kFloat64,      DType::kFloat32,
                                         DType::kFloat16,      DType::kBFloat16,
                                         DType::kFloat8E4M3FN, DType::kFloat8E5M2};

}  // namespace

std::optional<PlainFormat> PlainFormat::Parse(Piece, const std::vector<Piece>& parts,
                                              bool* has_row_type) {
  const auto dtype = ParseDType(parts[0].text);
  if (parts.size() != 1 || !dtype || !PlainFormat{*dtype}.Exists()) return std::nullopt;
  if (has_row_type != nullptr) *has_row_type = true;
  return PlainFormat{*dtype};
}

std::vector<PlainFormat> PlainFormat::All() {
  std::vector<PlainFormat> formats;
  for (const DType type : kTypes) formats.push_back({type});
  return formats;
}

bool PlainFormat::Exists() const {
  return std::find(kTypes.begin(), kTypes.end(), dtype) != kTypes.end();
}

std::string PlainFormat::Kind() const {
  return dtype == DType::kFloat8E4M3FN || dtype == DType::kFloat8E5M2 ? "fp8" : "plain";
}

Planes PlainFormat::PlanesOf(int64_t head_dim) const {
  Planes planes;
  planes.Add({.name = "codes", .dtype = dtype, .elements = head_dim});
  return planes;
}

int64_t RankOf(DType type) {
  const auto* at = std::find(kByRank.begin(), kByRank.end() - 1, type);
  return at - kByRank.begin();
}

}  // namespace kvcheck
