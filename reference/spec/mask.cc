#include "reference/spec/mask.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>

#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

constexpr std::array<std::pair<MaskAxes, std::string_view>, 5> kAxes = {{
    {MaskAxes::kT, "T"},
    {MaskAxes::kLT, "LT"},
    {MaskAxes::kB1LT, "B1LT"},
    {MaskAxes::kBHLT, "BHLT"},
    {MaskAxes::kB11T, "B11T"},
}};

MaskAxes ParseAxes(Piece piece) {
  for (const auto& [axes, name] : kAxes) {
    if (piece.text == name) return axes;
  }
  piece.Refuse("mask axes are T, LT, B1LT, BHLT or B11T");
}

// Rank of a term in the fixed order, so that a mask has one text.
int ParseTerm(Piece term, MaskSpec* mask) {
  const std::vector<Piece> parts = Split(term, ':');
  const std::string_view name = parts[0].text;
  const auto expect = [&](size_t count, std::string_view form) {
    if (parts.size() != count) term.Refuse(fmt::format("expected {}", form));
  };
  if (name == "causal_bottom_right" || name == "causal_top_left") {
    expect(1, name);
    mask->causal =
        name == "causal_top_left" ? CausalAlignment::kTopLeft : CausalAlignment::kBottomRight;
    return 1;
  }
  if (name == "window") {
    expect(2, "window:TOKENS");
    mask->window = ParseInt(parts[1], 1, std::numeric_limits<int64_t>::max());
    return 2;
  }
  if (name == "left_pad") {
    expect(2, "left_pad:P0,P1,...");
    for (const Piece& pad : Split(parts[1], ',')) {
      mask->left_padding.push_back(ParseInt(pad, 0, std::numeric_limits<int64_t>::max()));
    }
    return 3;
  }
  if (name == "bool") {
    expect(2, "bool:AXES");
    mask->array = MaskArrayKind::kBoolean;
    mask->axes = ParseAxes(parts[1]);
    return 4;
  }
  if (name == "additive") {
    expect(3, "additive:AXES:TYPE");
    mask->array = MaskArrayKind::kAdditive;
    mask->axes = ParseAxes(parts[1]);
    const auto dtype = ParseDType(parts[2].text);
    if (!dtype || (*dtype != DType::kFloat64 && *dtype != DType::kFloat32 &&
                   *dtype != DType::kFloat16 && *dtype != DType::kBFloat16)) {
      parts[2].Refuse("an additive mask is f64, f32, f16 or bf16");
    }
    mask->additive_dtype = *dtype;
    return 4;
  }
  term.Refuse(fmt::format(
      "'{}' is not a mask term{}; terms: causal_bottom_right, causal_top_left, window:W, "
      "left_pad:P0,..., bool:AXES, additive:AXES:TYPE",
      name,
      DidYouMean(name, "causal_bottom_right, causal_top_left, window, left_pad, bool, additive")));
}

}  // namespace

std::string Print(const MaskSpec& mask) {
  std::vector<std::string> terms;
  if (mask.causal == CausalAlignment::kBottomRight) terms.push_back("causal_bottom_right");
  if (mask.causal == CausalAlignment::kTopLeft) terms.push_back("causal_top_left");
  if (mask.window) terms.push_back(fmt::format("window:{}", *mask.window));
  if (!mask.left_padding.empty()) {
    terms.push_back(fmt::format("left_pad:{}", fmt::join(mask.left_padding, ",")));
  }
  if (mask.array == MaskArrayKind::kBoolean)
    terms.push_back(fmt::format("bool:{}", Name(mask.axes)));
  if (mask.array == MaskArrayKind::kAdditive) {
    terms.push_back(fmt::format("additive:{}:{}", Name(mask.axes), ShortName(mask.additive_dtype)));
  }
  return terms.empty() ? "none" : fmt::format("{}", fmt::join(terms, "+"));
}

MaskSpec ParseMask(Piece piece) {
  MaskSpec mask;
  if (piece.text == "none") return mask;
  int last = 0;
  for (const Piece& term : Split(piece, '+')) {
    const int rank = ParseTerm(term, &mask);
    if (rank <= last) {
      term.Refuse("mask terms come once each, in the order causal, window, left_pad, array");
    }
    last = rank;
  }
  return mask;
}

std::string_view Name(MaskAxes axes) {
  for (const auto& [value, name] : kAxes) {
    if (value == axes) return name;
  }
  return "";
}

Shape MaskShape(MaskAxes axes, int64_t batch, int64_t query_heads, int64_t query_len,
                int64_t kv_len) {
  switch (axes) {
    case MaskAxes::kT:
      return {{"T", kv_len}};
    case MaskAxes::kLT:
      return {{"L", query_len}, {"T", kv_len}};
    case MaskAxes::kB1LT:
      return {{"B", batch}, {"Hq", 1}, {"L", query_len}, {"T", kv_len}};
    case MaskAxes::kBHLT:
      return {{"B", batch}, {"Hq", query_heads}, {"L", query_len}, {"T", kv_len}};
    case MaskAxes::kB11T:
      return {{"B", batch}, {"Hq", 1}, {"L", 1}, {"T", kv_len}};
  }
  return {};
}

}  // namespace kvcheck
