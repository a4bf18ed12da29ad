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

// The axes that are asked for, or a 1 in their place, of something like 1HLT, BLT or b,1,l,t: the
// least that has them. "" where that says nothing.
std::string AxesMeantBy(std::string_view text) {
  bool batch = false;
  bool heads = false;
  bool queries = false;
  bool keys = false;
  for (const char c : text) {
    switch (c) {
      case 'B':
      case 'b':
        batch = true;
        break;
      case 'H':
      case 'h':
        heads = true;
        break;
      case 'L':
      case 'l':
      case 'Q':
      case 'q':
        queries = true;
        break;
      case 'T':
      case 't':
      case 'S':
      case 's':
      case 'K':
      case 'k':
        if (keys) return "";
        keys = true;
        break;
      case '1':
      case ',':
      case 'x':
        break;
      default:
        return "";
    }
    // Keys are the last axis of every mask.
    if (keys && c != 'T' && c != 't' && c != 'S' && c != 's' && c != 'K' && c != 'k') return "";
  }
  if (!keys) return "";
  if (heads) return "BHLT";
  if (batch) return queries ? "B1LT" : "B11T";
  return queries ? "LT" : "T";
}

std::string_view MeaningOf(std::string_view axes) {
  if (axes == "T") return "one row of keys, for all batch rows, heads and queries";
  if (axes == "LT") return "one mask for all batch rows and heads";
  if (axes == "B1LT") return "one mask a batch row, for all its heads";
  if (axes == "B11T") return "one row of keys a batch row, for all its heads and queries";
  return "a mask of every batch row, head and query, each stored, also where they are the same "
         "(numpy.broadcast_to)";
}

MaskAxes ParseAxes(Piece piece) {
  for (const auto& [axes, name] : kAxes) {
    if (piece.text == name) return axes;
  }
  constexpr std::string_view kLegal = "mask axes are T, LT, B1LT, BHLT or B11T";
  const std::string meant = AxesMeantBy(piece.text);
  if (meant.empty()) piece.Refuse(kLegal);
  piece.Refuse(
      fmt::format("{}; for '{}' write {}: {}", kLegal, piece.text, meant, MeaningOf(meant)));
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
  if (name == "causal" || name == "is_causal") {
    term.Refuse(
        "'causal' can be two masks: causal_bottom_right (the last query sees every key, as the "
        "kernels of LLMs mean it: FlashAttention, FlashInfer, vLLM, MLX) or causal_top_left (the "
        "first query sees only the first key, as is_causal of PyTorch's "
        "scaled_dot_product_attention); they differ where L and T do");
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
