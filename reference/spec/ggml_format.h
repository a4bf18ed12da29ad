// What formats of ggml (llama.cpp) have in common: a row is a sequence of blocks of 32 channels, a
// block is the struct that ggml stores, in one plane of bytes: what stands in a gguf file and in
// llama.cpp's KV cache. A family is a struct of its own with the constants named below.

#ifndef REFERENCE_SPEC_GGML_FORMAT_H_
#define REFERENCE_SPEC_GGML_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/dtype.h"
#include "reference/spec/format_planes.h"
#include "reference/spec/text.h"

namespace kvcheck {

inline constexpr int64_t kGgmlBlock = 32;  // channels

// Family::kName       its text
// Family::kBlockBytes
// Family::kLowest, kHighest   integers that codes stand for
template <typename Family>
// NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility): families are aggregates
struct GgmlFormat {
  bool operator==(const GgmlFormat&) const = default;

  // A family's row; what each is: FormatFamily in kv_format.h.
  static std::string_view Grammar() { return Family::kName; }
  static std::string_view Names() { return Family::kName; }
  static std::optional<Family> Parse(Piece, const std::vector<Piece>& parts, bool* has_row_type) {
    if (parts.size() != 1 || parts[0].text != Family::kName) return std::nullopt;
    if (has_row_type != nullptr) *has_row_type = true;
    return Family{};
  }
  static std::vector<Family> All() { return {Family{}}; }
  bool Exists() const { return true; }
  std::string Text() const { return std::string(Family::kName); }
  std::string Kind() const { return Text(); }
  int64_t Block() const { return kGgmlBlock; }
  DType RowType() const { return DType::kFloat32; }
  DType RangeType() const { return DType::kFloat16; }  // of the scale, and more
  Family WithRowType(DType) const { return Family{}; }
  Planes PlanesOf(int64_t head_dim) const {
    Planes planes;
    planes.Add({"blocks", DType::kUInt8, "", head_dim / kGgmlBlock * Family::kBlockBytes});
    return planes;
  }
  std::optional<CodeGrid> Grid() const {
    return CodeGrid{Family::kLowest, Family::kHighest, kGgmlBlock};
  }
  bool MayBeRotated() const { return true; }
  // Codes of fewer bits are simpler, as those of affine formats.
  int64_t Rank() const { return 50 + Family::kBlockBytes; }
  std::vector<Family> Simpler() const { return {}; }
};

}  // namespace kvcheck

#endif  // REFERENCE_SPEC_GGML_FORMAT_H_
